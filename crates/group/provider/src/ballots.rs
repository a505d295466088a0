//! Inconsistency votes on write sets and definitions that a member failed to apply: the majority's data is right.
//!
//! A state machine without I/O, and a part of the replicated state ([`crate::replica`]). Votes are entries of the
//! order, so all members decide alike. A member that succeeded only votes on request. The first vote with an error
//! opens a ballot, in which all present members vote. It is decided when one code has more than half of the members, or
//! when all have voted. Then the code with the most votes wins; among equal ones success wins, or else the lowest code.
//! A member that leaves, or begins a new incarnation, loses its vote.
//!
//! | encoded | |
//! |---|---|
//! | open ballots | count (4 bytes); each: number (8), voters: count (4), ids (8 each); votes: count (4), id and code
//! (8 each) |
//! | decided ballots | count (4), numbers (8 each) |
//!
//! Numbers and ids ascend, so that equal ballots have equal bytes.

use crate::bytes::{BytesError, Reader};
use crate::write_set::Seqno;
use redoubt_consensus::types::MemberId;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Number of remembered decisions. A vote on an older one opens the ballot again. The decision is then the same, unless
/// the members have changed.
const MAX_DECIDED: usize = 1024;

/// Outcome of applying an entry, which must be the same on all members.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Code(pub i64);

impl Code {
    /// Success.
    pub const DONE: Self = Self(0);

    /// The code of the server's error text; empty: success. Equal texts have equal codes.
    pub fn of(error: &[u8]) -> Self {
        if error.is_empty() {
            return Self::DONE;
        }
        // Never the code of success.
        Self((twox_hash::XxHash3_64::oneshot(error) | 1).cast_signed())
    }
}

/// Effect of an entry of the order on the ballots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// A member failed to apply this entry: all members vote.
    Opened(Seqno),
    /// The outcome that all members must have.
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

/// All ballots of a group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ballots {
    open: BTreeMap<Seqno, Ballot>,
    decided: BTreeSet<Seqno>,
}

impl Ballots {
    /// Records a member's vote. `present` are the present members.
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

    /// Removes a member that is absent, or has a new incarnation.
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

    /// Appends the encoded ballots.
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

    /// Decodes ballots.
    ///
    /// # Errors
    /// The bytes are not valid ballots.
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
