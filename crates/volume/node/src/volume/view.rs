//! The volume as a data directory for readers: tools that take nothing over and change nothing.
//!
//! A *live* view is the current state at each question: the answer includes everything received before, in names, plain
//! files and redo log. So a reader that has an answer of the server finds the data that belongs to it. A view of a
//! *moment* is an export whose files may be read in any order, any number of times. It retains everything until it
//! ends.
//!
//! The redo log of a live view is followed. From its first question on, a follower receives the redo that the server's
//! checkpoint needs, and the log is pinned at the end of the last answer. So a reader that continues asking gets all
//! redo, whatever the server's checkpoint does meanwhile.
//!
//! Owns the moment that there may be. Lock: a leaf.

use super::Volume;
use super::attach::DRAIN_TIMEOUT;
use super::export::Export;
use super::retention::Pin;
use super::server_log::redo_from;
use crate::error::NodeError;
use crate::mark::{Point, WaitEnd};
use crate::namespace::{LOG_FILE_PATH, LogFileEntry, Namespace};
use redoubt_redo::mariadb::log_file::{LogGeometry, LogHeader};
use redoubt_redo::{Family, Lsn};
use redoubt_sync::{Mutex, time};
use redoubt_wire::control::{Attachment, EntryKind, VolumeEntry};
use redoubt_wire::page::FileId;
use redoubt_wire::view::{ViewFile, ViewLog};
use std::sync::Arc;

/// Number of the first file of the redo log; the others count down from there. Other files are counted from 0.
const FIRST_LOG_FILE: FileId = FileId(u32::MAX);

/// The moment that is being read.
#[derive(Default)]
pub struct CurrentMoment(Mutex<Option<(u64, Arc<Export>)>>);

/// Progress of a reader of the redo log.
pub struct Follower {
    /// Keeps the log from there on, as long as the server's log file would.
    pin: Pin,
    log_file: LogFileEntry,
    end_lsn: Lsn,
}

/// The next answer for a follower.
pub struct NextRedo {
    /// The answer.
    pub log: ViewLog,
    /// Progress after the answer.
    pub follower: Follower,
    geometry: LogGeometry,
    end: Point,
    _until_read: Pin,
}

impl CurrentMoment {
    /// A reader has a moment.
    pub fn is_kept(&self) -> bool {
        self.0.lock().is_some()
    }
}

impl Follower {
    /// The follower has all redo before this LSN, and no other.
    pub fn stands_at(&self, lsn: u64) -> bool {
        self.end_lsn.0 == lsn
    }
}

impl Volume {
    /// Keeps this moment for readers. Returns its number and its last LSN.
    ///
    /// # Errors
    /// As [`Volume::begin_export`]; [`NodeError::Refused`] for a frozen volume that is not exact.
    pub fn keep_moment(&self) -> Result<(u64, Lsn), NodeError> {
        self.check_exact()?;
        let export = self.begin_export()?;
        let number = self.session.next_connection();
        let end_lsn = export.point.lsn;
        *self.moment.0.lock() = Some((number, Arc::new(export)));
        Ok((number, end_lsn))
    }

    /// Gives a moment up.
    pub fn end_moment(&self, number: u64) {
        let moment = {
            let mut moment = self.moment.0.lock();
            if moment.as_ref().is_some_and(|(current, _)| *current == number) { moment.take() } else { None }
        };
        if moment.is_some() {
            self.end_export();
        }
    }

    /// The moment of this number.
    ///
    /// # Errors
    /// [`NodeError::Refused`] if it has ended.
    pub fn moment(&self, number: u64) -> Result<Arc<Export>, NodeError> {
        match &*self.moment.0.lock() {
            Some((current, export)) if *current == number => Ok(Arc::clone(export)),
            _ => Err(NodeError::Refused(format!("view {number} of volume {} has ended", self.context.name))),
        }
    }

