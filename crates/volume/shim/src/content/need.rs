//! Required positions of pages that are read back.
//!
//! When the server writes (lets go of) a page, everything it changed on that page is already in the stream; a later
//! read must not get an older version. Remembering that position for every page would grow without bound, so pages
//! share a fixed number of slots. A slot holds the highest position of all its pages, which makes a read wait a
//! little longer than necessary, never too short.

use redoubt_wire::Seq;
use std::sync::atomic::{AtomicU64, Ordering};

const SLOTS: usize = 1 << 18;

/// Position in the stream per page slot. Invariant: a slot never falls.
pub struct NeedTable {
    slots: Box<[AtomicU64]>,
    floor: AtomicU64,
}

impl Default for NeedTable {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), floor: AtomicU64::new(0) }
    }
}

impl NeedTable {
    /// No read needs less than this from now on (the start of the session).
    pub fn set_floor(&self, seq: Seq) {
        self.floor.fetch_max(seq.0, Ordering::AcqRel);
    }

    /// The server wrote this page when the stream ended at `seq`.
    pub fn raise(&self, file: u64, page_no: u32, seq: Seq) {
        self.slots[slot_of(file, page_no)].fetch_max(seq.0, Ordering::AcqRel);
    }

    /// The required position of a read of this page.
    pub fn get(&self, file: u64, page_no: u32) -> Seq {
        let slot = self.slots[slot_of(file, page_no)].load(Ordering::Acquire);
        Seq(slot.max(self.floor.load(Ordering::Acquire)))
    }
}

/// Multiplicative hash of both numbers, upper bits.
fn slot_of(file: u64, page_no: u32) -> usize {
    let mixed = (file << 32 ^ u64::from(page_no) ^ file >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 46) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_rise_and_never_fall() {
        let table = NeedTable::default();
        table.set_floor(Seq(10));
        assert_eq!(table.get(1, 1), Seq(10));
        table.raise(1, 1, Seq(50));
        table.raise(1, 1, Seq(40));
        assert_eq!(table.get(1, 1), Seq(50));
        table.set_floor(Seq(60));
        assert_eq!(table.get(1, 1), Seq(60));
    }

    #[test]
    fn pages_spread_over_the_slots() {
        let mut used = std::collections::HashSet::new();
        for page_no in 0..100_000 {
            used.insert(slot_of(3, page_no));
        }
        assert!(used.len() > 60_000, "{}", used.len());
    }
}
