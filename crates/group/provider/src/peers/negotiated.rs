//! The members that have negotiated with this process, so that none of them is taken for a legacy member later.
//!
//! A legacy member ends a connection whose hello announces anything. So does a broken network, and so can an attacker
//! who resets connections. Therefore a member that has negotiated once gets a legacy hello only after it has sent one
//! itself, as after a return to an earlier build. Its incarnation is a newer one then, or 0: a member that has just
//! started greets before it knows its incarnation.
//!
//! Invariant: a member is never in both `members` and `legacy`.

use crate::frame::Hello;
use redoubt_consensus::types::{Incarnation, MemberId};
use std::collections::{BTreeSet, HashMap};

/// The members that have negotiated with this process.
#[derive(Default)]
pub(super) struct Negotiated {
    /// The newest known incarnation and the addresses of each.
    members: HashMap<MemberId, (Incarnation, BTreeSet<String>)>,
    /// Legacy members that were logged.
    legacy: BTreeSet<MemberId>,
}

impl Negotiated {
    /// A member has announced its versions. The incarnation is 0 if it is not known.
    pub(super) fn note(&mut self, member: MemberId, incarnation: Incarnation, address: &str) {
        self.legacy.remove(&member);
        let (newest, addresses) = self.members.entry(member).or_default();
        *newest = incarnation.max(*newest);
        addresses.insert(address.to_owned());
    }

    /// A member has sent a legacy hello. A restarted one may be of an earlier build now.
    pub(super) fn note_legacy_hello(&mut self, hello: &Hello) {
        let restarted =
            |newest: Incarnation| hello.incarnation == Incarnation::default() || hello.incarnation > newest;
        if self.members.get(&hello.member).is_some_and(|(newest, _)| restarted(*newest)) {
            self.members.remove(&hello.member);
        }
        if !self.members.contains_key(&hello.member) {
            // Another member had this address before.
            for (_, addresses) in self.members.values_mut() {
                addresses.remove(&hello.listen_address);
            }
        }
    }

    /// Whether a member at this address has negotiated.
    pub(super) fn has_address(&self, address: &str) -> bool {
        self.members.values().any(|(_, addresses)| addresses.contains(address))
    }

    /// A member has answered a legacy hello. Returns whether that is new, and must be logged.
    ///
    /// # Errors
    /// The reason why it is not taken for a legacy member.
    pub(super) fn note_legacy_answer(&mut self, member: MemberId) -> Result<bool, String> {
        if self.members.contains_key(&member) {
            let reason = "answered as an earlier build, but has negotiated versions with this server before; \
                          if it was downgraded, restart it";
            return Err(reason.into());
        }
        Ok(self.legacy.insert(member))
    }
}
