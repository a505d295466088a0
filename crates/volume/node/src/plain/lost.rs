//! Plain files whose contents are lost: they were removed, cut or damaged on the node's disk.
//!
//! The contents that are there can be read. A loss ends when a change empties or removes the file, or when the changes
//! that are made again after a crash write all that is missing. Until those are made, no loss is certain.
//!
//! Lock: a leaf.

use super::Change;
use redoubt_sync::Mutex;
use redoubt_wire::page::FileId;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};

/// Ranges of a loss that are remembered. Bytes of others count as missing.
const RANGES_MAX: usize = 4096;

/// Loss of a file's contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Bytes that it has from its beginning on.
    has_bytes: u64,
    /// Bytes that it had; the largest number: it is missing, and its length is not known.
    had_bytes: u64,
    /// Ranges after `has_bytes` that were written again, in order, with gaps between them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    written: Vec<(u64, u64)>,
    /// It was not cut: its contents differ from their checksum, and which bytes are right is not known.
    #[serde(default, skip_serializing_if = "is_false")]
    is_damaged: bool,
}

fn is_false(value: &bool) -> bool {
    !*value
}

impl Loss {
    /// Of a file that is missing.
    pub const fn of_missing() -> Self {
        Self { has_bytes: 0, had_bytes: u64::MAX, written: Vec::new(), is_damaged: false }
    }

    /// Of a file that was cut.
    pub const fn of_cut(has_bytes: u64, had_bytes: u64) -> Self {
        Self { has_bytes, had_bytes, written: Vec::new(), is_damaged: false }
    }

    /// Of a file whose first bytes, this many, do not have their checksum. To builds before it, it is a file that was cut
    /// to nothing.
    pub const fn of_damaged(had_bytes: u64) -> Self {
        Self { has_bytes: 0, had_bytes, written: Vec::new(), is_damaged: true }
    }

    /// For people.
    pub fn reason(&self) -> String {
        match self.had_bytes {
            u64::MAX => "its contents on the node are missing".to_owned(),
            had_bytes if self.is_damaged => {
                format!(
                    "its contents on the node are damaged: its first {had_bytes} bytes do not have their checksum"
                )
            }
            had_bytes => {
                format!("its contents on the node were cut from {had_bytes} to {} bytes", self.has_bytes)
            }
        }
    }

    /// The change was made. False: nothing is missing any more.
    fn survives(&mut self, change: &Change) -> bool {
        match change {
            Change::Create(_) | Change::Remove(_) => false,
            Change::SetLen(_, len_bytes) => {
                self.written.retain_mut(|(start, end)| {
                    *end = (*end).min(*len_bytes);
                    start < end
                });
                *len_bytes > self.has_bytes
            }
            Change::Write { offset_bytes, .. } => {
                self.add_written(*offset_bytes, offset_bytes.saturating_add(change.len_bytes()));
                self.has_bytes < self.had_bytes
            }
        }
    }

    fn add_written(&mut self, start: u64, end: u64) {
        if start > self.has_bytes {
            // If its length is not known, it stays lost.
            let is_counted = start < end && start < self.had_bytes && self.had_bytes != u64::MAX;
            if is_counted {
                self.add_range(start, end);
            }
            return;
        }
        self.has_bytes = self.has_bytes.max(end);
        let reached = self.written.partition_point(|(start, _)| *start <= self.has_bytes);
        // One of them may make the next one reached, but between them are gaps.
        if let Some((_, end)) = self.written.drain(..reached).next_back() {
            self.has_bytes = self.has_bytes.max(end);
        }
    }

    /// Joins the range with those that it touches.
    fn add_range(&mut self, start: u64, end: u64) {
        let first = self.written.partition_point(|(_, before)| *before < start);
        let after = self.written.partition_point(|(next, _)| *next <= end);
        let touched = self.written.get(first..after).unwrap_or_default();
        let start = touched.first().map_or(start, |(first, _)| start.min(*first));
        let end = touched.last().map_or(end, |(_, last)| end.max(*last));
        if !touched.is_empty() || self.written.len() < RANGES_MAX {
            drop(self.written.splice(first..after, [(start, end)]));
        }
    }
}

/// Plain files whose contents are lost.
#[derive(Default)]
pub struct LostFiles {
    /// Spares the lock for each change.
    has_any: AtomicBool,
    is_changed: AtomicBool,
    /// The changes after A are made again.
    are_final: AtomicBool,
    files: Mutex<FxHashMap<FileId, Loss>>,
}

impl LostFiles {
    /// This file is lost. A former loss of it is replaced.
    pub fn add(&self, id: FileId, loss: Loss) {
        self.files.lock().insert(id, loss);
        self.has_any.store(true, Ordering::Release);
        self.set_changed();
    }

