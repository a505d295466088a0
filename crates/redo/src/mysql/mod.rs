//! Redo of MySQL 8.0.30 and later (log files in `#innodb_redo`, blocks of 512 bytes, physiological records).
//!
//! From bytes upwards: numbers in [`varint`], what a record says of its index in [`index_info`], [`record`] and
//! [`record_reader`] records.

mod cursor;
pub mod index_info;
pub mod record;
pub mod record_reader;
pub mod varint;

pub use index_info::{Column, Field, IndexInfo, VersionedField};
pub use record::{Body, Record};
pub use record_reader::RecordReader;
