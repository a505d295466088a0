//! Which descriptors are connections of clients, and the connections themselves.
//!
//! Owns the table from a descriptor's number to its [`Connection`], and the pool of connections, which are never given
//! back: whoever holds one may look at it for ever, and finds out under its lock whether it still is that descriptor's
//! ([`Connection::lock`]). A number that is used again thereby never gets what its predecessor had.
//!
//! Invariants: an entry is put in after accept and before the server knows the number, and taken out before the number
//! is closed. A descriptor without an entry costs two loads.
//!
//! Lock order: the pool's lock is taken alone. It is taken by accept and by the last close only.

use crate::connection::Connection;
use libc::c_int;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

const CHUNK: usize = 1024;
const CHUNKS: usize = 1024;

type Chunk = [AtomicPtr<Connection>; CHUNK];

static TABLE: [AtomicPtr<Chunk>; CHUNKS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS];
static POOL: Mutex<Vec<&'static Connection>> = Mutex::new(Vec::new());

fn entry(fd: c_int) -> Option<&'static AtomicPtr<Connection>> {
    let index = usize::try_from(fd).ok()?;
    let chunk = TABLE.get(index / CHUNK)?.load(Ordering::Acquire);
    // SAFETY: null, or a chunk that is there for good.
    unsafe { chunk.as_ref() }?.get(index % CHUNK)
}

/// The connection behind a descriptor.
#[inline]
pub fn get(fd: c_int) -> Option<&'static Connection> {
    let connection = entry(fd)?.load(Ordering::Acquire);
    // SAFETY: null, or a connection, which is there for good.
    unsafe { connection.as_ref() }
}

fn entry_to_fill(fd: c_int) -> Option<&'static AtomicPtr<Connection>> {
    if let Some(entry) = entry(fd) {
        return Some(entry);
    }
    let place = TABLE.get(usize::try_from(fd).ok()? / CHUNK)?;
    let fresh: Box<Chunk> = Box::new([const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNK]);
    let fresh = Box::into_raw(fresh);
    if place.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: it came from a box and nobody else has seen it.
        drop(unsafe { Box::from_raw(fresh) });
    }
    entry(fd)
}

fn fresh() -> &'static Connection {
    let pooled = POOL.lock().unwrap_or_else(PoisonError::into_inner).pop();
    pooled.unwrap_or_else(|| Box::leak(Box::default()))
}

/// Puts in a connection of its own for a descriptor that was just accepted. `None`: the number is too large.
pub fn insert(fd: c_int) -> Option<&'static Connection> {
    let entry = entry_to_fill(fd)?;
    let connection = fresh();
    connection.open();
    entry.store(std::ptr::from_ref(connection).cast_mut(), Ordering::Release);
    Some(connection)
}

/// A second descriptor of a connection. `false`: the number is too large, or the connection is closed.
pub fn share(fd: c_int, connection: &'static Connection) -> bool {
    let Some(entry) = entry_to_fill(fd).filter(|_| connection.add_descriptor()) else { return false };
    entry.store(std::ptr::from_ref(connection).cast_mut(), Ordering::Release);
    true
}

/// Takes a descriptor out. `true`: it was its connection's last.
pub fn remove(fd: c_int) -> bool {
    let Some(entry) = entry(fd) else { return false };
    if entry.load(Ordering::Relaxed).is_null() {
        return false;
    }
    let connection = entry.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or a connection, which is there for good.
    unsafe { connection.as_ref() }.is_some_and(Connection::remove_descriptor)
}

/// Takes a descriptor out, in a process where nothing is used again.
pub fn forget(fd: c_int) {
    if let Some(entry) = entry(fd) {
        entry.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// A connection that nobody uses any more.
pub fn recycle(connection: &'static Connection) {
    POOL.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
}

/// The descriptors of a range that are connections.
pub fn in_range(range: RangeInclusive<usize>) -> impl Iterator<Item = c_int> {
    let (first, last) = (*range.start(), (*range.end()).min(CHUNK * CHUNKS - 1));
    (first..=last)
        .step_by(CHUNK)
        .chain(std::iter::once(last))
        .map(|index| index / CHUNK)
        .filter(|chunk| TABLE.get(*chunk).is_some_and(|chunk| !chunk.load(Ordering::Acquire).is_null()))
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .flat_map(move |chunk| (chunk * CHUNK).max(first)..=(chunk * CHUNK + CHUNK - 1).min(last))
        .filter_map(|index| c_int::try_from(index).ok())
        .filter(|fd| get(*fd).is_some())
}

#[cfg(test)]
mod tests;
