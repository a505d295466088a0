//! A tablespace file that appeared locally without the node: copied in for IMPORT TABLESPACE.
//!
//! An import reads all of it, in requests of many pages, changes every page that is not empty (tablespace id, LSN 0,
//! checksum) and writes it back. So the file is not sent when it is opened: the node gets its name, its length and
//! its first page, and the local file is read and written as on a disk until the node has every page. A page goes to
//! the node when the server writes it, as every page that no redo explains. Pages that the server did not write are
//! sent
//!
//! * when a descriptor is closed after something was written, at a sync, at an export, and when the server ends;
//! * before a page is read alone.
//!
//! Then all of it is durable at the node, and the local file becomes a stub.
//!
//! The last rule keeps images and redo in order, for every way to open the file. Redo is about a page that the buffer
//! pool has. It reads pages one by one, so such a page was read alone; or it made the page again for a segment, after
//! reading the index's root and the page with the segment's inode. Three pages are excepted, because an import reads
//! them alone too, before it writes: page 0, the root of the clustered index ([`ROOT_PAGE_NO`]), and the last page,
//! if its last request has no other. They need only be there themselves. The exceptions never cover both pages that a
//! new page needs. The inodes of the clustered index are on page 2; another index has its root and its inodes on two
//! pages, of which one at most is the last. (Of a table with ROW_FORMAT=COMPRESSED an import reads and writes one
//! page at a time: it is sent whole at the first of them, read from the node, and sent again as it is written.)
//!
//! A server that dies meanwhile leaves a part of the file on the node. A marker shows that it is not the whole file:
//! a plain file beside it ([`MARKER`]) is there from before the first page until after the last one, here and on the
//! node. A file with a marker is adopted again if it was copied in again, and cannot be opened for writing otherwise.
//!
//! The table's definition beside it goes to the node as well ([`super::definition`]).
//!
//! A damaged page that the server has not read is not sent: the node gives each page that it stores a checksum, and
//! the damage would not be detected any more. The file then stays a local one, with its marker, until it is copied
//! again; the server reads it as it is, and reports the error itself.
//!
//! A file whose first page has flags that are unknown here is not adopted: it is damaged, or of another server. It
//! stays a local file that is only read, so that the server itself reports the error.
//!
//! Invariants: a page that is not marked as sent is in the local file, and empty on the node; a page is read, sent and
//! marked under `adoption`. No lock is held for longer than [`PIECE_BYTES`] take (or the server's read of the local
//! file), and little more than [`WINDOW_BYTES`] are on their way, so others wait for no more than that. Lock order:
//! names, `adoption`, `info`, the stream.

use super::{Info, Tablespace, export::write_full};
use crate::base::message::{self, show};
use crate::base::paths::absolute;
use crate::base::real::{self, Errno};
use crate::content::Content;
use crate::content::names::NamesLock;
use redoubt_locks::IgnorePoison;
use redoubt_page::Format;
use redoubt_wire::Seq;
use redoubt_wire::stream::{FileKind, StreamFrame};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

const HEADER_BYTES: usize = 4096;
/// End of the marker's name: the marker shows that the node has a part only.
const MARKER: &[u8] = b".importing";
/// The root of the clustered index, in every file that is a table's own.
const ROOT_PAGE_NO: u64 = 3;
/// Number of bytes that are written, or searched for pages that must still be sent, under one hold of the locks:
/// whole pages of every size.
pub(super) const PIECE_BYTES: usize = 256 << 10;
/// A commit of another session waits until what was sent before it is durable.
const WINDOW_BYTES: u64 = 512 << 10;

/// A file that the node has in part.
#[derive(Debug)]
pub struct Adoption {
    /// The local file, by a descriptor of its own.
    file: OwnedFd,
    /// Path of the file when it was copied in.
    path: Vec<u8>,
    format: Format,
    /// Pages that were sent, by page number; none beyond the end.
    sent: Vec<bool>,
    /// The server has written to it.
    is_written: bool,
    /// A page that is still to be sent is damaged.
    is_damaged: bool,
}

/// Whether a file is being adopted, and how far.
#[derive(Debug, Default)]
pub struct AdoptionState {
    /// Whether there is an adoption, readable without the lock; false for nearly every file.
    is_on: AtomicBool,
    adoption: Mutex<Option<Adoption>>,
    /// It is a local file that is not adopted, only read.
    is_foreign: AtomicBool,
}

