//! Fills a data directory with the contents of a volume: directories, stubs of InnoDB files, plain files.
//!
//! A server that takes a volume over waits for this, and the time grows with the number of tables. So a plain file is
//! requested before the previous files have arrived. (More threads do not help: the files of a database are in one
//! directory, which the kernel lets one thread at a time change.)
//!
//! Invariant: the answers of a connection come in the order of its requests; [`Plain::asked`] is that order, and
//! there are no other requests while it has entries.

use super::checksums::{Checksums, Contents};
use crate::beneath::Beneath;
use crate::control::Client;
use crate::error::{ClientError, Result};
use crate::events::{Events, Progress};
use redoubt_wire::control::{EntryKind, Request, VolumeEntry};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Files asked for that have not come. Requests are short: the node can always take this many.
const ASKED_FILES: usize = 64;

/// Contents of a directory that agree with a volume.
pub struct Filled {
    /// Entries that are in the directory as they are here.
    entries: HashMap<String, VolumeEntry>,
    /// Checksums of its plain files.
    pub checksums: Checksums,
    /// Plain files that were removed by hand, and stay away.
    pub removed: BTreeSet<String>,
}

impl Filled {
    /// Nothing so far.
    pub fn new(checksums: Checksums) -> Self {
        Self { entries: HashMap::new(), checksums, removed: BTreeSet::new() }
    }

    fn has(&self, entry: &VolumeEntry) -> bool {
        self.entries.get(&entry.path) == Some(entry)
    }
}

/// The directory to fill.
pub struct Target<'a> {
    /// Where it is.
    pub directory: &'a Path,
    /// Name of the volume.
    pub volume: &'a str,
    /// User and group that get the files.
    pub owner: Option<(u32, u32)>,
    /// Receives the progress.
    pub events: &'a dyn Events,
}

/// Brings `directory` to the state of `volume` in `entries`. Entries that `filled` contains are skipped.
/// `is_attached`: the volume does not change any more.
///
/// # Errors
/// [`ClientError::Io`], or what the node answers.
pub fn fill(
    target: &Target<'_>,
    client: &mut Client,
    entries: &[VolumeEntry],
    filled: &mut Filled,
    is_attached: bool,
) -> Result<()> {
    let &Target { directory, volume, owner, events } = target;
    let wanted: Vec<&VolumeEntry> = entries.iter().filter(|entry| !filled.has(entry)).collect();
    let of_kind = |kinds: &'static [EntryKind]| {
        let of = wanted.iter().copied().filter(|entry| kinds.contains(&entry.kind));
        of.collect::<Vec<_>>()
    };
    let directories = of_kind(&[EntryKind::Directory]);
    let stubs = of_kind(&[EntryKind::Tablespace, EntryKind::RedoLog]);
    let plain = of_kind(&[EntryKind::Plain]);
    let beneath = Beneath::open(directory, owner)?;
    for entry in &directories {
        let made = beneath.directory(&entry.path)?;
        beneath.finish(&entry.path, &made, entry.mode, 0o700)?;
    }
    for entry in &stubs {
        make_stub(directory, &beneath, entry)?;
    }
    let plain_bytes = plain.iter().map(|entry| entry.len_bytes).sum();
    let progress = events.begin("fetching plain files", plain_bytes);
    let asked = VecDeque::new();
    Plain { directory, volume, client, beneath, filled, is_attached, progress, asked }.fill(&plain)?;
    for entry in directories.into_iter().chain(stubs) {
        filled.entries.insert(entry.path.clone(), entry.clone());
    }
    Ok(())
}

/// A sparse file of the right length without content.
fn make_stub(directory: &Path, beneath: &Beneath, entry: &VolumeEntry) -> Result<()> {
    let file = beneath.write(&entry.path)?;
    let make = || -> std::io::Result<()> {
        let metadata = file.metadata()?;
        if metadata.blocks() != 0 {
            file.set_len(0)?;
        }
        if metadata.blocks() != 0 || metadata.len() != entry.len_bytes {
            file.set_len(entry.len_bytes)?;
        }
        Ok(())
    };
    make().map_err(|error| ClientError::io("create", directory.join(&entry.path), error))?;
    beneath.finish(&entry.path, &file, entry.mode, 0o660)
}

/// The plain files of a directory, while they are fetched.
struct Plain<'a> {
    directory: &'a Path,
    volume: &'a str,
    client: &'a mut Client,
    beneath: Beneath,
    filled: &'a mut Filled,
    is_attached: bool,
    progress: Box<dyn Progress>,
    /// Whole files that were asked for and have not come.
    asked: VecDeque<(&'a VolumeEntry, File)>,
}

