//! State that every part of a volume shares: name and disk, run state, the way to its server, counters.
//!
//! Owns whether the volume runs, waits or has stopped, and the signal that wakes its threads. A wait names the waiting
//! part. Several parts may wait at once; the server receives the end of the wait when the last of them continues.
//!
//! Invariants: a stopped volume never runs again; only the first reason for a stop counts.
//!
//! Lock order: signal, then the locks that a callback of [`Context::wait_for_work`] takes; run state and the end
//! of the last wait are leaves; waits, then that end.

use super::notices::Notices;
use crate::counters::Counters;
use crate::error::{Kind, NodeError};
use crate::figures::Figures;
use crate::home::Folder;
use crate::memory::VolumeMemory;
use crate::options::NodeOptions;
use crate::trace::Tracer;
use redoubt_sync::{Condvar, Mutex, time};
use redoubt_transport::Packing;
use redoubt_wire::control::FrozenEnd;
use redoubt_wire::notice::Notice;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long to wait before trying again when the disk is full.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Work is signalled without the lock, so a signal can be missed: check again after this time.
const LOOK_AGAIN_INTERVAL: Duration = Duration::from_millis(50);

/// Which part waits for something outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiter {
    /// The log device.
    Log,
    /// The changes of plain files.
    PlainFiles,
    /// The page store.
    Pages,
    /// A server whose frames find no room in the log buffer.
    Room,
}

/// Whether a volume works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It does.
    Running,
    /// Something outside must happen first (room on the disk); the text describes it.
    Waiting(String),
    /// It can be read, but not written ([`super::frozen`]).
    Frozen(String),
    /// For good, until the node is restarted.
    Stopped(String),
}

/// The newest time at which a volume waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastWait {
    /// It has not waited.
    None,
    /// Until then.
    Ended(Instant),
    /// It waits now.
    Lasts,
}

/// Name, disk, run state and counters of a volume.
pub struct Context {
    /// Name of the volume.
    pub name: String,
    /// Its own directory.
    pub own: Folder,
    /// Settings of the node.
    pub options: NodeOptions,
    /// The way to the server.
    pub notices: Notices,
    /// The counted events.
    pub counters: Counters,
    /// Whether replies on page connections are compressed, where the server leaves that to the node.
    pub page_packing: Packing,
    /// Distributions of times.
    pub figures: Figures,
    /// Traces of commits and reads.
    pub tracer: Tracer,
    /// Memory that the volume uses.
    pub memory: Arc<VolumeMemory>,
    /// Why it cannot be written, and where it ends.
    frozen: OnceLock<(String, FrozenEnd)>,
    stopped: Mutex<Option<String>>,
    waits: Mutex<BTreeMap<Waiter, String>>,
    /// End of the last wait.
    wait_ended: Mutex<Option<Instant>>,
    /// The node ends; a connected server reconnects to the next one.
    is_shutting_down: AtomicBool,
    closed: Mutex<bool>,
    work: Condvar,
}

impl Context {
    /// Of a volume that runs.
    pub fn new(name: &str, own: Folder, options: &NodeOptions) -> Self {
        Self {
            name: name.to_owned(),
            own,
            options: options.clone(),
            notices: Notices::default(),
            counters: Counters::default(),
            page_packing: Packing::default(),
            figures: Figures::default(),
            tracer: Tracer::default(),
            memory: Arc::new(VolumeMemory::new(&options.memory)),
            frozen: OnceLock::new(),
            stopped: Mutex::default(),
            waits: Mutex::default(),
            wait_ended: Mutex::default(),
            is_shutting_down: AtomicBool::new(false),
            closed: Mutex::new(false),
            work: Condvar::new(),
        }
    }

    /// It cannot be written, for this reason. Once, before anything uses the volume.
    pub fn freeze(&self, reason: String, end: FrozenEnd) {
        let _ = self.frozen.set((reason, end));
    }

    /// Its end, if it is frozen.
    pub fn frozen_end(&self) -> Option<&FrozenEnd> {
        self.frozen.get().map(|(_, end)| end)
    }

    /// # Errors
    /// [`NodeError::Stopped`]; [`NodeError::Refused`] if it is frozen.
    pub fn check_writable(&self) -> Result<(), NodeError> {
        self.check_running()?;
        match self.frozen.get() {
            Some((reason, _)) => {
                Err(NodeError::Refused(format!("volume {} cannot be written: {reason}", self.name)))
            }
            None => Ok(()),
        }
    }

    /// Whether it works.
    pub fn condition(&self) -> Condition {
        if let Some(reason) = &*self.stopped.lock() {
            return Condition::Stopped(reason.clone());
        }
        if let Some((reason, _)) = self.frozen.get() {
            return Condition::Frozen(reason.clone());
        }
        match self.waits_for() {
            Some(reason) => Condition::Waiting(reason),
            None => Condition::Running,
        }
    }

    /// Why the volume does not run, if so.
    pub fn stopped(&self) -> Option<String> {
        self.stopped.lock().clone()
    }

