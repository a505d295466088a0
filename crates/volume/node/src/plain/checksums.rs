//! Checksums of plain files, remembered.
//!
//! The checksum of a file is the CRC-32C of its first bytes: a file that only grew is read from there on, so a binary
//! log costs its appended bytes. Changing or cutting off any of those bytes discards the checksum. Checksums of long
//! files, and of files that the scrub has found at rest ([`super::walk`]), are also in the file `checksums` beside the
//! contents: a restart need not read them, and the scrub compares the contents with them.
//!
//! Invariants:
//! * Each change is announced before and after it is made ([`Checksums::touched`]), so a checksum over bytes that were
//!   being changed is never kept.
//! * An entry of `checksums` is true of the contents as of A, or is changed by a frame after A. A frame after A is
//!   executed again at the next start and discards the entry then. So a discarded entry must be gone from `checksums`
//!   before A moves ([`Checksums::forget`], from the sync of the plain files).
//! * An entry of `checksums` whose file is shorter at a start counts once, as a loss ([`Loss`]), and is discarded. Earlier
//!   builds left such entries behind, so theirs prove no loss, and no damage either.
//! * It is a cache: a file that is damaged, or of another version, is as good as none.
//!
//! Lock order: `turn`, `saving`, `state`.

use super::{Loss, PlainStore};
use crate::checkpoint::{read_checked, write_checked};
use crate::error::NodeError;
use crate::home::Folder;
use redoubt_sync::Mutex;
use redoubt_sync::time;
use redoubt_wire::page::FileId;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

const FILE_NAME: &str = "checksums";
const FORMAT: u32 = 1;
/// Shorter files are read again after a restart, unless they were at rest.
const SAVED_FROM_BYTES: u64 = 1 << 20;
/// Read at once.
const PIECE_BYTES: usize = 1 << 20;
/// How often a file is read again that was changed meanwhile.
const TRIES: usize = 3;

/// CRC-32C of the first bytes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    /// How many bytes.
    pub len_bytes: u64,
    /// Their CRC-32C.
    pub crc: u32,
}

struct Known {
    checksum: Checksum,
    /// It may be in the file.
    is_saved: bool,
    /// The file was at rest: the checksum is saved even if the file is short.
    rests: bool,
}

#[derive(Default)]
struct ChecksumState {
    known: FxHashMap<FileId, Known>,
    /// The file being read, and the first byte of it that was changed since that began.
    under_way: Option<(FileId, u64)>,
    /// The same for the scrub.
    scrubbed: Option<(FileId, u64)>,
    /// Times of the last changes of files since these are tracked.
    changed: Option<FxHashMap<FileId, Instant>>,
    /// Something is in the file that must not be.
    must_forget: bool,
    /// Something is not in the file that could be.
    is_new: bool,
}

impl ChecksumState {
    fn rests(&self, file: FileId, time: Duration) -> bool {
        let changed = self.changed.as_ref().and_then(|changed| changed.get(&file));
        changed.is_none_or(|at| time::elapsed(*at) >= time)
    }

    /// The first bytes of the file that the scrub reads are those that it began with.
    fn is_unchanged(&self, file: FileId, len_bytes: u64) -> bool {
        self.scrubbed.is_some_and(|(scrubbed, lowest)| scrubbed == file && lowest >= len_bytes)
    }
}

#[derive(Serialize, Deserialize)]
struct Saved {
    format: u32,
    /// File, length, CRC.
    files: Vec<(u32, u64, u32)>,
}

/// Checksums of plain files, remembered.
#[derive(Default)]
pub struct Checksums {
    /// Held by the thread that reads a file.
    turn: Mutex<()>,
    /// Held by the thread that writes the file.
    saving: Mutex<()>,
    state: Mutex<ChecksumState>,
}

impl Checksums {
    /// Bytes from `from_bytes` on are about to be changed, or were.
    pub fn touched(&self, file: FileId, from_bytes: u64) {
        let mut state = self.state.lock();
        let ChecksumState { under_way, scrubbed, changed, .. } = &mut *state;
        for (reading, lowest) in [under_way, scrubbed].into_iter().flatten() {
            if *reading == file {
                *lowest = from_bytes.min(*lowest);
            }
        }
        if let Some(changed) = changed {
            changed.insert(file, time::now());
        }
        if state.known.get(&file).is_some_and(|known| known.checksum.len_bytes > from_bytes)
            && let Some(known) = state.known.remove(&file)
        {
            state.must_forget |= known.is_saved;
        }
    }

