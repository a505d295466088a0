//! Parking: of the idle volumes, the least recently used ones beyond [`NodeOptions::idle_volumes`] are closed. A parked
//! volume has no threads and no open files. The next request opens it again, as the next node would, and so does its turn
//! of the scrub ([`super::parked`]). A volume that is being scrubbed is parked last.
//!
//! An idle volume has no server, export, reader, check or trace, all that it received is in its page files and plain files, and
//! nothing is wrong with it. So its log holds nothing to recover. Encrypted volumes stay open, because their key may be
//! away later.
//!
//! Invariant: with the list of volumes locked, an existing volume is in exactly one of these lists: open, unusable, parked,
//! being opened ([`super::opening`]). A volume that is being parked is in the last one, so requests wait for it.
//!
//! Lock order: the list of volumes, then the parked ones, then the state of [`super::opening`].

use super::opening::Closed;
use super::parked::{TURN_MAX, retry_delay};
use super::{Node, PATIENCE_WITH_NAMES};
use crate::error::NodeError;
use crate::volume::Volume;
use redoubt_sync::thread::JoinHandle;
use redoubt_sync::{Condvar, Mutex, thread, time};
use redoubt_wire::control::VolumeStatus;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Time between two looks for idle volumes.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a volume that was closed may have other users. They only find out that it is closed.
const PATIENCE_WITH_USERS: Duration = Duration::from_secs(10);
const USERS_INTERVAL: Duration = Duration::from_millis(5);
/// References to a volume that is not in use, besides those of its threads: the list's and this module's.
const REFERENCES_UNUSED: usize = 2;

/// A volume that is closed, or that could not be opened, and may be later.
pub(super) struct ParkedVolume {
    pub closed: Closed,
    /// As of the time when it was closed.
    status: VolumeStatus,
    /// When the node tries again to open it; `None`: it was closed.
    pub retry_at: Option<Instant>,
    /// When the time was last added to the stored state of its scrub.
    pub saved_at: Instant,
}

impl ParkedVolume {
    fn new(closed: Closed, status: VolumeStatus, retry_at: Option<Instant>) -> Self {
        Self { closed, status, retry_at, saved_at: time::now() }
    }

    fn status(&self) -> VolumeStatus {
        let mut status = self.status.clone();
        if let Some(scrub) = &mut status.scrub {
            scrub.age_s += time::elapsed(self.closed.closed_at).as_secs();
        }
        status
    }

    /// This time was added to the stored state of its scrub.
    pub fn count(&mut self, closed: Duration) {
        self.closed.closed_at += closed;
        if let Some(scrub) = &mut self.status.scrub {
            scrub.age_s += closed.as_secs();
        }
        // Another failure to open it begins with this one.
        if self.closed.status.is_some() {
            self.closed.status = Some(Arc::new(self.status.clone()));
        }
    }
}

#[derive(Default)]
struct Signal {
    is_stopping: Mutex<bool>,
    changed: Condvar,
}

/// Parked volumes, and the thread that parks them.
#[derive(Default)]
pub struct Parking {
    pub(super) parked: Mutex<BTreeMap<String, ParkedVolume>>,
    /// The volume that was opened for its pass of the scrub, and when.
    pub(super) scrub_turn: Mutex<Option<(String, Instant)>>,
    /// A thread writes the state of a parked volume.
    pub(super) is_saving: AtomicBool,
    node: OnceLock<Weak<Node>>,
    last_used: Mutex<BTreeMap<String, Instant>>,
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Parking {
    /// Begins to look for idle volumes. Without a thread, none is parked.
    pub fn begin(node: &Arc<Node>) {
        let (of, signal) = (Arc::downgrade(node), Arc::clone(&node.parking.signal));
        let _ = node.parking.node.set(Weak::clone(&of));
        match thread::Builder::new().name("parking".to_owned()).spawn(move || run(&of, &signal)) {
            Ok(thread) => *node.parking.thread.lock() = Some(thread),
            Err(error) => {
                tracing::warn!(event = "parking_thread_failed", %error, "cannot start the thread that parks idle volumes");
            }
        }
    }

    /// Parks no more volumes. Returns when a volume that is being parked is closed.
    pub fn stop(&self) {
        *self.signal.is_stopping.lock() = true;
        self.signal.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!(event = "parking_thread_panicked", "the thread that parks volumes panicked");
        }
    }

