//! Exports: the current state of volumes, and snapshots of them (moments).
//!
//! `/VOLUME` is the volume as it is at each read. `/VOLUME@LABEL` is the moment at which that label was first mounted,
//! for all clients that mount it, until it ends.
//!
//! Owns the moments, and the state of each export: the paths of numbers, open files, the last list of a directory.
//!
//! Invariants: a volume has one moment at a time. A moment ends when as many clients have unmounted it as mounted it,
//! after [`Limits::moment_idle`] without a request, or after [`MOMENT_LIFE`]; then the node retains nothing for it. An
//! unused open file is closed after [`OPEN_IDLE`]; for the redo log that also releases the log that the node retains
//! for it. All state for clients has a fixed limit.
//!
//! Lock order: `taking`, moments or live exports, then those of one export, which are leaves. No lock but `taking` is
//! held during a call to a volume.

use crate::nfs::handle::{ExportKey, Handle, PathNumber};
use crate::{Called, Complaints, Errno, Live, Meta, OpenFile, Removed, Tree, ViewError, ViewSource, meta_of};
use redoubt_locks::IgnorePoison;
use redoubt_wire::control::EntryKind;
use redoubt_wire::view::ViewFile;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

/// Longest time for which a moment is held.
pub const MOMENT_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Time without a read after which a file is closed.
const OPEN_IDLE: Duration = Duration::from_secs(60);
/// Time after which a file is read again; the redo log continues.
const OPEN_FRESH: Duration = Duration::from_secs(1);
/// Limit of open files of all exports.
const OPEN_LIMIT: usize = 64;
/// Limit of paths of an export whose numbers are remembered. Others are searched for.
const PATHS_LIMIT: usize = 20_000;
/// Time during which a list of a directory serves the calls that continue it.
const LIST_AGE: Duration = Duration::from_secs(30);
/// Longest delay until a change is visible.
const CHANGE_AGE: Duration = Duration::from_secs(1);
/// Longest label.
const LABEL_LIMIT_BYTES: usize = 64;

/// A volume that can be exported.
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its random id.
    pub volume_id: u128,
}

/// The volumes of a node.
pub trait Volumes: Send + Sync {
    /// All readable volumes.
    fn list(&self) -> Vec<Listed>;

    /// Whether some volumes are still being opened.
    fn is_opening(&self) -> bool;
    /// Whether some volumes could not be opened, so that their ids are unknown.
    fn has_unusable(&self) -> bool;

    /// A volume as it is now, or as of this moment, which lasts until the result is dropped; with its random id.
    ///
    /// # Errors
    /// [`ViewError::Ended`] if there is no volume of this name; the reason why it cannot be read.
    fn open(&self, name: &str, is_moment: bool) -> Result<(u128, Arc<dyn ViewSource>), ViewError>;
}

/// Settings of the operator.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time without a request after which a moment ends.
    pub moment_idle: Duration,
}

/// Names in a directory, by their numbers.
pub type List = Arc<Vec<(PathNumber, String, Meta)>>;

struct Stamp {
    position: u64,
    seen: (Instant, SystemTime),
}

/// One export.
pub struct Export {
    /// Prefix of its handles.
    pub key: ExportKey,
    /// The volume's name, with the label of a moment.
    pub name: String,
    tree: Live,
    source: Arc<dyn ViewSource>,
    paths: Mutex<HashMap<PathNumber, String>>,
    list: Mutex<Option<(String, Instant, List)>>,
    stamp: Mutex<Option<Stamp>>,
    since: SystemTime,
    used: Mutex<Instant>,
}

/// The object of a handle.
pub struct Found {
    /// Its export.
    pub export: Arc<Export>,
    /// Its path; the root's is empty.
    pub path: String,
    /// The file; `None` for the root.
    pub file: Option<ViewFile>,
}

impl Found {
    /// Its attributes.
    pub fn meta(&self) -> Meta {
        match &self.file {
            None => meta_of(EntryKind::Directory, 0o755, 0),
            Some(file) => meta_of(file.entry.kind, file.entry.mode, file.entry.len_bytes),
        }
    }

    /// A directory.
    pub fn is_directory(&self) -> bool {
        self.file.as_ref().is_none_or(|file| file.entry.kind == EntryKind::Directory)
    }

