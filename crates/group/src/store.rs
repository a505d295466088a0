//! What a member finds again: its id, and the log of the group.
//!
//! Owns the files `redoubt_group.*.log` of the server's data directory. The log is one stream of frames on a log device:
//! length (4 bytes), kind (1 byte), content.
//!
//! | kind | content |
//! |---|---|
//! | 1 record | a record of the consensus |
//! | 2 checkpoint | slot (8 bytes), count (4 bytes), records that take the place of all before, each with its length |
//! | 3 state | slot (8 bytes), what was ordered before it: an encoded [`crate::replica::Replica`] |
//!
//! A checkpoint counts once a state with its slot is durable after it, and then the file `head` says where it begins:
//! magic, version (4 bytes), group (16 bytes), member (8 bytes), position of the checkpoint (8 bytes), CRC-32C. It is
//! written under another name and renamed, and is the last thing that a new store gets: without it there is no store.
//!
//! Invariant: records are durable in their order. What is read is what was written: a frame that does not decode is an
//! error that names its position, never the end.

mod directory;

use crate::bytes::{BytesError, Reader, put_bytes};
use crate::replica::GroupId;
use directory::OwnFiles;
use redoubt_consensus::codec::{CodecError, decode_record, encode_record};
use redoubt_consensus::record::Record;
use redoubt_consensus::types::{MemberId, Slot};
use redoubt_logdev::{FileLogDevice, LogDevice, LogDeviceError, SegmentOptions, Seq};
use redoubt_storage::{RealDir, StorageDir};
use std::io;
use std::path::Path;
use std::sync::Arc;

const HEAD: &str = "head";
const NEW_HEAD: &str = "head-new";
const MAGIC: [u8; 8] = *b"RDTGSTOR";
const VERSION: u32 = 2;
const HEAD_LEN_BYTES: usize = 8 + 4 + 16 + 8 + 8 + 4;
const RECORD: u8 = 1;
const CHECKPOINT: u8 = 2;
const STATE: u8 = 3;
/// How much of the log is read at a time.
const READ_LEN_BYTES: u64 = 8 << 20;

/// Why there is no store, or no more of it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The log device.
    #[error("the group's log: {0}")]
    Device(#[from] LogDeviceError),
    /// A file.
    #[error("the group's log: cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Somebody else has it.
    #[error("the data directory is in use by another server that is a member of a group")]
    InUse,
    /// The head file is damaged.
    #[error(
        "redoubt_group.head.log {0}: it is damaged; remove the files redoubt_group.*.log, and the member joins anew"
    )]
    Head(&'static str),
    /// A frame does not decode.
    #[error(
        "the group's log at {position}: {reason}; remove the files redoubt_group.*.log, and the member joins anew"
    )]
    Frame {
        /// Position in the stream, in bytes.
        position: u64,
        /// What is wrong.
        reason: String,
    },
}

/// Names of a member and its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The group.
    pub group: GroupId,
    /// The member.
    pub member: MemberId,
}

/// What is in a store.
pub struct Found {
    /// Who it is of.
    pub identity: Identity,
    /// Records of the member, from the checkpoint on.
    pub records: Vec<Record>,
    /// What was ordered before the checkpoint, encoded.
    pub replica: Vec<u8>,
}

/// See the module.
pub struct Store {
    directory: Arc<dyn StorageDir>,
    device: Arc<dyn LogDevice>,
    identity: Identity,
    /// A checkpoint whose state is not there yet.
    begun: Option<(Slot, Seq)>,
    checkpoint: Seq,
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
    /// Opens what is in a data directory; `None` if there is nothing.
    ///
    /// # Errors
    /// It is damaged, or cannot be read.
    pub fn open(directory: &Path) -> Result<Option<(Self, Found)>, StoreError> {
        let directory = own_files(directory)?;
        if !directory.list().map_err(io_error("list the data directory"))?.iter().any(|name| name == HEAD) {
            return Ok(None);
        }
        let (identity, checkpoint) = read_head(&*directory)?;
        let device = open_device(&directory)?;
        let store = Self { directory, device, identity, begun: None, checkpoint };
        let found = store.read()?;
        Ok(Some((store, found)))
    }

