//! Local transactions from their first key to their end, with their state transitions.
//!
//! | from | to | when |
//! |---|---|---|
//! | executing | replicating | the server requests certification |
//! | replicating | passed, conflict | it is ordered |
//! | passed | entered, left | it commits at its position |
//! | left | executing | it was a part, and the next one follows |
//! | executing, replicating, passed | victim | an applier needs its locks: rolled back, and replayed if it passed |
//!
//! A transaction's own lock decides between commit and brute-force abort: it never enters the commit order as a victim.
//! A part of it (streaming replication) can become a victim at any time, even after it was stored: its rows are not
//! committed, and the stored part is removed again.
//!
//! Lock order: a place of [`crate::monitors::CommitOrder`], the lock of a transaction. The registry's lock is not held
//! with others.

use crate::certification::Verdict;
use crate::write_set::{Keys, Seqno, WriteSet};
use redoubt_locks::IgnorePoison;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Stage of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Its statements run.
    Executing,
    /// It is being ordered.
    Replicating,
    /// It has a position and no conflict.
    Passed,
    /// It has a position and conflicts with an earlier write set.
    Conflict,
    /// It will never be ordered: this member has left the group.
    Lost,
}

/// State of a transaction.
#[derive(Debug)]
pub struct State {
    /// Its stage.
    pub stage: Stage,
    /// Its keys.
    pub keys: Keys,
    /// Its changes.
    pub data: Vec<u8>,
    /// Flags of its write set.
    pub flags: u32,
    /// Its connection.
    pub connection_id: u64,
    /// Its position.
    pub seqno: Option<Seqno>,
    /// Position that it depends on.
    pub depends_on: Seqno,
    /// It is a victim.
    pub gives_way: bool,
    /// A part of it has passed before.
    pub has_parts: bool,
    /// The other servers have rolled back its parts.
    pub is_broken_off: bool,
    /// It is being replayed: it does not become a victim again.
    pub is_replaying: bool,
    /// It has entered the commit order.
    pub has_entered: bool,
    /// It has committed, or released its position.
    pub has_left: bool,
    /// No work is left for it.
    pub is_finished: bool,
}

impl State {
    /// Whether the current proposal is the end of the transaction, and not a part of it.
    pub const fn commits(&self) -> bool {
        self.flags & WriteSet::END != 0
    }

    /// Whether a part of it was stored, and no work is left for that part.
    pub const fn has_stored_part(&self) -> bool {
        matches!(self.stage, Stage::Passed) && !self.commits() && self.has_left && !self.is_finished
    }

    /// Resets the state for the next part.
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

/// A local or an applied transaction.
#[derive(Debug)]
pub struct Transaction {
    /// The server's id.
    pub id: u64,
    /// It is a transaction of this server, and not an applied one.
    pub is_local: bool,
    state: Mutex<State>,
    changed: Condvar,
}

impl Transaction {
    /// A local transaction that begins.
    pub fn local(id: u64) -> Arc<Self> {
        Self::new(id, true, Stage::Executing, None)
    }

    /// An applied transaction: of another server, or replayed.
    pub fn applied(id: u64, seqno: Seqno) -> Arc<Self> {
        Self::new(id, false, Stage::Passed, Some(seqno))
    }

    fn new(id: u64, is_local: bool, stage: Stage, seqno: Option<Seqno>) -> Arc<Self> {
        let state = State::new(stage, seqno);
        Arc::new(Self { id, is_local, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Locks the state.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// Continues after a part, unless it is a victim. Returns whether it continues.
    pub fn go_on(&self) -> bool {
        let mut state = self.state();
        if !state.gives_way {
            state.go_on();
        }
        !state.gives_way
    }

    /// Records position and verdict.
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

    /// Marks a transaction that will never be ordered.
    pub fn lost(&self) {
        let mut state = self.state();
        if state.stage == Stage::Replicating {
            state.stage = Stage::Lost;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until it is ordered or lost.
    pub fn wait_ordered(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        while state.stage == Stage::Replicating {
            state = self.changed.wait(state).ignore_poison();
        }
        state
    }
}

/// Local transactions, by the server's id.
#[derive(Debug, Default)]
pub struct Transactions(Mutex<HashMap<u64, Arc<Transaction>>>);

impl Transactions {
    fn map(&self) -> MutexGuard<'_, HashMap<u64, Arc<Transaction>>> {
        self.0.lock().ignore_poison()
    }

    /// Begins a transaction.
    pub fn begin(&self, id: u64) -> Arc<Transaction> {
        let transaction = Transaction::local(id);
        self.map().insert(id, Arc::clone(&transaction));
        transaction
    }

    /// The transaction with an id, if there is one.
    pub fn get(&self, id: u64) -> Option<Arc<Transaction>> {
        self.map().get(&id).cloned()
    }

    /// The last position in which a local transaction has to commit.
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

    /// Marks all transactions with parts: the other servers have rolled these back.
    pub fn break_off(&self) {
        for transaction in self.all() {
            let mut state = transaction.state();
            state.is_broken_off = state.has_parts;
        }
    }

    /// Whether the others have rolled back a transaction, and this server has not yet.
    pub fn has_broken_off(&self) -> bool {
        self.all().iter().any(|transaction| transaction.state().is_broken_off)
    }

    /// Removes an ended transaction.
    pub fn end(&self, transaction: &Arc<Transaction>) {
        let mut map = self.map();
        if map.get(&transaction.id).is_some_and(|found| Arc::ptr_eq(found, transaction)) {
            map.remove(&transaction.id);
        }
    }
}
