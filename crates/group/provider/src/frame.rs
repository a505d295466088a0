//! What members send each other: frames on a connection that carries them one way.
//!
//! A frame is its length (4 bytes, without itself), a kind (1 byte) and what belongs to it. The one who connects sends
//! [`Frame::Hello`], gets [`Frame::Answer`], and from then on sends frames and gets none: the other direction is another
//! connection. The version of all formats, those of the consensus included, is in the hello.
//!
//! Hello and Welcome carry an [`Announcement`]: a range of versions, and feature bits. A frame that came after
//! [`LEGACY_VERSION`] began belongs to a feature ([`Frame::for_peer`]), and is sent only to a member that has announced
//! it. A *legacy* member, of a build before this, refuses such a Hello and ends the connection; it gets a legacy one,
//! with one version and no features, on the next.

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

/// The newest version of the frames and of all that is in them.
pub const VERSION: u16 = 5;
/// The oldest one that this member speaks.
pub const OLDEST_VERSION: u16 = 5;
/// The version of members that compare one number.
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
/// Longer frames are refused: nobody sends one.
pub const MAX_FRAME_LEN_BYTES: usize = 256 << 20;
/// No hello is longer: before it nothing is known of the other side.
pub const MAX_HELLO_LEN_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"RDTGROUP";

/// Who connects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Its versions and features.
    pub announced: Announcement,
    /// It is sent as legacy members send and understand it. Then nothing but one version is announced.
    pub is_legacy: bool,
    /// `wsrep_cluster_name`.
    pub cluster_name: String,
    /// Its group; none yet: all zero.
    pub group: GroupId,
    /// It.
    pub member: MemberId,
    /// Its life.
    pub incarnation: Incarnation,
    /// Where it listens.
    pub listen_address: String,
    /// Who has gone on alone in its group.
    pub history: History,
}

/// What it is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Go on.
    Welcome {
        /// Its versions and features; `None`: to a legacy hello, or of a legacy member.
        announced: Option<Announcement>,
        /// Who answers.
        member: MemberId,
        /// Its group.
        group: GroupId,
        /// Where others listen.
        addresses: Vec<String>,
        /// Who has gone on alone in its group.
        history: History,
    },
    /// Not here.
    Refused {
        /// Why, for people.
        reason: String,
    },
}

/// A frame.
#[derive(Clone, PartialEq, Debug)]
pub enum Frame {
    /// The first.
    Hello(Hello),
    /// The only one in the other direction.
    Answer(Answer),
    /// Of the consensus.
    Message(Message),
    /// To a new member: from where on it takes part.
    Start {
        /// The consensus there.
        snapshot: Snapshot,
        /// What was ordered before, encoded: a [`crate::replica::Replica`].
        replica: Vec<u8>,
    },
    /// How far the sender's server has applied what is ordered.
    Applied {
        /// All up to here.
        seqno: Seqno,
        /// It is to keep up: nobody waits for one that is paused, or out of step as somebody wants it.
        is_in_step: bool,
    },
    /// Asks whether the other one hears a member.
    WhoHears(MemberId),
    /// It does; no answer is sent otherwise.
    Hears(MemberId),
    /// Asks for the state of the server.
    StateRequest {
        /// As of this position or later.
        seqno: i64,
        /// What the asking server wants the other one to know: opaque.
        request: Vec<u8>,
    },
    /// It cannot be had.
    StateRefused(Refusal),
}

/// Why a server does not give its state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// For people.
    pub reason: String,
    /// It was tried: asked again, it would fail again. Otherwise it may be had in a moment.
    pub has_failed: bool,
}

/// Why bytes are no frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// They do not fit.
    #[error("invalid frame: {0}")]
    Bytes(#[from] BytesError),
    /// Its content does not.
    #[error("invalid frame of the consensus: {0}")]
    Consensus(#[from] CodecError),
    /// Its numbers are none that a member uses.
    #[error("invalid snapshot position in a frame")]
    NoSnapshot,
    /// It is something else altogether.
    #[error("the peer does not speak the group protocol")]
    NoHello,
    /// Its versions cannot be.
    #[error("{0}")]
    Announcement(#[from] BadAnnouncement),
    /// Too long.
    #[error("invalid frame length {0}")]
    TooLong(usize),
    /// The connection.
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
/// As those without, with a history before the rest: libraries that know no histories do not take it for one of theirs.
const HELLO_OF_HISTORY: u8 = 9;
const WELCOME_OF_HISTORY: u8 = 10;
const WHO_HEARS: u8 = 11;
const HEARS: u8 = 12;
const APPLIED_OUT_OF_STEP: u8 = 13;
/// An announcement, a history that may be empty, then as those without.
const HELLO_WITH_ANNOUNCEMENT: u8 = 14;
const WELCOME_WITH_ANNOUNCEMENT: u8 = 15;

impl Frame {
    /// As it goes over a connection, its length included.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_to(&mut out);
        out
    }

    /// As [`Frame::encode`], after what is there.
    pub fn encode_to(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&[0; 4]);
        self.encode_content(out);
        let len = (out.len() - begin - 4) as u32;
        out[begin..begin + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// The frame to send to a member with these features: this one, one with less in it, or none.
    pub fn for_peer(&self, features: Features) -> Option<Cow<'_, Self>> {
        match self {
            Self::WhoHears(_) | Self::Hears(_) if !features.contains(INDIRECT_HEARING) => None,
            // It waits for this one then, for as long as it did when it was made.
            Self::Applied { seqno, is_in_step: false } if !features.contains(OUT_OF_STEP) => {
                Some(Cow::Owned(Self::Applied { seqno: *seqno, is_in_step: true }))
            }
            _ => Some(Cow::Borrowed(self)),
        }
    }

    /// Whether these bytes begin with a frame and all of it.
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

    /// The other way round, without the length.
    ///
    /// # Errors
    /// The bytes are no frame.
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

    /// The next frame of a connection; `None` where it ends.
    ///
    /// # Errors
    /// The connection broke, or sent something else.
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
        // Grows with what comes: a length alone takes no memory.
        let mut bytes = Vec::new();
        from.take(len as u64).read_to_end(&mut bytes)?;
        if bytes.len() < len {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Self::decode(&bytes).map(Some)
    }
}

/// A hello or a welcome.
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
    let legacy = || Announcement::of_legacy_peer(u16::try_from(version).unwrap_or(u16::MAX));
    Ok(Frame::Hello(Hello {
        announced: announced.unwrap_or_else(legacy),
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
