//! A model of a flash drive that says how many bytes a drive programs for the bytes that a host writes, and the
//! block traces that feed it.
//!
//! - [`trace`]: the trace file: who wrote which sectors, in order.

pub mod error;
pub mod trace;
