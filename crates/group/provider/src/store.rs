//! Durable state of a member: its id, and the log of the group.
//!
//! It owns the files `redoubt_group.*.log` of the server's data directory. The log is one stream of frames on a log
//! device ([`frames`]).
//!
//! | frame | content |
//! |---|---|
//! | record | a record of the consensus |
//! | checkpoint | slot (8 bytes), count (4 bytes), records that replace all earlier ones, each with its length |
//! | state | slot (8 bytes), state before it: an encoded [`crate::replica::Replica`] |
//! | index | positions of chosen entries ([`archive`]) |
//!
//! A checkpoint counts once a state with its slot is durable after it, and the file `head` has the positions of both
//! ([`head`]). That file is written under another name and renamed. It is the last file of a new store: without it
//! there is no store. This member does not need the log before the checkpoint. [`Store::keep`] sets how much of it is
//! retained for others.
//!
//! Invariant: records become durable in order, and are read as they were written. A frame that does not decode is an
//! error with its position, never the end of the log.

mod archive;
mod directory;
mod frames;
mod head;

use crate::bytes::put_bytes;
use crate::replica::GroupId;
pub use archive::Archive;
use directory::OwnFiles;
use frames::{Frames, Kind, RUN_LEN_BYTES};
use head::{HEAD, Head};
use redoubt_consensus::codec::encode_record;
use redoubt_consensus::places::NoPlace;
use redoubt_consensus::record::Record;
use redoubt_consensus::types::{MemberId, Slot};
use redoubt_logdev::{FileLogDevice, LogDevice, LogDeviceError, SegmentOptions, Seq};
use redoubt_storage::{RealDir, StorageDir};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Default amount of log that is retained for others, in bytes.
pub const DEFAULT_KEPT_LEN_BYTES: u64 = 128 << 20;

/// Reason why a store cannot be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The log device failed.
    #[error("the group's log: {0}{more}", more = instead(.0))]
    Device(#[from] LogDeviceError),
    /// A file operation failed.
    #[error("the group's log: cannot {action}: {source}")]
    Io {
        /// The attempted action.
        action: &'static str,
        /// Its error.
        source: io::Error,
    },
    /// Another process uses it.
    #[error("the data directory is in use by another server that is a member of a group")]
    InUse,
    /// The head file is damaged.
    #[error(
        "redoubt_group.head.log {0}: the file is damaged; remove the files redoubt_group.*.log, and the member \
         joins again"
    )]
    Head(&'static str),
    /// A frame does not decode.
    #[error(
        "the group's log at {position}: {reason}; remove the files redoubt_group.*.log, and the member joins \
         again"
    )]
    Frame {
        /// Position in the stream, in bytes.
        position: u64,
        /// The defect.
        reason: String,
    },
    /// A checkpoint replaced entries that the server has not applied.
    #[error(
        "the group's log no longer has slot {0}, which this server needs; this is a defect of Redoubt: report it"
    )]
    Gone(Slot),
    /// An internal error of this library.
    #[error("the group's log: {0}; this is a defect of Redoubt: report it")]
    NoPlace(#[from] NoPlace),
}

/// Corrects a device's advice about damage: unlike other logs, a group's log must not be replaced by a copy.
fn instead(error: &LogDeviceError) -> &'static str {
    match error {
        LogDeviceError::Damaged { .. } | LogDeviceError::BadSegment { .. } => {
            " (not here: a member with an old log forgets what it has acknowledged, and commits can be lost. \
             Remove the files redoubt_group.*.log, and the member joins again)"
        }
        _ => "",
    }
}

/// Ids of a member and its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The group.
    pub group: GroupId,
    /// The member.
    pub member: MemberId,
}

/// Contents of a store.
pub struct Found {
    /// Group and member.
    pub identity: Identity,
    /// The encoded state at the checkpoint.
    pub replica: Vec<u8>,
    /// Damage in a part that is not needed here, for display.
    pub damage: Option<StoreError>,
}

/// A checkpoint whose state is not written yet.
struct Begun {
    slot: Slot,
    at: Seq,
    index: Option<Seq>,
}

/// Durable state of a member: its id, and the log of the group.
pub struct Store {
    directory: Arc<dyn StorageDir>,
    device: Arc<dyn LogDevice>,
    archive: Arc<Archive>,
    identity: Identity,
    begun: Option<Begun>,
    checkpoint: Seq,
    kept_len_bytes: u64,
}

fn io_error(action: &'static str) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Io { action, source }
}

fn own_files(directory: &Path) -> Result<Arc<dyn StorageDir>, StoreError> {
    let real = RealDir::open(directory).map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock => StoreError::InUse,
        _ => io_error("open the data directory")(source),
    })?;
    Ok(Arc::new(OwnFiles(Arc::new(real))))
}

impl Store {
    /// Whether a data directory has a store. Opens nothing.
    pub fn is_in(directory: &Path) -> bool {
        directory.join(directory::full(HEAD)).exists()
    }

