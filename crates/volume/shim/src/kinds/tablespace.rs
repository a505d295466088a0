//! Tablespace files: reads come from the node, writes are dropped when redo explains them.
//!
//! The local file is a sparse stub of the right length. Whether a page write may be dropped is decided page by
//! page, in this order; the first rule that holds counts:
//!
//! 1. The page carries an encryption key version, and the node may not hold such pages in clear: refused.
//! 2. Its page LSN is the end LSN of the last mini-transaction in the stream that changed it: dropped, unless the node
//!    requests it ([`wanted`]).
//! 3. It is all zero (scrubbing of a freed page, or extension by writing zeros): dropped, and if the page is free,
//!    the node gets a request to scrub it ([`scrub`]).
//! 4. It lies in the doublewrite area: dropped.
//! 5. Its LSN is from before this session (redone by the server's own recovery) and the node's version is as new
//!    or newer: dropped; a tablespace's page 0 is kept for reads ([`recovery`]).
//! 6. Otherwise it is sent as an image, or refused if it is encrypted: the node could not read it.
//!
//! Rule 1 does not hold for the doublewrite area, where pages of other formats lie. An encrypted page is not compared
//! with the node's, which is in clear.
//!
//! Writes to a file after its deletion have no reader and are dropped.
//!
//! Invariant: nothing is dropped on any other ground, and a page's slot in the need table is raised before the
//! write returns, so a later read gets at least this version.

pub mod adopt;
mod cached;
mod classify_page;
mod definition;
mod doublewrite;
mod encrypted;
pub mod export;
mod known;
mod recovery;
mod scrub;
mod wanted;

use crate::base::message::{self, show};
use crate::base::paths::absolute;
use crate::base::real::{self, Errno};
use crate::content::Content;
use crate::content::names::{FilesByPath, Name, Named, NamesLock};
use crate::content::read_ahead::Detector;
use crate::content::verify::DroppedPage;
use adopt::{AdoptionState, PIECE_BYTES};
use cached::Cached;
use classify_page::{PageFacts, facts};
use export::LocalContent;
use recovery::KeptHeader;
use redoubt_locks::IgnorePoison;
use redoubt_page::doublewrite::DoublewriteArea;
use redoubt_page::{Format, layout, mysql};
use redoubt_redo::{Family, Lsn, PageId, SpaceId};
use redoubt_wire::Seq;
use redoubt_wire::page::{FileId, MAX_READ_LEN_BYTES, PageReply, PageRequest};
use redoubt_wire::stream::{Counter, FileKind, StreamFrame};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// State of a tablespace file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Info {
    /// The node's number of the file.
    pub file: Option<FileId>,
    /// Tablespace id.
    pub space: Option<SpaceId>,
    /// Format of its pages.
    pub format: Option<Format>,
    /// Page number of the file's first page inside the tablespace.
    pub first_page_no: u32,
    /// Tablespace id in the page 0 that was written last.
    pub space_of_page0: Option<SpaceId>,
}

/// All known files of InnoDB pages.
pub struct Tablespaces {
    /// Files by path.
    pub files: FilesByPath<Tablespace>,
    family: Family,
    system_files: Vec<Vec<u8>>,
}

impl Tablespaces {
    /// A table without files. `system_files`: relative paths of the system tablespace's files.
    pub fn new(family: Family, system_files: Vec<Vec<u8>>) -> Self {
        Self { files: FilesByPath::default(), family, system_files }
    }

    fn at(&self, path: &[u8]) -> Arc<Tablespace> {
        self.files.at(path, || Tablespace::new(self.family, &self.system_files, path))
    }
}

impl Named for Tablespace {
    fn name(&self) -> &Name {
        &self.name
    }
}

/// A file of InnoDB pages.
#[derive(Debug)]
pub struct Tablespace {
    /// Path of the file.
    pub name: Name,
    /// Number of this file in this process; never used again.
    number: u64,
    /// It is the first file of the system tablespace, which holds the doublewrite area.
    is_first_system_file: bool,
    /// Its page size is `innodb_page_size`, always (system and undo tablespaces).
    has_server_page_size: bool,
    info: Mutex<Info>,
    doublewrite: Mutex<Option<DoublewriteArea>>,
    /// Held while the length changes.
    length: Mutex<()>,
    /// Position after the last frame of this file that is not redo.
    unsynced: AtomicU64,
    /// Content of the local file.
    local_content: LocalContent,
    /// The node does not have all of it yet.
    adoption: AdoptionState,
    /// Runs of sequential reads.
    readers: Mutex<Detector>,
    /// Page 0 as the server's recovery wrote it last, if the node's is newer.
    kept_header: KeptHeader,
}