    /// Makes a new one in a data directory, in the place of whatever there was.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(
        directory: &Path,
        identity: Identity,
        slot: Slot,
        records: &[Record],
        replica: &[u8],
    ) -> Result<Self, StoreError> {
        let directory = own_files(directory)?;
        let mut names = directory.list().map_err(io_error("list the data directory"))?;
        // Without its head the rest is nothing.
        names.sort_by_key(|name| name != HEAD);
        for name in names {
            directory.remove(&name).map_err(io_error("remove a file of an earlier group"))?;
        }
        let device = open_device(&directory)?;
        let mut store = Self { directory, device, identity, begun: None, checkpoint: Seq(0) };
        store.begin_checkpoint(slot, records)?;
        store.end_checkpoint(slot, replica)?;
        Ok(store)
    }

    /// Whose it is.
    pub const fn identity(&self) -> Identity {
        self.identity
    }

    /// Appends a record. It is not durable before the device is synced.
    ///
    /// # Errors
    /// [`StoreError::Device`].
    pub fn append(&self, record: &Record) -> Result<(), StoreError> {
        let mut content = Vec::new();
        encode_record(record, &mut content);
        self.put(RECORD, &[&content]).map(drop)
    }

    /// For a thread that makes things durable while others go on.
    pub fn device(&self) -> Arc<dyn LogDevice> {
        Arc::clone(&self.device)
    }

    /// How many bytes were written since the last checkpoint.
    pub fn len_since_checkpoint_bytes(&self) -> u64 {
        self.device.end().0 - self.checkpoint.0
    }

    /// Whether a checkpoint waits for its state.
    pub const fn is_checkpoint_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Writes what takes the place of all records so far, except for the state at `slot`.
    ///
    /// # Errors
    /// [`StoreError::Device`].
    pub fn begin_checkpoint(&mut self, slot: Slot, records: &[Record]) -> Result<(), StoreError> {
        let mut content = Vec::new();
        content.extend_from_slice(&slot.0.to_le_bytes());
        content.extend_from_slice(&(records.len() as u32).to_le_bytes());
        for record in records {
            let mut bytes = Vec::new();
            encode_record(record, &mut bytes);
            put_bytes(&mut content, &bytes);
        }
        let at = self.put(CHECKPOINT, &[&content])?;
        self.begun = Some((slot, at));
        Ok(())
    }

    /// Writes the state at the slot of the checkpoint that was begun, and gives up what was before.
    ///
    /// # Errors
    /// [`StoreError::Device`], [`StoreError::Io`].
    pub fn end_checkpoint(&mut self, slot: Slot, replica: &[u8]) -> Result<(), StoreError> {
        let Some((_, at)) = self.begun.take_if(|(begun, _)| *begun == slot) else { return Ok(()) };
        self.put(STATE, &[&slot.0.to_le_bytes(), replica])?;
        self.device.sync()?;
        self.write_head(at)?;
        self.checkpoint = at;
        self.device.discard_before(at)?;
        Ok(())
    }

    /// Where the frame begins.
    fn put(&self, kind: u8, parts: &[&[u8]]) -> Result<Seq, StoreError> {
        let len = 1 + parts.iter().map(|part| part.len()).sum::<usize>();
        let mut frame = Vec::with_capacity(4 + len);
        frame.extend_from_slice(&(len as u32).to_le_bytes());
        frame.push(kind);
        parts.iter().for_each(|part| frame.extend_from_slice(part));
        let end = self.device.append(&frame)?;
        Ok(Seq(end.0 - frame.len() as u64))
    }

    fn write_head(&self, checkpoint: Seq) -> Result<(), StoreError> {
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&self.identity.group.0);
        head.extend_from_slice(&self.identity.member.0.to_le_bytes());
        head.extend_from_slice(&checkpoint.0.to_le_bytes());
        head.extend_from_slice(&crc32c::crc32c(&head).to_le_bytes());
        let directory = &self.directory;
        if directory.list().map_err(io_error("list the data directory"))?.iter().any(|name| name == NEW_HEAD)
        {
            directory.remove(NEW_HEAD).map_err(io_error("remove an unfinished head"))?;
        }
        let file = directory.create(NEW_HEAD).map_err(io_error("create the head"))?;
        file.write_at(0, &head).map_err(io_error("write the head"))?;
        file.sync_data().map_err(io_error("sync the head"))?;
        directory.rename(NEW_HEAD, HEAD).map_err(io_error("rename the head"))?;
        directory.sync().map_err(io_error("sync the data directory"))
    }

    fn read(&self) -> Result<Found, StoreError> {
        let mut frames = Frames { device: &*self.device, at: self.checkpoint.0, buffer: Vec::new(), used: 0 };
        let mut first: Option<(Slot, Vec<Record>)> = None;
        let mut replica = None;
        while let Some((position, frame)) = frames.next()? {
            let wrong = |reason: String| StoreError::Frame { position, reason };
            let (kind, content) = frame.split_first().ok_or_else(|| wrong("an empty frame".into()))?;
            match (kind, &mut first) {
                (&CHECKPOINT, None) => first = Some(checkpoint(content).map_err(wrong)?),
                // One whose head was not written any more.
                (&CHECKPOINT, Some(_)) => {}
                (&RECORD, Some((_, records))) => {
                    records
                        .push(decode_record(content).map_err(|error: CodecError| wrong(error.to_string()))?);
                }
                (&STATE, Some((slot, _))) => {
                    let (of, bytes) =
                        content.split_first_chunk().ok_or_else(|| wrong("a short state".into()))?;
                    if u64::from_le_bytes(*of) == slot.0 && replica.is_none() {
                        replica = Some(bytes.to_vec());
                    }
                }
                _ => return Err(wrong(format!("a frame of kind {kind} where a checkpoint should begin"))),
            }
        }
        let position = self.checkpoint.0;
        let missing = |what: &str| StoreError::Frame { position, reason: format!("its {what} is missing") };
        let (_, records) = first.ok_or_else(|| missing("checkpoint"))?;
        let replica = replica.ok_or_else(|| missing("state"))?;
        Ok(Found { identity: self.identity, records, replica })
    }
}

