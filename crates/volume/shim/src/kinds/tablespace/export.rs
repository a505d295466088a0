//! `FLUSH TABLES ... FOR EXPORT`: as long as the server lets a tablespace file be copied, the local file holds its
//! pages.
//!
//! The server writes `t.cfg` when all pages of `t.ibd` are written and nothing changes them any more, and removes it at
//! `UNLOCK TABLES`. So the stub is filled when `t.cfg` is closed, before the statement returns. After `t.cfg` is
//! removed the file stays good until the next page is written, as it would on a disk, and is a stub again from then on.
//! Reads and writes of the server go to the node as always, so the content of the file never matters to it. If the
//! server dies in between, the next start makes the remaining file a stub again.

use super::{Tablespace, Tablespaces};
use crate::base::message::{self, show};
use crate::base::paths::absolute;
use crate::base::real::{self, Errno};
use crate::content::Content;
use redoubt_wire::page::MAX_READ_LEN_BYTES;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A file was written through stdio and closed.
///
/// # Errors
/// `EIO` when the node cannot answer; that of writing the local file.
pub fn metadata_written(content: &Content, tablespaces: &Tablespaces, path: &[u8]) -> Result<(), Errno> {
    let Some((tablespace_path, tablespace)) = tablespace_of(tablespaces, path) else { return Ok(()) };
    tablespace.fill_locally(content, &tablespace_path).inspect_err(|errno| {
        message::error(&format!("{} cannot be filled for export: {errno}", show(&tablespace_path)));
    })
}

/// A plain file was deleted.
pub fn metadata_removed(tablespaces: &Tablespaces, path: &[u8]) {
    if let Some((_, tablespace)) = tablespace_of(tablespaces, path) {
        tablespace.local_content.unlocked();
    }
}

/// State of a tablespace's local file.
#[derive(Debug, Default)]
pub struct LocalContent(AtomicU8);

/// A stub.
const NOTHING: u8 = 0;
/// Pages, which another process may be copying.
const LOCKED: u8 = 1;
/// Pages, as long as none is written.
const UNLOCKED: u8 = 2;

impl LocalContent {
    fn unlocked(&self) {
        // Nothing to do where it is not locked.
        let _ = self.0.compare_exchange(LOCKED, UNLOCKED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The server wrote pages.
    pub fn written(&self, fd: RawFd, bytes: &[u8], offset_bytes: u64) {
        let result = match self.0.load(Ordering::Acquire) {
            NOTHING => return,
            LOCKED => write_full(fd, bytes, offset_bytes),
            _ if self.0.compare_exchange(UNLOCKED, NOTHING, Ordering::AcqRel, Ordering::Acquire).is_err() => {
                return;
            }
            _ => real::status(fd).and_then(|status| real::punch_hole(fd, status.len_bytes)),
        };
        if let Err(errno) = result {
            message::note(&format!("the local copy of an exported tablespace is not up to date: {errno}"));
        }
    }
}

/// The tablespace that `t.cfg` describes, if the server has it open.
fn tablespace_of(tablespaces: &Tablespaces, path: &[u8]) -> Option<(Vec<u8>, Arc<Tablespace>)> {
    let path = tablespace_path(path)?;
    let tablespace = tablespaces.files.known(&path)?;
    Some((path, tablespace))
}

fn tablespace_path(path: &[u8]) -> Option<Vec<u8>> {
    Some([path.strip_suffix(b".cfg")?, b".ibd"].concat())
}

fn open_locally(content: &Content, path: &[u8]) -> Result<OwnedFd, Errno> {
    let fd = real::open_file(&absolute(&content.datadir, path)?, libc::O_RDWR | libc::O_CLOEXEC, 0)?;
    // SAFETY: the descriptor was just opened and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Tablespace {
    fn fill_locally(&self, content: &Content, path: &[u8]) -> Result<(), Errno> {
        // First, because the file is filled from the node below.
        self.finish_adoption(content)?;
        // The node hides what is not durable.
        content.stream.wait_durable(content.stream.end())?;
        let file = open_locally(content, path)?;
        let fd = file.as_raw_fd();
        let len_bytes = real::status(fd)?.len_bytes;
        // Content of an earlier export. The length must not change, not even for a moment: reads depend on it.
        let is_empty = real::punch_hole(fd, len_bytes).is_ok();
        self.local_content.0.store(LOCKED, Ordering::Release);
        let mut buffer = vec![0; MAX_READ_LEN_BYTES as usize];
        let mut at = 0;
        while at < len_bytes {
            let len = self.read(content, fd, &mut buffer, at)?;
            if len == 0 {
                break;
            }
            let bytes = buffer.get(..len).ok_or(Errno::EIO)?;
            if !is_empty || bytes.iter().any(|byte| *byte != 0) {
                write_full(fd, bytes, at)?;
            }
            at += len as u64;
        }
        Ok(())
    }
}

pub(super) fn write_full(fd: RawFd, bytes: &[u8], offset_bytes: u64) -> Result<(), Errno> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match real::write_at(fd, rest, offset_bytes + done as u64) {
            Ok(len) => done += len,
            Err(Errno(libc::EINTR)) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_beside_a_description() {
        assert_eq!(tablespace_path(b"shop/t.cfg").as_deref(), Some(&b"shop/t.ibd"[..]));
        assert_eq!(tablespace_path(b"shop/t#P#p0.cfg").as_deref(), Some(&b"shop/t#P#p0.ibd"[..]));
        assert_eq!(tablespace_path(b"shop/t.cfg.saved"), None);
        assert_eq!(tablespace_path(b"shop/t.frm"), None);
    }
}
