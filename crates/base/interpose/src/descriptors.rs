//! A table from descriptor numbers to values that are never freed.
//!
//! Invariants: a lookup takes no lock, and two loads where there is no entry. Values are never freed, so a reference is
//! valid for ever.

use libc::c_int;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicPtr, Ordering};

const CHUNK: usize = 1024;
const CHUNKS: usize = 1024;

type Chunk<T> = [AtomicPtr<T>; CHUNK];

/// A table from descriptor numbers to values that are never freed.
pub struct Descriptors<T: 'static>([AtomicPtr<Chunk<T>>; CHUNKS]);

impl<T> Descriptors<T> {
    /// An empty table.
    pub const fn new() -> Self {
        Self([const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS])
    }

    fn entry(&self, fd: c_int) -> Option<&AtomicPtr<T>> {
        let index = usize::try_from(fd).ok()?;
        let chunk = self.0.get(index / CHUNK)?.load(Ordering::Acquire);
        // SAFETY: null, or a chunk, which is never freed.
        unsafe { chunk.as_ref() }?.get(index % CHUNK)
    }

    /// The value of a descriptor.
    #[inline]
    pub fn get(&self, fd: c_int) -> Option<&'static T> {
        let found = self.entry(fd)?.load(Ordering::Acquire);
        // SAFETY: null, or a value, which is never freed.
        unsafe { found.as_ref() }
    }

    fn entry_to_fill(&self, fd: c_int) -> Option<&AtomicPtr<T>> {
        if let Some(entry) = self.entry(fd) {
            return Some(entry);
        }
        let place = self.0.get(usize::try_from(fd).ok()? / CHUNK)?;
        let fresh: Box<Chunk<T>> = Box::new([const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNK]);
        let fresh = Box::into_raw(fresh);
        if place.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: it came from a box and was not published.
            drop(unsafe { Box::from_raw(fresh) });
        }
        self.entry(fd)
    }

    /// Makes room for this number. `false`: it is too large.
    pub fn make_room(&self, fd: c_int) -> bool {
        self.entry_to_fill(fd).is_some()
    }

    /// Adds a value. `false`: the number is too large.
    pub fn put(&self, fd: c_int, value: &'static T) -> bool {
        let Some(entry) = self.entry_to_fill(fd) else { return false };
        entry.store(std::ptr::from_ref(value).cast_mut(), Ordering::Release);
        true
    }

    /// Removes the value of a descriptor, and returns it.
    pub fn take(&self, fd: c_int) -> Option<&'static T> {
        let entry = self.entry(fd)?;
        if entry.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // SAFETY: null, or a value, which is never freed.
        unsafe { entry.swap(std::ptr::null_mut(), Ordering::AcqRel).as_ref() }
    }

    /// The descriptors of a range that have a value.
    pub fn in_range(&self, range: RangeInclusive<usize>) -> impl Iterator<Item = c_int> {
        let (first, last) = (*range.start(), (*range.end()).min(CHUNK * CHUNKS - 1));
        (first..=last)
            .step_by(CHUNK)
            .chain(std::iter::once(last))
            .map(|index| index / CHUNK)
            .filter(|chunk| self.0.get(*chunk).is_some_and(|chunk| !chunk.load(Ordering::Acquire).is_null()))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .flat_map(move |chunk| (chunk * CHUNK).max(first)..=(chunk * CHUNK + CHUNK - 1).min(last))
            .filter_map(|index| c_int::try_from(index).ok())
            .filter(|fd| self.get(*fd).is_some())
    }
}

impl<T> Default for Descriptors<T> {
    fn default() -> Self {
        Self::new()
    }
}
