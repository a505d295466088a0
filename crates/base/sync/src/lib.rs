//! Locks, threads and time for the storage node, either of the operating system or of a simulation.
//!
//! The types and calls are those of `parking_lot` and `std`. Outside of a simulation, a call costs one additional load
//! of a static flag and one predictable branch.
//!
//! A thread of a [`simulation`] takes another path in the same calls. There, exactly one thread runs at a time, and a
//! seeded choice at each call selects the next one. Time is virtual, and a deadlock is reported with the wait of each
//! thread. The path is selected at run time and not at compile time, so a simulation tests the shipped program.
//!
//! Invariant: a simulated thread blocks in the operating system only while it is not scheduled. Hence it takes a lock
//! only when the lock is free, and no other thread can take the lock in between.
//!
//! The crate has only calls that can block a thread. Atomics are those of `std`: code that depends on their order is
//! checked with loom (see [`primitives`]). A simulation does not interrupt a thread between two calls of this crate.

mod condvar;
pub mod futex;
mod mutex;
pub mod planted;
pub mod primitives;
mod rwlock;
pub mod simulation;
pub mod thread;
pub mod time;

pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use simulation::point;
