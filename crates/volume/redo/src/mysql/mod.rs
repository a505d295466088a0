//! Redo of MySQL 8.0.30 and later (log files in `#innodb_redo`, blocks of 512 bytes, physiological records).
//!
//! From bytes upwards:
//! - [`varint`]: numbers of variable length
//! - [`index_info`]: the description of an index in a record
//! - [`record`], [`record_reader`]: records
//! - [`walk`]: mini-transactions and the page runs in them
//! - [`position`]: the two ways to count bytes
//! - [`block`]: the blocks of a log file
//! - [`log_file`]: the other contents of a log file
//! - [`observer`]: redo from a server's writes to its log files
//! - [`log_set`]: all files of a log, read
//! - [`log_image`]: all files of a log, composed
//!
//! The stream that Redoubt keeps is the payload of the blocks: [`Lsn`](crate::Lsn) is a position in it.

pub mod block;
mod cursor;
pub mod index_info;
pub mod log_file;
pub mod log_image;
pub mod log_set;
pub mod observer;
pub mod position;
pub mod record;
pub mod record_reader;
mod space_flags;
pub mod varint;
pub mod walk;

pub use block::{Block, BlockError};
pub use index_info::{Column, Field, IndexInfo, VersionedField};
pub use log_file::{CheckpointSlot, FileRange, LogFileError, LogFileHeader, LogFileName, LogFlags};
pub use log_image::{FirstGroups, LogImage};
pub use log_set::{LogFile, LogSet, LogSetEnd, LogSetError, LogSetRead, LogSetStop};
pub use observer::{LogObserver, NewRedo, ObserveError, Observed};
pub use position::{from_server_lsn, server_lsn};
pub use record::{Body, Record};
pub use record_reader::RecordReader;
pub use walk::{MtrEnd, mtr_end, walk_mtrs};

#[cfg(test)]
#[path = "../../tests/support/mysql_encoder.rs"]
pub(crate) mod test_encoder;
#[cfg(test)]
#[path = "../../tests/support/mysql_server_log.rs"]
mod test_server_log;
