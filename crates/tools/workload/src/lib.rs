//! Real servers for the benchmark (`redoubt-bench`), drills (`redoubt-drill`) and the tests (`redoubt-harness`).
//!
//! Nothing here imitates the database. A [`server::Server`] is a stock `mariadbd` or `mysqld` in a directory of its
//! own, started either directly or through `redoubt run` ([`launcher::Launcher`]).
//!
//! * [`server`]: the life of one server. [`launcher`]: how its program is started, the only place that knows.
//!   [`product`]: the servers there are, MariaDB and MySQL, and in what they differ.
//! * [`node`]: the start of a storage node, for servers that have one.
//! * [`process`]: children, each with a deadline; programs; signals that ask for the end.
//! * [`sql`]: connections and statements.
//! * [`load`]: clients in a closed loop, a warm-up and a window. [`tpcc`], [`oltp`] (sysbench's mixes): what they do.
//! * [`ledger`]: clients that remember outside the database which commits were acknowledged.
//! * [`sysbench`]: the program sysbench with a fixed seed, and its report as numbers.
//! * [`check`]: checksums, definitions and `CHECK TABLE` of all tables.
//! * [`error`]: the one error type of all this.

pub mod check;
pub mod error;
pub mod launcher;
pub mod ledger;
pub mod load;
pub mod node;
pub mod oltp;
pub mod process;
pub mod product;
pub mod server;
pub mod sql;
pub mod sysbench;
pub mod tpcc;

pub use error::{Error, Result};