    /// Opens the store of a data directory; `None` if there is none.
    ///
    /// # Errors
    /// The store is damaged or unreadable.
    pub fn open(directory: &Path) -> Result<Option<(Self, Found)>, StoreError> {
        Self::open_on(own_files(directory)?, segments())
    }

    /// [`Store::open`] for any directory without other files.
    ///
    /// # Errors
    /// As for [`Store::open`].
    pub fn open_on(
        directory: Arc<dyn StorageDir>,
        segments: SegmentOptions,
    ) -> Result<Option<(Self, Found)>, StoreError> {
        if !directory.list().map_err(io_error("list the data directory"))?.iter().any(|name| name == HEAD) {
            return Ok(None);
        }
        let head = Head::read(&*directory)?;
        let device = open_device(&directory, segments)?;
        let (slot, replica) = state(&device, &head)?;
        let archive = Arc::new(Archive::new(Arc::clone(&device), slot));
        let damage = archive.find(head.index);
        let Head { identity, checkpoint, .. } = head;
        let kept_len_bytes = DEFAULT_KEPT_LEN_BYTES;
        let store = Self { directory, device, archive, identity, begun: None, checkpoint, kept_len_bytes };
        Ok(Some((store, Found { identity, replica, damage })))
    }

    /// Creates a store in a data directory. An existing one is removed.
    ///
    /// # Errors
    /// Writing failed.
    pub fn create(
        directory: &Path,
        identity: Identity,
        slot: Slot,
        records: &[Record],
        replica: &[u8],
    ) -> Result<Self, StoreError> {
        let directory = own_files(directory)?;
        let mut names = directory.list().map_err(io_error("list the data directory"))?;
        // Without its head a store does not exist.
        names.sort_by_key(|name| name != HEAD);
        for name in names {
            directory.remove(&name).map_err(io_error("remove a file of an earlier group"))?;
        }
        let device = open_device(&directory, segments())?;
        let archive = Arc::new(Archive::new(Arc::clone(&device), slot));
        let (begun, kept_len_bytes) = (None, DEFAULT_KEPT_LEN_BYTES);
        let checkpoint = Seq(0);
        let mut store = Self { directory, device, archive, identity, begun, checkpoint, kept_len_bytes };
        store.begin_checkpoint(slot, || records.to_vec())?;
        store.end_checkpoint(slot, replica)?;
        Ok(store)
    }

    /// Group and member of the store.
    pub const fn identity(&self) -> Identity {
        self.identity
    }

    /// Sets how much of the log before the checkpoint is retained for others.
    pub const fn keep(&mut self, len_bytes: u64) {
        self.kept_len_bytes = len_bytes;
    }

    /// The member's records from the checkpoint on, to be read once, before others are appended.
    pub fn records(&self) -> Records {
        Records::new(self, Some(Arc::clone(&self.archive)))
    }

    /// The same records, read-only, at any time.
    pub fn look(&self) -> Records {
        Records::new(self, None)
    }

    /// Whether there are at most this many records.
    ///
    /// # Errors
    /// As for [`Records`].
    pub fn has_at_most(&self, count: usize) -> Result<bool, StoreError> {
        let found: Result<Vec<_>, _> = self.look().take(count + 1).collect();
        Ok(found?.len() <= count)
    }

    /// The chosen entries, by slot.
    pub fn archive(&self) -> Arc<Archive> {
        Arc::clone(&self.archive)
    }

    /// Appends a record. It is not durable before the device is synced.
    ///
    /// # Errors
    /// [`StoreError::Device`].
    pub fn append(&self, record: &Record) -> Result<(), StoreError> {
        let mut content = Vec::new();
        encode_record(record, &mut content);
        let at = frames::put(&*self.device, Kind::Record, &[&content])?;
        self.archive.wrote(record, at);
        Ok(())
    }

    /// Marks these slots as chosen, with the contents of the last appended records.
    ///
    /// # Errors
    /// [`StoreError::NoPlace`], [`StoreError::Device`].
    pub fn chosen(&self, slots: &[Slot]) -> Result<(), StoreError> {
        if self.archive.chosen(slots)? {
            self.archive.write_index()?;
        }
        Ok(())
    }

    /// [`Store::chosen`] during recovery: nothing is written.
    ///
    /// # Errors
    /// [`StoreError::NoPlace`].
    pub fn chosen_before(&self, slots: &[Slot]) -> Result<(), StoreError> {
        Ok(self.archive.chosen(slots).map(drop)?)
    }

    /// The device, for a thread that syncs it while others continue.
    pub fn device(&self) -> Arc<dyn LogDevice> {
        Arc::clone(&self.device)
    }

    /// Number of bytes written since the last checkpoint.
    pub fn len_since_checkpoint_bytes(&self) -> u64 {
        self.device.end().0 - self.checkpoint.0
    }

