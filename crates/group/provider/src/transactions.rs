//! Transactions of this server between their first key and their end, and what may become of each.
//!
//! | from | to | when |
//! |---|---|---|
//! | executing | replicating | the server asks for its verdict |
//! | replicating | passed, conflict | it comes in the order |
//! | passed | entered, left | it commits in its turn |
//! | left | executing | it was a part, and the next one is to come |
//! | executing, replicating, passed | to give way | an applier needs its locks: it is rolled back, and replayed if it passed |
//!
//! Whether a transaction gives way or commits is decided under its own lock: it enters the commit order and is made to
//! give way never both. A part of one (streaming replication) can be made to give way at any time, also after it was
//! stored: its rows are not committed, and what is stored is removed again.
//!
//! Lock order: a place of [`crate::monitors::CommitOrder`], the lock of a transaction. The registry's lock is held alone.

use crate::certification::Verdict;
use crate::write_set::{Keys, Seqno, WriteSet};
use redoubt_locks::IgnorePoison;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Its statements run.
    Executing,
    /// It is on its way to the order.
    Replicating,
    /// It has its place and no conflict.
    Passed,
    /// It has its place and conflicts with one before it.
    Conflict,
    /// It will never be in the order: this member has left the group.
    Lost,
}

/// What is known of one.
#[derive(Debug)]
pub struct State {
    /// How far it is.
    pub stage: Stage,
    /// Its keys.
    pub keys: Keys,
    /// Its changes.
    pub data: Vec<u8>,
    /// Flags of its write set.
    pub flags: u32,
    /// Its connection.
    pub connection_id: u64,
    /// Its place.
    pub seqno: Option<Seqno>,
    /// What it has to come after.
    pub depends_on: Seqno,
    /// It has to give way.
    pub gives_way: bool,
    /// A part of it has passed before.
    pub has_parts: bool,
    /// The other servers have given up its parts.
    pub is_broken_off: bool,
    /// It is replayed: it does not give way again.
    pub is_replaying: bool,
    /// It commits.
    pub has_entered: bool,
    /// It has committed, or passed its place on.
    pub has_left: bool,
    /// Nothing of it is left to do.
    pub is_finished: bool,
}

impl State {
    /// What is in the order, or goes there, is the end of the transaction and not a part of it.
    pub const fn commits(&self) -> bool {
        self.flags & WriteSet::END != 0
    }

    /// A part of it was stored, and nothing more is to be done for that.
    pub const fn has_stored_part(&self) -> bool {
        matches!(self.stage, Stage::Passed) && !self.commits() && self.has_left && !self.is_finished
    }

    /// The part is done with.
    fn go_on(&mut self) {
        let (has_parts, is_broken_off) = (self.has_parts, self.is_broken_off);
        *self = Self { has_parts, is_broken_off, ..Self::new(Stage::Executing, None) };
    }

    fn new(stage: Stage, seqno: Option<Seqno>) -> Self {
        Self {
            stage,
            keys: Keys::default(),
            data: Vec::new(),
            flags: 0,
            connection_id: 0,
            seqno,
            depends_on: Seqno(0),
            gives_way: false,
            has_parts: false,
            is_broken_off: false,
            is_replaying: false,
            has_entered: false,
            has_left: false,
            is_finished: false,
        }
    }
}

/// Transactions of this server between their first key and their end, and what may become of each.
#[derive(Debug)]
pub struct Transaction {
    /// The server's number.
    pub id: u64,
    /// Of this server, and not an applied one.
    pub is_local: bool,
    state: Mutex<State>,
    changed: Condvar,
}

impl Transaction {
    /// One that begins.
    pub fn local(id: u64) -> Arc<Self> {
        Self::new(id, true, Stage::Executing, None)
    }

    /// One that comes from elsewhere, or has to be applied again.
    pub fn applied(id: u64, seqno: Seqno) -> Arc<Self> {
        Self::new(id, false, Stage::Passed, Some(seqno))
    }

    fn new(id: u64, is_local: bool, stage: Stage, seqno: Option<Seqno>) -> Arc<Self> {
        let state = State::new(stage, seqno);
        Arc::new(Self { id, is_local, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Its state.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// A part of it is done with: it goes on, unless it has to give way.
    pub fn go_on(&self) -> bool {
        let mut state = self.state();
        if !state.gives_way {
            state.go_on();
        }
        !state.gives_way
    }

    /// It has come in the order.
    pub fn ordered(&self, seqno: Seqno, verdict: Verdict) {
        let mut state = self.state();
        state.seqno = Some(seqno);
        match verdict {
            Verdict::Passed { depends_on } => {
                state.stage = Stage::Passed;
                state.depends_on = depends_on;
                state.has_parts |= !state.commits();
            }
            Verdict::Conflict => state.stage = Stage::Conflict,
        }
        drop(state);
        self.changed.notify_all();
    }

    /// It will not come any more.
    pub fn lost(&self) {
        let mut state = self.state();
        if state.stage == Stage::Replicating {
            state.stage = Stage::Lost;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until it has come.
    pub fn wait_ordered(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        while state.stage == Stage::Replicating {
            state = self.changed.wait(state).ignore_poison();
        }
        state
    }
}

/// The local ones, by the server's number.
#[derive(Debug, Default)]
pub struct Transactions(Mutex<HashMap<u64, Arc<Transaction>>>);

impl Transactions {
    fn map(&self) -> MutexGuard<'_, HashMap<u64, Arc<Transaction>>> {
        self.0.lock().ignore_poison()
    }

    /// A new one.
    pub fn begin(&self, id: u64) -> Arc<Transaction> {
        let transaction = Transaction::local(id);
        self.map().insert(id, Arc::clone(&transaction));
        transaction
    }

    /// One that is there.
    pub fn get(&self, id: u64) -> Option<Arc<Transaction>> {
        self.map().get(&id).cloned()
    }

    /// The last place that one of them has to commit in.
    pub fn last_place(&self) -> Option<Seqno> {
        let place = |transaction: &Arc<Transaction>| {
            let state = transaction.state();
            state.seqno.filter(|_| state.stage == Stage::Passed)
        };
        self.all().iter().filter_map(place).max()
    }

    fn all(&self) -> Vec<Arc<Transaction>> {
        self.map().values().cloned().collect()
    }

    /// The other servers have given up all of which they have parts.
    pub fn break_off(&self) {
        for transaction in self.all() {
            let mut state = transaction.state();
            state.is_broken_off = state.has_parts;
        }
    }

    /// Whether there is one that the others have given up, and this server has not yet.
    pub fn has_broken_off(&self) -> bool {
        self.all().iter().any(|transaction| transaction.state().is_broken_off)
    }

    /// It has ended.
    pub fn end(&self, transaction: &Arc<Transaction>) {
        let mut map = self.map();
        if map.get(&transaction.id).is_some_and(|found| Arc::ptr_eq(found, transaction)) {
            map.remove(&transaction.id);
        }
    }
}
