//! A store-order model of persistent memory: what a power cut may leave of stores that were not fenced.
//!
//! A [`StoreModel`] keeps what the processors see apart from what is persisted. The persisted image advances only
//! by fences, and only by what they cover:
//!
//! * A fence of a thread persists that thread's own non-temporal stores before it, and the lines that this thread
//!   flushed before it, as they were when flushed. It says nothing about what other threads stored.
//! * Every other store since may be persisted or not, each aligned eight bytes for itself, in any order: a cache
//!   line may be evicted at any time, and buffers drain as they like. Stores to the same eight bytes keep their
//!   order.
//!
//! Every store of eight bytes or less, every flush of a line and every fence counts as one step of a
//! [`PowerSwitch`], so that a test can cut the power at each step in turn. Steps after the cut do nothing.
//!
//! The kernel is a thread of its own ([`KERNEL`]): what a file system writes is persisted by its syncs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastrand::Rng;
use redoubt_sync::Mutex;

use super::memory::{LINE_LEN_BYTES, Memory};

/// The thread that stands for the kernel.
pub const KERNEL: u32 = u32::MAX;

/// Unit that is persisted whole or not at all, in bytes.
const WORD_LEN: usize = 8;
type Word = [u8; WORD_LEN];

/// Counts steps and cuts the power at one of them. Shared by the memories of one machine.
#[derive(Default, Debug)]
pub struct PowerSwitch {
    steps_done: AtomicU64,
    cut_at: AtomicU64,
    has_cut: AtomicBool,
    is_off: AtomicBool,
}

impl PowerSwitch {
    /// How many steps were done.
    pub fn steps_done(&self) -> u64 {
        self.steps_done.load(Ordering::Relaxed)
    }

    /// Cuts the power before step number `step` (from 0).
    pub fn cut_at(&self, step: u64) {
        self.cut_at.store(step, Ordering::Relaxed);
        self.has_cut.store(true, Ordering::Relaxed);
    }

    /// True once the power was cut.
    pub fn is_off(&self) -> bool {
        self.is_off.load(Ordering::Relaxed)
    }

    /// Counts a step. False if it must not happen.
    pub fn step(&self) -> bool {
        if self.is_off() {
            return false;
        }
        let step = self.steps_done.load(Ordering::Relaxed);
        if self.has_cut.load(Ordering::Relaxed) && step >= self.cut_at.load(Ordering::Relaxed) {
            self.is_off.store(true, Ordering::Relaxed);
            return false;
        }
        self.steps_done.store(step + 1, Ordering::Relaxed);
        true
    }
}

/// Which of the stores that no fence covers a power cut keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// None of them: the caches and buffers were lost as they were.
    Nothing,
    /// All of them: everything was written back in time.
    Everything,
    /// Some, chosen by the seed: each word for itself, or line by line.
    Some(u64),
}

/// A memory. Clones are the same memory.
#[derive(Clone, Debug)]
pub struct StoreModel {
    switch: Arc<PowerSwitch>,
    state: Arc<Mutex<MemoryState>>,
}

#[derive(Clone, Default, Debug)]
struct MemoryState {
    /// Content as loads see it.
    visible: Vec<u8>,
    /// Content that is persistent in any case.
    persisted: Vec<u8>,
    /// For each word with stores that no fence covers, what it held after each of them, oldest first.
    pending: BTreeMap<usize, Vec<Version>>,
}

#[derive(Clone, Debug)]
struct Version {
    value: Word,
    way: Way,
}

/// How a store is on its way to the memory.
#[derive(Clone, Debug)]
enum Way {
    /// Past the cache; persisted by a fence of this thread.
    NonTemporal(u32),
    /// In the cache; persisted by a fence of one of the threads that flushed it.
    Cached { flushed_by: Vec<u32> },
}

impl StoreModel {
    /// A memory that holds `content`, persisted.
    pub fn new(content: Vec<u8>, switch: Arc<PowerSwitch>) -> Self {
        let state = MemoryState { visible: content.clone(), persisted: content, pending: BTreeMap::new() };
        Self { switch, state: Arc::new(Mutex::new(state)) }
    }

