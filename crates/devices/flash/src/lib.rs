//! A model of a flash drive that says how many bytes a drive programs for the bytes that a host writes, and the
//! block traces that feed it.
//!
//! - [`trace`]: the trace file: writes to sectors with their origins, in order.
//! - [`ftl`]: the flash translation layer: map, superblocks, garbage collection, counters.
//! - [`drive`]: sectors and origins around it, and the drive's write buffer.
//! - [`placement`]: which origin goes to which write stream.
//! - [`closed_form`], [`validate`]: uniform random writes by formula and by model.
//! - [`load`]: a trace in memory; [`synthetic`]: made-up loads instead of one.
//! - [`simulate`]: fill, warm-up and measurement of a load on a drive.
//! - [`table`]: many traces on one drive; [`report`], [`plot`]: what came out.

pub mod closed_form;
pub mod drive;
pub mod error;
pub mod ftl;
pub mod load;
pub mod placement;
pub mod plot;
pub mod report;
pub mod simulate;
pub mod synthetic;
pub mod table;
pub mod trace;
pub mod validate;
