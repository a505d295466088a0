//! Mounting a file system in user space, and serving it.
//!
//! In a namespace of its own ([`super::namespace`]) this is a system call; each user in there can access the files
//! that the permission bits allow. Elsewhere `fusermount3` (package fuse3) does it, for its user only. Requests are
//! answered by [`THREADS`] threads of a [`fuser::Session`], each of which takes one, answers it, and takes the next.

use super::files::Files;
use super::requests::Requests;
use fuser::{Config, Session, SessionACL};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

const THREADS: usize = 8;
const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
const FILE_SYSTEM: &str = "fuse.redoubt";
/// Maximum number of bytes of a file in one request or reply.
pub(super) const MAX_TRANSFER_BYTES: u32 = 1 << 20;

/// Error of mounting or serving a view.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The system cannot take such a path.
    #[error("a path has a zero byte in it")]
    ZeroByte,
    /// The host lacks the device, or this process may not open it.
    #[error(
        "cannot open {DEVICE}: {0}; a view of a volume is a file system in user space: `modprobe fuse`, or give the \
         container this device"
    )]
    NoDevice(std::io::Error),
    /// The system refused the mount.
    #[error("cannot mount a view on {}: {source}", directory.display())]
    Refused {
        /// The mount point.
        directory: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The helper is missing.
    #[error("cannot start {HELPER}: {0}; install it (package fuse3), or run this as the super-user")]
    NoHelper(std::io::Error),
    /// The helper failed, with a message on standard error.
    #[error("{HELPER} could not mount a view on {}; see its messages above", .0.display())]
    HelperFailed(PathBuf),
    /// The helper did not send the open device.
    #[error("cannot receive the device from {HELPER}: {0}; run this as the super-user")]
    HelperSilent(std::io::Error),
    /// The kernel speaks another version, or there can be no thread.
    #[error("cannot serve a view: {0}")]
    Serve(std::io::Error),
}

type Result<T> = std::result::Result<T, MountError>;

/// A directory with a file system mounted on it; unmounted when this goes, or with its namespace.
pub struct Mount {
    directory: PathBuf,
    /// `None` once it is served.
    device: Option<OwnedFd>,
    in_namespace: bool,
}

impl Mount {
    /// Mounts. `name` is shown as what is mounted. Calls on the directory block until [`Mount::serve`].
    ///
    /// # Errors
    /// All but [`MountError::Serve`].
    pub fn new(directory: &Path, name: &str, in_namespace: bool) -> Result<Self> {
        let device = if in_namespace { mount(directory, name)? } else { mount_by_helper(directory, name)? };
        Ok(Self { directory: directory.to_owned(), device: Some(device.into()), in_namespace })
    }

    /// Answers requests until the file system is unmounted. Returns when the kernel and `fuser` have agreed on a
    /// version. The threads have the capabilities that the calling thread has now.
    ///
    /// # Errors
    /// [`MountError::Serve`].
    pub fn serve(&mut self, files: Files) -> Result<()> {
        let Some(device) = self.device.take() else { return Ok(()) };
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        // The kernel compares users with owners and permission bits.
        let session = Session::from_fd(Requests(files), device, SessionACL::All, config);
        let session = session.map_err(MountError::Serve)?;
        let run = move || session.run();
        std::thread::Builder::new().name("files".to_owned()).spawn(run).map_err(MountError::Serve)?;
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.in_namespace {
            unmount(&self.directory);
        }
    }
}

fn c_string(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| MountError::ZeroByte)
}

fn mount(directory: &Path, name: &str) -> Result<File> {
    let device = File::options().read(true).write(true).open(DEVICE).map_err(MountError::NoDevice)?;
    let (user, group) = own_ids();
    let options = format!(
        "fd={},rootmode=40000,user_id={user},group_id={group},default_permissions,allow_other,max_read={}",
        device.as_raw_fd(),
        MAX_TRANSFER_BYTES
    );
    let (source, target) = (c_string(name.as_bytes())?, c_string(directory.as_os_str().as_bytes())?);
    let (kind, options) = (c_string(FILE_SYSTEM.as_bytes())?, c_string(options.as_bytes())?);
    // SAFETY: all pointers are to strings with a zero at their end that live until it returns.
    let status = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV,
            options.as_ptr().cast(),
        )
    };
    if status == 0 {
        return Ok(device);
    }
    let source = std::io::Error::last_os_error();
    Err(MountError::Refused { directory: directory.to_owned(), source })
}

/// User and group of this process.
pub fn own_ids() -> (u32, u32) {
    // SAFETY: no arguments, cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

fn mount_by_helper(directory: &Path, name: &str) -> Result<File> {
    let (ours, theirs) = UnixStream::pair().map_err(MountError::NoHelper)?;
    // It must live on in the helper.
    let theirs = OwnedFd::from(theirs);
    let number = theirs.as_raw_fd();
    // SAFETY: a descriptor that is open; no pointers.
    unsafe { libc::fcntl(number, libc::F_SETFD, 0) };
    let comma_free = name.replace(',', "_");
    let status = Command::new(HELPER)
        .arg("-o")
        .arg(format!(
            "nosuid,nodev,default_permissions,fsname={comma_free},subtype=redoubt,max_read={}",
            MAX_TRANSFER_BYTES
        ))
        .arg("--")
        .arg(directory)
        .env("_FUSE_COMMFD", number.to_string())
        .status();
    drop(theirs);
    match status {
        Ok(status) if status.success() => receive_descriptor(&ours),
        Ok(_) => Err(MountError::HelperFailed(directory.to_owned())),
        Err(error) => Err(MountError::NoHelper(error)),
    }
}

/// The descriptor that the helper sends.
fn receive_descriptor(socket: &UnixStream) -> Result<File> {
    let mut byte = [0u8; 1];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // Room for one descriptor with its header, with the required alignment.
    let mut control = [0u64; 8];
    // SAFETY: all zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the message and what it points to live until it returns.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if len < 0 {
        return Err(MountError::HelperSilent(std::io::Error::last_os_error()));
    }
    // SAFETY: the message was filled by recvmsg; the header is null or lies in `control`.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() };
    match header {
        Some(header) if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS => {
            // SAFETY: such a message carries at least one descriptor, and it is this process's now.
            Ok(unsafe {
                let number = libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned();
                File::from_raw_fd(number)
            })
        }
        _ => Err(MountError::HelperSilent(std::io::ErrorKind::UnexpectedEof.into())),
    }
}

/// Takes away what the helper mounted there, in use or not.
pub fn unmount(directory: &Path) {
    let _ = Command::new(HELPER).args(["-u", "-z", "-q", "--"]).arg(directory).status();
}

/// True for the rest of a view whose process was killed: every call on it fails.
pub fn is_dead_mount(directory: &Path) -> bool {
    // Not its attributes: the kernel keeps those of a snapshot for long.
    std::fs::read_dir(directory).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
}
