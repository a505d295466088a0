//! Volumes that a node that has just started is still opening, several at a time, and volumes that it opens
//! again ([`super::reopening`]).
//!
//! The node serves meanwhile. A request for a volume that is being opened waits for a while, and then fails with an
//! error to try later. The volume cannot be deleted, and its name cannot be used.
//!
//! Invariants: a volume is in the node's list, or among the unusable ones with the reason, before its name leaves this
//! list. No volume is begun after [`Opening::stop`].
//!
//! Lock: `state` is a leaf; nothing is opened with it held.

use super::Node;
use crate::error::{Kind, NodeError};
use crate::home::Folder;
use crate::volume::{Identity, Volume};
use redoubt_sync::thread::{self, JoinHandle};
use redoubt_sync::{Condvar, Mutex, time};
use redoubt_wire::control::VolumeStatus;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A volume that is not open, as far as it is known.
#[derive(Clone)]
pub struct Closed {
    pub identity: Identity,
    /// Its random id, if it was open and a server has written to it.
    pub readable_id: Option<String>,
    /// Its files were whole when it was closed: after any failure to open it, the next request tries again. Otherwise only
    /// after a failure that passes, such as a lack of descriptors.
    pub was_sound: bool,
    /// Its status when it was closed; `None`: this node has not opened it.
    pub status: Option<Arc<VolumeStatus>>,
    /// From then on, the time that it is closed was not added to the state of its scrub.
    pub closed_at: Instant,
    /// When its next pass of the scrub is due.
    pub scrub_due_at: Option<Instant>,
    /// It is opened for that.
    pub is_scrub_turn: bool,
    /// Times that it could not be opened since.
    pub failures: u32,
}

impl Closed {
    /// A volume that was closed now, and perhaps may be opened again.
    pub fn new(identity: Identity, readable_id: Option<String>, was_sound: bool) -> Self {
        Self {
            identity,
            readable_id,
            was_sound,
            status: None,
            closed_at: time::now(),
            scrub_due_at: None,
            is_scrub_turn: false,
            failures: 0,
        }
    }
}

/// Identity of a volume that was not opened yet.
fn look(node: &Node, name: &str) -> io::Result<Closed> {
    let read = || Identity::read(&Folder::open(&node.volume_directory(name))?);
    let identity = read().map_err(|error| match error {
        NodeError::Io { source, .. } => source,
        error => io::Error::other(error),
    })?;
    Ok(Closed::new(identity, None, false))
}

#[derive(Default)]
struct Unopened {
    /// Names of the volumes. Some cannot be read.
    names: BTreeMap<String, Option<Closed>>,
    /// Volumes that no thread has begun to open.
    next: VecDeque<String>,
    /// Volumes that are being opened again.
    reopening: usize,
    is_stopping: bool,
}

/// Volumes that a node that has just started is still opening, several at a time.
#[derive(Default)]
pub struct Opening {
    state: Mutex<Unopened>,
    /// A name has left, or the node stops.
    changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Opening {
    /// Begins to open these volumes of `node`, at most `at_once` at a time.
    pub fn begin(node: &Arc<Node>, names: Vec<String>, at_once: usize) {
        let opening = &node.opening;
        let known = |name: &String| (name.clone(), look(node, name).ok());
        let closed: BTreeMap<_, _> = names.iter().map(known).collect();
        let at_once = at_once.min(names.len());
        {
            let mut state = opening.state.lock();
            state.names = closed;
            state.next = names.into();
        }
        for _ in 0..at_once {
            let of = Arc::clone(node);
            let builder = thread::Builder::new().name("opening".to_owned());
            match builder.spawn(move || of.opening.run(&of)) {
                Ok(thread) => opening.threads.lock().push(thread),
                Err(error) => {
                    tracing::warn!(event = "opening_thread_failed", %error, "cannot start a thread that opens volumes");
                    // Some thread must open them.
                    opening.run(node);
                }
            }
        }
    }

    fn run(&self, node: &Node) {
        while let Some(name) = self.take_next() {
            self.open(node, &name);
            // Not only when all are open: a node may have more volumes than descriptors.
            node.park_surplus(|| self.is_stopping());
        }
    }

    /// A volume is going to be closed, or opened again. False: the node stops.
    pub fn enter(&self, name: &str, closed: Closed) -> bool {
        let mut state = self.state.lock();
        if state.is_stopping {
            return false;
        }
        state.names.insert(name.to_owned(), Some(closed));
        state.reopening += 1;
        true
    }

    /// Opens a volume again, after [`Opening::enter`].
    pub fn open_again(&self, node: &Node, name: &str) {
        self.open(node, name);
        self.state.lock().reopening -= 1;
        self.changed.notify_all();
    }

    /// A volume that was closed after [`Opening::enter`] is closed.
    pub fn leave(&self, name: &str) {
        let mut state = self.state.lock();
        state.names.remove(name);
        state.reopening -= 1;
        drop(state);
        self.changed.notify_all();
    }

    /// No volume is opened any more.
    pub fn is_stopping(&self) -> bool {
        self.state.lock().is_stopping
    }

    /// Opens a volume of this list, which leaves it.
    fn open(&self, node: &Node, name: &str) {
        let directory = node.volume_directory(name);
        // A thread that ended silently would block every request for the volume.
        let open = || Volume::open(name, &directory, &node.options);
        let opened = std::panic::catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|_| {
            let reason = "opening it met a defect of the node; see the node's error output";
            Err(NodeError::Stopped(reason.to_owned()))
        });
        match opened {
            Ok(volume) => {
                if let Some(closed) = self.known(name) {
                    volume.count_closed_time(time::elapsed(closed.closed_at));
                    if closed.is_scrub_turn {
                        volume.hurry_scrub();
                    }
                }
                drop(node.volumes.lock().insert(name.to_owned(), volume));
            }
            Err(error) => self.note_failure(node, name, &error),
        }
        self.state.lock().names.remove(name);
        self.changed.notify_all();
    }

