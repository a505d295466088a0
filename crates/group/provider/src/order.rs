//! Drives the consensus member of this server.
//!
//! It takes inputs from the other members, the server's threads and the log, one after another, and carries out the
//! effects that the member requests. Frames go to [`Peers`], records to the [`Store`], and chosen proposals to the
//! thread that interprets them ([`crate::delivery`]). The thread that posts an input also drives the member
//! ([`inbox`]). Two more threads sync records and read the log for members that are behind, so that a driving thread
//! never waits for a disk.
//!
//! A member without a store begins as a newcomer. It greets the members of the group; one of them adds it to the
//! membership and sends it a snapshot to start from.
//!
//! Invariant: nothing is sent before the record of this incarnation is durable.

pub mod alone;
mod checkpoints;
mod hearing;
pub mod inbox;
mod leaving;
mod newcomers;
mod presence;
pub mod reading;
pub mod roster;
mod syncing;

use crate::deliveries::Deliveries;
use crate::delivery::Delivery;
use crate::frame::Frame;
use crate::history::History;
use crate::pace::Pace;
use crate::peers::{Event, Peers, Place};
use crate::replay::{Kept, ReplayError, replay};
use crate::replica::{GroupId, Known, Replica};
use crate::store::{Archive, Identity, Store, StoreError};
use crate::transactions::Transaction;
use crate::write_set::{Action, Arrival, Seqno};
use checkpoints::{Purpose, Unapplied};
use hearing::Hearing;
use inbox::Inlet;
use newcomers::Newcomers;
use presence::Arriving;
use reading::{Part, Reading};
use redoubt_consensus::record::{Record, RecordCount};
use redoubt_consensus::types::{Incarnation, MemberId, Membership, Proposal, Slot, Time};
use redoubt_consensus::{Effect, Member, Settings};
use redoubt_locks::IgnorePoison;
use roster::Seen;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use syncing::Syncing;

/// Interval between two ticks of the member's thread.
const TICK: Duration = Duration::from_millis(5);
/// Default amount of write sets that stays in memory for members that are behind, in bytes. Older ones are in the log.
pub const DEFAULT_CATCH_UP_LEN_BYTES: u64 = 32 << 20;
/// Minimum interval between two reports to a member of how far this one has applied.
const TELL_APPLIED: Duration = Duration::from_millis(5);
/// Interval between two checks of the membership.
const LOOK: Duration = Duration::from_millis(100);
/// After a gap this long between two checks, this process was itself stopped, so silence of the others proves nothing.
const STOPPED: Duration = Duration::from_millis(500);
/// How long a leaving server waits for the others to receive its departure.
pub const LEAVING: Duration = Duration::from_secs(2);

/// Input of the member's thread.
pub enum Input {
    /// An event from the other members.
    Event(Event),
    /// A proposal to be ordered.
    Propose {
        /// The encoded proposal.
        body: Arc<[u8]>,
        /// The transaction that waits for it.
        transaction: Option<Arc<Transaction>>,
    },
    /// Calls the waiter when everything chosen so far is delivered.
    Barrier(Waiter),
    /// Number of records that are durable.
    Synced(u64),
    /// A part of the log was read for another member.
    Read(Part),
    /// The log cannot be written any more.
    StoreFailed(StoreError),
    /// The encoded state before a slot.
    State {
        /// The slot.
        slot: Slot,
        /// The last sequence number assigned before it.
        seqno: Seqno,
        /// The encoded [`Replica`] at this slot.
        replica: Vec<u8>,
    },
    /// Whether this member is willing to own slots.
    Willing(bool),
    /// Whether this member is isolated: it neither sends nor receives.
    Isolate(bool),
    /// Whether this member, one of two, continues alone when the other one is unreachable.
    GoesOnAlone(bool),
    /// A frame for a member.
    Send(MemberId, Frame),
    /// Removes a server of this name that is gone for good from the membership. The reply is whether the others were
    /// asked for it, or the reason why not.
    Remove(String, Sender<Result<(), String>>),
    /// Announces the departure to the others, then ends.
    Leave,
}

impl Input {
    /// Rejects an input that arrives after the end.
    fn lost(self) {
        if let Self::Propose { transaction: Some(transaction), .. } = self {
            transaction.lost();
        }
    }
}

/// Callback of a barrier, with the last sequence number before it.
pub type Waiter = Box<dyn FnOnce(Seqno) + Send>;

