//! A model of a flash drive that says how many bytes a drive programs for the bytes that a host writes, and the
//! block traces that feed it.
//!
//! - [`trace`]: the trace file: who wrote which sectors, in order.
//! - [`ftl`]: the flash translation layer: map, superblocks, garbage collection, counters.
//! - [`closed_form`]: write amplification of uniform random writes by formula.

pub mod closed_form;
pub mod error;
pub mod ftl;
pub mod trace;