    /// The memory as the thread `thread` uses it.
    pub fn as_thread(&self, thread: u32) -> ThreadMemory {
        ThreadMemory { model: self.clone(), thread }
    }

    /// Content as loads see it.
    pub fn visible(&self) -> Vec<u8> {
        self.state.lock().visible.clone()
    }

    /// Content that is persistent in any case.
    pub fn persisted(&self) -> Vec<u8> {
        self.state.lock().persisted.clone()
    }

    /// How many words have stores that no fence covers and that matter.
    pub fn pending_words(&self) -> usize {
        self.state.lock().pending.len()
    }

    /// Content after a power cut now.
    pub fn after_power_cut(&self, keep: Keep) -> Vec<u8> {
        self.state.lock().after_power_cut(keep)
    }

    /// The switch that counts the steps of this memory.
    pub fn switch(&self) -> &PowerSwitch {
        &self.switch
    }

    /// The length of the memory in bytes.
    pub fn len_bytes(&self) -> usize {
        self.state.lock().visible.len()
    }

    /// Copies what loads see at `at` into `buf`, as far as the memory reaches; returns how many bytes that is.
    pub fn read_at(&self, at: usize, buf: &mut [u8]) -> usize {
        let state = self.state.lock();
        let bytes = state.visible.get(at..).unwrap_or_default();
        let len = bytes.len().min(buf.len());
        buf[..len].copy_from_slice(&bytes[..len]);
        len
    }

    /// The kernel writes `bytes` at `at`, extending the memory where needed. Persisted by [`StoreModel::sync_by_kernel`].
    pub fn write_by_kernel(&self, at: usize, bytes: &[u8]) {
        self.state.lock().write_by_kernel(at, bytes);
    }

    /// Persists what the kernel wrote.
    pub fn sync_by_kernel(&self) {
        self.state.lock().fence(KERNEL);
    }

    /// Cuts the memory or extends it with zeros. Lengths are durable at once: the devices depend on none that was not
    /// synced.
    pub fn resize(&self, len: usize) {
        self.state.lock().resize(len);
    }

    /// Extends the memory with zeros to at least `len` bytes.
    pub fn grow(&self, len: usize) {
        let mut state = self.state.lock();
        let len = state.visible.len().max(len);
        state.resize(len);
    }

    /// The same content, with all pending stores in the cache, where only the kernel flushes them.
    #[must_use]
    pub fn after_process_end(&self, switch: Arc<PowerSwitch>) -> Self {
        let mut state = self.state.lock().clone();
        for version in state.pending.values_mut().flatten() {
            version.way = Way::NonTemporal(KERNEL);
        }
        Self { switch, state: Arc::new(Mutex::new(state)) }
    }
}

