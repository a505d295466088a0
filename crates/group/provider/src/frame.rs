//! Messages between members: frames on a connection that carries them in one direction.
//!
//! A frame is its length (4 bytes, without itself), a kind (1 byte) and its content. The dialling member sends
//! [`Frame::Hello`], receives [`Frame::Answer`], and from then on only sends frames: the other direction is another
//! connection. The hello has the version of all formats, including those of the consensus.
//!
//! Hello and Welcome carry an [`Announcement`]: a range of versions, and feature bits. A frame that was added after the
//! start of [`LEGACY_VERSION`] belongs to a feature ([`Frame::for_peer`]), and is sent only to members that have
//! announced it. A *legacy* member, of an earlier build, refuses such a Hello and ends the connection. The next
//! connection to it begins with a legacy hello, with one version and no features.

use crate::bytes::{BytesError, Reader, put_bytes};
use crate::history::History;
use crate::replica::GroupId;
use crate::write_set::Seqno;
use redoubt_consensus::codec::{
    CodecError, decode_message, decode_snapshot, encode_message, encode_snapshot,
};
use redoubt_consensus::message::Message;
use redoubt_consensus::record::Snapshot;
use redoubt_consensus::types::{Incarnation, MemberId};
use redoubt_negotiation::{Announcement, BadAnnouncement, Features, Versions};
use std::borrow::Cow;
use std::io::{self, Read};

/// The newest version of the frames and their contents.
pub const VERSION: u16 = 5;
/// The oldest version that this member supports.
pub const OLDEST_VERSION: u16 = 5;
/// The version of members that compare a single number.
pub const LEGACY_VERSION: u16 = 5;
const _: () = assert!(LEGACY_VERSION <= OLDEST_VERSION && OLDEST_VERSION <= VERSION);

/// [`Frame::WhoHears`] and [`Frame::Hears`].
pub const INDIRECT_HEARING: Features = Features(1 << 0);
/// [`Frame::Applied`] of a member that is desynchronised on purpose.
pub const OUT_OF_STEP: Features = Features(1 << 1);
/// The versions and features of this member.
pub const ANNOUNCED: Announcement = Announcement::new(
    Versions::new(OLDEST_VERSION, VERSION),
    Features::NONE,
    INDIRECT_HEARING.with(OUT_OF_STEP),
);
/// Maximum length of a frame. Longer ones are refused.
pub const MAX_FRAME_LEN_BYTES: usize = 256 << 20;
/// Maximum length of a hello, when the other side is still unknown.
pub const MAX_HELLO_LEN_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"RDTGROUP";

/// Greeting of the dialling member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Its versions and features.
    pub announced: Announcement,
    /// Sent in the format of legacy members, which announces only one version.
    pub is_legacy: bool,
    /// `wsrep_cluster_name`.
    pub cluster_name: String,
    /// Its group; all zero: none yet.
    pub group: GroupId,
    /// The dialling member.
    pub member: MemberId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Address where it listens.
    pub listen_address: String,
    /// Members that continued alone in its group.
    pub history: History,
}

/// Answer to a [`Hello`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The connection is accepted.
    Welcome {
        /// Its versions and features; `None`: answer to a legacy hello, or from a legacy member.
        announced: Option<Announcement>,
        /// The answering member.
        member: MemberId,
        /// Its group.
        group: GroupId,
        /// Addresses of other members.
        addresses: Vec<String>,
        /// Members that continued alone in its group.
        history: History,
    },
    /// The connection is refused.
    Refused {
        /// The reason, for display.
        reason: String,
    },
}

/// A frame.
#[derive(Clone, PartialEq, Debug)]
pub enum Frame {
    /// First frame of a connection.
    Hello(Hello),
    /// The only frame in the other direction.
    Answer(Answer),
    /// Message of the consensus.
    Message(Message),
    /// Initial state of a new member.
    Start {
        /// State of the consensus.
        snapshot: Snapshot,
        /// The encoded state before it: a [`crate::replica::Replica`].
        replica: Vec<u8>,
    },
    /// Progress of the sender's server.
    Applied {
        /// Everything up to here is applied.
        seqno: Seqno,
        /// It is to keep up: the others do not wait for a paused or desynced server.
        is_in_step: bool,
    },
    /// Asks whether the receiver has contact with a member.
    WhoHears(MemberId),
    /// Confirms contact with a member; otherwise no answer is sent.
    Hears(MemberId),
    /// Requests the state of the server.
    StateRequest {
        /// Minimum position of the state.
        seqno: i64,
        /// The request of the joining server: opaque.
        request: Vec<u8>,
    },
    /// Answer to a [`Frame::StateRequest`] that fails.
    StateRefused(Refusal),
}

/// Reason why a server does not send its state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The reason, for display.
    pub reason: String,
    /// An attempt has failed, and a repeated request would fail, too. Otherwise the state may soon be available.
    pub has_failed: bool,
}

