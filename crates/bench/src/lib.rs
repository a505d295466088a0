//! `redoubt bench`: TPC-C and sysbench's OLTP mixes on the same server with a local disk, with network storage, and with Redoubt.
//!
//! * [`args`]: what to run. [`report`]: what came out.
//! * [`tpcc`], [`oltp`]: the workloads; [`load`]: clients in a closed loop, a warm-up and a window; [`statistics`].
//! * [`network`]: two namespaces joined by a limited link. [`process`], [`sql`]: children and connections.

pub mod args;
pub mod error;
pub mod load;
pub mod network;
pub mod oltp;
pub mod process;
pub mod sql;
pub mod statistics;
pub mod tpcc;

pub use args::Options;
pub use error::{Error, Result};
