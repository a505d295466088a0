//! A server in its group: from `connect` to `disconnect`.
//!
//! It owns and connects the parts: connections, the member's thread, the delivery thread, and the points where the
//! server's own threads meet. The server's threads call it through [`crate::entry`].
//!
//! | part | what |
//! |---|---|
//! | [`begin`] | initial state of a member; beginning a group |
//! | [`receive`] | the server's receiver threads |
//! | [`transfer`] | state transfer to another server |
//! | [`saved_state`] | a file by which operators request one |
//! | [`outcomes`] | comparison of outcomes with the other members |
//! | [`replicate`] | transactions and DDL of this server |

mod begin;
mod outcomes;
mod receive;
mod replicate;
mod saved_state;
mod transfer;

pub use transfer::is_marked as has_no_state;

use crate::abi::Uuid;
use crate::appliers::{Appliers, Item, Waiting};
use crate::delivery::{Counters, Gate};
use crate::frame::Frame;
use crate::monitors::{CommitOrder, Finished, Wait};
use crate::options::Options;
use crate::order::inbox::Inlet;
use crate::order::{Input, Status};
use crate::pace::Pace;
use crate::replica::{GroupId, Known, Presence, uuid_of};
use crate::server::Server;
use crate::transactions::{Transaction, Transactions};
use crate::write_set::Seqno;
use begin::ConnectError;
use outcomes::Outcomes;
use redoubt_consensus::types::{Incarnation, MemberId};
use redoubt_locks::IgnorePoison;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use transfer::Transfer;

pub use replicate::{Certified, Released};

/// Whether a server is to begin a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum New {
    /// No: it joins the existing one.
    No,
    /// Yes, if it is in none: its address is `gcomm://`, which servers treat as `--wsrep-new-cluster` at every start.
    IfNone,
    /// Yes: `--wsrep-new-cluster`.
    Yes,
}

impl New {
    /// The server's intention, from its request for a new group, its cluster address and its own command-line arguments
    /// (each with a 0 after it).
    pub fn of(is_asked_for: bool, address: &str, arguments: &[u8]) -> Self {
        let is_option = |argument: &[u8]| {
            let argument = String::from_utf8_lossy(argument).replace('_', "-");
            argument.split('=').next() == Some("--wsrep-new-cluster")
        };
        match is_asked_for {
            false => Self::No,
            true if address.trim() != "gcomm://" => Self::Yes,
            true if arguments.split(|byte| *byte == 0).any(is_option) => Self::Yes,
            true => Self::IfNone,
        }
    }
}

/// The server's configuration of its group.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// `wsrep_cluster_name`.
    pub cluster_name: String,
    /// `wsrep_cluster_address`.
    pub address: String,
    /// Whether it is to begin a group.
    pub new: New,
    /// Position of the server's data, if it was in a group before in this incarnation.
    pub position: Option<(GroupId, Seqno)>,
}

/// How long a caller waits for an answer from the order.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server waits to catch up before it desyncs.
const DESYNC_TIMEOUT: Duration = Duration::from_secs(5);

/// An ending server continues with commits for which its clients wait, while one of them completes within this time.
const ADVANCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two checks of that.
const ADVANCE_LOOK: Duration = Duration::from_millis(100);

/// Identity of this member in the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    group: GroupId,
    member: MemberId,
    incarnation: Incarnation,
}

/// The views that the server has received.
#[derive(Debug, Default)]
struct Shown {
    /// Members of the last primary view, in order. `None`: unknown.
    lives: Option<Vec<(MemberId, Incarnation)>>,
    /// The server has received its last view, without itself.
    is_over: bool,
}

