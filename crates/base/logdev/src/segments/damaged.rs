//! [`DamagedLog`]: a log whose end is damaged, read up to the damage.
//!
//! The other devices refuse such a log, because they would append to it, and so cut off what was durable. This one has
//! the whole records before the damage, takes no appends, and changes nothing on the disk.

use std::sync::Arc;

use redoubt_storage::StorageDir;
use redoubt_sync::RwLock;

use super::index::Index;
use super::{read_at, recovery};
use crate::error::LogDeviceError;
use crate::format::RECORD_ALIGN;
use crate::{DeviceInfo, DeviceKind, LogDevice, LogDeviceStats, Seq};

/// A log whose end is damaged, read up to the damage. See the module's documentation.
pub struct DamagedLog {
    index: RwLock<Index>,
    start: Seq,
    end: Seq,
    proven_end: Seq,
}

impl DamagedLog {
    /// Reads a log that the other devices refuse with [`LogDeviceError::Damaged`] or [`LogDeviceError::BadSegment`]. The
    /// caller ensures that no other process uses the directory.
    ///
    /// # Errors
    /// [`LogDeviceError::Io`].
    pub fn open_on(dir: &Arc<dyn StorageDir>) -> Result<Self, LogDeviceError> {
        let recovery::BeforeDamage { index, proven_seq } = recovery::before_damage(&**dir)?;
        let (start, end) = (Seq(index.start_seq()), Seq(index.end_seq));
        Ok(Self { index: RwLock::new(index), start, end, proven_end: Seq(proven_seq) })
    }

    /// The log was durable at least up to there.
    pub fn proven_end(&self) -> Seq {
        self.proven_end
    }
}

impl LogDevice for DamagedLog {
    fn append(&self, _record: &[u8]) -> Result<Seq, LogDeviceError> {
        let cause = "its end is damaged, and it can only be read".to_owned();
        Err(LogDeviceError::Poisoned { cause })
    }

    fn sync(&self) -> Result<Seq, LogDeviceError> {
        Ok(self.end)
    }

    fn durable_end(&self) -> Seq {
        self.end
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            kind: DeviceKind::File,
            write_unit_bytes: RECORD_ALIGN,
            max_in_flight: 1,
            detail: "damaged, read only".to_owned(),
        }
    }

    fn start(&self) -> Seq {
        self.start
    }

    fn end(&self) -> Seq {
        self.end
    }

    fn read_at(&self, seq: Seq, buf: &mut [u8]) -> Result<(), LogDeviceError> {
        read_at(&self.index, seq, buf)
    }

    /// Gives nothing up: the damaged log stays as it is.
    fn discard_before(&self, _seq: Seq) -> Result<(), LogDeviceError> {
        Ok(())
    }

    fn stats(&self) -> LogDeviceStats {
        LogDeviceStats::default()
    }
}
