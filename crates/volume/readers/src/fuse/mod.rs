//! A tree as a file system of this host (FUSE).
//!
//! Crate `fuser` implements the kernel's protocol. This module mounts and passes the open device to `fuser`: in a mount
//! namespace that must be one system call, and an error must name what the host lacks. `fuser` would run a helper
//! program next.
//!
//! | module | owns |
//! |---|---|
//! | [`files`] | inode numbers and handles |
//! | [`requests`] | the kernel's requests |
//! | [`mount`], [`namespace`] | mounting, and the threads that answer |

pub mod files;
pub mod mount;
pub mod namespace;
mod requests;

pub use files::Files;
pub use mount::{Mount, MountError};