/// A server in its group: from `connect` to `disconnect`.
pub struct Session {
    server: Arc<Server>,
    max_write_set_len_bytes: AtomicU64,
    /// Default timeout of a causal read.
    causal_read_timeout_ms: AtomicU64,
    order: Inlet,
    appliers: Arc<Appliers>,
    commit_order: Arc<CommitOrder>,
    finished: Arc<Finished>,
    gate: Arc<Gate>,
    status: Arc<Status>,
    pace: Arc<Pace>,
    /// Counters for the status variables.
    pub counters: Arc<Counters>,
    transactions: Transactions,
    /// Transactions that are being applied, by position.
    applying: Mutex<HashMap<Seqno, Arc<Transaction>>>,
    isolated: Mutex<HashMap<u64, Seqno>>,
    outcomes: Outcomes,
    place: Mutex<Option<Place>>,
    /// Everything up to this position is skipped here: the server's data has it already.
    start: AtomicI64,
    transfer: Mutex<Transfer>,
    transferred: Condvar,
    is_synced: AtomicBool,
    /// Locked while the server processes a view.
    shown: Mutex<Shown>,
    /// The last view that the server received was without a quorum.
    is_shown_alone: AtomicBool,
    /// Number of callers that desync this server (`wsrep_desync`, backups).
    desynced: AtomicUsize,
    has_failed: AtomicBool,
    /// Threads that have the log open.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

impl Session {
    /// Joins the group, or begins it. Returns before this server is a member.
    ///
    /// # Errors
    /// The configuration or the data on disk is invalid.
    pub fn connect(
        server: Arc<Server>,
        options: &Options,
        wanted: &Wanted,
    ) -> Result<Arc<Self>, ConnectError> {
        begin::connect(server, options, wanted)
    }

    /// The group, once it is known.
    pub fn group(&self) -> GroupId {
        lock(&self.place).map_or_else(GroupId::default, |place| place.group)
    }

    /// Position of the server's data. `None`: it was never known, or the data differ from the group's.
    pub fn position(&self) -> Option<(GroupId, Seqno)> {
        let is_known = self.appliers.was_begun() && !self.has_failed.load(Ordering::SeqCst);
        is_known.then(|| (self.group(), self.finished()))
    }

    /// The server's UUID for this incarnation of this member.
    pub fn uuid(&self) -> Uuid {
        lock(&self.place).map_or_else(Uuid::default, |place| uuid_of(place.member, place.incarnation))
    }

    /// Everything up to here is finished.
    pub fn finished(&self) -> Seqno {
        self.finished.to()
    }

    /// Leaves if necessary, and waits until all threads have ended, so that another session can open the log.
    pub fn close(&self) {
        self.disconnect();
        // A panicked thread has ended the server.
        std::mem::take(&mut *lock(&self.threads)).into_iter().for_each(|thread| drop(thread.join()));
    }

    /// Whether it has left and all processing has ended.
    pub fn is_over(&self) -> bool {
        lock(&self.transfer).is_over
    }

    /// Whether it has caught up with the others.
    pub fn is_synced(&self) -> bool {
        self.is_synced.load(Ordering::SeqCst)
    }

    /// Changes options at run time.
    pub fn set_options(&self, options: &Options) {
        self.max_write_set_len_bytes.store(options.max_write_set_len_bytes, Ordering::Relaxed);
        self.causal_read_timeout_ms.store(options.causal_read_timeout_ms, Ordering::Relaxed);
        self.send(Input::Isolate(options.is_isolated));
        self.send(Input::GoesOnAlone(options.goes_on_alone));
    }

    /// Desyncs this server: it may fall behind, and announces that. Everything acknowledged anywhere before is applied
    /// here first, so that a backup that begins now contains it. After a timeout the server desyncs without that.
    pub fn desync(&self) {
        let _ = self.sync_wait(None, Some(DESYNC_TIMEOUT));
        self.desynced.fetch_add(1, Ordering::SeqCst);
    }

    /// Undoes one [`Session::desync`]. Does nothing if the count was reset while there was no quorum.
    pub fn resync(self: &Arc<Self>) {
        let fewer = |count: usize| count.checked_sub(1);
        let before = self.desynced.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer);
        if before == Ok(1) && !self.is_donating() {
            self.ask_to_be_synced();
        }
    }

    /// Number of callers that desync it.
    pub fn desynced(&self) -> usize {
        self.desynced.load(Ordering::SeqCst)
    }

    /// Whether it is to keep up with the others: neither paused nor desynced.
    pub fn is_in_step(&self) -> bool {
        self.desynced() == 0 && !self.is_donating() && !self.gate.is_shut()
    }

    /// Whether another server is receiving its state.
    pub fn is_donating(&self) -> bool {
        lock(&self.transfer).donating_to.is_some()
    }

    /// Write sets that wait for an applier.
    pub fn waiting(&self) -> Waiting {
        self.appliers.waiting()
    }

    /// State for the status variables.
    pub fn status(&self) -> &Status {
        &self.status
    }

