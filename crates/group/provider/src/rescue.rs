//! Makes the last member of a group the only one, after the others have lost their logs for good.
//!
//! It works on the log of a stopped server: it shows the content, and makes this server the only member. Everything
//! that this member has accepted is kept, chosen or not. Commits that only the lost members had are lost.
//!
//! The other members are marked as gone. So none of them returns with its own data of the group, which may have another
//! history.
//!
//! Invariant: no record is written before [`Rescue::go_on_alone`]. (Like a start, opening the log truncates what a
//! crash left half-written, and may create a spare file.) A process that ends during that call leaves the member
//! unchanged, or as the only one. Another call then does the rest.

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

/// Reason why a rescue fails.
#[derive(Debug, thiserror::Error)]
pub enum RescueError {
    /// The log failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The records are invalid.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The stored state is invalid.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// An entry of a newer library.
    #[error(
        "cannot read an entry of the group's log: {0}; use the version of this command that belongs to the \
         library"
    )]
    Entry(String),
    /// There is no member.
    #[error("{0} has no log of a group (redoubt_group.head.log): it is not the data directory of a member")]
    NoMember(String),
    /// The data is not a complete state.
    #[error(
        "the data of this server is incomplete: it stopped during a state transfer (SST); use another server, \
         or a backup"
    )]
    NoState,
    /// The consensus makes no progress.
    #[error("a proposal of the only member was not chosen; this is a defect of Redoubt: report it")]
    Stuck,
    /// The member was removed.
    #[error("this member was removed from the group, which continued without it; its data is out of date")]
    Removed,
}

/// A voter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Voter {
    /// `wsrep_node_name`, if it is known.
    pub name: Option<String>,
    /// Address for other members, if it is known.
    pub address: Option<String>,
    /// It is this member.
    pub is_self: bool,
}

/// Contents of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The group, as servers show it (`wsrep_cluster_state_uuid`).
    pub group: String,
    /// Sequence number of the last write set that is known to be chosen.
    pub seqno: Seqno,
    /// Number of later entries of this member for which it is unknown whether a majority has them.
    pub undecided: usize,
    /// Progress, to compare two members: round of the epoch, and end of the log.
    pub reach: (u64, u64),
    /// All voters.
    pub voters: Vec<Voter>,
    /// All other members that vote, or could return.
    pub lost: Vec<Voter>,
    /// There is nothing to do: it is the only voter, and waits for no other member. Others may have left cleanly.
    pub is_alone: bool,
}

/// Makes the last member of a group the only one, after the others have lost their logs for good.
pub struct Rescue {
    store: Store,
    member: Member,
    replica: Replica,
    written: RecordCount,
}

/// Maximum number of ticks until all proposals of the member are chosen, and the time per tick.
const ROUNDS: u64 = 1000;
const ROUND_US: u64 = 5000;

impl Rescue {
    /// Reads the log in a server's data directory. The server must not run.
    ///
    /// # Errors
    /// [`RescueError`].
    pub fn open(directory: &Path) -> Result<Self, RescueError> {
        let none = || RescueError::NoMember(directory.display().to_string());
        // Opening a store would create the directory.
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

    /// The contents of the log.
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

    /// Other members that could return.
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

    /// Appends the records of the member, and reports them as durable.
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
