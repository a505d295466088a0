//! A snapshot of the volume, with local changes.
//!
//! Names and contents are those of the source's snapshot. Changes stay on this side and end with the view: the written
//! blocks of a file are in an unlinked scratch file, and everything else comes from the source. So a server can run on
//! it, which writes logs and control files even when it writes no data.
//!
//! Lock order: names, then one file's contents.

use crate::live::meta_of;
use crate::source::{ViewError, ViewSource};
use crate::tree::{Called, Change, Complaints, Errno, Meta, OpenFile, Tree};
use redoubt_locks::IgnorePoison;
use redoubt_wire::control::EntryKind;
use redoubt_wire::view::MAX_READ_LEN_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard};

const BLOCK_BYTES: u64 = 4096;

struct Item {
    mode: u32,
    /// `None`: a directory, a socket or a pipe.
    contents: Option<Arc<Contents>>,
}

/// A snapshot of the volume, with local changes.
pub struct Fixed {
    source: Arc<dyn ViewSource>,
    complaints: Arc<Complaints>,
    items: Mutex<BTreeMap<String, Item>>,
}

impl Fixed {
    /// The snapshot that the source reads.
    ///
    /// # Errors
    /// Errors of the source.
    pub fn new(source: Arc<dyn ViewSource>, complaints: Arc<Complaints>) -> Result<Self, ViewError> {
        let entries = source.names()?;
        let fixed = Self { source, complaints, items: Mutex::default() };
        let mut items = fixed.items();
        for entry in entries {
            let meta = meta_of(entry.kind, entry.mode, entry.len_bytes);
            let contents = match entry.kind {
                EntryKind::Directory => None,
                _ => Some(Arc::new(fixed.contents(Some(entry.path.clone()), meta))),
            };
            items.insert(entry.path, Item { mode: meta.mode, contents });
        }
        drop(items);
        Ok(fixed)
    }

    fn contents(&self, path: Option<String>, meta: Meta) -> Contents {
        let state = Overlay {
            meta,
            base_len_bytes: if path.is_some() { meta.len_bytes } else { 0 },
            file: None,
            own: None,
            blocks: BTreeSet::new(),
        };
        Contents {
            source: Arc::clone(&self.source),
            complaints: Arc::clone(&self.complaints),
            path: path.unwrap_or_default(),
            state: Mutex::new(state),
        }
    }

    fn items(&self) -> MutexGuard<'_, BTreeMap<String, Item>> {
        self.items.lock().ignore_poison()
    }
}

fn meta(item: &Item) -> Called<Meta> {
    match &item.contents {
        Some(contents) => Ok(Meta { mode: item.mode, ..contents.meta()? }),
        None => {
            Ok(Meta { mode: item.mode, len_bytes: if is_directory(item.mode) { BLOCK_BYTES } else { 0 } })
        }
    }
}

const fn is_directory(mode: u32) -> bool {
    mode & libc::S_IFMT == libc::S_IFDIR
}

fn has_children(items: &BTreeMap<String, Item>, path: &str) -> bool {
    let prefix = format!("{path}/");
    items.range(prefix.clone()..).next().is_some_and(|(found, _)| found.starts_with(&prefix))
}

impl Tree for Fixed {
    fn stat(&self, path: &str) -> Called<Option<Meta>> {
        if path.is_empty() {
            return Ok(Some(meta_of(EntryKind::Directory, 0o700, 0)));
        }
        let (found, contents) = match self.items().get(path) {
            Some(item) => (meta(item)?, item.contents.clone()),
            None => return Ok(None),
        };
        contents.map_or(Ok(()), |contents| contents.check_if_empty())?;
        Ok(Some(found))
    }

    fn list(&self, path: &str) -> Called<Vec<(String, Meta)>> {
        let items = self.items();
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let inside = items.range(prefix.clone()..).take_while(|(found, _)| found.starts_with(&prefix));
        let direct = inside.filter(|(found, _)| !found[prefix.len()..].contains('/'));
        direct.map(|(found, item)| Ok((found[prefix.len()..].to_owned(), meta(item)?))).collect()
    }

    fn open(&self, path: &str, _to_write: bool) -> Called<Arc<dyn OpenFile>> {
        let contents = self.items().get(path).ok_or(Errno(libc::ENOENT))?.contents.clone();
        let contents = contents.ok_or(Errno(libc::EISDIR))?;
        contents.check_if_empty()?;
        Ok(contents)
    }

