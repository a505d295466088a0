//! Real servers in tests: the harness every end-to-end test of Redoubt stands on.
//!
//! The servers are those of the crate `redoubt-workload`, started either directly or through `redoubt run`, so each
//! check can be run against the plain server first: a check that fails there is a fault of the check.
//!
//! * [`node`]: the life of a storage node. [`fetched`]: where other servers are.
//! * [`sessions`]: sessions that stand still, shown without a clock.
//! * [`flash_trace`]: what the disk under a server is asked to do.
//! * [`isolation`]: histories of list-append transactions, and the anomalies they show.
//! * [`features`]: one named step per InnoDB feature, with the invariants that must survive a crash.
//! * [`battery`]: runs the steps with a crash or a clean restart after each.
//! * [`faults`], [`proxy`]: calls of the C library, and the network, made worse by seed.
//! * [`bad_cable`]: frames between two hosts made worse by seed. [`packet_socket`]: frames as they are.
//! * [`fault_rounds`]: rounds of the ledger under such faults, and kills.
//! * [`killed_imports`]: data directories of killed servers become volumes.
//! * [`scale`]: what costs with many tables, and with a tenth of them.
//! * [`net_bench`]: what the layers of the network library are worth, side by side.
//! * [`plain_files`]: the node's copy of a data directory against the server's.
//! * [`server_suite`]: what two runs of MariaDB's own test suite say together.
//! * [`net_layer`]: what the network library did in the servers of such a run.
//! * [`encryption`]: the key management plugin.
//! * [`command`]: one run of the `redoubt` command, with a deadline.
//! * [`connections`]: what is done with connections to a server that has the network library.
//! * [`tcp_server`]: servers on a TCP port.
//!
//! This crate is never a dependency of a product crate.

pub mod apply_backlog;
pub mod bad_cable;
pub mod battery;
pub mod command;
pub mod connections;
pub mod encryption;
pub mod fault_rounds;
pub mod faults;
pub mod features;
pub mod fetched;
pub mod flash_trace;
pub mod generator;
pub mod isolation;
pub mod killed_imports;
pub mod net_bench;
pub mod net_layer;
pub mod node;
pub mod oracle;
pub mod packet_socket;
pub mod plain_files;
pub mod plugins;
pub mod proxy;
pub mod scale;
pub mod script;
pub mod server_suite;
pub mod sessions;
pub mod tcp_server;
