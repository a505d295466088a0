//! The kernel's requests, answered from a [`Tree`].
//!
//! Owns the numbers: those of files and directories, which the kernel uses instead of paths, and those of open
//! handles. A number stays with its path as long as the file exists; a file that is removed and made again gets
//! another number. An open file can still be queried by its former number.
//!
//! Locks: nodes and handles are leaves; neither is held during a call of the tree.

use super::protocol::{Answer, Attributes, OPEN_DIRECT, OPEN_KEEP_CACHE, Operation, ROOT, Request};
use redoubt_locks::IgnorePoison;
use redoubt_view::{Called, Change, Errno, Meta, OpenFile, Tree};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Validity of cached attributes and names in a view that does not change.
const FIXED_VALID: Duration = Duration::from_secs(3600);
/// The same in a live view: as long as the kernel needs for one call.
const LIVE_VALID: Duration = Duration::from_millis(1);
/// A rename that must not replace anything.
const RENAME_NOREPLACE: u32 = 1;
/// Size of the file system as shown; half of it is shown as free.
const SHOWN_BYTES: u64 = 1 << 50;

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

/// Answers the kernel's requests from a tree.
pub struct Files {
    tree: Box<dyn Tree>,
    /// Links in the root directory: name, and where it leads.
    links: HashMap<String, String>,
    owner: (u32, u32),
    time_seconds: u64,
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
        let time_seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Self { tree, links, owner, time_seconds, nodes: Mutex::new(nodes), handles: Mutex::default() }
    }

    /// The answer; `None`: there is none to this request.
    pub fn answer(&self, request: &Request<'_>) -> Option<Vec<u8>> {
        if matches!(request.operation, Operation::Forget | Operation::Interrupt) {
            return None;
        }
        let answer =
            self.try_answer(request).unwrap_or_else(|Errno(errno)| Answer::error(request.unique, errno));
        Some(answer.finish())
    }

    fn try_answer(&self, request: &Request<'_>) -> Called<Answer> {
        let (node, ok) = (request.node, Answer::new(request.unique));
        match request.operation {
            Operation::Begin { flags, max_readahead_bytes, .. } => Ok(ok.begun(flags, max_readahead_bytes)),
            Operation::Lookup(name) => {
                let path = self.child(node, name)?;
                let meta = self.stat(&path)?.ok_or(ENOENT)?;
                let number = lock(&self.nodes).number(&path);
                Ok(self.entry(ok, number, meta))
            }
            Operation::GetAttributes => Ok(ok.attributes(&self.attributes(node, self.meta_of(node)?))),
            Operation::ReadLink => {
                let target = self.links.get(&self.path(node)?).ok_or(Errno(libc::EINVAL))?;
                Ok(ok.bytes(target.as_bytes()))
            }
            Operation::SetAttributes { mode, len_bytes } => {
                self.set_attributes(node, mode, len_bytes)?;
                Ok(ok.attributes(&self.attributes(node, self.meta_of(node)?)))
            }
            Operation::Open { flags } => {
                let (handle, flags) = self.open(node, flags)?;
                Ok(ok.opened(handle, flags))
            }
            Operation::Create { name, flags, mode } => {
                let path = self.child(node, name)?;
                self.tree.change(&path, Change::Create { mode: libc::S_IFREG | mode & 0o7777 })?;
                let number = lock(&self.nodes).number(&path);
                let (handle, flags) = self.open(number, flags)?;
                Ok(self.entry(ok, number, self.meta_of(number)?).opened(handle, flags))
            }
            Operation::MakeNode { name, mode } => self.make(node, name, Change::Create { mode }, ok),
            Operation::MakeDirectory { name, mode } => {
                self.make(node, name, Change::MakeDirectory { mode }, ok)
            }
            Operation::Read { handle, offset_bytes, len_bytes } => {
                Ok(ok.bytes(&self.file(handle)?.read(offset_bytes, len_bytes)?))
            }
            Operation::Write { handle, offset_bytes, bytes } => {
                self.file(handle)?.write(offset_bytes, bytes)?;
                Ok(ok.written(u32::try_from(bytes.len()).unwrap_or(u32::MAX)))
            }
            Operation::Release { handle } | Operation::ReleaseDirectory { handle } => {
                // The referenced file may end only after the lock was released.
                let closed = lock(&self.handles).open.remove(&handle);
                drop(closed);
                Ok(ok)
            }
            Operation::OpenDirectory => Ok(ok.opened(self.open_directory(node)?, 0)),
            Operation::ReadDirectory { handle, position, len_bytes } => {
                self.read_directory(handle, position, len_bytes, ok)
            }
            Operation::Unlink(name) => self.remove(node, name, Change::Unlink, ok),
            Operation::RemoveDirectory(name) => self.remove(node, name, Change::RemoveDirectory, ok),
            Operation::Rename { from, to_directory, to, flags } => {
                self.rename(&self.child(node, from)?, &self.child(to_directory, to)?, flags)?;
                Ok(ok)
            }
            Operation::StatFs => Ok(ok.file_system(SHOWN_BYTES, SHOWN_BYTES / 2)),
            Operation::Sync | Operation::End => Ok(ok),
            Operation::Link => Err(Errno(libc::EPERM)),
            Operation::Other | Operation::Forget | Operation::Interrupt => Err(Errno(libc::ENOSYS)),
        }
    }

    fn attributes(&self, node: u64, meta: Meta) -> Attributes {
        Attributes {
            node,
            len_bytes: meta.len_bytes,
            mode: meta.mode,
            owner: self.owner,
            time_seconds: self.time_seconds,
            valid: if self.tree.is_fixed() { FIXED_VALID } else { LIVE_VALID },
        }
    }

    /// Answers with what a name leads to. A name that may change is looked up with every call.
    fn entry(&self, ok: Answer, number: u64, meta: Meta) -> Answer {
        let name_valid = if self.tree.is_fixed() { FIXED_VALID } else { Duration::ZERO };
        ok.entry(&self.attributes(number, meta), name_valid)
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

    fn meta_of(&self, node: u64) -> Called<Meta> {
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

    fn set_attributes(&self, node: u64, mode: Option<u32>, len_bytes: Option<u64>) -> Called<()> {
        let path = self.path(node);
        if let Some(len_bytes) = len_bytes {
            let file = match &path {
                Ok(path) => self.tree.open(path, true)?,
                Err(_) => self.open_by_node(node).ok_or(ENOENT)?,
            };
            file.set_len(len_bytes)?;
        }
        match (mode, path) {
            (Some(mode), Ok(path)) => self.tree.change(&path, Change::SetMode(mode)),
            // Owners and times are not kept.
            (None, Ok(path)) if len_bytes.is_none() && !self.tree.is_fixed() => {
                self.tree.change(&path, Change::SetMode(0))
            }
            _ => Ok(()),
        }
    }

    fn open(&self, node: u64, flags: i32) -> Called<(u64, u32)> {
        let to_write = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        let file = self.tree.open(&self.path(node)?, to_write)?;
        if flags & libc::O_TRUNC != 0 {
            file.set_len(0)?;
        }
        let flags = if self.tree.is_fixed() { OPEN_KEEP_CACHE } else { OPEN_DIRECT };
        Ok((self.handle(Handle::File { node, file }), flags))
    }

    fn handle(&self, handle: Handle) -> u64 {
        let mut handles = lock(&self.handles);
        handles.next += 1;
        let number = handles.next;
        handles.open.insert(number, handle);
        number
    }

    fn file(&self, handle: u64) -> Called<Arc<dyn OpenFile>> {
        match lock(&self.handles).open.get(&handle) {
            Some(Handle::File { file, .. }) => Ok(Arc::clone(file)),
            _ => Err(Errno(libc::EBADF)),
        }
    }

    fn make(&self, node: u64, name: &OsStr, change: Change<'_>, ok: Answer) -> Called<Answer> {
        let path = self.child(node, name)?;
        self.tree.change(&path, change)?;
        let number = lock(&self.nodes).number(&path);
        Ok(self.entry(ok, number, self.meta_of(number)?))
    }

    fn remove(&self, node: u64, name: &OsStr, change: Change<'_>, ok: Answer) -> Called<Answer> {
        let path = self.child(node, name)?;
        self.tree.change(&path, change)?;
        lock(&self.nodes).removed(&path);
        Ok(ok)
    }

    fn rename(&self, from: &str, to: &str, flags: u32) -> Called<()> {
        if flags & !RENAME_NOREPLACE != 0 {
            return Err(Errno(libc::EINVAL));
        }
        if flags & RENAME_NOREPLACE != 0 && self.tree.stat(to)?.is_some() {
            return Err(Errno(libc::EEXIST));
        }
        if from != to {
            self.tree.change(from, Change::Rename { to })?;
            lock(&self.nodes).renamed(from, to);
        }
        Ok(())
    }

    fn open_directory(&self, node: u64) -> Called<u64> {
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

    fn read_directory(
        &self,
        handle: u64,
        position: u64,
        len_bytes: u32,
        mut answer: Answer,
    ) -> Called<Answer> {
        let listed = match lock(&self.handles).open.get(&handle) {
            Some(Handle::Directory(listed)) => Arc::clone(listed),
            _ => return Err(Errno(libc::EBADF)),
        };
        for (next, (node, name, meta)) in (1u64..).zip(listed.iter()) {
            if next > position && !answer.name(len_bytes, *node, next, meta.mode, name.as_bytes()) {
                break;
            }
        }
        Ok(answer)
    }
}