/// State of the member that other threads may read.
#[derive(Default)]
pub struct Status {
    /// Members that own slots.
    pub owners: AtomicUsize,
    /// Round of the epoch.
    pub epoch: AtomicU64,
    /// Slots that are delivered.
    pub delivered: AtomicU64,
    /// This member owns slots.
    pub is_owner: AtomicBool,
    /// Most of the members have been unreachable for long: commits wait.
    pub is_alone: AtomicBool,
    /// Number of proposals that are not delivered.
    pub undelivered: AtomicUsize,
    /// Delivered and undecided write sets that are in memory, in bytes.
    pub undecided_len_bytes: AtomicUsize,
    /// Number of undecided write sets that are only in the log.
    pub undecided_in_log: AtomicUsize,
    /// Bytes that were read from the log for members that are behind.
    pub read_len_bytes: AtomicU64,
    /// Present and former servers, as last ordered.
    pub known: Mutex<Vec<Known>>,
    /// The group lists this server as present.
    pub is_present: AtomicBool,
    /// The voters.
    pub membership: Mutex<Membership>,
    /// All members, for the status variables.
    pub members: Mutex<Vec<Seen>>,
}

/// How much is retained for members that are behind, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// In memory.
    pub memory_len_bytes: u64,
    /// In the log, before its last checkpoint.
    pub log_len_bytes: u64,
}

/// Components of an [`Order`].
pub struct Parts {
    /// Directory of the store.
    pub directory: PathBuf,
    /// Connections.
    pub peers: Arc<Peers>,
    /// Queue of inputs.
    pub inlet: Inlet,
    /// Queue of chosen proposals.
    pub deliveries: Deliveries,
    /// How much is retained for others.
    pub keep: Keep,
    /// State that other threads may read.
    pub status: Arc<Status>,
    /// Flow control: how far the others have applied.
    pub pace: Arc<Pace>,
    /// This server's announcement to the group.
    pub arrival: Arrival,
    /// Members that continued alone, as far as this member's log has them.
    pub history: History,
    /// As [`Input::GoesOnAlone`].
    pub goes_on_alone: bool,
    /// Called when the group, member id and incarnation are known.
    pub placed: Box<dyn Fn(GroupId, MemberId, Incarnation) + Send>,
    /// Called when the log exists.
    pub stored: Box<dyn Fn(Arc<Archive>) + Send>,
    /// Returns how far the server has applied the order.
    pub applied: Box<dyn Fn() -> Seqno + Send>,
    /// Returns whether this server is to keep up with the others.
    pub is_in_step: Box<dyn Fn() -> bool + Send>,
    /// Writes a message to the error log; `true` if it is the last one.
    pub say: Box<dyn Fn(bool, String) + Send>,
}

/// Initial state of a member.
pub enum Origin {
    /// The store that it found.
    Store(Store),
    /// No store: another member sends the state. The id is used until the store has it.
    Nothing(MemberId),
}

/// Drives the consensus member of this server.
pub struct Order {
    parts: Parts,
    member: Member,
    store: Store,
    began: Instant,
    syncing: Syncing,
    reading: Reading,
    appended: u64,
    own: HashMap<u64, Option<Arc<Transaction>>>,
    barriers: BTreeMap<u64, Waiter>,
    next_nonce: u64,
    states: Vec<(Slot, Purpose)>,
    unapplied: Option<Unapplied>,
    newcomers: Newcomers,
    kept: Kept,
    hearing: Hearing,
    /// Incarnations of the members that have connected.
    greeted: BTreeMap<MemberId, Incarnation>,
    /// Members whose frames were sent before this one continued alone: they may be from another history.
    not_greeted: BTreeSet<MemberId>,
    told_applied_at: BTreeMap<MemberId, Instant>,
    arrival: Arriving,
    /// The member was without a quorum since the last check.
    was_alone: bool,
    looked_at: Instant,
    leaving_since: Option<Instant>,
}