    fn change(&self, path: &str, change: Change<'_>) -> Called<()> {
        let mut items = self.items();
        match change {
            Change::Create { mode } if !items.contains_key(path) => {
                let is_file = mode & libc::S_IFMT == libc::S_IFREG;
                let contents = is_file.then(|| Arc::new(self.contents(None, Meta { mode, len_bytes: 0 })));
                items.insert(path.to_owned(), Item { mode, contents });
            }
            Change::Create { .. } => {}
            Change::MakeDirectory { .. } if items.contains_key(path) => return Err(Errno(libc::EEXIST)),
            Change::MakeDirectory { mode } => {
                items.insert(path.to_owned(), Item { mode: libc::S_IFDIR | mode & 0o7777, contents: None });
            }
            Change::Unlink | Change::RemoveDirectory => {
                let item = items.get(path).ok_or(Errno(libc::ENOENT))?;
                match (change, is_directory(item.mode)) {
                    (Change::Unlink, true) => return Err(Errno(libc::EISDIR)),
                    (Change::RemoveDirectory, false) => return Err(Errno(libc::ENOTDIR)),
                    _ if has_children(&items, path) => return Err(Errno(libc::ENOTEMPTY)),
                    _ => items.remove(path),
                };
            }
            Change::Rename { to } => {
                let item = items.remove(path).ok_or(Errno(libc::ENOENT))?;
                let prefix = format!("{path}/");
                let inside: Vec<_> = items.range(prefix.clone()..).map(|(found, _)| found.clone()).collect();
                for found in inside.into_iter().take_while(|found| found.starts_with(&prefix)) {
                    if let Some(moved) = items.remove(&found) {
                        items.insert(format!("{to}/{}", &found[prefix.len()..]), moved);
                    }
                }
                items.insert(to.to_owned(), item);
            }
            Change::SetMode(mode) => {
                let item = items.get_mut(path).ok_or(Errno(libc::ENOENT))?;
                item.mode = item.mode & libc::S_IFMT | mode & 0o7777;
            }
        }
        Ok(())
    }

    fn is_fixed(&self) -> bool {
        true
    }
}

struct Overlay {
    meta: Meta,
    /// Length of the part of the node's file that still belongs to this one.
    base_len_bytes: u64,
    /// The file's number, once it was asked for.
    file: Option<u32>,
    own: Option<File>,
    /// Numbers of the blocks that are in `own`.
    blocks: BTreeSet<u64>,
}

/// Contents of a file.
struct Contents {
    source: Arc<dyn ViewSource>,
    complaints: Arc<Complaints>,
    /// Path at the node.
    path: String,
    state: Mutex<Overlay>,
}

impl Contents {
    fn state(&self) -> MutexGuard<'_, Overlay> {
        self.state.lock().ignore_poison()
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> Errno {
        self.complaints.say(format!("{}: {error}", self.path));
        Errno(libc::EIO)
    }

    fn number(&self, state: &mut Overlay) -> Called<u32> {
        if let Some(file) = state.file {
            return Ok(file);
        }
        let found = self.source.stat(&self.path).map_err(|error| self.failed(&error))?;
        let file = found.ok_or_else(|| self.failed(&"it is not in the view"))?.file;
        state.file = Some(file);
        Ok(file)
    }

    /// The names show a file whose contents the node has lost as an empty one. The node refuses it by its path.
    fn check_if_empty(&self) -> Called<()> {
        let mut state = self.state();
        let is_changed = state.own.is_some() || self.path.is_empty();
        if is_changed || state.meta.len_bytes > 0 { Ok(()) } else { self.number(&mut state).map(drop) }
    }

    /// The node's bytes; bytes that it does not have, or that are cut off here, are zero.
    fn base(&self, file: u32, base_len_bytes: u64, offset_bytes: u64, out: &mut [u8]) -> Called<()> {
        let end = base_len_bytes.min(offset_bytes + out.len() as u64);
        let mut at = offset_bytes;
        while at < end {
            let Ok(len) = u32::try_from((end - at).min(u64::from(MAX_READ_LEN_BYTES))) else { break };
            let read = self.source.read(file, at, len).map_err(|error| self.failed(&error))?;
            let bytes = read.ok_or_else(|| self.failed(&"it is not in the view"))?.bytes;
            if let Ok(from) = usize::try_from(at - offset_bytes)
                && let Some(place) = out.get_mut(from..from + bytes.len())
            {
                place.copy_from_slice(&bytes);
            }
            at += u64::from(len);
        }
        Ok(())
    }
}

/// Numbers of the blocks that a range touches.
fn blocks_of(offset_bytes: u64, len_bytes: u64) -> std::ops::Range<u64> {
    offset_bytes / BLOCK_BYTES..(offset_bytes + len_bytes).div_ceil(BLOCK_BYTES)
}

impl OpenFile for Contents {
    fn meta(&self) -> Called<Meta> {
        Ok(self.state().meta)
    }

