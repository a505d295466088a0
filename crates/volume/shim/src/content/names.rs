//! Names of the files in the data directory, and the lock that keeps names and frames in step.
//!
//! Frames carry paths. A frame must name the file that the server meant. So a change of names (create, rename,
//! unlink, with its frame) holds [`Names::lock_exclusive`], and everything that sends a frame with a path holds
//! [`Names::lock_shared`] from reading the name until the frame is in the stream.
//!
//! Lock order: names, then a file's own lock, then the redo log, then the stream. [`NamesLock`] is passed down
//! so that no thread takes the shared lock twice (which could wait for a writer in between for ever).

use redoubt_locks::IgnorePoison;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Current name of a file; `None` when it was unlinked.
#[derive(Debug)]
pub struct Name(Mutex<Option<Arc<[u8]>>>);

impl Name {
    /// A file at this path.
    pub fn new(path: &[u8]) -> Self {
        Self(Mutex::new(Some(path.into())))
    }

    /// Path of the file; `None` when it was unlinked.
    pub fn path(&self, _lock: &NamesLock<'_>) -> Option<Arc<[u8]>> {
        self.0.lock().ignore_poison().clone()
    }

    fn set(&self, path: Option<&[u8]>) {
        *self.0.lock().ignore_poison() = path.map(Into::into);
    }
}

/// Names do not change while this is held.
pub struct NamesLock<'a>(#[expect(dead_code, reason = "held for its lock")] Guard<'a>);

#[expect(dead_code, reason = "held for the locks")]
enum Guard<'a> {
    Shared(RwLockReadGuard<'a, ()>),
    Exclusive(RwLockWriteGuard<'a, ()>),
}

/// The lock.
#[derive(Default)]
pub struct Names {
    lock: RwLock<()>,
}

impl Names {
    /// Keeps names as they are.
    pub fn lock_shared(&self) -> NamesLock<'_> {
        NamesLock(Guard::Shared(self.lock.read().ignore_poison()))
    }

    /// Keeps everybody else away, to change names.
    pub fn lock_exclusive(&self) -> NamesLock<'_> {
        NamesLock(Guard::Exclusive(self.lock.write().ignore_poison()))
    }
}

/// A file that has a name.
pub trait Named {
    /// Its name.
    fn name(&self) -> &Name;
}

/// The known files of a kind by path.
pub struct FilesByPath<T>(Mutex<HashMap<Vec<u8>, Arc<T>>>);

impl<T> Default for FilesByPath<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Named> FilesByPath<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Arc<T>>> {
        self.0.lock().ignore_poison()
    }

    /// The file at `path`, made known if it is not.
    pub fn at(&self, path: &[u8], make: impl FnOnce() -> T) -> Arc<T> {
        Arc::clone(self.lock().entry(path.to_vec()).or_insert_with(|| Arc::new(make())))
    }

    /// The file at `path`, if it is known.
    pub fn known(&self, path: &[u8]) -> Option<Arc<T>> {
        self.lock().get(path).cloned()
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.lock().values().cloned().collect()
    }

    /// Nothing is at `path` any more.
    pub fn forget(&self, path: &[u8]) {
        if let Some(file) = self.lock().remove(path) {
            file.name().set(None);
        }
    }

    /// Forgets a file after its last descriptor was closed. `open` is the caller's last reference to it.
    pub fn closed(&self, open: Arc<T>) {
        let mut map = self.lock();
        let found = map.iter().find(|(_, file)| Arc::ptr_eq(file, &open)).map(|(path, _)| path.clone());
        if let Some(path) = found
            && Arc::strong_count(&open) == 2
        {
            map.remove(&path);
        }
    }

    /// A file or directory got a new name. An earlier file at `to` is gone.
    pub fn renamed(&self, from: &[u8], to: &[u8]) {
        self.forget(to);
        let mut map = self.lock();
        for (old, new) in moves(map.keys(), from, to) {
            if let Some(file) = map.remove(&old) {
                file.name().set(Some(&new));
                map.insert(new, file);
            }
        }
    }
}

/// Those of `paths` that move with `from`, and their new paths.
fn moves<'a>(paths: impl Iterator<Item = &'a Vec<u8>>, from: &[u8], to: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    paths
        .filter_map(|path| {
            let rest = path.strip_prefix(from)?;
            (rest.is_empty() || rest.starts_with(b"/")).then(|| (path.clone(), [to, rest].concat()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct File {
        name: Name,
    }

    impl Named for File {
        fn name(&self) -> &Name {
            &self.name
        }
    }

    fn at(files: &FilesByPath<File>, path: &[u8]) -> Arc<File> {
        files.at(path, || File { name: Name::new(path) })
    }

    #[test]
    fn files_keep_their_identity_when_renamed() {
        let (names, files) = (Names::default(), FilesByPath::default());
        let file = at(&files, b"db/a.frm");
        let sibling = at(&files, b"db/a.frmx");
        files.renamed(b"db/a.frm", b"db/b.frm");
        assert!(Arc::ptr_eq(&file, &at(&files, b"db/b.frm")));
        assert_eq!(file.name.path(&names.lock_shared()).as_deref(), Some(&b"db/b.frm"[..]));
        assert!(Arc::ptr_eq(&sibling, &at(&files, b"db/a.frmx")));
    }

    #[test]
    fn directories_take_their_files_along() {
        let (names, files) = (Names::default(), FilesByPath::default());
        let file = at(&files, b"db/a.frm");
        files.renamed(b"db", b"other");
        assert_eq!(file.name.path(&names.lock_shared()).as_deref(), Some(&b"other/a.frm"[..]));
    }

    #[test]
    fn unlinked_and_replaced_files_have_no_name() {
        let (names, files) = (Names::default(), FilesByPath::default());
        let old = at(&files, b"b");
        let new = at(&files, b"a");
        files.renamed(b"a", b"b");
        assert_eq!(old.name.path(&names.lock_shared()), None);
        assert_eq!(new.name.path(&names.lock_shared()).as_deref(), Some(&b"b"[..]));
        files.forget(b"b");
        assert_eq!(new.name.path(&names.lock_shared()), None);
    }
}
