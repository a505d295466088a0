//! Options of the segments of a log, with their limits.

use crate::Seq;
use crate::error::LogDeviceError;
use crate::format::SEGMENT_HEADER_LEN;

const SEGMENT_ALIGN: u64 = 4096;
pub(super) const MIN_SEGMENT_LEN: u64 = 2 * SEGMENT_HEADER_LEN as u64;
pub(super) const MAX_SEGMENT_LEN: u64 = 1 << 30;

/// Positions that a log had when it was used last. All 0: nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// It must begin here or before.
    pub from: Seq,
    /// It must end here or later.
    pub to: Seq,
}

/// How the segments of a device are set up.
#[derive(Clone, Debug)]
pub struct SegmentOptions {
    /// Length of each new segment file: a multiple of 4096, from 8 KiB to 1 GiB.
    pub segment_len_bytes: u64,
    /// Unused segments to have ready at least. Up to twice as many discarded ones are kept: a spare is made when one is taken
    /// and too few are left. If the discarded segment that comes back then went away, each segment would be written twice.
    pub spare_segments: usize,
    /// Prepare spares in a thread of its own. Otherwise they are made when needed, in
    /// [`LogDevice::append`](crate::LogDevice::append), or by `prepare_spare_segments`.
    pub prepare_in_background: bool,
    /// Positions that the log is known to have held. A log that lacks some of them is not opened; nothing is
    /// changed then.
    pub held: Held,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self {
            segment_len_bytes: 64 << 20,
            spare_segments: 2,
            prepare_in_background: true,
            held: Held::default(),
        }
    }
}

impl SegmentOptions {
    /// Unused segments to keep at most.
    pub(super) fn kept_spares(&self) -> usize {
        2 * self.spare_segments
    }

    pub(super) fn check(&self) -> Result<(), LogDeviceError> {
        let len = self.segment_len_bytes;
        if !(MIN_SEGMENT_LEN..=MAX_SEGMENT_LEN).contains(&len) || !len.is_multiple_of(SEGMENT_ALIGN) {
            return Err(LogDeviceError::InvalidOption {
                option: "segment_len_bytes",
                reason: format!(
                    "{len} is not a multiple of {SEGMENT_ALIGN} from {MIN_SEGMENT_LEN} to {MAX_SEGMENT_LEN}"
                ),
            });
        }
        Ok(())
    }
}