impl MemoryState {
    fn write_by_kernel(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if self.visible.len() < end {
            self.resize(end);
        }
        let mut at = at;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.len().min(WORD_LEN - at % WORD_LEN));
            self.store(at, part, Way::NonTemporal(KERNEL));
            at += part.len();
            rest = after;
        }
    }

    fn resize(&mut self, len: usize) {
        self.visible.resize(len, 0);
        self.persisted.resize(len, 0);
        self.pending.retain(|&word, _| word * WORD_LEN < len);
    }

    /// Stores bytes that lie in one word.
    fn store(&mut self, at: usize, bytes: &[u8], way: Way) {
        self.visible[at..at + bytes.len()].copy_from_slice(bytes);
        let word = at / WORD_LEN;
        let value = word_of(&self.visible, word);
        // A store of what is persisted already makes no difference to any image.
        if value != word_of(&self.persisted, word) || self.pending.contains_key(&word) {
            self.pending.entry(word).or_default().push(Version { value, way });
        }
    }

    fn flush_line(&mut self, line_at: usize, thread: u32) {
        let words = line_at / WORD_LEN..(line_at + LINE_LEN_BYTES) / WORD_LEN;
        for versions in self.pending.range_mut(words).map(|(_, versions)| versions) {
            let cached = versions.iter_mut().rev().find_map(|version| match &mut version.way {
                Way::Cached { flushed_by } => Some(flushed_by),
                Way::NonTemporal(_) => None,
            });
            if let Some(flushed_by) = cached {
                flushed_by.push(thread);
            }
        }
    }

    fn fence(&mut self, thread: u32) {
        let is_covered = |version: &Version| match &version.way {
            Way::NonTemporal(by) => *by == thread,
            Way::Cached { flushed_by } => flushed_by.contains(&thread),
        };
        let persisted = &mut self.persisted;
        self.pending.retain(|&word, versions| {
            if let Some(last) = versions.iter().rposition(is_covered) {
                put_word(persisted, word, versions[last].value);
                versions.drain(..=last);
            }
            !versions.is_empty()
        });
    }

    fn after_power_cut(&self, keep: Keep) -> Vec<u8> {
        let mut image = self.persisted.clone();
        let seed = match keep {
            Keep::Nothing => return image,
            Keep::Everything => return self.visible.clone(),
            Keep::Some(seed) => seed,
        };
        let mut rng = Rng::with_seed(seed);
        // Almost nothing, almost everything and a mixture should all be common.
        let odds = [1, 10, 50, 90, 99][rng.usize(..5)];
        let by_line = rng.bool();
        let mut line = (usize::MAX, false);
        for (&word, versions) in &self.pending {
            let line_of_word = word * WORD_LEN / LINE_LEN_BYTES;
            if !by_line || line.0 != line_of_word {
                line = (line_of_word, rng.u8(..100) < odds);
            }
            if line.1 {
                let newest = versions.len() - 1;
                let version = if rng.bool() { newest } else { rng.usize(..=newest) };
                put_word(&mut image, word, versions[version].value);
            }
        }
        image
    }
}

/// Content of a word; zeros where the memory does not reach.
fn word_of(bytes: &[u8], word: usize) -> Word {
    let at = word * WORD_LEN;
    let mut value = [0; WORD_LEN];
    let there = bytes.get(at..bytes.len().min(at + WORD_LEN)).unwrap_or_default();
    value[..there.len()].copy_from_slice(there);
    value
}

/// Stores a word, as far as the memory reaches.
fn put_word(bytes: &mut [u8], word: usize, value: Word) {
    let at = word * WORD_LEN;
    let end = bytes.len().min(at + WORD_LEN);
    if let Some(to) = bytes.get_mut(at..end) {
        to.copy_from_slice(&value[..end - at]);
    }
}

/// A [`StoreModel`] as one thread uses it: its fences cover its own stores and flushes.
#[derive(Clone, Debug)]
pub struct ThreadMemory {
    model: StoreModel,
    thread: u32,
}

impl ThreadMemory {
    fn store(&self, offset_bytes: usize, bytes: &[u8], way: &Way) {
        let mut at = offset_bytes;
        let mut rest = bytes;
        while !rest.is_empty() {
            let len = rest.len().min(WORD_LEN - at % WORD_LEN);
            let (part, after) = rest.split_at(len);
            if self.model.switch.step() {
                self.model.state.lock().store(at, part, way.clone());
            }
            at += len;
            rest = after;
        }
    }
}

impl Memory for ThreadMemory {
    fn store_nt(&self, offset_bytes: usize, lines: &[u8]) {
        assert!(offset_bytes.is_multiple_of(LINE_LEN_BYTES), "a non-temporal store inside a line");
        assert!(lines.len().is_multiple_of(LINE_LEN_BYTES), "a non-temporal store of part of a line");
        self.store(offset_bytes, lines, &Way::NonTemporal(self.thread));
    }

    fn store_cached(&self, offset_bytes: usize, bytes: &[u8]) {
        self.store(offset_bytes, bytes, &Way::Cached { flushed_by: Vec::new() });
    }

    fn flush_line(&self, line_offset_bytes: usize) {
        assert!(line_offset_bytes.is_multiple_of(LINE_LEN_BYTES), "a flush inside a line");
        if self.model.switch.step() {
            self.model.state.lock().flush_line(line_offset_bytes, self.thread);
        }
    }

    fn fence(&self) {
        if self.model.switch.step() {
            self.model.state.lock().fence(self.thread);
        }
    }
}

#[cfg(test)]
mod tests;