    /// Only these are.
    pub fn retain(&self, keep: impl Fn(FileId) -> bool) {
        let mut files = self.files.lock();
        files.retain(|id, _| keep(*id));
        self.has_any.store(!files.is_empty(), Ordering::Release);
    }

    /// Why it is lost, if it is.
    pub fn find(&self, id: FileId) -> Option<String> {
        if !self.has_any.load(Ordering::Acquire) {
            return None;
        }
        self.files.lock().get(&id).map(Loss::reason)
    }

    /// All of them, in order.
    pub fn all(&self) -> Vec<(FileId, Loss)> {
        let mut all: Vec<_> = self.files.lock().iter().map(|(id, loss)| (*id, loss.clone())).collect();
        all.sort_unstable_by_key(|(id, _)| id.0);
        all
    }

    /// The changes after A are made again: a file that is still lost is to be reported.
    pub fn set_final(&self) {
        self.are_final.store(true, Ordering::Release);
    }

    /// All of them, in order, once that is so.
    pub fn reported(&self) -> Vec<(FileId, Loss)> {
        if self.are_final.load(Ordering::Acquire) { self.all() } else { Vec::new() }
    }

    /// A change was made.
    pub fn changed(&self, change: &Change) {
        if !self.has_any.load(Ordering::Acquire) {
            return;
        }
        let mut files = self.files.lock();
        let id = change.file();
        if files.get_mut(&id).is_some_and(|loss| !loss.survives(change)) {
            files.remove(&id);
            self.has_any.store(!files.is_empty(), Ordering::Release);
            self.set_changed();
        }
    }

    /// They are other ones than at the last call.
    pub fn take_changed(&self) -> bool {
        self.is_changed.swap(false, Ordering::AcqRel)
    }

    /// The next call of [`LostFiles::take_changed`] returns true.
    pub fn set_changed(&self) {
        self.is_changed.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_buffer::Chunk;
    use crate::mark::Point;
    use std::sync::Arc;

    #[test]
    fn loss_ends_when_nothing_is_missing() {
        let files = LostFiles::default();
        files.add(FileId(1), Loss::of_cut(10, 100));
        files.add(FileId(2), Loss::of_missing());
        assert!(files.take_changed());
        // Longer than what is there.
        files.changed(&Change::SetLen(FileId(1), 50));
        files.changed(&Change::SetLen(FileId(2), 50));
        assert!(!files.take_changed() && files.all().len() == 2);
        // Up to what is there: the file was cut by its server.
        files.changed(&Change::SetLen(FileId(1), 10));
        assert!(files.take_changed() && files.find(FileId(1)).is_none());
        files.changed(&Change::Create(FileId(2)));
        assert!(files.all().is_empty());
    }

    fn write(file: u32, range: std::ops::Range<u64>) -> Change {
        let chunk = Chunk {
            kind: 6,
            logged: true,
            start: Point::default(),
            end: Point::default(),
            wire: Vec::new(),
            raw: Some(vec![1; (range.end - range.start) as usize]),
        };
        Change::Write { file: FileId(file), offset_bytes: range.start, chunk: Arc::new(chunk), from: 0 }
    }

    #[test]
    fn loss_ends_when_all_is_written_in_any_order() {
        // All orders of pages, some of them twice.
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let files = LostFiles::default();
            files.add(FileId(1), Loss::of_cut(15, 100));
            let mut pages: Vec<u64> = (1..10).chain([3, 7]).collect();
            rng.shuffle(&mut pages);
            let mut missing: std::collections::BTreeSet<u64> = (1..10).collect();
            for page in pages {
                assert!(files.find(FileId(1)).is_some() != missing.is_empty(), "seed {seed}");
                files.changed(&write(1, page * 10..page * 10 + 10));
                missing.remove(&page);
            }
            assert_eq!(files.find(FileId(1)), None, "seed {seed}");
        }
    }

    #[test]
    fn loss_stays_when_a_written_part_is_cut_off_again() {
        let files = LostFiles::default();
        files.add(FileId(1), Loss::of_cut(10, 40));
        files.changed(&write(1, 20..40));
        files.changed(&Change::SetLen(FileId(1), 30));
        files.changed(&write(1, 10..20));
        assert!(files.find(FileId(1)).is_some());
        files.changed(&write(1, 30..40));
        assert_eq!(files.find(FileId(1)), None);
    }

    #[test]
    fn loss_is_reported_when_the_changes_after_a_are_made() {
        let files = LostFiles::default();
        files.add(FileId(1), Loss::of_missing());
        files.add(FileId(2), Loss::of_missing());
        assert!(files.reported().is_empty());
        files.changed(&Change::Remove(FileId(1)));
        files.set_final();
        assert_eq!(files.reported(), [(FileId(2), Loss::of_missing())]);
    }
}
