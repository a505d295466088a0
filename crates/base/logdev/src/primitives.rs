//! What the lock-free code of this crate stands on: atomics, locks, sleeping threads, time.
//!
//! They are gathered here so that the model checks in `tests/*_loom.rs` can put the model checker's in their place and
//! compile the very same source above them.

pub use redoubt_sync::thread::{Thread, current, park};
pub use redoubt_sync::{MutexGuard, futex, time};
pub use std::sync::Arc;
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use std::sync::LockResult;

/// A lock with the calls of those of `std` and loom.
#[derive(Debug)]
pub struct Mutex<T>(redoubt_sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(redoubt_sync::Mutex::new(value))
    }

    /// Takes the lock; it is never poisoned.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        Ok(self.0.lock())
    }
}