    /// Waits until everything received is in the names and in the plain files. Only changes of these must be durable: a
    /// reader of many files does not wait for the log each time.
    pub(super) fn settle(&self) -> Result<(), NodeError> {
        self.context.check_running()?;
        let received = self.receiving.buffer.received().seq;
        self.wait_parsed(received)?;
        let deadline = Some(time::now() + DRAIN_TIMEOUT);
        match self.plain.wait_executed(received, deadline) {
            WaitEnd::Reached => Ok(()),
            WaitEnd::Closed => Err(self.context.stopped_error()),
            WaitEnd::TimedOut => Err(self.still_full()),
        }
    }

    /// Its random id.
    pub fn volume_id(&self) -> String {
        self.session.identity().volume_id
    }

    /// No server has written to it yet.
    pub fn is_empty(&self) -> bool {
        !self.indexing.names.read().has_log()
    }

    /// End of the stream; `None`: not all of it is durable and executed, so the contents may change without further
    /// stream bytes.
    pub fn settled_position(&self) -> Option<u64> {
        let received = self.receiving.buffer.received().seq;
        let is_executed = || self.plain.wait_executed(received, Some(time::now())) == WaitEnd::Reached;
        (self.receiving.durable().seq() == received && is_executed()).then_some(received.0)
    }

    /// Names of everything received so far, without checksums.
    ///
    /// # Errors
    /// [`NodeError::NotNow`] if the received frames are not executed in time; [`NodeError::Stopped`],
    /// [`NodeError::Io`].
    pub fn live_names(&self) -> Result<Attachment, NodeError> {
        self.settle()?;
        self.attachment(&self.indexing.names.read(), self.session.identity().generation)
    }

    /// The file at a path, as of everything received so far.
    ///
    /// # Errors
    /// As [`Volume::live_names`]; [`NodeError::Damaged`] for a plain file whose contents are lost.
    pub fn live_file(&self, path: &str) -> Result<Option<ViewFile>, NodeError> {
        self.settle()?;
        let found = stat(&self.indexing.names.read(), path);
        // Without the lock of the names: it reads from the file system.
        with_plain_len(found, |file| self.live_plain_len(file))
    }

    /// Length of a plain file as it is now, in bytes. The length of one that is lost would pass for that of the file.
    fn live_plain_len(&self, file: FileId) -> Result<u64, NodeError> {
        self.check_not_lost(file)?;
        self.plain.len_bytes(file)
    }

    /// The same as [`Volume::live_file`], of a moment.
    ///
    /// # Errors
    /// [`NodeError::Damaged`] for a plain file whose contents are lost; [`NodeError::Io`].
    pub fn moment_file(&self, export: &Export, path: &str) -> Result<Option<ViewFile>, NodeError> {
        with_plain_len(stat(export.names(), path), |file| self.kept_len(export, file))
    }

    /// Length of a file as it is now, in bytes; `None`: it is gone.
    ///
    /// # Errors
    /// [`NodeError::Damaged`] for a plain file whose contents are lost; [`NodeError::NotNow`] if that is not certain yet;
    /// [`NodeError::Stopped`]; [`NodeError::Io`].
    pub fn live_len(&self, file: FileId) -> Result<Option<u64>, NodeError> {
        self.context.check_running()?;
        let len = len_of(&self.indexing.names.read(), file);
        match len {
            Len::Known(len_bytes) => Ok(len_bytes),
            Len::OfPlain => self.live_plain_len(file).map(Some),
        }
    }

    /// The same, of a moment.
    ///
    /// # Errors
    /// As [`Volume::moment_file`].
    pub fn moment_len(&self, export: &Export, file: FileId) -> Result<Option<u64>, NodeError> {
        match len_of(export.names(), file) {
            Len::Known(len_bytes) => Ok(len_bytes),
            Len::OfPlain => self.kept_len(export, file).map(Some),
        }
    }

