//! What was chosen, found again in the log by its slots: for members that are behind, and for what waits for this server
//! itself and is not kept in memory.
//!
//! | frame of kind index | |
//! |---|---|
//! | first, next | 8 bytes each: what it says is of the slots from `first` to before `next`; the last of them has an entry |
//! | lowest | 8 bytes: the lowest position that it names |
//! | previous | 8 bytes: position of the index before it, all ones if there is none |
//! | count | 4 bytes, and so many pairs of LEB128 numbers: by how much the slot is after the one before it (at first: after `first`); the position by how much it is after `lowest` |
//!
//! An index is written for every [`INDEX_SLOTS`] slots that were delivered, and before each checkpoint. In memory is what
//! is newer than the last one, and where each of them is. So this takes no more memory for a longer log, but for 40 bytes
//! for each index.
//!
//! Invariants:
//! * Each index begins where the one before it ends, or a checkpoint with slots without entries before it. What was chosen is in one of them, or in memory.
//! * What was read counts if the log still had it afterwards: segments that are given up are written again.
//!
//! Lock order: `state`, nothing with it. It is not held while the disk is read.

use super::frames::{Frame, Frames, Kind, PIECE_LEN_BYTES};
use super::{StoreError, frames};
use crate::bytes::{Reader, put_number};
use redoubt_consensus::message::Entries;
use redoubt_consensus::places::{NoPlace, Places};
use redoubt_consensus::record::Record;
use redoubt_consensus::types::Slot;
use redoubt_locks::IgnorePoison;
use redoubt_logdev::{LogDevice, LogDeviceError, Seq};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// Slots with entries of one index.
const INDEX_SLOTS: usize = 4096;
/// Records that are kept while a part is read, in bytes.
const RECORDS_LEN_BYTES: usize = 1 << 20;
const NONE: u64 = u64::MAX;

/// An index in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Index {
    first: Slot,
    next: Slot,
    lowest: u64,
    at: u64,
}

struct State {
    places: Places,
    indexes: VecDeque<Index>,
    /// All before this is in an index.
    first: Slot,
    newer: Vec<(Slot, u64)>,
    /// Something before this was damaged, or is no more there.
    lost_before: Slot,
}

/// See the module.
pub struct Archive {
    device: Arc<dyn LogDevice>,
    state: Mutex<State>,
}

fn encode(first: Slot, previous: Option<u64>, places: &[(Slot, u64)]) -> (Slot, u64, Vec<u8>) {
    let next = places.last().map_or(first, |(slot, _)| slot.next());
    let lowest = places.iter().map(|(_, place)| *place).min().unwrap_or(0);
    let mut out = Vec::with_capacity(36 + 5 * places.len());
    for number in [first.0, next.0, lowest, previous.unwrap_or(NONE)] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&(places.len() as u32).to_le_bytes());
    let mut before = first;
    for (slot, place) in places {
        put_number(&mut out, slot.0 - before.0);
        put_number(&mut out, place - lowest);
        before = *slot;
    }
    (next, lowest, out)
}

/// An index, the one before it, and what it says.
type Decoded = (Index, Option<u64>, Vec<(Slot, u64)>);

fn decode(frame: &Frame) -> Result<Decoded, StoreError> {
    let decoded = |reader: &mut Reader<'_>| {
        let mut head = [0; 4];
        for number in &mut head {
            *number = reader.u64().ok()?;
        }
        let [first, next, lowest, previous] = head;
        let count = reader.u32().ok()?;
        let (mut slot, mut places) = (first, Vec::new());
        for at in 0..count {
            let distance = reader.number().ok()?;
            if distance == 0 && at > 0 {
                return None;
            }
            slot = slot.checked_add(distance).filter(|slot| *slot < u64::MAX)?;
            places.push((Slot(slot), lowest.checked_add(reader.number().ok()?)?));
        }
        reader.end().ok()?;
        let index = Index { first: Slot(first), next: Slot(next), lowest, at: frame.position };
        let is_whole = places.last().is_some_and(|(last, _)| last.next() == index.next);
        is_whole.then_some((index, (previous != NONE).then_some(previous), places))
    };
    let is_index = frame.kind == Kind::Index;
    let found = is_index.then(|| decoded(&mut Reader::new(&frame.content))).flatten();
    found.ok_or_else(|| frame.wrong("it is no index"))
}