    /// Whether a checkpoint has no state yet.
    pub const fn is_checkpoint_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Begins a checkpoint: writes the records that replace all previous ones; the state at `slot` follows. Returns
    /// whether it was begun. It is not while indexes contain slots from `slot` on. After a crash the member must first
    /// learn these choices again, as the log after the checkpoint must begin with an index of its first slots.
    ///
    /// # Errors
    /// [`StoreError::Device`].
    pub fn begin_checkpoint(
        &mut self,
        slot: Slot,
        records: impl FnOnce() -> Vec<Record>,
    ) -> Result<bool, StoreError> {
        if slot < self.archive.indexed() {
            return Ok(false);
        }
        let records = records();
        let index = self.archive.write_index()?;
        let mut content = Vec::new();
        content.extend_from_slice(&slot.0.to_le_bytes());
        content.extend_from_slice(&(records.len() as u32).to_le_bytes());
        for record in &records {
            let mut bytes = Vec::new();
            encode_record(record, &mut bytes);
            put_bytes(&mut content, &bytes);
        }
        let at = frames::put(&*self.device, Kind::Checkpoint, &[&content])?;
        // The records contain the entries that are not chosen yet, so the log before the checkpoint is not needed for
        // them.
        records.iter().for_each(|record| self.archive.wrote(record, at));
        self.begun = Some(Begun { slot, at, index });
        Ok(true)
    }

    /// Writes the state at the slot of the begun checkpoint, and discards the log before it that is not retained.
    ///
    /// # Errors
    /// [`StoreError::Device`], [`StoreError::Io`].
    pub fn end_checkpoint(&mut self, slot: Slot, replica: &[u8]) -> Result<(), StoreError> {
        let Some(begun) = self.begun.take_if(|begun| begun.slot == slot) else { return Ok(()) };
        let state = frames::put(&*self.device, Kind::State, &[&slot.0.to_le_bytes(), replica])?;
        self.device.sync()?;
        let (identity, checkpoint) = (self.identity, begun.at);
        Head { identity, checkpoint, state: Some(state), index: begun.index }.write(&*self.directory)?;
        self.checkpoint = checkpoint;
        self.device.discard_before(Seq(checkpoint.0.saturating_sub(self.kept_len_bytes)))?;
        Ok(())
    }
}

/// Slot and state of the checkpoint.
fn state(device: &Arc<dyn LogDevice>, head: &Head) -> Result<(Slot, Vec<u8>), StoreError> {
    let missing = |position: Seq, what: &str| StoreError::Frame {
        position: position.0,
        reason: format!("its {what} is missing"),
    };
    let mut frames = Frames::new(Arc::clone(device), head.checkpoint, RUN_LEN_BYTES);
    let checkpoint = frames.next(|_| true)?.filter(|frame| frame.kind == Kind::Checkpoint);
    let checkpoint = checkpoint.ok_or_else(|| missing(head.checkpoint, "checkpoint"))?;
    let (slot, _) = checkpoint.slot()?;
    if let Some(state) = head.state {
        frames.seek(state.0);
    }
    while let Some(frame) = frames.next(|kind| kind == Kind::State)? {
        if frame.kind == Kind::State && frame.slot()?.0 == slot {
            return Ok((slot, frame.slot()?.1.to_vec()));
        }
    }
    Err(missing(head.checkpoint, "state"))
}

/// Iterator over the records of a store.
pub struct Records {
    frames: Frames,
    /// Receives the position of each record.
    archive: Option<Arc<Archive>>,
    /// Records of the checkpoint.
    first: VecDeque<Record>,
    is_begun: bool,
}

impl Records {
    fn new(store: &Store, archive: Option<Arc<Archive>>) -> Self {
        let frames = Frames::new(store.device(), store.checkpoint, RUN_LEN_BYTES);
        Self { frames, archive, first: VecDeque::new(), is_begun: false }
    }

    fn read(&mut self) -> Result<Option<Record>, StoreError> {
        loop {
            if let Some(record) = self.first.pop_front() {
                return Ok(Some(record));
            }
            let Some(frame) = self.frames.next(|kind| kind != Kind::State)? else { return Ok(None) };
            let is_first = !std::mem::replace(&mut self.is_begun, true);
            match frame.kind {
                Kind::Record | Kind::Checkpoint if is_first == (frame.kind == Kind::Checkpoint) => {
                    self.first.extend(frame.records()?);
                    if let Some(archive) = &self.archive {
                        self.first.iter().for_each(|record| archive.wrote(record, Seq(frame.position)));
                    }
                }
                Kind::Record => return Err(frame.wrong("a record where a checkpoint should begin")),
                Kind::Index => {
                    if let Some(archive) = &self.archive {
                        archive.found(&frame)?;
                    }
                }
                // A checkpoint whose head was never written.
                Kind::Checkpoint | Kind::State => {}
            }
        }
    }
}

impl Iterator for Records {
    type Item = Result<Record, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

fn segments() -> SegmentOptions {
    SegmentOptions { spare_segments: 1, ..SegmentOptions::default() }
}

fn open_device(
    directory: &Arc<dyn StorageDir>,
    segments: SegmentOptions,
) -> Result<Arc<dyn LogDevice>, StoreError> {
    Ok(Arc::new(FileLogDevice::open_on(Arc::clone(directory), segments)?))
}

#[cfg(test)]
mod tests;
