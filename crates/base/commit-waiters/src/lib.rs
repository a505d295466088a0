//! Threads that wait for a position to become durable, each in a slot of its own. See [`CommitWaiters`].
//!
//! Log devices, the node's log buffer and the preloaded library wait here. The tests in `tests/waiters_loom.rs` compile
//! the two modules again above the primitives of the model checker loom.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod slot;
mod waiters;

use redoubt_sync::primitives;
pub use waiters::{CommitWaiters, WaitEnd, WaiterStats};