    /// A volume could not be opened, and may be later. `may_pass`: by itself.
    pub fn put_unopened(&self, name: &str, mut closed: Closed, error: &NodeError, may_pass: bool) {
        let identity = &closed.identity;
        let state = match &closed.status {
            _ if !may_pass => "unusable",
            // The end of its log is not known yet.
            None => "recovering",
            Some(_) => "waiting",
        };
        if !closed.was_sound {
            // Since the node began, it is not known whether a server has written to it.
            closed.readable_id.get_or_insert_with(|| identity.volume_id.clone());
        }
        let status = VolumeStatus {
            name: name.to_owned(),
            volume_id: identity.volume_id.clone(),
            state: state.to_owned(),
            reason: error.to_string(),
            generation: identity.generation,
            attached_by: identity.attached_by.clone(),
            newest_server: identity.newest_server,
            ..closed.status.as_deref().cloned().unwrap_or_default()
        };
        closed.failures = closed.failures.saturating_add(1);
        let retry_at = time::now() + retry_delay(closed.failures);
        self.parked.lock().insert(name.to_owned(), ParkedVolume::new(closed, status, Some(retry_at)));
    }

    /// It is one of these, and frozen.
    pub fn is_frozen(&self, name: &str) -> bool {
        let parked = self.parked.lock();
        parked.get(name).is_some_and(|parked| parked.closed.identity.frozen_changes_end.is_some())
    }

    /// Why a volume is not open.
    pub fn reason(&self, name: &str) -> Option<String> {
        self.parked.lock().get(name).map(|parked| parked.status.reason.clone())
    }

    /// Why a volume could not be opened.
    pub fn failure(&self, name: &str) -> Option<String> {
        let parked = self.parked.lock();
        parked.get(name).filter(|parked| parked.retry_at.is_some()).map(|parked| parked.status.reason.clone())
    }

    /// One of these is not usable.
    pub fn has_unusable(&self) -> bool {
        self.parked.lock().values().any(|parked| parked.status.state == "unusable")
    }

    /// A request has used the volume.
    pub fn note_use(&self, name: &str) {
        self.last_used.lock().insert(name.to_owned(), time::now());
    }

    pub(super) fn node(&self) -> Weak<Node> {
        self.node.get().cloned().unwrap_or_default()
    }

    /// The volume that was opened for its pass of the scrub, and may stay open for it.
    fn turn(&self) -> Option<String> {
        let turn = self.scrub_turn.lock();
        turn.as_ref().filter(|(_, since)| time::elapsed(*since) < TURN_MAX).map(|(name, _)| name.clone())
    }

    fn last_use(&self, name: &str) -> Option<Instant> {
        self.last_used.lock().get(name).copied()
    }

    /// This volume is parked.
    pub fn contains(&self, name: &str) -> bool {
        self.parked.lock().contains_key(name)
    }

    /// The volume is going to be deleted.
    pub fn forget(&self, name: &str) {
        self.parked.lock().remove(name);
        self.last_used.lock().remove(name);
    }

    /// Status of the parked volumes, as of the time when they were closed. The time since counts.
    pub fn statuses(&self) -> Vec<VolumeStatus> {
        self.parked.lock().values().map(ParkedVolume::status).collect()
    }

    /// Names and random ids of the parked volumes that can be read.
    pub fn readable(&self) -> Vec<(String, String)> {
        let parked = self.parked.lock();
        parked.iter().filter_map(|(name, of)| Some((name.clone(), of.closed.readable_id.clone()?))).collect()
    }
}

fn run(node: &Weak<Node>, signal: &Signal) {
    loop {
        {
            let mut is_stopping = signal.is_stopping.lock();
            if !*is_stopping {
                signal.changed.wait_for(&mut is_stopping, LOOK_INTERVAL);
            }
            if *is_stopping {
                return;
            }
        }
        let Some(node) = node.upgrade() else { return };
        node.options.open_files.trim();
        node.look_after_parked();
        node.park_surplus(|| *signal.is_stopping.lock());
    }
}

impl Volume {
    /// Knowledge of it while it is closed.
    pub(super) fn closed(&self, was_sound: bool) -> Closed {
        let readable_id = (!self.is_empty()).then(|| self.volume_id());
        Closed::new(self.identity(), readable_id, was_sound)
    }
}

impl Node {
    /// Parks the least recently used idle volumes beyond the limit.
    pub(super) fn park_surplus(&self, is_stopping: impl Fn() -> bool) {
        for (is_scrubbed, name) in self.surplus() {
            if is_stopping() {
                return;
            }
            if self.park(&name, is_scrubbed) {
                tracing::debug!(volume = name, "volume parked");
            }
        }
    }

