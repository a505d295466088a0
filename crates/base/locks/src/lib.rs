//! Locks of the standard library whose poison is ignored.
//!
//! A lock is poisoned when a thread panics while it holds the lock. Redoubt's product code does not panic on purpose, and
//! a preloaded library must not end the server because of one of its threads. So nearly all callers go on with what the
//! lock protects. A caller for which poison matters handles the error itself.

use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// Takes the guard or value of a poisoned lock, too: for results of `Mutex::lock`, `RwLock::read`, `Condvar::wait`,
/// `Mutex::into_inner` and the like.
pub trait IgnorePoison {
    /// The guard or value.
    type Locked;

    /// The guard or value, poisoned or not.
    fn ignore_poison(self) -> Self::Locked;
}

impl<T> IgnorePoison for LockResult<T> {
    type Locked = T;

    #[inline]
    fn ignore_poison(self) -> T {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}

/// As [`IgnorePoison`], for results of `Mutex::try_lock` and the like.
pub trait IgnorePoisonIfFree {
    /// The guard or value.
    type Locked;

    /// The guard, poisoned or not; `None` if another thread holds the lock.
    fn ignore_poison_if_free(self) -> Option<Self::Locked>;
}

impl<T> IgnorePoisonIfFree for TryLockResult<T> {
    type Locked = T;

    #[inline]
    fn ignore_poison_if_free(self) -> Option<T> {
        match self {
            Ok(locked) => Some(locked),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn poisoned_lock_is_taken() {
        let lock = Mutex::new(1);
        let panicked = std::thread::scope(|scope| {
            let panicking = || {
                let mut held = lock.lock().unwrap();
                *held = 2;
                panic!("poisons the lock");
            };
            scope.spawn(panicking).join().is_err()
        });
        assert!(panicked && lock.lock().is_err());
        assert_eq!(*lock.lock().ignore_poison(), 2);
        assert_eq!(lock.try_lock().ignore_poison_if_free().map(|held| *held), Some(2));
        let held = lock.lock().ignore_poison();
        assert!(lock.try_lock().ignore_poison_if_free().is_none());
        drop(held);
        assert_eq!(lock.into_inner().ignore_poison(), 2);
    }
}