impl Tablespace {
    /// The file at `path`.
    fn new(family: Family, system_files: &[Vec<u8>], path: &[u8]) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let is_system = system_files.iter().any(|file| file == path);
        let is_undo = crate::base::classify::is_undo(family, path);
        Self {
            name: Name::new(path),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            is_first_system_file: system_files.first().is_some_and(|file| file == path),
            has_server_page_size: is_system || is_undo,
            info: Mutex::new(Info { space: is_system.then_some(SpaceId(0)), ..Info::default() }),
            doublewrite: Mutex::default(),
            length: Mutex::default(),
            unsynced: AtomicU64::new(0),
            local_content: LocalContent::default(),
            adoption: AdoptionState::default(),
            readers: Mutex::default(),
            kept_header: KeptHeader::default(),
        }
    }

    fn lock_info(&self) -> MutexGuard<'_, Info> {
        self.info.lock().ignore_poison()
    }

    /// Remembers that a frame of this file is to be waited for by the next sync.
    pub fn sent(&self, end: Seq) {
        self.unsynced.fetch_max(end.0, Ordering::AcqRel);
    }

    /// Asks the node about the file, unless everything is known. `false`: the node does not have it.
    ///
    /// # Errors
    /// `EIO` when the node cannot answer.
    pub fn look_up(&self, content: &Content, lock: &NamesLock<'_>, need_flags: bool) -> Result<bool, Errno> {
        let mut info = self.lock_info();
        // Without the flags the node does not know the page size, which the first page number of a later file depends
        // on.
        let need_flags = need_flags || info.first_page_no > 0;
        if info.file.is_some() && (info.format.is_some() || !need_flags) {
            return Ok(true);
        }
        // An unlinked file keeps the number it has; without one there is nothing to read.
        let Some(path) = self.name.path(lock) else { return Ok(info.file.is_some()) };
        let request = PageRequest::Open { need: content.stream.end(), path: &path };
        content.pool.request(&request, |reply| match reply {
            PageReply::Opened { file, space, space_flags, first_page_no, .. } => {
                info.file = Some(file);
                info.first_page_no = first_page_no;
                info.space = info.space.or(space);
                let format = |flags| Format { family: content.family, flags };
                info.format = info.format.or(space_flags.map(format));
                Ok(true)
            }
            PageReply::NotFound => Ok(false),
            other => {
                message::error(&format!("unexpected answer to opening {}: {other:?}", show(&path)));
                Err(Errno::EIO)
            }
        })?
    }

    /// Size of a page in the file, in bytes; `None` while it is unknown.
    fn page_size(&self, content: &Content) -> Option<usize> {
        if self.has_server_page_size {
            return Some(content.page_size_bytes as usize);
        }
        let size = self.lock_info().format?.physical_page_size_bytes();
        (size > 0).then_some(size)
    }

    /// Reads bytes of the file.
    ///
    /// # Errors
    /// `EIO` when the node cannot answer.
    pub fn read(
        &self,
        content: &Content,
        fd: RawFd,
        buffer: &mut [u8],
        offset_bytes: u64,
    ) -> Result<usize, Errno> {
        let file_len = real::status(fd)?.len_bytes;
        let wanted = (buffer.len() as u64).min(file_len.saturating_sub(offset_bytes)) as usize;
        if wanted == 0 {
            return Ok(0);
        }
        let out = buffer.get_mut(..wanted).ok_or(Errno::EIO)?;
        if self.adoption.is_foreign() {
            return adopt::read_full(fd, out, offset_bytes);
        }
        if self.adoption.is_on()
            && let Some(len) = self.read_adopted(content, out, offset_bytes, file_len)?
        {
            return Ok(len);
        }
        if self.lock_info().file.is_none() && !self.look_up(content, &content.names.lock_shared(), false)? {
            message::error("a tablespace file is read that the storage node does not have");
            return Err(Errno::EIO);
        }
        let asked = self.asked_page(content, offset_bytes, wanted);
        let cached = self.look_into_cache(content, offset_bytes, out, file_len)?;
        // Page 0 is never cached, so the kept header does not matter.
        if matches!(cached, Cached::Hit) {
            self.note_read(content, asked, out);
            return Ok(wanted);
        }
        let need = self.need_of(content, offset_bytes, wanted);
        let Some(file) = self.lock_info().file else { return Err(Errno::EIO) };
        let mut at = offset_bytes;
        for piece in out.chunks_mut(MAX_READ_LEN_BYTES as usize) {
            let len_bytes = piece.len() as u32;
            let request = PageRequest::Read { need, file, offset_bytes: at, len_bytes };
            let is_complete = content.pool.request(&request, |reply| match reply {
                PageReply::Bytes(bytes) if bytes.len() == piece.len() => {
                    piece.copy_from_slice(bytes);
                    true
                }
                _ => false,
            })?;
            if !is_complete {
                message::error(&format!(
                    "the storage node's answer to a read of {len_bytes} bytes at {at} is wrong"
                ));
                return Err(Errno::EIO);
            }
            at += u64::from(len_bytes);
            content.counters.add(Counter::PageReads, 1);
            content.counters.add(Counter::PageBytesRead, u64::from(len_bytes));
        }
        if offset_bytes == 0 {
            self.require_key(content, out)?;
        }
        self.note_read(content, asked, out);
        cached.keep(content, out);
        self.kept_header.lay_over(out, offset_bytes);
        Ok(wanted)
    }

    /// How new the bytes must be. One page: as new as when the server wrote it last. Anything else, and page 0
    /// (read when a file is opened, also while the page is in the buffer pool): everything so far.
    fn need_of(&self, content: &Content, offset_bytes: u64, len_bytes: usize) -> Seq {
        match self.single_page(content, offset_bytes, len_bytes) {
            Some(page_no) => content.need.get(self.number, page_no),
            None => content.stream.end(),
        }
    }

    /// The page that these bytes are, if they are exactly one, and not page 0.
    fn single_page(&self, content: &Content, offset_bytes: u64, len_bytes: usize) -> Option<u32> {
        let size = self.page_size(content)? as u64;
        let is_one = size == len_bytes as u64 && offset_bytes > 0 && offset_bytes.is_multiple_of(size);
        if is_one { u32::try_from(offset_bytes / size).ok() } else { None }
    }

    /// The server wrote pages.
    ///
    /// # Errors
    /// `EIO` when they can neither be dropped nor sent.
    pub fn write(&self, content: &Content, fd: RawFd, bytes: &[u8], offset_bytes: u64) -> Result<(), Errno> {
        self.require_writable()?;
        if !self.adoption.is_on() {
            return self.write_held(content, fd, bytes, offset_bytes);
        }
        for (piece, at) in bytes.chunks(PIECE_BYTES).zip((offset_bytes..).step_by(PIECE_BYTES)) {
            self.write_held(content, fd, piece, at)?;
            self.keep_window(content)?;
        }
        Ok(())
    }

    fn require_writable(&self) -> Result<(), Errno> {
        if !self.adoption.is_foreign() {
            return Ok(());
        }
        message::error(
            "a tablespace file that was copied in and cannot be used is only read, and was to be changed",
        );
        Err(Errno::EIO)
    }

    fn write_held(&self, content: &Content, fd: RawFd, bytes: &[u8], offset_bytes: u64) -> Result<(), Errno> {
        let lock = content.names.lock_shared();
        self.look_up(content, &lock, !self.has_server_page_size && offset_bytes > 0)?;
        self.learn_from_page0(content.family, bytes, offset_bytes);
        let Some(page_size) = self.page_size(content) else {
            if content.family == Family::MySql && is_zero(bytes) {
                return self.grow(content, &lock, fd, offset_bytes + bytes.len() as u64);
            }
            // Written late to a file that is deleted, or is about to be: the node has let go of the tablespace with
            // the redo of the deletion. It has no reader any more.
            let Some(path) = self.name.path(&lock).filter(|path| !content.deleted.contains(path)) else {
                return Ok(());
            };
            if content.family == Family::MySql && offset_bytes == 0 && is_to_be_encrypted(bytes) {
                message::error(&format!(
                    "{} is to be encrypted, which a volume cannot have: the node needs pages in clear. The statement \
                     fails; leave ENCRYPTION='Y' out, or say ENCRYPTION='N'",
                    show(&path)
                ));
                return Err(Errno::EIO);
            }
            message::error(&format!(
                "page write at {offset_bytes} to {}, a tablespace whose page size is not known ({} on the node)",
                show(&path),
                self.lock_info().file.map_or_else(|| "no file".to_owned(), |file| format!("file {}", file.0))
            ));
            return Err(Errno::EIO);
        };
        if !offset_bytes.is_multiple_of(page_size as u64) {
            message::error(&format!(
                "page write at {offset_bytes} is not at a multiple of {page_size} bytes"
            ));
            return Err(Errno::EIO);
        }
        // First of all: the node may be asked about these pages.
        let end = offset_bytes + bytes.len() as u64;
        if real::status(fd)?.len_bytes < end {
            self.grow(content, &lock, fd, end)?;
        }
        let first = (offset_bytes / page_size as u64) as u32;
        self.local_content.written(fd, bytes, offset_bytes);
        let mut adoption = self.adoption.lock();
        for (page_no, page) in (first..).zip(bytes.chunks(page_size)) {
            self.write_page(content, &lock, page_no, page, page_size)?;
        }
        let Some(adoption) = adoption.as_mut().and_then(|guard| guard.as_mut()) else { return Ok(()) };
        adoption.written(bytes, offset_bytes)
    }

    /// Flags and id from page 0, when it is written before the node knows them.
    fn learn_from_page0(&self, family: Family, bytes: &[u8], offset_bytes: u64) {
        if offset_bytes != 0 {
            return;
        }
        // A new file of MySQL is filled with zeros first, which would decode to flags for 16 KiB pages.
        if is_zero(bytes) {
            return;
        }
        let mut info = self.lock_info();
        if let Some(page) = layout::page_id(bytes).filter(|page| page.page_no.0 == 0)
            && let Ok(format) = Format::of_page0(family, bytes)
        {
            info.format = info.format.or(Some(format));
            info.space_of_page0 = Some(page.space);
        }
    }

    fn write_page(
        &self,
        content: &Content,
        lock: &NamesLock<'_>,
        page_no: u32,
        page: &[u8],
        page_size: usize,
    ) -> Result<(), Errno> {
        let info = *self.lock_info();
        if page_no == 0 {
            self.kept_header.forget();
        }
        let Some(facts) = facts(content.family, page, info, page_no) else {
            message::error(&format!("a write of {} bytes as page {page_no} has no page header", page.len()));
            return Err(Errno::EIO);
        };
        if facts.is_encrypted && !content.takes_clear_pages && !self.is_doublewrite(content, info, page_no)? {
            message::error(encrypted::refusal(content.family));
            return Err(Errno::EIO);
        }
        let counters = &content.counters;
        let needs_image = info.format.is_some_and(|format| !format.is_replayed());
        let hash = facts.id.and_then(|id| self.content_hash(content, info, id, page));
        if let Some(id) = facts.id
            && !needs_image
            && content.dirty.take_if_explained(id, facts.lsn, page, hash)
        {
            if self.sends_wanted(content, lock, (page_no, page), facts) {
                self.take_out_of_cache(content, page_no);
                self.bind(content, lock, id.space)?;
                return self.send_image(content, lock, page_no, page, page_size).map(drop);
            }
            content.need.raise(self.number, page_no, content.stream.end());
            counters.add(Counter::PageBytesDropped, page.len() as u64);
            counters.add(Counter::PagesDropped, 1);
            self.bind(content, lock, id.space)?;
            if facts.is_encrypted {
                self.take_out_of_cache(content, page_no);
            } else {
                self.put_into_cache(content, page_no, page, page_size);
                self.verify(content, lock, (page_no, id), page, facts.lsn);
            }
            // A request that came meanwhile has looked for this write too early.
            if self.sends_wanted(content, lock, (page_no, page), facts) {
                self.send_image(content, lock, page_no, page, page_size)?;
            }
            return Ok(());
        }
        self.take_out_of_cache(content, page_no);
        if content.family == Family::MySql
            && let Some(id) = facts.id
        {
            // Before this content can be in the stream: the kept one must not follow it there (`wanted`).
            content.dirty.forget_hash(id);
        }
        if facts.is_zero {
            counters.add(Counter::ScrubPagesDropped, 1);
            return self.scrub(content, lock, page_no..page_no.saturating_add(1));
        }
        if self.is_doublewrite(content, info, page_no)? {
            counters.add(Counter::DoublewriteBytesDropped, page.len() as u64);
            return Ok(());
        }
        if self.is_explained_by_node(content, info, (page_no, page_size), page, facts)? {
            content.need.raise(self.number, page_no, content.stream.end());
            counters.add(Counter::PageBytesDropped, page.len() as u64);
            counters.add(Counter::PagesDropped, 1);
            return Ok(());
        }
        // Written late: the node has let go of the tablespace with the redo of the deletion, and the page has no
        // reader left.
        if self.name.path(lock).is_some_and(|path| content.deleted.contains(&path)) {
            return Ok(());
        }
        let is_sent = self.send_image(content, lock, page_no, page, page_size)?;
        if content.family == Family::MySql
            && let Some(id) = facts.id
        {
            content.dirty.sent(id, facts.lsn, hash.filter(|_| is_sent));
            self.bind(content, lock, id.space)?;
        }
        Ok(())
    }

    /// Sends a page as it is, unless its file is deleted. A page-compressed page may be written without its unused
    /// rest.
    fn send_image(
        &self,
        content: &Content,
        lock: &NamesLock<'_>,
        page_no: u32,
        page: &[u8],
        page_size: usize,
    ) -> Result<bool, Errno> {
        let Some(path) = self.name.path(lock) else { return Ok(false) };
        self.require_clear(content.family, page, page_no, &path)?;
        let padded;
        let page = if page.len() < page_size {
            padded = [page, &vec![0; page_size - page.len()]].concat();
            &padded
        } else {
            page
        };
        // A page is written only after its redo, so writes before any redo come from the server's recovery.
        let is_recovered = content.family == Family::MySql && !content.dirty.has_observed();
        let end = content.stream.append(&StreamFrame::Image { path: &path, page_no, page, is_recovered })?;
        self.image_sent(content, &path, page_no, page.len(), end);
        Ok(true)
    }

    /// Tells the node once which tablespace this file holds, where no file record does.
    fn bind(&self, content: &Content, lock: &NamesLock<'_>, space: SpaceId) -> Result<(), Errno> {
        let mut info = self.lock_info();
        if info.space.is_some() {
            return Ok(());
        }
        let Some(path) = self.name.path(lock) else { return Ok(()) };
        let end = content.stream.append(&StreamFrame::BindSpace { path: &path, space })?;
        info.space = Some(space);
        drop(info);
        self.sent(end);
        Ok(())
    }

    /// Makes the file longer, here and on the node.
    fn grow(&self, content: &Content, lock: &NamesLock<'_>, fd: RawFd, len_bytes: u64) -> Result<(), Errno> {
        let _length = self.length.lock().ignore_poison();
        let old_len_bytes = real::status(fd)?.len_bytes;
        if old_len_bytes >= len_bytes {
            return Ok(());
        }
        self.set_len_locked(content, lock, fd, old_len_bytes, len_bytes)
    }

    fn set_len_locked(
        &self,
        content: &Content,
        lock: &NamesLock<'_>,
        fd: RawFd,
        old_len_bytes: u64,
        len_bytes: u64,
    ) -> Result<(), Errno> {
        real::set_len(fd, len_bytes)?;
        // Nothing after the old end is in the cache.
        if len_bytes < old_len_bytes {
            self.cut_cache(content, len_bytes);
            self.kept_header.forget();
        }
        if let Some(path) = self.name.path(lock) {
            self.sent(content.stream.append(&StreamFrame::SetLen { path: &path, len_bytes })?);
        }
        if len_bytes < old_len_bytes {
            self.forget_content(content);
        }
        Ok(())
    }

    /// ftruncate. The stub never gets blocks.
    ///
    /// # Errors
    /// That of the local call, or `EIO`.
    pub fn set_len(&self, content: &Content, fd: RawFd, len_bytes: u64) -> Result<(), Errno> {
        self.require_writable()?;
        let lock = content.names.lock_shared();
        let _length = self.length.lock().ignore_poison();
        self.set_len_locked(content, &lock, fd, real::status(fd)?.len_bytes, len_bytes)
    }

    /// fallocate without a mode: the file has at least this length.
    ///
    /// # Errors
    /// That of the local call, or `EIO`.
    pub fn allocate(&self, content: &Content, fd: RawFd, len_bytes: u64) -> Result<(), Errno> {
        self.require_writable()?;
        self.grow(content, &content.names.lock_shared(), fd, len_bytes)
    }

    /// fdatasync: redo is waited for on the log file, so only other frames of this file count.
    ///
    /// # Errors
    /// `EIO` when the stream is dead.
    pub fn sync(&self, content: &Content) -> Result<(), Errno> {
        match self.finish_adoption(content) {
            // A damaged file has no data whose durability counts.
            Err(_) if self.is_damaged() => {}
            finished => finished?,
        }
        content.stream.wait_durable(Seq(self.unsynced.load(Ordering::Acquire)))
    }

    /// Sends the digest of a dropped page, for the pages that are chosen.
    fn verify(
        &self,
        content: &Content,
        lock: &NamesLock<'_>,
        (page_no, id): (u32, PageId),
        page: &[u8],
        lsn: Lsn,
    ) {
        let Some(format) = self.lock_info().format else { return };
        if let Some(path) = self.name.path(lock) {
            let dropped = DroppedPage { path: &path, page_no, id, page, lsn, format };
            content.dropped_images.send(&content.stream, &content.counters, &dropped);
        }
    }
}

