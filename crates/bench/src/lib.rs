//! `redoubt bench`: TPC-C and sysbench's OLTP mixes on the same server with a local disk, with network storage, and
//! with Redoubt.
//!
//! * [`args`]: what to run. [`RunReport`]: what came out. [`run`] does it.
//! * [`tpcc`], [`oltp`]: the workloads; [`load`]: clients in a closed loop, a warm-up and a window; [`statistics`].
//! * [`network`]: two namespaces joined by a limited link. [`process`], [`sql`]: children and connections.

pub mod args;
mod backend;
mod dataset;
pub mod error;
pub mod load;
mod measure;
pub mod network;
pub mod oltp;
pub mod process;
mod processors;
mod report;
mod runner;
pub mod server;
pub mod sql;
pub mod statistics;
pub mod tpcc;

pub use args::Options;
pub use error::{Error, Result};
pub use report::RunReport;
pub use runner::run;
