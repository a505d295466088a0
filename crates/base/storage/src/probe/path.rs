//! System calls of a probe.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr;

use rustix::fs::{AtFlags, CWD, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{BlockDevice, DirectIo, PathProbe};
use crate::untorn::{self, Tearing, is_refusal};
use crate::{AlignedBuffer, StorageError, UntornLimits, is_out_of_descriptors, kernel_ring};

const MAP_LEN: usize = 4096;

/// The required fields of a line of `/proc/self/mountinfo`.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Mount {
    pub mount_id: u64,
    pub device: (u32, u32),
    pub file_system: String,
    pub source: String,
}

pub(super) fn probe_with(dir: &Path, sys: &Path, mountinfo: &Path) -> Result<PathProbe, StorageError> {
    let shown = dir.display().to_string();
    let failed = |action| {
        let path = shown.clone();
        move |source: io::Error| StorageError::Probe { path, action, source }
    };
    let stat = statx_dir(dir).map_err(failed("get the status of it"))?;
    let trial = Trial::create(dir).map_err(failed("create a file in it"))?;
    let direct_io = trial.direct_io().map_err(failed("try direct I/O in it"))?;
    let map_sync = trial.map_sync().map_err(failed("try MAP_SYNC in it"))?;
    let untorn = trial.untorn().map_err(failed("try an untorn write in it"))?;
    drop(trial);
    let file_block_len_bytes = rustix::fs::statvfs(dir)
        .map_err(|error| failed("get the status of its file system")(error.into()))?
        .f_frsize;

    let mounts = std::fs::read_to_string(mountinfo).map_err(failed("read the list of mounts"))?;
    let mount = find_mount(&mounts, &stat);
    let device = device_number(&stat, mount.as_ref());
    let block_device = match device {
        Some((major, minor)) => {
            BlockDevice::read(sys, major, minor).map_err(failed("read about its block device"))?
        }
        None => None,
    };
    Ok(PathProbe {
        path: dir.to_owned(),
        file_system: mount.map_or_else(|| "unknown file system".into(), |mount| mount.file_system),
        map_sync,
        direct_io,
        file_block_len_bytes,
        untorn,
        block_device,
        io_uring_refused: kernel_ring::refusal().map_err(failed("try io_uring for it"))?,
    })
}

fn statx_dir(dir: &Path) -> io::Result<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    Ok(rustix::fs::statx(CWD, dir, AtFlags::empty(), wanted)?)
}

/// The mount with the directory's mount id, or otherwise the last mount of its device.
pub(super) fn find_mount(mountinfo: &str, stat: &Statx) -> Option<Mount> {
    let device = (stat.stx_dev_major, stat.stx_dev_minor);
    let mut of_device = None;
    for mount in mountinfo.lines().filter_map(parse_mount) {
        if stat.stx_mask & StatxFlags::MNT_ID.bits() != 0 && mount.mount_id == stat.stx_mnt_id {
            return Some(mount);
        }
        if mount.device == device {
            of_device = Some(mount);
        }
    }
    of_device
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
pub(super) fn parse_mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ');
    let mount_id = before.next()?.parse().ok()?;
    let (major, minor) = before.nth(1)?.split_once(':')?;
    let mut after = after.split(' ');
    Some(Mount {
        mount_id,
        device: (major.parse().ok()?, minor.parse().ok()?),
        file_system: after.next()?.to_owned(),
        source: after.next()?.to_owned(),
    })
}

/// Number of the block device under the file system. Some file systems report another number; then it is that of the
/// device they were mounted from.
fn device_number(stat: &Statx, mount: Option<&Mount>) -> Option<(u32, u32)> {
    if stat.stx_dev_major != 0 {
        return Some((stat.stx_dev_major, stat.stx_dev_minor));
    }
    let source = mount.map(|mount| Path::new(&mount.source)).filter(|source| source.starts_with("/dev"))?;
    let device = rustix::fs::statx(CWD, source, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()?;
    Some((device.stx_rdev_major, device.stx_rdev_minor)).filter(|&(major, _)| major != 0)
}

/// A file for trials. It is unlinked when [`Trial::create`] returns.
struct Trial {
    file: File,
    /// The same file, opened for direct I/O.
    direct: Result<File, io::Error>,
}

impl Trial {
    fn create(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!(".probe-{}-{:016x}", std::process::id(), fastrand::u64(..)));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let direct =
            File::options().read(true).write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&path);
        std::fs::remove_file(&path)?;
        // This says nothing about the directory.
        let direct = match direct {
            Err(error) if is_out_of_descriptors(&error) => return Err(error),
            direct => direct,
        };
        file.set_len(MAP_LEN as u64)?;
        Ok(Self { file, direct })
    }

    fn direct_io(&self) -> io::Result<DirectIo> {
        let direct = match &self.direct {
            Ok(direct) => direct,
            Err(error) if is_refusal(error) => {
                return Ok(DirectIo::Unsupported { reason: "the file system does not take O_DIRECT".into() });
            }
            Err(error) => return Err(io::Error::new(error.kind(), error.to_string())),
        };
        let stat = rustix::fs::statx(&self.file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        if let Ok(stat) = stat
            && stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0
        {
            if stat.stx_dio_offset_align == 0 {
                let reason = "this file does not support it (encrypted files do not)".into();
                return Ok(DirectIo::Unsupported { reason });
            }
            return Ok(DirectIo::Supported {
                memory_align_bytes: stat.stx_dio_mem_align,
                offset_align_bytes: stat.stx_dio_offset_align,
            });
        }
        try_direct_writes(direct)
    }

    /// Tries untorn writes to the file.
    fn untorn(&self) -> io::Result<Option<UntornLimits>> {
        self.direct.as_ref().map_or(Ok(None), |direct| untorn::find_limits(direct, Tearing::Refused))
    }

    fn map_sync(&self) -> io::Result<bool> {
        // SAFETY: a new mapping at an address of the kernel's choice. Nothing refers to it, and it is unmapped at
        // once.
        let mapped = unsafe {
            mmap(
                ptr::null_mut(),
                MAP_LEN,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
                &self.file,
                0,
            )
        };
        match mapped {
            Ok(address) => {
                // SAFETY: this is the mapping made above, to which nothing refers.
                unsafe { munmap(address, MAP_LEN)? };
                Ok(true)
            }
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NODEV) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Finds the minimum length of a direct write, for kernels that do not report it.
fn try_direct_writes(direct: &File) -> io::Result<DirectIo> {
    let buffer = AlignedBuffer::zeroed(MAP_LEN);
    for len in [512_u32, 1024, 2048, 4096] {
        match direct.write_at(&buffer.bytes()[..len as usize], 0) {
            Ok(_) => {
                return Ok(DirectIo::Supported { memory_align_bytes: len, offset_align_bytes: len });
            }
            Err(error) if is_refusal(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(DirectIo::Unsupported { reason: "no direct write of up to 4096 bytes was taken".into() })
}
