//! What waits to be written and what is under way, in memory. No I/O happens here.
//!
//! Appended records gather in one group, which becomes one record of the log: nobody reads record boundaries, and
//! one header for many appends saves bytes. A group turns into one write, or one for each segment it reaches into.
//! Writes are kept in the order of their positions until all before them are done.
//!
//! A write that is started has to be awaited by some thread. The threads that want its bytes do that themselves:
//! one awaits the write, the others sleep as followers until their position is durable. Whenever a write is left
//! to nobody, it is offered to one sleeping follower that wants bytes of it or of a later one. So is a group that
//! is due, rather than being started by a thread that does not await it: the kernel completes a request in the
//! thread that submitted it, and if that sleeps elsewhere or is busy, who awaits the write is woken late.
//!
//! Invariants:
//! * `writes` are adjacent and in order, and the group starts where the last ends.
//! * The durable end is where a group ends, never between the writes of one: recovery gives up a record that is
//!   not there in all its parts.
//! * A write has a slot while it is starting, started or awaited. A slot is free or has one write.
//! * A write that is started and neither awaited nor offered is wanted by no follower.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use redoubt_storage::AlignedBuffer;
use redoubt_storage::durable_io::DurableFile;

pub(super) use super::follower::Follower;
use crate::format::RECORD_HEADER_LEN;
use crate::segments::Part;

/// A part of a group, on its way to be started.
pub(super) struct Pending {
    pub part: Part<Arc<dyn DurableFile>>,
    /// The payload, after the room for the header.
    pub buffer: AlignedBuffer,
}

/// A write that the caller is to start now.
pub(super) struct Start {
    pub id: u64,
    pub slot: usize,
    pub pending: Pending,
}

enum Phase {
    /// Waits for a slot.
    Ready(Pending),
    /// A thread is about to start it.
    Starting,
    /// With the disk, and nobody awaits it yet.
    Started {
        /// A follower was woken to await it.
        is_offered: bool,
    },
    /// A thread awaits it.
    Awaited,
    Done,
}

struct Write {
    id: u64,
    slot: usize,
    /// Where its group starts: nothing of a group is durable before all of it is.
    group_start: u64,
    end_seq: u64,
    /// The group continues in the next write.
    continues: bool,
    phase: Phase,
}

/// See the module.
pub(super) struct Pipeline {
    unit: usize,
    group: AlignedBuffer,
    group_start: u64,
    /// A follower was woken to start the group.
    is_group_offered: bool,
    /// Capacity of a usual buffer.
    group_len_bytes: usize,
    writes: VecDeque<Write>,
    next_id: u64,
    free_slots: Vec<usize>,
    free_buffers: Vec<AlignedBuffer>,
    followers: BTreeMap<(u64, u64), Arc<Follower>>,
    next_ticket: u64,
}

impl Pipeline {
    /// Nothing under way; the stream is durable up to `end_seq`.
    pub fn new(slots: usize, unit: usize, group_len_bytes: usize, end_seq: u64) -> Self {
        Self {
            unit,
            group: empty_group(AlignedBuffer::with_capacity(group_len_bytes)),
            group_start: end_seq,
            is_group_offered: false,
            group_len_bytes,
            writes: VecDeque::with_capacity(slots + 2),
            next_id: 0,
            free_slots: (0..slots).rev().collect(),
            free_buffers: Vec::with_capacity(slots + 1),
            followers: BTreeMap::new(),
            next_ticket: 0,
        }
    }

    /// Bytes in the group.
    pub fn group_len(&self) -> usize {
        self.group.len() - RECORD_HEADER_LEN
    }

    /// Position after the last byte appended.
    pub fn end_seq(&self) -> u64 {
        self.group_start + self.group_len() as u64
    }

    /// How many writes are with the disk or on their way there, or wait for one before them.
    pub fn under_way(&self) -> usize {
        self.writes.len()
    }

    pub fn has_free_slot(&self) -> bool {
        !self.free_slots.is_empty()
    }

    /// Position after the first write that is not done.
    pub fn first_end(&self) -> Option<u64> {
        self.writes.front().map(|write| write.end_seq)
    }

