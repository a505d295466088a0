//! Distinguishes histories of a group, by the members that continued alone, in order.
//!
//! A member that continues without a majority (`pc.ignore_sb`, `redoubt group rescue`) puts a mark into the order
//! before any other entry that the others do not have. If two members have done so without each other, each has a mark
//! that the other one lacks, and they must not exchange entries. If only one has, the other one's order is a prefix of
//! its own.
//!
//! Invariant: two members whose histories fit ([`History::fits`]) have the same order, as far as both go.
//!
//! | encoded | |
//! |---|---|
//! | number of times that a member continued alone | 8 bytes |
//! | number of following marks | 4 bytes: all, or the last 64 |
//! | each | member, round of the epoch (8 bytes each) |

use crate::bytes::{BytesError, Reader};
use redoubt_consensus::types::MemberId;

/// Maximum number of retained marks.
const MAX_KEPT: usize = 64;
/// Limit of a valid count: no group gets there.
const MAX_COUNT: u64 = 1 << 40;

/// The mark of a member that continued alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alone {
    /// The member.
    pub member: MemberId,
    /// Round of the epoch that it began.
    pub round: u64,
}

/// One of several histories of a group: the members that continued alone in it, in order.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct History {
    count: u64,
    /// The last marks.
    kept: Vec<Alone>,
}

impl History {
    /// Whether no member ever continued alone.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a mark, unless it is present.
    pub fn add(&mut self, alone: Alone) {
        if self.kept.contains(&alone) {
            return;
        }
        self.count += 1;
        self.kept.push(alone);
        if self.kept.len() > MAX_KEPT {
            self.kept.remove(0);
        }
    }

    const fn first_kept(&self) -> u64 {
        self.count - self.kept.len() as u64
    }

    /// Whether one history is a prefix of the other. If the retained marks do not show it, the result is false.
    pub fn fits(&self, other: &Self) -> bool {
        let from = self.first_kept().max(other.first_kept());
        let to = self.count.min(other.count);
        let part = |of: &Self| {
            let range = (from - of.first_kept()) as usize..(to - of.first_kept()) as usize;
            of.kept[range].to_vec()
        };
        to == 0 || (from < to && part(self) == part(other))
    }

    /// Appends the encoded history.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&(self.kept.len() as u32).to_le_bytes());
        for alone in &self.kept {
            out.extend_from_slice(&alone.member.0.to_le_bytes());
            out.extend_from_slice(&alone.round.to_le_bytes());
        }
    }

    /// Decodes a history.
    ///
    /// # Errors
    /// The bytes are not a valid history.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, BytesError> {
        let (count, len) = (reader.u64()?, reader.u32()? as usize);
        if count > MAX_COUNT || len as u64 != count.min(MAX_KEPT as u64) {
            return Err(reader.unknown());
        }
        let mut kept = Vec::with_capacity(len);
        for _ in 0..len {
            let alone = Alone { member: MemberId(reader.u64()?), round: reader.u64()? };
            if kept.contains(&alone) {
                return Err(reader.unknown());
            }
            kept.push(alone);
        }
        Ok(Self { count, kept })
    }
}

#[cfg(test)]
mod tests;