/// Reason why bytes are not a valid frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The format is invalid.
    #[error("invalid frame: {0}")]
    Bytes(#[from] BytesError),
    /// The content is invalid.
    #[error("invalid frame of the consensus: {0}")]
    Consensus(#[from] CodecError),
    /// Numbers of the snapshot that no member uses.
    #[error("invalid snapshot position in a frame")]
    NoSnapshot,
    /// A different protocol.
    #[error("the peer does not speak the group protocol")]
    NoHello,
    /// A version that is no version, or another than the newest announced.
    #[error("invalid protocol version {0} in the greeting")]
    Version(u32),
    /// Its versions are invalid.
    #[error("{0}")]
    Announcement(#[from] BadAnnouncement),
    /// The length exceeds the limit.
    #[error("invalid frame length {0}")]
    TooLong(usize),
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const REFUSED: u8 = 3;
const MESSAGE: u8 = 4;
const START: u8 = 5;
const STATE_REQUEST: u8 = 6;
const STATE_REFUSED: u8 = 7;
const APPLIED: u8 = 8;
/// Formats with a history before the rest. Libraries without histories reject them.
const HELLO_OF_HISTORY: u8 = 9;
const WELCOME_OF_HISTORY: u8 = 10;
const WHO_HEARS: u8 = 11;
const HEARS: u8 = 12;
const APPLIED_OUT_OF_STEP: u8 = 13;
/// An announcement, a history that may be empty, then the rest as in the plain formats.
const HELLO_WITH_ANNOUNCEMENT: u8 = 14;
const WELCOME_WITH_ANNOUNCEMENT: u8 = 15;

impl Frame {
    /// Encodes the frame with its length.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_to(&mut out);
        out
    }

    /// Appends the encoded frame.
    pub fn encode_to(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&[0; 4]);
        self.encode_content(out);
        let len = (out.len() - begin - 4) as u32;
        out[begin..begin + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// The frame for a member with these features: this one, a reduced one, or none.
    pub fn for_peer(&self, features: Features) -> Option<Cow<'_, Self>> {
        match self {
            Self::WhoHears(_) | Self::Hears(_) if !features.contains(INDIRECT_HEARING) => None,
            // Without the feature the other member waits for this one, within its own limits.
            Self::Applied { seqno, is_in_step: false } if !features.contains(OUT_OF_STEP) => {
                Some(Cow::Owned(Self::Applied { seqno: *seqno, is_in_step: true }))
            }
            _ => Some(Cow::Borrowed(self)),
        }
    }

    /// Whether the bytes begin with a complete frame.
    pub fn is_whole(bytes: &[u8]) -> bool {
        let content = bytes.split_first_chunk().map(|(len, content)| (u32::from_le_bytes(*len), content));
        content.is_some_and(|(len, content)| content.len() >= len as usize)
    }

    fn encode_content(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => {
                if hello.is_legacy {
                    put_kind(HELLO, HELLO_OF_HISTORY, &hello.history, out);
                } else {
                    put_announced(HELLO_WITH_ANNOUNCEMENT, hello.announced, &hello.history, out);
                }
                out.extend_from_slice(&MAGIC);
                out.extend_from_slice(&u32::from(hello.announced.versions().newest()).to_le_bytes());
                put_bytes(out, hello.cluster_name.as_bytes());
                out.extend_from_slice(&hello.group.0);
                out.extend_from_slice(&hello.member.0.to_le_bytes());
                out.extend_from_slice(&hello.incarnation.0.to_le_bytes());
                put_bytes(out, hello.listen_address.as_bytes());
            }
            Self::Answer(Answer::Welcome { announced, member, group, addresses, history }) => {
                match announced {
                    Some(announced) => put_announced(WELCOME_WITH_ANNOUNCEMENT, *announced, history, out),
                    None => put_kind(WELCOME, WELCOME_OF_HISTORY, history, out),
                }
                out.extend_from_slice(&member.0.to_le_bytes());
                out.extend_from_slice(&group.0);
                out.extend_from_slice(&(addresses.len() as u32).to_le_bytes());
                addresses.iter().for_each(|address| put_bytes(out, address.as_bytes()));
            }
            Self::Answer(Answer::Refused { reason }) => {
                out.push(REFUSED);
                put_bytes(out, reason.as_bytes());
            }
            Self::Message(message) => {
                out.push(MESSAGE);
                encode_message(message, out);
            }
            Self::Start { snapshot, replica } => {
                out.push(START);
                put_bytes(out, replica);
                encode_snapshot(snapshot, out);
            }
            Self::Applied { seqno, is_in_step } => {
                out.push(if *is_in_step { APPLIED } else { APPLIED_OUT_OF_STEP });
                out.extend_from_slice(&seqno.0.to_le_bytes());
            }
            Self::WhoHears(member) => put_member(WHO_HEARS, *member, out),
            Self::Hears(member) => put_member(HEARS, *member, out),
            Self::StateRequest { seqno, request } => {
                out.push(STATE_REQUEST);
                out.extend_from_slice(&seqno.to_le_bytes());
                put_bytes(out, request);
            }
            Self::StateRefused(Refusal { reason, has_failed }) => {
                out.extend_from_slice(&[STATE_REFUSED, u8::from(*has_failed)]);
                put_bytes(out, reason.as_bytes());
            }
        }
    }

    /// Decodes a frame without its length.
    ///
    /// # Errors
    /// The bytes are not a valid frame.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        let frame = match kind {
            HELLO
            | HELLO_OF_HISTORY
            | HELLO_WITH_ANNOUNCEMENT
            | WELCOME
            | WELCOME_OF_HISTORY
            | WELCOME_WITH_ANNOUNCEMENT => greeting(kind, &mut reader)?,
            REFUSED => Self::Answer(Answer::Refused { reason: reader.text()? }),
            MESSAGE => Self::Message(decode_message(reader.rest())?),
            START => {
                let replica = reader.bytes()?.to_vec();
                let snapshot = decode_snapshot(reader.rest())?;
                if !snapshot.is_sane() {
                    return Err(FrameError::NoSnapshot);
                }
                Self::Start { snapshot, replica }
            }
            APPLIED | APPLIED_OUT_OF_STEP => Self::Applied {
                seqno: Seqno(i64::from_le_bytes(reader.array()?)),
                is_in_step: kind == APPLIED,
            },
            WHO_HEARS => Self::WhoHears(MemberId(reader.u64()?)),
            HEARS => Self::Hears(MemberId(reader.u64()?)),
            STATE_REQUEST => Self::StateRequest {
                seqno: i64::from_le_bytes(reader.array()?),
                request: reader.bytes()?.to_vec(),
            },
            STATE_REFUSED => {
                let has_failed = match reader.u8()? {
                    0 => false,
                    1 => true,
                    _ => return Err(reader.unknown().into()),
                };
                Self::StateRefused(Refusal { reason: reader.text()?, has_failed })
            }
            _ => return Err(reader.unknown().into()),
        };
        reader.end()?;
        Ok(frame)
    }

    /// The next frame of a connection; `None` at its end.
    ///
    /// # Errors
    /// The connection broke, or the frame is invalid.
    pub fn read(from: &mut impl Read, max_len_bytes: usize) -> Result<Option<Self>, FrameError> {
        let mut head = [0; 4];
        let mut got = 0;
        while got < head.len() {
            match from.read(&mut head[got..]) {
                Ok(0) if got == 0 => return Ok(None),
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => got += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let len = u32::from_le_bytes(head) as usize;
        if len > max_len_bytes {
            return Err(FrameError::TooLong(len));
        }
        // Grows with the received bytes, so a large length alone takes no memory.
        let mut bytes = Vec::new();
        from.take(len as u64).read_to_end(&mut bytes)?;
        if bytes.len() < len {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Self::decode(&bytes).map(Some)
    }
}

/// Decodes a hello or a welcome.
fn greeting(kind: u8, reader: &mut Reader<'_>) -> Result<Frame, FrameError> {
    let announced = match kind {
        HELLO_WITH_ANNOUNCEMENT | WELCOME_WITH_ANNOUNCEMENT => Some(Announcement::decode(reader.bytes()?)?),
        _ => None,
    };
    let history = match kind {
        HELLO | WELCOME => History::default(),
        _ => History::decode(reader)?,
    };
    if history.is_empty() && [HELLO_OF_HISTORY, WELCOME_OF_HISTORY].contains(&kind) {
        return Err(reader.unknown().into());
    }
    if [WELCOME, WELCOME_OF_HISTORY, WELCOME_WITH_ANNOUNCEMENT].contains(&kind) {
        let (member, group) = (MemberId(reader.u64()?), GroupId(reader.array()?));
        let count = reader.u32()?;
        let addresses = (0..count).map(|_| reader.text()).collect::<Result<_, _>>()?;
        return Ok(Frame::Answer(Answer::Welcome { announced, member, group, addresses, history }));
    }
    if reader.array::<8>()? != MAGIC {
        return Err(FrameError::NoHello);
    }
    let version = reader.u32()?;
    let newest = u16::try_from(version).map_err(|_| FrameError::Version(version))?;
    let of_hello = announced.unwrap_or_else(|| Announcement::of_legacy_peer(newest));
    if of_hello.versions().newest() != newest {
        return Err(FrameError::Version(version));
    }
    Ok(Frame::Hello(Hello {
        announced: of_hello,
        is_legacy: announced.is_none(),
        cluster_name: reader.text()?,
        group: GroupId(reader.array()?),
        member: MemberId(reader.u64()?),
        incarnation: Incarnation(reader.u64()?),
        listen_address: reader.text()?,
        history,
    }))
}

fn put_announced(kind: u8, announced: Announcement, history: &History, out: &mut Vec<u8>) {
    out.push(kind);
    put_bytes(out, &announced.encode());
    history.encode(out);
}

fn put_member(kind: u8, member: MemberId, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&member.0.to_le_bytes());
}

fn put_kind(plain: u8, of_history: u8, history: &History, out: &mut Vec<u8>) {
    if history.is_empty() {
        return out.push(plain);
    }
    out.push(of_history);
    history.encode(out);
}

#[cfg(test)]
mod tests;