/// Opens an existing tablespace file. `None`: the node does not have it and it is only read; the descriptor must not
/// be tracked.
///
/// # Errors
/// That of the local call, or `EIO`.
pub fn open_existing(
    content: &Content,
    tablespaces: &Tablespaces,
    path: &[u8],
    flags: i32,
) -> Result<(RawFd, Option<Arc<Tablespace>>), Errno> {
    let lock = content.names.lock_shared();
    let local = absolute(&content.datadir, path)?;
    let fd = real::open_file(&local, flags & !libc::O_DIRECT, 0)?;
    let tablespace = tablespaces.at(path);
    let outcome = match tablespace.look_up(content, &lock, false) {
        Ok(true) if flags & libc::O_ACCMODE == libc::O_RDONLY => Ok(Some(tablespace)),
        Ok(true) => match tablespace.must_be_adopted(content, fd, path) {
            Ok(false) => Ok(Some(tablespace)),
            Ok(true) => adopt::begin(content, &lock, fd, path, &tablespace).map(|()| Some(tablespace)),
            Err(errno) => Err(errno),
        },
        Ok(false) if flags & libc::O_ACCMODE == libc::O_RDONLY => {
            tablespaces.files.forget(path);
            Ok(None)
        }
        Ok(false) => adopt::begin(content, &lock, fd, path, &tablespace).map(|()| Some(tablespace)),
        Err(errno) => Err(errno),
    };
    match outcome {
        Ok(tablespace) => Ok((fd, tablespace)),
        Err(errno) => {
            let _ = real::close_file(fd);
            Err(errno)
        }
    }
}

