//! The network side of a node: one thread per connection, blocking I/O, one listener (of two sockets).
//!
//! A node serves few connections that each carry much: a log connection, one for notices and a pool of page connections
//! per server. One thread per connection keeps every path simple and its latency low.

mod accept;
mod admission;
mod authority;
mod busy;
mod complaints;
mod control;
mod io;
mod listen;
mod log;
mod notices;
mod opening;
mod pace;
mod page;
mod parked;
mod parking;
mod reading;
mod reopening;
mod room;
mod stopping;
mod view;

pub use accept::serve_volume;
pub use admission::ConnectionLimits;
pub use reading::VolumeReader;

use crate::at_rest::key_of;
use crate::error::NodeError;
use crate::options::NodeOptions;
use crate::place::remove_volume_directory;
use crate::volume::Volume;
use admission::Admission;
use complaints::Complaints;
use listen::Listener;
use opening::Opening;
use parking::Parking;
use redoubt_sync::{Condvar, Mutex, thread, time};
use redoubt_wire::control::{NodeStatus, VolumeStatus};
use room::RoomWatch;
use rustix::fs::FlockOperation;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stopping::Steps;

/// A server's connection waits this long for a volume that is being opened, before it gets the answer to try later.
/// Shorter than any peer's wait for its greeting.
const PATIENCE_WITH_OPENING: Duration = Duration::from_secs(5);
/// The same for the requests of commands, which wait as long as they are let.
const PATIENCE_OF_REQUESTS: Duration = Duration::from_secs(120);
/// The same for a name that another command uses. If that command has just ended, its connection is closed here soon,
/// and the name is free.
const PATIENCE_WITH_NAMES: Duration = Duration::from_secs(2);
/// How long to wait after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long the last connections may take to let go of encrypted volumes when the node ends.
const PATIENCE_WITH_READERS: Duration = Duration::from_secs(5);

/// Directory at the top of a file system, which may be mounted on the directory of the volumes.
const LOST_AND_FOUND: &str = "lost+found";

/// A storage node.
pub struct Node {
    options: NodeOptions,
    listener: Listener,
    volumes: Mutex<BTreeMap<String, Arc<Volume>>>,
    /// Volumes that could not be opened, and why.
    unusable: Mutex<BTreeMap<String, String>>,
    opening: Opening,
    parking: Parking,
    /// Names that are being created, imported, deleted or opened again.
    busy: Mutex<Vec<String>>,
    /// One of them no longer is.
    name_freed: Condvar,
    admission: Admission,
    complaints: Mutex<Complaints>,
    stopping: Steps,
    room: RoomWatch,
    since: Instant,
    /// Held for as long as the node lives: one node per data directory, and per directory of volumes, which may be
    /// another file system.
    _locks: [std::fs::File; 2],
}

impl Node {
    /// Starts to listen, and to open all volumes in the data directory, several at a time. Opening continues after this
    /// returns. Volumes that cannot be opened are reported and left alone.
    ///
    /// # Errors
    /// [`NodeError::Io`] if directory or address cannot be used; [`NodeError::Refused`] if another node has them.
    pub fn open(options: NodeOptions) -> Result<Arc<Self>, NodeError> {
        let directory = options.data_directory.join("volumes");
        std::fs::create_dir_all(&directory).map_err(|error| NodeError::io("create", &directory, error))?;
        let locks = lock_directories(&options.data_directory, &directory)?;
        let listener = Listener::bind(&options.listen, options.local_users.is_some())?;
        check_exposure(&options, listener.address())?;
        let admission = Admission::new(options.connections.clone());
        let room = RoomWatch::begin(&options.data_directory);
        let node = Arc::new(Self {
            options,
            listener,
            volumes: Mutex::default(),
            unusable: Mutex::default(),
            opening: Opening::default(),
            parking: Parking::default(),
            busy: Mutex::default(),
            name_freed: Condvar::new(),
            admission,
            complaints: Mutex::new(Complaints::new()),
            stopping: Steps::default(),
            room,
            since: time::now(),
            _locks: locks,
        });
        crate::page_store::warn_of_new_volumes(&node.options);
        let names = node.find_volumes()?;
        // At least two: opening mostly waits for the disk.
        let at_once = std::thread::available_parallelism().map_or(2, usize::from).max(2);
        Opening::begin(&node, names, at_once);
        Parking::begin(&node);
        Ok(node)
    }

