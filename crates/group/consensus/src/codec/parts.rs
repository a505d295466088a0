//! Common parts of messages and records. The layout is in the module above.

use super::CodecError;
use super::bytes::{Coded, Reader, put};
use crate::message::{Opinion, Turns, Verdict};
use crate::origins::Origins;
use crate::record::Snapshot;
use crate::types::{
    Ballot, Entry, EpochStart, Incarnation, MemberId, Membership, Owner, Proposal, ProposalId, Slot,
};
use std::sync::Arc;

const PROPOSAL: u8 = 1;
const EPOCH: u8 = 2;

/// Numbers with a type of their own.
macro_rules! coded_numbers {
    ($($type:ident)*) => { $(
        impl Coded for $type {
            const MIN_LEN_BYTES: usize = 1;

            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
                u64::take(reader).map(Self)
            }
        }
    )* };
}

coded_numbers! { Slot MemberId Incarnation }

impl Coded for Ballot {
    const MIN_LEN_BYTES: usize = 2;

    fn put(&self, out: &mut Vec<u8>) {
        let Self { round, candidate } = self;
        put!(out: round, candidate);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            round: reader.field("round of a ballot")?,
            candidate: reader.field("candidate of a ballot")?,
        })
    }
}

impl Coded for Owner {
    const MIN_LEN_BYTES: usize = 2;

    fn put(&self, out: &mut Vec<u8>) {
        let Self { member, incarnation } = self;
        put!(out: member, incarnation);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self { member: reader.field("owner")?, incarnation: reader.field("incarnation of an owner")? })
    }
}

impl Coded for Membership {
    const MIN_LEN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        self.as_slice().len().put(out);
        for member in self.iter() {
            member.put(out);
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let offset = reader.offset();
        let members = reader.field("membership")?;
        Self::from_ascending(members).ok_or(CodecError::NotAscending { what: "membership", offset })
    }
}

impl Coded for EpochStart {
    const MIN_LEN_BYTES: usize = 6;

    fn put(&self, out: &mut Vec<u8>) {
        let Self { ballot, slot, previous, membership, owners } = self;
        put!(out: ballot, slot, previous, membership, owners);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            ballot: Ballot::take(reader)?,
            slot: reader.field("slot of an epoch")?,
            previous: Membership::take(reader)?,
            membership: Membership::take(reader)?,
            owners: reader.field("owners")?,
        })
    }
}

impl Coded for Arc<EpochStart> {
    const MIN_LEN_BYTES: usize = EpochStart::MIN_LEN_BYTES;

    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        EpochStart::take(reader).map(Self::new)
    }
}

impl Coded for Proposal {
    const MIN_LEN_BYTES: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        let Self { id: ProposalId { member, incarnation, number }, body } = self;
        // Reserves the length at once, so that `out` is moved as seldom as possible.
        out.reserve(body.len() + 4 * 10);
        put!(out: member, incarnation, number, body);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let id = ProposalId {
            member: reader.field("member of a proposal")?,
            incarnation: reader.field("incarnation of a proposal")?,
            number: reader.field("number of a proposal")?,
        };
        Ok(Self { id, body: reader.field("body of a proposal")? })
    }
}

impl Coded for (Slot, Entry) {
    const MIN_LEN_BYTES: usize = 2 + Proposal::MIN_LEN_BYTES;

    fn put(&self, out: &mut Vec<u8>) {
        let (slot, entry) = self;
        slot.put(out);
        match entry {
            Entry::Proposal(proposal) => {
                out.push(PROPOSAL);
                proposal.put(out);
            }
            Entry::EpochStart(start) => {
                out.push(EPOCH);
                start.put(out);
            }
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let slot = reader.field("slot of an entry")?;
        let entry = match reader.tag("entry")? {
            PROPOSAL => Entry::Proposal(Proposal::take(reader)?),
            EPOCH => Entry::EpochStart(Arc::take(reader)?),
            tag => return Err(reader.unknown(tag)),
        };
        Ok((slot, entry))
    }
}

impl Coded for Turns {
    const MIN_LEN_BYTES: usize = 3;

    fn put(&self, out: &mut Vec<u8>) {
        let Self { from, to, entries } = self;
        put!(out: from, to, entries);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            from: reader.field("first slot of turns")?,
            to: reader.field("end of turns")?,
            entries: reader.field("entries of turns")?,
        })
    }
}

impl Coded for Verdict {
    const MIN_LEN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::Bad => 1,
            Self::Keep => 2,
            Self::Good => 3,
        });
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        match reader.tag("verdict")? {
            1 => Ok(Self::Bad),
            2 => Ok(Self::Keep),
            3 => Ok(Self::Good),
            tag => Err(reader.unknown(tag)),
        }
    }
}

impl Coded for Opinion {
    const MIN_LEN_BYTES: usize = 3;

    fn put(&self, out: &mut Vec<u8>) {
        let Self { member, incarnation, verdict } = self;
        put!(out: member, incarnation, verdict);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            member: reader.field("member of an opinion")?,
            incarnation: reader.field("incarnation of an opinion")?,
            verdict: Verdict::take(reader)?,
        })
    }
}

/// An item of [`Origins`].
impl Coded for (MemberId, Incarnation, u64) {
    const MIN_LEN_BYTES: usize = 3;

    fn put(&self, out: &mut Vec<u8>) {
        let (member, incarnation, number) = self;
        put!(out: member, incarnation, number);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let member = reader.field("member of an origin")?;
        Ok((member, reader.field("incarnation of an origin")?, reader.field("number of an origin")?))
    }
}

impl Coded for Origins {
    const MIN_LEN_BYTES: usize = 2;

    fn put(&self, out: &mut Vec<u8>) {
        self.iter().len().put(out);
        for item in self.iter() {
            item.put(out);
        }
        self.members().put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let offset = reader.offset();
        let last: Vec<(MemberId, Incarnation, u64)> = reader.field("origins")?;
        if !last.is_sorted_by(|(member, ..), (next, ..)| member < next) {
            return Err(CodecError::NotAscending { what: "origins", offset });
        }
        let members = Membership::take(reader)?;
        Ok(Self::from_parts(last, members))
    }
}

impl Coded for Snapshot {
    const MIN_LEN_BYTES: usize =
        1 + EpochStart::MIN_LEN_BYTES + Origins::MIN_LEN_BYTES + Ballot::MIN_LEN_BYTES;

    fn put(&self, out: &mut Vec<u8>) {
        let Self { next, epoch, origins, as_of } = self;
        put!(out: next, epoch, origins, as_of);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            next: reader.field("slot after a snapshot")?,
            epoch: Arc::take(reader)?,
            origins: reader.field("origins")?,
            as_of: Ballot::take(reader)?,
        })
    }
}