    fn known(&self, name: &str) -> Option<Closed> {
        self.state.lock().names.get(name).cloned().flatten()
    }

    fn note_failure(&self, node: &Node, name: &str, error: &NodeError) {
        let may_pass = error.is_out_of_descriptors() || error.kind() == Kind::Retry;
        if may_pass {
            tracing::warn!(event = "volume_open_waits", volume = name, %error, "volume cannot be opened now; the node tries again");
        } else {
            tracing::error!(event = "volume_open_failed", volume = name, %error, "volume cannot be opened");
        }
        if !self.park(node, name, error, may_pass) {
            node.unusable.lock().insert(name.to_owned(), error.to_string());
        }
    }

    /// The node opens the volume later. False: it would fail again, or its identity is not known.
    fn park(&self, node: &Node, name: &str, error: &NodeError, may_pass: bool) -> bool {
        // When the node began, there may have been no descriptor to read it.
        let look_again = || node.options.open_files.with_descriptor(|| look(node, name)).ok();
        let closed = self.known(name).or_else(look_again);
        let Some(closed) = closed.filter(|closed| closed.was_sound || may_pass) else { return false };
        node.parking.put_unopened(name, closed, error, may_pass);
        true
    }

    fn take_next(&self) -> Option<String> {
        let mut state = self.state.lock();
        if state.is_stopping { None } else { state.next.pop_front() }
    }

    /// This volume is being opened.
    pub fn contains(&self, name: &str) -> bool {
        self.state.lock().names.contains_key(name)
    }

    /// Waits until the volume of this name is not being opened, at most for `patience`.
    ///
    /// # Errors
    /// [`NodeError::NotNow`] if it still is.
    pub fn wait_for(&self, name: &str, patience: Duration) -> Result<(), NodeError> {
        let deadline = time::now() + patience;
        let mut state = self.state.lock();
        loop {
            if !state.names.contains_key(name) {
                return Ok(());
            }
            if state.is_stopping || self.changed.wait_until(&mut state, deadline).timed_out() {
                return Err(self.not_now(name));
            }
        }
    }

    /// Error of a request that cannot wait for the volume.
    pub fn not_now(&self, name: &str) -> NodeError {
        NodeError::NotNow(format!(
            "volume {name} is still being opened, its log is being read; try again, and see `redoubt status`"
        ))
    }

    /// Known part of the status of the volumes that are being opened.
    pub fn statuses(&self) -> Vec<VolumeStatus> {
        let state = self.state.lock();
        let status = |(name, closed): (&String, &Option<Closed>)| {
            let of = VolumeStatus {
                name: name.clone(),
                state: "recovering".to_owned(),
                reason: "its log is being read".to_owned(),
                ..VolumeStatus::default()
            };
            match closed.clone().map(|closed| closed.identity) {
                Some(Identity { volume_id, generation, attached_by, newest_server, .. }) => {
                    VolumeStatus { volume_id, generation, attached_by, newest_server, ..of }
                }
                None => of,
            }
        };
        state.names.iter().map(status).collect()
    }

    /// Names and random ids of the volumes that were readable when they were closed.
    pub fn readable(&self) -> Vec<(String, String)> {
        let state = self.state.lock();
        let id = |closed: &Option<Closed>| closed.as_ref()?.readable_id.clone();
        state.names.iter().filter_map(|(name, closed)| Some((name.clone(), id(closed)?))).collect()
    }

    /// Opens no more volumes and ends all waits. Returns when those that were begun are open.
    pub fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.changed.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!(event = "opening_thread_panicked", "a thread that opens volumes panicked");
            }
        }
        let mut state = self.state.lock();
        while state.reopening > 0 {
            self.changed.wait(&mut state);
        }
    }
}
