//! How a file was opened.

/// Flags of an open call.
#[derive(Clone, Copy, Debug)]
pub struct OpenFlags(pub i32);

impl OpenFlags {
    /// Nothing may be written.
    pub const fn is_read_only(self) -> bool {
        self.0 & libc::O_ACCMODE == libc::O_RDONLY
    }

    /// Each write must be durable when the call returns.
    pub const fn is_synchronous(self) -> bool {
        // O_SYNC contains O_DSYNC.
        self.0 & libc::O_DSYNC != 0
    }

    /// Writes go to the end of the file.
    pub const fn appends(self) -> bool {
        self.0 & libc::O_APPEND != 0
    }
}