impl AdoptionState {
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.is_foreign.load(Ordering::Acquire)
    }

    /// The adoption, if there is one.
    pub(super) fn lock(&self) -> Option<MutexGuard<'_, Option<Adoption>>> {
        self.is_on().then(|| self.adoption.lock().ignore_poison())
    }

    fn set(&self, adoption: Adoption) {
        *self.adoption.lock().ignore_poison() = Some(adoption);
        self.is_on.store(true, Ordering::Release);
    }

    /// The file was emptied.
    ///
    /// # Errors
    /// That of removing the marker, or `EIO`.
    pub(super) fn cancel(&self, content: &Content) -> Result<(), Errno> {
        self.is_foreign.store(false, Ordering::Release);
        let Some(mut guard) = self.lock() else { return Ok(()) };
        if let Some(adoption) = guard.as_ref() {
            remove_marker(content, &adoption.path)?;
        }
        self.end(&mut guard);
        Ok(())
    }

    fn end(&self, guard: &mut Option<Adoption>) {
        *guard = None;
        self.is_on.store(false, Ordering::Release);
    }
}

impl Adoption {
    const fn page_size(&self) -> usize {
        self.format.physical_page_size_bytes()
    }

    /// The server wrote this, and it was sent.
    pub(super) fn written(&mut self, bytes: &[u8], offset_bytes: u64) -> Result<(), Errno> {
        write_full(self.file.as_raw_fd(), bytes, offset_bytes)?;
        self.is_written = true;
        let first = offset_bytes as usize / self.page_size();
        let end = first + bytes.len().div_ceil(self.page_size());
        if self.sent.len() < end {
            self.sent.resize(end, false);
        }
        for sent in self.sent.iter_mut().take(end).skip(first) {
            *sent = true;
        }
        Ok(())
    }

    /// Sends the pages that these bytes are of, as far as the node does not have them.
    fn send(
        &mut self,
        tablespace: &Tablespace,
        content: &Content,
        lock: &NamesLock<'_>,
        bytes: std::ops::Range<u64>,
    ) -> Result<(), Errno> {
        let size = self.page_size() as u64;
        let mut page = vec![0; self.page_size()];
        for number in bytes.start / size..bytes.end.div_ceil(size) {
            // Pages beyond the end of the file when it was copied in have been written by the server, or are empty.
            let Some(sent) = self.sent.get_mut(number as usize).filter(|sent| !**sent) else { continue };
            page.fill(0);
            read_full(self.file.as_raw_fd(), &mut page, number * size)?;
            if page.iter().any(|byte| *byte != 0) {
                let page_no = u32::try_from(number).map_err(|_| Errno(libc::EFBIG))?;
                if let Err(fault) = self.format.verify(&page) {
                    if !std::mem::replace(&mut self.is_damaged, true) {
                        message::note(&format!(
                            "page {page_no} of {}, which was copied in, is damaged: {fault}; copy the file again",
                            show(&self.path)
                        ));
                    }
                    return Err(Errno::EIO);
                }
                tablespace.send_image(content, lock, page_no, &page, page.len())?;
            }
            *sent = true;
        }
        Ok(())
    }
}

