//! What the server's receiver threads do.

use super::transfer::BeginError;
use super::{Session, lock};
use crate::abi::Status;
use crate::appliers::Item;
use crate::monitors::{Entering, Wait};
use crate::replica::{Known, View, uuid_of};
use crate::server::{Applied, Receiver, Refused};
use crate::transactions::Transaction;
use crate::write_set::{Seqno, WriteSet};
use redoubt_consensus::types::{Incarnation, MemberId, ProposalId};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Session {
    /// Does what there is to do until there is nothing more, or until the server wants its thread back.
    pub fn receive(self: &Arc<Self>, receiver: Receiver) -> Status {
        loop {
            let done = match self.appliers.next() {
                Ok(Some(item)) => {
                    let received = self.receive_one(receiver, item);
                    self.appliers.done();
                    received.map_err(|refused| refused.to_string())
                }
                Ok(None) => break,
                Err(error) => Err(error.to_string()),
            };
            match done {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Status::Ok,
                // Then there is nothing more to do but to end, and one of the threads has to.
                Err(reason) => self.fail(&reason),
            }
        }
        if self.has_failed.load(Ordering::SeqCst) { Status::NodeFail } else { Status::Ok }
    }

    fn receive_one(self: &Arc<Self>, receiver: Receiver, item: Item) -> Result<ControlFlow<()>, Refused> {
        match item {
            Item::Begin => match self.begin(receiver) {
                Ok(()) | Err(BeginError::Over) => {}
                Err(BeginError::Refused(refused)) => return Err(refused),
                Err(error) => self.server.end_process(&error.to_string()),
            },
            Item::WriteSet { id, seqno, depends_on, write_set, .. } => {
                return self.apply(receiver, id, seqno, depends_on, write_set);
            }
            Item::View(view) => self.show(receiver, &view)?,
            Item::Alone { ordered, here } => self.show_alone(receiver, ordered, here)?,
            Item::Synced { seqno } => {
                if self.finished.wait(seqno, None) == Wait::Reached
                    && !self.is_shown_alone.load(Ordering::SeqCst)
                {
                    self.is_synced.store(true, Ordering::SeqCst);
                    self.set_willing(true);
                    self.server.synced()?;
                }
            }
            Item::Donate { to, request } => self.donate(receiver, to, &request),
            Item::End => {
                let mut shown = lock(&self.shown);
                shown.is_over = true;
                let view = View { seqno: self.finished.to(), number: 0, members: Vec::new() };
                self.server.view(receiver, self.group(), &view, self.uuid())?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn is_before_start(&self, seqno: Seqno) -> bool {
        seqno.0 <= self.start.load(Ordering::SeqCst)
    }

    fn show(self: &Arc<Self>, receiver: Receiver, view: &View) -> Result<(), Refused> {
        if self.is_before_start(view.seqno) {
            return Ok(());
        }
        let me = self.uuid();
        let is_in = view.members.iter().any(|present| uuid_of(present.member, present.incarnation) == me);
        if self.finished.wait(Seqno(view.seqno.0 - 1), None) == Wait::Reached {
            if !is_in {
                self.transactions.break_off();
            }
            self.show_as_member(receiver, view)?;
            if is_in && self.is_shown_alone.swap(false, Ordering::SeqCst) {
                // The server does nothing for clients before it is told that it is in step. So it is, as with Galera,
                // also if it was to be out of step before.
                self.desynced.store(0, Ordering::SeqCst);
                self.ask_to_be_synced();
            }
        }
        self.commit_order.cancel(view.seqno);
        self.finished.finish(view.seqno);
        Ok(())
    }

    /// Shows every view, in which the server sees which parts of transactions of others are to be given up, and shows it
    /// with this server, also if the others had lost it: otherwise it would wait here for clients of its own that may
    /// wait for rows of others. (Their transactions are refused when they continue.) For the same reason no view may have
    /// the members of the one before; a view with one that does not exist comes between.
    fn show_as_member(&self, receiver: Receiver, view: &View) -> Result<(), Refused> {
        let mut view = view.clone();
        let life = |known: &Known| (known.member, known.incarnation);
        view.members.extend(self.me().filter(|me| !view.members.iter().any(|other| life(other) == life(me))));
        view.members.sort_by_key(life);
        let lives: Vec<_> = view.members.iter().map(life).collect();
        let mut shown = lock(&self.shown);
        if shown.is_over {
            return Ok(());
        }
        if shown.lives.as_ref().is_none_or(|before| *before == lives) {
            let mut between = view.clone();
            between.members.push(Known::unnamed(MemberId(u64::MAX), Incarnation(u64::MAX)));
            self.server.view(receiver, self.group(), &between, self.uuid())?;
        }
        shown.lives = Some(lives);
        self.server.view(receiver, self.group(), &view, self.uuid())
    }

    /// The server does nothing for clients until it is shown a view of most of the members again. One that is giving or
    /// getting a state cannot be told so, and has nothing to do for clients, or waits for commits as always.
    fn show_alone(&self, receiver: Receiver, ordered: Seqno, here: Vec<Known>) -> Result<(), Refused> {
        if self.finished.wait(ordered, None) != Wait::Reached || !self.is_synced.swap(false, Ordering::SeqCst)
        {
            return Ok(());
        }
        let shown = lock(&self.shown);
        if shown.is_over {
            return Ok(());
        }
        self.is_shown_alone.store(true, Ordering::SeqCst);
        let view = View { seqno: self.finished.to(), number: -1, members: here };
        self.server.alone(receiver, self.group(), &view, self.uuid())
    }

    fn apply(
        &self,
        receiver: Receiver,
        id: ProposalId,
        seqno: Seqno,
        depends_on: Seqno,
        write_set: WriteSet,
    ) -> Result<ControlFlow<()>, Refused> {
        if self.is_before_start(seqno) || self.finished.wait(depends_on, None) != Wait::Reached {
            return Ok(ControlFlow::Continue(()));
        }
        let transaction = Transaction::applied(write_set.transaction_id, seqno);
        transaction.state().flags = write_set.flags;
        let applied = Applied {
            group: self.group(),
            seqno,
            depends_on,
            source: uuid_of(id.member, id.incarnation),
            connection_id: write_set.connection_id,
            // Not for the server, which tells parts by their flags.
            flags: write_set.flags & !WriteSet::IMPLICIT_DEPENDENCIES,
        };
        let exits = self.apply_now(receiver, &transaction, &applied, &write_set.data).inspect_err(|_| {
            // One that does not get its turn because another one has failed says nothing about the data, and neither
            // does one about which nothing was decided.
            if !self.commit_order.is_closed_to(seqno) && !self.outcomes.is_undecided(seqno) {
                self.mark_as_different();
            }
        })?;
        self.finish(&transaction);
        Ok(if exits { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// Has the server apply it; meanwhile it is found by its place.
    pub(super) fn apply_now(
        &self,
        receiver: Receiver,
        transaction: &Arc<Transaction>,
        applied: &Applied,
        data: &[u8],
    ) -> Result<bool, Refused> {
        lock(&self.applying).insert(applied.seqno, Arc::clone(transaction));
        let result = self.server.apply(receiver, transaction, applied, data);
        lock(&self.applying).remove(&applied.seqno);
        result
    }

    /// It is done, whatever it was: its turn is passed on if it was not taken.
    pub(super) fn finish(&self, transaction: &Transaction) {
        let mut state = transaction.state();
        let Some(seqno) = state.seqno.filter(|_| !std::mem::replace(&mut state.is_finished, true)) else {
            return;
        };
        let has_left = std::mem::replace(&mut state.has_left, true);
        drop(state);
        if !has_left {
            self.commit_order.cancel(seqno);
        }
        self.finished.finish(seqno);
        self.tell_outcomes();
    }

    /// Waits for its turn to commit. Whether it has it: a victim has not.
    pub fn enter(&self, seqno: Seqno, transaction: Option<&Transaction>) -> bool {
        let Some(transaction) = transaction else {
            return self.commit_order.enter(seqno, Entering::when);
        };
        self.commit_order.enter(seqno, |may_enter| {
            let mut state = transaction.state();
            if transaction.is_local && state.gives_way && !state.is_replaying && !state.has_entered {
                return Entering::GiveUp;
            }
            state.has_entered |= may_enter;
            Entering::when(may_enter)
        })
    }

    /// The server has applied a write set, in its turn, or says why it could not. Whether it may continue.
    pub fn leave_applied(&self, seqno: Seqno, transaction: &Transaction, error: &[u8]) -> bool {
        let is_right = self.is_right(seqno, error);
        if is_right {
            self.leave(seqno, Some(transaction));
        }
        is_right
    }

    /// It has committed, in its turn.
    pub fn leave(&self, seqno: Seqno, transaction: Option<&Transaction>) {
        if let Some(transaction) = transaction {
            transaction.state().has_left = true;
        }
        self.commit_order.leave(seqno);
        self.tell_outcomes();
    }
}
