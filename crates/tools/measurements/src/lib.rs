//! Measurements of single costs with real servers and nodes, each beside a stock server or a smaller size.
//!
//! * [`apply_backlog`]: the time that a node takes to apply a backlog of redo, and a stock server to recover from it.
//! * [`scale`]: costs of many tables, logs and volumes, and of a tenth of them.
//! * [`net_bench`]: the gain of each layer of the network library, side by side.
//! * [`flash_trace`]: every block write of a server, tagged by its origin, for the model in `redoubt-flash`.
//!
//! Invariant: a figure is printed, never judged: no measurement fails because a machine is slow. `redoubt-bench` compares
//! whole systems under load; this crate is for the single costs that its figures consist of.

pub mod apply_backlog;
pub mod flash_trace;
pub mod net_bench;
pub mod scale;