/// Tells the node about the local file behind `fd`. Its pages follow; or none do, if its flags are not known here.
///
/// # Errors
/// `EIO` when it is a tablespace file that cannot be sent.
pub fn begin(
    content: &Content,
    lock: &NamesLock<'_>,
    fd: RawFd,
    path: &[u8],
    tablespace: &Tablespace,
) -> Result<(), Errno> {
    let status = real::status(fd)?;
    let mut header = vec![0; HEADER_BYTES];
    let header_len = read_full(fd, &mut header, 0)?;
    header.truncate(header_len);
    let format = match Format::of_page0(content.family, &header) {
        Ok(format) => format,
        Err(error) => {
            // The server reports the error itself, and ends the operation.
            message::note(&format!("{} was copied in, and is only read: {error}", show(path)));
            tablespace.adoption.is_foreign.store(true, Ordering::Release);
            return Ok(());
        }
    };
    tablespace.adoption.is_foreign.store(false, Ordering::Release);
    if header.iter().all(|byte| *byte == 0) {
        // The node could not identify these pages, and would stop.
        message::error(&format!("{} was copied in, but its first page is empty; copy it again", show(path)));
        return Err(Errno::EIO);
    }
    let page_size = format.physical_page_size_bytes();
    if page_size == 0 {
        message::error(&format!("{} was copied in, but its flags name no page size", show(path)));
        return Err(Errno::EIO);
    }
    message::note(&format!(
        "{} is not known to the storage node ({} bytes, copied in from outside); sending it",
        show(path),
        status.len_bytes
    ));
    let page_count =
        usize::try_from(status.len_bytes.div_ceil(page_size as u64)).map_err(|_| Errno(libc::EFBIG))?;
    make_marker(content, path)?;
    if let Some(end) = super::definition::send(content, lock, path)? {
        tablespace.sent(end);
    }
    let mut adoption = Adoption {
        file: real::reopen(fd)?,
        path: path.to_vec(),
        format,
        sent: vec![false; page_count],
        is_written: false,
        is_damaged: false,
    };
    content.stream.append(&StreamFrame::Create { path, kind: FileKind::Tablespace, mode: status.mode })?;
    tablespace.sent(content.stream.append(&StreamFrame::SetLen { path, len_bytes: status.len_bytes })?);
    tablespace.cut_cache(content, 0);
    tablespace.forget_content(content);
    // If the node had a part of it before, it was another file.
    *tablespace.lock_info() = Info { format: Some(format), ..Info::default() };
    adoption.send(tablespace, content, lock, 0..1)?;
    if !tablespace.look_up(content, lock, false)? {
        message::error(&format!("{} was sent, but the storage node does not have it", show(path)));
        return Err(Errno::EIO);
    }
    tablespace.adoption.set(adoption);
    Ok(())
}

fn marker(content: &Content, path: &[u8]) -> Result<(Vec<u8>, CString), Errno> {
    let marker = [path, MARKER].concat();
    let local = absolute(&content.datadir, &marker)?;
    Ok((marker, local))
}

fn make_marker(content: &Content, path: &[u8]) -> Result<(), Errno> {
    const MODE: u32 = 0o660;
    let (marker, local) = marker(content, path)?;
    let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC;
    real::close_file(real::open_file(&local, flags, MODE)?)?;
    let frame = StreamFrame::Create { path: &marker, kind: FileKind::Plain, mode: MODE };
    content.stream.append(&frame).map(|_| ())
}