    /// Length and checksum of a file as it is now. `None`: it is being changed all the time.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn of(&self, store: &PlainStore, file: FileId) -> Result<Option<Checksum>, NodeError> {
        let _turn = self.turn.lock();
        for _ in 0..TRIES {
            let from = {
                let mut state = self.state.lock();
                state.under_way = Some((file, u64::MAX));
                state.known.get(&file).map(|known| known.checksum).unwrap_or_default()
            };
            let read = read_on(store, file, from);
            let mut state = self.state.lock();
            let lowest = state.under_way.take().map_or(0, |(_, lowest)| lowest);
            let checksum = read?;
            if lowest < checksum.len_bytes {
                continue;
            }
            if checksum != from || !state.known.contains_key(&file) {
                state.is_new |= checksum.len_bytes >= SAVED_FROM_BYTES;
                let known = state.known.get(&file);
                let is_saved = known.is_some_and(|known| known.is_saved);
                state.known.insert(file, Known { checksum, is_saved, rests: false });
            }
            return Ok(Some(checksum));
        }
        Ok(None)
    }

    /// From now on the times of changes are remembered, for [`Checksums::rests`].
    pub fn track_changes(&self) {
        self.state.lock().changed.get_or_insert_default();
    }

    /// Forgets changes that are older than this.
    pub fn forget_changes(&self, older_than: Duration) {
        if let Some(changed) = &mut self.state.lock().changed {
            changed.retain(|_, at| time::elapsed(*at) < older_than);
        }
    }

    /// The file is not known, and was not changed for this time.
    pub fn is_new_at_rest(&self, file: FileId, time: Duration) -> bool {
        let state = self.state.lock();
        !state.known.contains_key(&file) && state.rests(file, time)
    }

    /// The scrub begins to read a file. Returns the checksum that its contents must have, if there is one.
    pub fn begin_scrub(&self, file: FileId) -> Option<Checksum> {
        let mut state = self.state.lock();
        state.scrubbed = Some((file, u64::MAX));
        state.known.get(&file).map(|known| known.checksum)
    }

    /// The scrub has read the file up to here. Its contents differ from `expected`, which is still its checksum: calls
    /// `on_damage` while the file cannot be changed, and returns true.
    pub fn confirm_damage(&self, file: FileId, expected: Checksum, on_damage: impl FnOnce()) -> bool {
        let state = self.state.lock();
        let is_expected = state.known.get(&file).is_some_and(|known| known.checksum == expected);
        if !is_expected || !state.is_unchanged(file, expected.len_bytes) {
            return false;
        }
        on_damage();
        true
    }

    /// The scrub has read a file that has this checksum, and no longer one that is known. False: it is being changed.
    pub fn end_scrub(&self, file: FileId, checksum: Checksum, rest: Duration) -> bool {
        let mut state = self.state.lock();
        let is_unchanged = state.is_unchanged(file, checksum.len_bytes) && state.rests(file, rest);
        state.scrubbed = None;
        let known = state.known.get(&file);
        // A longer one is of another reader.
        let is_longer = known.is_none_or(|known| known.checksum.len_bytes <= checksum.len_bytes);
        if is_unchanged && is_longer && checksum.len_bytes > 0 {
            let is_saved = known.is_some_and(|known| known.is_saved);
            state.known.insert(file, Known { checksum, is_saved, rests: true });
            state.is_new = true;
        }
        is_unchanged
    }

    /// Writes new entries to the file. It is only a cache, so a full disk only causes a warning.
    pub fn save(&self, directory: &Folder) {
        let is_new = std::mem::take(&mut self.state.lock().is_new);
        if is_new && let Err(error) = self.write(directory) {
            tracing::warn!(event = "checksums_not_saved", %error, "checksums of plain files cannot be saved; they are computed again after a restart");
        }
    }

    /// Removes outdated entries from the file, durably.
    ///
    /// # Errors
    /// [`NodeError::Io`]: A must not move.
    pub fn forget(&self, directory: &Folder) -> Result<(), NodeError> {
        if !self.state.lock().must_forget {
            return Ok(());
        }
        let Err(error) = self.write(directory) else { return Ok(()) };
        // That needs no room.
        tracing::warn!(event = "checksums_abandoned", %error, "checksums of plain files are given up");
        let _saving = self.saving.lock();
        directory.remove(FILE_NAME)?;
        directory.sync()?;
        self.state.lock().must_forget = false;
        Ok(())
    }

    fn write(&self, directory: &Folder) -> Result<(), NodeError> {
        let _saving = self.saving.lock();
        let mut files = Vec::new();
        {
            let mut state = self.state.lock();
            state.must_forget = false;
            for (file, known) in &mut state.known {
                if known.rests || known.checksum.len_bytes >= SAVED_FROM_BYTES {
                    // From now on: an entry that is discarded during the write must be removed again.
                    known.is_saved = true;
                    files.push((file.0, known.checksum.len_bytes, known.checksum.crc));
                }
            }
        }
        files.sort_unstable();
        let written = serde_json::to_vec(&Saved { format: FORMAT, files })
            .map_err(|error| NodeError::io("encode", directory.path().join(FILE_NAME), error.into()))
            .and_then(|body| write_checked(directory, FILE_NAME, &body));
        if written.is_err() {
            // The former file may still be there.
            self.state.lock().must_forget = true;
        }
        written
    }

    /// Loads the file of an earlier process. Before any change is made. Returns the files that are shorter than they were,
    /// unless the changes after A make it good. Those of an earlier build, without `is_certain`, are discarded.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn load(
        &self,
        store: &PlainStore,
        directory: &Folder,
        is_certain: bool,
    ) -> Result<Vec<(FileId, Loss)>, NodeError> {
        let discard = |why: &dyn std::fmt::Display| discard(directory, why).map(|()| Vec::new());
        let found = directory.find(FILE_NAME);
        let body = match found.and_then(|found| found.map(|_| read_checked(directory, FILE_NAME)).transpose())
        {
            Ok(None) => return Ok(Vec::new()),
            Ok(Some(body)) => body,
            Err(error) if error.is_unusable_file() => return discard(&error),
            Err(error) => return Err(error),
        };
        if !is_certain {
            return discard(&"it is of an earlier build");
        }
        let saved: Saved = match serde_json::from_slice(&body) {
            Ok(Saved { format: FORMAT, files }) => Saved { format: FORMAT, files },
            Ok(Saved { format, .. }) => return discard(&format!("its format is {format}")),
            Err(error) => return discard(&error),
        };
        let mut cut = Vec::new();
        for (file, len_bytes, crc) in saved.files {
            let file = FileId(file);
            let has_bytes = store.len_bytes(file);
            if has_bytes.as_ref().is_ok_and(|has_bytes| *has_bytes >= len_bytes) {
                let checksum = Checksum { len_bytes, crc };
                // A short file is only listed because it was at rest.
                let rests = len_bytes < SAVED_FROM_BYTES;
                self.state.lock().known.insert(file, Known { checksum, is_saved: true, rests });
                continue;
            }
            // No later change discards it, and it may be untrue then.
            self.state.lock().must_forget = true;
            // A file that cannot be looked at now may be whole.
            if let Ok(has_bytes) = has_bytes {
                cut.push((file, Loss::of_cut(has_bytes, len_bytes)));
            }
        }
        Ok(cut)
    }
}

