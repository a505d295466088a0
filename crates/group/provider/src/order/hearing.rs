//! When each member was heard, by this one or as others tell, and who is to be taken for gone.
//!
//! A network can be ill in part: two members do not reach each other, and others reach both. So before a member that is
//! not heard here is said to have gone, the others are asked whether they hear it, and it has gone when nobody has heard
//! it for [`DEPARTURE`]. Only what a member hears itself counts as an answer: hearsay of hearsay could keep one alive that
//! nobody hears.
//!
//! A member that was cut off has heard nobody, and when it is back it does not hear all others at the same moment. So one
//! is taken for gone only by a member that has heard most of the others for just as long.

use redoubt_consensus::types::MemberId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A server that is not heard for so long is not there any more.
pub(super) const DEPARTURE: Duration = Duration::from_secs(3);
/// How often others are asked.
const ASK: Duration = Duration::from_millis(500);

/// What is to be done about a member that is not heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Nothing.
    Nothing,
    /// Others are to be asked.
    Ask,
    /// It is to be said that it has gone.
    Gone,
}

#[derive(Clone, Copy, Debug, Default)]
struct Signs {
    heard_at: Option<Instant>,
    /// Another one has heard it.
    told_at: Option<Instant>,
    asked_at: Option<Instant>,
    /// It was said to have gone.
    given_up_at: Option<Instant>,
}

/// The failure detector: time of the last contact of each member, its own or reported by others.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    members: BTreeMap<MemberId, Signs>,
    /// Most of the members are heard since then.
    in_company_since: Option<Instant>,
}

fn is_within(at: Option<Instant>, within: Duration, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_duration_since(at) < within)
}

impl Hearing {
    /// A member is heard.
    pub(super) fn hear(&mut self, member: MemberId, now: Instant) {
        self.members.entry(member).or_default().heard_at = Some(now);
    }

    /// Another one says that it hears this member. Of one that it was not asked about, it may say what it wants.
    pub(super) fn told(&mut self, member: MemberId, now: Instant) {
        if let Some(signs) = self.members.get_mut(&member) {
            signs.told_at = Some(now);
        }
    }

    /// This process was stopped: what came meanwhile is not read yet.
    pub(super) fn was_stopped(&mut self, now: Instant) {
        self.members.values_mut().filter_map(|signs| signs.heard_at.as_mut()).for_each(|at| *at = now);
    }

    /// When a member was heard last.
    pub(super) fn heard_at(&self, member: MemberId) -> Option<Instant> {
        self.members.get(&member)?.heard_at
    }

    /// Whether it was heard not longer ago.
    pub(super) fn is_heard(&self, member: MemberId, within: Duration, now: Instant) -> bool {
        is_within(self.heard_at(member), within, now)
    }

    /// To be called before others are looked at: whether most of the members are heard.
    pub(super) fn set_in_company(&mut self, is_in_company: bool, now: Instant) {
        self.in_company_since = is_in_company.then(|| self.in_company_since.unwrap_or(now));
    }

    /// What is to be done about a member that should be there; while most of them are heard.
    pub(super) fn look_at(&mut self, member: MemberId, now: Instant) -> Next {
        let company = self.in_company_since.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let signs = self.members.entry(member).or_default();
        let heard_at = *signs.heard_at.get_or_insert(now);
        if is_within(Some(heard_at), DEPARTURE / 2, now) {
            return Next::Nothing;
        }
        let is_heard = is_within(Some(heard_at), DEPARTURE, now) || is_within(signs.told_at, DEPARTURE, now);
        if !is_heard && company >= DEPARTURE && !is_within(signs.given_up_at, DEPARTURE, now) {
            signs.given_up_at = Some(now);
            return Next::Gone;
        }
        if is_within(signs.asked_at, ASK, now) {
            return Next::Nothing;
        }
        signs.asked_at = Some(now);
        Next::Ask
    }
}

#[cfg(test)]
mod tests;
