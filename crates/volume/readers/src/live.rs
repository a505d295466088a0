//! The tree of a source.
//!
//! Every call queries the source, which for a live volume answers from the data received by then. So a tool finds the
//! data that the server has reported to it. Small consecutive reads are served from a window of the file that was
//! fetched at once. A window begins and ends at multiples of [`WINDOW_BYTES`], which no page crosses: a page is never
//! composed of two states, however small the reads are. A window is valid for [`WINDOW_AGE`], and then up to the next
//! place where a page may begin.
//!
//! A file that the server removes while a tool has it open is no longer part of the data. [`Removed`] selects between
//! zeros and an error.

use crate::log::LogMirror;
use crate::source::{ViewError, ViewSource};
use crate::tree::{Called, Change, Complaints, Errno, Meta, OpenFile, Tree};
use redoubt_locks::IgnorePoison;
use redoubt_wire::control::EntryKind;
use redoubt_wire::view::ViewFile;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

const WINDOW_BYTES: u64 = 1 << 20;
const WINDOW_AGE: Duration = Duration::from_millis(100);
/// No page crosses a multiple of this.
const LONGEST_PAGE_BYTES: u64 = 64 << 10;
/// Longer reads fetch exactly their range.
const SMALL_READ_BYTES: u32 = 256 << 10;

/// Treatment of an open file that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// It reads as zeros, with a message: as on any file system the tool may continue.
    Zeros,
    /// `ESTALE`.
    Stale,
}

/// The live view of a volume.
pub struct Live {
    source: Arc<dyn ViewSource>,
    complaints: Arc<Complaints>,
    removed: Removed,
    log: Mutex<Weak<LogMirror>>,
}

impl Live {
    /// State of a source.
    pub fn new(source: Arc<dyn ViewSource>, complaints: Arc<Complaints>, removed: Removed) -> Self {
        Self { source, complaints, removed, log: Mutex::default() }
    }

    /// Looks up a path, with its number.
    ///
    /// # Errors
    /// As [`Tree::stat`].
    pub fn find(&self, path: &str) -> Called<Option<ViewFile>> {
        self.source.stat(path).map_err(|error| self.failed(&error))
    }

    /// Opens a file that was found at a path.
    ///
    /// # Errors
    /// As [`Tree::open`].
    pub fn open_found(&self, path: &str, found: ViewFile) -> Called<Arc<dyn OpenFile>> {
        let ViewFile { file, entry } = found;
        // The log of a snapshot is already composed.
        if entry.kind == EntryKind::RedoLog && !self.source.is_moment() {
            let mut log = self.log.lock().ignore_poison();
            if let Some(mirror) = log.upgrade() {
                return Ok(mirror);
            }
            let mirror = LogMirror::begin(Arc::clone(&self.source), Arc::clone(&self.complaints))
                .map_err(|error| self.failed(&error))?;
            *log = Arc::downgrade(&mirror);
            return Ok(mirror);
        }
        let meta = meta_of(entry.kind, entry.mode, entry.len_bytes);
        Ok(Arc::new(LiveFile {
            source: Arc::clone(&self.source),
            complaints: Arc::clone(&self.complaints),
            removed: self.removed,
            path: path.to_owned(),
            file,
            state: Mutex::new(ReadState { meta, window: None, next_bytes: u64::MAX }),
        }))
    }

    fn failed(&self, error: &ViewError) -> Errno {
        self.complaints.say(error.to_string());
        error.errno()
    }

    fn refuse(&self, path: &str, what: &str) -> Errno {
        self.complaints.say(format!(
            "{what} {path} is refused: this is a view of a volume that a server may be writing to"
        ));
        Errno(libc::EROFS)
    }
}

/// The attributes of a file or directory.
pub fn meta_of(kind: EntryKind, mode: u32, len_bytes: u64) -> Meta {
    match kind {
        EntryKind::Directory => Meta { mode: libc::S_IFDIR | usable_mode(mode, 0o700), len_bytes: 4096 },
        _ => Meta { mode: libc::S_IFREG | usable_mode(mode, 0o660), len_bytes },
    }
}

/// Permission bits without those that would let others write, or run the file as its owner.
fn usable_mode(mode: u32, default_mode: u32) -> u32 {
    if mode & 0o777 == 0 { default_mode } else { mode & 0o775 }
}

impl Tree for Live {
    fn stat(&self, path: &str) -> Called<Option<Meta>> {
        if path.is_empty() {
            return Ok(Some(meta_of(EntryKind::Directory, 0o700, 0)));
        }
        Ok(self.find(path)?.map(|ViewFile { entry, .. }| meta_of(entry.kind, entry.mode, entry.len_bytes)))
    }

    fn list(&self, path: &str) -> Called<Vec<(String, Meta)>> {
        let entries = self.source.names().map_err(|error| self.failed(&error))?;
        let inside = |entry: redoubt_wire::control::VolumeEntry| {
            let name = if path.is_empty() {
                entry.path.as_str()
            } else {
                entry.path.strip_prefix(path)?.strip_prefix('/')?
            };
            if name.contains('/') {
                return None;
            }
            Some((name.to_owned(), meta_of(entry.kind, entry.mode, entry.len_bytes)))
        };
        Ok(entries.into_iter().filter_map(inside).collect())
    }

