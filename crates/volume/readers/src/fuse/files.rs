//! The files of a [`Tree`], by the numbers that the kernel uses instead of paths.
//!
//! Owns the inode numbers and the handles of open files and directories. A number stays with its path as long as the
//! file exists; a file that is removed and made again gets another number. An open file can still be queried by its
//! former number.
//!
//! Locks: nodes and handles are leaves; neither is held during a call of the tree.

use crate::tree::{Called, Change, Errno, Meta, OpenFile, Tree};
use redoubt_locks::IgnorePoison;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

/// Number of the root directory.
const ROOT: u64 = fuser::INodeNo::ROOT.0;
/// Validity of cached attributes and names in a view that does not change.
const FIXED_VALID: Duration = Duration::from_secs(3600);
/// Validity of cached attributes in a live view: as long as the kernel needs for one call.
const LIVE_VALID: Duration = Duration::from_millis(1);

struct Nodes {
    by_path: HashMap<String, u64>,
    paths: HashMap<u64, String>,
    next: u64,
}

impl Nodes {
    fn number(&mut self, path: &str) -> u64 {
        if let Some(number) = self.by_path.get(path) {
            return *number;
        }
        let number = self.next;
        self.next += 1;
        self.by_path.insert(path.to_owned(), number);
        self.paths.insert(number, path.to_owned());
        number
    }

    fn removed(&mut self, path: &str) {
        if let Some(number) = self.by_path.remove(path) {
            self.paths.remove(&number);
        }
    }

    fn renamed(&mut self, from: &str, to: &str) {
        self.removed(to);
        let below = format!("{from}/");
        let moved: Vec<_> =
            self.by_path.keys().filter(|path| *path == from || path.starts_with(&below)).cloned().collect();
        for path in moved {
            let Some(number) = self.by_path.remove(&path) else { continue };
            let new = format!("{to}{}", path.get(from.len()..).unwrap_or_default());
            self.paths.insert(number, new.clone());
            self.by_path.insert(new, number);
        }
    }
}

enum Handle {
    File { node: u64, file: Arc<dyn OpenFile> },
    Directory(Arc<Vec<(u64, String, Meta)>>),
}

#[derive(Default)]
struct Handles {
    open: HashMap<u64, Handle>,
    next: u64,
}

/// A tree by inode numbers and handles.
pub struct Files {
    tree: Box<dyn Tree>,
    /// Links in the root directory: name, and where it leads.
    links: HashMap<String, String>,
    owner: (u32, u32),
    /// Shown as the time of every file.
    time: SystemTime,
    nodes: Mutex<Nodes>,
    handles: Mutex<Handles>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

fn link(target: &str) -> Meta {
    Meta { mode: libc::S_IFLNK | 0o777, len_bytes: target.len() as u64 }
}

const ENOENT: Errno = Errno(libc::ENOENT);

impl Files {
    /// A tree whose files belong to this user and group, with links in its root directory.
    pub fn new(tree: Box<dyn Tree>, links: HashMap<String, String>, owner: (u32, u32)) -> Self {
        let nodes = Nodes {
            by_path: HashMap::from([(String::new(), ROOT)]),
            paths: HashMap::from([(ROOT, String::new())]),
            next: ROOT + 1,
        };
        let time = SystemTime::now();
        Self { tree, links, owner, time, nodes: Mutex::new(nodes), handles: Mutex::default() }
    }

    /// User and group of every file.
    pub(super) const fn owner(&self) -> (u32, u32) {
        self.owner
    }

    /// Time of every file.
    pub(super) const fn time(&self) -> SystemTime {
        self.time
    }

    /// Validity of attributes that the kernel caches.
    pub(super) fn attributes_valid(&self) -> Duration {
        if self.tree.is_fixed() { FIXED_VALID } else { LIVE_VALID }
    }

    /// Validity of names that the kernel caches. A name that may change is looked up with every call.
    pub(super) fn names_valid(&self) -> Duration {
        if self.tree.is_fixed() { FIXED_VALID } else { Duration::ZERO }
    }

    /// Whether contents change without the kernel, which must not cache them then.
    pub(super) fn is_live(&self) -> bool {
        !self.tree.is_fixed()
    }

    /// Number and attributes of a name.
    pub(super) fn lookup(&self, node: u64, name: &OsStr) -> Called<(u64, Meta)> {
        let path = self.child(node, name)?;
        let meta = self.stat(&path)?.ok_or(ENOENT)?;
        Ok((lock(&self.nodes).number(&path), meta))
    }

    /// Target of a link.
    pub(super) fn read_link(&self, node: u64) -> Called<&str> {
        self.links.get(&self.path(node)?).map(String::as_str).ok_or(Errno(libc::EINVAL))
    }

    fn stat(&self, path: &str) -> Called<Option<Meta>> {
        match self.links.get(path) {
            Some(target) => Ok(Some(link(target))),
            None => self.tree.stat(path),
        }
    }

    fn path(&self, node: u64) -> Called<String> {
        lock(&self.nodes).paths.get(&node).cloned().ok_or(ENOENT)
    }

