//! Reading a plain file in small pieces, to compare it with its checksum or to compute one: the scrub.
//!
//! A file that is changed meanwhile gets no verdict. Contents that differ from their checksum are read several times, from
//! the drive as far as its caches can be dropped, before they are damaged. Then the file counts as lost ([`Loss`]).
//!
//! A checksum is computed only of a file at rest: each change of a file whose checksum is saved costs a write of the list.

use super::{Checksum, Loss, PlainStore};
use crate::error::NodeError;
use redoubt_storage::StorageFile;
use redoubt_wire::page::FileId;
use std::sync::Arc;
use std::time::Duration;

/// Read at once.
const PIECE_BYTES: usize = 256 << 10;
/// Reads of a file before it is damaged.
const READS_OF_DAMAGE: usize = 3;
/// A file that was not changed for this time is at rest.
pub const REST: Duration = Duration::from_secs(600);

/// A file that is being read.
pub struct FileWalk {
    file: FileId,
    handle: Arc<dyn StorageFile>,
    /// The checksum of its first bytes. `None`: a new one is being computed.
    expected: Option<Checksum>,
    /// Where this read ends.
    end_bytes: u64,
    read: Checksum,
    reads: usize,
    /// Of all reads.
    all_bytes: u64,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    /// There are more bytes to read.
    More,
    /// It is as it was.
    Whole,
    /// It had no checksum, and has one now.
    New,
    /// It is being changed, or was changed a short while ago.
    Changed,
    /// It is damaged, and lost now.
    Damaged,
}

impl FileWalk {
    fn restart(&mut self) {
        (self.read, self.reads) = (Checksum::default(), self.reads + 1);
    }

    /// Bytes that were read so far, in all reads.
    pub fn read_bytes(&self) -> u64 {
        self.all_bytes
    }

    /// Bytes of the file.
    pub fn len_bytes(&self) -> u64 {
        self.end_bytes
    }
}

impl PlainStore {
    /// From now on the times of changes are remembered, so that files at rest are known.
    pub fn track_changes(&self) {
        self.checksums.track_changes();
    }

    /// Forgets changes of files that are at rest by now.
    pub fn forget_changes(&self) {
        self.checksums.forget_changes(REST);
    }

    /// The file is at rest, and has no checksum yet.
    pub fn is_new_at_rest(&self, file: FileId) -> bool {
        self.checksums.is_new_at_rest(file, REST)
    }

    /// Begins to read a file; only one at a time. `None`: it has no contents, or is lost already.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn begin_walk(&self, file: FileId) -> Result<Option<FileWalk>, NodeError> {
        if self.lost(file).is_some() {
            return Ok(None);
        }
        let expected = self.checksums.begin_scrub(file);
        let Some(handle) = self.open_for_reading(file)? else { return Ok(None) };
        let len_bytes = handle
            .len_bytes()
            .map_err(|error| NodeError::io("read the length of", self.path(file), error))?;
        let end_bytes = expected.map_or(len_bytes, |expected| expected.len_bytes);
        Ok(Some(FileWalk {
            file,
            handle,
            expected,
            end_bytes,
            read: Checksum::default(),
            reads: 1,
            all_bytes: 0,
        }))
    }

    /// Reads the next piece.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn walk(&self, walk: &mut FileWalk) -> Result<Walked, NodeError> {
        let left = walk.end_bytes.saturating_sub(walk.read.len_bytes);
        let mut piece = vec![0; PIECE_BYTES.min(left as usize)];
        if !piece.is_empty() {
            if walk.expected.is_some() {
                // Without effect, the bytes are compared in memory.
                let _ = walk.handle.drop_cache_of(walk.read.len_bytes, piece.len() as u64);
            }
            let read = walk.handle.read_at(walk.read.len_bytes, &mut piece);
            let len = read.map_err(|error| NodeError::io("read", self.path(walk.file), error))?;
            piece.truncate(len);
            walk.read.crc = crc32c::crc32c_append(walk.read.crc, &piece);
            walk.read.len_bytes += len as u64;
            walk.all_bytes += len as u64;
            if len > 0 && walk.read.len_bytes < walk.end_bytes {
                return Ok(Walked::More);
            }
        }
        self.conclude(walk)
    }

    fn conclude(&self, walk: &mut FileWalk) -> Result<Walked, NodeError> {
        if walk.end_bytes == 0 {
            return Ok(Walked::Whole);
        }
        let Some(expected) = walk.expected else {
            let is_new = self.checksums.end_scrub(walk.file, walk.read, REST);
            return Ok(if is_new { Walked::New } else { Walked::Changed });
        };
        if walk.read == expected {
            let file_bytes = walk.handle.len_bytes().unwrap_or(0);
            if file_bytes <= expected.len_bytes {
                return Ok(Walked::Whole);
            }
            // It has become longer since.
            (walk.expected, walk.end_bytes) = (None, file_bytes);
            return Ok(Walked::More);
        }
        if walk.reads < READS_OF_DAMAGE {
            walk.restart();
            return Ok(Walked::More);
        }
        let damage = Loss::of_damaged(expected.len_bytes);
        let is_damaged =
            self.checksums.confirm_damage(walk.file, expected, || self.lost.add(walk.file, damage));
        Ok(if is_damaged { Walked::Damaged } else { Walked::Changed })
    }
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
