//! The volumes of a node over NFS version 3 (RFC 1813), read-only: what `redoubt run --reader` shows on one host, for
//! any NFS client.
//!
//! Written here and not taken from a crate: nfsserve sets no limit to connections, to requests under way or to what a
//! client announces, and its handles end with the process; reading needs a dozen procedures. NFS and MOUNT are served
//! on one port; there is no portmapper, and none is asked.
//!
//! * [`xdr`], [`rpc`]: bytes, records, calls
//! * [`mount`], [`program`]: the two programs
//! * [`handle`]: what clients have of files; [`exports`]: what there is to read
//! * [`server`]: listener and connections

pub mod exports;
pub mod handle;
pub mod mount;
pub mod program;
pub mod rpc;
pub mod server;
pub mod xdr;

pub use exports::{Limits, Listed, Volumes};
pub use server::{Nfs, NfsError, Running, Settings};
