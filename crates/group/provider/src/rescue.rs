//! The last member of a group whose others have lost their logs for good.
//!
//! Works on the log of a server that does not run: shows what is in it, and makes this server the only member. It keeps
//! all that this member has accepted, whether or not that was chosen. Commits that only the lost ones had are lost.
//!
//! The others are gone for this member, so that none of them is taken back with what it has of the group: that may be
//! another history.
//!
//! Invariant: no record is written before [`Rescue::go_on_alone`] (opening the log cuts what a crash has left half-written,
//! and may make a spare file, as a start does). A process that ends in the middle of it leaves the member
//! as it was, or as the only one; then doing it once more does what is left.

use crate::replay::{Kept, ReplayError, replay};
use crate::replica::{Known, Presence, Replica, ReplicaError};
use crate::session;
use crate::store::{Store, StoreError};
use crate::write_set::{Action, Departure, Seqno};
use redoubt_consensus::record::RecordCount;
use redoubt_consensus::types::{MemberId, Time};
use redoubt_consensus::{Effect, Member};
use std::collections::BTreeSet;
use std::path::Path;

/// Why it cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum RescueError {
    /// The log.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The records do not fit.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// What was ordered.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// An entry of a newer library.
    #[error(
        "cannot read an entry of the group's log: {0}; use the version of this command that belongs to the \
         library"
    )]
    Entry(String),
    /// There is none.
    #[error("{0} has no log of a group (redoubt_group.head.log): it is not the data directory of a member")]
    NoMember(String),
    /// Its data is no state.
    #[error(
        "the data of this server is incomplete: it stopped during a state transfer (SST); use another server, \
         or a backup"
    )]
    NoState,
    /// It does not come to its end.
    #[error("a proposal of the only member was not chosen; this is a defect of Redoubt: report it")]
    Stuck,
    /// It was removed.
    #[error("this member was removed from the group, which continued without it; its data is out of date")]
    Removed,
}

/// A member that counts for the majority.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Voter {
    /// `wsrep_node_name`, if it is known.
    pub name: Option<String>,
    /// Where members reach it, if that is known.
    pub address: Option<String>,
    /// It is this one.
    pub is_self: bool,
}

/// What is in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The group, as servers show it (`wsrep_cluster_state_uuid`).
    pub group: String,
    /// The number of the last write set that is known to count.
    pub seqno: Seqno,
    /// Entries after that which this member has, and of which it does not know whether a majority had them.
    pub undecided: usize,
    /// For comparing two members: who has more. Round of the epoch, and the end of the log.
    pub reach: (u64, u64),
    /// All that vote.
    pub voters: Vec<Voter>,
    /// All others that vote, or could be taken back.
    pub lost: Vec<Voter>,
    /// Nothing is to be done: it is the only member, and waits for nobody. Others may have left in order.
    pub is_alone: bool,
}

/// The last member of a group whose others have lost their logs for good.
pub struct Rescue {
    store: Store,
    member: Member,
    replica: Replica,
    written: RecordCount,
}

/// How long a member alone may take until all that it proposes is chosen, and in which steps its time goes on.
const ROUNDS: u64 = 1000;
const ROUND_US: u64 = 5000;

impl Rescue {
    /// Reads the log in a server's data directory. The server must not run.
    ///
    /// # Errors
    /// [`RescueError`].
    pub fn open(directory: &Path) -> Result<Self, RescueError> {
        let none = || RescueError::NoMember(directory.display().to_string());
        // A store would make it.
        let opened = if directory.is_dir() { Store::open(directory)? } else { None };
        let (store, found) = opened.ok_or_else(none)?;
        if session::has_no_state(directory) {
            return Err(RescueError::NoState);
        }
        let mut replica = Replica::decode(&found.replica)?;
        let id = found.identity.member;
        let member = replay(&store, &mut Kept::new(0), |_, proposal| {
            let action = Action::decode(&proposal.body);
            let action = action.map_err(|error| RescueError::Entry(error.to_string()))?;
            replica.take(proposal.id, action);
            Ok::<_, RescueError>(())
        })?;
        let rescue = Self { store, member, replica, written: RecordCount(0) };
        if !rescue.member.epoch().membership.contains(id) {
            return Err(RescueError::Removed);
        }
        Ok(rescue)
    }

    /// What there is.
    pub fn report(&self) -> Report {
        let epoch = self.member.epoch();
        let known = |member: MemberId| self.replica.known().find(|known| known.member == member);
        let me = self.member.id();
        let voters = &epoch.membership;
        let lost =
            voters.iter().filter(|member| *member != me).chain(self.others().map(|known| known.member));
        let is_alone =
            voters.iter().all(|member| member == me) && !self.others().any(|known| known.is_there());
        let voter = |member| Voter {
            name: known(member).map(|known: &Known| known.name.clone()),
            address: known(member).map(|known: &Known| known.listen_address.clone()),
            is_self: member == me,
        };
        Report {
            group: self.replica.group().to_string(),
            seqno: self.replica.seqno(),
            undecided: self.member.undecided(),
            reach: (epoch.ballot.round, self.member.end().0),
            voters: voters.iter().map(voter).collect(),
            lost: lost.collect::<BTreeSet<_>>().into_iter().map(voter).collect(),
            is_alone,
        }
    }

    /// Those that could be taken back.
    fn others(&self) -> impl Iterator<Item = &Known> {
        let me = self.member.id();
        self.replica.known().filter(move |known| known.member != me && known.presence != Presence::Gone)
    }

    /// Makes this member the only one. Durable when this returns.
    ///
    /// # Errors
    /// [`RescueError::Store`]; [`RescueError::Stuck`] would be a defect.
    pub fn go_on_alone(mut self) -> Result<(), RescueError> {
        self.write()?;
        let mark = Action::Alone { member: self.member.id().0 }.encode();
        self.member.go_on_alone(mark.into()).ok_or(RescueError::Removed)?;
        let gone = self.others().flat_map(|known| {
            let departure = Departure { member: known.member.0, incarnation: known.incarnation.0 };
            [Action::Departed(departure), Action::Removed { member: known.member.0 }]
        });
        for action in gone.collect::<Vec<_>>() {
            self.member.propose(action.encode().into());
        }
        for round in 1..=ROUNDS {
            self.write()?;
            if self.member.undelivered() == 0 {
                return Ok(());
            }
            self.member.tick(Time(round * ROUND_US));
        }
        Err(RescueError::Stuck)
    }

    /// Writes what the member wants written, and says that it is durable.
    fn write(&mut self) -> Result<(), RescueError> {
        for effect in self.member.take_effects() {
            if let Effect::Append(record) = effect {
                self.store.append(&record)?;
                self.written.0 += 1;
            }
        }
        self.store.device().sync().map_err(StoreError::from)?;
        self.member.durable(self.written);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