/// The node has all of the file at `path`, or nothing. The caller holds the names.
///
/// # Errors
/// That of the local call, or `EIO`.
pub fn remove_marker(content: &Content, path: &[u8]) -> Result<(), Errno> {
    let (marker, local) = marker(content, path)?;
    match real::remove_file(&local) {
        Ok(()) => content.stream.append(&StreamFrame::Unlink { path: &marker }).map(|_| ()),
        // The name of the file is too long for a marker, so the marker was never made.
        Err(Errno(libc::ENOENT | libc::ENAMETOOLONG)) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The node has a part only of the file at `path`.
///
/// # Errors
/// `EINVAL` for a path with a NUL byte.
pub fn is_marked(content: &Content, path: &[u8]) -> Result<bool, Errno> {
    Ok(real::status_of(&marker(content, path)?.1).is_ok())
}

impl Tablespace {
    /// Decides, before the file behind `fd`, which the node has, is used for writing, whether it must be adopted
    /// (again).
    ///
    /// # Errors
    /// `EIO` for a file of which only a part is left.
    pub(super) fn must_be_adopted(&self, content: &Content, fd: RawFd, path: &[u8]) -> Result<bool, Errno> {
        if self.adoption.is_on() {
            return self.is_copied_again(fd);
        }
        if !is_marked(content, path)? {
            return Ok(false);
        }
        if real::has_data(fd)? {
            return Ok(true);
        }
        message::error(&format!(
            "{}: the server ended while it was imported, and only a part of it is left; copy it into the data \
             directory again, then import it",
            show(path)
        ));
        Err(Errno::EIO)
    }

    /// Reads from the local file, if it is being adopted and stays so.
    ///
    /// # Errors
    /// That of the local call, or `EIO`.
    pub(super) fn read_adopted(
        &self,
        content: &Content,
        out: &mut [u8],
        offset_bytes: u64,
        file_len_bytes: u64,
    ) -> Result<Option<usize>, Errno> {
        let is_alone = out.len() <= content.page_size_bytes as usize;
        let is_last = offset_bytes + out.len() as u64 >= file_len_bytes;
        if is_alone && !is_last && !self.is_looked_at_by_imports(content, offset_bytes) && !self.is_damaged()
        {
            match self.finish_adoption(content) {
                Ok(()) => return Ok(None),
                // An error would end the server; it reports the damaged page itself.
                Err(_) if self.is_damaged() => {}
                Err(errno) => return Err(errno),
            }
        }
        let lock = content.names.lock_shared();
        let Some(mut guard) = self.adoption.lock() else { return Ok(None) };
        let Some(adoption) = guard.as_mut() else { return Ok(None) };
        if is_alone && !adoption.is_damaged {
            let bytes = offset_bytes..offset_bytes + out.len() as u64;
            match adoption.send(self, content, &lock, bytes) {
                Err(_) if adoption.is_damaged => {}
                sent => sent?,
            }
        }
        read_full(adoption.file.as_raw_fd(), out, offset_bytes).map(Some)
    }

    /// Page 0 or the root of the clustered index.
    fn is_looked_at_by_imports(&self, content: &Content, offset_bytes: u64) -> bool {
        let root_offset_bytes = self.page_size(content).map(|size| size as u64 * ROOT_PAGE_NO);
        offset_bytes == 0 || Some(offset_bytes) == root_offset_bytes
    }

    /// Waits until others need not wait for long when they wait for what was sent so far.
    ///
    /// # Errors
    /// `EIO` when the stream is dead.
    pub(super) fn keep_window(&self, content: &Content) -> Result<(), Errno> {
        let end = self.unsynced.load(Ordering::Acquire);
        content.stream.wait_durable(Seq(end.saturating_sub(WINDOW_BYTES)))
    }

    /// Completes an adoption in progress: the node gets all of the file, durably, and the local file becomes a stub.
    ///
    /// # Errors
    /// `EIO` when the stream is dead or a page is damaged; that of reading the local file.
    pub fn finish_adoption(&self, content: &Content) -> Result<(), Errno> {
        let mut at = 0;
        loop {
            let lock = content.names.lock_shared();
            let Some(mut guard) = self.adoption.lock() else { return Ok(()) };
            let Some(adoption) = guard.as_mut() else { return Ok(()) };
            if at >= adoption.sent.len() as u64 * adoption.page_size() as u64 {
                break;
            }
            adoption.send(self, content, &lock, at..at + PIECE_BYTES as u64)?;
            drop(guard);
            drop(lock);
            at += PIECE_BYTES as u64;
            self.keep_window(content)?;
        }
        // Only then may the local content go: until it is durable it is the only copy.
        content.stream.wait_durable(Seq(self.unsynced.load(Ordering::Acquire)))?;
        let Some(mut guard) = self.adoption.lock() else { return Ok(()) };
        let Some(adoption) = guard.as_ref() else { return Ok(()) };
        let fd = adoption.file.as_raw_fd();
        // The length stays, also for a moment: reads go by it.
        if let Err(errno) = real::punch_hole(fd, real::status(fd)?.len_bytes) {
            message::note(&format!("the local copy of an imported tablespace keeps its room: {errno}"));
        }
        let path = adoption.path.clone();
        self.adoption.end(&mut guard);
        drop(guard);
        let _lock = content.names.lock_shared();
        remove_marker(content, &path)
    }

    /// A descriptor of the file was closed. After an import has written to it there is nothing left to wait for;
    /// after descriptors that only read, a writing one will follow.
    pub fn closed(&self, content: &Content) {
        let is_written = self
            .adoption
            .lock()
            .is_some_and(|guard| guard.as_ref().is_some_and(|adoption| adoption.is_written));
        if is_written
            && let Err(errno) = self.finish_adoption(content)
            && !self.is_damaged()
        {
            message::error(&format!("an imported tablespace cannot be sent to the storage node: {errno}"));
        }
    }

    /// A page that the node does not have yet is damaged: it never gets the file.
    pub(super) fn is_damaged(&self) -> bool {
        self.adoption.lock().is_some_and(|guard| guard.as_ref().is_some_and(|adoption| adoption.is_damaged))
    }

    /// `fd` is another local file than the one that is being adopted: it was copied again.
    fn is_copied_again(&self, fd: RawFd) -> Result<bool, Errno> {
        let Some(guard) = self.adoption.lock() else { return Ok(false) };
        let Some(adoption) = guard.as_ref() else { return Ok(false) };
        Ok(real::identity(fd)? != real::identity(adoption.file.as_raw_fd())?)
    }
}

/// Reads until the buffer is full or the file ends.
pub(super) fn read_full(fd: RawFd, buffer: &mut [u8], offset_bytes: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match real::read_at(fd, rest, offset_bytes + done as u64) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(Errno(libc::EINTR)) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}
