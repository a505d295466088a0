//! Changes of the tablespace flags by redo, without the page.
//!
//! The flags are the 4 bytes at offset 54 of page 0 of each tablespace. They say which page format and
//! checksum the file has, so a node that applies pages lazily wants them at parse time.

use super::record::{Body, Record};
use crate::mtr::SpaceFlagsChange;

/// Where the flags are on page 0, in bytes.
const FLAGS_START: u32 = 54;
const FLAGS_END: u32 = 58;
/// Current offset after INIT_PAGE and EXTENDED (the page type field).
const OFFSET_AFTER_INIT: u32 = 24;

/// The flags as one run leaves them.
#[derive(Clone, Copy)]
pub(crate) struct SpaceFlagsTracker {
    /// Current offset on the page, as the record encoding counts it.
    current: u32,
    /// Each byte, once the run has written it.
    bytes: [Option<u8>; 4],
    /// A byte was copied from elsewhere on the page.
    copied: bool,
}

impl SpaceFlagsTracker {
    pub(crate) const fn new() -> Self {
        Self { current: 0, bytes: [None; 4], copied: false }
    }

    /// Follow one record of page 0.
    pub(crate) fn apply(&mut self, record: &Record<'_>) {
        if record.page.is_some() {
            self.current = 0;
        }
        match record.body {
            Body::InitPage => {
                *self = Self { current: OFFSET_AFTER_INIT, bytes: [Some(0); 4], copied: false };
            }
            Body::Write { distance, data } => {
                let len_bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
                self.write(distance, len_bytes, |index| data.get(index).copied());
            }
            Body::Memset { distance, len_bytes, pattern } => {
                self.write(distance, len_bytes, |index| {
                    pattern.get(index.checked_rem(pattern.len())?).copied()
                });
            }
            Body::Memmove { distance, len_bytes, .. } => self.write(distance, len_bytes, |_| None),
            Body::Extended(_) => self.current = OFFSET_AFTER_INIT,
            Body::FreePage | Body::Option { .. } | Body::File(_) => {}
        }
    }

    /// The range from `current + distance` gets new bytes; `byte_at` knows them or says `None`.
    fn write(&mut self, distance: u32, len_bytes: u32, byte_at: impl Fn(usize) -> Option<u8>) {
        let start = self.current.saturating_add(distance);
        let end = start.saturating_add(len_bytes);
        self.current = end;
        for (slot, offset) in self.bytes.iter_mut().zip(FLAGS_START..FLAGS_END) {
            if offset >= start && offset < end {
                *slot = byte_at((offset - start) as usize);
                self.copied |= slot.is_none();
            }
        }
    }

    /// Result of the records so far.
    pub(crate) fn change(&self) -> SpaceFlagsChange {
        match self.bytes {
            [Some(a), Some(b), Some(c), Some(d)] => SpaceFlagsChange::Set(u32::from_be_bytes([a, b, c, d])),
            [None, None, None, None] if !self.copied => SpaceFlagsChange::Unchanged,
            _ => SpaceFlagsChange::Unknown,
        }
    }
}