    fn child(&self, node: u64, name: &OsStr) -> Called<String> {
        // A volume has UTF-8 names.
        let name = name.to_str().ok_or(Errno(libc::EILSEQ))?;
        let directory = self.path(node)?;
        Ok(if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") })
    }

    /// Attributes of a file or directory.
    pub(super) fn meta_of(&self, node: u64) -> Called<Meta> {
        if let Ok(path) = self.path(node)
            && let Some(meta) = self.stat(&path)?
        {
            return Ok(meta);
        }
        self.open_by_node(node).ok_or(ENOENT)?.meta()
    }

    /// A file that is open, perhaps without a name by now.
    fn open_by_node(&self, wanted: u64) -> Option<Arc<dyn OpenFile>> {
        lock(&self.handles).open.values().find_map(|handle| match handle {
            Handle::File { node, file } if *node == wanted => Some(Arc::clone(file)),
            _ => None,
        })
    }

    /// Changes mode and length.
    pub(super) fn set_attributes(
        &self,
        node: u64,
        mode: Option<u32>,
        len_bytes: Option<u64>,
    ) -> Called<Meta> {
        let path = self.path(node);
        if let Some(len_bytes) = len_bytes {
            let file = match &path {
                Ok(path) => self.tree.open(path, true)?,
                Err(_) => self.open_by_node(node).ok_or(ENOENT)?,
            };
            file.set_len(len_bytes)?;
        }
        match (mode, path) {
            (Some(mode), Ok(path)) => self.tree.change(&path, Change::SetMode(mode))?,
            // Owners and times are not kept.
            (None, Ok(path)) if len_bytes.is_none() && !self.tree.is_fixed() => {
                self.tree.change(&path, Change::SetMode(0))?;
            }
            _ => {}
        }
        self.meta_of(node)
    }

    /// Opens a file; returns its handle.
    pub(super) fn open(&self, node: u64, flags: i32) -> Called<u64> {
        let to_write = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        let file = self.tree.open(&self.path(node)?, to_write)?;
        if flags & libc::O_TRUNC != 0 {
            file.set_len(0)?;
        }
        Ok(self.handle(Handle::File { node, file }))
    }

    fn handle(&self, handle: Handle) -> u64 {
        let mut handles = lock(&self.handles);
        handles.next += 1;
        let number = handles.next;
        handles.open.insert(number, handle);
        number
    }

    /// Closes a file or directory.
    pub(super) fn close(&self, handle: u64) {
        // The referenced file may end only after the lock was released.
        let closed = lock(&self.handles).open.remove(&handle);
        drop(closed);
    }

    /// The file of a handle.
    pub(super) fn file(&self, handle: u64) -> Called<Arc<dyn OpenFile>> {
        match lock(&self.handles).open.get(&handle) {
            Some(Handle::File { file, .. }) => Ok(Arc::clone(file)),
            _ => Err(Errno(libc::EBADF)),
        }
    }

    /// Makes a file, directory, socket or pipe; returns its number and attributes.
    pub(super) fn make(&self, node: u64, name: &OsStr, change: Change<'_>) -> Called<(u64, Meta)> {
        let path = self.child(node, name)?;
        self.tree.change(&path, change)?;
        let number = lock(&self.nodes).number(&path);
        Ok((number, self.meta_of(number)?))
    }

    /// Makes and opens a file; returns its number, attributes and handle.
    pub(super) fn create(&self, node: u64, name: &OsStr, mode: u32, flags: i32) -> Called<(u64, Meta, u64)> {
        let path = self.child(node, name)?;
        self.tree.change(&path, Change::Create { mode: libc::S_IFREG | mode & 0o7777 })?;
        let number = lock(&self.nodes).number(&path);
        let handle = self.open(number, flags)?;
        Ok((number, self.meta_of(number)?, handle))
    }

    /// Removes a file or directory.
    pub(super) fn remove(&self, node: u64, name: &OsStr, change: Change<'_>) -> Called<()> {
        let path = self.child(node, name)?;
        self.tree.change(&path, change)?;
        lock(&self.nodes).removed(&path);
        Ok(())
    }

    /// Gives a file or directory another path. `flags` are those of `renameat2`.
    pub(super) fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), flags: u32) -> Called<()> {
        let (from, to) = (&self.child(from.0, from.1)?, &self.child(to.0, to.1)?);
        if flags & !libc::RENAME_NOREPLACE != 0 {
            return Err(Errno(libc::EINVAL));
        }
        if flags & libc::RENAME_NOREPLACE != 0 && self.tree.stat(to)?.is_some() {
            return Err(Errno(libc::EEXIST));
        }
        if from != to {
            self.tree.change(from, Change::Rename { to })?;
            lock(&self.nodes).renamed(from, to);
        }
        Ok(())
    }

    /// Opens a directory; returns its handle.
    pub(super) fn open_directory(&self, node: u64) -> Called<u64> {
        let path = self.path(node)?;
        let mut names = self.tree.list(&path)?;
        if path.is_empty() {
            names.retain(|(name, _)| !self.links.contains_key(name));
            names.extend(self.links.iter().map(|(name, target)| (name.clone(), link(target))));
        }
        let mut nodes = lock(&self.nodes);
        let listed = names.into_iter().map(|(name, meta)| {
            let child = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            (nodes.number(&child), name, meta)
        });
        let listed = Arc::new(listed.collect());
        drop(nodes);
        Ok(self.handle(Handle::Directory(listed)))
    }

    /// Names in a directory as of its opening: number, name, attributes.
    pub(super) fn directory(&self, handle: u64) -> Called<Arc<Vec<(u64, String, Meta)>>> {
        match lock(&self.handles).open.get(&handle) {
            Some(Handle::Directory(listed)) => Ok(Arc::clone(listed)),
            _ => Err(Errno(libc::EBADF)),
        }
    }
}
