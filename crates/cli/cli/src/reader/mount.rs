//! Mounting a file system in user space, and serving it.
//!
//! In a namespace of its own ([`super::namespace`]) this is a system call; each user in there can access the files
//! that the permission bits allow. Elsewhere `fusermount3` (package fuse3) does it, for its user only. Requests are
//! answered by [`THREADS`] threads, each of which takes one, answers it, and takes the next.

use super::files::Files;
use super::protocol::{self, Answer, Operation, REQUEST_ROOM_BYTES};
use crate::error::{CliError, Result};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const THREADS: usize = 8;
const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
const FILE_SYSTEM: &str = "fuse.redoubt";

/// A directory with a file system mounted on it; unmounted when this goes, or with its namespace.
pub struct Mount {
    directory: PathBuf,
    device: Arc<File>,
    in_namespace: bool,
}

impl Mount {
    /// Mounts. `name` is shown as what is mounted.
    ///
    /// # Errors
    /// [`CliError::Usage`] if this host cannot.
    pub fn new(directory: &Path, name: &str, in_namespace: bool) -> Result<Self> {
        let device = if in_namespace { mount(directory, name)? } else { mount_by_helper(directory, name)? };
        Ok(Self { directory: directory.to_owned(), device: Arc::new(device), in_namespace })
    }

    /// Answers requests until the file system is unmounted. Returns at once.
    ///
    /// # Errors
    /// [`CliError::Io`] if there can be no thread.
    pub fn serve(&self, files: &Arc<Files>) -> Result<()> {
        for number in 0..THREADS {
            let (device, files) = (Arc::clone(&self.device), Arc::clone(files));
            std::thread::Builder::new()
                .name(format!("files-{number}"))
                .spawn(move || serve(&device, &files))
                .map_err(|error| CliError::io("start", "a thread", error))?;
        }
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

fn serve(device: &File, files: &Files) {
    let mut room = vec![0; REQUEST_ROOM_BYTES];
    loop {
        let len = match (&mut &*device).read(&mut room) {
            Ok(len) => len,
            // A request that was taken back before it could be read; a signal.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR | libc::EAGAIN)) => {
                continue;
            }
            Err(_) => return,
        };
        let Some(request) = room.get(..len).and_then(protocol::decode) else {
            complain!("redoubt: unknown request of the kernel on {DEVICE}");
            continue;
        };
        // Without an answer, the calling process would wait for ever, and could not even be killed.
        let answer = catch_unwind(AssertUnwindSafe(|| files.answer(&request)))
            .unwrap_or_else(|_| Some(Answer::error(request.unique, libc::EIO).finish()));
        if let Some(answer) = answer {
            // It fails for an interrupted request, and after the end.
            let _ = (&mut &*device).write_all(&answer);
        }
        if request.operation == Operation::End {
            return;
        }
    }
}

fn c_string(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| CliError::Usage("a path has a zero byte in it".to_owned()))
}

fn mount(directory: &Path, name: &str) -> Result<File> {
    let device = File::options().read(true).write(true).open(DEVICE).map_err(no_device)?;
    let (user, group) = own_ids();
    let options = format!(
        "fd={},rootmode=40000,user_id={user},group_id={group},default_permissions,allow_other,max_read={}",
        device.as_raw_fd(),
        protocol::MAX_TRANSFER_BYTES
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
    Err(CliError::io("mount a view on", directory, std::io::Error::last_os_error()))
}

fn no_device(error: std::io::Error) -> CliError {
    CliError::Usage(format!(
        "cannot open {DEVICE}: {error}; a view of a volume is a file system in user space: `modprobe fuse`, or give \
         the container this device"
    ))
}

/// User and group of this process.
pub fn own_ids() -> (u32, u32) {
    // SAFETY: no arguments, cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

fn mount_by_helper(directory: &Path, name: &str) -> Result<File> {
    let failed = |error| CliError::io("start", HELPER, error);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
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
            protocol::MAX_TRANSFER_BYTES
        ))
        .arg("--")
        .arg(directory)
        .env("_FUSE_COMMFD", number.to_string())
        .status();
    drop(theirs);
    match status {
        Ok(status) if status.success() => receive_descriptor(&ours),
        Ok(_) => Err(CliError::Usage(format!(
            "{HELPER} could not mount a view on {}; see its messages above",
            directory.display()
        ))),
        Err(error) => Err(CliError::Usage(format!(
            "cannot start {HELPER}: {error}; install it (package fuse3), or run this as the super-user"
        ))),
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
    let failed = |error| CliError::io("hear from", HELPER, error);
    if len < 0 {
        return Err(failed(std::io::Error::last_os_error()));
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
        _ => Err(failed(std::io::ErrorKind::UnexpectedEof.into())),
    }
}

/// Takes away what the helper mounted there, in use or not.
pub fn unmount(directory: &Path) {
    let _ = Command::new(HELPER).args(["-u", "-z", "-q", "--"]).arg(directory).status();
}

/// True for the rest of a view whose process was killed: every call on it fails.
pub fn is_dead_mount(directory: &Path) -> bool {
    std::fs::metadata(directory).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
}
