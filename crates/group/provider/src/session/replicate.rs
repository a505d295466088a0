//! Local transactions and DDL.
//!
//! A large transaction may be sent in parts (`wsrep_trx_fragment_size`). Each part is ordered, and the server stores it
//! at its commit position; then the transaction continues. A rollback is sent, too, and all servers remove the parts.

use super::{Session, lock};
use crate::abi::Status;
use crate::monitors::{Entering, Wait};
use crate::order::Input;
use crate::server::{Applied, Receiver};
use crate::transactions::{Stage, State, Transaction};
use crate::write_set::{Action, Keys, Seqno, WriteSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Interval between two checks for a quorum.
const LOOK: Duration = Duration::from_millis(100);

/// Result of certification, with the position if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Certified {
    /// Status for the server.
    pub status: Status,
    /// Position and origin in the order.
    pub applied: Option<Applied>,
}

/// Result of [`Session::release`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Released {
    /// The transaction has ended.
    Whole,
    /// A part has ended: the transaction continues.
    Part,
    /// A part of a victim has ended: the transaction will be rolled back.
    GivesWay,
}

impl Session {
    /// Has a transaction ordered, and waits for the verdict.
    pub fn certify(&self, transaction: &Arc<Transaction>, connection_id: u64, flags: u32) -> Certified {
        let without_place = |status| Certified { status, applied: None };
        let ordered = || Seqno(self.counters.ordered.load(Ordering::Relaxed));
        let is_over = || transaction.state().gives_way || !self.is_in_order();
        self.pace.hold(ordered, || self.finished.to(), is_over);
        let body = {
            let mut state = transaction.state();
            if !self.is_in_order() {
                return without_place(Status::ConnectionFail);
            }
            if state.gives_way || state.is_broken_off {
                return without_place(Status::TransactionFail);
            }
            state.flags = flags;
            state.connection_id = connection_id;
            match self.encoded(transaction.id, &mut state) {
                Some(body) => body,
                None => return without_place(Status::SizeExceeded),
            }
        };
        self.replicate(transaction, body);
        let state = transaction.wait_ordered();
        let is_refused = state.stage == Stage::Conflict || state.gives_way;
        if is_refused && !state.commits() && state.seqno.is_some() {
            // It is not stored here, and others must not wait until the server has rolled back.
            let certified = self.certified(Status::TransactionFail, &state);
            drop(state);
            self.finish(transaction);
            return certified;
        }
        match state.stage {
            Stage::Passed if state.gives_way => self.certified(Status::BruteForceAbort, &state),
            Stage::Passed => self.certified(Status::Ok, &state),
            Stage::Conflict => self.certified(Status::TransactionFail, &state),
            Stage::Executing | Stage::Replicating | Stage::Lost => without_place(Status::ConnectionFail),
        }
    }

    fn is_in_order(&self) -> bool {
        !self.has_failed.load(Ordering::SeqCst)
    }

    /// The encoded proposal; `None` if it is too long. The changes stay in `state` for a replay.
    fn encoded(&self, transaction_id: u64, state: &mut State) -> Option<Arc<[u8]>> {
        let write_set = WriteSet {
            transaction_id,
            connection_id: state.connection_id,
            flags: state.flags,
            last_seen: self.commit_order.last_left(),
            keys: std::mem::take(&mut state.keys),
            data: std::mem::take(&mut state.data),
        };
        let limit = self.max_write_set_len_bytes.load(Ordering::Relaxed);
        let is_too_long = write_set.encoded_len_bytes() as u64 > limit;
        let action = Action::WriteSet(write_set);
        let body = (!is_too_long).then(|| action.encode().into());
        if let Action::WriteSet(write_set) = action {
            state.data = write_set.data;
        }
        if body.is_some() {
            state.stage = Stage::Replicating;
        }
        body
    }

    fn replicate(&self, transaction: &Arc<Transaction>, body: Arc<[u8]>) {
        self.send(Input::Propose { body, transaction: Some(Arc::clone(transaction)) });
    }

    fn applied(&self, state: &State) -> Option<Applied> {
        Some(Applied {
            group: self.group(),
            seqno: state.seqno?,
            depends_on: state.depends_on,
            source: self.uuid(),
            connection_id: state.connection_id,
            flags: state.flags,
        })
    }

    fn certified(&self, status: Status, state: &State) -> Certified {
        Certified { status, applied: self.applied(state) }
    }

    /// Finishes a transaction, or a part of it.
    pub fn release(&self, transaction: &Arc<Transaction>) -> Released {
        let is_part = transaction.state().has_stored_part();
        self.finish(transaction);
        match is_part {
            true if transaction.go_on() => Released::Part,
            true => Released::GivesWay,
            false => {
                self.transactions.end(transaction);
                Released::Whole
            }
        }
    }

    /// Rolls back a transaction with ordered parts on all servers. Does not block: the caller may hold resources that
    /// others need.
    pub fn give_up(&self, transaction_id: u64) -> Status {
        if !self.is_in_order() {
            return Status::ConnectionFail;
        }
        if let Some(transaction) = self.transactions.get(transaction_id) {
            transaction.state().gives_way = true;
        }
        let write_set = WriteSet {
            transaction_id,
            flags: WriteSet::ROLLBACK | WriteSet::PARALLEL_UNSAFE,
            last_seen: self.commit_order.last_left(),
            ..WriteSet::default()
        };
        let body = Action::WriteSet(write_set).encode().into();
        self.send(Input::Propose { body, transaction: None });
        Status::Ok
    }

