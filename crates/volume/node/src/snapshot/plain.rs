//! Plain files of a snapshot that were changed since.
//!
//! The thread that changes plain files calls [`PlainAside::before`] for each change after the snapshot's point. The
//! first change of a file notes the file's length, and whether its contents are lost ([`PlainStore::lost`]). Bytes that a change overwrites or cuts off are copied in blocks. A
//! file that is removed or emptied is kept open instead, and its former contents are read there. Appended bytes need
//! nothing.
//!
//! Lock: a leaf, but for the file's free ranges.

use super::Aside;
use super::aside::AsideRange;
use crate::error::NodeError;
use crate::plain::{Change, PlainStore};
use redoubt_storage::StorageFile;
use redoubt_sync::Mutex;
use redoubt_wire::page::FileId;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Unit of copies. Aria's pages have this size.
const BLOCK_BYTES: u64 = 8 << 10;

#[derive(Default)]
struct Changed {
    /// Length at the point in bytes; 0 for a file that was created after it.
    len_bytes: u64,
    /// Why its contents were lost at the point, if they were.
    lost: Option<String>,
    blocks: BTreeMap<u64, AsideRange>,
    /// All other content, once the file was removed or emptied.
    former: Option<Arc<dyn StorageFile>>,
    /// It was removed or emptied: no later change concerns the snapshot.
    is_detached: bool,
}

/// Plain files of a snapshot that were changed since.
pub struct PlainAside {
    aside: Arc<Aside>,
    files: Mutex<FxHashMap<FileId, Changed>>,
}

impl PlainAside {
    /// None yet.
    pub fn new(aside: &Arc<Aside>) -> Self {
        Self { aside: Arc::clone(aside), files: Mutex::default() }
    }

    /// A change after the point is about to be made in `store`.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn before(&self, change: &Change, store: &PlainStore) -> Result<(), NodeError> {
        let file = change.file();
        let mut files = self.files.lock();
        let changed = match files.entry(file) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let (len_bytes, lost) = (store.len_bytes(file)?, store.lost(file));
                entry.insert(Changed { len_bytes, lost, ..Changed::default() })
            }
        };
        if changed.is_detached {
            return Ok(());
        }
        match change {
            Change::Create(_) | Change::SetLen(_, 0) | Change::Remove(_) => {
                changed.former = store.detach(file)?;
                changed.is_detached = true;
                Ok(())
            }
            Change::Write { offset_bytes, .. } => {
                let end_bytes = offset_bytes.saturating_add(change.len_bytes());
                self.keep(changed, file, *offset_bytes, end_bytes, store)
            }
            Change::SetLen(_, len_bytes) => self.keep(changed, file, *len_bytes, u64::MAX, store),
        }
    }

    /// Copies the blocks of a range that belong to the snapshot and have no copy yet.
    fn keep(
        &self,
        changed: &mut Changed,
        file: FileId,
        from_bytes: u64,
        to_bytes: u64,
        store: &PlainStore,
    ) -> Result<(), NodeError> {
        let to_bytes = to_bytes.min(changed.len_bytes);
        if from_bytes >= to_bytes {
            return Ok(());
        }
        for number in from_bytes / BLOCK_BYTES..to_bytes.div_ceil(BLOCK_BYTES) {
            if changed.blocks.contains_key(&number) {
                continue;
            }
            let mut block = vec![0; BLOCK_BYTES as usize];
            store.read(file, number * BLOCK_BYTES, &mut block)?;
            changed.blocks.insert(number, self.aside.put(&block)?);
        }
        Ok(())
    }

    /// Why the contents of a file were lost at the point, if they were.
    pub fn lost(&self, file: FileId, store: &PlainStore) -> Option<String> {
        // With the lock: the first change of a file is noted before it is made.
        let files = self.files.lock();
        files.get(&file).map_or_else(|| store.lost(file), |changed| changed.lost.clone())
    }

    /// Length of a file at the point, in bytes.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn len_bytes(&self, file: FileId, store: &PlainStore) -> Result<u64, NodeError> {
        match self.files.lock().get(&file) {
            Some(changed) => Ok(changed.len_bytes),
            None => store.len_bytes(file),
        }
    }

    /// Bytes of a file as of the point; bytes after its end are zero.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn read(
        &self,
        file: FileId,
        offset_bytes: u64,
        out: &mut [u8],
        store: &PlainStore,
    ) -> Result<(), NodeError> {
        out.fill(0);
        store.read(file, offset_bytes, out)?;
        let files = self.files.lock();
        let Some(changed) = files.get(&file) else { return Ok(()) };
        if changed.is_detached {
            out.fill(0);
        }
        if let Some(former) = &changed.former {
            let read = former.read_at(offset_bytes, out);
            read.map_err(|error| NodeError::io("read", store.path(file), error))?;
        }
        let end_bytes = offset_bytes + out.len() as u64;
        for (number, range) in
            changed.blocks.range(offset_bytes / BLOCK_BYTES..end_bytes.div_ceil(BLOCK_BYTES))
        {
            let block = self.aside.get(*range)?;
            let block_start = number * BLOCK_BYTES;
            let from = block_start.max(offset_bytes);
            let to = (block_start + BLOCK_BYTES).min(end_bytes);
            out[(from - offset_bytes) as usize..(to - offset_bytes) as usize]
                .copy_from_slice(&block[(from - block_start) as usize..(to - block_start) as usize]);
        }
        let valid_bytes = changed.len_bytes.saturating_sub(offset_bytes).min(out.len() as u64);
        out[valid_bytes as usize..].fill(0);
        Ok(())
    }
}
