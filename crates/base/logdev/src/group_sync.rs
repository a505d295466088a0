//! One sync at a time that many callers share, for a device whose sync covers all that was appended before it began.
//!
//! Whoever finds the next sync not taken does it; the others wait for their position. Nobody waits for a sync that
//! began before its bytes were appended:
//!
//! * `is_next_taken` is given back under the lock, before the sync looks for its end. So who finds it taken has
//!   appended before that end is looked for, and is covered.
//! * If the sync it waits for fails, all waits end, and each caller finds the device poisoned.
//!
//! Lock order: `one_at_a_time`, then whatever the sync itself takes.

use crate::primitives::{AtomicBool, Mutex, Ordering};
use crate::waiters::{CommitWaiters, WaitEnd};
use redoubt_locks::IgnorePoison;

/// See the module.
#[derive(Debug)]
pub(crate) struct GroupSync {
    one_at_a_time: Mutex<()>,
    /// Somebody does the next sync and has not looked for its end yet.
    is_next_taken: AtomicBool,
    /// Those whom the next sync covers.
    waiters: CommitWaiters,
}

impl GroupSync {
    /// Everything before `durable` is durable.
    pub fn new(durable: u64) -> Self {
        Self {
            one_at_a_time: Mutex::new(()),
            is_next_taken: AtomicBool::new(false),
            waiters: CommitWaiters::new(durable),
        }
    }

    /// Makes everything before `wanted`, which was appended, durable, and returns the durable end. `check` fails once
    /// a sync has failed; `sync_all` returns the end that it made durable.
    ///
    /// # Errors
    /// Those of the two.
    pub fn sync<E>(
        &self,
        wanted: u64,
        check: impl Fn() -> Result<(), E>,
        sync_all: impl FnOnce() -> Result<u64, E>,
    ) -> Result<u64, E> {
        let durable = self.waiters.durable();
        if durable >= wanted {
            return Ok(durable);
        }
        if self.is_next_taken.swap(true, Ordering::AcqRel) {
            if self.waiters.wait(wanted, None) == WaitEnd::Reached {
                return Ok(self.waiters.durable());
            }
            // Closed by a sync that failed.
            check()?;
        }
        let synced = {
            let _one_at_a_time = self.one_at_a_time.lock().ignore_poison();
            // Given back before the end is looked for: who finds it taken has appended before that.
            self.is_next_taken.swap(false, Ordering::AcqRel);
            sync_all()
        };
        match &synced {
            Ok(end) => self.waiters.advance(*end),
            Err(_) => self.waiters.close(),
        }
        synced
    }
}
