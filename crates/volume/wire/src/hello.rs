//! The first bytes of a connection, in both directions.
//!
//! Hello (client): magic `RDBT`, protocol version u16, role u8, flags u8, generation u64, session u64,
//! resume Seq u64, volume name (u16 length, bytes). Length of the whole in front as u32.
//! Welcome (node): magic, protocol version u16, status u8, flags u8, Seq u64, LSN u64, message (u16 length, bytes);
//! length in front as u32.
//!
//! All numbers little-endian. Lengths over [`MAX_LEN_BYTES`] are refused before anything is read.
//!
//! The version is the oldest one that the sender speaks, and the layout is the same in all versions from 5 on. With the
//! flag for it in a Hello both sides negotiate before the Welcome ([`crate::greeting`]).

use crate::error::WireError;
use crate::greeting::ANNOUNCED;
use crate::reader::Reader;
use crate::{OLDEST_PROTOCOL_VERSION, Seq};
use redoubt_negotiation::Announcement;
use redoubt_types::Lsn;

const MAGIC: [u8; 4] = *b"RDBT";
/// Longest Hello or Welcome after the length field.
pub const MAX_LEN_BYTES: usize = 4096;

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The ordered stream of one server.
    Log,
    /// Page reads of one server.
    Page,
    /// The `redoubt` command.
    Control,
    /// Notices of the node to one server, so that nothing comes back on its log connection; see [`crate::notice`].
    Notices,
}

/// Whether a connection is compressed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// No.
    Off,
    /// All of it.
    On,
    /// Each side decides about its own direction, from one message to the next. A node of a version without this mode
    /// treats it as [`Compression::Off`].
    Auto,
}

const FLAG_COMPRESSION: u8 = 1;
const FLAG_COMPRESSION_AUTO: u8 = 2;
/// In a Hello: the client takes an announcement of the node before its Welcome.
const FLAG_NEGOTIATES: u8 = 4;
/// Offset of the flags in a Hello, after magic, version and role.
const HELLO_FLAGS_AT: usize = 4 + 2 + 1;

impl Compression {
    const fn flags(self) -> u8 {
        match self {
            Self::Off => 0,
            Self::On => FLAG_COMPRESSION,
            Self::Auto => FLAG_COMPRESSION_AUTO,
        }
    }

    /// Flags of the compression. Other flags are ignored.
    const fn from_flags(flags: u8) -> Self {
        if flags & FLAG_COMPRESSION != 0 {
            Self::On
        } else if flags & FLAG_COMPRESSION_AUTO != 0 {
            Self::Auto
        } else {
            Self::Off
        }
    }
}

/// As when it could only be on or off.
impl std::fmt::Debug for Compression {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Off => "false",
            Self::On => "true",
            Self::Auto => "auto",
        })
    }
}

/// Sent by the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Purpose of the connection.
    pub role: Role,
    /// Compression that the client requests.
    pub compression: Compression,
    /// Generation of the attachment (0 on control connections).
    pub generation: u64,
    /// Random number of the server process; a new one starts a new session of the same generation.
    pub session: u64,
    /// Log role: the client holds every logged frame from this Seq on (its oldest unacknowledged byte).
    pub resume: Seq,
    /// Volume name (empty on control connections).
    pub volume: String,
}

/// The node's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Accepted, or the reason for the refusal.
    pub status: Status,
    /// Compression of this connection.
    pub compression: Compression,
    /// Log role: the Seq the node expects next.
    pub next_seq: Seq,
    /// Log role: the LSN the next redo byte has.
    pub next_lsn: Lsn,
    /// The reason for a refusal, for people.
    pub message: String,
}

/// Outcome of a Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The connection is accepted.
    Accepted,
    /// Another server took the volume over: the client must stop for good.
    Fenced,
    /// The request can never succeed (no such volume, wrong version, volume stopped).
    Refused,
    /// Not now (node starting up, volume recovering): try again.
    TryLater,
}

impl Hello {
    /// All bytes, length included, of a client that negotiates ([`crate::greeting::ClientGreeting`]).
    pub(crate) fn encode_negotiating(&self) -> Vec<u8> {
        let mut out = self.encode();
        out[4 + HELLO_FLAGS_AT] |= FLAG_NEGOTIATES;
        out
    }

