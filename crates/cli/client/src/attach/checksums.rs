//! Checksums of plain files in a data directory, remembered from one start to the next.
//!
//! A file is considered unchanged only if its length, inode, and both times of change are the same, on the same boot
//! of this host: after a power cut the times may be older than the contents. The contents are on the disk before they
//! are remembered. A file that changed in the last two seconds is not remembered, since its times may not move with
//! the next change. All of this is a cache: a missing or unreadable entry is computed again.

use crate::error::{ClientError, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const FILE_NAME: &str = ".redoubt-checksums";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const FORMAT: u32 = 1;
/// Shorter files are read again at each start.
const REMEMBERED_FROM_BYTES: u64 = 1 << 20;
/// Well above the granularity of a file system's times.
const SETTLED_AFTER_NANOS: i128 = 2_000_000_000;
const PIECE_BYTES: usize = 1 << 20;

/// Length and CRC-32C of a file's contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Bytes.
    pub len_bytes: u64,
    /// Their CRC-32C.
    pub crc: u32,
}

/// Identifying metadata of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    device: u64,
    inode: u64,
    len_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &File) -> std::io::Result<Self> {
        let data = file.metadata()?;
        Ok(Self {
            device: data.dev(),
            inode: data.ino(),
            len_bytes: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        })
    }

    /// The next change will have other times.
    fn is_settled(&self, now: SystemTime) -> bool {
        let Ok(now) = now.duration_since(UNIX_EPOCH) else { return false };
        let nanos = |(seconds, nanos): (i64, i64)| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        let latest = nanos(self.modified).max(nanos(self.changed));
        i128::try_from(now.as_nanos()).is_ok_and(|now| now - latest >= SETTLED_AFTER_NANOS)
    }
}

#[derive(Serialize, Deserialize)]
struct Saved {
    format: u32,
    boot_id: String,
    files: HashMap<String, (Stamp, Contents)>,
}

/// Remembered checksums of a data directory.
pub struct Checksums {
    path: PathBuf,
    boot_id: String,
    /// Checksums from an earlier start.
    remembered: HashMap<String, (Stamp, Contents)>,
    /// Found out by this one.
    found: HashMap<String, (Stamp, Contents)>,
}

impl Checksums {
    /// Loads the checksums that an earlier start of the same boot left in the data directory.
    ///
    /// # Errors
    /// [`ClientError::Io`] if the kernel's boot id cannot be read.
    pub fn load(directory: &Path) -> Result<Self> {
        let boot_id = boot_id()?;
        let path = directory.join(FILE_NAME);
        let remembered = match read(&path) {
            Some(Saved { format: FORMAT, boot_id: then, files }) if then == boot_id => files,
            _ => HashMap::new(),
        };
        Ok(Self { path, boot_id, remembered, found: HashMap::new() })
    }

    /// The kernel's random id of this boot of the host.
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// Length and checksum of a file, without reading it if they are known.
    ///
    /// # Errors
    /// The system's.
    pub fn of(&mut self, name: &str, file: &File) -> std::io::Result<Contents> {
        let stamp = Stamp::of(file)?;
        let known = self.found.get(name).or_else(|| self.remembered.get(name));
        if let Some((then, contents)) = known
            && *then == stamp
        {
            return Ok(*contents);
        }
        self.read_on(name, file, Contents::default())
    }

    /// The same, when the first bytes are known to be `from`.
    ///
    /// # Errors
    /// The system's.
    pub fn read_on(&mut self, name: &str, file: &File, from: Contents) -> std::io::Result<Contents> {
        let stamp = Stamp::of(file)?;
        let mut contents = from;
        let mut piece = vec![0; PIECE_BYTES.min(stamp.len_bytes as usize)];
        while contents.len_bytes < stamp.len_bytes {
            let wanted = ((stamp.len_bytes - contents.len_bytes) as usize).min(piece.len());
            match file.read_at(piece.get_mut(..wanted).unwrap_or_default(), contents.len_bytes)? {
                0 => break,
                len => {
                    contents.crc = crc32c::crc32c_append(contents.crc, piece.get(..len).unwrap_or_default());
                    contents.len_bytes += len as u64;
                }
            }
        }
        self.found.insert(name.to_owned(), (stamp, contents));
        Ok(contents)
    }

    /// Permissions or owner of a file were set: its time of change is another one, its contents are the same.
    ///
    /// # Errors
    /// The system's.
    pub fn keep(&mut self, name: &str, file: &File) -> std::io::Result<()> {
        let remembered = self.remembered.get(name).copied();
        if let Some((stamp, contents)) = self.found.get(name).copied().or(remembered) {
            let now = Stamp::of(file)?;
            if (now.inode, now.len_bytes, now.modified) == (stamp.inode, stamp.len_bytes, stamp.modified) {
                self.found.insert(name.to_owned(), (now, contents));
            }
        }
        Ok(())
    }

    /// Makes a long file durable, so that it can be remembered.
    ///
    /// # Errors
    /// The system's.
    pub fn sync(&self, name: &str, file: &File) -> std::io::Result<()> {
        let is_long = |(stamp, _): &(Stamp, Contents)| stamp.len_bytes >= REMEMBERED_FROM_BYTES;
        if self.found.get(name).is_some_and(is_long) { file.sync_all() } else { Ok(()) }
    }

    /// Remembers what was found out and synced.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn save(&self) -> Result<()> {
        let now = SystemTime::now();
        let is_usable = |stamp: &Stamp| stamp.len_bytes >= REMEMBERED_FROM_BYTES && stamp.is_settled(now);
        let files = self.found.iter().filter(|(_, (stamp, _))| is_usable(stamp));
        let saved = Saved {
            format: FORMAT,
            boot_id: self.boot_id.clone(),
            files: files.map(|(name, known)| (name.clone(), *known)).collect(),
        };
        let failed = |error| ClientError::io("write", &self.path, error);
        let body = serde_json::to_vec(&saved).map_err(|error| failed(error.into()))?;
        // A link must not redirect this write to another file.
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(&self.path).map_err(failed)?;
        writeln!(file, "{:08x}", crc32c::crc32c(&body)).and_then(|()| file.write_all(&body)).map_err(failed)
    }
}

/// The kernel's random id of this boot of the host.
///
/// # Errors
/// [`ClientError::Io`].
pub fn boot_id() -> Result<String> {
    std::fs::read_to_string(BOOT_ID).map_err(|error| ClientError::io("read", BOOT_ID, error))
}

/// The file written by [`Checksums::save`]; `None` if it is missing or incomplete.
fn read(path: &Path) -> Option<Saved> {
    let mut bytes = Vec::new();
    let mut file =
        File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().ok().filter(|data| data.is_file())?;
    file.read_to_end(&mut bytes).ok()?;
    let (head, body) = bytes.split_at_checked(9)?;
    let crc = u32::from_str_radix(std::str::from_utf8(head).ok()?.trim_end(), 16).ok()?;
    (crc == crc32c::crc32c(body)).then(|| serde_json::from_slice(body).ok()).flatten()
}

#[cfg(test)]
#[path = "checksums_tests.rs"]
mod tests;
