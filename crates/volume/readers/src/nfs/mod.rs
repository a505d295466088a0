//! The volumes of a node over NFS version 3 (RFC 1813), read-only: what `redoubt run --reader` shows on one host, for
//! any NFS client.
//!
//! This is not taken from a crate: nfsserve has no limit to connections, to requests in progress or to announced
//! lengths, and its handles end with the process. Reading needs a dozen procedures. NFS and MOUNT are served on one
//! port; there is no portmapper, and none is queried.
//!
//! * [`xdr`], [`rpc`]: bytes, records, calls
//! * [`mount`], [`program`]: the two programs
//! * [`handle`]: file handles of clients; [`exports`]: the readable volumes
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
