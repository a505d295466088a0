//! From the order to the server: a thread that says what each entry is, and gives it to whoever has to do something.
//!
//! Owns the [`Replica`]. Write sets of this life wake their transactions; those of others, and of earlier lives, go to
//! the appliers; conflicts give their turn away.
//!
//! [`Gate`]: nothing is said any more while it is shut, so that what was said can be waited for.

use crate::appliers::{Appliers, Item};
use crate::ballots::News;
use crate::certification::Verdict;
use crate::deliveries::Delivered;
use crate::frame::{Frame, Refusal};
use crate::monitors::{CommitOrder, Finished};
use crate::order::inbox::Inlet;
use crate::order::{Input, Status, Waiter};
use crate::replica::{Known, Ordered, Replica, View};
use crate::transactions::{Stage, Transaction};
use crate::write_set::{Action, Keys, Seqno};
use redoubt_consensus::types::{MemberId, Proposal, ProposalId, Slot};
use redoubt_locks::IgnorePoison;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// What the order has, in its order.
pub enum Delivery {
    /// What was ordered before everything else.
    Start(Box<Replica>),
    /// An entry.
    Entry {
        /// Its place in the order.
        slot: Slot,
        /// It.
        proposal: Proposal,
        /// Who waits for it.
        transaction: Option<Arc<Transaction>>,
    },
    /// All that was chosen when it was asked for is before it.
    Barrier(Waiter),
    /// What was ordered before here is to be said.
    State(Slot),
    /// A member asks for the state of the server.
    StateRequest {
        /// Who.
        from: MemberId,
        /// As of this position or later.
        seqno: Seqno,
        /// What its server wants.
        request: Vec<u8>,
    },
    /// A member does not give it.
    StateRefused {
        /// Who.
        from: MemberId,
        /// Why.
        refusal: Refusal,
    },
    /// Most of the members were not heard for long.
    Alone {
        /// Those that were.
        here: Vec<Known>,
    },
    /// There is no more.
    End,
}

/// Counts, for people.
#[derive(Default)]
pub struct Counters {
    /// The last number that was given.
    pub ordered: AtomicI64,
    /// Write sets of others that were given to the appliers.
    pub received: AtomicU64,
    /// Their bytes.
    pub received_len_bytes: AtomicU64,
    /// Write sets of this server that are in the order.
    pub replicated: AtomicU64,
    /// Their bytes.
    pub replicated_len_bytes: AtomicU64,
    /// Of those, conflicts.
    pub conflicts: AtomicU64,
    /// Replays.
    pub replays: AtomicU64,
    /// Keys that the certification has forgotten for lack of room.
    pub evictions: AtomicU64,
    /// It passes nothing that has seen less.
    pub floor: AtomicI64,
}

#[derive(Default)]
struct GateState {
    /// How many want it shut.
    shut: usize,
    /// An entry is being decided.
    is_passing: bool,
    is_over: bool,
}

/// Entries pass one after the other, unless somebody has shut it. Who only asks how far the order is does not pass it:
/// a server that is paused can still be read from.
#[derive(Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().ignore_poison()
    }

    fn pass(&self, entry: impl FnOnce()) {
        let mut state = self.state();
        while state.shut > 0 && !state.is_over {
            state = self.changed.wait(state).ignore_poison();
        }
        state.is_passing = true;
        drop(state);
        entry();
        let mut state = self.state();
        state.is_passing = false;
        let is_waited_for = state.shut > 0;
        drop(state);
        if is_waited_for {
            self.changed.notify_all();
        }
    }

    /// Somebody wants it shut.
    pub fn is_shut(&self) -> bool {
        self.state().shut > 0
    }

    /// Lets nothing pass any more, and waits until what is passing has.
    pub fn shut(&self) {
        let mut state = self.state();
        state.shut += 1;
        while state.is_passing && !state.is_over {
            state = self.changed.wait(state).ignore_poison();
        }
    }

    /// It continues.
    pub fn open(&self) {
        let mut state = self.state();
        state.shut = state.shut.saturating_sub(1);
        drop(state);
        self.changed.notify_all();
    }

    /// Nothing will come any more.
    pub fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }
}

/// Who is told what.
pub struct Outlets {
    /// For the server's receivers.
    pub appliers: Arc<Appliers>,
    /// Who commits when.
    pub commit_order: Arc<CommitOrder>,
    /// What is done.
    pub finished: Arc<Finished>,
    /// The gate.
    pub gate: Arc<Gate>,
    /// For people.
    pub counters: Arc<Counters>,
    /// Who is there.
    pub status: Arc<Status>,
    /// Back to the order.
    pub order: Inlet,
    /// A view was ordered.
    pub viewed: Box<dyn Fn(&View) + Send>,
    /// Something was asked, or decided, about what could not be applied somewhere.
    pub balloted: Box<dyn Fn(News) + Send>,
    /// A member does not give its state.
    pub refused: Box<dyn Fn(MemberId, Refusal) + Send>,
    /// It cannot go on.
    pub failed: Box<dyn Fn(String) + Send>,
}

