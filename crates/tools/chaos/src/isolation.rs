//! Isolation of transactions, judged from histories of list-append transactions in the manner of Adya and Elle.
//!
//! A register is a row with a list. A transaction reads lists and appends numbers that no other transaction ever
//! appends (`UPDATE ... SET list = CONCAT(list, ...)`). As every list shows the order of its versions, the reads of
//! each transaction give the dependencies between transactions, and cycles among them are anomalies.
//!
//! The same workload runs on the stock server first. InnoDB's REPEATABLE READ is known to show anomalies that the name
//! does not suggest; only a class that the stock server does not show at that level is a fault of Redoubt.
//!
//! * [`history`]: what a history is.
//! * [`workload`]: clients that make one against a server, over lost connections.
//! * [`check`]: dependencies and anomalies; pure.
//! * [`compare`]: the same seed on a stock server and on Redoubt under faults.

pub mod check;
pub mod compare;
pub mod history;
pub mod workload;

pub use check::{Anomaly, Findings, check};
pub use history::{History, Operation, Status, Transaction};
