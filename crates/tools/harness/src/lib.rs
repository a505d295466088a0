//! The common part of tests on real servers: Redoubt beside the servers of `redoubt-workload`.
//!
//! A server is started either directly or through `redoubt run`, so each check can be run against the plain server
//! first: a check that fails there is a fault of the check.
//!
//! * [`node`]: the life of a storage node. [`command`]: one run of the `redoubt` command, with a deadline.
//! * [`fetched`]: the locations of other servers. [`plugins`], [`encryption`]: plugins of servers, and the one that has
//!   keys.
//! * [`tcp_server`]: servers on a TCP port. [`connections`]: operations on connections to a server that has the network
//!   library.
//! * [`sessions`]: sessions that stand still, shown without a clock.
//! * [`features`]: one named step per InnoDB feature, in SQL scripts ([`script`], `sql/`), with the invariants that must
//!   survive a crash. [`battery`]: runs the steps with a crash or a clean restart after each.
//! * [`plain_files`]: compares the node's copy of a data directory with the server's. [`sparse_files`]: copies of data
//!   directories.
//!
//! Invariants: the harness breaks nothing but by a kill or a stop that a test calls for (`redoubt-chaos` has faults), and
//! it ends only processes that it has started.

pub mod battery;
pub mod command;
pub mod connections;
pub mod encryption;
pub mod features;
pub mod fetched;
pub mod node;
pub mod plain_files;
pub mod plugins;
pub mod script;
pub mod sessions;
pub mod sparse_files;
pub mod tcp_server;
