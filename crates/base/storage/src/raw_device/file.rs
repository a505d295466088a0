//! Directories and files of a raw device, as implementations of the storage interface.
//!
//! All I/O is in whole blocks of 4096 bytes. A write that begins or ends inside a block reads that block first and
//! writes it again with its other bytes unchanged. Meanwhile, no other thread reads or writes the file. The last block
//! written in this way is cached, so that appends in small steps read nothing. Writes of whole blocks that do not
//! extend the file run concurrently with each other and with reads.
//!
//! A power cut has the same effect on an unsynced write as on a file system: each sector of 512 bytes has its old or
//! its new content. Bytes beside the written range that share a sector with it are written with their existing
//! content. So a durable neighbour stays unchanged in both cases.

use std::io;
use std::sync::Arc;

use redoubt_sync::{Mutex, RwLock};

use super::RawDevice;
use super::layout::BLOCK_LEN;
use super::media::MediaWrite;
use super::table::{Piece, RawFileId, check_name};
use super::volume::{MAX_IO_LEN, Volume};
use crate::{AlignedBuffer, StorageDir, StorageFile, Stream, UntornLimits, WriteOptions, untorn};

const BLOCK: u64 = BLOCK_LEN as u64;

/// State that the handles of one file share.
#[derive(Default)]
pub(super) struct FileLocks {
    /// Locked for reading by reads and by writes of whole blocks in place, and for writing by all other operations.
    io: RwLock<()>,
    /// Content of the last partially written block, by its offset on the device.
    last_block: Mutex<Option<(u64, Vec<u8>)>>,
}

impl FileLocks {
    fn forget(&self) {
        *self.last_block.lock() = None;
    }
}

/// A directory of a raw device, open for one user at a time.
pub(super) struct RawDirectory {
    device: Arc<RawDevice>,
    name: String,
    stream: Stream,
}

impl RawDirectory {
    /// Opens the directory, and creates it if needed. Writes that name no stream go to `stream`.
    pub fn open(device: &Arc<RawDevice>, name: &str, stream: Stream) -> io::Result<Self> {
        device.volume.check()?;
        device.volume.table().open_dir(name)?;
        Ok(Self { device: Arc::clone(device), name: name.to_owned(), stream })
    }

    fn volume(&self) -> &Volume {
        &self.device.volume
    }
}

impl Drop for RawDirectory {
    fn drop(&mut self) {
        self.device.volume.table().close_dir(&self.name);
    }
}