fn open_device(directory: &Arc<dyn StorageDir>) -> Result<Arc<dyn LogDevice>, StoreError> {
    let options = SegmentOptions { spare_segments: 1, ..SegmentOptions::default() };
    Ok(Arc::new(FileLogDevice::open_on(Arc::clone(directory), options)?))
}

fn checkpoint(content: &[u8]) -> Result<(Slot, Vec<Record>), String> {
    let mut reader = Reader::new(content);
    let text = |error: BytesError| format!("a checkpoint {error}");
    let slot = Slot(reader.u64().map_err(text)?);
    let count = reader.u32().map_err(text)?;
    let mut records = Vec::new();
    for _ in 0..count {
        let bytes = reader.bytes().map_err(text)?;
        records.push(decode_record(bytes).map_err(|error| error.to_string())?);
    }
    reader.end().map_err(text)?;
    Ok((slot, records))
}

fn read_head(directory: &dyn StorageDir) -> Result<(Identity, Seq), StoreError> {
    let file = directory.open(HEAD).map_err(io_error("open the head"))?;
    let mut head = [0; HEAD_LEN_BYTES];
    if file.read_at(0, &mut head).map_err(io_error("read the head"))? < HEAD_LEN_BYTES {
        return Err(StoreError::Head("is too short"));
    }
    let (body, crc) = head.split_at(HEAD_LEN_BYTES - 4);
    let mut reader = Reader::new(body);
    let short = |_: BytesError| StoreError::Head("is too short");
    if reader.array().map_err(short)? != MAGIC {
        return Err(StoreError::Head("is none of a group"));
    }
    if crc32c::crc32c(body).to_le_bytes() != *crc {
        return Err(StoreError::Head("has another checksum"));
    }
    if reader.u32().map_err(short)? != VERSION {
        return Err(StoreError::Head("has a version that this library does not know"));
    }
    let group = GroupId(reader.array().map_err(short)?);
    let member = MemberId(reader.u64().map_err(short)?);
    Ok((Identity { group, member }, Seq(reader.u64().map_err(short)?)))
}

/// Frames of the log, in order.
struct Frames<'a> {
    device: &'a dyn LogDevice,
    /// What is to be read next.
    at: u64,
    buffer: Vec<u8>,
    used: usize,
}

impl Frames<'_> {
    /// The next one, with its position.
    fn next(&mut self) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        let position = self.at - (self.buffer.len() - self.used) as u64;
        if position == self.device.end().0 {
            return Ok(None);
        }
        let short = || StoreError::Frame { position, reason: "a frame ends with the log".into() };
        let head = self.take(4)?.and_then(|head| head.try_into().ok()).ok_or_else(short)?;
        let len = u32::from_le_bytes(head) as usize;
        let frame = self.take(len)?.ok_or_else(short)?;
        Ok(Some((position, frame)))
    }

    fn take(&mut self, count: usize) -> Result<Option<Vec<u8>>, StoreError> {
        while self.buffer.len() - self.used < count {
            let left = self.device.end().0 - self.at;
            if left == 0 {
                return Ok(None);
            }
            self.buffer.drain(..self.used);
            self.used = 0;
            let begin = self.buffer.len();
            self.buffer.resize(begin + left.min(READ_LEN_BYTES) as usize, 0);
            self.device.read_at(Seq(self.at), &mut self.buffer[begin..])?;
            self.at += (self.buffer.len() - begin) as u64;
        }
        let taken = self.buffer[self.used..self.used + count].to_vec();
        self.used += count;
        Ok(Some(taken))
    }
}

#[cfg(test)]
mod tests;
