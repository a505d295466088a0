//! Redo of MariaDB 10.8 and later (one file, one byte stream, a CRC-32C per mini-transaction).
//!
//! From bytes upwards:
//! - [`varint`]: numbers of variable length
//! - [`record_reader`]: records, decoded
//! - [`walk`]: mini-transactions and the page runs in them
//! - [`log_file`]: the header of `ib_logfile0`, and the location of an LSN in the file
//! - [`observer`]: redo from a server's writes to that file
//! - [`log_scan`]: a whole log file, read
//! - [`log_image`]: a log file, composed

pub mod log_file;
pub mod log_image;
pub mod log_scan;
pub mod observer;
mod page0;
pub mod record;
pub mod record_reader;
pub mod varint;
pub mod walk;

#[cfg(test)]
#[path = "../../tests/support/encoder.rs"]
pub(crate) mod test_encoder;

pub use log_file::{CheckpointBlock, LogFileError, LogGeometry, LogHeader};
pub use log_image::{LogImage, rewrite_sequence_bits};
pub use log_scan::{LogRead, LogScan, ScanEnd, ScanError, ScanStop};
pub use observer::{CheckpointSlot, LogObserver, NewRedo, ObserveError, Observed};
pub use record_reader::{PageRun, RecordReader};
pub use walk::{MtrStep, SequenceRule, next_mtr, walk_mtrs};
#[cfg(test)]
#[path = "../../tests/support/server_log.rs"]
mod test_server_log;
