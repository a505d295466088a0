//! [`Volume`]: the table of a raw device with its medium: snapshots, chunks, reads and writes of files.
//!
//! Invariants:
//! * A snapshot is written into the area without the newest durable one. All data that it refers to is flushed before
//!   the write. The snapshot itself is flushed before it is reported as durable.
//! * A chunk is filled with zeros before a file gets it.
//! * The table never has a file that is longer than the data written to it.
//! * After a failed flush, or a failed write of a snapshot, it is unknown which data is durable. All later writes and
//!   syncs fail until the device is opened again.
//!
//! Lock order: the locks of a file, `commit`, `table`. `table` is never held during I/O.

use std::io;
use std::sync::OnceLock;

use redoubt_sync::{Mutex, MutexGuard};

use super::layout::{BLOCK_LEN, Layout, MARK_OFFSET, TRIAL_OFFSET, TRIAL_ROOM};
use super::media::{BlockMedia, MediaWrite};
use super::streams;
use super::table::{RawFileId, Table};
use crate::{AlignedBuffer, Stream, UntornLimits};

/// Maximum length of a single read or write, in bytes.
pub(super) const MAX_IO_LEN: usize = 1 << 20;
const TRIAL_LEN: u64 = 16 << 10;

/// The table of a raw device with its medium.
pub(super) struct Volume {
    pub media: Box<dyn BlockMedia>,
    pub layout: Layout,
    table: Mutex<Table>,
    commit: Mutex<Snapshots>,
    failure: OnceLock<String>,
    streams: u32,
    pub streams_refused: Option<String>,
    pub untorn: Option<UntornLimits>,
}

/// The newest durable snapshot.
struct Snapshots {
    area: usize,
    counter: u64,
}

/// Writes an empty table, with all fixed blocks. The previous content of the medium is lost.
pub(super) fn format(media: &dyn BlockMedia, layout: &Layout) -> io::Result<()> {
    let write = |offset: u64, bytes: &[u8]| write_bytes(media, offset, bytes, 0);
    // After an interruption, this is no raw device until everything is written.
    write(0, &[0; BLOCK_LEN])?;
    media.flush()?;
    let data_len = u64::from(layout.chunk_count) * layout.chunk_len;
    media.discard(layout.data_offset, data_len)?;
    write(MARK_OFFSET, &[0; BLOCK_LEN])?;
    write(layout.area_offset(1), &[0; BLOCK_LEN])?;
    write(layout.area_offset(0), &layout.encode_snapshot(1, &Table::new(layout).encode()))?;
    media.flush()?;
    write(0, &layout.encode())?;
    media.flush()
}

/// Writes `bytes`, padded with zeros to whole blocks.
fn write_bytes(media: &dyn BlockMedia, offset_bytes: u64, bytes: &[u8], stream: u8) -> io::Result<()> {
    for (n, part) in bytes.chunks(MAX_IO_LEN).enumerate() {
        let mut buffer = AlignedBuffer::with_capacity(part.len());
        if !buffer.extend(part) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        buffer.pad_to(BLOCK_LEN);
        media.write(offset_bytes + (n * MAX_IO_LEN) as u64, buffer, MediaWrite { stream, untorn: false })?;
    }
    Ok(())
}

fn read_bytes(media: &dyn BlockMedia, offset_bytes: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let part = MAX_IO_LEN.min(len - bytes.len());
        let mut buffer = AlignedBuffer::zeroed(part.next_multiple_of(BLOCK_LEN));
        media.read(offset_bytes + bytes.len() as u64, &mut buffer)?;
        bytes.extend_from_slice(buffer.bytes().get(..part).unwrap_or_default());
    }
    Ok(bytes)
}

/// Reason why a volume could not be opened.
#[derive(Debug)]
pub(super) enum OpenFailure {
    Io(&'static str, io::Error),
    Damaged(String),
}

impl Volume {
    /// Opens the volume that `layout`, which was read from the medium, describes.
    pub fn open(media: Box<dyn BlockMedia>, layout: Layout) -> Result<Self, OpenFailure> {
        // The drive has the writes of a killed process, but perhaps not durably. After this flush, all data that is
        // read is durable.
        media.flush().map_err(|error| OpenFailure::Io("flush", error))?;
        let (table, snapshots) = find_newest(&*media, &layout)?;
        let mut volume = Self {
            media,
            layout,
            table: Mutex::new(table),
            commit: Mutex::new(snapshots),
            failure: OnceLock::new(),
            streams: 0,
            streams_refused: None,
            untorn: None,
        };
        volume.try_streams().map_err(|error| OpenFailure::Io("write to", error))?;
        volume.try_untorn().map_err(|error| OpenFailure::Io("try an untorn write on", error))?;
        Ok(volume)
    }

