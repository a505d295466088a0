//! The replicated state machine: sequence numbers, verdicts and presence. The same at every member.
//!
//! It has no I/O: it takes the entries of the order one by one and returns their meaning. Write sets, DDL and changes
//! of the view take the next sequence number; everything else takes none.
//!
//! Presence is independent of voting. A member is present from its `Arrived` to a `Departed` of the same incarnation,
//! and servers show this as the group's view. Voters and slot owners belong to the consensus below, and change within
//! milliseconds; a view changes when a server has come or gone.
//!
//! # Parts of transactions
//!
//! A large transaction may come in parts, and every server holds the rows of the parts until the transaction ends. When
//! a view without the member is shown, all servers roll the transaction back, and so does the member's own when it gets
//! to this view. So no part may pass that the member sent before it processed that view. A part is refused while its
//! member is absent, or if its `last_seen` is before the last view without the member.
//!
//! | encoded | |
//! |---|---|
//! | version | 1 byte: 4, or 5 if a member has continued alone (added later); 3, without `absent at`, is read, too |
//! | history | with version 5 only: its own format ([`crate::history`]) |
//! | group | 16 bytes |
//! | sequence number, number of the view | 8 bytes each |
//! | known servers | count (4 bytes), then the fields of each, see below |
//! | ballots | their own format ([`crate::ballots`]) |
//! | certification | the rest: its own format |
//!
//! Fields of a known server: member and incarnation (8 bytes each), presence (1 byte: 0 gone, 1 there, 2 left, 3 away),
//! absent at (8 bytes), name, address for clients, address for members.

use crate::abi::Uuid;
use crate::ballots::{Ballots, Code, News};
use crate::bytes::{BytesError, Reader, put_bytes};
use crate::certification::{Certification, Origin, Verdict};
use crate::history::{Alone, History};
use crate::write_set::{Action, Keys, Seqno, WriteSet};
use redoubt_consensus::types::{Incarnation, MemberId, ProposalId};
use std::collections::BTreeMap;

const VERSION: u8 = 4;
/// Version of groups in which a member has continued alone.
const VERSION_OF_HISTORY: u8 = 5;
/// Version from before parts of transactions.
const VERSION_WITHOUT_PARTS: u8 = 3;
/// Limit of valid numbers: no group gets there, and every number up to here has successors.
const MAX_NUMBER: i64 = i64::MAX / 2;

/// Id of a group, for as long as any of its data exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupId(pub [u8; 16]);

impl std::fmt::Display for GroupId {
    /// As servers show it (`wsrep_cluster_state_uuid`).
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            write!(out, "{}{byte:02x}", if [4, 6, 8, 10].contains(&index) { "-" } else { "" })?;
        }
        Ok(())
    }
}

/// Presence of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// It is present.
    There,
    /// It has left by itself.
    Left,
    /// The others have declared it gone after a long silence.
    Gone,
    /// Another member continued alone without it. It may return, even without a restart.
    Away,
}

/// A server that is or was present.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// The member.
    pub member: MemberId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Its name, for display.
    pub name: String,
    /// Address for clients.
    pub incoming_address: String,
    /// Address for other members.
    pub listen_address: String,
    /// Its presence.
    pub presence: Presence,
    /// Position of the last view without this incarnation, since it was first present; 0: none.
    pub absent_at: Seqno,
}

impl Known {
    /// An incarnation of which nothing else is known.
    pub const fn unnamed(member: MemberId, incarnation: Incarnation) -> Self {
        Self {
            member,
            incarnation,
            name: String::new(),
            incoming_address: String::new(),
            listen_address: String::new(),
            presence: Presence::Gone,
            absent_at: Seqno(0),
        }
    }

    /// Whether it is present.
    pub fn is_there(&self) -> bool {
        self.presence == Presence::There
    }
}

/// The present servers, from a position on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// The position.
    pub seqno: Seqno,
    /// Number of the view.
    pub number: i64,
    /// Sorted by id, and thus by UUID ([`uuid_of`]): the server derives `auto_increment_offset` from a member's index
    /// here, or, after a state transfer, from a table of its own that is sorted by UUID.
    pub members: Vec<Known>,
}

/// Meaning of an entry of the order.
#[derive(Debug)]
pub enum Ordered {
    /// A transaction, or DDL.
    WriteSet {
        /// Its sequence number.
        seqno: Seqno,
        /// The write set.
        write_set: WriteSet,
        /// Its verdict.
        verdict: Verdict,
    },
    /// A change of the view.
    View(View),
    /// An entry without a sequence number.
    Nothing,
}

/// Reason why bytes are not a valid state.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// The format is invalid.
    #[error("invalid state of the group: {0}")]
    Bytes(#[from] BytesError),
    /// Written by another version.
    #[error(
        "unknown version {0} of the group's state; this library reads versions {VERSION_WITHOUT_PARTS} to \
         {VERSION_OF_HISTORY}"
    )]
    Version(u8),
    /// Its parts are at different positions.
    #[error("positions of the group's state differ: {seqno}, of its certification {certified}")]
    Apart {
        /// Position of the state.
        seqno: i64,
        /// Position of the certification.
        certified: i64,
    },
    /// The certification part is invalid.
    #[error("the state of the group: {0}")]
    Certification(String),
}

