//! The last member of a group whose others have lost their logs for good.
//!
//! Works on the log of a server that does not run: shows what is in it, and makes this server the only member. It keeps
//! all that this member has accepted, whether or not that was chosen. Commits that only the lost ones had are lost.
//!
//! Invariant: nothing is written before [`Rescue::go_on_alone`], and that is one record after the one of this life: a
//! process that ends between the two leaves the member as it was.

use crate::replica::{Known, Replica, ReplicaError};
use crate::session;
use crate::store::{Store, StoreError};
use crate::write_set::{Action, Seqno};
use redoubt_consensus::record::Record;
use redoubt_consensus::types::{MemberId, Time};
use redoubt_consensus::{Effect, Member, RecoverError, Settings};
use std::path::Path;

/// Why it cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum RescueError {
    /// The log.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The records do not fit.
    #[error("the group's log: {0}")]
    Recover(#[from] RecoverError),
    /// What was ordered.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// An entry of a newer library.
    #[error(
        "the group's log has an entry that cannot be read: {0}; use the library's own version of this command"
    )]
    Entry(String),
    /// There is none.
    #[error("{0} has no log of a group (redoubt_group.head.log): it is not the data directory of a member")]
    NoMember(String),
    /// Its data is no state.
    #[error(
        "this server was getting its state from another one when it ended: its data is not whole, and cannot be the \
         group's; take another server, or a backup"
    )]
    NoState,
    /// It was removed.
    #[error(
        "this member was removed from the group, so others went on without it: its data is not the group's"
    )]
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
}

/// See the module.
pub struct Rescue {
    store: Store,
    member: Member,
    replica: Replica,
}

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
        let mut member = Member::start(id, found.records, Settings::default(), Time(0))?;
        for effect in member.take_replayed() {
            if let Effect::Deliver { proposal, .. } = effect {
                let action =
                    Action::decode(&proposal.body).map_err(|error| RescueError::Entry(error.to_string()))?;
                replica.take(proposal.id, action);
            }
        }
        let rescue = Self { store, member, replica };
        if !rescue.member.epoch().membership.contains(id) {
            return Err(RescueError::Removed);
        }
        Ok(rescue)
    }

    /// What there is.
    pub fn report(&self) -> Report {
        let epoch = self.member.epoch();
        let known = |member: MemberId| self.replica.known().find(|known| known.member == member);
        let voter = |member| Voter {
            name: known(member).map(|known: &Known| known.name.clone()),
            address: known(member).map(|known: &Known| known.listen_address.clone()),
            is_self: member == self.member.id(),
        };
        Report {
            group: self.replica.group().to_string(),
            seqno: self.replica.seqno(),
            undecided: self.member.undecided(),
            reach: (epoch.ballot.round, self.member.end().0),
            voters: epoch.membership.iter().map(voter).collect(),
        }
    }

    /// Makes this member the only one. Durable when this returns.
    ///
    /// # Errors
    /// [`RescueError::Store`].
    pub fn go_on_alone(mut self) -> Result<(), RescueError> {
        self.write()?;
        if !self.member.go_on_alone() {
            return Err(RescueError::Removed);
        }
        self.write()
    }

    fn write(&mut self) -> Result<(), RescueError> {
        let effects = self.member.take_effects();
        let records = effects.iter().filter_map(|effect| match effect {
            Effect::Append(record) => Some(record),
            _ => None,
        });
        records.into_iter().try_for_each(|record: &Record| self.store.append(record))?;
        self.store.device().sync().map_err(StoreError::from)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
