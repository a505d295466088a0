//! Real servers in tests: the harness every end-to-end test of Redoubt stands on.
//!
//! Nothing here imitates the database. A [`server::Server`] is a stock `mariadbd` or `mysqld` in a temporary
//! directory, started either directly or through `redoubt run` ([`launcher::Launcher`]), so each check can
//! be run against the plain server first: a check that fails there is a fault of the check.
//!
//! * [`launcher`]: how a server program is started, the only place that knows.
//! * [`product`]: the servers there are, MariaDB and MySQL, and in what they differ.
//! * [`server`], [`node`], [`process`]: the life of the processes; each ends only children of its own.
//! * [`sessions`]: sessions that stand still, shown without a clock.
//! * [`workload`], [`tpcc`]: loads, and [`compare`], [`end_to_end`]: servers under them, in turns.
//! * [`flash_trace`]: what the disk under a server is asked to do.
//! * [`ledger`]: clients that remember outside the database which commits were acknowledged.
//! * [`isolation`]: histories of list-append transactions, and the anomalies they show.
//! * [`features`]: one named step per InnoDB feature, with the invariants that must survive a crash.
//! * [`battery`]: runs the steps with a crash or a clean restart after each.
//! * [`check`]: checksums, definitions and `CHECK TABLE` of all tables.
//! * [`faults`], [`proxy`]: calls of the C library, and the network, made worse by seed.
//! * [`fault_rounds`]: rounds of the ledger under such faults, and kills.
//! * [`killed_imports`]: data directories of killed servers become volumes.
//! * [`scale`]: what costs with many tables, and with a tenth of them.
//! * [`plain_files`]: the node's copy of a data directory against the server's.
//! * [`server_suite`]: what two runs of MariaDB's own test suite say together.
//! * [`encryption`]: the key management plugin.
//! * [`mount`]: small and read-only file systems.
//! * [`command`]: one run of the `redoubt` command, with a deadline.
//! * [`compare`]: the same load with and without Redoubt, in turns.
//! * [`workload`]: sysbench with a fixed seed, and its report as numbers.
//!
//! This crate is never a dependency of a product crate.

pub mod apply_backlog;
pub mod battery;
pub mod check;
pub mod coalescing;
pub mod command;
pub mod compare;
pub mod encryption;
pub mod end_to_end;
pub mod error;
pub mod fault_rounds;
pub mod faults;
pub mod features;
pub mod flash_trace;
pub mod generator;
pub mod isolation;
pub mod killed_imports;
pub mod launcher;
pub mod ledger;
pub mod mount;
pub mod node;
pub mod oracle;
pub mod plain_files;
pub mod plugins;
pub mod process;
pub mod product;
pub mod proxy;
pub mod scale;
pub mod script;
pub mod server;
pub mod server_suite;
pub mod sessions;
pub mod tpcc;
pub mod workload;

pub use error::{Error, Result};
