//! Reads chosen entries from the log by slot: for members that are behind, and for this server's own queues beyond
//! their memory limit.
//!
//! | frame of kind index | |
//! |---|---|
//! | first, next | 8 bytes each: the index covers the slots from `first` to before `next`; the last one has an entry |
//! | lowest | 8 bytes: the lowest position in it |
//! | previous | 8 bytes: position of the previous index, all ones if there is none |
//! | count | 4 bytes, and as many pairs of LEB128 numbers |
//!
//! A pair is the distance of the slot from the previous one (at first: from `first`), and the distance of its position
//! from `lowest`.
//!
//! An index is written for every [`INDEX_SLOTS`] delivered slots, and before each checkpoint. Memory holds the
//! positions of newer slots, and the position of each index. So a longer log takes only 40 bytes more for each index.
//!
//! Invariants:
//! * Each index begins where the previous one ends, or at a checkpoint after slots without entries. Each chosen entry
//!   is in an index, or in memory.
//! * A read is valid only if the log still has that part afterwards: discarded segments are overwritten.
//!
//! Lock order: only `state`, which is not held while the disk is read.

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

/// Number of slots with entries per index.
const INDEX_SLOTS: usize = 4096;
/// Limit of the decoded records that are cached during one read, in bytes.
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
    /// All slots before this are in an index.
    first: Slot,
    newer: Vec<(Slot, u64)>,
    /// Slots before this are damaged or missing.
    lost_before: Slot,
}

/// Reads chosen entries from the log by slot.
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

/// An index, the position of the previous one, and its entries.
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

/// The records of a frame, and the length of its content.
fn records_at(frames: &mut Frames, position: u64) -> Result<(Vec<Record>, usize), StoreError> {
    frames.seek(position);
    let end = || StoreError::Frame { position, reason: "the log ends there".into() };
    let frame = frames.next(|_| true)?.ok_or_else(end)?;
    Ok((frame.records()?, frame.content.len()))
}

impl Archive {
    /// An archive of a log in which nothing before `next` can be found.
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

    /// Finds the indexes before a checkpoint, beginning with the last one. Damage ends the search. It is returned for
    /// display and is not an error, since this server does not need these indexes.
    pub(super) fn find(&self, last: Option<Seq>) -> Option<StoreError> {
        let mut state = self.state();
        let mut at = last.map(|at| at.0);
        while let Some(position) = at.filter(|position| *position >= self.device.start().0) {
            let found = self.index_at(position).map(|(index, previous, _)| (index, previous));
            // Between the last index and the checkpoint there can only be skipped slots.
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

    /// Adds an index that was found after the checkpoint.
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

    /// Notes the position of a record's frame.
    pub(super) fn wrote(&self, record: &Record, position: Seq) {
        self.state().places.wrote(record, position.0);
    }

    /// Notes chosen slots. Returns whether an index is due.
    pub(super) fn chosen(&self, slots: &[Slot]) -> Result<bool, NoPlace> {
        let state = &mut *self.state();
        state.newer.extend(state.places.chosen(slots)?);
        Ok(state.newer.len() >= INDEX_SLOTS)
    }

    /// Writes an index of all newer slots. Returns the position of the last index.
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

    /// Slot before which all chosen entries are in an index.
    pub(super) fn indexed(&self) -> Slot {
        self.state().first
    }

    /// Slot from which on all chosen entries are readable.
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

    /// Marks everything before this slot as unreadable because of damage.
    pub fn give_up(&self, before: Slot) {
        let state = &mut *self.state();
        state.lost_before = state.lost_before.max(before);
    }

    /// Chosen entries from a slot on, in order: at most `count` entries and `len_bytes` bytes, but at least one entry
    /// if there is any. `None`: the log does not have them any more.
    ///
    /// # Errors
    /// [`StoreError::Frame`] with the position of the damage, [`StoreError::Device`].
    pub fn read(&self, from: Slot, count: usize, len_bytes: usize) -> Result<Option<Entries>, StoreError> {
        let start = self.device.start();
        let read = self.read_kept(from, count, len_bytes);
        // Discarded segments may contain other data by now.
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
                    // Entries before the damage are returned.
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

    /// Positions of entries from a slot on. `None`: the log does not have them any more.
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
