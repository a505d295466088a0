//! Redo log formats: bytes to mini-transactions to records. One module per server family.

pub mod mariadb;
pub mod types;

pub use types::{Lsn, PageId, PageNo, SpaceId};