    /// All bytes, length included, of a legacy client, which does not negotiate.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&OLDEST_PROTOCOL_VERSION.to_le_bytes());
        out.push(match self.role {
            Role::Log => 1,
            Role::Page => 2,
            Role::Control => 3,
            Role::Notices => 4,
        });
        out.push(self.compression.flags());
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&self.session.to_le_bytes());
        out.extend_from_slice(&self.resume.0.to_le_bytes());
        put_text(&mut out, &self.volume);
        put_len(&mut out);
        out
    }

    /// Decodes the bytes after the length field.
    ///
    /// # Errors
    /// Any [`WireError`]; the connection must be closed.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("hello", bytes);
        take_version(&mut reader)?;
        if !negotiates(bytes) {
            check_version(bytes)?;
        }
        let role = match reader.u8("role")? {
            1 => Role::Log,
            2 => Role::Page,
            3 => Role::Control,
            4 => Role::Notices,
            other => return Err(invalid("hello", "role", other)),
        };
        let hello = Self {
            role,
            compression: Compression::from_flags(reader.u8("flags")?),
            generation: reader.u64("generation")?,
            session: reader.u64("session")?,
            resume: Seq(reader.u64("resume")?),
            volume: text(&mut reader, "volume")?,
        };
        reader.finish()?;
        Ok(hello)
    }
}

impl Welcome {
    /// All bytes, length included.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&OLDEST_PROTOCOL_VERSION.to_le_bytes());
        out.push(match self.status {
            Status::Accepted => 0,
            Status::Fenced => 1,
            Status::Refused => 2,
            Status::TryLater => 3,
        });
        out.push(self.compression.flags());
        out.extend_from_slice(&self.next_seq.0.to_le_bytes());
        out.extend_from_slice(&self.next_lsn.0.to_le_bytes());
        put_text(&mut out, &self.message);
        put_len(&mut out);
        out
    }

    /// Decodes the bytes after the length field.
    ///
    /// # Errors
    /// Any [`WireError`]; the connection must be closed.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        check_version(bytes)?;
        Self::decode_negotiated(bytes)
    }

    /// As [`Welcome::decode`], from a node whose versions are already announced.
    pub(crate) fn decode_negotiated(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("welcome", bytes);
        take_version(&mut reader)?;
        let status = match reader.u8("status")? {
            0 => Status::Accepted,
            1 => Status::Fenced,
            2 => Status::Refused,
            3 => Status::TryLater,
            other => return Err(invalid("welcome", "status", other)),
        };
        let welcome = Self {
            status,
            compression: Compression::from_flags(reader.u8("flags")?),
            next_seq: Seq(reader.u64("next seq")?),
            next_lsn: Lsn(reader.u64("next lsn")?),
            message: text(&mut reader, "message")?,
        };
        reader.finish()?;
        Ok(welcome)
    }
}

/// Length that follows, checked against [`MAX_LEN_BYTES`].
///
/// # Errors
/// [`WireError::TooLong`], which is also what a peer of another protocol looks like.
pub fn decode_len(bytes: [u8; 4]) -> Result<usize, WireError> {
    let len_bytes = u32::from_le_bytes(bytes) as usize;
    if len_bytes > MAX_LEN_BYTES {
        return Err(WireError::BadMagic { found: bytes });
    }
    Ok(len_bytes)
}

/// Whether the client that sent this Hello accepts an announcement before the Welcome.
pub(crate) fn negotiates(hello: &[u8]) -> bool {
    hello.get(HELLO_FLAGS_AT).is_some_and(|flags| flags & FLAG_NEGOTIATES != 0)
}

/// The version in a Hello or Welcome.
pub(crate) fn version(bytes: &[u8]) -> Result<u16, WireError> {
    take_version(&mut Reader::new("greeting", bytes))
}

/// The first bytes of another protocol.
pub(crate) fn bad_magic(bytes: &[u8]) -> WireError {
    let mut found = [0; 4];
    found.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    WireError::BadMagic { found }
}

fn take_version(reader: &mut Reader<'_>) -> Result<u16, WireError> {
    let magic = reader.bytes(4, "magic")?;
    if magic != MAGIC {
        return Err(bad_magic(magic));
    }
    reader.u16("version")
}

fn check_version(bytes: &[u8]) -> Result<(), WireError> {
    ANNOUNCED.agree(Announcement::of_legacy_peer(version(bytes)?))?;
    Ok(())
}

fn invalid(what: &'static str, field: &'static str, value: u8) -> WireError {
    WireError::Invalid { what, field, why: format!("value {value} is not known") }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(MAX_LEN_BYTES / 2)];
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn text(reader: &mut Reader<'_>, field: &'static str) -> Result<String, WireError> {
    let len_bytes = reader.u16(field)? as usize;
    Ok(String::from_utf8_lossy(reader.bytes(len_bytes, field)?).into_owned())
}

fn put_len(out: &mut [u8]) {
    let len_bytes = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&len_bytes.to_le_bytes());
}

#[cfg(test)]
mod tests;
