//! A mutual exclusion lock with the calls of `parking_lot::Mutex`.

use crate::simulation::{self, Resource, Task};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::time::Duration;

/// A mutual exclusion lock with the calls of `parking_lot::Mutex`.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    inner: parking_lot::Mutex<T>,
}

/// Holds a [`Mutex`] until dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct MutexGuard<'m, T: ?Sized> {
    // Dropped in this order: the lock is free before its waiters are notified.
    pub(crate) inner: parking_lot::MutexGuard<'m, T>,
    _released: simulation::Released,
}

impl<T> Mutex<T> {
    /// Creates a lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { inner: parking_lot::Mutex::new(value) }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock, and waits until it is free.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if simulation::may_be_simulated()
            && let Some(task) = simulation::current()
        {
            self.wait_free(&task, None);
        }
        self.guard(self.inner.lock())
    }

    /// Takes the lock if it is free.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        simulation::point();
        self.inner.try_lock().map(|inner| self.guard(inner))
    }

    /// Takes the lock, and waits for at most `timeout` until it is free.
    #[track_caller]
    pub fn try_lock_for(&self, timeout: Duration) -> Option<MutexGuard<'_, T>> {
        if simulation::may_be_simulated()
            && let Some(task) = simulation::current()
        {
            let deadline = task.now().saturating_add(timeout);
            return self.wait_free(&task, Some(deadline)).then(|| self.guard(self.inner.lock()));
        }
        self.inner.try_lock_for(timeout).map(|inner| self.guard(inner))
    }

    /// The value, without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// Whether the lock is held.
    pub fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    fn resource(&self) -> Resource {
        mutex_resource(&self.inner)
    }

    #[inline]
    fn guard<'m>(&'m self, inner: parking_lot::MutexGuard<'m, T>) -> MutexGuard<'m, T> {
        MutexGuard { inner, _released: simulation::Released(self.resource()) }
    }

    /// Waits in a simulation until the lock is free. Returns `false` if the deadline passed first.
    #[cold]
    #[track_caller]
    fn wait_free(&self, task: &Task, deadline: Option<Duration>) -> bool {
        let place = Location::caller();
        task.point();
        while self.inner.is_locked() {
            if task.block(self.resource(), deadline, place).timed_out() && self.inner.is_locked() {
                return false;
            }
        }
        true
    }
}

/// The resource of a thread that waits for this lock.
pub(crate) fn mutex_resource<T: ?Sized>(mutex: &parking_lot::Mutex<T>) -> Resource {
    Resource::Mutex(std::ptr::from_ref(mutex).cast::<()>().addr())
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
