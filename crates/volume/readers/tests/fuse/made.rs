//! A source of made-up contents, whose reads can block, fail by a panic, and change.

use redoubt_readers::{Contents, LogFollower, ViewError, ViewSource};
use redoubt_wire::control::{EntryKind, VolumeEntry};
use redoubt_wire::view::ViewFile;
use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Path, kind, mode, length.
pub type Entry = (String, EntryKind, u32, u64);

/// Entries with paths of their own.
pub fn entries(of: &[(&str, EntryKind, u32, u64)]) -> Vec<Entry> {
    of.iter().map(|&(path, kind, mode, len_bytes)| (path.to_owned(), kind, mode, len_bytes)).collect()
}

/// The byte of a file at an offset. Files are numbered from 1, in the order of the entries.
pub fn byte(file: u32, at: u64) -> u8 {
    ((at ^ (at >> 9) ^ (at >> 17)) as u8).wrapping_add(file as u8)
}

#[derive(Default)]
struct Gate {
    is_closed: bool,
    waiting: u32,
}

/// A source of these entries.
pub struct Made {
    entries: Vec<Entry>,
    numbers: HashMap<String, usize>,
    gate: Mutex<Gate>,
    moved: Condvar,
    reads: AtomicU64,
    change: AtomicU8,
    panics: AtomicBool,
}

impl Made {
    pub fn new(entries: Vec<Entry>) -> Arc<Self> {
        let numbers = entries.iter().enumerate().map(|(at, entry)| (entry.0.clone(), at)).collect();
        Arc::new(Self {
            entries,
            numbers,
            gate: Mutex::default(),
            moved: Condvar::new(),
            reads: AtomicU64::new(0),
            change: AtomicU8::new(0),
            panics: AtomicBool::new(false),
        })
    }

    /// Number of reads so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    /// Changes every byte.
    pub fn change(&self) {
        self.change.fetch_add(1, Ordering::SeqCst);
    }

    /// Makes the next read panic.
    pub fn panic_at_next_read(&self) {
        self.panics.store(true, Ordering::SeqCst);
    }

    /// Makes reads wait for [`Made::unblock`].
    pub fn block(&self) {
        self.gate.lock().unwrap().is_closed = true;
    }

    /// Whether a read waits.
    pub fn is_blocking(&self) -> bool {
        self.gate.lock().unwrap().waiting > 0
    }

    pub fn unblock(&self) {
        self.gate.lock().unwrap().is_closed = false;
        self.moved.notify_all();
    }

    fn pass_gate(&self) {
        let mut gate = self.gate.lock().unwrap();
        gate.waiting += 1;
        let mut gate = self.moved.wait_while(gate, |gate| gate.is_closed).unwrap();
        gate.waiting -= 1;
    }

    fn entry(&self, at: usize) -> VolumeEntry {
        let (path, kind, mode, len_bytes) = &self.entries[at];
        VolumeEntry { path: path.clone(), kind: *kind, mode: *mode, len_bytes: *len_bytes, checksum: None }
    }
}

impl ViewSource for Made {
    fn stat(&self, path: &str) -> Result<Option<ViewFile>, ViewError> {
        let found = self.numbers.get(path);
        Ok(found.map(|&at| ViewFile { file: at as u32 + 1, entry: self.entry(at) }))
    }

    fn names(&self) -> Result<Vec<VolumeEntry>, ViewError> {
        Ok((0..self.entries.len()).map(|at| self.entry(at)).collect())
    }

    fn read(&self, file: u32, offset_bytes: u64, len_bytes: u32) -> Result<Option<Contents>, ViewError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.pass_gate();
        assert!(!self.panics.swap(false, Ordering::SeqCst), "this read was to panic");
        let total = self.entries[file as usize - 1].3;
        let end = total.min(offset_bytes + u64::from(len_bytes));
        let change = self.change.load(Ordering::SeqCst);
        let bytes = (offset_bytes..end).map(|at| byte(file, at).wrapping_add(change)).collect();
        Ok(Some(Contents { bytes, len_bytes: total }))
    }

    fn follow(&self) -> Result<Box<dyn LogFollower>, ViewError> {
        Err(ViewError::Failed("there is no redo log here".to_owned()))
    }

    fn scratch_file(&self) -> std::io::Result<File> {
        tempfile::tempfile()
    }
}
