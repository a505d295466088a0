//! Segment sequences that the standards require and random seeds seldom produce: timeouts, the end of a connection in
//! every order, resets, old segments, and numbers that wrap.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

mod endings;
mod floods;
mod memory;
mod numbers;
#[cfg(feature = "planted-bugs")]
mod planted;
mod resets;
#[path = "../support/mod.rs"]
mod support;
mod timeouts;
mod windows;
