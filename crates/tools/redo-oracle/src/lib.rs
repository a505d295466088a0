//! The redo oracle: compares our replay of a redo stream with a stock server's crash recovery of it.
//!
//! * [`base`]: a clean data directory in memory, where both begin; [`redo`]: the stream and an index of it; [`clear`]:
//!   encrypted pages in clear.
//! * [`recovery`]: the stock server, stopped at the one moment where redo is applied, written, and nothing else done.
//! * [`refused`]: redo that cannot be applied.
//! * [`replay`]: ours, with the pure crates; with defects planted on request.
//! * [`compare`]: byte for byte, with the list of what may differ and why.
//! * [`history`]: real servers under random statements ([`generator`]), sysbench, TPC-C.
//! * [`check`]: whole histories, killed directories, cuts; [`campaign`]: many of them; [`node_path`]: through a node.
//! * [`mysql`]: the oracle of MySQL, which works another way.
//! * [`shrink`]: scripts of histories, made small; [`commands`]: the command line.
//! * [`killed_imports`]: data directories of killed servers become volumes, compared with a stock server's recovery.
//!
//! See `docs/dev/oracle.md` for how to run it and what it has found.

pub mod base;
pub mod campaign;
pub mod check;
pub mod clear;
pub mod commands;
pub mod compare;
pub mod generator;
pub mod history;
pub mod killed_imports;
pub mod mysql;
pub mod node_path;
pub mod recovery;
pub mod redo;
pub mod refused;
pub mod replay;
pub mod shrink;