    /// Its handle.
    pub fn handle(&self) -> Handle {
        let file = match &self.file {
            Some(file) if !self.is_directory() => u64::from(file.file) + 1,
            _ => 0,
        };
        Handle { export: self.export.key, path: PathNumber::of(&self.path), file }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

fn complain(text: &str) {
    tracing::warn!(event = "nfs_client_error", "NFS: {text}");
}

impl Export {
    fn new(key: ExportKey, name: String, source: Arc<dyn ViewSource>) -> Arc<Self> {
        let tree = Live::new(Arc::clone(&source), Arc::new(Complaints::new(complain)), Removed::Stale);
        Arc::new(Self {
            key,
            name,
            tree,
            source,
            paths: Mutex::default(),
            list: Mutex::default(),
            stamp: Mutex::default(),
            since: SystemTime::now(),
            used: Mutex::new(Instant::now()),
        })
    }

    /// Looks up a path.
    ///
    /// # Errors
    /// `ENOENT`; as [`Tree::stat`].
    pub fn at(self: &Arc<Self>, path: String) -> Called<Found> {
        let file = match path.as_str() {
            // The source is queried all the same: the volume may be gone.
            "" => self.tree.find("ibdata1").map(|_| None)?,
            path => Some(self.tree.find(path)?.ok_or(Errno(libc::ENOENT))?),
        };
        let mut paths = lock(&self.paths);
        if paths.len() >= PATHS_LIMIT {
            paths.clear();
        }
        paths.insert(PathNumber::of(&path), path.clone());
        drop(paths);
        Ok(Found { export: Arc::clone(self), path, file })
    }

    fn path_of(&self, number: PathNumber) -> Called<String> {
        if number == PathNumber::of("") {
            return Ok(String::new());
        }
        if let Some(path) = lock(&self.paths).get(&number) {
            return Ok(path.clone());
        }
        // Probably a handle from before a restart.
        let names = self.source.names().map_err(|error| error.errno())?;
        let mut found = names.into_iter().filter(|entry| PathNumber::of(&entry.path) == number);
        found.next().map(|entry| entry.path).ok_or(Errno(libc::ESTALE))
    }

    /// Names in a directory, in the order of their numbers. A call that continues a list gets the list of the previous
    /// call, unless that is old.
    ///
    /// # Errors
    /// As [`Tree::list`].
    pub fn list(&self, path: &str, goes_on: bool) -> Called<List> {
        if goes_on
            && let Some((of, since, list)) = &*lock(&self.list)
            && of == path
            && since.elapsed() < LIST_AGE
        {
            return Ok(Arc::clone(list));
        }
        let names = self.tree.list(path)?;
        let numbered = names.into_iter().map(|(name, meta)| (PathNumber::of(&join(path, &name)), name, meta));
        let mut list: Vec<_> = numbered.collect();
        list.sort_by_key(|(number, ..)| *number);
        let list = Arc::new(list);
        *lock(&self.list) = Some((path.to_owned(), Instant::now(), Arc::clone(&list)));
        Ok(list)
    }

    /// Time of the last change, as far as clients may rely on their caches.
    pub fn changed(&self) -> SystemTime {
        if self.source.is_moment() {
            return self.since;
        }
        let now = (Instant::now(), SystemTime::now());
        let mut stamp = lock(&self.stamp);
        let Some(position) = self.source.position() else {
            *stamp = None;
            return now.1;
        };
        let seen = match &*stamp {
            Some(last) if last.position == position => last.seen,
            _ => {
                *stamp = Some(Stamp { position, seen: now });
                now
            }
        };
        // Cached reads may be older.
        if seen.0.elapsed() < CHANGE_AGE { now.1 } else { seen.1 + CHANGE_AGE }
    }

    fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }

    fn idle(&self) -> Duration {
        lock(&self.used).elapsed()
    }
}

/// A path in a directory.
pub fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

struct Moment {
    volume: String,
    label: String,
    export: Arc<Export>,
    since: Instant,
    /// Clients that have mounted the moment and not unmounted it.
    mounts: u64,
}

struct Open {
    handle: Handle,
    file: Arc<dyn OpenFile>,
    is_log: bool,
    used: Instant,
}

/// All exports of a node.
pub struct Exports {
    volumes: Arc<dyn Volumes>,
    limits: Limits,
    live: Mutex<HashMap<ExportKey, Arc<Export>>>,
    moments: Mutex<Vec<Moment>>,
    /// Locked while a moment is begun.
    taking: Mutex<()>,
    open: Mutex<Vec<Open>>,
    /// Messages about failed lookups of clients; they must not fill the log.
    complaints: Complaints,
    /// Messages about the beginning and end of moments.
    news: Complaints,
}

/// Reason for a rejected mount.
#[derive(Debug, PartialEq, Eq)]
pub enum MountError {
    /// No such volume or directory.
    NoSuch,
    /// The name is invalid.
    Invalid,
    /// The path is that of a file.
    NotADirectory,
    /// A read failed, temporarily or permanently; the reason is logged.
    Failed,
}

impl Exports {
    /// Exports without any moment.
    pub fn new(volumes: Arc<dyn Volumes>, limits: Limits) -> Self {
        Self {
            volumes,
            limits,
            live: Mutex::default(),
            moments: Mutex::default(),
            taking: Mutex::default(),
            open: Mutex::default(),
            complaints: Complaints::new(complain),
            news: Complaints::new(|text| tracing::info!(event = "nfs_notice", "NFS: {text}")),
        }
    }

