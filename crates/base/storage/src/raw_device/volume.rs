//! [`Volume`]: the table of a raw device and the media that it is on: snapshots, chunks, reads and writes of files.
//!
//! Invariants:
//! * A snapshot is written into the area that does not hold the newest durable one. Everything that it refers to is
//!   flushed before it is written, and it is flushed before anybody is told that it is durable.
//! * A chunk is filled with zeros before a file gets it.
//! * The table never has a file longer than what was written to it.
//! * After a failed flush, or a failed write of a snapshot, nothing is known about what is durable: all later writes
//!   and syncs fail until the device is opened again.
//!
//! Lock order: the locks of a file, `commit`, `table`. `table` is never held during input or output.

use std::io;
use std::sync::OnceLock;

use redoubt_sync::{Mutex, MutexGuard};

use super::layout::{BLOCK_LEN, Layout, MARK_OFFSET, TRIAL_OFFSET, TRIAL_ROOM};
use super::media::{BlockMedia, MediaWrite};
use super::streams;
use super::table::{RawFileId, Table};
use crate::{AlignedBuffer, Stream, UntornLimits};

/// The longest single read or write, in bytes.
pub(super) const MAX_IO_LEN: usize = 1 << 20;
const TRIAL_LEN: u64 = 16 << 10;

/// See the module.
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

/// Writes an empty table and everything that belongs to it. What was on the media is lost.
pub(super) fn format(media: &dyn BlockMedia, layout: &Layout) -> io::Result<()> {
    let write = |offset: u64, bytes: &[u8]| write_bytes(media, offset, bytes, 0);
    // Should this be cut off, it is no device of ours until all is there.
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

/// Writes `bytes`, filled up with zeros to whole blocks.
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

/// Why a volume could not be opened.
#[derive(Debug)]
pub(super) enum OpenFailure {
    Io(&'static str, io::Error),
    Damaged(String),
}

impl Volume {
    /// Opens what `layout`, read from the media, describes.
    pub fn open(media: Box<dyn BlockMedia>, layout: Layout) -> Result<Self, OpenFailure> {
        // What a killed process wrote is with the drive, but perhaps not durable. What is read from here on is.
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

    /// Writes the mark, in a stream if there are said to be some.
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
        // Files are written in whole blocks, and a chunk is the longest that is in one piece.
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

    /// How many write streams writes can go to.
    pub fn stream_count(&self) -> u32 {
        self.streams
    }

    pub fn stream_number(&self, stream: Stream) -> u8 {
        streams::number(stream, self.streams)
    }

    /// Fails if the device failed before.
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

    /// Makes all writes that are done durable.
    pub fn flush(&self) -> io::Result<()> {
        self.check()?;
        self.media.flush().map_err(|error| self.fail("flush it", error))?;
        // Another flush may have failed meanwhile, and taken the error of writes that this one was to cover.
        self.check()
    }

    /// Makes all writes that are done durable, and the table up to `version`.
    pub fn sync(&self, version: u64) -> io::Result<()> {
        if version > self.table().durable_version && self.commit(Some(version))? {
            return Ok(());
        }
        self.flush()
    }

    /// Writes a snapshot, if that of `version` is not durable; tells whether.
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
        // Not flushed, but before any chunk that this snapshot frees is written to.
        write_bytes(&*self.media, MARK_OFFSET, &self.layout.encode_mark(counter), stream)
            .map_err(|error| self.fail("mark a snapshot as durable", error))?;
        *snapshots = Snapshots { area, counter };
        for &chunk in &freed {
            // A hint: what fails here is met again when the chunk is used.
            let _ = self.media.discard(self.layout.chunk_offset(chunk), self.layout.chunk_len);
        }
        let mut table = self.table();
        table.durable_version = newest;
        table.put_free(freed);
        Ok(true)
    }

    /// Takes chunks and fills them with zeros. The caller gives them to a file or puts them back.
    pub fn take_zeroed_chunks(&self, count: usize, stream: u8) -> io::Result<Vec<u32>> {
        let chunks = loop {
            let taken = self.table().take_free(count)?;
            match taken {
                Some(chunks) => break chunks,
                // Some are still in the snapshot that is durable.
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

    /// Writes zeros to whole blocks of the media.
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

    /// Gives chunks to a file where `[at, end)` has holes. The chunks hold zeros.
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
