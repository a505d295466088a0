//! Whether the kernel grants `MAP_SYNC` in a directory.
//!
//! It asks the kernel by itself, not through the log device, so that a device that never asks is found out. Where
//! `MAP_SYNC` is to be refused, the same mapping without it must be granted: only then was it refused for being
//! `MAP_SYNC`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;

use super::Expectation;

/// One large page, so that the length is a multiple of whatever the mount maps by.
const LEN_BYTES: usize = 2 << 20;
/// The flag in `VmFlags` of /proc/self/smaps by which the kernel marks a mapping with `MAP_SYNC`.
const SMAPS_SYNC_FLAG: &str = "sf";

/// Why the check failed.
#[derive(thiserror::Error, Debug)]
pub enum MapSyncError {
    /// A system call failed.
    #[error("cannot {action} in {dir}: {source}")]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The directory.
        dir: String,
        /// The system's error.
        source: io::Error,
    },
    /// MAP_SYNC was granted where it must be refused, or the other way round.
    #[error("{dir}: {what}")]
    Unexpected {
        /// The directory.
        dir: String,
        /// The unexpected result.
        what: String,
    },
}

/// Checks that mapping a file in `dir` with `MAP_SYNC` does what is expected.
///
/// # Errors
/// [`MapSyncError::Unexpected`] if it does not.
pub fn run(dir: &Path, expect: Expectation) -> Result<(), MapSyncError> {
    let dir_name = dir.display().to_string();
    let failed = |action| {
        let dir = dir_name.clone();
        move |source| MapSyncError::Io { action, dir, source }
    };
    let unexpected = |what: String| MapSyncError::Unexpected { dir: dir_name.clone(), what };
    let file = tempfile::tempfile_in(dir).map_err(failed("make a file"))?;
    // Written, so that the mapping has blocks under it.
    file.write_all_at(&vec![0; LEN_BYTES], 0).map_err(failed("write a file"))?;
    file.sync_all().map_err(failed("sync a file"))?;
    match (Mapping::new(&file, libc::MAP_SYNC), expect) {
        (Ok(mapping), Expectation::Allowed) => {
            let text = b"stored through the mapping";
            mapping.store(text);
            let mut read_back = vec![0; text.len()];
            file.read_exact_at(&mut read_back, 0).map_err(failed("read a file"))?;
            if read_back != text {
                return Err(unexpected("bytes stored through the mapping are not in the file".into()));
            }
            let smaps =
                std::fs::read_to_string("/proc/self/smaps").map_err(failed("read /proc/self/smaps"))?;
            if !has_sync_mapping(&smaps) {
                return Err(unexpected(
                    "MAP_SYNC was granted, but /proc/self/smaps shows no such mapping".into(),
                ));
            }
            println!("{dir_name}: MAP_SYNC is granted");
            Ok(())
        }
        (Err(error), Expectation::Refused) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Mapping::new(&file, 0).map_err(failed("map a file without MAP_SYNC"))?;
            println!("{dir_name}: MAP_SYNC is refused: {error}");
            Ok(())
        }
        (Ok(_), Expectation::Refused) => {
            Err(unexpected("MAP_SYNC is granted where it must be refused".into()))
        }
        (Err(error), _) => Err(unexpected(format!("MAP_SYNC: {error}"))),
    }
}

fn has_sync_mapping(smaps: &str) -> bool {
    smaps
        .lines()
        .filter_map(|line| line.strip_prefix("VmFlags:"))
        .any(|flags| flags.split_whitespace().any(|flag| flag == SMAPS_SYNC_FLAG))
}

/// The first [`LEN_BYTES`] of a file, mapped shared.
struct Mapping {
    base: NonNull<u8>,
}

impl Mapping {
    fn new(file: &File, extra_flags: libc::c_int) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that exists. MAP_SHARED_VALIDATE
        // makes the kernel refuse flags that it does not know or that the file cannot have.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LEN_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED_VALIDATE | extra_flags,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(address.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Self { base })
    }

    /// Stores at the start. Volatile: nothing in this program reads the bytes back through the mapping.
    fn store(&self, bytes: &[u8]) {
        for (offset, byte) in bytes.iter().take(LEN_BYTES).enumerate() {
            // SAFETY: `offset` is inside the mapping, which lives as long as `self` and is reached by nothing else.
            unsafe { self.base.add(offset).write_volatile(*byte) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the one that `new` mapped, and no pointer into it leaves this type.
        unsafe { libc::munmap(self.base.as_ptr().cast(), LEN_BYTES) };
    }
}
