//! Positions, identifiers and format versions that several parts share.
//!
//! The crate has no dependencies, so that a library which is preloaded into a server can name a position without
//! linking the crate that stores the bytes. `redoubt_logdev` and `redoubt_redo` re-export the types that they define
//! the meaning of.

mod experimental;
pub mod format_version;
mod ids;

pub use experimental::{EXPERIMENTAL_PACKAGE, needs_experimental};
pub use ids::{Family, FileId, Lsn, PageId, PageNo, Seq, SpaceId};