    /// Bytes that the group as it is would take on the disk.
    pub fn group_len_on_disk(&self) -> usize {
        self.group.len().next_multiple_of(self.unit)
    }

    /// Adds a record to the group, if it fits. A group of one record may be of any length.
    #[must_use]
    pub fn gather(&mut self, record: &[u8]) -> bool {
        if self.group.extend(record) {
            return true;
        }
        if self.group_len() > 0 {
            return false;
        }
        self.group = empty_group(AlignedBuffer::with_capacity(RECORD_HEADER_LEN + record.len()));
        self.group.extend(record)
    }

    /// Turns the group into writes at `parts`, which were reserved for exactly it.
    pub fn close_group(&mut self, parts: Vec<Part<Arc<dyn DurableFile>>>) {
        self.is_group_offered = false;
        let end_seq = self.end_seq();
        let group_start = std::mem::replace(&mut self.group_start, end_seq);
        let next = self.new_buffer(0);
        let group = std::mem::replace(&mut self.group, next);
        match <[_; 1]>::try_from(parts) {
            Ok([part]) => self.push(group_start, Pending { part, buffer: group }),
            Err(parts) => {
                for part in parts {
                    let payload = group.bytes().get(RECORD_HEADER_LEN..).unwrap_or_default();
                    let payload = payload.get(part.range.clone()).unwrap_or_default();
                    let mut buffer = self.new_buffer(payload.len());
                    // The buffer was made for it.
                    let _ = buffer.extend(payload);
                    self.push(group_start, Pending { part, buffer });
                }
                self.keep_buffer(group);
            }
        }
    }

    fn push(&mut self, group_start: u64, pending: Pending) {
        let (end_seq, continues) = (pending.part.end_seq(), pending.part.continues);
        let id = self.next_id;
        self.next_id += 1;
        let phase = Phase::Ready(pending);
        self.writes.push_back(Write { id, slot: 0, group_start, end_seq, continues, phase });
    }

    fn new_buffer(&mut self, len: usize) -> AlignedBuffer {
        let len = len + RECORD_HEADER_LEN;
        if len > self.group_len_bytes {
            return empty_group(AlignedBuffer::with_capacity(len));
        }
        let buffer = self.free_buffers.pop();
        empty_group(buffer.unwrap_or_else(|| AlignedBuffer::with_capacity(self.group_len_bytes)))
    }

    fn keep_buffer(&mut self, buffer: AlignedBuffer) {
        let is_usual = buffer.capacity() == self.group_len_bytes;
        if is_usual && self.free_buffers.len() < self.free_buffers.capacity() {
            self.free_buffers.push(buffer);
        }
    }

    /// Gives free slots to the writes that wait for one. The caller starts them.
    pub fn take_startable(&mut self) -> Vec<Start> {
        let mut starts = Vec::new();
        for write in &mut self.writes {
            if !matches!(write.phase, Phase::Ready(_)) {
                continue;
            }
            let Some(slot) = self.free_slots.pop() else { break };
            if let Phase::Ready(pending) = std::mem::replace(&mut write.phase, Phase::Starting) {
                write.slot = slot;
                starts.push(Start { id: write.id, slot, pending });
            }
        }
        starts
    }

    fn find(&mut self, id: u64) -> Option<&mut Write> {
        let first = self.writes.front()?.id;
        self.writes.get_mut(usize::try_from(id.checked_sub(first)?).ok()?)
    }

    /// The disk has the write. Says whether the caller is to await it, who wants to if nothing older is left to
    /// it.
    pub fn set_started(&mut self, id: u64, wants_to_await: bool) -> bool {
        let is_left = |write: &Write| matches!(write.phase, Phase::Started { .. });
        let awaits = wants_to_await && !self.writes.iter().any(is_left);
        if let Some(write) = self.find(id) {
            write.phase = if awaits { Phase::Awaited } else { Phase::Started { is_offered: false } };
        }
        awaits
    }