/// Creates a tablespace file (or empties it).
///
/// # Errors
/// That of the local call, or `EIO`.
pub fn create(
    content: &Content,
    tablespaces: &Tablespaces,
    path: &[u8],
    flags: i32,
    mode: libc::mode_t,
) -> Result<(RawFd, Arc<Tablespace>), Errno> {
    let lock = content.names.lock_exclusive();
    let local = absolute(&content.datadir, path)?;
    let existed = real::status_of(&local).is_ok();
    let fd = real::open_file(&local, flags & !libc::O_DIRECT, mode)?;
    let sent = real::status(fd).and_then(|status| {
        if !existed {
            tablespaces.files.forget(path);
        }
        let tablespace = tablespaces.at(path);
        if !existed || flags & libc::O_TRUNC != 0 {
            content.stream.wanted_pages().forget(path);
            let frame = StreamFrame::Create { path, kind: FileKind::Tablespace, mode: status.mode };
            tablespace.sent(content.stream.append(&frame)?);
            tablespace.cut_cache(content, 0);
            tablespace.forget_content(content);
            tablespace.kept_header.forget();
            tablespace.adoption.cancel(content)?;
        } else if !tablespace.look_up(content, &lock, false)? {
            adopt::begin(content, &lock, fd, path, &tablespace)?;
        }
        Ok(tablespace)
    });
    match sent {
        Ok(tablespace) => Ok((fd, tablespace)),
        Err(errno) => {
            let _ = real::close_file(fd);
            Err(errno)
        }
    }
}

/// Whether this page 0 is of a tablespace of MySQL that is going to be encrypted.
fn is_to_be_encrypted(page0: &[u8]) -> bool {
    matches!(mysql::flags_of_page0(page0), Err(mysql::FlagsError::Encrypted { .. }))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Identity of a page of this file, for the map of dirty pages.
pub(crate) fn page_id(space: SpaceId, info: Info, page_no: u32) -> PageId {
    PageId::new(space.0, info.first_page_no.wrapping_add(page_no))
}
