//! TCP's options: maximum segment size (RFC 9293, 3.2), window scale and timestamps (RFC 7323), selective
//! acknowledgements (RFC 2018).

use super::Refusal;
use crate::sequence::Seq;

/// Longest options of a segment together.
pub(crate) const MAX_OPTIONS_LEN_BYTES: usize = 40;
/// Limit of SACK blocks.
pub const MAX_SACK_BLOCKS: usize = 4;
/// Largest valid shift (RFC 7323, 2.3).
pub const MAX_WINDOW_SCALE: u8 = 14;
/// Length of the timestamps option with its padding.
pub(crate) const TIMESTAMPS_LEN_BYTES: usize = 12;

/// The two fields of the timestamps option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval.
    pub value: u32,
    /// TSecr.
    pub echo: u32,
}

/// Ranges of received bytes, each from its first byte to the one after its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(Seq, Seq); MAX_SACK_BLOCKS],
    count: u8,
}

impl SackBlocks {
    /// Adds a range; `false` if there is no room.
    pub fn push(&mut self, start: Seq, end: Seq) -> bool {
        let Some(place) = self.blocks.get_mut(usize::from(self.count)) else { return false };
        *place = (start, end);
        self.count += 1;
        true
    }

    /// All ranges.
    #[must_use]
    pub fn as_slice(&self) -> &[(Seq, Seq)] {
        self.blocks.get(..usize::from(self.count)).unwrap_or_default()
    }
}

/// The supported options. Others are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Window scale, at most [`MAX_WINDOW_SCALE`].
    pub window_scale: Option<u8>,
    /// Selective acknowledgements are supported.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// Selective acknowledgements.
    pub sack: SackBlocks,
}

const END: u8 = 0;
const NOTHING: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

impl Options {
    /// # Errors
    /// [`Refusal::Option`] for invalid lengths.
    pub(crate) fn parse(mut rest: &[u8]) -> Result<Self, Refusal> {
        let mut options = Self::default();
        while let [kind, after @ ..] = rest {
            match *kind {
                END => break,
                NOTHING => rest = after,
                kind => {
                    let len = usize::from(*after.first().ok_or(Refusal::Option)?);
                    let (option, after) = rest.split_at_checked(len).ok_or(Refusal::Option)?;
                    options.take(kind, option.get(2..).ok_or(Refusal::Option)?)?;
                    rest = after;
                }
            }
        }
        Ok(options)
    }

    fn take(&mut self, kind: u8, value: &[u8]) -> Result<(), Refusal> {
        match (kind, value) {
            (MSS, [high, low]) => self.mss = Some(u16::from_be_bytes([*high, *low])),
            (WINDOW_SCALE, [shift]) => self.window_scale = Some((*shift).min(MAX_WINDOW_SCALE)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, value) if value.len() == 8 => {
                self.timestamps = Some(Timestamps { value: word(&value[..4]), echo: word(&value[4..]) });
            }
            (SACK, blocks) if blocks.len() % 8 == 0 && !blocks.is_empty() => {
                self.sack = SackBlocks::default();
                for block in blocks.chunks_exact(8) {
                    self.sack.push(Seq(word(&block[..4])), Seq(word(&block[4..])));
                }
            }
            (MSS | WINDOW_SCALE | SACK_PERMITTED | TIMESTAMPS | SACK, _) => return Err(Refusal::Option),
            _ => {}
        }
        Ok(())
    }

    /// Length that [`Options::write`] writes: a multiple of 4. SACK blocks that do not fit are left out.
    pub(crate) fn len_bytes(&self) -> usize {
        self.fixed_len_bytes() + self.sack_len_bytes()
    }

    fn fixed_len_bytes(&self) -> usize {
        let mut len = 0;
        if self.mss.is_some() {
            len += 4;
        }
        if self.window_scale.is_some() {
            len += 4;
        }
        if self.timestamps.is_some() {
            len += TIMESTAMPS_LEN_BYTES;
        } else if self.sack_permitted {
            len += 4;
        }
        len
    }

    fn sack_blocks(&self) -> &[(Seq, Seq)] {
        let room = (MAX_OPTIONS_LEN_BYTES - self.fixed_len_bytes()).saturating_sub(4) / 8;
        let blocks = self.sack.as_slice();
        &blocks[..blocks.len().min(room)]
    }

    fn sack_len_bytes(&self) -> usize {
        match self.sack_blocks().len() {
            0 => 0,
            count => 4 + 8 * count,
        }
    }

    /// Writes the options into a slice of exactly [`Options::len_bytes`].
    pub(crate) fn write(&self, place: &mut [u8]) {
        let mut bytes = [NOTHING; MAX_OPTIONS_LEN_BYTES];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at + part.len()) {
                place.copy_from_slice(part);
                at += part.len();
            }
        };
        if let Some(mss) = self.mss {
            put(&[MSS, 4]);
            put(&mss.to_be_bytes());
        }
        match (self.sack_permitted, self.timestamps.is_some()) {
            (true, _) => put(&[SACK_PERMITTED, 2]),
            (false, true) => put(&[NOTHING, NOTHING]),
            (false, false) => {}
        }
        if let Some(timestamps) = self.timestamps {
            put(&[TIMESTAMPS, 10]);
            put(&timestamps.value.to_be_bytes());
            put(&timestamps.echo.to_be_bytes());
        } else if self.sack_permitted {
            put(&[NOTHING, NOTHING]);
        }
        if let Some(shift) = self.window_scale {
            put(&[NOTHING, WINDOW_SCALE, 3, shift]);
        }
        let blocks = self.sack_blocks();
        if !blocks.is_empty() {
            put(&[NOTHING, NOTHING, SACK, 2 + 8 * blocks.len() as u8]);
            for (start, end) in blocks {
                put(&start.0.to_be_bytes());
                put(&end.0.to_be_bytes());
            }
        }
        let len = place.len().min(bytes.len());
        place[..len].copy_from_slice(&bytes[..len]);
    }
}
