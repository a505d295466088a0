//! Directories, files and chunks of a raw device in memory, and their encoding in a snapshot.
//!
//! Invariants:
//! * A chunk is in exactly one of: a file's list, `free`, `freed`, or the possession of the caller that took it from
//!   `free`.
//! * A chunk in `freed` may still be in a file's list in the durable snapshot. It moves to `free` only when a snapshot
//!   without it is durable.
//! * The content of a file's chunks after its end is arbitrary.
//! * Every change of a linked file or of names raises `version`.
//!
//! Encoding, little-endian: number of directories (4 bytes), then each directory. A directory has its name (length in
//! 2 bytes, UTF-8), its number of files (4), and each file. A file has its name, its length (8), the number of its
//! chunks (4) and their numbers (4 each), with [`HOLE`] for a missing chunk.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use redoubt_codec::Reader;

use super::layout::Layout;

/// Number of a missing chunk, which reads as zeros.
pub(super) const HOLE: u32 = u32::MAX;
const MAX_NAME_LEN: usize = 255;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct RawFileId(u64);

/// Directories, files and chunks of a raw device in memory.
#[derive(Default)]
pub(super) struct Table {
    dirs: BTreeMap<String, Dir>,
    files: BTreeMap<RawFileId, StoredFile>,
    free: BTreeSet<u32>,
    freed: Vec<u32>,
    next_id: u64,
    version: u64,
    /// Version of the newest durable snapshot.
    pub durable_version: u64,
    chunk_len: u64,
    chunk_count: u32,
    max_len: usize,
}

#[derive(Default)]
struct Dir {
    files: BTreeMap<String, RawFileId>,
    changed_at: u64,
    is_open: bool,
}

#[derive(Default)]
struct StoredFile {
    len: u64,
    chunks: Vec<u32>,
    changed_at: u64,
    is_unlinked: bool,
    handles: usize,
    locks: Arc<super::file::FileLocks>,
}

/// A part of a file that lies in one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// Offset in the file, in bytes.
    pub at: u64,
    pub len: usize,
    /// The chunk, and the offset in it; `None` for a hole.
    pub place: Option<(u32, u64)>,
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

pub(super) fn full(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, format!("the raw device has no room left for {what}"))
}