/// Runs until the end of the order.
pub fn run(mut deliveries: Delivered, outlets: &Outlets) {
    let mut replica: Option<Box<Replica>> = None;
    let mut requests = Vec::new();
    loop {
        let delivery = match deliveries.take() {
            Ok(Some(delivery)) => delivery,
            Ok(None) => return,
            Err(error) => return (outlets.failed)(error.to_string()),
        };
        match (delivery, &mut replica) {
            (Delivery::Start(start), _) => {
                tell_known(outlets, &start);
                replica = Some(start);
            }
            (Delivery::Entry { slot, proposal, transaction }, Some(replica)) => {
                match Action::decode(&proposal.body) {
                    Ok(action) => {
                        let (place, len_bytes) = ((slot, proposal.id), proposal.body.len());
                        // What waits at the gate is in memory only once.
                        drop(proposal.body);
                        outlets.gate.pass(|| entry(outlets, replica, place, action, len_bytes, transaction));
                    }
                    Err(error) => {
                        return (outlets.failed)(format!(
                            "an entry of member {} cannot be read: {error}; its server has a newer library, use the same",
                            proposal.id.member
                        ));
                    }
                }
            }
            (Delivery::Barrier(waiter), Some(replica)) => waiter(replica.seqno()),
            (Delivery::State(slot), Some(replica)) => {
                let (seqno, replica) = (replica.seqno(), replica.encode());
                outlets.order.post(Input::State { slot, seqno, replica });
            }
            (Delivery::Alone { here }, Some(replica)) => {
                outlets.appliers.push(Item::Alone { ordered: replica.seqno(), here });
            }
            (Delivery::StateRequest { from, seqno, request }, _) if outlets.appliers.has_begun() => {
                requests.push((from, seqno, request));
            }
            // Its threads wait for a state themselves, of the one that asks here perhaps.
            (Delivery::StateRequest { from, .. }, _) => {
                let refused = Refusal { reason: "it has none itself yet".into(), has_failed: false };
                outlets.order.post(Input::Send(from, Frame::StateRefused(refused)));
            }
            (Delivery::StateRefused { from, refusal }, _) => (outlets.refused)(from, refusal),
            (Delivery::End, _) => return,
            (
                Delivery::Entry { .. } | Delivery::Barrier(_) | Delivery::State(_) | Delivery::Alone { .. },
                None,
            ) => {}
        }
        // After all that has to be in the state: a single receiver does one thing after another.
        let ordered = replica.as_ref().map_or(Seqno(0), |replica| replica.seqno());
        for (to, _, request) in requests.extract_if(.., |(_, seqno, _)| *seqno <= ordered) {
            outlets.appliers.push(Item::Donate { to, request });
        }
    }
}

/// Those who look after the connections know who is there.
fn tell_known(outlets: &Outlets, replica: &Replica) {
    let known = replica.known().cloned().collect();
    *outlets.status.known.lock().ignore_poison() = known;
}

fn entry(
    outlets: &Outlets,
    replica: &mut Replica,
    (slot, id): (Slot, ProposalId),
    action: Action,
    len_bytes: usize,
    transaction: Option<Arc<Transaction>>,
) {
    let counters = &outlets.counters;
    match replica.take(id, action) {
        Ordered::WriteSet { seqno, mut write_set, verdict } => {
            counters.ordered.store(seqno.0, Ordering::Relaxed);
            counters.floor.store(replica.certification().floor().0, Ordering::Relaxed);
            counters.evictions.store(replica.certification().evictions(), Ordering::Relaxed);
            match (transaction, verdict) {
                (Some(transaction), verdict) => {
                    counters.replicated.fetch_add(1, Ordering::Relaxed);
                    counters.replicated_len_bytes.fetch_add(len_bytes as u64, Ordering::Relaxed);
                    if verdict == Verdict::Conflict {
                        counters.conflicts.fetch_add(1, Ordering::Relaxed);
                    }
                    debug_assert_eq!(transaction.state().stage, Stage::Replicating);
                    transaction.ordered(seqno, verdict);
                }
                (None, Verdict::Conflict) => pass_over(outlets, seqno),
                (None, Verdict::Passed { depends_on }) => {
                    counters.received.fetch_add(1, Ordering::Relaxed);
                    counters.received_len_bytes.fetch_add(len_bytes as u64, Ordering::Relaxed);
                    // They have done what they are for.
                    write_set.keys = Keys::default();
                    outlets.appliers.push(Item::WriteSet { slot, id, seqno, depends_on, write_set });
                }
            }
        }
        Ordered::View(view) => {
            counters.ordered.store(view.seqno.0, Ordering::Relaxed);
            tell_known(outlets, replica);
            (outlets.viewed)(&view);
            outlets.appliers.push(Item::View(view));
        }
        Ordered::Nothing => {}
    }
    replica.take_news().into_iter().for_each(|news| (outlets.balloted)(news));
}

/// A number that nothing is done for.
fn pass_over(outlets: &Outlets, seqno: Seqno) {
    outlets.commit_order.cancel(seqno);
    outlets.finished.finish(seqno);
}

#[cfg(test)]
mod tests;
