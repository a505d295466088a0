//! Errors of the redo parsers.
//!
//! Invariant: every error about bytes has the offset (counted from the start of the slice the caller passed in), the
//! bytes found there, and the expected ones.

use crate::types::Lsn;

/// Bytes that are not valid redo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedoError {
    /// A byte has a value that is not allowed at its place.
    #[error("byte {offset} of the redo bytes is {byte:#04x}, expected {expected}")]
    BadByte {
        /// Where, in bytes from the start of the slice.
        offset: usize,
        /// The value found.
        byte: u8,
        /// The valid values.
        expected: &'static str,
    },
    /// A record header does not give a length.
    #[error("byte {offset} of the redo bytes is {byte:#04x}, expected a record length of at most 3 bytes")]
    BadLength {
        /// Where, in bytes from the start of the slice.
        offset: usize,
        /// The value found.
        byte: u8,
    },
    /// A record, or the run or list it is in, ends too early.
    #[error("the redo record ends at byte {offset} of the redo bytes, expected {expected}")]
    Truncated {
        /// Where the bytes end, in bytes from the start of the slice.
        offset: usize,
        /// The expected content.
        expected: &'static str,
    },
    /// A decoded number is out of range.
    #[error("the number at byte {offset} of the redo bytes is {value}, expected {expected}")]
    BadNumber {
        /// Where the number (or what it belongs to) starts, in bytes from the start of the slice.
        offset: usize,
        /// Its value.
        value: u64,
        /// The valid values.
        expected: &'static str,
    },
    /// A mini-transaction does not end within the largest possible size.
    #[error(
        "no end of the mini-transaction within {limit_bytes} bytes (looked up to byte {offset}); \
         the bytes are not a redo stream, or damaged"
    )]
    MtrTooLong {
        /// Where the search stopped, in bytes from the start of the slice.
        offset: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The checksum of a mini-transaction does not match.
    #[error(
        "CRC-32C at byte {offset} of the redo bytes is {stored:#010x}, \
         but the mini-transaction has {computed:#010x}"
    )]
    Checksum {
        /// Where the checksum is stored, in bytes from the start of the slice.
        offset: usize,
        /// The stored value.
        stored: u32,
        /// The value computed from the records.
        computed: u32,
    },
}

impl RedoError {
    /// Whether the bytes fail before their checksum was found valid. After the end of a circular log
    /// this is what old bytes look like; inside a stream that should be whole it is damage.
    pub const fn is_unframed(&self) -> bool {
        matches!(self, Self::MtrTooLong { .. } | Self::Checksum { .. } | Self::BadLength { .. })
    }

    /// The same error, counted from `base` bytes earlier.
    #[must_use]
    pub(crate) const fn shifted(self, base: usize) -> Self {
        match self {
            Self::BadByte { offset, byte, expected } => {
                Self::BadByte { offset: offset + base, byte, expected }
            }
            Self::BadLength { offset, byte } => Self::BadLength { offset: offset + base, byte },
            Self::Truncated { offset, expected } => Self::Truncated { offset: offset + base, expected },
            Self::BadNumber { offset, value, expected } => {
                Self::BadNumber { offset: offset + base, value, expected }
            }
            Self::MtrTooLong { offset, limit_bytes } => {
                Self::MtrTooLong { offset: offset + base, limit_bytes }
            }
            Self::Checksum { offset, stored, computed } => {
                Self::Checksum { offset: offset + base, stored, computed }
            }
        }
    }
}

/// Invalid redo, with the place in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid redo in the mini-transaction at LSN {mtr_lsn}: {error}; \
     nothing from this LSN on can be used, take these bytes from another copy"
)]
pub struct StreamError {
    /// Where the mini-transaction starts.
    pub mtr_lsn: Lsn,
    /// The defect. Byte positions count from the start of the slice that was walked.
    #[source]
    pub error: RedoError,
}
