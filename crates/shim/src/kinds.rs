//! One module per kind of file.

pub mod local_log;
pub mod log_memory;
pub mod mapping;
pub mod plain;
pub mod redo_log;
pub mod tablespace;
