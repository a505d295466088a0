//! [`RawDevice`]: flat directories of files on a block device, without a file system.
//!
//! For log segments, page journal and page files on one drive with data placement (NVMe FDP). A file system does not
//! pass write streams on, but the block device does. Each directory is an ordinary [`StorageDir`].
//!
//! # Layout
//!
//! | offset | length | what |
//! |---|---|---|
//! | 0 | 512 | superblock: magic, version, CRC, format id, lengths and offsets; written by format only |
//! | 4 KiB | 512 | mark: the number of the newest durable snapshot |
//! | 64 KiB | 64 KiB | space for trials of untorn writes |
//! | 128 KiB | area | snapshot area 0 |
//! | 128 KiB + area | area | snapshot area 1 |
//! | data offset, a multiple of the chunk length | to the end | chunks |
//!
//! An area has 4 KiB for the header, 8 bytes for each possible chunk of the device, and another 256 KiB. The header
//! has 512 bytes: magic, version, CRC of the header, format id, number of the snapshot, length and CRC of the table.
//! The table follows at 4 KiB: names, lengths and chunk numbers of all files.
//!
//! # How it works
//!
//! * A file is a list of chunks (4 MiB, unless configured at format). Writes inside its length go in place.
//! * Changes of names, lengths or lists of chunks stay in memory until a sync that covers them. That sync flushes the
//!   drive, writes the whole table as a snapshot into the area with the older one, and flushes again. A sync without
//!   such changes is one flush.
//! * A released chunk is reused, and trimmed, only after a snapshot without it is durable.
//! * A chunk is filled with zeros before a file gets it, so old content is never visible. That costs one more write of
//!   the chunk, once. Preallocated files that are overwritten in place (log segments, journals) are not affected.
//! * The mark distinguishes a snapshot whose write was interrupted (the other one counts) from a durable one that was
//!   damaged later (the other one would be outdated, so the open fails).
//! * A sync may make more durable than required: the current names and lengths of all files.
//!
//! After a failed flush or a failed write of a snapshot, every write and sync fails until the device is opened again.
//! Any other failed write leaves the written range, and only that, with old or new content.
//!
//! # Exclusive use
//!
//! The device is opened with `O_EXCL`. The kernel rejects that while the device, or a partition of it, is mounted, or
//! is claimed by another program in the same way. It rejects mounts meanwhile. Shortly after a process was killed, its
//! last writes may still keep the device in use. A regular file is locked with `flock`; it is for tests.
//!
//! Write streams and untorn writes are tried when the device is opened, because the kernel's attributes are not
//! sufficient. Streams are available on whole disks only, not on partitions.
//!
//! `media` is the interface to the device, `table` holds the directories, `volume` combines both, `file` has the trait
//! objects.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{AlignedBuffer, StorageDir, StorageError, Stream, UntornLimits};

mod file;
mod layout;
mod media;
mod streams;
mod table;
mod uring;
mod volume;

use file::RawDirectory;
use layout::{BLOCK_LEN, BadSuperblock, INSPECTED_LEN, Layout};
use media::{BlockMedia, DeviceMedia};
use volume::{OpenFailure, Volume};

/// Options of a format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawFormatOptions {
    /// Whether to format the device regardless of its content.
    pub force: bool,
    /// Length of a chunk in bytes: a power of two from 64 KiB to 1 GiB. Every file takes whole chunks.
    pub chunk_len_bytes: u64,
}

impl Default for RawFormatOptions {
    fn default() -> Self {
        Self { force: false, chunk_len_bytes: 4 << 20 }
    }
}

/// Properties of an open device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawDeviceInfo {
    /// Path of the device.
    pub path: PathBuf,
    /// Length of all its chunks, in bytes.
    pub size_bytes: u64,
    /// Length of the chunks that files have, in bytes.
    pub used_bytes: u64,
    /// Length of a chunk, in bytes.
    pub chunk_len_bytes: u64,
    /// Number of write streams of the drive. 0: writes name no stream.
    pub streams: u32,
    /// Reason why the streams that the drive reports are not used.
    pub streams_refused: Option<String>,
    /// Limits of untorn writes.
    pub untorn: Option<UntornLimits>,
    /// Model name of the drive.
    pub model: Option<String>,
}

/// A block device with directories of files on it. See the module's documentation.
///
/// Directories and files keep the device open.
pub struct RawDevice {
    path: PathBuf,
    volume: Volume,
}

impl RawDevice {
    /// Formats the device at `path` without files.
    ///
    /// # Errors
    /// [`StorageError::Occupied`] if the device has files or other content, unless forced; [`StorageError::InUse`];
    /// [`StorageError::Unsuitable`] if it is too small or the options do not fit.
    pub fn format(path: &Path, options: RawFormatOptions) -> Result<(), StorageError> {
        let media = DeviceMedia::open(path)?;
        if let Some(reason) = media.why_blocks_are_parts() {
            return Err(StorageError::Unsuitable { path: path.display().to_string(), reason });
        }
        format_media(Box::new(media), path, options)
    }

    /// Opens the device at `path` for exclusive use by this process.
    ///
    /// # Errors
    /// [`StorageError::NotFormatted`], [`StorageError::InUse`], [`StorageError::Damaged`], and failed calls.
    pub fn open(path: &Path) -> Result<Arc<Self>, StorageError> {
        Self::open_on(Box::new(DeviceMedia::open(path)?), path)
    }

