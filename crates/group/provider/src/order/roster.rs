//! The membership as this member sees it, for operators: `SHOW STATUS LIKE 'wsrep_group_member_%'`.
//!
//! No decision depends on it. It is updated every [`super::LOOK`], so it may be that old.

use super::Order;
use crate::replica::Known;
use crate::write_set::Seqno;
use redoubt_consensus::types::MemberId;
use redoubt_locks::IgnorePoison;
use serde::Serialize;
use std::time::Instant;

/// A member, for the status variables.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The member.
    pub member: MemberId,
    /// `wsrep_node_name`, or its id if no name is known.
    pub name: String,
    /// Address for other members.
    pub address: String,
    /// Address for clients.
    pub client_address: String,
    /// It is a voter.
    pub votes: bool,
    /// The group lists its server as present.
    pub is_there: bool,
    /// It owns slots.
    pub owns_slots: bool,
    /// How far its server has applied the order, by its last report.
    pub applied: Option<Seqno>,
    /// Time of the last contact. `None`: never in this incarnation of this member, or it is this member.
    pub heard_at: Option<Instant>,
    /// It is the reporting member itself.
    pub is_self: bool,
}

/// [`Seen`] as text. Users see these names.
#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    address: &'a str,
    client_address: &'a str,
    votes: bool,
    is_there: bool,
    owns_slots: bool,
    applied: Option<i64>,
    heard_ms: Option<u128>,
    is_self: bool,
}

impl Seen {
    /// A JSON object. `own_applied` is how far this server has applied by now.
    pub fn json(&self, own_applied: Seqno) -> String {
        let applied = if self.is_self { Some(own_applied) } else { self.applied };
        let shown = Shown {
            name: &self.name,
            address: &self.address,
            client_address: &self.client_address,
            votes: self.votes,
            is_there: self.is_there,
            owns_slots: self.owns_slots,
            applied: applied.map(|applied| applied.0),
            heard_ms: self.heard_at.map(|at| at.elapsed().as_millis()),
            is_self: self.is_self,
        };
        // Strings and numbers always serialise.
        serde_json::to_string(&shown).unwrap_or_default()
    }
}

impl Order {
    /// Publishes the membership for the status variables.
    pub(super) fn note_members(&self) {
        let known = self.known();
        let epoch = self.member.epoch();
        let there = known.iter().filter(|known| known.is_there()).map(|known| known.member);
        let mut members: Vec<MemberId> = epoch.membership.iter().chain(there).collect();
        members.sort_unstable();
        members.dedup();
        let seen = |member: MemberId| {
            let known = known.iter().find(|known| known.member == member);
            let text = |of: fn(&Known) -> &String| known.map(of).cloned().unwrap_or_default();
            let is_self = member == self.member.id();
            Seen {
                member,
                name: known.map_or_else(|| format!("member {member}"), |known| known.name.clone()),
                address: text(|known| &known.listen_address),
                client_address: text(|known| &known.incoming_address),
                votes: epoch.membership.contains(member),
                is_there: known.is_some_and(Known::is_there),
                owns_slots: epoch.owners.iter().any(|owner| owner.member == member),
                applied: self.parts.pace.applied_by(member),
                heard_at: self.hearing.heard_at(member).filter(|_| !is_self),
                is_self,
            }
        };
        let mut seen: Vec<Seen> = members.into_iter().map(seen).collect();
        seen.sort_by(|one, other| one.name.cmp(&other.name));
        *self.parts.status.members.lock().ignore_poison() = seen;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_kind_are_valid_json() {
        let seen = Seen {
            member: MemberId(1),
            name: "a \"b\"\n;".to_owned(),
            address: "10.0.0.1:4567".to_owned(),
            client_address: String::new(),
            votes: true,
            is_there: true,
            owns_slots: false,
            applied: Some(Seqno(3)),
            heard_at: None,
            is_self: true,
        };
        assert_eq!(
            seen.json(Seqno(7)),
            r#"{"name":"a \"b\"\n;","address":"10.0.0.1:4567","client_address":"","votes":true,"is_there":true,"owns_slots":false,"applied":7,"heard_ms":null,"is_self":true}"#
        );
    }
}
