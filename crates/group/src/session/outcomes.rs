//! Whether what was done here is what was done where it came from.
//!
//! A row change that cannot be applied is a difference: its origin could. DDL may fail everywhere, and then nothing is
//! wrong; so the origin says in the order how its own went, and who had it otherwise has other data than the origin.

use crate::write_set::Seqno;
use std::collections::BTreeMap;

/// What is kept at most of those that only one side has told of: an origin may be gone before it says.
const MAX_KEPT: usize = 1000;

/// How one definition went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It failed.
    Failed,
}

impl Outcome {
    /// As the order has it: 0 for what was done.
    pub const fn code(self) -> i64 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
        }
    }

    /// The other way round.
    pub const fn from_code(code: i64) -> Self {
        if code == 0 { Self::Done } else { Self::Failed }
    }

    /// With an error, or without.
    pub const fn of(is_error: bool) -> Self {
        if is_error { Self::Failed } else { Self::Done }
    }
}

/// Those that one side has told of.
#[derive(Debug, Default)]
pub struct Outcomes {
    here: BTreeMap<Seqno, Outcome>,
    at_origin: BTreeMap<Seqno, Outcome>,
}

fn compare(
    seqno: Seqno,
    outcome: Outcome,
    others: &mut BTreeMap<Seqno, Outcome>,
    own: &mut BTreeMap<Seqno, Outcome>,
) -> bool {
    if let Some(other) = others.remove(&seqno) {
        return other == outcome;
    }
    own.insert(seqno, outcome);
    if own.len() > MAX_KEPT {
        own.pop_first();
    }
    true
}

impl Outcomes {
    /// How it went here. Whether that fits what is known.
    pub fn here(&mut self, seqno: Seqno, outcome: Outcome) -> bool {
        compare(seqno, outcome, &mut self.at_origin, &mut self.here)
    }

    /// How it went at its origin. Whether that fits what is known.
    pub fn at_origin(&mut self, seqno: Seqno, outcome: Outcome) -> bool {
        compare(seqno, outcome, &mut self.here, &mut self.at_origin)
    }
}

#[cfg(test)]
mod tests;
