//! Work of the server's receiver threads.

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
    /// Processes items until the queue ends, or until the server requests its thread.
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
                // The group has to be left. One of the receiver threads processes the end.
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
                // The server serves no clients before it is synced. So it becomes synced, as with Galera, even if it
                // was desynced before.
                self.desynced.store(0, Ordering::SeqCst);
                self.ask_to_be_synced();
            }
        }
        self.commit_order.cancel(view.seqno);
        self.finished.finish(view.seqno);
        Ok(())
    }

    /// Shows every view to the server, which rolls back parts of transactions of absent members. The view always
    /// contains this server, even if the others had lost it. Otherwise the server would wait here for its own clients,
    /// which may wait for rows of others. (Their transactions are refused when they continue.) For the same reason no
    /// view may have the same members as the previous one: a view with a non-existent member is inserted between them.
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

    /// Shows a non-primary view, after which the server serves no clients until the next primary view. A server that
    /// sends or receives a state cannot process it: it has no work for clients, or waits for commits as always.
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
            // Not passed to the server, which recognises parts by their flags.
            flags: write_set.flags & !WriteSet::IMPLICIT_DEPENDENCIES,
        };
        let exits = self.apply_now(receiver, &transaction, &applied, &write_set.data).inspect_err(|_| {
            // A write set without its commit position because another one has failed is no evidence about the data.
            // Neither is one without a decision.
            if !self.commit_order.is_closed_to(seqno) && !self.outcomes.is_undecided(seqno) {
                self.mark_as_different();
            }
        })?;
        self.finish(&transaction);
        Ok(if exits { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// Lets the server apply it. Meanwhile it is registered by its position.
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

    /// Finishes a transaction with any outcome. An unused commit position is released.
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

    /// Waits for the commit position. Returns whether the transaction has it: a victim has not.
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

    /// Ends the application of a write set at its commit position, with the server's error if there is one. Returns
    /// whether the server may continue.
    pub fn leave_applied(&self, seqno: Seqno, transaction: &Transaction, error: &[u8]) -> bool {
        let is_right = self.is_right(seqno, error);
        if is_right {
            self.leave(seqno, Some(transaction));
        }
        is_right
    }

    /// Leaves the commit order after a commit.
    pub fn leave(&self, seqno: Seqno, transaction: Option<&Transaction>) {
        if let Some(transaction) = transaction {
            transaction.state().has_left = true;
        }
        self.commit_order.leave(seqno);
        self.tell_outcomes();
    }
}
