//! Targets of tracked descriptors.

use crate::base::open_flags::OpenFlags;
use crate::kinds::plain::PlainFile;
use crate::kinds::redo_files::RedoFile;
use crate::kinds::redo_log::LogFile;
use crate::kinds::tablespace::Tablespace;
use std::sync::Arc;

/// The file behind a descriptor.
pub enum Target {
    /// `ib_logfile0`, or `ib_logfile101`.
    Log(Arc<LogFile>),
    /// A file of MySQL's redo log.
    RedoFile(Arc<RedoFile>),
    /// InnoDB pages.
    Tablespace(Arc<Tablespace>),
    /// A replicated plain file.
    Plain(Arc<PlainFile>),
    /// A directory inside the data directory.
    Directory,
}

/// One or more descriptors that share a file position.
pub struct OpenFile {
    /// The file.
    pub target: Target,
    /// Flags of the open call.
    pub flags: OpenFlags,
}

impl OpenFile {
    /// A file opened with `flags`.
    pub fn new(target: Target, flags: i32) -> Self {
        if let Target::Log(log) = &target {
            log.opened();
        }
        Self { target, flags: OpenFlags(flags) }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if let Target::Log(log) = &self.target {
            log.closed();
        }
    }
}