/// The replicated state machine of a group.
pub struct Replica {
    group: GroupId,
    history: History,
    seqno: Seqno,
    view: i64,
    known: BTreeMap<MemberId, Known>,
    ballots: Ballots,
    news: Vec<News>,
    certification: Certification,
}

/// The server's UUID for an incarnation of a member.
pub fn uuid_of(member: MemberId, incarnation: Incarnation) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&member.0.to_be_bytes());
    bytes[8..].copy_from_slice(&incarnation.0.to_be_bytes());
    Uuid(bytes)
}

/// Certification's origin for an incarnation of a member. Two incarnations never have transactions under way at the
/// same time, so equal origins would do no harm.
const fn origin_of(member: MemberId, incarnation: Incarnation) -> Origin {
    Origin(member.0.wrapping_add(incarnation.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

impl Replica {
    /// The state of a group without any entries.
    pub fn new(group: GroupId, certification: Certification) -> Self {
        Self {
            group,
            history: History::default(),
            seqno: Seqno(0),
            view: 0,
            known: BTreeMap::new(),
            ballots: Ballots::default(),
            news: Vec::new(),
            certification,
        }
    }

    /// The group.
    pub const fn group(&self) -> GroupId {
        self.group
    }

    /// Members that continued alone.
    pub const fn history(&self) -> &History {
        &self.history
    }

    /// The last assigned sequence number.
    pub const fn seqno(&self) -> Seqno {
        self.seqno
    }

    /// The current view.
    pub fn view(&self) -> View {
        let members = self.known.values().filter(|known| known.is_there()).cloned().collect();
        View { seqno: self.seqno, number: self.view, members }
    }

    /// All present and former servers, by member id.
    pub fn known(&self) -> impl Iterator<Item = &Known> {
        self.known.values()
    }

    /// The certification, whose evictions and floor are status variables.
    pub fn certification(&self) -> &Certification {
        &self.certification
    }

    /// Ballot events since the last call.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Applies the next entry.
    pub fn take(&mut self, id: ProposalId, action: Action) -> Ordered {
        match action {
            Action::WriteSet(write_set) => {
                self.seqno.0 += 1;
                let verdict = match self.is_broken_off(id, &write_set) {
                    true => self.certification.refuse(self.seqno),
                    false => {
                        let origin = origin_of(id.member, id.incarnation);
                        self.certification.certify(self.seqno, origin, &write_set)
                    }
                };
                Ordered::WriteSet { seqno: self.seqno, write_set, verdict }
            }
            Action::Arrived(arrival) => {
                self.replace_away(id.member, &arrival.listen_address);
                let before = self.known.get(&id.member).filter(|known| known.incarnation == id.incarnation);
                let absent_at = before.map_or(Seqno(0), |before| before.absent_at);
                let known = Known {
                    absent_at,
                    member: id.member,
                    incarnation: id.incarnation,
                    name: arrival.name,
                    incoming_address: arrival.incoming_address,
                    listen_address: arrival.listen_address,
                    presence: Presence::There,
                };
                // Another incarnation has not done what the ballot is about.
                let before = self.known.insert(id.member, known);
                if before.is_some_and(|before| before.incarnation != id.incarnation) {
                    self.news.extend(self.ballots.gone(id.member));
                }
                Ordered::View(self.next_view())
            }
            Action::Departed(departure) => {
                let member = MemberId(departure.member);
                let incarnation = Incarnation(departure.incarnation);
                let is_it = |known: &&mut Known| known.is_there() && known.incarnation == incarnation;
                let Some(known) = self.known.get_mut(&member).filter(is_it) else { return Ordered::Nothing };
                known.presence = if id.member == member { Presence::Left } else { Presence::Gone };
                self.news.extend(self.ballots.gone(member));
                Ordered::View(self.next_view())
            }
            Action::Removed { member } => {
                let left = |known: &&mut Known| matches!(known.presence, Presence::Left | Presence::Away);
                if let Some(known) = self.known.get_mut(&MemberId(member)).filter(left) {
                    known.presence = Presence::Gone;
                }
                Ordered::Nothing
            }
            Action::Alone { member } => self.go_on_alone(MemberId(member), id.incarnation),
            Action::Vote { seqno, code } => {
                let present = self.known.values().filter(|known| known.is_there()).map(|known| known.member);
                self.news.extend(self.ballots.vote(id.member, seqno, Code(code), present));
                Ordered::Nothing
            }
        }
    }

    /// Marks all other present members as away.
    fn go_on_alone(&mut self, member: MemberId, round: Incarnation) -> Ordered {
        self.history.add(Alone { member, round: round.0 });
        let others = |known: &&mut Known| known.member != member && known.is_there();
        let mut away = Vec::new();
        for other in self.known.values_mut().filter(others) {
            other.presence = Presence::Away;
            away.push(other.member);
        }
        if away.is_empty() {
            return Ordered::Nothing;
        }
        away.into_iter().for_each(|other| self.news.extend(self.ballots.gone(other)));
        Ordered::View(self.next_view())
    }

    /// Marks an away member as gone when a new member has arrived at its address.
    fn replace_away(&mut self, by: MemberId, listen_address: &str) {
        let is_replaced = |known: &&mut Known| {
            known.presence == Presence::Away && known.member != by && known.listen_address == listen_address
        };
        self.known.values_mut().filter(is_replaced).for_each(|known| known.presence = Presence::Gone);
    }

    /// Whether it is a part of a transaction that was rolled back, or was sent before its server processed that.
    fn is_broken_off(&self, id: ProposalId, write_set: &WriteSet) -> bool {
        if !write_set.is_part() || write_set.rolls_back() {
            return false;
        }
        let life = self.known.get(&id.member).filter(|known| known.incarnation == id.incarnation);
        !life.is_some_and(|known| known.is_there() && write_set.last_seen >= known.absent_at)
    }

    /// Begins the next view. Later write sets depend on it, as on DDL.
    fn next_view(&mut self) -> View {
        self.seqno.0 += 1;
        self.view += 1;
        for known in self.known.values_mut().filter(|known| !known.is_there()) {
            known.absent_at = self.seqno;
        }
        let barrier = WriteSet {
            transaction_id: 0,
            connection_id: 0,
            flags: WriteSet::ISOLATION,
            last_seen: Seqno(self.seqno.0 - 1),
            keys: Keys::default(),
            data: Vec::new(),
        };
        self.certification.certify(self.seqno, Origin(0), &barrier);
        self.view()
    }

    /// Encodes the state.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.history.is_empty() {
            out.push(VERSION);
        } else {
            out.push(VERSION_OF_HISTORY);
            self.history.encode(&mut out);
        }
        out.extend_from_slice(&self.group.0);
        out.extend_from_slice(&self.seqno.0.to_le_bytes());
        out.extend_from_slice(&self.view.to_le_bytes());
        out.extend_from_slice(&(self.known.len() as u32).to_le_bytes());
        for known in self.known.values() {
            out.extend_from_slice(&known.member.0.to_le_bytes());
            out.extend_from_slice(&known.incarnation.0.to_le_bytes());
            out.push(match known.presence {
                Presence::Gone => 0,
                Presence::There => 1,
                Presence::Left => 2,
                Presence::Away => 3,
            });
            out.extend_from_slice(&known.absent_at.0.to_le_bytes());
            put_bytes(&mut out, known.name.as_bytes());
            put_bytes(&mut out, known.incoming_address.as_bytes());
            put_bytes(&mut out, known.listen_address.as_bytes());
        }
        self.ballots.encode(&mut out);
        self.certification.encode(&mut out);
        out
    }

    /// Decodes a state.
    ///
    /// # Errors
    /// The bytes are not a valid state.
    pub fn decode(bytes: &[u8]) -> Result<Self, ReplicaError> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8()?;
        if !(VERSION_WITHOUT_PARTS..=VERSION_OF_HISTORY).contains(&version) {
            return Err(ReplicaError::Version(version));
        }
        let history = match version {
            VERSION_OF_HISTORY => History::decode(&mut reader)?,
            _ => History::default(),
        };
        if history.is_empty() && version == VERSION_OF_HISTORY {
            return Err(reader.unknown().into());
        }
        let group = GroupId(reader.array()?);
        let seqno = Seqno(i64::from_le_bytes(reader.array()?));
        let view = i64::from_le_bytes(reader.array()?);
        if !(0..=MAX_NUMBER).contains(&seqno.0) || !(0..=MAX_NUMBER).contains(&view) {
            return Err(reader.unknown().into());
        }
        let count = reader.u32()?;
        let mut known = BTreeMap::new();
        for _ in 0..count {
            let member = MemberId(reader.u64()?);
            if known.last_key_value().is_some_and(|(last, _)| *last >= member) {
                return Err(reader.unknown().into());
            }
            let incarnation = Incarnation(reader.u64()?);
            let presence = match reader.u8()? {
                0 => Presence::Gone,
                1 => Presence::There,
                2 => Presence::Left,
                3 if !history.is_empty() => Presence::Away,
                _ => return Err(reader.unknown().into()),
            };
            let absent_at = match version {
                VERSION_WITHOUT_PARTS => Seqno(0),
                _ => Seqno(i64::from_le_bytes(reader.array()?)),
            };
            if !(0..=seqno.0).contains(&absent_at.0) {
                return Err(reader.unknown().into());
            }
            let (name, incoming_address, listen_address) = (reader.text()?, reader.text()?, reader.text()?);
            known.insert(
                member,
                Known { member, incarnation, name, incoming_address, listen_address, presence, absent_at },
            );
        }
        let ballots = Ballots::decode(&mut reader)?;
        let certification = Certification::decode(reader.rest())
            .map_err(|error| ReplicaError::Certification(error.to_string()))?;
        let certified = certification.last();
        if certified != seqno {
            return Err(ReplicaError::Apart { seqno: seqno.0, certified: certified.0 });
        }
        Ok(Self { group, history, seqno, view, known, ballots, news: Vec::new(), certification })
    }
}

#[cfg(test)]
mod tests;