impl StorageDir for RawDirectory {
    fn list(&self) -> io::Result<Vec<String>> {
        self.volume().table().list(&self.name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let (id, locks) = self.volume().table().open(&self.name, name)?;
        Ok(Arc::new(RawFile { device: Arc::clone(&self.device), id, locks, stream: self.stream }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        check_name(name)?;
        self.volume().check()?;
        self.volume().table().create(&self.name, name)?;
        self.open(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.volume().check()?;
        self.volume().table().rename(&self.name, from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.volume().check()?;
        self.volume().table().remove(&self.name, name)
    }

    fn sync(&self) -> io::Result<()> {
        let version = self.volume().table().dir_changed_at(&self.name)?;
        self.volume().sync(version)
    }

    fn untorn_limits(&self) -> io::Result<Option<UntornLimits>> {
        Ok(self.volume().untorn)
    }
}

struct RawFile {
    device: Arc<RawDevice>,
    id: RawFileId,
    locks: Arc<FileLocks>,
    stream: Stream,
}

impl Drop for RawFile {
    fn drop(&mut self) {
        self.device.volume.table().close(self.id);
    }
}

/// Extends `[at, end)` to whole blocks.
fn blocks_around(at: u64, end: u64) -> (u64, u64) {
    (at - at % BLOCK, end.next_multiple_of(BLOCK))
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "the range ends after the largest offset that there is")
}

impl RawFile {
    fn volume(&self) -> &Volume {
        &self.device.volume
    }

    fn write(&self, at: u64, bytes: &[u8], stream: u8, is_untorn: bool) -> io::Result<()> {
        self.volume().check()?;
        let end =
            at.checked_add(bytes.len() as u64).filter(|&end| end < i64::MAX as u64).ok_or_else(too_long)?;
        let how = MediaWrite { stream, untorn: is_untorn };
        if at.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK) {
            let _shared = self.locks.io.read();
            let (len, pieces) = {
                let table = self.volume().table();
                (table.len(self.id)?, table.pieces(self.id, at, end)?)
            };
            if end <= len && pieces.iter().all(|piece| piece.place.is_some()) {
                return self.write_pieces(&pieces, at, bytes, len, how);
            }
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let _alone = self.locks.io.write();
        self.write_alone(at, end, bytes, how)
    }

    /// Performs any write, with exclusive use of the file.
    fn write_alone(&self, at: u64, end: u64, bytes: &[u8], how: MediaWrite) -> io::Result<()> {
        self.volume().fill_holes(self.id, at, end, how.stream)?;
        let len = self.volume().table().len(self.id)?;
        if at > len {
            self.clear(len, at, how.stream)?;
        }
        let pieces = self.volume().table().pieces(self.id, at, end)?;
        self.write_pieces(&pieces, at, bytes, len, how)?;
        self.volume().table().grow(self.id, end)
    }

    /// Makes `[at, end)` read as zeros where the file has chunks.
    fn clear(&self, at: u64, end: u64, stream: u8) -> io::Result<()> {
        let how = MediaWrite { stream, untorn: false };
        let zeros = vec![0; MAX_IO_LEN.min((end - at) as usize)];
        // Nothing to do after the file's last chunk.
        let pieces = self.volume().table().mapped_pieces(self.id, at, end)?;
        for piece in pieces {
            let Some((chunk, in_chunk)) = piece.place else { continue };
            let offset = self.volume().layout.chunk_offset(chunk) + in_chunk;
            let mut done = 0;
            while done < piece.len {
                let part = zeros.len().min(piece.len - done);
                self.write_part(offset + done as u64, zeros.get(..part).unwrap_or_default(), 0, how)?;
                done += part;
            }
        }
        Ok(())
    }

    /// Writes to chunks of the file, which is `len` bytes long; `bytes` begin at `at`.
    fn write_pieces(
        &self,
        pieces: &[Piece],
        at: u64,
        bytes: &[u8],
        len: u64,
        how: MediaWrite,
    ) -> io::Result<()> {
        for piece in pieces {
            let kept = len.saturating_sub(piece.at);
            let from = (piece.at - at) as usize;
            let part = bytes.get(from..from + piece.len).unwrap_or_default();
            let (chunk, in_chunk) = piece.place.ok_or(io::ErrorKind::NotFound)?;
            let mut offset = self.volume().layout.chunk_offset(chunk) + in_chunk;
            let kept_end = offset.saturating_add(kept);
            let mut rest = part;
            while !rest.is_empty() {
                // Only the first part begins inside a block.
                let len = (MAX_IO_LEN - (offset % BLOCK) as usize).min(rest.len());
                let (part, after) = rest.split_at(len);
                self.write_part(offset, part, kept_end, how)?;
                offset += len as u64;
                rest = after;
            }
        }
        Ok(())
    }

    /// Performs one write to the media of at most [`MAX_IO_LEN`], with the surrounding blocks. Their content from
    /// `kept_end` on, the end of the file, becomes zero.
    fn write_part(&self, offset: u64, bytes: &[u8], kept_end: u64, how: MediaWrite) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        let (first, last_end) = blocks_around(offset, end);
        let media = &*self.volume().media;
        if first == offset && last_end == end {
            self.locks.forget();
            let mut buffer = AlignedBuffer::with_capacity(bytes.len());
            if !buffer.extend(bytes) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            return media.write(offset, buffer, how).map(drop);
        }
        let mut buffer = AlignedBuffer::zeroed((last_end - first) as usize);
        let last = last_end - BLOCK;
        if first < offset {
            self.read_block(first, &mut buffer, 0)?;
        }
        if end < last_end && last < kept_end && (last != first || first == offset) {
            self.read_block(last, &mut buffer, (last - first) as usize)?;
        }
        let in_buffer = (offset - first) as usize;
        if let Some(place) = buffer.bytes_mut().get_mut(in_buffer..in_buffer + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        let zeros_from = (end.max(kept_end.min(last_end)) - first) as usize;
        buffer.bytes_mut().get_mut(zeros_from..).unwrap_or_default().fill(0);
        self.locks.forget();
        let buffer = media.write(first, buffer, how)?;
        if end < last_end {
            let content = buffer.bytes().get((last - first) as usize..).unwrap_or_default().to_vec();
            *self.locks.last_block.lock() = Some((last, content));
        }
        Ok(())
    }

    /// Reads one block of the device into the buffer at `at`.
    fn read_block(&self, offset: u64, buffer: &mut AlignedBuffer, at: usize) -> io::Result<()> {
        let Some(place) = buffer.bytes_mut().get_mut(at..at + BLOCK_LEN) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if let Some((known, content)) = &*self.locks.last_block.lock()
            && *known == offset
        {
            place.copy_from_slice(content);
            return Ok(());
        }
        let mut block = AlignedBuffer::zeroed(BLOCK_LEN);
        self.volume().media.read(offset, &mut block)?;
        place.copy_from_slice(block.bytes());
        Ok(())
    }

    fn read_piece(&self, piece: &Piece, buf: &mut [u8]) -> io::Result<()> {
        let Some((chunk, in_chunk)) = piece.place else {
            buf.fill(0);
            return Ok(());
        };
        let mut offset = self.volume().layout.chunk_offset(chunk) + in_chunk;
        let mut rest = buf;
        while !rest.is_empty() {
            let len = (MAX_IO_LEN - (offset % BLOCK) as usize).min(rest.len());
            let (part, after) = rest.split_at_mut(len);
            let (first, end) = blocks_around(offset, offset + len as u64);
            let mut buffer = AlignedBuffer::zeroed((end - first) as usize);
            self.volume().media.read(first, &mut buffer)?;
            let from = (offset - first) as usize;
            part.copy_from_slice(buffer.bytes().get(from..from + len).ok_or(io::ErrorKind::UnexpectedEof)?);
            offset += len as u64;
            rest = after;
        }
        Ok(())
    }
}

impl StorageFile for RawFile {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<usize> {
        let _shared = self.locks.io.read();
        let (len, pieces) = {
            let table = self.volume().table();
            let len = table.len(self.id)?.saturating_sub(offset_bytes).min(buf.len() as u64);
            (len as usize, table.pieces(self.id, offset_bytes, offset_bytes.saturating_add(len))?)
        };
        let mut rest = buf;
        for piece in &pieces {
            let Some((part, after)) = rest.split_at_mut_checked(piece.len) else { break };
            self.read_piece(piece, part)?;
            rest = after;
        }
        Ok(len)
    }

    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(offset_bytes, bytes, self.volume().stream_number(self.stream), false)
    }

    fn write_with(&self, offset_bytes: u64, bytes: &[u8], options: WriteOptions) -> io::Result<()> {
        if options.untorn {
            untorn::check_shape(offset_bytes, bytes.len())?;
            let limits = self.volume().untorn;
            let kind = match limits {
                None => Some(io::ErrorKind::Unsupported),
                Some(limits) if !limits.allow(offset_bytes, bytes.len() as u64) => {
                    Some(io::ErrorKind::InvalidInput)
                }
                Some(_) => None,
            };
            if let Some(kind) = kind {
                return Err(untorn::refused(offset_bytes, bytes.len(), kind));
            }
        }
        self.write(offset_bytes, bytes, self.volume().stream_number(options.stream), options.untorn)
    }

    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.volume().check()?;
        let end = offset_bytes.checked_add(len_bytes).filter(|&end| end < i64::MAX as u64);
        let end = end.ok_or_else(too_long)?;
        let stream = self.volume().stream_number(self.stream);
        let _alone = self.locks.io.write();
        self.volume().fill_holes(self.id, offset_bytes, end, stream)?;
        let len = self.volume().table().len(self.id)?;
        if end > len {
            self.clear(len, end, stream)?;
            self.volume().table().grow(self.id, end)?;
        }
        Ok(())
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.volume().check()?;
        if len_bytes >= i64::MAX as u64 {
            return Err(too_long());
        }
        let _alone = self.locks.io.write();
        let len = self.volume().table().len(self.id)?;
        if len_bytes > len {
            self.clear(len, len_bytes, self.volume().stream_number(self.stream))?;
        }
        self.locks.forget();
        self.volume().table().set_len(self.id, len_bytes)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.volume().table().len(self.id)
    }

    fn sync_data(&self) -> io::Result<()> {
        let version = self.volume().table().changed_at(self.id)?;
        self.volume().sync(version)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn drop_cache(&self) -> io::Result<()> {
        // Only one block is ever in memory.
        self.locks.forget();
        Ok(())
    }
}
