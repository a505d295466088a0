//! The server's redo log, put together for its start.
//!
//! A server that starts reads headers, checkpoints and the redo from its checkpoint on. All of that is in the log
//! device, as frames. At the first read after an attach the redo is laid out in a spool file, and reads are composed
//! from it.
//!
//! * MariaDB's is one file. In the spool the redo has the sequence bits that the file's geometry asks for (they differ
//!   after a resize).
//! * MySQL's is a set of files, of which the names and headers are known. In the spool are its blocks of 512 bytes. They
//!   begin with the mini-transaction at or before the server's checkpoint, which may lie inside of one.

use super::Volume;
use crate::error::NodeError;
use crate::log_buffer::Chunk;
use crate::mark::Point;
use crate::namespace::{LogFileEntry, LogSetEntry, Namespace};
use redoubt_redo::mariadb::log_file::{LogGeometry, LogHeader};
use redoubt_redo::mariadb::log_image::{LogImage, rewrite_sequence_bits};
use redoubt_redo::mysql::log_set::{BlockComposer, compose_front};
use redoubt_redo::{Lsn, Mtr};
use redoubt_storage::StorageFile;
use redoubt_wire::stream::{StreamFrame, decode};
use std::path::Path;
use std::sync::Arc;

/// See the module.
pub enum ServerLog {
    /// MariaDB's file.
    File {
        /// Everything but the redo.
        image: LogImage,
        /// The redo.
        spool: Arc<dyn StorageFile>,
    },
    /// The blocks of MySQL's files.
    Blocks {
        /// The blocks.
        spool: Arc<dyn StorageFile>,
        /// Server LSN of the first one.
        start_server_lsn: u64,
        /// Length in bytes.
        len_bytes: u64,
    },
}
