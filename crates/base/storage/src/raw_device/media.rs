//! The interface between a raw device and its medium: [`DeviceMedia`], a block device or a regular file, or a model of
//! a drive in tests.
//!
//! Rules for implementations: offsets and lengths are multiples of [`BLOCK_LEN`](super::layout::BLOCK_LEN). A write is
//! durable only after a `flush` that began after its end. A power cut may lose or retain any of the sectors of 512
//! bytes written since, but tears none. A discard leaves arbitrary bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use redoubt_sync::Mutex;
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::uring::StreamUring;
use crate::probe::BlockDevice;
use crate::{AlignedBuffer, StorageError, UntornLimits, untorn};

/// Options of a write.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct MediaWrite {
    /// Number of the write stream; 0: none.
    pub stream: u8,
    pub untorn: bool,
}

/// The medium of a raw device: a block device, a regular file, or a model.
pub(super) trait BlockMedia: Send + Sync {
    fn len_bytes(&self) -> u64;
    /// Reads until the buffer is full.
    fn read(&self, offset_bytes: u64, buffer: &mut AlignedBuffer) -> io::Result<()>;
    /// Writes the whole buffer, and returns it. `InvalidInput` or `Unsupported` if the medium does not support such a
    /// write; then nothing is written.
    fn write(&self, offset_bytes: u64, buffer: AlignedBuffer, how: MediaWrite) -> io::Result<AlignedBuffer>;
    fn flush(&self) -> io::Result<()>;
    /// Hint that a range is unused.
    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()>;
    /// Number of write streams that the medium reports. The caller has to try them.
    fn stated_streams(&self) -> u32;
    /// Limits of untorn writes that the medium reports. The caller has to try them.
    fn stated_untorn(&self) -> Option<UntornLimits>;
    /// Model name of the drive.
    fn model(&self) -> Option<String>;
}

/// A block device, or a regular file for tests, with an exclusive lock.
pub(super) struct DeviceMedia {
    file: File,
    len: u64,
    block_device: Option<BlockDevice>,
    is_block_device: bool,
    can_discard: AtomicBool,
    /// Rings without a write in progress.
    rings: Mutex<Vec<StreamUring>>,
}

impl DeviceMedia {
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        let shown = || path.display().to_string();
        let io = |action| move |source: io::Error| StorageError::Io { path: shown(), action, source };
        let file_type = std::fs::metadata(path).map_err(io("find"))?.file_type();
        let is_block_device = file_type.is_block_device();
        if !is_block_device && !file_type.is_file() {
            let reason = "it is neither a block device nor a regular file".to_owned();
            return Err(StorageError::Unsuitable { path: shown(), reason });
        }
        let file = open_exclusively(path, is_block_device).map_err(|error| {
            match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::BUSY | Errno::WOULDBLOCK) => StorageError::InUse { path: shown() },
                _ => StorageError::Io { path: shown(), action: "open", source: error },
            }
        })?;
        let metadata = file.metadata().map_err(io("get the status of"))?;
        let block_device = if is_block_device {
            let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
            BlockDevice::read(Path::new("/sys"), major, minor).map_err(io("read about"))?
        } else {
            None
        };
        let logical = block_device.as_ref().and_then(|device| device.logical_block_len).unwrap_or(512);
        if logical as usize > super::layout::BLOCK_LEN {
            let reason = format!("its logical blocks have {logical} bytes, and at most 4096 are supported");
            return Err(StorageError::Unsuitable { path: shown(), reason });
        }
        let len = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))
            .map_err(|error| io("find the length of")(error.into()))?;
        Ok(Self {
            file,
            len,
            block_device,
            is_block_device,
            can_discard: AtomicBool::new(true),
            rings: Mutex::new(Vec::new()),
        })
    }

    /// Reason why a block is only a part of the drive's physical writes. Then the drive would rewrite neighbouring
    /// blocks, and a power cut could destroy them.
    pub fn why_blocks_are_parts(&self) -> Option<String> {
        self.block_device.as_ref().and_then(why_blocks_are_parts)
    }

    fn write_in_stream(
        &self,
        offset_bytes: u64,
        buffer: AlignedBuffer,
        how: MediaWrite,
    ) -> io::Result<AlignedBuffer> {
        let ring = self.rings.lock().pop();
        let mut ring = match ring {
            Some(ring) => ring,
            None => StreamUring::new()?,
        };
        let flags = if how.untorn { untorn::RWF_ATOMIC } else { ReadWriteFlags::empty() };
        let result = ring.write(&self.file, offset_bytes, buffer, how.stream, flags);
        // A ring that failed is closed: its state may be unknown.
        if result.is_ok() {
            self.rings.lock().push(ring);
        }
        result
    }
}