    /// Names of the volumes to park, and whether they are being scrubbed.
    fn surplus(&self) -> Vec<(bool, String)> {
        let most = self.options.idle_volumes;
        let volumes = self.volumes.lock().clone();
        if volumes.len() <= most {
            return Vec::new();
        }
        let connections = self.admission.by_volume();
        let turn = self.parking.turn();
        let is_idle = |(name, volume): &(&String, &Arc<Volume>)| {
            let has_turn = turn.as_ref() == Some(*name) && volume.is_scrubbed();
            !has_turn && !connections.contains_key(*name) && volume.is_idle()
        };
        let idle = volumes.iter().filter(is_idle);
        let mut idle: Vec<_> = idle
            .map(|(name, volume)| (volume.is_scrubbed(), self.parking.last_use(name), name.clone()))
            .collect();
        idle.sort();
        let surplus = idle.len().saturating_sub(most);
        idle.into_iter().take(surplus).map(|(is_scrubbed, _, name)| (is_scrubbed, name)).collect()
    }

    /// Closes an idle volume. False: it is not idle any more, or its scrub has begun.
    fn park(&self, name: &str, is_scrubbed: bool) -> bool {
        let Ok(_reserved) = self.reserve(name, Duration::ZERO) else { return false };
        let Some(volume) = self.volumes.lock().get(name).cloned() else { return false };
        let last_use = self.parking.last_use(name);
        if !volume.is_idle() || volume.is_scrubbed() != is_scrubbed {
            return false;
        }
        let status =
            VolumeStatus { reason: "parked, the next request opens it".to_owned(), ..volume.status() };
        let mut closed = Closed { status: Some(Arc::new(status.clone())), ..volume.closed(true) };
        {
            // No request gets the volume meanwhile, and none did since it was idle.
            let mut volumes = self.volumes.lock();
            let is_unused = Arc::strong_count(&volume) <= REFERENCES_UNUSED + volume.thread_count()
                && !self.admission.by_volume().contains_key(name)
                && self.parking.last_use(name) == last_use;
            if !is_unused || !self.opening.enter(name, closed.clone()) {
                return false;
            }
            volumes.remove(name);
        }
        volume.shut_down_to_park();
        closed.scrub_due_at = volume.scrub_wait().map(|wait| time::now() + wait);
        let deadline = time::now() + PATIENCE_WITH_USERS;
        while Arc::strong_count(&volume) > 1 && time::now() < deadline {
            thread::sleep(USERS_INTERVAL);
        }
        if Arc::strong_count(&volume) > 1 {
            // Until its users end, its directories are locked, and the next request fails and may be repeated.
            tracing::warn!(
                event = "parked_volume_in_use",
                volume = name,
                "a volume was closed, and a thread still reads it"
            );
        }
        drop(volume);
        let _volumes = self.volumes.lock();
        self.parking.parked.lock().insert(name.to_owned(), ParkedVolume::new(closed, status, None));
        self.opening.leave(name);
        true
    }

    /// Begins to open a parked volume, in a thread of its own: a disk that hangs does not hold up the caller. No error if
    /// it is not parked any more. `is_scrub_turn`: its pass begins then.
    ///
    /// # Errors
    /// [`NodeError::NotNow`] if another command uses its name, or the node ends.
    pub(super) fn unpark(
        &self,
        name: &str,
        patience: Duration,
        is_scrub_turn: bool,
    ) -> Result<(), NodeError> {
        let _reserved = self.reserve(name, patience.min(PATIENCE_WITH_NAMES))?;
        {
            let _volumes = self.volumes.lock();
            let mut parked = self.parking.parked.lock();
            let Some(closed) = parked.get(name).map(|parked| parked.closed.clone()) else {
                return Ok(());
            };
            let closed = Closed { is_scrub_turn, ..closed };
            if !self.opening.enter(name, closed) {
                return Err(NodeError::NotNow("the node is shutting down".to_owned()));
            }
            parked.remove(name);
        }
        // As many threads as volumes at most: other requests wait for the same one.
        let spawned = self.parking.node.get().and_then(Weak::upgrade).and_then(|node| {
            let of = name.to_owned();
            let open = move || node.opening.open_again(&node, &of);
            thread::Builder::new().name("opening".to_owned()).spawn(open).ok()
        });
        if spawned.is_none() {
            self.opening.open_again(self, name);
        }
        Ok(())
    }
}
