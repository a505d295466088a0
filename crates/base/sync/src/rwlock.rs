//! A lock for many readers or one writer, with the calls of `parking_lot::RwLock`.
//!
//! In a simulation, as in `parking_lot`, no new reader gets the lock while a writer waits. So a thread that holds two
//! read locks at a time can deadlock with itself.

use crate::simulation::{self, Resource, Task};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

/// A lock for many readers or one writer, with the calls of `parking_lot::RwLock`.
#[derive(Default)]
pub struct RwLock<T: ?Sized> {
    inner: parking_lot::RwLock<T>,
}

/// Holds a [`RwLock`] for reading until dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct RwLockReadGuard<'l, T: ?Sized> {
    inner: parking_lot::RwLockReadGuard<'l, T>,
    _released: simulation::Released,
}

/// Holds a [`RwLock`] for writing until dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct RwLockWriteGuard<'l, T: ?Sized> {
    inner: parking_lot::RwLockWriteGuard<'l, T>,
    _released: simulation::Released,
}

impl<T> RwLock<T> {
    /// Creates a lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { inner: parking_lot::RwLock::new(value) }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks for reading, and waits until that is possible.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        if simulation::may_be_simulated()
            && let Some(task) = simulation::current()
        {
            self.wait_readable(&task);
        }
        RwLockReadGuard { inner: self.inner.read(), _released: simulation::Released(self.readers()) }
    }

    /// Locks for reading if that is possible at once.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        simulation::point();
        let inner = self.inner.try_read()?;
        Some(RwLockReadGuard { inner, _released: simulation::Released(self.readers()) })
    }

    /// Locks for writing, and waits until that is possible.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        if simulation::may_be_simulated()
            && let Some(task) = simulation::current()
        {
            self.wait_writable(&task);
        }
        RwLockWriteGuard { inner: self.inner.write(), _released: simulation::Released(self.readers()) }
    }

    /// The value, without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    fn addr(&self) -> usize {
        std::ptr::from_ref(&self.inner).cast::<()>().addr()
    }

    fn readers(&self) -> Resource {
        Resource::ReadLock(self.addr())
    }

    fn writers(&self) -> Resource {
        Resource::WriteLock(self.addr())
    }

    #[cold]
    #[track_caller]
    fn wait_readable(&self, task: &Task) {
        let place = Location::caller();
        task.point();
        while self.inner.is_locked_exclusive() || task.is_waited_for(self.writers()) {
            task.block(self.readers(), None, place);
        }
    }

    #[cold]
    #[track_caller]
    fn wait_writable(&self, task: &Task) {
        let place = Location::caller();
        task.point();
        while self.inner.is_locked() {
            task.block(self.writers(), None, place);
        }
        // Readers that let this writer precede them check again.
        task.wake_all(self.readers());
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
