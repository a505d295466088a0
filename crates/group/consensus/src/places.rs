//! Where in its store a member finds again what was chosen.
//!
//! A slot may be in several records: one that an epoch has thrown away, and the one of a later epoch. What counts is the
//! last one that was written before the slot was delivered. So whoever writes the records says of each where it is
//! ([`Places::wrote`]), and [`Effect::Chosen`](crate::Effect::Chosen) says which slots count.
//!
//! Knows only what is not delivered yet: what is, is given out.

use crate::record::Record;
use crate::types::Slot;
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Debug)]
pub struct Places {
    next: Slot,
    written: BTreeMap<Slot, u64>,
}

/// It was never written, or not told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("slot {0} was chosen, but no record of it was written")]
pub struct NoPlace(pub Slot);

impl Places {
    /// All before `next` is of no interest.
    pub const fn after(next: Slot) -> Self {
        Self { next, written: BTreeMap::new() }
    }

    /// All before this was given out.
    pub const fn next(&self) -> Slot {
        self.next
    }

    /// A record was written here.
    pub fn wrote(&mut self, record: &Record, place: u64) {
        if let Record::Snapshot(snapshot) = record {
            self.skip_to(snapshot.next);
        }
        for slot in record.slots().filter(|slot| *slot >= self.next) {
            self.written.insert(slot, place);
        }
    }

    /// All before `next` is known already, or never will be.
    pub fn skip_to(&mut self, next: Slot) {
        if next > self.next {
            self.next = next;
            self.written = self.written.split_off(&next);
        }
    }

    /// These slots are chosen, in order: where they are. Not those that were given out before.
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