    /// Bytes of a file as it is now; after its end they are zero.
    ///
    /// # Errors
    /// [`NodeError::Refused`] for a file that no longer exists; [`NodeError::Damaged`] for a plain file whose contents are
    /// lost; those of reading.
    pub fn read_live(&self, file: FileId, offset_bytes: u64, out: &mut [u8]) -> Result<(), NodeError> {
        out.fill(0);
        self.context.check_running()?;
        let is_tablespace = match self.indexing.names.read().file(file) {
            Some(entry) => entry.tablespace,
            None => return Err(gone(file)),
        };
        if !is_tablespace {
            self.check_not_lost(file)?;
            return self.plain.read(file, offset_bytes, out);
        }
        // The server may have acknowledged everything that is durable.
        self.wait_parsed(self.receiving.durable().seq())?;
        match self.locate(file)? {
            Some(location) => self.read_at(&location, offset_bytes, out, self.build_limit(), &mut ()),
            None => Ok(()),
        }
    }

    /// Bytes of a file of a moment.
    ///
    /// # Errors
    /// As [`Volume::read_export`].
    pub fn read_moment(
        &self,
        export: &Export,
        file: FileId,
        offset_bytes: u64,
        out: &mut [u8],
    ) -> Result<(), NodeError> {
        let names = export.names();
        let path = names.file(file).map(|entry| entry.path.as_str());
        match path.or_else(|| log_file(names, file).map(|(path, ..)| path)) {
            Some(path) => self.read_kept(export, path, offset_bytes, out),
            None => Err(gone(file)),
        }
    }

    /// The redo log for a follower: `follower` is its current state, `None` at first.
    ///
    /// # Errors
    /// [`NodeError::Refused`] if there is no redo log yet; as [`Volume::live_names`].
    pub fn next_redo(&self, follower: Option<&Follower>) -> Result<NextRedo, NodeError> {
        self.context.check_running()?;
        // Pinned before the checkpoint is read. The follower's own pin retains the redo that it has not received.
        let until_read = self.receiving.retention.pin(|| self.applying.points().1);
        self.drain()?;
        let Some(log_file) = self.indexing.names.read().log_file().cloned() else {
            let why = match self.indexing.names.read().family() {
                Family::MariaDb => "has no redo log yet",
                Family::MySql => {
                    "is MySQL's, whose redo log is not shown while it grows: see one moment (`redoubt run --reader \
                     --at-once`), or export it (`redoubt volume export`)"
                }
            };
            return Err(NodeError::Refused(format!("volume {} {why}", self.context.name)));
        };
        // After the checkpoints were read: their redo is before this end.
        let end = self.drain()?;
        let geometry = geometry_of(&log_file, end)?;
        let is_same_file = |follower: &&Follower| {
            (&follower.log_file.header, follower.log_file.file_size_bytes)
                == (&log_file.header, log_file.file_size_bytes)
        };
        let start_lsn = match follower.filter(is_same_file).filter(|follower| follower.pin.is_kept()) {
            Some(follower) => follower.end_lsn,
            None => log_file.checkpoint().unwrap_or(geometry.first_lsn()).max(geometry.first_lsn()),
        };
        let position = self.receiving.retention.position(end.lsn);
        let position = position.unwrap_or_else(|| self.applying.points().1);
        let pin = self.receiving.retention.pin_at_most(position, geometry.capacity_bytes());
        let log = ViewLog {
            file_size_bytes: log_file.file_size_bytes,
            header: log_file.header.clone(),
            checkpoints: log_file.checkpoints.clone(),
            start_lsn: start_lsn.0,
            end_lsn: end.lsn.0,
        };
        let follower = Follower { pin, log_file, end_lsn: end.lsn };
        Ok(NextRedo { log, follower, geometry, end, _until_read: until_read })
    }

