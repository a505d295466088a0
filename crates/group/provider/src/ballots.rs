//! Votes about write sets and definitions that a member could not apply: whose data is right is what most members have.
//!
//! A state machine without I/O, and a part of what the order means ([`crate::replica`]): votes are entries of the
//! order, so all members decide the same. A member that could do it does not vote unless it is asked: the first vote
//! that names an error opens a ballot, in which all vote that are there. It is decided when one code has more than half
//! of them, or when all have voted: then the most votes count, and of those with as many the one of success, or else
//! the lowest. Who goes, or begins a new life, does not vote any more.
//!
//! | encoded | |
//! |---|---|
//! | open ballots | count (4 bytes); each: number (8), members that may vote: count (4), ids (8 each); votes: count (4), id and code (8 each) |
//! | decided ones | count (4), numbers (8 each) |
//!
//! Numbers and ids ascend, so that the same ballots are the same bytes.

use crate::bytes::{BytesError, Reader};
use crate::write_set::Seqno;
use redoubt_consensus::types::MemberId;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// So many decided ones are known as such. A vote about an older one opens it again, which decides the same unless the
/// members are others now.
const MAX_DECIDED: usize = 1024;

/// How applying something went: what all must have alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Code(pub i64);

impl Code {
    /// It was done.
    pub const DONE: Self = Self(0);

    /// Of the server's words about its error; empty: there was none. The same words are the same code.
    pub fn of(error: &[u8]) -> Self {
        if error.is_empty() {
            return Self::DONE;
        }
        // Never that of success.
        Self((twox_hash::XxHash3_64::oneshot(error) | 1).cast_signed())
    }
}

/// What an entry of the order did to the ballots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// A member could not do this one: all are asked how it went.
    Opened(Seqno),
    /// So it had to go.
    Decided(Seqno, Code),
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Ballot {
    voters: BTreeSet<MemberId>,
    votes: BTreeMap<MemberId, Code>,
}

impl Ballot {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, BytesError> {
        let mut ballot = Self::default();
        for _ in 0..reader.u32()? {
            let voter = MemberId(reader.u64()?);
            if ballot.voters.last().is_some_and(|last| *last >= voter) {
                return Err(reader.unknown());
            }
            ballot.voters.insert(voter);
        }
        for _ in 0..reader.u32()? {
            let voter = MemberId(reader.u64()?);
            let is_next = ballot.votes.last_key_value().is_none_or(|(last, _)| *last < voter);
            if !is_next || !ballot.voters.contains(&voter) {
                return Err(reader.unknown());
            }
            ballot.votes.insert(voter, Code(i64::from_le_bytes(reader.array()?)));
        }
        Ok(ballot)
    }

    fn decision(&self) -> Option<Code> {
        let mut counts: BTreeMap<Code, usize> = BTreeMap::new();
        for code in self.votes.values() {
            *counts.entry(*code).or_default() += 1;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        let is_decided = most * 2 > self.voters.len() || self.votes.len() == self.voters.len();
        let mut best = counts.into_iter().filter(|(_, count)| *count == most).map(|(code, _)| code);
        let lowest = best.next().filter(|_| is_decided)?;
        Some(if best.any(|code| code == Code::DONE) { Code::DONE } else { lowest })
    }
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ballots {
    open: BTreeMap<Seqno, Ballot>,
    decided: BTreeSet<Seqno>,
}

impl Ballots {
    /// A member says how one went; `present` are those that are there.
    pub fn vote(
        &mut self,
        member: MemberId,
        seqno: Seqno,
        code: Code,
        present: impl IntoIterator<Item = MemberId>,
    ) -> Vec<News> {
        let mut news = Vec::new();
        if self.decided.contains(&seqno) {
            return news;
        }
        let ballot = match self.open.entry(seqno) {
            Entry::Occupied(ballot) => ballot.into_mut(),
            Entry::Vacant(_) if code == Code::DONE => return news,
            Entry::Vacant(place) => {
                news.push(News::Opened(seqno));
                place.insert(Ballot { voters: present.into_iter().collect(), ..Ballot::default() })
            }
        };
        if ballot.voters.contains(&member) {
            ballot.votes.entry(member).or_insert(code);
        }
        news.extend(self.decide());
        news
    }

    /// A member is not there any more, or is in a new life.
    pub fn gone(&mut self, member: MemberId) -> Vec<News> {
        for ballot in self.open.values_mut() {
            ballot.voters.remove(&member);
            ballot.votes.remove(&member);
        }
        self.open.retain(|_, ballot| !ballot.voters.is_empty());
        self.decide()
    }

    fn decide(&mut self) -> Vec<News> {
        let decision = |(seqno, ballot): (&Seqno, &Ballot)| Some((*seqno, ballot.decision()?));
        let decisions: Vec<(Seqno, Code)> = self.open.iter().filter_map(decision).collect();
        for (seqno, _) in &decisions {
            self.open.remove(seqno);
            self.decided.insert(*seqno);
        }
        while self.decided.len() > MAX_DECIDED {
            self.decided.pop_first();
        }
        decisions.into_iter().map(|(seqno, code)| News::Decided(seqno, code)).collect()
    }

    /// As bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let put_count =
            |out: &mut Vec<u8>, count: usize| out.extend_from_slice(&(count as u32).to_le_bytes());
        put_count(out, self.open.len());
        for (seqno, ballot) in &self.open {
            out.extend_from_slice(&seqno.0.to_le_bytes());
            put_count(out, ballot.voters.len());
            for voter in &ballot.voters {
                out.extend_from_slice(&voter.0.to_le_bytes());
            }
            put_count(out, ballot.votes.len());
            for (voter, code) in &ballot.votes {
                out.extend_from_slice(&voter.0.to_le_bytes());
                out.extend_from_slice(&code.0.to_le_bytes());
            }
        }
        put_count(out, self.decided.len());
        for seqno in &self.decided {
            out.extend_from_slice(&seqno.0.to_le_bytes());
        }
    }

    /// The other way round.
    ///
    /// # Errors
    /// The bytes are none of it.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, BytesError> {
        let mut ballots = Self::default();
        for _ in 0..reader.u32()? {
            let seqno = read_seqno(reader)?;
            if ballots.open.last_key_value().is_some_and(|(last, _)| *last >= seqno) {
                return Err(reader.unknown());
            }
            ballots.open.insert(seqno, Ballot::decode(reader)?);
        }
        for _ in 0..reader.u32()? {
            let seqno = read_seqno(reader)?;
            if ballots.decided.last().is_some_and(|last| *last >= seqno)
                || ballots.decided.len() == MAX_DECIDED
            {
                return Err(reader.unknown());
            }
            ballots.decided.insert(seqno);
        }
        Ok(ballots)
    }
}

fn read_seqno(reader: &mut Reader<'_>) -> Result<Seqno, BytesError> {
    Ok(Seqno(i64::from_le_bytes(reader.array()?)))
}

#[cfg(test)]
mod tests;