/// What is in a frame, and how long that is.
fn records_at(frames: &mut Frames, position: u64) -> Result<(Vec<Record>, usize), StoreError> {
    frames.seek(position);
    let end = || StoreError::Frame { position, reason: "the log ends there".into() };
    let frame = frames.next(|_| true)?.ok_or_else(end)?;
    Ok((frame.records()?, frame.content.len()))
}

impl Archive {
    /// Of a log in which nothing before `next` can be found.
    pub(super) fn new(device: Arc<dyn LogDevice>, next: Slot) -> Self {
        let state = State {
            places: Places::after(next),
            indexes: VecDeque::new(),
            first: next,
            newer: Vec::new(),
            lost_before: Slot(0),
        };
        Self { device, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// Finds the indexes before a checkpoint, from the last one on. What is damaged ends it: said, and no error, since
    /// this server does not need them.
    pub(super) fn find(&self, last: Option<Seq>) -> Option<StoreError> {
        let mut state = self.state();
        let mut at = last.map(|at| at.0);
        while let Some(position) = at.filter(|position| *position >= self.device.start().0) {
            let found = self.index_at(position).map(|(index, previous, _)| (index, previous));
            // Between the last one and the checkpoint there is nothing, but perhaps slots that were skipped.
            let follows = |index: &Index| match state.indexes.front() {
                Some(later) => index.next == later.first,
                None => index.next <= state.first,
            };
            match found {
                Ok((index, previous)) if follows(&index) && index.lowest >= self.device.start().0 => {
                    state.indexes.push_front(index);
                    at = previous.filter(|previous| *previous < position);
                }
                Ok(_) => return None,
                Err(error) => return Some(error),
            }
        }
        None
    }

    /// One that was found after the checkpoint.
    pub(super) fn found(&self, frame: &Frame) -> Result<(), StoreError> {
        let (index, _, _) = decode(frame)?;
        let state = &mut *self.state();
        if index.next > state.first {
            if index.first > state.first {
                return Err(frame.wrong("an index is missing before it"));
            }
            state.indexes.push_back(index);
            state.first = index.next;
            state.newer.retain(|(slot, _)| *slot >= index.next);
            state.places.skip_to(index.next);
        }
        Ok(())
    }

    /// A record is in a frame there.
    pub(super) fn wrote(&self, record: &Record, position: Seq) {
        self.state().places.wrote(record, position.0);
    }

    /// These slots are chosen. Whether an index is due.
    pub(super) fn chosen(&self, slots: &[Slot]) -> Result<bool, NoPlace> {
        let state = &mut *self.state();
        state.newer.extend(state.places.chosen(slots)?);
        Ok(state.newer.len() >= INDEX_SLOTS)
    }

    /// Writes what is newer than the last index. Where the last one is then.
    pub(super) fn write_index(&self) -> Result<Option<Seq>, LogDeviceError> {
        let (first, previous, newer) = {
            let state = self.state();
            (state.first, state.indexes.back().map(|index| index.at), state.newer.clone())
        };
        if newer.is_empty() {
            return Ok(previous.map(Seq));
        }
        let (next, lowest, content) = encode(first, previous, &newer);
        let at = frames::put(&*self.device, Kind::Index, &[&content])?;
        let state = &mut *self.state();
        state.indexes.push_back(Index { first, next, lowest, at: at.0 });
        state.first = next;
        state.newer.clear();
        Ok(Some(at))
    }

    /// All before this slot that was chosen is in an index.
    pub(super) fn indexed(&self) -> Slot {
        self.state().first
    }

    /// What was chosen from this slot on can be read.
    pub fn readable(&self) -> Slot {
        self.readable_of(&mut self.state())
    }

    fn readable_of(&self, state: &mut State) -> Slot {
        let (start, lost_before) = (self.device.start().0, state.lost_before);
        while state.indexes.front().is_some_and(|index| index.lowest < start || index.next <= lost_before) {
            state.indexes.pop_front();
        }
        state.indexes.front().map_or(state.first, |index| index.first).max(lost_before)
    }

    /// Nothing before this slot is to be read any more: it is damaged.
    pub fn give_up(&self, before: Slot) {
        let state = &mut *self.state();
        state.lost_before = state.lost_before.max(before);
    }

    /// What was chosen from a slot on, in order: at most so many entries and bytes, and at least one if there is one.
    /// `None`: the log does not have it any more.
    ///
    /// # Errors
    /// [`StoreError::Frame`] with the position of what is damaged, [`StoreError::Device`].
    pub fn read(&self, from: Slot, count: usize, len_bytes: usize) -> Result<Option<Entries>, StoreError> {
        let start = self.device.start();
        let read = self.read_kept(from, count, len_bytes);
        // What was given up meanwhile may be another thing by now.
        if self.device.start() != start && self.readable() > from { Ok(None) } else { read }
    }

    fn read_kept(&self, from: Slot, count: usize, len_bytes: usize) -> Result<Option<Entries>, StoreError> {
        let Some(places) = self.places(from, count)? else { return Ok(None) };
        let mut frames = Frames::new(Arc::clone(&self.device), Seq(0), PIECE_LEN_BYTES);
        let (mut records, mut records_len) = (BTreeMap::<u64, Vec<Record>>::new(), 0);
        let (mut entries, mut left) = (Entries::new(), len_bytes);
        for (slot, place) in places {
            if !records.contains_key(&place) {
                if records_len > RECORDS_LEN_BYTES {
                    (records, records_len) = (BTreeMap::new(), 0);
                }
                match records_at(&mut frames, place) {
                    Ok((read, len)) => {
                        records_len += len;
                        records.insert(place, read);
                    }
                    // What comes before it can be read all the same.
                    Err(_) if !entries.is_empty() => break,
                    Err(error) => return Err(error),
                }
            }
            let found = records[&place].iter().rev().find_map(|record| record.entry_at(slot));
            let reason = || format!("it does not have slot {slot}");
            let entry = found.ok_or_else(|| StoreError::Frame { position: place, reason: reason() })?;
            let len = entry.len_bytes();
            if !entries.is_empty() && len > left {
                break;
            }
            left = left.saturating_sub(len);
            entries.push((slot, entry));
        }
        Ok(Some(entries))
    }

    /// Where that is. `None`: the log does not have it any more.
    fn places(&self, from: Slot, count: usize) -> Result<Option<Vec<(Slot, u64)>>, StoreError> {
        let at = {
            let mut state = self.state();
            if from < self.readable_of(&mut state) {
                return Ok(None);
            }
            let after = state.indexes.partition_point(|index| index.next <= from);
            match state.indexes.get(after) {
                Some(index) => index.at,
                None => {
                    let after = state.newer.partition_point(|(slot, _)| *slot < from);
                    return Ok(Some(state.newer[after..].iter().take(count).copied().collect()));
                }
            }
        };
        let (_, _, mut places) = self.index_at(at)?;
        places.retain(|(slot, _)| *slot >= from);
        places.truncate(count);
        Ok(Some(places))
    }

    fn index_at(&self, position: u64) -> Result<Decoded, StoreError> {
        let mut frames = Frames::new(Arc::clone(&self.device), Seq(position), PIECE_LEN_BYTES);
        let end = || StoreError::Frame { position, reason: "the log ends there".into() };
        frames.next(|_| true)?.ok_or_else(end).and_then(|frame| decode(&frame))
    }
}

#[cfg(test)]
mod tests;