    /// Error of any action that a closed volume could not complete.
    pub fn stopped_error(&self) -> NodeError {
        NodeError::Stopped(self.stopped().unwrap_or_else(|| "it is being closed".to_owned()))
    }

    /// # Errors
    /// [`NodeError::Stopped`].
    pub fn check_running(&self) -> Result<(), NodeError> {
        self.stopped().map_or(Ok(()), |reason| Err(NodeError::Stopped(reason)))
    }

    /// The volume has stopped only because the node ends.
    pub fn is_shutting_down(&self) -> bool {
        self.is_shutting_down.load(Ordering::Acquire)
    }

    /// Stops the volume for good and sends the reason to the server. False: it had stopped already. The caller closes
    /// the parts.
    pub fn stop(&self, reason: &str) -> bool {
        {
            let mut stopped = self.stopped.lock();
            if stopped.is_some() {
                return false;
            }
            *stopped = Some(reason.to_owned());
        }
        tracing::error!(event = "volume_stopped", volume = self.name, reason, "volume stopped");
        self.notices.send(&Notice::Stopped { reason: reason.to_owned() });
        true
    }

    /// The node ends. The caller closes the parts.
    pub fn begin_shutdown(&self) {
        let mut stopped = self.stopped.lock();
        if stopped.is_none() {
            self.is_shutting_down.store(true, Ordering::Release);
            *stopped = Some("the node is shutting down".to_owned());
        }
    }

    /// Condition outside the node that the volume waits for, if any. Unlike a lack of room in the log buffer it does
    /// not end by itself.
    pub fn blocked(&self) -> Option<String> {
        let waits = self.waits.lock();
        waits.iter().find(|(waiter, _)| **waiter != Waiter::Room).map(|(_, reason)| reason.clone())
    }

    /// This one waits.
    pub fn is_waiting(&self, waiter: Waiter) -> bool {
        self.waits.lock().contains_key(&waiter)
    }

    /// Reasons why the volume waits, if it does.
    pub fn waits_for(&self) -> Option<String> {
        let waits = self.waits.lock();
        (!waits.is_empty()).then(|| waits.values().cloned().collect::<Vec<_>>().join("; "))
    }

    /// The newest time at which it waited.
    pub fn last_wait(&self) -> LastWait {
        let waits = self.waits.lock();
        if waits.is_empty() {
            self.wait_ended.lock().map_or(LastWait::None, LastWait::Ended)
        } else {
            LastWait::Lasts
        }
    }

    /// Reports to operator and server why `waiter` does not continue for now.
    pub fn begin_wait(&self, waiter: Waiter, reason: &str) {
        {
            let mut waits = self.waits.lock();
            if waits.get(&waiter).is_some_and(|known| known == reason) {
                return;
            }
            waits.insert(waiter, reason.to_owned());
        }
        tracing::warn!(event = "volume_waits", volume = self.name, reason, "volume waits");
        self.notices.send(&Notice::Waiting { reason: reason.to_owned() });
    }

    /// `waiter` continues.
    pub fn end_wait(&self, waiter: Waiter) {
        {
            let mut waits = self.waits.lock();
            if waits.remove(&waiter).is_none() || !waits.is_empty() {
                return;
            }
            *self.wait_ended.lock() = Some(time::now());
        }
        tracing::info!(event = "volume_resumes", volume = self.name, "volume resumes");
        self.notices.send(&Notice::Waiting { reason: String::new() });
    }

    /// Repeats `action` while it fails for lack of space.
    ///
    /// # Errors
    /// Any other error of `action`; its last failure when the volume is closed.
    pub fn with_retry<T>(
        &self,
        waiter: Waiter,
        mut action: impl FnMut() -> Result<T, NodeError>,
    ) -> Result<T, NodeError> {
        let mut waited = false;
        loop {
            match action() {
                Ok(value) => {
                    if waited {
                        self.end_wait(waiter);
                    }
                    return Ok(value);
                }
                Err(error) if error.kind() == Kind::Retry => {
                    waited = true;
                    self.begin_wait(waiter, &error.to_string());
                    if !self.pause(RETRY_INTERVAL) {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until there may be work, at most for `interval`. False: the volume is closed.
    pub fn pause(&self, interval: Duration) -> bool {
        let mut closed = self.closed.lock();
        if !*closed {
            self.work.wait_for(&mut closed, interval);
        }
        !*closed
    }

    /// Waits until `look` finds something to do. `None`: the volume is closed.
    pub fn wait_for_work<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let mut closed = self.closed.lock();
        loop {
            if *closed {
                return None;
            }
            if let Some(found) = look() {
                return Some(found);
            }
            self.work.wait_for(&mut closed, LOOK_AGAIN_INTERVAL);
        }
    }

    /// There may be work.
    pub fn signal_work(&self) {
        self.work.notify_all();
    }

    /// The volume's threads are to end.
    pub fn is_closed(&self) -> bool {
        *self.closed.lock()
    }

    /// Ends all waits of this part.
    pub fn close(&self) {
        *self.closed.lock() = true;
        self.work.notify_all();
    }
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
