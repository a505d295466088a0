//! Checkpoints, which replace the log before them, and snapshots, from which newcomers start. Both need the state at a
//! slot, which another thread has ([`crate::delivery`]).

use super::Order;
use crate::delivery::Delivery;
use crate::frame::Frame;
use crate::store::StoreError;
use crate::write_set::Seqno;
use redoubt_consensus::record::Snapshot;
use redoubt_consensus::types::{MemberId, Slot};
use std::time::{Duration, Instant};

/// Length of log after which a checkpoint is made.
const CHECKPOINT_LEN_BYTES: u64 = 128 << 20;
/// After this time the server's commits are durable with any setting of `innodb_flush_log_at_trx_commit`
/// (`innodb_flush_log_at_timeout` is 1 s by default). If not, its next start detects that, and requests a state
/// transfer.
const DURABLE_IN_SERVER: Duration = Duration::from_secs(30);

/// The state of a checkpoint that has not replaced the log before it.
pub(super) struct Unapplied {
    slot: Slot,
    seqno: Seqno,
    replica: Vec<u8>,
    /// When the server had applied it.
    applied_at: Option<Instant>,
}

/// Why a snapshot is taken.
pub(super) enum Purpose {
    Checkpoint,
    Newcomer(MemberId, Snapshot),
}

impl Order {
    /// Begins a checkpoint if one is due.
    pub(super) fn begin_checkpoint(&mut self) -> Result<(), StoreError> {
        let slot = self.member.delivered();
        let is_due = self.store.len_since_checkpoint_bytes() > CHECKPOINT_LEN_BYTES
            && !self.store.is_checkpoint_begun();
        if is_due && self.store.begin_checkpoint(slot, || self.member.checkpoint())? {
            self.ask_for_state(slot, Purpose::Checkpoint);
        }
        Ok(())
    }

    pub(super) fn ask_for_state(&mut self, slot: Slot, purpose: Purpose) {
        self.states.push((slot, purpose));
        self.parts.deliveries.send(Delivery::State(slot));
    }

    pub(super) fn on_state(&mut self, slot: Slot, seqno: Seqno, replica: Vec<u8>) {
        let (now, later) = std::mem::take(&mut self.states).into_iter().partition(|(of, _)| *of == slot);
        self.states = later;
        let now: Vec<(Slot, Purpose)> = now;
        for (_, purpose) in now {
            match purpose {
                Purpose::Checkpoint => {
                    let replica = replica.clone();
                    self.unapplied = Some(Unapplied { slot, seqno, replica, applied_at: None });
                }
                Purpose::Newcomer(member, snapshot) => {
                    self.parts.peers.send(member, &Frame::Start { snapshot, replica: replica.clone() });
                }
            }
        }
    }

    /// Completes a checkpoint once everything before it is durable in the server, which may need the log again until
    /// then. The server makes its commits durable by itself, if later.
    pub(super) fn end_checkpoint(&mut self) -> Result<(), StoreError> {
        let applied = (self.parts.applied)();
        if let Some(unapplied) = self.unapplied.as_mut().filter(|unapplied| unapplied.seqno <= applied) {
            unapplied.applied_at.get_or_insert_with(Instant::now);
        }
        let is_durable = |unapplied: &mut Unapplied| {
            unapplied.applied_at.is_some_and(|at| at.elapsed() >= DURABLE_IN_SERVER)
        };
        match self.unapplied.take_if(is_durable) {
            Some(Unapplied { slot, replica, .. }) => self.store.end_checkpoint(slot, &replica),
            None => Ok(()),
        }
    }
}
