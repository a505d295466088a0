//! [`BudgetDir`]: a directory whose files count for a [`FileBudget`].

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};

use redoubt_sync::{Mutex, thread};

use super::slot::{BudgetFile, Left, Slot};
use super::{FileBudget, HeldDescriptors};
use crate::{StorageDir, StorageFile, UntornLimits};

/// A directory whose files are open only while there is room in a [`FileBudget`].
///
/// All changes of the directory's names go through this value. After a failed rename, files of the two names may be
/// unusable.
pub struct BudgetDir {
    /// Held by this value and all handles of files, but not by a thread that closes a file of another owner. So the
    /// lock of the directory ends with its users.
    inner: Arc<dyn StorageDir>,
    shared: Arc<Shared>,
    /// Those of the directory itself.
    _held: HeldDescriptors,
}

/// Shared by a directory and its files.
pub(super) struct Shared {
    pub inner: Weak<dyn StorageDir>,
    pub budget: Arc<FileBudget>,
    /// Held while names come, change or go.
    changing: Mutex<()>,
    names: Mutex<Names>,
}

#[derive(Default)]
struct Names {
    /// Files with handles.
    slots: BTreeMap<String, Weak<Slot>>,
    /// Files without handles that were not synced.
    left: BTreeMap<String, Left>,
}

/// A file that stays open until its name is gone.
struct LastUse {
    slot: Arc<Slot>,
    _file: Option<Arc<dyn StorageFile>>,
}

impl Shared {
    /// A file's last handle is gone.
    pub fn forget(&self, name: &str, left: Option<Left>) {
        let mut names = self.names.lock();
        // A file that was removed by hand may have a successor.
        if names.slots.get(name).is_some_and(|slot| slot.strong_count() == 0) {
            names.slots.remove(name);
            if let Some(left) = left {
                names.left.insert(name.to_owned(), left);
            }
        }
    }

    /// The file of a name, if it has handles. Waits for a last handle that is being dropped ([`Shared::forget`]).
    fn find(&self, name: &str) -> Option<Arc<Slot>> {
        loop {
            if let Some(slot) = self.names.lock().slots.get(name)?.upgrade() {
                return Some(slot);
            }
            thread::yield_now();
        }
    }

    /// The file of a name that is about to vanish, and a use of it. `None`: it has no handles.
    fn find_open(&self, name: &str) -> io::Result<Option<LastUse>> {
        let Some(slot) = self.find(name) else { return Ok(None) };
        match slot.open() {
            Ok(file) => Ok(Some(LastUse { slot, _file: Some(file) })),
            // It was removed by hand.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(LastUse { slot, _file: None })),
            Err(error) => Err(error),
        }
    }

    /// Opens a file that has no handles. The names are not changed meanwhile.
    fn add(
        self: &Arc<Self>,
        name: &str,
        open: impl FnMut() -> io::Result<Arc<dyn StorageFile>>,
    ) -> io::Result<Arc<Slot>> {
        self.budget.take(1);
        let file = self.budget.with_descriptor(open).inspect_err(|_| self.budget.give_back(1))?;
        let slot = {
            let mut names = self.names.lock();
            let left = names.left.remove(name);
            let slot = Slot::new(self, name, file, left);
            names.slots.insert(name.to_owned(), Arc::downgrade(&slot));
            slot
        };
        self.budget.insert(&slot, 0);
        Ok(slot)
    }
}

impl BudgetDir {
    /// The directory `inner`, with files that count for `budget`.
    pub fn new(inner: Arc<dyn StorageDir>, budget: &Arc<FileBudget>) -> Self {
        let shared = Shared {
            inner: Arc::downgrade(&inner),
            budget: Arc::clone(budget),
            changing: Mutex::new(()),
            names: Mutex::default(),
        };
        Self { _held: budget.hold(inner.descriptors()), inner, shared: Arc::new(shared) }
    }

    fn handle(&self, slot: Arc<Slot>) -> Arc<dyn StorageFile> {
        Arc::new(BudgetFile { slot, _dir: Arc::clone(&self.inner) })
    }

    #[cfg(test)]
    pub(super) fn slot(&self, name: &str) -> Arc<Slot> {
        self.shared.find(name).unwrap()
    }

    #[cfg(test)]
    pub(super) fn is_open(&self, name: &str) -> bool {
        self.shared.find(name).is_some_and(|slot| slot.is_open())
    }
}

impl StorageDir for BudgetDir {
    fn list(&self) -> io::Result<Vec<String>> {
        self.shared.budget.with_descriptor(|| self.inner.list())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let _one_at_a_time = self.shared.changing.lock();
        let slot = match self.shared.find(name) {
            Some(slot) => slot,
            None => self.shared.add(name, || self.inner.open(name))?,
        };
        Ok(self.handle(slot))
    }

    fn len_bytes_of(&self, name: &str) -> io::Result<u64> {
        self.inner.len_bytes_of(name)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let _one_at_a_time = self.shared.changing.lock();
        // Not before the last handle of a removed file of this name is gone.
        let _former = self.shared.find(name);
        let slot = self.shared.add(name, || self.inner.create(name))?;
        Ok(self.handle(slot))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let _one_at_a_time = self.shared.changing.lock();
        let replaced = if from == to { None } else { self.shared.find_open(to)? };
        let moved = self.shared.find(from);
        let rename = || self.inner.rename(from, to);
        moved.as_ref().map_or_else(rename, |slot| slot.rename(to, rename))?;
        if let Some(replaced) = &replaced {
            replaced.slot.unlink();
        }
        let mut names = self.shared.names.lock();
        let (slot, left) = (names.slots.remove(from), names.left.remove(from));
        match slot {
            Some(slot) => names.slots.insert(to.to_owned(), slot),
            None => names.slots.remove(to),
        };
        match left {
            Some(left) => names.left.insert(to.to_owned(), left),
            None => names.left.remove(to),
        };
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let _one_at_a_time = self.shared.changing.lock();
        let removed = self.shared.find_open(name)?;
        self.inner.remove(name)?;
        if let Some(removed) = &removed {
            removed.slot.unlink();
        }
        let mut names = self.shared.names.lock();
        names.slots.remove(name);
        names.left.remove(name);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.shared.budget.with_descriptor(|| self.inner.sync())
    }

    fn sync_files(&self, files: &[Arc<dyn StorageFile>]) -> Result<(), (usize, io::Error)> {
        self.inner.sync_files(files)
    }

    fn untorn_limits(&self) -> io::Result<Option<UntornLimits>> {
        self.shared.budget.with_descriptor(|| self.inner.untorn_limits())
    }

    fn with_descriptor(&self, open: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.shared.budget.with_descriptor(open)
    }
}