    /// Names of the exports: volumes, and current moments.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.volumes.list().into_iter().map(|listed| format!("/{}", listed.name)).collect();
        names.extend(lock(&self.moments).iter().map(|moment| format!("/{}", moment.export.name)));
        names
    }

    /// Resolves the path that a client mounts: `/VOLUME`, `/VOLUME@LABEL`, or a directory in it.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn mount(&self, path: &str) -> Result<Found, MountError> {
        let path = path.trim_matches('/');
        let (name, inside) = path.split_once('/').unwrap_or((path, ""));
        let is_plain = |part: &str| !matches!(part, "" | "." | "..");
        if name.is_empty() || !(inside.is_empty() || inside.split('/').all(is_plain)) {
            return Err(MountError::Invalid);
        }
        let opened = match name.split_once('@') {
            None => self.open_live(name),
            Some((volume, label)) => self.mount_moment(volume, label),
        };
        let export = opened.map_err(|error| match error {
            None => MountError::Invalid,
            Some(ViewError::Ended(_)) => MountError::NoSuch,
            Some(error) => {
                self.complaints.say(format!("{path:?} cannot be mounted: {error}"));
                MountError::Failed
            }
        })?;
        export.touch();
        match export.at(inside.to_owned()) {
            Ok(found) if found.is_directory() => Ok(found),
            Ok(_) => Err(MountError::NotADirectory),
            Err(Errno(libc::ENOENT)) => Err(MountError::NoSuch),
            Err(_) => Err(MountError::Failed),
        }
    }

    fn open_live(&self, name: &str) -> Result<Arc<Export>, Option<ViewError>> {
        let (volume_id, source) = self.volumes.open(name, false)?;
        let key = ExportKey { volume_id, moment: 0 };
        let mut live = lock(&self.live);
        let export = live.entry(key).or_insert_with(|| Export::new(key, name.to_owned(), source));
        Ok(Arc::clone(export))
    }

    fn mount_moment(&self, volume: &str, label: &str) -> Result<Arc<Export>, Option<ViewError>> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if label.is_empty() || label.len() > LABEL_LIMIT_BYTES || !label.bytes().all(allowed) {
            return Err(None);
        }
        let _taking = lock(&self.taking);
        self.sweep();
        if let Some(moment) = lock(&self.moments).iter_mut().find(|moment| moment.volume == volume) {
            if moment.label != label {
                let held = &moment.export.name;
                let text =
                    format!("the moment {held} is held, and a volume has one at a time; unmount that first");
                return Err(Some(ViewError::NotNow(text)));
            }
            moment.mounts += 1;
            return Ok(Arc::clone(&moment.export));
        }
        let (volume_id, source) = self.volumes.open(volume, true)?;
        let key = ExportKey { volume_id, moment: fastrand::u64(1..) };
        let export = Export::new(key, format!("{volume}@{label}"), source);
        self.news.say(format!("the moment {} is held", export.name));
        lock(&self.moments).push(Moment {
            volume: volume.to_owned(),
            label: label.to_owned(),
            export: Arc::clone(&export),
            since: Instant::now(),
            mounts: 1,
        });
        Ok(export)
    }

    /// Processes an unmount of a client.
    pub fn unmount(&self, path: &str) {
        let path = path.trim_matches('/');
        let name = path.split_once('/').map_or(path, |(name, _)| name);
        let mut ended = None;
        let mut moments = lock(&self.moments);
        if let Some(at) = moments.iter().position(|moment| moment.export.name == name) {
            moments[at].mounts = moments[at].mounts.saturating_sub(1);
            if moments[at].mounts == 0 {
                ended = Some(moments.remove(at));
            }
        }
        drop(moments);
        if let Some(moment) = ended {
            self.end(moment, "all have unmounted it");
        }
    }

    fn end(&self, moment: Moment, why: &str) {
        self.news.say(format!("the moment {} has ended: {why}", moment.export.name));
        let key = moment.export.key;
        let (closed, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *lock(&self.open)).into_iter().partition(|open| open.handle.export == key);
        lock(&self.open).extend(left);
        drop(closed);
    }

    /// Releases unused exports and files. Called periodically.
    pub fn sweep(&self) {
        let closed: Vec<_> =
            lock(&self.open).extract_if(.., |open| open.used.elapsed() >= OPEN_IDLE).collect();
        drop(closed);
        let (idle, life) = (self.limits.moment_idle, MOMENT_LIFE);
        let is_over = |moment: &mut Moment| moment.export.idle() >= idle || moment.since.elapsed() >= life;
        let ended: Vec<_> = lock(&self.moments).extract_if(.., is_over).collect();
        for moment in ended {
            let why = if moment.since.elapsed() >= life {
                format!("it was held for {} hours", life.as_secs() / 3600)
            } else {
                format!("no request for {} s", idle.as_secs())
            };
            self.end(moment, &why);
        }
    }

    fn export(&self, key: ExportKey) -> Called<Arc<Export>> {
        if key.moment != 0 {
            let moments = lock(&self.moments);
            let found = moments.iter().find(|moment| moment.export.key == key);
            return found.map(|moment| Arc::clone(&moment.export)).ok_or(Errno(libc::ESTALE));
        }
        if let Some(export) = lock(&self.live).get(&key) {
            return Ok(Arc::clone(export));
        }
        // Asked before and after, because a volume may be opened, or closed for a while, meanwhile.
        let was_opening = self.volumes.is_opening();
        let listed = self.volumes.list().into_iter().find(|listed| listed.volume_id == key.volume_id);
        match listed {
            Some(listed) => self
                .open_live(&listed.name)
                .map_err(|error| error.map_or(Errno(libc::ESTALE), |error| error.errno())),
            None if was_opening || self.volumes.is_opening() => Err(Errno(libc::EAGAIN)),
            // Not stale: a client would give up the handle, and the volume may be available again after a restart of
            // the node.
            None if self.volumes.has_unusable() => Err(Errno(libc::EIO)),
            None => Err(Errno(libc::ESTALE)),
        }
    }

    /// Resolves a handle.
    ///
    /// # Errors
    /// `ESTALE`: the file is gone; `EAGAIN`: its volume is being opened; `EIO`: its volume may be one that could not be
    /// opened; as [`Tree::stat`].
    pub fn find(&self, handle: &Handle) -> Called<Found> {
        let export = self.export(handle.export)?;
        export.touch();
        let found = export.path_of(handle.path).and_then(|path| match export.at(path) {
            Ok(found) if found.handle() == *handle => Ok(found),
            Ok(_) | Err(Errno(libc::ENOENT)) => Err(Errno(libc::ESTALE)),
            Err(error) => Err(error),
        });
        if matches!(found, Err(Errno(libc::ESTALE))) && handle.export.moment == 0 {
            self.forget_if_gone(&export);
        }
        found
    }

    /// Removes the export of a deleted volume.
    fn forget_if_gone(&self, export: &Export) {
        let was_opening = self.volumes.is_opening();
        let is_there = self.volumes.list().iter().any(|listed| listed.volume_id == export.key.volume_id);
        if !is_there && !was_opening && !self.volumes.is_opening() {
            lock(&self.live).remove(&export.key);
        }
    }

    /// The file of a handle, opened for reading.
    ///
    /// # Errors
    /// `EISDIR`; as [`Exports::find`].
    pub fn open(&self, handle: &Handle) -> Called<Arc<dyn OpenFile>> {
        self.export(handle.export)?.touch();
        if let Some(open) = lock(&self.open).iter_mut().find(|open| open.handle == *handle)
            && (open.is_log || open.used.elapsed() < OPEN_FRESH)
        {
            open.used = Instant::now();
            // The read finds out whether the volume exists.
            return Ok(Arc::clone(&open.file));
        }
        let found = self.find(handle)?;
        let Some(file) = found.file.clone().filter(|_| !found.is_directory()) else {
            return Err(Errno(libc::EISDIR));
        };
        let is_log = file.entry.kind == EntryKind::RedoLog;
        let file = found.export.tree.open_found(&found.path, file)?;
        let mut open = lock(&self.open);
        let mut closed: Vec<_> = open.extract_if(.., |open| open.handle == *handle).collect();
        if open.len() >= OPEN_LIMIT
            && let Some(at) = (0..open.len()).min_by_key(|at| open[*at].used)
        {
            closed.push(open.swap_remove(at));
        }
        open.push(Open { handle: *handle, file: Arc::clone(&file), is_log, used: Instant::now() });
        drop(open);
        drop(closed);
        Ok(file)
    }
}