impl<'a> Plain<'a> {
    fn fill(mut self, entries: &[&'a VolumeEntry]) -> Result<()> {
        for entry in entries {
            self.fill_one(entry)?;
        }
        self.take_asked(0)?;
        self.progress.finish();
        Ok(())
    }

    fn fill_one(&mut self, entry: &'a VolumeEntry) -> Result<()> {
        let file = self.beneath.write(&entry.path)?;
        let failed = |error| ClientError::io("read", self.directory.join(&entry.path), error);
        let found = self.filled.checksums.of(&entry.path, &file).map_err(failed)?;
        if Some(found) == wanted(entry) {
            return self.finish(entry, &file, true);
        }
        if found.len_bytes > 0 && found.len_bytes < entry.len_bytes {
            // Most often it was appended to.
            self.take_asked(0)?;
            match self.fetch_tail(entry, &file, found) {
                Ok(false) => {}
                Ok(true) => return self.finish(entry, &file, true),
                // Without a volume of its own yet, a file may go while it is fetched.
                Err(ClientError::Node(_)) if !self.is_attached => return self.finish(entry, &file, false),
                Err(error) => return Err(error),
            }
        }
        self.client.request(&Request::Fetch { volume: self.volume.to_owned(), path: entry.path.clone() })?;
        self.asked.push_back((entry, file));
        self.take_asked(ASKED_FILES)
    }

    /// Receives requested files, until no more than `left` are pending.
    fn take_asked(&mut self, left: usize) -> Result<()> {
        while self.asked.len() > left
            && let Some((entry, file)) = self.asked.pop_front()
        {
            let is_current = match self.take(entry, &file) {
                // As above.
                Err(ClientError::Node(_)) if !self.is_attached => false,
                taken => taken?,
            };
            self.finish(entry, &file, is_current)?;
        }
        Ok(())
    }

    /// Receives this file as the next answer. False: it differs from the list, since it is being changed.
    fn take(&mut self, entry: &VolumeEntry, file: &File) -> Result<bool> {
        let path = self.directory.join(&entry.path);
        let failed = |error| ClientError::io("write", &path, error);
        // Emptied only when the contents come: the node may have lost them, and this be the last copy.
        let mut is_emptied = false;
        let mut empty = || if std::mem::replace(&mut is_emptied, true) { Ok(()) } else { file.set_len(0) };
        let write =
            |offset, piece: &[u8]| empty().and_then(|()| file.write_all_at(piece, offset)).map_err(failed);
        let len_bytes = self.client.receive_file(write)?;
        empty().and_then(|()| file.set_len(len_bytes)).map_err(failed)?;
        let read = self.filled.checksums.read_on(&entry.path, file, Contents::default()).map_err(failed)?;
        Ok(Some(read) == wanted(entry))
    }

    /// Fetches the bytes after `found`. False: the file still differs from the list.
    fn fetch_tail(&mut self, entry: &VolumeEntry, file: &File, found: Contents) -> Result<bool> {
        let target = self.directory.join(&entry.path);
        let failed = |error| ClientError::io("write", &target, error);
        let write = |offset, piece: &[u8]| file.write_all_at(piece, offset).map_err(failed);
        let (volume, path, from_bytes) = (self.volume.to_owned(), entry.path.clone(), found.len_bytes);
        let len_bytes = self.client.download(&Request::FetchTail { volume, path, from_bytes }, write)?;
        file.set_len(len_bytes.max(from_bytes)).map_err(failed)?;
        let read = self.filled.checksums.read_on(&entry.path, file, found).map_err(failed)?;
        Ok(Some(read) == wanted(entry))
    }

    fn finish(&mut self, entry: &VolumeEntry, file: &File, is_current: bool) -> Result<()> {
        self.progress.add(entry.len_bytes);
        self.beneath.finish(&entry.path, file, entry.mode, 0o660)?;
        let failed = |error| ClientError::io("read", self.directory.join(&entry.path), error);
        let checksums = &mut self.filled.checksums;
        checksums.keep(&entry.path, file).map_err(failed)?;
        if is_current && !self.is_attached {
            checksums.sync(&entry.path, file).map_err(failed)?;
        }
        if is_current {
            self.filled.entries.insert(entry.path.clone(), entry.clone());
        } else if self.is_attached {
            return Err(ClientError::Node(format!(
                "plain file {} is not as the volume lists it, although no server has the volume; see the node's log, \
                 then try again",
                entry.path
            )));
        }
        Ok(())
    }
}

fn wanted(entry: &VolumeEntry) -> Option<Contents> {
    entry.checksum.map(|crc| Contents { len_bytes: entry.len_bytes, crc })
}