    fn open(&self, path: &str, to_write: bool) -> Called<Arc<dyn OpenFile>> {
        if to_write {
            return Err(self.refuse(path, "opening for writing"));
        }
        self.open_found(path, self.find(path)?.ok_or(Errno(libc::ENOENT))?)
    }

    fn change(&self, path: &str, change: Change<'_>) -> Called<()> {
        let what = match change {
            Change::Create { .. } | Change::MakeDirectory { .. } => "creating",
            Change::Unlink | Change::RemoveDirectory => "removing",
            Change::Rename { .. } => "renaming",
            Change::SetMode(_) => "changing",
        };
        Err(self.refuse(path, what))
    }

    fn is_fixed(&self) -> bool {
        self.source.is_moment()
    }
}

struct ReadState {
    meta: Meta,
    window: Option<Window>,
    /// Offset of the next sequential read. The first read never counts as sequential: of many files a tool needs the
    /// first page only.
    next_bytes: u64,
}

struct Window {
    start_bytes: u64,
    bytes: Vec<u8>,
    since: Instant,
}

impl Window {
    /// The requested part, if the window contains all of it and is new enough; less at the end of the file.
    fn get(&self, offset_bytes: u64, len_bytes: u32, file_len_bytes: u64) -> Option<&[u8]> {
        let end = (offset_bytes + u64::from(len_bytes)).min(file_len_bytes);
        let from = usize::try_from(offset_bytes.checked_sub(self.start_bytes)?).ok()?;
        let to = usize::try_from(end.checked_sub(self.start_bytes)?).ok()?;
        let is_old = self.since.elapsed() > WINDOW_AGE && offset_bytes.is_multiple_of(LONGEST_PAGE_BYTES);
        // The part is empty: the file may have grown.
        if is_old || from >= to { None } else { self.bytes.get(from..to) }
    }
}

/// An open file, read in its current state.
struct LiveFile {
    source: Arc<dyn ViewSource>,
    complaints: Arc<Complaints>,
    removed: Removed,
    path: String,
    file: u32,
    state: Mutex<ReadState>,
}

impl LiveFile {
    /// Reads from the source.
    fn fetch(&self, state: &mut ReadState, offset_bytes: u64, len_bytes: u32) -> Called<Vec<u8>> {
        let read = self.source.read(self.file, offset_bytes, len_bytes).map_err(|error| {
            self.complaints.say(format!("{}: {error}", self.path));
            error.errno()
        })?;
        if let Some(contents) = read {
            state.meta.len_bytes = contents.len_bytes;
            return Ok(contents.bytes);
        }
        if self.removed == Removed::Stale {
            return Err(Errno(libc::ESTALE));
        }
        self.complaints.say(format!(
            "{} was removed while it was read; from {offset_bytes} on it reads as zeros",
            self.path
        ));
        let left = state.meta.len_bytes.saturating_sub(offset_bytes).min(u64::from(len_bytes));
        Ok(vec![0; usize::try_from(left).unwrap_or(0)])
    }
}

impl OpenFile for LiveFile {
    fn meta(&self) -> Called<Meta> {
        Ok(self.state.lock().ignore_poison().meta)
    }

    fn read(&self, offset_bytes: u64, len_bytes: u32) -> Called<Vec<u8>> {
        let mut state = self.state.lock().ignore_poison();
        let is_sequential = state.next_bytes == offset_bytes;
        state.next_bytes = offset_bytes.saturating_add(u64::from(len_bytes));
        if len_bytes > SMALL_READ_BYTES || !is_sequential {
            return self.fetch(&mut state, offset_bytes, len_bytes);
        }
        let mut out = Vec::new();
        // At most the end of one window and the beginning of the next.
        for _ in 0..2 {
            let at = offset_bytes + out.len() as u64;
            let window_end = (at / WINDOW_BYTES + 1) * WINDOW_BYTES;
            let wanted = u64::from(len_bytes) - out.len() as u64;
            let Ok(wanted) = u32::try_from(wanted.min(window_end - at)) else { break };
            let part = state.window.as_ref().and_then(|window| window.get(at, wanted, state.meta.len_bytes));
            if let Some(part) = part {
                out.extend_from_slice(part);
            } else {
                let start_bytes = at / WINDOW_BYTES * WINDOW_BYTES;
                let len = u32::try_from(WINDOW_BYTES).unwrap_or(0);
                let bytes = self.fetch(&mut state, start_bytes, len)?;
                let window = Window { start_bytes, bytes, since: Instant::now() };
                out.extend_from_slice(window.get(at, wanted, state.meta.len_bytes).unwrap_or_default());
                state.window = Some(window);
            }
            if out.len() as u64 >= u64::from(len_bytes) {
                break;
            }
        }
        Ok(out)
    }
}
