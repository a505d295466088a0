//! Names of the files in the data directory, and the lock that keeps names and frames in step.
//!
//! Frames carry paths. So that a frame names the file the server meant, a change of names (create, rename,
//! unlink, with its frame) holds [`Names::change`], and everything that sends a frame with a path holds
//! [`Names::hold`] from reading the name until the frame is in the stream.
//!
//! Lock order: names, then a file's own lock, then the redo log, then the stream. [`NameHold`] is passed down
//! so that no thread takes the shared lock twice (which could wait for a writer in between for ever).

use crate::plain::PlainFile;
use crate::tablespace::Tablespace;
use redoubt_wire::Seq;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Current name of a file; `None` when it was unlinked.
#[derive(Debug)]
pub struct Name(Mutex<Option<Arc<[u8]>>>);

impl Name {
    /// A file at this path.
    pub fn new(path: &[u8]) -> Self {
        Self(Mutex::new(Some(path.into())))
    }

    /// Where the file is; `None` when it was unlinked.
    pub fn path(&self, _hold: &NameHold<'_>) -> Option<Arc<[u8]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, path: Option<&[u8]>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = path.map(Into::into);
    }
}

/// Names do not change while this is held.
pub struct NameHold<'a>(#[expect(dead_code, reason = "held for its lock")] Guard<'a>);

#[expect(dead_code, reason = "held for the locks")]
enum Guard<'a> {
    Shared(RwLockReadGuard<'a, ()>),
    Exclusive(RwLockWriteGuard<'a, ()>),
}

type Map<T> = Mutex<HashMap<Vec<u8>, Arc<T>>>;

/// All known files by path.
#[derive(Default)]
pub struct Names {
    lock: RwLock<()>,
    tablespaces: Map<Tablespace>,
    plain: Map<PlainFile>,
}

fn locked<T>(map: &Map<T>) -> MutexGuard<'_, HashMap<Vec<u8>, Arc<T>>> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Names {
    /// Keeps names as they are.
    pub fn hold(&self) -> NameHold<'_> {
        NameHold(Guard::Shared(self.lock.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Keeps everybody else away, to change names.
    pub fn change(&self) -> NameHold<'_> {
        NameHold(Guard::Exclusive(self.lock.write().unwrap_or_else(PoisonError::into_inner)))
    }

    /// The tablespace file at `path`, made known if it is not.
    pub fn tablespace(&self, path: &[u8], make: impl FnOnce() -> Tablespace) -> Arc<Tablespace> {
        Arc::clone(locked(&self.tablespaces).entry(path.to_vec()).or_insert_with(|| Arc::new(make())))
    }

    /// The tablespace file at `path`, if it is known.
    pub fn known_tablespace(&self, path: &[u8]) -> Option<Arc<Tablespace>> {
        locked(&self.tablespaces).get(path).cloned()
    }

    /// All known tablespace files.
    pub fn tablespaces(&self) -> Vec<Arc<Tablespace>> {
        locked(&self.tablespaces).values().cloned().collect()
    }

    /// The plain file at `path`, made known if it is not; `end` is the end of the stream.
    pub fn plain(&self, path: &[u8], end: Seq) -> Arc<PlainFile> {
        let mut map = locked(&self.plain);
        Arc::clone(map.entry(path.to_vec()).or_insert_with(|| Arc::new(PlainFile::new(path, end))))
    }

    /// Nothing is at `path` any more.
    pub fn forget(&self, path: &[u8]) {
        if let Some(file) = locked(&self.tablespaces).remove(path) {
            file.name.set(None);
        }
        if let Some(file) = locked(&self.plain).remove(path) {
            file.name.set(None);
        }
    }

    /// Forgets a plain file that nobody has open any more. `open` is the caller's last reference to it.
    pub fn closed_plain(&self, open: Arc<PlainFile>) {
        let mut map = locked(&self.plain);
        let found = map.iter().find(|(_, file)| Arc::ptr_eq(file, &open)).map(|(path, _)| path.clone());
        if let Some(path) = found
            && Arc::strong_count(&open) == 2
        {
            map.remove(&path);
        }
    }

    /// A file or directory got a new name. What was at `to` is gone.
    pub fn renamed(&self, from: &[u8], to: &[u8]) {
        self.forget(to);
        let mut tablespaces = locked(&self.tablespaces);
        for (old, new) in moves(tablespaces.keys(), from, to) {
            if let Some(file) = tablespaces.remove(&old) {
                file.name.set(Some(&new));
                tablespaces.insert(new, file);
            }
        }
        drop(tablespaces);
        let mut plain = locked(&self.plain);
        for (old, new) in moves(plain.keys(), from, to) {
            if let Some(file) = plain.remove(&old) {
                file.name.set(Some(&new));
                plain.insert(new, file);
            }
        }
    }
}

/// Which of `paths` move with `from`, and where to.
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

    #[test]
    fn files_keep_their_identity_when_renamed() {
        let names = Names::default();
        let file = names.plain(b"db/a.frm", Seq(0));
        let sibling = names.plain(b"db/a.frmx", Seq(0));
        names.renamed(b"db/a.frm", b"db/b.frm");
        assert!(Arc::ptr_eq(&file, &names.plain(b"db/b.frm", Seq(0))));
        assert_eq!(file.name.path(&names.hold()).as_deref(), Some(&b"db/b.frm"[..]));
        assert!(Arc::ptr_eq(&sibling, &names.plain(b"db/a.frmx", Seq(0))));
    }

    #[test]
    fn directories_take_their_files_along() {
        let names = Names::default();
        let file = names.plain(b"db/a.frm", Seq(0));
        names.renamed(b"db", b"other");
        assert_eq!(file.name.path(&names.hold()).as_deref(), Some(&b"other/a.frm"[..]));
    }

    #[test]
    fn unlinked_and_replaced_files_have_no_name() {
        let names = Names::default();
        let old = names.plain(b"b", Seq(0));
        let new = names.plain(b"a", Seq(0));
        names.renamed(b"a", b"b");
        assert_eq!(old.name.path(&names.hold()), None);
        assert_eq!(new.name.path(&names.hold()).as_deref(), Some(&b"b"[..]));
        names.forget(b"b");
        assert_eq!(new.name.path(&names.hold()), None);
    }
}