fn why_blocks_are_parts(device: &BlockDevice) -> Option<String> {
    if let Some(offset @ (i64::MIN..=-1 | 1..)) = device.alignment_offset_bytes {
        return Some(format!(
            "it does not begin at a physical block of {} (alignment_offset {offset}): create the partition \
             again, aligned to 1 MiB",
            device.disk
        ));
    }
    let physical = device.physical_block_len.filter(|len| *len as usize > super::layout::BLOCK_LEN)?;
    Some(format!(
        "{} writes {physical} bytes at once, and a raw device works in blocks of {}: use a file system on it",
        device.disk,
        super::layout::BLOCK_LEN
    ))
}

fn open_exclusively(path: &Path, is_block_device: bool) -> io::Result<File> {
    let open =
        |flags: OFlags| File::options().read(true).write(true).custom_flags(flags.bits() as i32).open(path);
    if is_block_device {
        // The kernel rejects this while the device, a partition of it or its disk is mounted or claimed.
        return open(OFlags::EXCL | OFlags::DIRECT);
    }
    let file = match open(OFlags::DIRECT) {
        // Some file systems have no direct I/O.
        Err(error) if untorn::is_refusal(&error) => open(OFlags::empty())?,
        opened => opened?,
    };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

impl BlockMedia for DeviceMedia {
    fn len_bytes(&self) -> u64 {
        self.len
    }

    fn read(&self, offset_bytes: u64, buffer: &mut AlignedBuffer) -> io::Result<()> {
        self.file.read_exact_at(buffer.bytes_mut(), offset_bytes)
    }

    fn write(&self, offset_bytes: u64, buffer: AlignedBuffer, how: MediaWrite) -> io::Result<AlignedBuffer> {
        match how {
            MediaWrite { stream: 0, untorn: false } => {
                self.file.write_all_at(buffer.bytes(), offset_bytes)?;
                Ok(buffer)
            }
            MediaWrite { stream: 0, untorn: true } => {
                untorn::write_once(&self.file, offset_bytes, &buffer, untorn::RWF_ATOMIC)?;
                Ok(buffer)
            }
            _ => self.write_in_stream(offset_bytes, buffer, how),
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        if !self.can_discard.load(Ordering::Relaxed) {
            return Ok(());
        }
        let result = if self.is_block_device {
            block_discard(&self.file, offset_bytes, len_bytes)
        } else {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&self.file, flags, offset_bytes, len_bytes)
        };
        match result {
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::NOSYS) => {
                self.can_discard.store(false, Ordering::Relaxed);
                Ok(())
            }
            result => Ok(result?),
        }
    }

    fn stated_streams(&self) -> u32 {
        // The kernel supports streams for whole disks only.
        let device = self.block_device.as_ref().filter(|device| device.name == device.disk);
        device.and_then(|device| device.max_write_streams).unwrap_or(0)
    }

    fn stated_untorn(&self) -> Option<UntornLimits> {
        untorn::stated_limits(&self.file).ok().flatten()
    }

    fn model(&self) -> Option<String> {
        self.block_device.as_ref().and_then(|device| device.model.clone())
    }
}

fn block_discard(file: &File, offset_bytes: u64, len_bytes: u64) -> Result<(), Errno> {
    use rustix::ioctl;
    /// `BLKDISCARD`
    const DISCARD: ioctl::Opcode = ioctl::opcode::none(0x12, 119);
    // SAFETY: the call takes a pointer to two numbers of 64 bits, offset and length in bytes, and only reads them.
    let call = unsafe { ioctl::Setter::<DISCARD, [u64; 2]>::new([offset_bytes, len_bytes]) };
    // SAFETY: a discard of a device's bytes changes no memory of this process; the opcode and its argument match.
    unsafe { ioctl::ioctl(file, call) }
}

#[cfg(test)]
#[path = "media_tests.rs"]
mod tests;
