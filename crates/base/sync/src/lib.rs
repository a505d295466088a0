//! Locks, threads and time for the storage node: the operating system's, or a simulation's.
//!
//! The types and calls are those of `parking_lot` and `std`, and outside of a simulation they are nothing else: each
//! costs one load of a static flag and one branch that is always taken the same way.
//!
//! A thread that belongs to a [`simulation`] goes another way with the very same calls. There exactly one thread runs
//! at a time, at each call a seeded choice says who goes on, time is virtual, and a state in which nobody can go on is
//! reported with what each thread waits for. Which way a thread goes is found out when it runs, not when the crate is
//! compiled, so what a simulation tests is the program that is shipped.
//!
//! Invariant: a simulated thread never blocks in the operating system except in its turn. Hence a lock is taken in a
//! simulation only when it is free, and nobody else can take it in between.
//!
//! Only what can make a thread wait is here. Atomics are those of `std`: code that relies on their order is checked
//! with loom (see [`primitives`]), and a simulation runs each thread on between two calls of this crate.

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
