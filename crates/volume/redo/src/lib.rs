//! Redo log formats: bytes to mini-transactions to records. One module per server family; [`mtr`] and [`resets`] are
//! what they have in common.
//!
//! Pure code: takes bytes, returns values, does no I/O. Invariant: no input makes it panic, and nothing of
//! a mini-transaction is reported before the whole of it was found valid.

pub mod error;
pub mod mariadb;
pub mod mtr;
pub mod mysql;
pub mod resets;
mod walk;

pub use error::{RedoError, StreamError};
pub use mtr::{
    FileNote, FileRecord, IndexLoad, Mtr, MtrVisitor, PageReset, RunContent, RunRef, SpaceFlagsChange,
    WalkStop, Walked,
};
pub use redoubt_types as types;
pub use redoubt_types::{Family, Lsn, PageId, PageNo, SpaceId};
pub use resets::LastResets;
pub use walk::walk_mtrs;
