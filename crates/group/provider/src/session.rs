//! A server in its group: from `connect` to `disconnect`.
//!
//! Owns the parts and puts them together: connections, the member's thread, the thread of deliveries, and what the
//! server's own threads meet at. The server's threads come in through [`crate::entry`].
//!
//! | part | what |
//! |---|---|
//! | [`begin`] | what a member starts from; a group is begun |
//! | [`receive`] | the server's receiver threads |
//! | [`transfer`] | the state of a server for another one |
//! | [`saved_state`] | a file by which people ask for that |
//! | [`outcomes`] | whether what was done here is what was done elsewhere |
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
    /// No: it joins the one that there is.
    No,
    /// Yes, if it is in none: its address is `gcomm://`, which servers take for `--wsrep-new-cluster` at every start.
    IfNone,
    /// Yes: `--wsrep-new-cluster`.
    Yes,
}

impl New {
    /// What the server means that asks for a new group, or does not, with this address and these arguments of its own
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

/// What the server says of the group it wants to be in.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// `wsrep_cluster_name`.
    pub cluster_name: String,
    /// `wsrep_cluster_address`.
    pub address: String,
    /// Whether it is to begin one.
    pub new: New,
    /// How far the data of the server is, if it has been in a group before in this life.
    pub position: Option<(GroupId, Seqno)>,
}

/// How long somebody waits for what the order has to say.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server that is to be out of step waits first.
const DESYNC_TIMEOUT: Duration = Duration::from_secs(5);

/// A server that ends goes on with what its clients wait for as long as something of it is done within this time.
const ADVANCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks at that.
const ADVANCE_LOOK: Duration = Duration::from_millis(100);

/// Where this member is in the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    group: GroupId,
    member: MemberId,
    incarnation: Incarnation,
}

/// What the server was shown.
#[derive(Debug, Default)]
struct Shown {
    /// Who was in the last view of most of the members, in order. None: not known.
    lives: Option<Vec<(MemberId, Incarnation)>>,
    /// The last view of all, that it has left.
    is_over: bool,
}

/// A server in its group: from `connect` to `disconnect`.
pub struct Session {
    server: Arc<Server>,
    max_write_set_len_bytes: AtomicU64,
    /// How long a read waits for what it must see, if the server does not say.
    causal_read_timeout_ms: AtomicU64,
    order: Inlet,
    appliers: Arc<Appliers>,
    commit_order: Arc<CommitOrder>,
    finished: Arc<Finished>,
    gate: Arc<Gate>,
    status: Arc<Status>,
    pace: Arc<Pace>,
    /// For people.
    pub counters: Arc<Counters>,
    transactions: Transactions,
    /// By their places.
    applying: Mutex<HashMap<Seqno, Arc<Transaction>>>,
    isolated: Mutex<HashMap<u64, Seqno>>,
    outcomes: Outcomes,
    place: Mutex<Option<Place>>,
    /// The first position that is not applied here: the server has all up to it.
    start: AtomicI64,
    transfer: Mutex<Transfer>,
    transferred: Condvar,
    is_synced: AtomicBool,
    /// Held while the server is shown a view.
    shown: Mutex<Shown>,
    /// The server was told that most of the members are not here, and nothing else since.
    is_shown_alone: AtomicBool,
    /// How many want this server out of step (`wsrep_desync`, backups).
    desynced: AtomicUsize,
    has_failed: AtomicBool,
    /// They have the log open.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

impl Session {
    /// Joins the group, or begins it. Does not wait until it is in it.
    ///
    /// # Errors
    /// What is wrong with the configuration, or with what is on the disk.
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

    /// How far the data of the server is. None: it was never known, or the data is not that of the group.
    pub fn position(&self) -> Option<(GroupId, Seqno)> {
        let is_known = self.appliers.was_begun() && !self.has_failed.load(Ordering::SeqCst);
        is_known.then(|| (self.group(), self.finished()))
    }

    /// This life of this member, as the server knows it.
    pub fn uuid(&self) -> Uuid {
        lock(&self.place).map_or_else(Uuid::default, |place| uuid_of(place.member, place.incarnation))
    }

    /// All up to here is done.
    pub fn finished(&self) -> Seqno {
        self.finished.to()
    }

    /// Leaves, if it has not, and waits until nothing of it is left: another session can open the log then.
    pub fn close(&self) {
        self.disconnect();
        // One that has panicked has ended the server.
        std::mem::take(&mut *lock(&self.threads)).into_iter().for_each(|thread| drop(thread.join()));
    }

    /// It has left, and nothing comes of it any more.
    pub fn is_over(&self) -> bool {
        lock(&self.transfer).is_over
    }

