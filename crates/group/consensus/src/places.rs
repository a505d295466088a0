//! Positions in a member's store of the entries that were chosen.
//!
//! A slot may be in several records: in one that an epoch discarded, and in one of a later epoch. The last record that
//! was written before the slot was delivered counts. So the writer of the records reports the position of each one
//! ([`Places::wrote`]), and [`Effect::Chosen`](crate::Effect::Chosen) lists the slots that count.
//!
//! Only undelivered slots are tracked. The positions of delivered slots were already returned.

use crate::record::Record;
use crate::types::Slot;
use std::collections::BTreeMap;

/// Positions of the entries that are not delivered yet.
#[derive(Clone, Debug)]
pub struct Places {
    next: Slot,
    written: BTreeMap<Slot, u64>,
}

/// The slot's record was never written, or not reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("slot {0} was chosen, but no record of it was written")]
pub struct NoPlace(pub Slot);

impl Places {
    /// Tracks the slots from `next` on.
    pub const fn after(next: Slot) -> Self {
        Self { next, written: BTreeMap::new() }
    }

    /// The positions of all slots before this one were returned or skipped.
    pub const fn next(&self) -> Slot {
        self.next
    }

    /// A record was written at `place`.
    pub fn wrote(&mut self, record: &Record, place: u64) {
        if let Record::Snapshot(snapshot) = record {
            self.skip_to(snapshot.next);
        }
        for slot in record.slots().filter(|slot| *slot >= self.next) {
            self.written.insert(slot, place);
        }
    }

    /// Stops tracking the slots before `next`: they are known already, or never will be.
    pub fn skip_to(&mut self, next: Slot) {
        if next > self.next {
            self.next = next;
            self.written = self.written.split_off(&next);
        }
    }

    /// Positions of these slots, which are chosen and in order. Slots whose position was returned before are left out.
    ///
    /// # Errors
    /// [`NoPlace`].
    pub fn chosen(&mut self, slots: &[Slot]) -> Result<Vec<(Slot, u64)>, NoPlace> {
        let new = slots.iter().copied().filter(|slot| *slot >= self.next);
        let places = new.map(|slot| Ok((slot, *self.written.get(&slot).ok_or(NoPlace(slot))?)));
        let places = places.collect::<Result<Vec<_>, _>>()?;
        if let Some((last, _)) = places.last() {
            self.skip_to(last.next());
        }
        Ok(places)
    }
}
