//! The failure detector: when each member was last reachable from here or from others, and which members are gone.
//!
//! A network can fail in part: two members do not reach each other, while others reach both. So before a member
//! declares a silent one gone, it asks the others. The silent member is gone when no one has received anything from it
//! for [`DEPARTURE`]. An answer only covers direct contact: indirect reports could keep a member alive that is
//! unreachable for all.
//!
//! A member that was cut off has received nothing, and after it returns the others do not all reach it at once. So a
//! member declares others gone only if it has been in contact with most of the members for just as long.

use redoubt_consensus::types::MemberId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Silence after which a server counts as gone.
pub(super) const DEPARTURE: Duration = Duration::from_secs(3);
/// Interval between two questions to the others.
const ASK: Duration = Duration::from_millis(500);

/// Next step for a silent member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Nothing.
    Nothing,
    /// Ask the others.
    Ask,
    /// Declare it gone.
    Gone,
}

#[derive(Clone, Copy, Debug, Default)]
struct Signs {
    heard_at: Option<Instant>,
    /// When another member last reported contact with it.
    told_at: Option<Instant>,
    asked_at: Option<Instant>,
    /// When it was last declared gone.
    given_up_at: Option<Instant>,
}

/// The failure detector: time of the last contact of each member, its own or reported by others.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    members: BTreeMap<MemberId, Signs>,
    /// Since when most of the members are reachable.
    in_company_since: Option<Instant>,
}

fn is_within(at: Option<Instant>, within: Duration, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_duration_since(at) < within)
}

impl Hearing {
    /// Records direct contact with a member.
    pub(super) fn hear(&mut self, member: MemberId, now: Instant) {
        self.members.entry(member).or_default().heard_at = Some(now);
    }

    /// Records that another member has contact with this one. Reports about members that were never checked are
    /// ignored.
    pub(super) fn told(&mut self, member: MemberId, now: Instant) {
        if let Some(signs) = self.members.get_mut(&member) {
            signs.told_at = Some(now);
        }
    }

    /// Corrects the times after this process was stopped: frames that arrived meanwhile are still unread.
    pub(super) fn was_stopped(&mut self, now: Instant) {
        self.members.values_mut().filter_map(|signs| signs.heard_at.as_mut()).for_each(|at| *at = now);
    }

    /// Time of the last direct contact with a member.
    pub(super) fn heard_at(&self, member: MemberId) -> Option<Instant> {
        self.members.get(&member)?.heard_at
    }

    /// Whether there was direct contact within this time.
    pub(super) fn is_heard(&self, member: MemberId, within: Duration, now: Instant) -> bool {
        is_within(self.heard_at(member), within, now)
    }

    /// Records whether most of the members are reachable; called before [`Hearing::look_at`].
    pub(super) fn set_in_company(&mut self, is_in_company: bool, now: Instant) {
        self.in_company_since = is_in_company.then(|| self.in_company_since.unwrap_or(now));
    }

    /// Next step for a member that should be present. Called only while most of the members are reachable.
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
