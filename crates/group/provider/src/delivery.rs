//! From the order to the server: the thread that interprets each entry, and passes it on.
//!
//! It owns the [`Replica`]. Write sets of this incarnation wake their transactions. Those of other members and of
//! earlier incarnations go to the appliers. Conflicts release their commit position.
//!
//! While the [`Gate`] is shut, no entry is decided, so that the decided ones can be waited for.

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

/// An item of the order, in order.
pub enum Delivery {
    /// The state before all further items.
    Start(Box<Replica>),
    /// An entry.
    Entry {
        /// Its slot.
        slot: Slot,
        /// The proposal.
        proposal: Proposal,
        /// The transaction that waits for it.
        transaction: Option<Arc<Transaction>>,
    },
    /// Everything that was chosen at the time of the request is before it.
    Barrier(Waiter),
    /// Requests the state before this slot.
    State(Slot),
    /// A member requests this server's state.
    StateRequest {
        /// The requesting member.
        from: MemberId,
        /// Minimum position of the state.
        seqno: Seqno,
        /// The request of its server.
        request: Vec<u8>,
    },
    /// A member refuses to send its state.
    StateRefused {
        /// The refusing member.
        from: MemberId,
        /// The reason.
        refusal: Refusal,
    },
    /// Most of the members have been unreachable for long.
    Alone {
        /// The reachable members.
        here: Vec<Known>,
    },
    /// The order has ended.
    End,
}

/// Counters for the status variables.
#[derive(Default)]
pub struct Counters {
    /// The last assigned sequence number.
    pub ordered: AtomicI64,
    /// Write sets of other members that were passed to the appliers.
    pub received: AtomicU64,
    /// Their length in bytes.
    pub received_len_bytes: AtomicU64,
    /// Write sets of this server that are in the order.
    pub replicated: AtomicU64,
    /// Their length in bytes.
    pub replicated_len_bytes: AtomicU64,
    /// Number of replicated write sets that conflicted.
    pub conflicts: AtomicU64,
    /// Number of replays.
    pub replays: AtomicU64,
    /// Keys that certification has evicted for lack of room.
    pub evictions: AtomicU64,
    /// Floor of certification: write sets with an older `last_seen` are refused.
    pub floor: AtomicI64,
}

#[derive(Default)]
struct GateState {
    /// Number of callers that keep it shut.
    shut: usize,
    /// An entry is being decided.
    is_passing: bool,
    is_over: bool,
}

/// A gate that entries pass one by one unless it is shut. Barriers do not pass it, so a paused server still serves
/// reads.
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

    /// Whether any caller keeps the gate shut.
    pub fn is_shut(&self) -> bool {
        self.state().shut > 0
    }

    /// Shuts the gate, and waits until the current entry has passed.
    pub fn shut(&self) {
        let mut state = self.state();
        state.shut += 1;
        while state.is_passing && !state.is_over {
            state = self.changed.wait(state).ignore_poison();
        }
    }

    /// Undoes one [`Gate::shut`].
    pub fn open(&self) {
        let mut state = self.state();
        state.shut = state.shut.saturating_sub(1);
        drop(state);
        self.changed.notify_all();
    }

    /// Opens the gate for good: the order has ended.
    pub fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }
}

/// Recipients of the interpreted entries.
pub struct Outlets {
    /// The server's receivers.
    pub appliers: Arc<Appliers>,
    /// Order of commits.
    pub commit_order: Arc<CommitOrder>,
    /// Positions that are finished.
    pub finished: Arc<Finished>,
    /// The gate.
    pub gate: Arc<Gate>,
    /// Counters for the status variables.
    pub counters: Arc<Counters>,
    /// Present and former servers.
    pub status: Arc<Status>,
    /// Queue of inputs of the order.
    pub order: Inlet,
    /// Called when a view was ordered.
    pub viewed: Box<dyn Fn(&View) + Send>,
    /// Called when a ballot on a failed write set was begun or decided.
    pub balloted: Box<dyn Fn(News) + Send>,
    /// Called when a member refuses to send its state.
    pub refused: Box<dyn Fn(MemberId, Refusal) + Send>,
    /// Called when the order cannot continue.
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
                        // An entry that waits at the gate is in memory only once.
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
            // Its own threads wait for a state, maybe for that of the requesting member.
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
        // After everything that must be in the state: a single receiver works through the items one by one.
        let ordered = replica.as_ref().map_or(Seqno(0), |replica| replica.seqno());
        for (to, _, request) in requests.extract_if(.., |(_, seqno, _)| *seqno <= ordered) {
            outlets.appliers.push(Item::Donate { to, request });
        }
    }
}

/// Publishes the present and former servers for the connections.
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
                    // They are not needed after certification.
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

/// Skips a sequence number for which there is nothing to do.
fn pass_over(outlets: &Outlets, seqno: Seqno) {
    outlets.commit_order.cancel(seqno);
    outlets.finished.finish(seqno);
}

#[cfg(test)]
mod tests;