/// Runs until the member leaves. Blocks on everything that it needs first.
pub fn run(mut parts: Parts, origin: Origin, replica: Option<Replica>) {
    let limit_bytes = usize::try_from(parts.keep.memory_len_bytes).unwrap_or(usize::MAX);
    let mut kept = Kept::new(limit_bytes);
    let begun = match origin {
        Origin::Store(store) => go_on(&parts, store, replica, &mut kept),
        Origin::Nothing(id) => match newcomers::be_taken_in(&parts, id) {
            Ok(Some((store, member, replica))) => {
                stored(&parts, &store);
                parts.history = replica.history().clone();
                parts.deliveries.send(Delivery::Start(Box::new(replica)));
                Ok((store, member))
            }
            Ok(None) => return,
            Err(error) => Err(error.to_string()),
        },
    };
    let (mut store, member) = match begun {
        Ok(begun) => begun,
        Err(error) => return (parts.say)(true, error),
    };
    store.keep(parts.keep.log_len_bytes);
    let inlet = Arc::clone(&parts.inlet);
    let (syncing, sync_thread) = Syncing::start(store.device(), Arc::clone(&inlet));
    let (reading, read_thread) = Reading::start(store.archive(), &Settings::default(), Arc::clone(&inlet));
    let mut order = Order::new(parts, store, member, kept, (syncing, reading));
    match order.begin() {
        Ok(()) => inlet.run(order, TICK),
        Err(error) => {
            (order.parts.say)(true, error.to_string());
            order.end();
            inlet.close();
        }
    }
    // Both threads have the log open. One of them may have been the thread that ended the member, so it is joined here.
    // The files of a panicked thread are closed, too.
    [sync_thread, read_thread].into_iter().flatten().for_each(|thread| drop(thread.join()));
}

fn stored(parts: &Parts, store: &Store) {
    parts.deliveries.set_source(store.archive());
    (parts.stored)(store.archive());
}

/// Starts from a store: proposals delivered before are delivered again.
fn go_on(
    parts: &Parts,
    store: Store,
    replica: Option<Replica>,
    kept: &mut Kept,
) -> Result<(Store, Member), String> {
    stored(parts, &store);
    if let Some(replica) = replica {
        parts.deliveries.send(Delivery::Start(Box::new(replica)));
    }
    let deliver = |slot, proposal| {
        parts.deliveries.send(Delivery::Entry { slot, proposal, transaction: None });
        Ok::<_, ReplayError>(())
    };
    let member = replay(&store, kept, deliver).map_err(|error| error.to_string())?;
    Ok((store, member))
}

impl Order {
    fn new(
        parts: Parts,
        store: Store,
        member: Member,
        kept: Kept,
        (syncing, reading): (Syncing, Reading),
    ) -> Self {
        Self {
            syncing,
            reading,
            member,
            store,
            began: Instant::now(),
            appended: 0,
            own: HashMap::new(),
            barriers: BTreeMap::new(),
            next_nonce: 1,
            states: Vec::new(),
            unapplied: None,
            newcomers: Newcomers::default(),
            kept,
            hearing: Hearing::default(),
            greeted: BTreeMap::new(),
            not_greeted: BTreeSet::new(),
            told_applied_at: BTreeMap::new(),
            arrival: Arriving::Not,
            was_alone: false,
            looked_at: Instant::now(),
            leaving_since: None,
            parts,
        }
    }

    /// Makes this incarnation durable before any other member receives it.
    fn begin(&mut self) -> Result<(), StoreError> {
        let Identity { group, member: id } = self.store.identity();
        self.next_nonce = nonce_of(self.member.incarnation());
        (self.parts.placed)(group, id, self.member.incarnation());
        self.member.set_readable(self.store.archive().readable());
        let mut held = Vec::new();
        for effect in self.member.take_effects() {
            match effect {
                Effect::Append(record) => self.append(&record)?,
                other => held.push(other),
            }
        }
        self.store.device().sync()?;
        let (incarnation, history) = (self.member.incarnation(), self.parts.history.clone());
        self.parts.peers.set_place(Place { group, incarnation, history });
        self.member.durable(RecordCount(self.appended));
        (self.parts.say)(false, format!("member {id}, life {}, of its log", self.member.incarnation().0));
        held.into_iter().try_for_each(|effect| self.carry_out(effect))
    }

    /// Processes inputs and their effects. Returns whether the member continues.
    fn take_all_in(&mut self, inputs: Vec<Input>) -> bool {
        let done = self.try_take_all_in(inputs);
        self.goes_on(done)
    }

    fn try_take_all_in(&mut self, inputs: Vec<Input>) -> Result<(), StoreError> {
        let now = self.now();
        for input in inputs {
            self.take_in(input, now)?;
        }
        self.member.tick(now);
        for effect in self.member.take_effects() {
            self.carry_out(effect)?;
        }
        self.parts.peers.flush();
        self.syncing.want(self.appended);
        Ok(())
    }