/// Fails if the name is invalid for files and directories.
pub(super) fn check_name(name: &str) -> io::Result<()> {
    let is_good = (1..=MAX_NAME_LEN).contains(&name.len()) && !name.contains(['/', '\0']);
    if is_good && name != "." && name != ".." {
        return Ok(());
    }
    let reason = format!("{name:?} is not a name: 1 to {MAX_NAME_LEN} bytes without a slash");
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

impl Table {
    /// The table of an empty device.
    pub fn new(layout: &Layout) -> Self {
        Self {
            free: (0..layout.chunk_count).collect(),
            chunk_len: layout.chunk_len,
            chunk_count: layout.chunk_count,
            max_len: layout.max_table_len(),
            ..Self::default()
        }
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// Number of chunks without a file, which are usable now or after a snapshot.
    pub fn unused_chunks(&self) -> u64 {
        (self.free.len() + self.freed.len()) as u64
    }

    pub fn dir_names(&self) -> Vec<String> {
        self.dirs.keys().cloned().collect()
    }

    pub fn file_count(&self) -> usize {
        self.dirs.values().map(|dir| dir.files.len()).sum()
    }

    /// Creates a directory if there is none with that name, and marks it as open.
    pub fn open_dir(&mut self, name: &str) -> io::Result<()> {
        check_name(name)?;
        if !self.dirs.contains_key(name) {
            self.check_len(name.len() + 6)?;
            self.version += 1;
            self.dirs.insert(name.to_owned(), Dir { changed_at: self.version, ..Dir::default() });
        }
        let dir = self.dir_mut(name)?;
        if std::mem::replace(&mut dir.is_open, true) {
            let reason = format!("the directory {name} is open");
            return Err(io::Error::new(io::ErrorKind::WouldBlock, reason));
        }
        Ok(())
    }

    pub fn close_dir(&mut self, name: &str) {
        if let Ok(dir) = self.dir_mut(name) {
            dir.is_open = false;
        }
    }

    /// Removes a directory with its files. Returns `false` if there is none with that name.
    pub fn remove_dir(&mut self, name: &str) -> io::Result<bool> {
        let Some(dir) = self.dirs.get(name) else { return Ok(false) };
        if dir.is_open {
            let reason = format!("the directory {name} is open");
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, reason));
        }
        let dir = self.dirs.remove(name).unwrap_or_default();
        self.version += 1;
        dir.files.into_values().for_each(|id| self.unlink(id));
        Ok(true)
    }

    pub fn dir_changed_at(&self, dir: &str) -> io::Result<u64> {
        Ok(self.dirs.get(dir).ok_or_else(not_found)?.changed_at)
    }

    pub fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        Ok(self.dirs.get(dir).ok_or_else(not_found)?.files.keys().cloned().collect())
    }

    /// Opens a file; [`Table::close`] is the counterpart.
    pub fn open(&mut self, dir: &str, name: &str) -> io::Result<(RawFileId, Arc<super::file::FileLocks>)> {
        let id = self.dirs.get(dir).and_then(|dir| dir.files.get(name)).copied().ok_or_else(not_found)?;
        let entry = self.entry_mut(id)?;
        entry.handles += 1;
        Ok((id, Arc::clone(&entry.locks)))
    }

    pub fn create(&mut self, dir: &str, name: &str) -> io::Result<()> {
        check_name(name)?;
        if self.dirs.get(dir).ok_or_else(not_found)?.files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.check_len(name.len() + 14)?;
        let id = RawFileId(self.next_id);
        self.next_id += 1;
        let version = self.change_dir(dir)?;
        self.dir_mut(dir)?.files.insert(name.to_owned(), id);
        self.files.insert(id, StoredFile { changed_at: version, ..StoredFile::default() });
        Ok(())
    }

    pub fn rename(&mut self, dir: &str, from: &str, to: &str) -> io::Result<()> {
        check_name(to)?;
        let id = self.dirs.get(dir).and_then(|dir| dir.files.get(from)).copied().ok_or_else(not_found)?;
        if from == to {
            return Ok(());
        }
        self.check_len(to.len().saturating_sub(from.len()))?;
        self.change_dir(dir)?;
        let files = &mut self.dir_mut(dir)?.files;
        files.remove(from);
        if let Some(replaced) = files.insert(to.to_owned(), id) {
            self.unlink(replaced);
        }
        Ok(())
    }

    pub fn remove(&mut self, dir: &str, name: &str) -> io::Result<()> {
        let id = self.dir_mut(dir)?.files.remove(name).ok_or_else(not_found)?;
        self.change_dir(dir)?;
        self.unlink(id);
        Ok(())
    }

    /// Ends the use of a file that began with [`Table::open`].
    pub fn close(&mut self, id: RawFileId) {
        let Some(entry) = self.files.get_mut(&id) else { return };
        entry.handles = entry.handles.saturating_sub(1);
        self.drop_if_unused(id);
    }

    pub fn len(&self, id: RawFileId) -> io::Result<u64> {
        Ok(self.entry(id)?.len)
    }

    /// Version that must be durable for the file's length and chunks.
    pub fn changed_at(&self, id: RawFileId) -> io::Result<u64> {
        Ok(self.entry(id)?.changed_at)
    }

    /// Location of `[at, end)` of a file, in order. After its last chunk there are holes.
    pub fn pieces(&self, id: RawFileId, at: u64, end: u64) -> io::Result<Vec<Piece>> {
        let chunks = &self.entry(id)?.chunks;
        let mut pieces = Vec::new();
        let mut next = at;
        while next < end {
            let number = next / self.chunk_len;
            let piece_end = end.min((number + 1) * self.chunk_len);
            let chunk = usize::try_from(number).ok().and_then(|number| chunks.get(number)).copied();
            let place = chunk.filter(|&chunk| chunk != HOLE).map(|chunk| (chunk, next % self.chunk_len));
            pieces.push(Piece { at: next, len: (piece_end - next) as usize, place });
            next = piece_end;
        }
        Ok(pieces)
    }

    /// The part of `[at, end)` up to the end of the file's last chunk.
    pub fn mapped_pieces(&self, id: RawFileId, at: u64, end: u64) -> io::Result<Vec<Piece>> {
        let mapped_end = self.entry(id)?.chunks.len() as u64 * self.chunk_len;
        self.pieces(id, at, end.min(mapped_end))
    }

    /// Changes a file's length. Chunks after the end are released.
    pub fn set_len(&mut self, id: RawFileId, len: u64) -> io::Result<()> {
        let count =
            usize::try_from(len.div_ceil(self.chunk_len)).map_err(|_| full("a file of that length"))?;
        let more = count.saturating_sub(self.entry(id)?.chunks.len());
        if more > 0 {
            self.check_len(more.saturating_mul(4))?;
        }
        let version = self.next_version(id)?;
        let entry = self.entry_mut(id)?;
        entry.len = len;
        entry.changed_at = version;
        let cut = if count < entry.chunks.len() { entry.chunks.split_off(count) } else { Vec::new() };
        entry.chunks.resize(count, HOLE);
        self.freed.extend(cut.into_iter().filter(|&chunk| chunk != HOLE));
        Ok(())
    }

    /// Extends a file, up to the end of its last chunk at most.
    pub fn grow(&mut self, id: RawFileId, len: u64) -> io::Result<()> {
        if len > self.entry(id)?.len {
            let version = self.next_version(id)?;
            let entry = self.entry_mut(id)?;
            entry.len = len;
            entry.changed_at = version;
        }
        Ok(())
    }

    /// Takes free chunks, all or none. `Ok(None)`: there will be enough after the next snapshot.
    pub fn take_free(&mut self, count: usize) -> io::Result<Option<Vec<u32>>> {
        if self.free.len() >= count {
            return Ok(Some(std::iter::from_fn(|| self.free.pop_first()).take(count).collect()));
        }
        if self.free.len() + self.freed.len() >= count { Ok(None) } else { Err(full("data")) }
    }

    /// Returns chunks that were taken and not used.
    pub fn put_free(&mut self, chunks: impl IntoIterator<Item = u32>) {
        self.free.extend(chunks);
    }

    /// Takes the chunks that were released so far. They are usable when a snapshot of the current state is durable.
    pub fn take_freed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.freed)
    }

    /// Installs chunks in a file at `holes`, numbers of holes of [`Table::pieces`]. After a failure the caller still
    /// has the chunks.
    pub fn install(&mut self, id: RawFileId, holes: &[u64], chunks: &[u32]) -> io::Result<()> {
        let last = holes.iter().max().map_or(0, |&last| last + 1);
        let count = usize::try_from(last).map_err(|_| full("a file of that length"))?;
        let more = count.saturating_sub(self.entry(id)?.chunks.len());
        if more > 0 {
            self.check_len(more.saturating_mul(4))?;
        }
        let version = self.next_version(id)?;
        let entry = self.entry_mut(id)?;
        if more > 0 {
            entry.chunks.resize(count, HOLE);
        }
        for (&hole, &chunk) in holes.iter().zip(chunks) {
            if let Some(place) = entry.chunks.get_mut(hole as usize) {
                *place = chunk;
            }
        }
        entry.changed_at = version;
        Ok(())
    }

    fn entry(&self, id: RawFileId) -> io::Result<&StoredFile> {
        self.files.get(&id).ok_or_else(not_found)
    }

    fn entry_mut(&mut self, id: RawFileId) -> io::Result<&mut StoredFile> {
        self.files.get_mut(&id).ok_or_else(not_found)
    }

    fn dir_mut(&mut self, dir: &str) -> io::Result<&mut Dir> {
        self.dirs.get_mut(dir).ok_or_else(not_found)
    }

    fn change_dir(&mut self, dir: &str) -> io::Result<u64> {
        self.version += 1;
        let version = self.version;
        self.dir_mut(dir)?.changed_at = version;
        Ok(version)
    }

    /// Version for a change of a file. A file without a name is in no snapshot.
    fn next_version(&mut self, id: RawFileId) -> io::Result<u64> {
        if self.entry(id)?.is_unlinked {
            return Ok(0);
        }
        self.version += 1;
        Ok(self.version)
    }

    fn unlink(&mut self, id: RawFileId) {
        if let Some(entry) = self.files.get_mut(&id) {
            entry.is_unlinked = true;
            entry.changed_at = 0;
        }
        self.drop_if_unused(id);
    }

    fn drop_if_unused(&mut self, id: RawFileId) {
        if self.files.get(&id).is_some_and(|entry| entry.is_unlinked && entry.handles == 0)
            && let Some(entry) = self.files.remove(&id)
        {
            self.freed.extend(entry.chunks.into_iter().filter(|&chunk| chunk != HOLE));
        }
    }

    /// Fails if a snapshot with `more` additional bytes would exceed its area.
    fn check_len(&self, more: usize) -> io::Result<()> {
        let dirs = self.dirs.keys().map(|name| name.len() + 6).sum::<usize>();
        let names = self.dirs.values().flat_map(|dir| dir.files.keys()).map(|name| name.len() + 14);
        let chunks = self.files.values().map(|entry| entry.chunks.len() * 4);
        let len = 4 + dirs + names.sum::<usize>() + chunks.sum::<usize>();
        if len.saturating_add(more) <= self.max_len { Ok(()) } else { Err(full("names and lists of chunks")) }
    }

    /// Encodes the payload of a snapshot.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let put_name = |out: &mut Vec<u8>, name: &str| {
            out.extend_from_slice(&(name.len() as u16).to_le_bytes());
            out.extend_from_slice(name.as_bytes());
        };
        out.extend_from_slice(&(self.dirs.len() as u32).to_le_bytes());
        for (name, dir) in &self.dirs {
            put_name(&mut out, name);
            out.extend_from_slice(&(dir.files.len() as u32).to_le_bytes());
            for (name, id) in &dir.files {
                let nothing = StoredFile::default();
                let entry = self.files.get(id).unwrap_or(&nothing);
                put_name(&mut out, name);
                out.extend_from_slice(&entry.len.to_le_bytes());
                out.extend_from_slice(&(entry.chunks.len() as u32).to_le_bytes());
                entry.chunks.iter().for_each(|chunk| out.extend_from_slice(&chunk.to_le_bytes()));
            }
        }
        out
    }

    /// Decodes the payload of a snapshot, or returns its defect.
    pub fn decode(bytes: &[u8], layout: &Layout) -> Result<Self, String> {
        let mut table = Self::new(layout);
        let mut fields = Fields(Reader::new(bytes));
        for _ in 0..fields.number("number of directories")? {
            let dir_name = fields.name()?;
            let mut dir = Dir::default();
            for _ in 0..fields.number("number of files")? {
                let name = fields.name()?;
                let len = fields.long("length of a file")?;
                let entry = StoredFile { len, chunks: fields.chunks()?, ..StoredFile::default() };
                table.claim(&entry).map_err(|reason| format!("{dir_name}/{name}: {reason}"))?;
                let id = RawFileId(table.next_id);
                table.next_id += 1;
                table.files.insert(id, entry);
                if dir.files.insert(name, id).is_some() {
                    return Err(format!("a name is twice in {dir_name}"));
                }
            }
            if table.dirs.insert(dir_name, dir).is_some() {
                return Err("a directory is there twice".to_owned());
            }
        }
        if fields.0.left_bytes() == 0 {
            Ok(table)
        } else {
            Err("there are bytes after the last file".to_owned())
        }
    }

    /// Takes a file's chunks from the free chunks.
    fn claim(&mut self, entry: &StoredFile) -> Result<(), String> {
        if (entry.chunks.len() as u64) < entry.len.div_ceil(self.chunk_len) {
            return Err(format!("{} chunks are too few for {} bytes", entry.chunks.len(), entry.len));
        }
        for &chunk in entry.chunks.iter().filter(|&&chunk| chunk != HOLE) {
            if chunk >= self.chunk_count {
                return Err(format!("it has chunk {chunk}, and the device has {}", self.chunk_count));
            }
            if !self.free.remove(&chunk) {
                return Err(format!("its chunk {chunk} belongs to two files"));
            }
        }
        Ok(())
    }
}

/// Fields of a snapshot.
struct Fields<'a>(Reader<'a>);

impl Fields<'_> {
    fn number(&mut self, what: &'static str) -> Result<u32, String> {
        self.0.u32(what).map_err(|error| error.to_string())
    }

    fn long(&mut self, what: &'static str) -> Result<u64, String> {
        self.0.u64(what).map_err(|error| error.to_string())
    }

    fn name(&mut self) -> Result<String, String> {
        let len = self.0.u16("length of a name").map_err(|error| error.to_string())?;
        let name = self.0.bytes(u64::from(len), "name").map_err(|error| error.to_string())?;
        let name = String::from_utf8(name.to_vec()).map_err(|_| "a name is not UTF-8")?;
        check_name(&name).map_err(|error| error.to_string())?;
        Ok(name)
    }

    fn chunks(&mut self) -> Result<Vec<u32>, String> {
        let count = self.number("number of chunks")?;
        let bytes = self.0.bytes(u64::from(count) * 4, "chunks").map_err(|error| error.to_string())?;
        let to_number = |bytes: &[u8]| bytes.try_into().map_or(HOLE, u32::from_le_bytes);
        Ok(bytes.chunks_exact(4).map(to_number).collect())
    }
}

#[cfg(test)]
mod tests;