    /// Whether it has all that the others have.
    pub fn is_synced(&self) -> bool {
        self.is_synced.load(Ordering::SeqCst)
    }

    /// What can be set while it runs.
    pub fn set_options(&self, options: &Options) {
        self.max_write_set_len_bytes.store(options.max_write_set_len_bytes, Ordering::Relaxed);
        self.causal_read_timeout_ms.store(options.causal_read_timeout_ms, Ordering::Relaxed);
        self.send(Input::Isolate(options.is_isolated));
        self.send(Input::GoesOnAlone(options.goes_on_alone));
    }

    /// The server may fall behind, and says that it is not in step. What was acknowledged anywhere before is done here
    /// first, so that a backup that begins now has it; if that takes long, it begins without.
    pub fn desync(&self) {
        let _ = self.sync_wait(None, Some(DESYNC_TIMEOUT));
        self.desynced.fetch_add(1, Ordering::SeqCst);
    }

    /// It is to be in step again. Nothing, if it is because most of the members were away meanwhile.
    pub fn resync(self: &Arc<Self>) {
        let fewer = |count: usize| count.checked_sub(1);
        let before = self.desynced.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer);
        if before == Ok(1) && !self.is_donating() {
            self.ask_to_be_synced();
        }
    }

    /// How many want it out of step.
    pub fn desynced(&self) -> usize {
        self.desynced.load(Ordering::SeqCst)
    }

    /// Whether it is to keep up with the others: neither paused, nor out of step as somebody wants it.
    pub fn is_in_step(&self) -> bool {
        self.desynced() == 0 && !self.is_donating() && !self.gate.is_shut()
    }

    /// Another server is being given its state.
    pub fn is_donating(&self) -> bool {
        lock(&self.transfer).donating_to.is_some()
    }

    /// Write sets that wait for an applier.
    pub fn waiting(&self) -> Waiting {
        self.appliers.waiting()
    }

    /// For people.
    pub fn status(&self) -> &Status {
        &self.status
    }

    fn send(&self, input: Input) {
        self.order.post(input);
    }

    /// Leaves: the receivers end, and nothing is ordered any more.
    pub fn disconnect(&self) {
        self.is_synced.store(false, Ordering::SeqCst);
        self.send(Input::Leave);
    }

    /// A server of this name is gone for good, and shall not count any more.
    ///
    /// # Errors
    /// Why that cannot be, for people.
    pub fn remove(&self, name: &str) -> Result<(), String> {
        let (answer, answered) = mpsc::channel();
        self.send(Input::Remove(name.to_owned(), answer));
        let answer = answered.recv_timeout(ANSWER_TIMEOUT);
        answer.unwrap_or_else(|_| Err("this server is in no group, or does not answer".into()))
    }

    /// Nothing can be done any more.
    fn fail(&self, reason: &str) {
        if !self.has_failed.swap(true, Ordering::SeqCst) {
            self.server.error(&format!("{reason}. This server has left the group"));
            self.send(Input::Leave);
        }
        self.end();
    }

    /// The order has ended.
    fn end(&self) {
        self.is_synced.store(false, Ordering::SeqCst);
        lock(&self.transfer).is_over = true;
        self.transferred.notify_all();
        self.gate.end();
        if !self.has_failed.load(Ordering::SeqCst) {
            self.finish_own();
        }
        let dropped = self.appliers.end();
        // What has begun ends, so that the server has all up to one place and nothing after it. Unless it failed.
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

    /// What this server's clients have in the order is committed, and everybody else has it: it has to be done here, with
    /// all before it. The server cannot give up one that it had rolled back to let another one pass.
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

    /// Tells the server that it has everything, once it has what is chosen now.
    fn ask_to_be_synced(self: &Arc<Self>) {
        let session = Arc::clone(self);
        self.send(Input::Barrier(Box::new(move |seqno| session.appliers.push(Item::Synced { seqno }))));
    }

    /// Stops at a position: everything up to it is done, and nothing after it is.
    pub fn pause(&self) -> Seqno {
        self.gate.shut();
        let seqno = Seqno(self.counters.ordered.load(Ordering::SeqCst));
        self.finished.wait(seqno, None);
        seqno
    }

    /// Goes on.
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

    /// What is being applied at a place.
    pub fn applying(&self, seqno: Seqno) -> Option<Arc<Transaction>> {
        lock(&self.applying).get(&seqno).cloned()
    }

    /// A new one.
    pub fn begin_transaction(&self, id: u64) -> Arc<Transaction> {
        self.transactions.begin(id)
    }
}

#[cfg(test)]
mod tests;