    fn goes_on(&self, done: Result<(), StoreError>) -> bool {
        if let Err(error) = &done {
            (self.parts.say)(true, error.to_string());
        }
        let has_left = self.leaving_since.is_some_and(|since| {
            since.elapsed() >= LEAVING || !(self.is_present() || self.is_needed_to_leave())
        });
        done.is_ok() && !has_left
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn take_in(&mut self, input: Input, now: Time) -> Result<(), StoreError> {
        match input {
            Input::Event(event) => self.on_event(event, now),
            Input::Propose { body, transaction } => {
                let id = self.member.propose(body);
                self.own.insert(id.number, transaction);
            }
            Input::Barrier(waiter) => {
                let nonce = self.next_nonce;
                self.next_nonce += 1;
                self.barriers.insert(nonce, waiter);
                self.member.barrier(nonce);
            }
            Input::Synced(count) => self.member.durable(RecordCount(count)),
            Input::Read(part) => self.on_read(part),
            Input::StoreFailed(error) => return Err(error),
            Input::State { slot, seqno, replica } => self.on_state(slot, seqno, replica),
            Input::Willing(is_willing) => self.member.set_willing(is_willing),
            Input::Isolate(is_isolated) => self.parts.peers.isolate(is_isolated),
            Input::GoesOnAlone(goes_on_alone) => self.parts.goes_on_alone = goes_on_alone,
            Input::Send(to, frame) => self.parts.peers.send(to, &frame),
            Input::Remove(name, answer) => {
                let _ = answer.send(self.remove(&name));
            }
            Input::Leave => {
                self.leaving_since.get_or_insert_with(Instant::now);
                self.member.set_willing(false);
                let (member, incarnation) = (self.member.id(), self.member.incarnation());
                self.depart(member, incarnation);
            }
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event, now: Time) {
        match event {
            Event::Greeted(hello) => {
                self.not_greeted.remove(&hello.member);
                self.hearing.hear(hello.member, Instant::now());
                self.greeted.insert(hello.member, hello.incarnation);
                if hello.group == GroupId::default() {
                    self.newcomers.greeted(hello.member, hello.listen_address);
                }
            }
            Event::Frame { from, .. } if self.not_greeted.contains(&from) => {}
            Event::Frame { from, frame: Frame::Message(message) } => {
                self.hearing.hear(from, Instant::now());
                // Not before it is a voter: its change of the membership may have waited for another change.
                if self.member.epoch().membership.contains(from) {
                    self.newcomers.is_in(from);
                }
                self.member.handle(from, message, now);
            }
            Event::Frame { from, frame: Frame::WhoHears(member) } => self.answer(from, member),
            Event::Frame { frame: Frame::Hears(member), .. } => self.hearing.told(member, Instant::now()),
            Event::Frame { from, frame: Frame::Applied { seqno, is_in_step } } => {
                self.parts.pace.told(from, seqno, is_in_step);
            }
            Event::Frame { from, frame: Frame::StateRequest { seqno, request } } => {
                let seqno = Seqno(seqno);
                self.parts.deliveries.send(Delivery::StateRequest { from, seqno, request });
            }
            Event::Frame { from, frame: Frame::StateRefused(refusal) } => {
                self.parts.deliveries.send(Delivery::StateRefused { from, refusal });
            }
            // From a second member that has added this one as well.
            Event::Frame { frame: Frame::Start { .. }, .. } => {}
            Event::Frame { from, .. } => {
                (self.parts.say)(false, format!("member {from} sent a frame out of place"))
            }
            Event::Lost(member) => {
                self.newcomers.lost(member);
                self.member.lost(member);
            }
            Event::Said(text) => (self.parts.say)(false, text),
        }
    }

    /// Reports the applied position along with other frames.
    fn tell_applied(&mut self, to: MemberId) {
        let now = Instant::now();
        let told_at = self.told_applied_at.get(&to);
        if told_at.is_none_or(|at| now.duration_since(*at) >= TELL_APPLIED) {
            self.told_applied_at.insert(to, now);
            let (seqno, is_in_step) = ((self.parts.applied)(), (self.parts.is_in_step)());
            self.parts.peers.send(to, &Frame::Applied { seqno, is_in_step });
        }
    }

    fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        self.store.append(record)?;
        self.appended += 1;
        Ok(())
    }

    fn carry_out(&mut self, effect: Effect) -> Result<(), StoreError> {
        match effect {
            Effect::Append(record) => self.append(&record)?,
            Effect::Send { to, message } => {
                self.parts.peers.send(to, &Frame::Message(message));
                self.tell_applied(to);
            }
            Effect::NeedsSnapshot { from } => (self.parts.say)(
                true,
                format!(
                    "no member that is here keeps what this one lacks, not even member {from}: stop this server, remove \
                     redoubt_group.*.log from its data directory and start it; it gets the state of another member"
                ),
            ),
            Effect::BarrierReached(nonce) => {
                if let Some(waiter) = self.barriers.remove(&nonce) {
                    self.parts.deliveries.send(Delivery::Barrier(waiter));
                }
            }
            Effect::Chosen(slots) => self.store.chosen(&slots)?,
            Effect::Read { to, from } => self.reading.want(to, from),
            Effect::Deliver { slot, proposal } => self.deliver(slot, proposal),
            Effect::Begun(_) => {}
        }
        Ok(())
    }

    fn on_read(&mut self, part: Part) {
        let Part { to, from, entries } = part;
        let archive = self.store.archive();
        let entries = entries.unwrap_or_else(|error| {
            let text =
                format!("{error} (this server does not need it, but member {to} does, and asks another one)");
            (self.parts.say)(false, text);
            archive.give_up(from.next());
            None
        });
        let len_bytes = entries.iter().flatten().map(|(_, entry)| entry.len_bytes()).sum::<usize>();
        self.parts.status.read_len_bytes.fetch_add(len_bytes as u64, Ordering::Relaxed);
        self.member.set_readable(archive.readable());
        self.member.read(to, from, entries);
    }

    fn deliver(&mut self, slot: Slot, proposal: Proposal) {
        let id = proposal.id;
        let is_own = id.member == self.member.id() && id.incarnation == self.member.incarnation();
        let transaction = if is_own { self.own.remove(&id.number).flatten() } else { None };
        self.note_alone(&proposal);
        self.kept.push(slot, proposal.body.len());
        self.parts.deliveries.send(Delivery::Entry { slot, proposal, transaction });
    }

    /// Periodic work. Returns whether the member continues.
    fn look_around(&mut self) -> bool {
        let done = self.try_look_around();
        self.goes_on(done)
    }

    fn try_look_around(&mut self) -> Result<(), StoreError> {
        if self.looked_at.elapsed() >= LOOK {
            if self.looked_at.elapsed() >= STOPPED {
                self.hearing.was_stopped(Instant::now());
            }
            self.looked_at = Instant::now();
            self.go_on_alone();
            self.say_alone();
            self.arrive();
            self.drop_absent();
            self.remove_replaced();
            self.drop_left();
            self.take_back();
            self.take_in_newcomers();
            self.end_checkpoint()?;
            self.member.set_readable(self.store.archive().readable());
            self.note_members();
        }
        if let Some(before) = self.kept.give_up() {
            self.member.give_up(before);
        }
        self.begin_checkpoint()?;
        let (status, epoch) = (&self.parts.status, self.member.epoch());
        status.owners.store(epoch.owners.len(), Ordering::Relaxed);
        let mut membership = status.membership.lock().ignore_poison();
        if *membership != epoch.membership {
            membership.clone_from(&epoch.membership);
        }
        drop(membership);
        status.epoch.store(epoch.ballot.round, Ordering::Relaxed);
        status.delivered.store(self.member.delivered().0, Ordering::Relaxed);
        status.is_owner.store(self.member.is_owner(), Ordering::Relaxed);
        status.undelivered.store(self.member.undelivered(), Ordering::Relaxed);
        let (len_bytes, in_log) = self.parts.deliveries.waiting();
        status.undecided_len_bytes.store(len_bytes, Ordering::Relaxed);
        status.undecided_in_log.store(in_log, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the number of the proposal, which stays in `own` until it is ordered.
    fn propose(&mut self, action: &Action) -> u64 {
        let id = self.member.propose(action.encode().into());
        self.own.insert(id.number, None);
        id.number
    }

    fn say_broken(&self) {
        (self.parts.say)(
            true,
            "an internal error of the library, which it has written to standard error".into(),
        );
    }

    /// Ends the member: fails all waiting transactions and barriers.
    fn end(mut self) {
        self.parts.peers.close();
        self.own
            .drain()
            .filter_map(|(_, transaction)| transaction)
            .for_each(|transaction| transaction.lost());
        self.barriers.clear();
        self.parts.deliveries.send(Delivery::End);
    }
}

/// First barrier nonce of an incarnation. No two incarnations of a member share nonces.
const fn nonce_of(incarnation: Incarnation) -> u64 {
    incarnation.0 << 40
}
