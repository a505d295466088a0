//! TIME-WAIT (RFC 9293, 3.6.1): the state of a connection that this side closed first, little more than its four-tuple.
//! It keeps late segments out of a new connection and can send the last ACK again.
//!
//! The table has a limit: a new entry evicts the oldest. A SYN that is newer than the entry's whole connection begins a
//! new connection at once (RFC 6191; RFC 9293, 3.10.7.4).

use std::collections::VecDeque;

use crate::demux::Key;
use crate::sequence::Seq;
use crate::slots::Slots;
use crate::time::Micros;

/// State of an ended connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeWait {
    pub(crate) key: Key,
    /// The next sequence numbers of both sides.
    pub(crate) ours: Seq,
    pub(crate) theirs: Seq,
    /// The peer's last timestamp, if they are used.
    pub(crate) recent: Option<u32>,
    pub(crate) clock_offset: u32,
    pub(crate) until: Micros,
    pub(crate) answered_at: Micros,
}

/// All entries last equally long, so the first is the next to expire. A restarted entry moves to the end: its old
/// position in the queue has an older generation then.
#[derive(Debug)]
pub(crate) struct TimeWaits {
    slots: Slots<TimeWait>,
    queue: VecDeque<(u32, u32, Micros)>,
    max: u32,
}

impl TimeWaits {
    pub(crate) fn new(max: u32) -> Self {
        Self { slots: Slots::new(max), queue: VecDeque::new(), max }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.slots.is_full()
    }

    /// Index of the new entry; `None` if the table is full.
    pub(crate) fn insert(&mut self, entry: TimeWait) -> Option<u32> {
        let until = entry.until;
        let (index, generation) = self.slots.insert(entry)?;
        // Entries that were removed early are still in the queue.
        if self.queue.len() > 2 * self.max as usize {
            let slots = &self.slots;
            self.queue.retain(|(index, generation, _)| is_there(slots, *index, *generation));
        }
        self.queue.push_back((index, generation, until));
        Some(index)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<TimeWait> {
        self.slots.remove(index)
    }

    pub(crate) fn get(&self, index: u32) -> Option<&TimeWait> {
        self.slots.get(index)
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut TimeWait> {
        self.slots.get_mut(index)
    }

    /// The next entry that has expired by `by`, or the oldest of all with [`Micros::NEVER`].
    pub(crate) fn take_first(&mut self, by: Micros) -> Option<(u32, TimeWait)> {
        while let Some((index, generation, until)) = self.queue.front().copied() {
            if !is_there(&self.slots, index, generation) {
                self.queue.pop_front();
                continue;
            }
            if until > by {
                return None;
            }
            self.queue.pop_front();
            // A restarted entry expires later.
            if let Some(entry) = self.slots.get(index).filter(|entry| entry.until > by && by != Micros::NEVER)
            {
                self.queue.push_back((index, generation, entry.until));
                continue;
            }
            return self.slots.remove(index).map(|entry| (index, entry));
        }
        None
    }

    pub(crate) fn next_timer(&self) -> Option<Micros> {
        self.queue.front().map(|(_, _, until)| *until)
    }
}

fn is_there(slots: &Slots<TimeWait>, index: u32, generation: u32) -> bool {
    slots.get(index).is_some() && slots.generation(index) == Some(generation)
}
