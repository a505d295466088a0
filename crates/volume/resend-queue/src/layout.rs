//! The file, in little-endian 64-bit words.
//!
//! | word | content |
//! |---|---|
//! | 0 | `RDTUNSN` and the version as a digit |
//! | 1 | length of the area of frames, in bytes |
//! | 2..6 | id of the volume |
//! | 6 | CRC-32C of words 0..6 |
//! | 16, 17, 18 | generation, session, position of the session's first frame |
//! | 19 | CRC-32C of words 16..19 |
//! | 20 | 1: words 16..20, 64, 65 and 128 count; 0: nothing is kept |
//! | 64 | end: position after the last frame |
//! | 65 | oldest: where the oldest frame lies (24 bits, in words of the area), its position modulo 2^40 |
//! | 128 | position up to which the node has confirmed durability |
//! | 512.. | area of frames |
//!
//! A frame is what goes to the node, header included, so it has its length, and a checksum that contains its
//! position. It begins at a word. The next one follows at the next word, or, if there are eight bytes of 0xff, or
//! the area ends, at the beginning of the area.
//!
//! Invariant: after a kill between any two stores, the frames from `oldest` to `end` are there, each once. After a loss
//! of power any word and any frame may be old; the checksums then show up to where the frames are sound.

use redoubt_types::Seq;
use redoubt_types::format_version::unknown_version;
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES};
use std::ops::Range;

/// Name of the file in the data directory.
pub const FILE_NAME: &str = ".redoubt-unsent";
/// Length of the area of frames. The library lets a server continue until the node lacks 64 MiB. The rest has room for
/// two of the longest frames, so that one always fits at one of the ends.
const AREA_LEN_BYTES: u64 = (64 << 20) + 2 * (LONGEST_FRAME_BYTES + 16);
const LONGEST_FRAME_BYTES: u64 = 1 << 24;
/// Length of the file.
pub const FILE_LEN_BYTES: u64 = HEAD_LEN_BYTES as u64 + AREA_LEN_BYTES;

/// Bytes before the area of frames.
pub const HEAD_LEN_BYTES: usize = 4096;
pub(crate) const WORD_LEN_BYTES: usize = 8;
pub(crate) const HEAD_WORDS: usize = HEAD_LEN_BYTES / WORD_LEN_BYTES;
const MAGIC: [u8; 7] = *b"RDTUNSN";
const VERSION: u8 = 1;
const VOLUME_ID_LEN_BYTES: usize = 32;

pub(crate) const AREA_WORD: usize = 1;
const VOLUME_WORD: usize = 2;
const FILE_CRC_WORD: usize = 6;
pub(crate) const GENERATION_WORD: usize = 16;
pub(crate) const SESSION_WORD: usize = 17;
pub(crate) const START_WORD: usize = 18;
pub(crate) const SESSION_CRC_WORD: usize = 19;
/// A sender that has sent everything also writes a 0 here.
pub const HOLDS_WORD: usize = 20;
pub(crate) const END_WORD: usize = 64;
pub(crate) const OLDEST_WORD: usize = 65;
/// In a cache line of its own, because another thread writes it.
pub(crate) const DURABLE_WORD: usize = 128;

/// Marks that no frame follows here: continue at the beginning of the area. No frame begins so: there is no kind 0x7f.
pub(crate) const WRAP: u64 = u64::MAX;
const POSITION_BITS: u32 = 40;
const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;

/// A file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFile {
    /// Another version of the format.
    #[error("{0}")]
    Version(String),
    /// The file is damaged.
    #[error("the file is damaged: {0}")]
    Damaged(String),
}

/// Contents of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The volume that it belongs to.
    pub volume_id: String,
    /// Length of the area of frames.
    pub area_len_bytes: u64,
    /// Frames that the last server left; `None`: every frame is confirmed as durable.
    pub kept: Option<Kept>,
}

/// Frames of a session that the node may not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Generation of the attachment.
    pub generation: u64,
    /// The server process.
    pub session: u64,
    /// Position of the oldest frame here.
    pub oldest: Seq,
    /// The node has confirmed everything before this position as durable.
    pub durable: Seq,
    /// Position after the last frame that is whole.
    pub sound_end: Seq,
    /// Position after the last frame that was written. Other than `sound_end` only after a loss of power.
    pub end: Seq,
    /// Each frame: its position, and where in the file it lies.
    pub frames: Vec<(Seq, Range<usize>)>,
}