    /// Applies a victim that has passed, at its commit position.
    pub fn replay(&self, transaction: &Arc<Transaction>, receiver: Receiver) -> Status {
        let (applied, data) = {
            let mut state = transaction.state();
            let Some(applied) = self.applied(&state).filter(|_| state.stage == Stage::Passed) else {
                return Status::TransactionFail;
            };
            state.is_replaying = true;
            (applied, std::mem::take(&mut state.data))
        };
        self.counters.replays.fetch_add(1, Ordering::Relaxed);
        if self.finished.wait(Seqno(applied.seqno.0 - 1), None) != Wait::Reached {
            return Status::NodeFail;
        }
        match self.apply_now(receiver, transaction, &applied, &data) {
            Ok(_) => Status::Ok,
            Err(refused) => {
                self.mark_as_different();
                self.fail(&refused.to_string());
                Status::Fatal
            }
        }
    }

    /// Brute-force abort of a local transaction by an entry at position `before`. Returns the victim's position, too.
    pub fn give_way(&self, before: Seqno, victim: u64) -> (Status, Option<Seqno>) {
        let Some(transaction) = self.transactions.get(victim) else { return (Status::Ok, None) };
        let mut state = transaction.state();
        let seqno = state.seqno;
        let commits = state.commits();
        let comes_first = commits && seqno.is_some_and(|seqno| seqno < before);
        let has_entered = commits && state.has_entered;
        // An executing transaction may be aborted twice: the id may have meant a transaction of another server, of
        // which this server has parts.
        let gives_way = state.gives_way && state.stage != Stage::Executing;
        let is_decided = has_entered || state.is_replaying || gives_way || state.stage == Stage::Conflict;
        if comes_first || is_decided {
            return (Status::NotAllowed, seqno);
        }
        state.gives_way = true;
        drop(state);
        if let Some(seqno) = seqno {
            self.commit_order.wake(seqno);
        }
        (Status::Ok, seqno)
    }

    /// Begins DDL: has it ordered, and waits until everything before it is finished and nothing else runs.
    pub fn begin_isolation(&self, connection_id: u64, keys: Keys, action: Vec<u8>, flags: u32) -> Certified {
        let without_place = |status| Certified { status, applied: None };
        let transaction = Transaction::local(u64::MAX);
        if !self.is_in_order() {
            return without_place(Status::ConnectionFail);
        }
        let body = {
            let mut state = transaction.state();
            (state.keys, state.data) = (keys, action);
            state.connection_id = connection_id;
            state.flags = flags | WriteSet::ISOLATION | WriteSet::START | WriteSet::END;
            match self.encoded(u64::MAX, &mut state) {
                Some(body) => body,
                None => return without_place(Status::SizeExceeded),
            }
        };
        self.replicate(&transaction, body);
        let state = transaction.wait_ordered();
        let Some(seqno) = state.seqno else { return without_place(Status::ConnectionFail) };
        let certified = self.certified(Status::Ok, &state);
        drop(state);
        let is_reached = self.finished.wait(Seqno(seqno.0 - 1), None) == Wait::Reached;
        if !is_reached || !self.commit_order.enter(seqno, Entering::when) {
            return without_place(Status::NodeFail);
        }
        lock(&self.isolated).insert(connection_id, seqno);
        certified
    }

    /// Ends DDL, with the server's error text or an empty one. Returns whether the server may continue.
    pub fn end_isolation(&self, connection_id: u64, error: &[u8]) -> bool {
        let Some(seqno) = lock(&self.isolated).remove(&connection_id) else { return true };
        if !self.is_right(seqno, error) {
            return false;
        }
        self.leave(seqno, None);
        self.finished.finish(seqno);
        true
    }

    /// Waits for an answer of the order. Fails without a quorum, as servers expect.
    fn wait_for_answer(&self, answer: &mpsc::Receiver<Seqno>, deadline: Instant) -> Result<Seqno, Status> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match answer.recv_timeout(left.min(LOOK)) {
                Ok(seqno) => return Ok(seqno),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if left.is_zero() || self.status.is_alone.load(Ordering::Relaxed) {
                        return Err(Status::ConnectionFail);
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(Status::ConnectionFail),
            }
        }
    }

    /// Waits until a position is finished here; without one, until everything acknowledged anywhere is finished here.
    /// The default timeout is `repl.causal_read_timeout`. Returns the finished position.
    pub fn sync_wait(&self, to: Option<Seqno>, timeout: Option<Duration>) -> Result<Seqno, Status> {
        let default = || Duration::from_millis(self.causal_read_timeout_ms.load(Ordering::Relaxed));
        let timeout = timeout.unwrap_or_else(default);
        let deadline = Instant::now() + timeout;
        let to = match to {
            Some(to) => to,
            None => {
                let (done, reached) = mpsc::channel();
                self.send(Input::Barrier(Box::new(move |seqno| {
                    let _ = done.send(seqno);
                })));
                self.wait_for_answer(&reached, deadline)?
            }
        };
        match self.finished.wait(to, Some(deadline)) {
            Wait::Reached => Ok(self.finished.to()),
            Wait::TimedOut | Wait::Closed => Err(Status::ConnectionFail),
        }
    }
}
