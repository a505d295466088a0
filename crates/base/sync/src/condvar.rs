//! A condition variable with the calls of `parking_lot::Condvar`.
//!
//! In a simulation, a wait ends only by a notification or at its deadline, as `parking_lot` promises.

use crate::mutex::{MutexGuard, mutex_resource};
use crate::simulation::{self, Resource, Task};
use crate::time;
use std::panic::Location;
use std::time::{Duration, Instant};

/// A condition variable with the calls of `parking_lot::Condvar`.
#[derive(Default, Debug)]
pub struct Condvar {
    inner: parking_lot::Condvar,
}

/// How a wait with a deadline ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the wait ended at its deadline.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition variable without waiting threads.
    pub const fn new() -> Self {
        Self { inner: parking_lot::Condvar::new() }
    }

    /// Wakes one waiting thread.
    #[inline]
    #[track_caller]
    pub fn notify_one(&self) {
        if simulation::may_be_simulated()
            && let Some(task) = simulation::current()
        {
            task.point();
            task.wake_one(self.resource());
        }
        self.inner.notify_one();
    }

    /// Wakes all waiting threads.
    #[inline]
    #[track_caller]
    pub fn notify_all(&self) {
        if simulation::may_be_simulated()
            && let Some(task) = simulation::current()
        {
            task.point();
            task.wake_all(self.resource());
        }
        self.inner.notify_all();
    }

    /// Releases the lock, waits for a notification, and takes the lock again.
    #[inline]
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        if simulation::may_be_simulated()
            && let Some(task) = simulation::current()
        {
            self.wait_simulated(&task, guard, None);
            return;
        }
        self.inner.wait(&mut guard.inner);
    }

    /// [`Condvar::wait`] with a deadline.
    #[track_caller]
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        if simulation::may_be_simulated()
            && let Some(task) = simulation::current()
        {
            let deadline = task.since_start(deadline);
            return WaitTimeoutResult(self.wait_simulated(&task, guard, Some(deadline)));
        }
        WaitTimeoutResult(self.inner.wait_until(&mut guard.inner, deadline).timed_out())
    }

    /// [`Condvar::wait`] with a timeout.
    #[track_caller]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> WaitTimeoutResult {
        match time::now().checked_add(timeout) {
            Some(deadline) => self.wait_until(guard, deadline),
            None => {
                self.wait(guard);
                WaitTimeoutResult(false)
            }
        }
    }

    fn resource(&self) -> Resource {
        Resource::Condvar(std::ptr::from_ref(&self.inner).cast::<()>().addr())
    }

    /// Returns whether the wait timed out.
    #[cold]
    #[track_caller]
    fn wait_simulated<T: ?Sized>(
        &self,
        task: &Task,
        guard: &mut MutexGuard<'_, T>,
        deadline: Option<Duration>,
    ) -> bool {
        let place = Location::caller();
        task.point();
        let mutex = parking_lot::MutexGuard::mutex(&guard.inner);
        // No unwinding inside: it would take the lock again with a wait in the operating system.
        let woken = parking_lot::MutexGuard::unlocked(&mut guard.inner, || {
            task.wake_all(mutex_resource(mutex));
            let woken = task.block_quietly(self.resource(), deadline, place);
            while mutex.is_locked() {
                task.block_quietly(mutex_resource(mutex), None, place);
            }
            woken
        });
        task.leave_if_killed();
        woken.timed_out()
    }
}