impl Kept {
    /// Bytes that the node has not confirmed as durable.
    pub fn unconfirmed_bytes(&self) -> u64 {
        self.end.0.saturating_sub(self.durable.0.max(self.oldest.0))
    }

    /// Bytes that were written and are lost.
    pub fn damaged_bytes(&self) -> u64 {
        self.end.0.saturating_sub(self.sound_end.0)
    }
}

fn damaged(why: impl Into<String>) -> BadFile {
    BadFile::Damaged(why.into())
}

/// The head of a new file without frames.
///
/// # Errors
/// [`BadFile::Damaged`] for an invalid volume id.
pub fn new_head(volume_id: &str) -> Result<Vec<u8>, BadFile> {
    head(volume_id, AREA_LEN_BYTES)
}

/// The head of a file with an area of this length.
///
/// # Errors
/// As [`new_head`].
pub fn head(volume_id: &str, area_len_bytes: u64) -> Result<Vec<u8>, BadFile> {
    if volume_id.len() != VOLUME_ID_LEN_BYTES {
        return Err(damaged(format!(
            "the volume id {volume_id:?} has not the {VOLUME_ID_LEN_BYTES} characters that volume ids have"
        )));
    }
    let mut out = MAGIC.to_vec();
    out.push(b'0' + VERSION);
    out.extend_from_slice(&area_len_bytes.to_le_bytes());
    out.extend_from_slice(volume_id.as_bytes());
    let crc = u64::from(crc32c::crc32c(&out));
    out.extend_from_slice(&crc.to_le_bytes());
    out.resize(HEAD_LEN_BYTES, 0);
    Ok(out)
}

/// Word and position of the oldest frame, packed into one word so that one store changes both.
pub(crate) fn pack_oldest(at_word: usize, position: u64) -> u64 {
    (at_word as u64) << POSITION_BITS | (position & POSITION_MASK)
}

fn unpack_oldest(packed: u64, end: u64) -> (usize, u64) {
    let behind = end.wrapping_sub(packed) & POSITION_MASK;
    ((packed >> POSITION_BITS) as usize, end.wrapping_sub(behind))
}

/// Checksum of generation, session and start.
pub fn session_crc(words: [u64; 3]) -> u64 {
    u64::from(words.iter().fold(0, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes())))
}

fn word(bytes: &[u8], at: usize) -> Result<u64, BadFile> {
    let from = at * WORD_LEN_BYTES;
    let found = bytes.get(from..from + WORD_LEN_BYTES).and_then(|bytes| bytes.try_into().ok());
    found.map(u64::from_le_bytes).ok_or_else(|| damaged(format!("it has only {} bytes", bytes.len())))
}

/// Checks the head of a file; returns the volume's id and the length of the area of frames.
///
/// # Errors
/// [`BadFile`].
pub fn check_head(bytes: &[u8]) -> Result<(String, u64), BadFile> {
    let start =
        bytes.get(..HEAD_LEN_BYTES).ok_or_else(|| damaged(format!("it has only {} bytes", bytes.len())))?;
    let (magic, version) = (start.get(..MAGIC.len()), start.get(MAGIC.len()).copied());
    if magic != Some(&MAGIC) {
        return Err(damaged("it does not begin with RDTUNSN"));
    }
    match version {
        Some(version) if version == b'0' + VERSION => {}
        Some(other) if other.is_ascii_digit() => {
            return Err(BadFile::Version(unknown_version(u64::from(other - b'0'), u32::from(VERSION))));
        }
        other => return Err(damaged(format!("its version is {other:?}"))),
    }
    let checked = FILE_CRC_WORD * WORD_LEN_BYTES;
    if start.get(..checked).map(|bytes| u64::from(crc32c::crc32c(bytes))) != Some(word(start, FILE_CRC_WORD)?)
    {
        return Err(damaged("the checksum of its head is wrong"));
    }
    let volume_id = start.get(VOLUME_WORD * WORD_LEN_BYTES..checked).unwrap_or(start);
    let volume_id = String::from_utf8(volume_id.to_vec()).map_err(|_| damaged("its volume id is no text"))?;
    Ok((volume_id, word(start, AREA_WORD)?))
}

/// Whether a file with this head may have frames to send.
///
/// # Errors
/// [`BadFile`].
pub fn may_keep(head: &[u8]) -> Result<bool, BadFile> {
    check_head(head)?;
    Ok(word(head, HOLDS_WORD)? != 0 && word(head, END_WORD)? > word(head, DURABLE_WORD)?)
}