    /// The volumes in the data directory. Removes the remains of unfinished imports and deletions.
    fn find_volumes(&self) -> Result<Vec<String>, NodeError> {
        let directory = self.options.data_directory.join("volumes");
        let failed = |error| NodeError::io("list", &directory, error);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') {
                match self.remove_directory(&entry.path()) {
                    // Its key or its raw device may come later; the next command that uses its name removes it then.
                    Err(error @ (NodeError::AtRest(_) | NodeError::Refused(_))) => {
                        tracing::warn!(event = "leftover_not_removed", %error, "a leftover file is not removed")
                    }
                    removed => removed?,
                }
            } else if name != LOST_AND_FOUND {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// A volume by its name, waited for if it is being opened, but no longer than `patience`.
    ///
    /// # Errors
    /// [`NodeError::NotNow`] if it is still being opened; [`NodeError::Refused`] if there is none that can be used.
    fn volume(&self, name: &str, patience: Duration) -> Result<Arc<Volume>, NodeError> {
        let deadline = time::now() + patience;
        let rest = || deadline.saturating_duration_since(time::now());
        let mut has_asked = false;
        loop {
            self.opening.wait_for(name, rest())?;
            let (is_parked, is_opening) = {
                let volumes = self.volumes.lock();
                if let Some(volume) = volumes.get(name).cloned() {
                    drop(volumes);
                    self.parking.note_use(name);
                    return self.reopened(name, volume, patience);
                }
                // In the order in which a volume moves that does not open.
                let is_opening = self.opening.contains(name);
                (self.parking.contains(name), is_opening)
            };
            if is_parked {
                if has_asked && let Some(reason) = self.parking.failure(name) {
                    return Err(NodeError::NotNow(format!("volume {name} cannot be opened now: {reason}")));
                }
                match self.unpark(name, rest(), false) {
                    Ok(()) => has_asked = true,
                    // Another request opens it, or has opened it.
                    Err(NodeError::NotNow(_)) if !rest().is_zero() && !self.opening.is_stopping() => {}
                    Err(error) => return Err(error),
                }
            } else if !is_opening {
                return Err(NodeError::Refused(self.why_no_volume(name)));
            }
        }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Name of the local socket that it listens on, if so.
    pub fn local_name(&self) -> Option<String> {
        self.listener.local_name()
    }

    /// Serves connections until [`Node::stop`].
    pub fn serve(self: &Arc<Self>) {
        loop {
            let incoming = match self.listener.accept() {
                Ok(Some(incoming)) => incoming,
                Ok(None) => return,
                Err(error) => {
                    // Out of file descriptors, most likely: wait until a connection has been closed.
                    tracing::warn!(event = "accept_failed", %error, "cannot accept a connection");
                    thread::sleep(ACCEPT_PAUSE);
                    continue;
                }
            };
            let (node, arrived) = (Arc::clone(self), self.admission.arrive());
            let serve = move || node.serve_socket(arrived, incoming);
            let spawned = thread::Builder::new().name("connection".to_owned()).spawn(serve);
            if let Err(error) = spawned {
                tracing::warn!(event = "connection_thread_failed", %error, "cannot start a thread for a connection");
            }
        }
    }

    /// Ends [`Node::serve`], all connections and all volumes. Safe to call from a signal thread; needs no network. It
    /// waits for the volumes' threads, and a thread waits for its device; [`Node::stop_waits_for`] names the current
    /// wait.
    pub fn stop(&self) {
        self.listener.stop();
        self.stopping.run("the list of connections".to_owned(), || self.admission.close());
        self.stopping.run("a volume that is being parked".to_owned(), || self.parking.stop());
        self.stopping.run("volumes that are being opened".to_owned(), || self.opening.stop());
        let mut volumes = BTreeMap::new();
        self.stopping.run("the list of volumes".to_owned(), || volumes.clone_from(&self.volumes.lock()));
        for (name, volume) in volumes {
            self.stopping.run(format!("the threads of volume {name}"), || volume.shut_down());
        }
    }

    /// Takes the keys of encrypted volumes from the kernel. After [`Node::stop`], as the last thing: it waits for a
    /// short time for threads that still hold a volume.
    pub fn remove_keys(&self) {
        self.stopping.run("the keys of encrypted volumes".to_owned(), || {
            drop(std::mem::take(&mut *self.volumes.lock()));
            self.options.at_rest.end(PATIENCE_WITH_READERS);
        });
    }

    /// Current wait of [`Node::stop`]; `None`: nothing, or it was not called.
    pub fn stop_waits_for(&self) -> Option<String> {
        self.stopping.describe()
    }

    /// Reason why a volume cannot be served: opening failed, or there is none.
    fn why_no_volume(&self, name: &str) -> String {
        let reason = self.unusable.lock().get(name).cloned();
        match reason.or_else(|| self.parking.reason(name)) {
            Some(reason) => format!("volume {name} could not be opened: {reason}"),
            None => format!("node has no volume {name:?}; see `redoubt volume list`"),
        }
    }

    /// State of the node and its volumes.
    pub fn status(&self) -> NodeStatus {
        // Together, because volumes move between these lists. A volume that was just opened is in two of them.
        let (mut opening, volumes, mut parked) = {
            let volumes = self.volumes.lock();
            (self.opening.statuses(), volumes.clone(), self.parking.statuses())
        };
        for of in &mut opening {
            of.encrypted_with = self.encrypted_with(&of.name);
        }
        let unusable = self.unusable.lock().clone();
        parked.retain(|of| !volumes.contains_key(&of.name) && !unusable.contains_key(&of.name));
        let is_parked = |of: &VolumeStatus| parked.iter().any(|parked| parked.name == of.name);
        opening.retain(|of| {
            !volumes.contains_key(&of.name) && !unusable.contains_key(&of.name) && !is_parked(of)
        });
        let connections = self.admission.by_volume();
        let with_connections = |of: VolumeStatus| match connections.get(&of.name) {
            Some(&(connections, local_connections)) => VolumeStatus { connections, local_connections, ..of },
            None => of,
        };
        NodeStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            listen: self.address().to_string(),
            local_socket: self.local_name(),
            data_directory: self.options.data_directory.display().to_string(),
            uptime_seconds: time::elapsed(self.since).as_secs(),
            memory_used_bytes: self.options.memory.used_bytes(),
            memory_limit_bytes: self.options.memory.limit_bytes(),
            room: self.room.newest(),
            certificate_expires_s: self.options.tls.as_ref().map(|tls| tls.expires_s()),
            status_page: self.options.status_page.map(|address| address.to_string()),
            volumes: volumes
                .values()
                .map(|volume| volume.status())
                .chain(opening)
                .chain(parked)
                .chain(unusable.into_iter().map(|(name, reason)| VolumeStatus {
                    encrypted_with: self.encrypted_with(&name),
                    name,
                    state: "unusable".to_owned(),
                    reason,
                    ..VolumeStatus::default()
                }))
                .map(with_connections)
                .collect(),
        }
    }

    /// Of a volume that is not open.
    fn encrypted_with(&self, name: &str) -> Option<String> {
        Some(key_of(&self.volume_directory(name)).ok()??.to_string())
    }

    fn remove_directory(&self, volume_directory: &Path) -> Result<(), NodeError> {
        remove_volume_directory(volume_directory, &self.options.devices, &self.options.at_rest)
    }

    fn volume_directory(&self, name: &str) -> PathBuf {
        self.options.data_directory.join("volumes").join(name)
    }
}

/// Plain text is for this host only, unless the operator trusts the network.
fn check_exposure(options: &NodeOptions, address: SocketAddr) -> Result<(), NodeError> {
    if options.tls.is_some() || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    if !options.allow_plain_text {
        return Err(NodeError::Refused(format!(
            "refusing to listen on {address} without TLS: every host that reaches it could read, change and \
             delete all volumes. Make certificates with `redoubt certificates create` and give the node its \
             own with --tls DIR, or listen on 127.0.0.1, or, if the whole network is trusted, add \
             --allow-plain-text"
        )));
    }
    tracing::warn!(
        event = "listening_unauthenticated",
        "listening on {address} in PLAIN TEXT, WITHOUT AUTHENTICATION: every host that reaches this address \
         can read, change and delete all volumes, and every host on the path can read and change the traffic"
    );
    Ok(())
}

/// Locks the data directory by a file in it, and the directory of the volumes itself.
fn lock_directories(data: &Path, volumes: &Path) -> Result<[std::fs::File; 2], NodeError> {
    let path = data.join("node.lock");
    let mut in_data = std::fs::File::options();
    in_data.write(true).create(true).truncate(false);
    let lock = |options: &std::fs::OpenOptions, path: &Path| {
        let file = options.open(path).map_err(|error| NodeError::io("open", path, error))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(file),
            Err(_) => Err(NodeError::Refused(format!(
                "{} is in use by another node; stop it or choose another --data directory",
                data.display()
            ))),
        }
    };
    Ok([lock(&in_data, &path)?, lock(std::fs::File::options().read(true), volumes)?])
}
