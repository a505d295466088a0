//! The servers' own test suites, run through Redoubt: what the logs of two runs say together.
//!
//! The runs are those of `scripts/server-suite`, `scripts/net-suite` and `scripts/group-suite`.
//!
//! * [`server_suite`]: two runs of a suite, on the plain server and on Redoubt, case by case.
//! * [`net_layer`]: use of the network library in the servers of such a run.
//!
//! Invariant: a case that one of the runs did not have, and a layer that was not used, never count as passed.

pub mod net_layer;
pub mod server_suite;
