//! The primitives of lock-free code: atomics, locks, sleeping threads, time.
//!
//! A crate with lock-free code imports them from here under the name `primitives`. Its model checks (`tests/*_loom.rs`)
//! compile the same source again with the primitives of the model checker in their place.

pub use crate::thread::{Thread, current, park};
pub use crate::{MutexGuard, futex, time};
pub use std::sync::Arc;
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use std::sync::LockResult;

/// A lock with the calls of `std` and loom.
#[derive(Debug)]
pub struct Mutex<T>(crate::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates a lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(crate::Mutex::new(value))
    }

    /// Takes the lock; it is never poisoned.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        Ok(self.0.lock())
    }
}
