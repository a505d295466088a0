//! What a tracked descriptor refers to.

use crate::plain::PlainFile;
use crate::redo_log::LogFile;
use crate::tablespace::Tablespace;
use std::sync::Arc;

/// The file behind a descriptor.
pub enum Target {
    /// `ib_logfile0`, or `ib_logfile101`.
    Log(Arc<LogFile>),
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
    pub flags: i32,
}

impl OpenFile {
    /// A file opened with `flags`.
    pub fn new(target: Target, flags: i32) -> Self {
        if let Target::Log(log) = &target {
            log.opened();
        }
        Self { target, flags }
    }

    /// Each write must be durable when the call returns.
    pub const fn is_synchronous(&self) -> bool {
        // O_SYNC contains O_DSYNC.
        self.flags & libc::O_DSYNC != 0
    }

    /// Writes go to the end of the file.
    pub const fn appends(&self) -> bool {
        self.flags & libc::O_APPEND != 0
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if let Target::Log(log) = &self.target {
            log.closed();
        }
    }
}
