//! Messages and records by their tags. The layout is in the module above.

use super::CodecError;
use super::bytes::{Coded, Reader, put};
use crate::message::{Message, Progress};
use crate::record::{Record, Snapshot};
use crate::types::Ballot;
use std::sync::Arc;

/// Tags of messages.
mod message {
    pub(super) const PROGRESS: u8 = 1;
    pub(super) const PREPARE: u8 = 2;
    pub(super) const PROMISE: u8 = 3;
    pub(super) const REFUSE: u8 = 4;
    pub(super) const ADOPT: u8 = 5;
    pub(super) const NEED_PREFIX: u8 = 6;
    pub(super) const FETCH: u8 = 7;
    pub(super) const CHOSEN: u8 = 8;
    pub(super) const GIVEN_UP: u8 = 9;
    pub(super) const FORWARD: u8 = 10;
    pub(super) const BARRIER_ASK: u8 = 11;
    pub(super) const BARRIER_ANSWER: u8 = 12;
}

/// Tags of records: others than those of messages.
mod record {
    pub(super) const STARTED: u8 = 65;
    pub(super) const PROMISED: u8 = 66;
    pub(super) const SNAPSHOT: u8 = 67;
    pub(super) const ADOPTED: u8 = 68;
    pub(super) const ACCEPTED: u8 = 69;
    pub(super) const CHOSEN: u8 = 70;
    pub(super) const DELIVERED: u8 = 71;
}

/// Appends a tag, and the fields after it in their order.
macro_rules! put_tagged {
    ($out:ident: $tag:path, $($field:expr),*) => {{
        $out.push($tag);
        put!($out: $($field),*);
    }};
}

impl Coded for Progress {
    const MIN_LEN_BYTES: usize = 8;

    fn put(&self, out: &mut Vec<u8>) {
        let Self { incarnation, epoch, turns, acked, delivered, is_willing, opinions } = self;
        put!(out: incarnation, epoch, turns, acked, delivered, is_willing, opinions);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            incarnation: reader.field("incarnation")?,
            epoch: Ballot::take(reader)?,
            turns: reader.field("whether there are turns")?,
            acked: reader.field("acknowledged slots")?,
            delivered: reader.field("delivered slot")?,
            is_willing: reader.field("whether it is willing")?,
            opinions: reader.field("opinions")?,
        })
    }
}

impl Coded for Message {
    const MIN_LEN_BYTES: usize = 2;

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Progress(progress) => put_tagged!(out: message::PROGRESS, progress),
            Self::Prepare { ballot, epoch, frontiers, delivered } => {
                put_tagged!(out: message::PREPARE, ballot, epoch, frontiers, delivered);
            }
            Self::Promise { ballot, epoch, frontiers, delivered, settled, entries } => {
                put_tagged!(out: message::PROMISE, ballot, epoch, frontiers, delivered, settled, entries);
            }
            Self::Refuse { promised } => put_tagged!(out: message::REFUSE, promised),
            Self::Adopt { start, from, entries } => put_tagged!(out: message::ADOPT, start, from, entries),
            Self::NeedPrefix { ballot, delivered } => {
                put_tagged!(out: message::NEED_PREFIX, ballot, delivered);
            }
            Self::Fetch { from } => put_tagged!(out: message::FETCH, from),
            Self::Chosen { from, to, entries, as_of } => {
                put_tagged!(out: message::CHOSEN, from, to, entries, as_of)
            }
            Self::GivenUp { base } => put_tagged!(out: message::GIVEN_UP, base),
            Self::Forward { proposals } => put_tagged!(out: message::FORWARD, proposals),
            Self::BarrierAsk { nonce } => put_tagged!(out: message::BARRIER_ASK, nonce),
            Self::BarrierAnswer { nonce, epoch, to } => {
                put_tagged!(out: message::BARRIER_ANSWER, nonce, epoch, to);
            }
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(match reader.tag("message")? {
            message::PROGRESS => Self::Progress(Progress::take(reader)?),
            message::PREPARE => Self::Prepare {
                ballot: Ballot::take(reader)?,
                epoch: Ballot::take(reader)?,
                frontiers: reader.field("frontiers")?,
                delivered: reader.field("delivered slot")?,
            },
            message::PROMISE => Self::Promise {
                ballot: Ballot::take(reader)?,
                epoch: Arc::take(reader)?,
                frontiers: reader.field("frontiers")?,
                delivered: reader.field("delivered slot")?,
                settled: Ballot::take(reader)?,
                entries: reader.field("entries")?,
            },
            message::REFUSE => Self::Refuse { promised: Ballot::take(reader)? },
            message::ADOPT => Self::Adopt {
                start: Arc::take(reader)?,
                from: reader.field("first slot")?,
                entries: reader.field("entries")?,
            },
            message::NEED_PREFIX => {
                Self::NeedPrefix { ballot: Ballot::take(reader)?, delivered: reader.field("delivered slot")? }
            }
            message::FETCH => Self::Fetch { from: reader.field("first slot")? },
            message::CHOSEN => Self::Chosen {
                from: reader.field("first slot")?,
                to: reader.field("end of what was chosen")?,
                entries: reader.field("entries")?,
                as_of: Ballot::take(reader)?,
            },
            message::GIVEN_UP => Self::GivenUp { base: reader.field("first slot that is kept")? },
            message::FORWARD => Self::Forward { proposals: reader.field("proposals")? },
            message::BARRIER_ASK => Self::BarrierAsk { nonce: reader.field("nonce")? },
            message::BARRIER_ANSWER => Self::BarrierAnswer {
                nonce: reader.field("nonce")?,
                epoch: Ballot::take(reader)?,
                to: reader.field("end of the log")?,
            },
            tag => return Err(reader.unknown(tag)),
        })
    }
}

impl Coded for Record {
    const MIN_LEN_BYTES: usize = 2;

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Started(incarnation) => put_tagged!(out: record::STARTED, incarnation),
            Self::Promised(ballot) => put_tagged!(out: record::PROMISED, ballot),
            Self::Snapshot(snapshot) => put_tagged!(out: record::SNAPSHOT, snapshot),
            Self::Adopted { start, from, entries } => put_tagged!(out: record::ADOPTED, start, from, entries),
            Self::Accepted { epoch, owner, turns } => put_tagged!(out: record::ACCEPTED, epoch, owner, turns),
            Self::Chosen { from, to, entries } => put_tagged!(out: record::CHOSEN, from, to, entries),
            Self::Delivered(slot) => put_tagged!(out: record::DELIVERED, slot),
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(match reader.tag("record")? {
            record::STARTED => Self::Started(reader.field("incarnation")?),
            record::PROMISED => Self::Promised(Ballot::take(reader)?),
            record::SNAPSHOT => Self::Snapshot(Snapshot::take(reader)?),
            record::ADOPTED => Self::Adopted {
                start: Arc::take(reader)?,
                from: reader.field("first slot")?,
                entries: reader.field("entries")?,
            },
            record::ACCEPTED => Self::Accepted {
                epoch: Ballot::take(reader)?,
                owner: reader.field("place of an owner")?,
                turns: reader.field("turns")?,
            },
            record::CHOSEN => Self::Chosen {
                from: reader.field("first slot")?,
                to: reader.field("end of what was chosen")?,
                entries: reader.field("entries")?,
            },
            record::DELIVERED => Self::Delivered(reader.field("delivered slot")?),
            tag => return Err(reader.unknown(tag)),
        })
    }
}
