//! One module per kind of file, with its reads, writes and syncs.
//!
//! Each gets a [`crate::content::Content`], and, where files are opened or renamed, the table of its own files. None
//! depends on the tracked descriptors, or on the process's active library. [`mapping`] and [`written_stream`] are of plain files,
//! [`log_memory`] and [`log_read`] are parts of redo logs, and [`local_log`] a mode of its own, without a node.
//! Builds without the feature `experimental-devices` refuse that mode.
//!
//! Lock order: names, a file's own lock, the redo log, the stream's state.

#[cfg_attr(not(feature = "experimental-devices"), path = "kinds/no_local_log.rs")]
pub mod local_log;
pub mod log_memory;
pub mod log_read;
pub mod mapping;
pub mod plain;
pub mod redo_files;
pub mod redo_log;
pub mod tablespace;
pub mod unknown_files;
pub mod written_stream;