    /// Writes the mark, in a stream if the medium reports streams.
    fn try_streams(&mut self) -> io::Result<()> {
        let counter = self.commit.get_mut().counter;
        let mark = self.layout.encode_mark(counter);
        let stated = self.media.stated_streams();
        if stated > 0 {
            let number = streams::number(Stream::Metadata, stated);
            match write_bytes(&*self.media, MARK_OFFSET, &mark, number) {
                Ok(()) => {
                    self.streams = stated;
                    return Ok(());
                }
                Err(error) => {
                    self.streams_refused =
                        Some(format!("the drive reports {stated}, but a write failed: {error}"));
                }
            }
        }
        write_bytes(&*self.media, MARK_OFFSET, &mark, 0)
    }

    fn try_untorn(&mut self) -> io::Result<()> {
        let Some(stated) = self.media.stated_untorn() else { return Ok(()) };
        // Files are written in whole blocks, and only the inside of a chunk is contiguous.
        let limits = UntornLimits {
            min_len_bytes: stated.min_len_bytes.max(BLOCK_LEN as u64),
            max_len_bytes: stated.max_len_bytes.min(self.layout.chunk_len).min(MAX_IO_LEN as u64),
        };
        let len = TRIAL_LEN.max(limits.min_len_bytes).min(limits.max_len_bytes);
        if limits.min_len_bytes > limits.max_len_bytes || len > TRIAL_ROOM {
            return Ok(());
        }
        let how = MediaWrite { stream: self.stream_number(Stream::Metadata), untorn: true };
        match self.media.write(TRIAL_OFFSET, AlignedBuffer::zeroed(len as usize), how) {
            Ok(_) => self.untorn = Some(limits),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Number of write streams for writes.
    pub fn stream_count(&self) -> u32 {
        self.streams
    }

    pub fn stream_number(&self, stream: Stream) -> u8 {
        streams::number(stream, self.streams)
    }

    /// Fails if the device has failed before.
    pub fn check(&self) -> io::Result<()> {
        match self.failure.get() {
            None => Ok(()),
            Some(failure) => {
                Err(io::Error::other(format!("the raw device failed before, open it again: {failure}")))
            }
        }
    }

    fn fail(&self, action: &str, error: io::Error) -> io::Error {
        let _ = self.failure.set(format!("cannot {action}: {error}"));
        error
    }

    /// Makes all completed writes durable.
    pub fn flush(&self) -> io::Result<()> {
        self.check()?;
        self.media.flush().map_err(|error| self.fail("flush it", error))?;
        // Another flush may have failed meanwhile, and received the error of writes that this one covers.
        self.check()
    }

    /// Makes all completed writes durable, and the table up to `version`.
    pub fn sync(&self, version: u64) -> io::Result<()> {
        if version > self.table().durable_version && self.commit(Some(version))? {
            return Ok(());
        }
        self.flush()
    }

    /// Writes a snapshot, unless that of `version` is durable. Returns whether it did.
    fn commit(&self, version: Option<u64>) -> io::Result<bool> {
        let mut snapshots = self.commit.lock();
        self.check()?;
        let (bytes, newest, freed) = {
            let mut table = self.table();
            if version.is_some_and(|version| version <= table.durable_version) {
                return Ok(false);
            }
            (table.encode(), table.version(), table.take_freed())
        };
        let (area, counter) = (1 - snapshots.area, snapshots.counter + 1);
        let stream = self.stream_number(Stream::Metadata);
        self.flush()?;
        let snapshot = self.layout.encode_snapshot(counter, &bytes);
        write_bytes(&*self.media, self.layout.area_offset(area), &snapshot, stream)
            .map_err(|error| self.fail("write a snapshot of its directories", error))?;
        self.flush()?;
        // Not flushed, but written before any chunk that this snapshot frees.
        write_bytes(&*self.media, MARK_OFFSET, &self.layout.encode_mark(counter), stream)
            .map_err(|error| self.fail("mark a snapshot as durable", error))?;
        *snapshots = Snapshots { area, counter };
        for &chunk in &freed {
            // A hint: a failing chunk fails again at its next use.
            let _ = self.media.discard(self.layout.chunk_offset(chunk), self.layout.chunk_len);
        }
        let mut table = self.table();
        table.durable_version = newest;
        table.put_free(freed);
        Ok(true)
    }

    /// Takes chunks and fills them with zeros. The caller installs them in a file or returns them.
    pub fn take_zeroed_chunks(&self, count: usize, stream: u8) -> io::Result<Vec<u32>> {
        let chunks = loop {
            let taken = self.table().take_free(count)?;
            match taken {
                Some(chunks) => break chunks,
                // Some chunks are still in the durable snapshot.
                None => drop(self.commit(None)?),
            }
        };
        for &chunk in &chunks {
            let offset = self.layout.chunk_offset(chunk);
            if let Err(error) = self.write_zeros(offset, self.layout.chunk_len, stream) {
                self.table().put_free(chunks);
                return Err(error);
            }
        }
        Ok(chunks)
    }

    /// Writes zeros to whole blocks of the medium.
    fn write_zeros(&self, offset_bytes: u64, len_bytes: u64, stream: u8) -> io::Result<()> {
        let mut buffer = AlignedBuffer::zeroed(len_bytes.min(MAX_IO_LEN as u64) as usize);
        let mut done = 0;
        while done < len_bytes {
            if len_bytes - done < buffer.len() as u64 {
                buffer = AlignedBuffer::zeroed((len_bytes - done) as usize);
            }
            let len = buffer.len() as u64;
            buffer = self.media.write(offset_bytes + done, buffer, MediaWrite { stream, untorn: false })?;
            done += len;
        }
        Ok(())
    }

    /// Installs chunks in a file where `[at, end)` has holes. The chunks contain zeros.
    pub fn fill_holes(&self, id: RawFileId, at: u64, end: u64, stream: u8) -> io::Result<()> {
        if end.saturating_sub(at) / self.layout.chunk_len > u64::from(self.layout.chunk_count) {
            return Err(super::table::full("data"));
        }
        let pieces = self.table().pieces(id, at, end)?;
        let is_hole = |piece: &&super::table::Piece| piece.place.is_none();
        let holes: Vec<u64> =
            pieces.iter().filter(is_hole).map(|piece| piece.at / self.layout.chunk_len).collect();
        if holes.is_empty() {
            return Ok(());
        }
        let chunks = self.take_zeroed_chunks(holes.len(), stream)?;
        let mut table = self.table();
        let installed = table.install(id, &holes, &chunks);
        if installed.is_err() {
            table.put_free(chunks);
        }
        installed
    }
}

fn find_newest(media: &dyn BlockMedia, layout: &Layout) -> Result<(Table, Snapshots), OpenFailure> {
    let read = |offset, len| read_bytes(media, offset, len).map_err(|error| OpenFailure::Io("read", error));
    let marked = layout.decode_mark(&read(MARK_OFFSET, BLOCK_LEN)?);
    let mut newest: Option<(Table, Snapshots)> = None;
    for area in [0, 1] {
        let offset = layout.area_offset(area);
        let Some(header) = layout.decode_snapshot(&read(offset, BLOCK_LEN)?) else { continue };
        let counter = header.counter;
        if newest.as_ref().is_some_and(|(_, newest)| newest.counter > counter) {
            continue;
        }
        let bytes = read(offset + BLOCK_LEN as u64, header.table_len)?;
        let Some(table) = header.decode_table(layout, &bytes) else { continue };
        let table = table.map_err(|reason| {
            OpenFailure::Damaged(format!("snapshot {counter} of its directories makes no sense: {reason}"))
        })?;
        newest = Some((table, Snapshots { area, counter }));
    }
    let Some((table, snapshots)) = newest else {
        return Err(OpenFailure::Damaged("neither snapshot of its directories can be read".to_owned()));
    };
    if snapshots.counter < marked {
        return Err(OpenFailure::Damaged(format!(
            "snapshot {marked} of its directories was durable and cannot be read; the older one, {}, does not \
             describe what is there now",
            snapshots.counter
        )));
    }
    Ok((table, snapshots))
}