    /// Calls `each` with its bytes, in order.
    ///
    /// # Errors
    /// Those of `each`; [`NodeError::Redo`] if the redo is no longer in the log; those of reading.
    pub fn read_redo(
        &self,
        next: &NextRedo,
        mut each: impl FnMut(&[u8]) -> Result<(), NodeError>,
    ) -> Result<(), NodeError> {
        let (from, end) = (Lsn(next.log.start_lsn), next.end);
        if from >= end.lsn {
            return Ok(());
        }
        let lost = |reason: String| NodeError::Redo { lsn: from, reason };
        let Some(start) = self.receiving.retention.position(from) else {
            return Err(lost("this redo is no longer in the log".to_owned()));
        };
        let mut len_bytes = 0;
        self.receiving.read_frames(start, end.seq, |chunk| {
            let bytes = redo_from(&chunk, from, &next.geometry)?;
            len_bytes += bytes.len() as u64;
            if bytes.is_empty() { Ok(()) } else { each(&bytes) }
        })?;
        if from.advance(len_bytes) == end.lsn {
            return Ok(());
        }
        Err(lost(format!("there are {len_bytes} bytes of redo, but the stream ends at {}", end.lsn)))
    }
}

/// A file's length in bytes, according to the names.
enum Len {
    /// All of it; `None`: there is no such file.
    Known(Option<u64>),
    /// Nothing: it is a plain file.
    OfPlain,
}

fn len_of(names: &Namespace, file: FileId) -> Len {
    match names.file(file) {
        Some(entry) if entry.tablespace => Len::Known(Some(entry.len_bytes)),
        Some(_) => Len::OfPlain,
        None => Len::Known(log_file(names, file).map(|(_, _, len_bytes)| len_bytes)),
    }
}

/// The files of the redo log, in the order of their numbers: path, permission bits, length in bytes. MySQL creates and
/// removes such files, and a number then refers to another file: only the files of a moment are read by number.
fn log_files(names: &Namespace) -> impl Iterator<Item = (&str, u32, u64)> {
    let one = names.log_file().map(|log_file| (LOG_FILE_PATH, 0o660, log_file.file_size_bytes));
    let of_set = names.log_set().into_iter().flat_map(|log_set| &log_set.files);
    one.into_iter().chain(of_set.map(|(path, file)| (path.as_str(), file.mode, file.len_bytes)))
}

/// The file of the redo log with this number.
fn log_file(names: &Namespace, file: FileId) -> Option<(&str, u32, u64)> {
    log_files(names).nth((FIRST_LOG_FILE.0 - file.0) as usize)
}

fn gone(file: FileId) -> NodeError {
    NodeError::Refused(format!("file {} no longer exists", file.0))
}

fn geometry_of(log_file: &LogFileEntry, end: Point) -> Result<LogGeometry, NodeError> {
    LogHeader::parse(&log_file.header)
        .and_then(|header| LogGeometry::new(header.first_lsn, log_file.file_size_bytes))
        .map_err(|error| NodeError::Redo { lsn: end.lsn, reason: error.to_string() })
}

/// The entry at a path; the length of a plain file is left open.
fn stat(names: &Namespace, path: &str) -> Option<ViewFile> {
    let found = |file: FileId, kind, mode, len_bytes| {
        let entry = VolumeEntry { path: path.to_owned(), kind, mode, len_bytes, checksum: None };
        Some(ViewFile { file: file.0, entry })
    };
    let number = (0..).zip(log_files(names)).find(|(_, (of_log, ..))| *of_log == path);
    if let Some((number, (_, mode, len_bytes))) = number {
        return found(FileId(FIRST_LOG_FILE.0 - number), EntryKind::RedoLog, mode, len_bytes);
    }
    match names.file_at(path) {
        Some((file, entry)) if entry.tablespace => {
            found(file, EntryKind::Tablespace, entry.mode, entry.len_bytes)
        }
        Some((file, entry)) => found(file, EntryKind::Plain, entry.mode, 0),
        None => found(FileId(0), EntryKind::Directory, names.directory(path)?, 0),
    }
}

fn with_plain_len(
    found: Option<ViewFile>,
    plain_len: impl Fn(FileId) -> Result<u64, NodeError>,
) -> Result<Option<ViewFile>, NodeError> {
    let Some(mut found) = found else { return Ok(None) };
    if found.entry.kind == EntryKind::Plain {
        found.entry.len_bytes = plain_len(FileId(found.file))?;
    }
    Ok(Some(found))
}
