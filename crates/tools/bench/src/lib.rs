//! The benchmark of `redoubt-bench`: TPC-C and sysbench's OLTP mixes on the same server with a local disk, with network storage, and
//! with Redoubt.
//!
//! * [`args`]: what to run. [`RunReport`]: what came out. [`run`] does it.
//! * Workloads and clients are those of the crate `redoubt-workload`. [`statistics`]: percentiles, medians, slices.
//! * [`network`]: two namespaces joined by a limited link. [`server`]: what all servers have in common.

pub mod args;
mod backend;
mod dataset;
mod measure;
pub mod network;
mod processors;
mod report;
mod runner;
pub mod server;
pub mod statistics;

pub use args::Options;
pub use report::{RunReport, plot};
pub use runner::run;