    fn send(&self, input: Input) {
        self.order.post(input);
    }

    /// Leaves: the receivers end, and nothing more is ordered.
    pub fn disconnect(&self) {
        self.is_synced.store(false, Ordering::SeqCst);
        self.send(Input::Leave);
    }

    /// Removes a server of this name, which is gone for good, from the group.
    ///
    /// # Errors
    /// The reason why it is impossible, for the operator.
    pub fn remove(&self, name: &str) -> Result<(), String> {
        let (answer, answered) = mpsc::channel();
        self.send(Input::Remove(name.to_owned(), answer));
        let answer = answered.recv_timeout(ANSWER_TIMEOUT);
        answer.unwrap_or_else(|_| Err("this server is in no group, or does not answer".into()))
    }

    /// Leaves the group after an error.
    fn fail(&self, reason: &str) {
        if !self.has_failed.swap(true, Ordering::SeqCst) {
            self.server.error(&format!("{reason}. This server has left the group"));
            self.send(Input::Leave);
        }
        self.end();
    }

    /// Ends all processing after the end of the order.
    fn end(&self) {
        self.is_synced.store(false, Ordering::SeqCst);
        lock(&self.transfer).is_over = true;
        self.transferred.notify_all();
        self.gate.end();
        if !self.has_failed.load(Ordering::SeqCst) {
            self.finish_own();
        }
        let dropped = self.appliers.end();
        // Started write sets end, so that the server has all up to one position and nothing after it. Not after a
        // failure.
        let closed_from = match self.has_failed.load(Ordering::SeqCst) {
            true => Some(Seqno(0)),
            false => dropped,
        };
        let after_all = Seqno(self.counters.ordered.load(Ordering::SeqCst) + 1);
        let closed_from = closed_from.unwrap_or(after_all);
        self.commit_order.close_from(closed_from);
        self.finished.close_from(closed_from);
        self.outcomes.end();
    }

    /// Applies everything up to the last ordered transaction of this server's clients. These transactions are committed
    /// at all others, so they must complete here. The server cannot give up one that it has rolled back to let another
    /// one pass.
    fn finish_own(&self) {
        let Some(last) = self.transactions.last_place().filter(|last| *last > self.finished.to()) else {
            return;
        };
        let lacks = last.0 - self.finished.to().0;
        self.server.note(&format!("before it ends, this server does {lacks} more that its clients wait for"));
        let (mut done, mut since) = (self.finished.to(), Instant::now());
        while self.finished.wait(last, Some(Instant::now() + ADVANCE_LOOK)) == Wait::TimedOut {
            let now = self.finished.to();
            if now > done {
                (done, since) = (now, Instant::now());
            } else if since.elapsed() >= ADVANCE_TIMEOUT {
                return self
                    .server
                    .error(&format!("this server ends at {}: later write sets are not applied", done.0));
            }
        }
    }

    /// Reports the server as synced, once it has everything that is chosen now.
    fn ask_to_be_synced(self: &Arc<Self>) {
        let session = Arc::clone(self);
        self.send(Input::Barrier(Box::new(move |seqno| session.appliers.push(Item::Synced { seqno }))));
    }

    /// Pauses at a position: everything up to it is finished, and nothing after it is begun.
    pub fn pause(&self) -> Seqno {
        self.gate.shut();
        let seqno = Seqno(self.counters.ordered.load(Ordering::SeqCst));
        self.finished.wait(seqno, None);
        seqno
    }

    /// Resumes after a pause.
    pub fn resume(&self) {
        self.gate.open();
    }

    fn send_frame(&self, to: MemberId, frame: Frame) {
        self.send(Input::Send(to, frame));
    }

    fn me(&self) -> Option<Known> {
        let place = (*lock(&self.place))?;
        Some(Known {
            name: self.server.name.clone(),
            incoming_address: self.server.incoming_address.clone(),
            presence: Presence::There,
            ..Known::unnamed(place.member, place.incarnation)
        })
    }

    /// The transaction that is being applied at a position.
    pub fn applying(&self, seqno: Seqno) -> Option<Arc<Transaction>> {
        lock(&self.applying).get(&seqno).cloned()
    }

    /// Begins a transaction.
    pub fn begin_transaction(&self, id: u64) -> Arc<Transaction> {
        self.transactions.begin(id)
    }
}

#[cfg(test)]
mod tests;