fn discard(directory: &Folder, why: &dyn std::fmt::Display) -> Result<(), NodeError> {
    tracing::warn!(event = "checksums_recomputed", %why, "checksums of plain files are not used, but computed again");
    directory.remove(FILE_NAME)?;
    directory.sync()
}

/// Reads a file from where a checksum ends to the file's present end.
fn read_on(store: &PlainStore, file: FileId, from: Checksum) -> Result<Checksum, NodeError> {
    let Some(handle) = store.open_for_reading(file)? else { return Ok(Checksum::default()) };
    let len_bytes = handle.len_bytes().map_err(|error| NodeError::io("read", store.path(file), error))?;
    // A file that was created again meanwhile may be shorter; then the change was noted, and the result is discarded.
    let Checksum { len_bytes: mut at, mut crc } =
        if from.len_bytes <= len_bytes { from } else { Checksum::default() };
    let mut piece = vec![0; PIECE_BYTES.min((len_bytes - at) as usize)];
    while at < len_bytes {
        let wanted = ((len_bytes - at) as usize).min(piece.len());
        let read = handle.read_at(at, piece.get_mut(..wanted).unwrap_or_default());
        let read = read.map_err(|error| NodeError::io("read", store.path(file), error))?;
        if read == 0 {
            break;
        }
        crc = crc32c::crc32c_append(crc, piece.get(..read).unwrap_or_default());
        at += read as u64;
    }
    Ok(Checksum { len_bytes: at, crc })
}

#[cfg(test)]
#[path = "checksums_tests.rs"]
mod tests;