    fn open_on(media: Box<dyn BlockMedia>, path: &Path) -> Result<Arc<Self>, StorageError> {
        let shown = path.display().to_string();
        let start = inspect(&*media, path)?;
        let layout = Layout::decode(&start)
            .map_err(|bad| match bad {
                BadSuperblock::Version(reason) => StorageError::Unsuitable { path: shown.clone(), reason },
                BadSuperblock::Damaged(reason) => StorageError::Damaged { path: shown.clone(), reason },
            })?
            .ok_or_else(|| StorageError::NotFormatted {
                path: shown.clone(),
                found: layout::find_content(&start).unwrap_or("nothing"),
            })?;
        if media.len_bytes() < layout.size_bytes {
            let (now, then) = (media.len_bytes(), layout.size_bytes);
            let reason = format!("it has {now} bytes, and had {then} when it was formatted");
            return Err(StorageError::Damaged { path: shown, reason });
        }
        let volume = Volume::open(media, layout).map_err(|failure| match failure {
            OpenFailure::Io(action, source) => StorageError::Io { path: shown, action, source },
            OpenFailure::Damaged(reason) => StorageError::Damaged { path: shown, reason },
        })?;
        Ok(Arc::new(Self { path: path.to_owned(), volume }))
    }

    /// Opens the directory `name`, and creates it if necessary. A new directory is durable after a sync. Only one user
    /// at a time may have it open.
    ///
    /// # Errors
    /// `WouldBlock` if it is open, `InvalidInput` if the name is invalid, `StorageFull`.
    pub fn dir(self: &Arc<Self>, name: &str) -> io::Result<Arc<dyn StorageDir>> {
        self.dir_in(name, Stream::default())
    }

    /// Like [`RawDevice::dir`], with `stream` for writes of [`StorageFile::write_at`](crate::StorageFile::write_at),
    /// which names no stream.
    ///
    /// # Errors
    /// See [`RawDevice::dir`].
    pub fn dir_in(self: &Arc<Self>, name: &str, stream: Stream) -> io::Result<Arc<dyn StorageDir>> {
        Ok(Arc::new(RawDirectory::open(self, name, stream)?))
    }

    /// Removes the directory `name` and its files, durably. Succeeds if there is none.
    ///
    /// # Errors
    /// `ResourceBusy` if the directory is open.
    pub fn remove_dir(&self, name: &str) -> io::Result<()> {
        self.volume.check()?;
        let version = {
            let mut table = self.volume.table();
            table.remove_dir(name)?;
            table.version()
        };
        self.volume.sync(version)
    }

    /// Names of the directories, in order.
    pub fn dirs(&self) -> Vec<String> {
        self.volume.table().dir_names()
    }

    /// Properties of the device.
    pub fn info(&self) -> RawDeviceInfo {
        let Layout { chunk_len, chunk_count, .. } = self.volume.layout;
        let size_bytes = u64::from(chunk_count) * chunk_len;
        RawDeviceInfo {
            path: self.path.clone(),
            size_bytes,
            used_bytes: size_bytes - self.volume.table().unused_chunks() * chunk_len,
            chunk_len_bytes: chunk_len,
            streams: self.volume.stream_count(),
            streams_refused: self.volume.streams_refused.clone(),
            untorn: self.volume.untorn,
            model: self.volume.media.model(),
        }
    }

    /// Number of the write stream for data of this lifetime; 0: none.
    pub fn stream_of(&self, stream: Stream) -> u8 {
        self.volume.stream_number(stream)
    }
}

/// Reads the start of a device.
fn inspect(media: &dyn BlockMedia, path: &Path) -> Result<Vec<u8>, StorageError> {
    let len = media.len_bytes().min(INSPECTED_LEN as u64) as usize;
    let mut start = AlignedBuffer::zeroed(len - len % BLOCK_LEN);
    let read = media.read(0, &mut start);
    let shown = || path.display().to_string();
    read.map_err(|source| StorageError::Io { path: shown(), action: "read", source })?;
    Ok(start.bytes().to_vec())
}

fn format_media(
    media: Box<dyn BlockMedia>,
    path: &Path,
    options: RawFormatOptions,
) -> Result<(), StorageError> {
    let shown = path.display().to_string();
    let layout = Layout::new(fastrand::u64(1..), media.len_bytes(), options.chunk_len_bytes)
        .map_err(|reason| StorageError::Unsuitable { path: shown.clone(), reason })?;
    let start = inspect(&*media, path)?;
    let media = if options.force {
        media
    } else if layout::is_ours(&start) {
        // Without force, only a readable device without files may be overwritten.
        let device = RawDevice::open_on(media, path).map_err(|error| match error {
            StorageError::Damaged { reason, .. } | StorageError::Unsuitable { reason, .. } => {
                let found = format!("a raw device of Redoubt that cannot be opened ({reason})");
                StorageError::Occupied { path: shown.clone(), found }
            }
            other => other,
        })?;
        let files = device.volume.table().file_count();
        if files > 0 {
            return Err(StorageError::Occupied { path: shown, found: format!("{files} files of Redoubt") });
        }
        let device = Arc::into_inner(device).ok_or_else(|| StorageError::InUse { path: shown.clone() })?;
        device.volume.media
    } else if let Some(found) = layout::find_content(&start) {
        return Err(StorageError::Occupied { path: shown, found: found.to_owned() });
    } else {
        media
    };
    volume::format(&*media, &layout).map_err(|source| StorageError::Io {
        path: shown,
        action: "format",
        source,
    })
}

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