/// Position that the node has confirmed to the last session of a file, whether or not that session left anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmed {
    /// Generation of the session's attachment.
    pub generation: u64,
    /// The node has confirmed everything before this position as durable.
    pub durable: Seq,
}

/// The confirmation in the head of a file; `None` before the first session. After a loss of power it may be an earlier
/// one.
///
/// # Errors
/// [`BadFile`].
pub fn confirmed(head: &[u8]) -> Result<Option<Confirmed>, BadFile> {
    check_head(head)?;
    let session = [word(head, GENERATION_WORD)?, word(head, SESSION_WORD)?, word(head, START_WORD)?];
    let has_session = session != [0; 3] && session_crc(session) == word(head, SESSION_CRC_WORD)?;
    let durable = Seq(word(head, DURABLE_WORD)?);
    Ok(has_session.then_some(Confirmed { generation: session[0], durable }))
}

/// Reads a whole file.
///
/// # Errors
/// [`BadFile`]: its frames are unknown.
pub fn read(bytes: &[u8]) -> Result<Contents, BadFile> {
    let (volume_id, area_len_bytes) = check_head(bytes)?;
    if bytes.len() as u64 != HEAD_LEN_BYTES as u64 + area_len_bytes || !area_len_bytes.is_multiple_of(8) {
        return Err(damaged(format!(
            "it has {} bytes, and its head says {area_len_bytes} and 4096",
            bytes.len()
        )));
    }
    let kept = match word(bytes, HOLDS_WORD)? {
        0 => None,
        1 => Some(read_session(bytes)?).filter(|kept| kept.unconfirmed_bytes() > 0),
        other => return Err(damaged(format!("whether it keeps something is {other}, expected 0 or 1"))),
    };
    Ok(Contents { volume_id, area_len_bytes, kept })
}

fn read_session(bytes: &[u8]) -> Result<Kept, BadFile> {
    let (generation, session) = (word(bytes, GENERATION_WORD)?, word(bytes, SESSION_WORD)?);
    let start = word(bytes, START_WORD)?;
    if session_crc([generation, session, start]) != word(bytes, SESSION_CRC_WORD)? {
        return Err(damaged("the checksum of its session is wrong"));
    }
    let end = word(bytes, END_WORD)?;
    let (at_word, oldest) = unpack_oldest(word(bytes, OLDEST_WORD)?, end);
    if oldest < start || end < start {
        return Err(damaged(format!("it keeps {oldest} to {end}, and its session began at {start}")));
    }
    let frames = frames(bytes, at_word, oldest, end);
    let sound_end = frames.last().map_or(oldest, |(position, range)| position.0 + range.len() as u64);
    Ok(Kept {
        generation,
        session,
        oldest: Seq(oldest),
        durable: Seq(word(bytes, DURABLE_WORD)?),
        sound_end: Seq(sound_end),
        end: Seq(end),
        frames,
    })
}

/// The frames from `oldest` to `end`, or to the first damaged one.
fn frames(bytes: &[u8], at_word: usize, oldest: u64, end: u64) -> Vec<(Seq, Range<usize>)> {
    let (mut at, mut position) = (HEAD_LEN_BYTES + at_word * WORD_LEN_BYTES, oldest);
    let mut frames = Vec::new();
    while position < end {
        let is_wrap = word(bytes, at / WORD_LEN_BYTES).is_ok_and(|word| word == WRAP);
        if (is_wrap || at == bytes.len()) && at != HEAD_LEN_BYTES {
            at = HEAD_LEN_BYTES;
        }
        let Some(len) = frame_at(bytes, at, position).filter(|len| *len as u64 <= end - position) else {
            break;
        };
        frames.push((Seq(position), at..at + len));
        position += len as u64;
        at += len.next_multiple_of(WORD_LEN_BYTES);
    }
    frames
}

/// Length of the frame at `at`, if it is the frame of this position.
fn frame_at(bytes: &[u8], at: usize, position: u64) -> Option<usize> {
    let (head, rest) = bytes.get(at..)?.split_first_chunk::<HEADER_LEN_BYTES>()?;
    let header = FrameHeader::decode(head);
    let payload = rest.get(..header.len_bytes as usize)?;
    header.check(position, payload).ok()?;
    Some(HEADER_LEN_BYTES + payload.len())
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