    /// A write for the caller to await, who wants the bytes before `seq`: the one offered to it, or else the
    /// oldest that nobody awaits. Returns its number and slot.
    pub fn take_to_await(&mut self, seq: u64, offered: Option<u64>) -> Option<(u64, usize)> {
        let is_free = |write: &Write| matches!(write.phase, Phase::Started { .. });
        let offered = offered.filter(|&id| self.find(id).is_some_and(|write| is_free(write)));
        let id = match offered {
            Some(id) => id,
            None => self.writes.iter().find(|write| is_free(write) && write.group_start < seq)?.id,
        };
        let write = self.find(id)?;
        write.phase = Phase::Awaited;
        Some((write.id, write.slot))
    }

    /// Any write that nobody awaits, for the caller to await.
    #[cfg(test)]
    pub fn take_any_to_await(&mut self, number: usize) -> Option<(u64, usize)> {
        let started = self.writes.iter().filter(|write| matches!(write.phase, Phase::Started { .. }));
        let ids: Vec<_> = started.map(|write| write.id).collect();
        let id = *ids.get(number.checked_rem(ids.len())?)?;
        self.take_to_await(u64::MAX, Some(id))
    }

    /// How many threads sleep.
    #[cfg(test)]
    pub fn followers(&self) -> usize {
        self.followers.len()
    }

    /// The write is durable. Returns how far the stream is, if that is further than before.
    pub fn set_done(&mut self, id: u64, buffer: AlignedBuffer) -> Option<u64> {
        self.keep_buffer(buffer);
        if let Some(write) = self.find(id) {
            write.phase = Phase::Done;
            let slot = write.slot;
            self.free_slots.push(slot);
        }
        let mut durable = None;
        while self.writes.front().is_some_and(|write| matches!(write.phase, Phase::Done))
            && let Some(write) = self.writes.pop_front()
        {
            if !write.continues {
                durable = Some(write.end_seq);
            }
        }
        durable
    }

    /// Puts the calling thread among those that sleep until `seq` is durable. It may be the one that the group was offered
    /// to, and that found no free slot or a group that is no longer due: so the group is offered again.
    pub fn follow(&mut self, seq: u64) -> Arc<Follower> {
        self.is_group_offered = false;
        let follower = Arc::new(Follower::of_this_thread());
        self.followers.insert((seq, self.next_ticket), Arc::clone(&follower));
        self.next_ticket += 1;
        follower
    }

    /// Takes out the followers that want no more than what is durable, to be woken.
    pub fn take_reached(&mut self, durable: u64, woken: &mut Vec<Arc<Follower>>) {
        while let Some(entry) = self.followers.first_entry().filter(|entry| entry.key().0 <= durable) {
            woken.push(entry.remove());
        }
    }

    /// Offers each write that is left to nobody to a follower that wants it, to be woken.
    pub fn offer_writes(&mut self, woken: &mut Vec<Arc<Follower>>) {
        for write in &mut self.writes {
            if !matches!(write.phase, Phase::Started { is_offered: false }) {
                continue;
            }
            let wants = self.followers.range((write.group_start + 1, 0)..).next().map(|(&key, _)| key);
            let Some(follower) = wants.and_then(|key| self.followers.remove(&key)) else { return };
            follower.offer(write.id);
            write.phase = Phase::Started { is_offered: true };
            woken.push(follower);
        }
    }

    /// Offers the group to a follower that wants it, to be woken. False: nobody does.
    pub fn offer_group(&mut self, woken: &mut Vec<Arc<Follower>>) -> bool {
        if self.is_group_offered {
            return true;
        }
        let wants = self.followers.range((self.group_start + 1, 0)..).next().map(|(&key, _)| key);
        let Some(follower) = wants.and_then(|key| self.followers.remove(&key)) else { return false };
        self.is_group_offered = true;
        woken.push(follower);
        true
    }

    /// Takes out all followers, to be woken.
    pub fn take_all(&mut self) -> Vec<Arc<Follower>> {
        std::mem::take(&mut self.followers).into_values().collect()
    }
}

/// The buffer with nothing but the room for a record header.
fn empty_group(mut buffer: AlignedBuffer) -> AlignedBuffer {
    buffer.clear();
    // A buffer has at least 4096 bytes.
    let _ = buffer.extend(&[0; RECORD_HEADER_LEN]);
    buffer
}
