//! A client of storage nodes, without a command line and without output: for the `redoubt` command, and for an
//! operator or a sidecar of a server in its place.
//!
//! Reading order:
//!
//! * [`control`]: a control connection, its requests and files. [`volumes`]: the state of a node and its volumes.
//! * [`export`], [`import`]: a volume as a plain data directory, and a data directory as a volume. [`check`]: reading
//!   everything that the node stores of a volume.
//! * [`server`]: the program to start and its settings. [`preload`]: a check that the loader loads the library into it.
//! * [`attach`]: everything between a data directory and a server that runs on a volume.
//! * [`local_log`]: a server without a node, its redo log in persistent memory (feature `experimental-devices`).
//!
//! Nothing here writes to standard output or standard error: [`events::Events`] receives notes and progress, and
//! errors ([`ClientError`]) are one line each: the failure, its place and the remedy.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod attach;
pub mod beneath;
pub mod check;
pub mod control;
pub mod credentials;
mod error;
pub mod events;
pub mod experimental;
pub mod export;
pub mod files;
pub mod import;
pub mod local_log;
pub mod places;
pub mod preload;
pub mod server;
pub mod volumes;

pub use error::{ClientError, Result, advice};
