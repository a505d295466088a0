//! Changes of the tablespace flags by redo, without the page.
//!
//! The flags are the 4 bytes at offset 54 of page 0 of each tablespace (`include/fsp0fsp.h`: 16 bytes into what follows
//! the 38 bytes of the page header). They say which page size and row format the file has, so a node that applies pages
//! lazily wants them at parse time.

use super::record::{Body, Record};
use crate::mtr::SpaceFlagsChange;

/// Where the flags are on page 0, in bytes.
const FLAGS_START: usize = 54;

/// The flags as one run leaves them.
#[derive(Clone, Copy)]
pub(super) struct SpaceFlagsTracker {
    /// Each byte, once the run has written it.
    bytes: [Option<u8>; 4],
}

impl SpaceFlagsTracker {
    pub(super) const fn new() -> Self {
        Self { bytes: [None; 4] }
    }

    /// Follow one record of page 0.
    pub(super) fn apply(&mut self, record: &Record<'_>) {
        match record.body {
            Body::InitFilePage => self.bytes = [Some(0); 4],
            Body::Number { offset, len_bytes, value } => {
                let bytes = value.to_be_bytes();
                let from = bytes.len().saturating_sub(usize::from(len_bytes));
                self.write(usize::from(offset), bytes.get(from..).unwrap_or_default());
            }
            Body::WriteString { offset, data } => self.write(usize::from(offset), data),
            _ => {}
        }
    }

    fn write(&mut self, offset: usize, data: &[u8]) {
        for (slot, at) in self.bytes.iter_mut().zip(FLAGS_START..) {
            if let Some(byte) = at.checked_sub(offset).and_then(|index| data.get(index)) {
                *slot = Some(*byte);
            }
        }
    }

    /// Result of the records so far.
    pub(super) fn change(&self) -> SpaceFlagsChange {
        match self.bytes {
            [Some(a), Some(b), Some(c), Some(d)] => SpaceFlagsChange::Set(u32::from_be_bytes([a, b, c, d])),
            [None, None, None, None] => SpaceFlagsChange::Unchanged,
            _ => SpaceFlagsChange::Unknown,
        }
    }
}