    fn read(&self, offset_bytes: u64, len_bytes: u32) -> Called<Vec<u8>> {
        let mut state = self.state();
        let len = state.meta.len_bytes.saturating_sub(offset_bytes).min(u64::from(len_bytes));
        let mut out = vec![0; usize::try_from(len).unwrap_or(0)];
        let wanted = blocks_of(offset_bytes, len);
        let (base_len, is_own) =
            (state.base_len_bytes, wanted.clone().all(|block| state.blocks.contains(&block)));
        if offset_bytes < base_len && !is_own {
            let file = self.number(&mut state)?;
            if state.blocks.range(wanted.clone()).next().is_none() {
                // Others may read and write meanwhile.
                drop(state);
                self.base(file, base_len, offset_bytes, &mut out)?;
                state = self.state();
            } else {
                self.base(file, base_len, offset_bytes, &mut out)?;
            }
        }
        let Overlay { own: Some(own), blocks, .. } = &*state else { return Ok(out) };
        for block in blocks.range(wanted) {
            let from = (block * BLOCK_BYTES).max(offset_bytes);
            let to = ((block + 1) * BLOCK_BYTES).min(offset_bytes + len);
            let place =
                usize::try_from(from - offset_bytes).ok().zip(usize::try_from(to - offset_bytes).ok());
            if let Some(part) = place.and_then(|(from, to)| out.get_mut(from..to)) {
                own.read_exact_at(part, from).map_err(|error| self.failed(&error))?;
            }
        }
        Ok(out)
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Called<()> {
        let mut state = self.state();
        if state.own.is_none() {
            state.own = Some(self.source.scratch_file().map_err(|error| self.failed(&error))?);
        }
        let len = bytes.len() as u64;
        let wanted = blocks_of(offset_bytes, len);
        // The bytes around it in its first and last block.
        for block in [wanted.start, wanted.end.saturating_sub(1)] {
            let start = block * BLOCK_BYTES;
            let is_whole = offset_bytes <= start && start + BLOCK_BYTES <= offset_bytes + len;
            if is_whole || state.blocks.contains(&block) {
                continue;
            }
            let mut around = [0; BLOCK_BYTES as usize];
            if start < state.base_len_bytes {
                let file = self.number(&mut state)?;
                self.base(file, state.base_len_bytes, start, &mut around)?;
            }
            write_own(&state, start, &around).map_err(|error| self.failed(&error))?;
            state.blocks.insert(block);
        }
        write_own(&state, offset_bytes, bytes).map_err(|error| match error.raw_os_error() {
            Some(errno @ (libc::ENOSPC | libc::EDQUOT)) => {
                let _ = self.failed(&error);
                Errno(errno)
            }
            _ => self.failed(&error),
        })?;
        state.blocks.extend(wanted);
        state.meta.len_bytes = state.meta.len_bytes.max(offset_bytes + len);
        // The last block is there as a whole.
        if let Some(own) = &state.own {
            let whole = state.meta.len_bytes.next_multiple_of(BLOCK_BYTES);
            own.set_len(whole).map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    fn set_len(&self, len_bytes: u64) -> Called<()> {
        let mut state = self.state();
        state.base_len_bytes = state.base_len_bytes.min(len_bytes);
        let _ = state.blocks.split_off(&len_bytes.div_ceil(BLOCK_BYTES));
        if let Some(own) = &state.own {
            // Cut, then long enough again: the bytes after the cut are zero.
            let whole = len_bytes.next_multiple_of(BLOCK_BYTES);
            own.set_len(len_bytes).and_then(|()| own.set_len(whole)).map_err(|error| self.failed(&error))?;
        }
        state.meta.len_bytes = len_bytes;
        Ok(())
    }
}

fn write_own(state: &Overlay, offset_bytes: u64, bytes: &[u8]) -> std::io::Result<()> {
    match &state.own {
        Some(own) => own.write_all_at(bytes, offset_bytes),
        None => Err(std::io::ErrorKind::NotFound.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{self, LogFollower};
    use redoubt_wire::control::VolumeEntry;
    use redoubt_wire::view::ViewFile;

    /// Two empty files. The node has lost the contents of one.
    struct Source;

    impl ViewSource for Source {
        fn stat(&self, path: &str) -> Result<Option<ViewFile>, ViewError> {
            match path {
                "lost" => Err(ViewError::Failed("its contents are missing".to_owned())),
                _ => Ok(Some(ViewFile { file: 1, entry: entry(path) })),
            }
        }

        fn names(&self) -> Result<Vec<VolumeEntry>, ViewError> {
            Ok(["empty", "lost"].map(entry).into())
        }

        fn read(&self, _: u32, _: u64, _: u32) -> Result<Option<source::Contents>, ViewError> {
            unreachable!("there is nothing to read")
        }

        fn follow(&self) -> Result<Box<dyn LogFollower>, ViewError> {
            unreachable!("there is no log")
        }

        fn scratch_file(&self) -> std::io::Result<File> {
            unreachable!("nothing is written")
        }
    }

    fn entry(path: &str) -> VolumeEntry {
        let path = path.to_owned();
        VolumeEntry { path, kind: EntryKind::Plain, mode: 0o660, len_bytes: 0, checksum: None }
    }

    #[test]
    fn lost_file_is_not_shown_as_an_empty_one() {
        let fixed = Fixed::new(Arc::new(Source), Arc::new(Complaints::new(|_| {}))).unwrap();
        assert_eq!(fixed.stat("empty").unwrap().map(|meta| meta.len_bytes), Some(0));
        assert!(fixed.open("empty", false).is_ok());
        assert_eq!(fixed.stat("lost").err().map(|errno| errno.0), Some(libc::EIO));
        assert_eq!(fixed.open("lost", false).err().map(|errno| errno.0), Some(libc::EIO));
        fixed.change("made", Change::Create { mode: libc::S_IFREG | 0o600 }).unwrap();
        assert!(fixed.open("made", true).is_ok());
    }
}
