//! What a member sees of the others, and what follows for who should own slots.
//!
//! An owner that says nothing holds everybody up, since nobody knows what it does with its slots. So each member votes
//! about each other one, and who has a majority against it is to lose its slots. A vote never endangers anything: an
//! epoch is begun by a majority, whatever the reason.
//!
//! A member gets slots again only after it was well for a while, and for longer each time.

use crate::message::{Opinion, Progress, Verdict};
use crate::types::{EpochStart, Incarnation, MemberId, Membership, Owner, Slot, Time};
use std::collections::BTreeMap;

/// Times after which something is taken to be wrong, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// A member with nothing to say says so after this.
    pub heartbeat_us: u64,
    /// What another member does not wait for it is told with something else, or after this.
    pub lazy_us: u64,
    /// A member that is not heard for this long is silent.
    pub silence_us: u64,
    /// An owner that does not say for this long what it does with slots before those of others holds them up.
    pub pace_us: u64,
    /// What was not acknowledged is sent again.
    pub retransmit_us: u64,
    /// A candidate gives up.
    pub candidacy_us: u64,
    /// Between the candidacies of two members that see the same.
    pub rank_us: u64,
    /// How long a member has to be well before it gets slots; twice as long each time it lost them.
    pub join_us: u64,
    /// The longest time that becomes.
    pub longest_join_us: u64,
    /// Slots that a member may be behind and still own some.
    pub lag: u64,
    /// How long a member that nobody who is heard can give what it lacks waits for somebody else who can. Ten times as
    /// long while not all are heard.
    pub lacking_us: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat_us: 20_000,
            lazy_us: 1_000,
            silence_us: 100_000,
            pace_us: 60_000,
            retransmit_us: 30_000,
            candidacy_us: 100_000,
            rank_us: 20_000,
            join_us: 200_000,
            longest_join_us: 60_000_000,
            lag: 4096,
            lacking_us: 1_000_000,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Seen {
    incarnation: Incarnation,
    heard_at: Option<Time>,
    is_lost: bool,
    is_willing: bool,
    delivered: Slot,
    opinions: Vec<Opinion>,
    /// First slot of the owner that is not known while later ones are, and since when.
    owes: Option<(Slot, Time)>,
    well_since: Option<Time>,
    losses: u32,
}

impl Seen {
    fn is_live(&self, timing: &Timing, now: Time) -> bool {
        !self.is_lost && self.heard_at.is_some_and(|at| now.since(at) <= timing.silence_us)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Health {
    me: MemberId,
    timing: Timing,
    seen: BTreeMap<MemberId, Seen>,
}

impl Health {
    /// Knows nobody.
    pub const fn new(me: MemberId, timing: Timing) -> Self {
        Self { me, timing, seen: BTreeMap::new() }
    }

    /// A member said something.
    pub fn heard(&mut self, from: MemberId, progress: &Progress, now: Time) {
        let seen = self.seen.entry(from).or_default();
        if progress.incarnation < seen.incarnation {
            return;
        }
        if progress.incarnation > seen.incarnation {
            *seen = Seen { incarnation: progress.incarnation, losses: seen.losses, ..Seen::default() };
        }
        seen.heard_at = Some(now);
        seen.is_lost = false;
        seen.is_willing = progress.is_willing;
        seen.delivered = seen.delivered.max(progress.delivered);
        if !progress.opinions.is_empty() {
            seen.opinions.clone_from(&progress.opinions);
        }
    }

    /// The connection to a member broke.
    pub fn lost(&mut self, member: MemberId) {
        let seen = self.seen.entry(member).or_default();
        seen.is_lost = true;
        seen.well_since = None;
    }

    /// What an owner owes: `slot` is its first that is not known although entries in later slots are.
    pub fn owes(&mut self, owner: Owner, slot: Option<Slot>, now: Time) {
        let seen = self.seen.entry(owner.member).or_default();
        // A later life of the member can do nothing about it.
        let slot = slot.filter(|_| seen.incarnation <= owner.incarnation);
        seen.owes = slot.map(|slot| match seen.owes {
            Some((before, since)) if before == slot => (slot, since),
            _ => (slot, now),
        });
    }

    /// An epoch began: who is no owner any more has lost its slots.
    pub fn began(&mut self, before: &EpochStart, after: &EpochStart) {
        let is_owner = |epoch: &EpochStart, member| epoch.owners.iter().any(|owner| owner.member == member);
        for (member, seen) in &mut self.seen {
            seen.owes = None;
            if is_owner(before, *member) && !is_owner(after, *member) {
                seen.losses = (seen.losses + 1).min(16);
                seen.well_since = None;
            }
        }
    }

    /// Members that were heard lately.
    pub fn is_heard(&self, member: MemberId, now: Time) -> bool {
        member == self.me || self.seen.get(&member).is_some_and(|seen| seen.is_live(&self.timing, now))
    }

    /// What a member had delivered when it was heard last.
    pub fn delivered(&self, member: MemberId) -> Slot {
        self.seen.get(&member).map_or(Slot(0), |seen| seen.delivered)
    }

    /// The newest life of a member that was heard.
    pub fn incarnation(&self, member: MemberId) -> Incarnation {
        self.seen.get(&member).map_or(Incarnation(0), |seen| seen.incarnation)
    }

    /// Looks at everybody. `me` is this member's own life, and whether it wants slots.
    pub fn opinions(
        &mut self,
        epoch: &EpochStart,
        me: (Incarnation, bool),
        delivered: Slot,
        now: Time,
    ) -> Vec<Opinion> {
        let newest = self.seen.values().map(|seen| seen.delivered).max().unwrap_or(delivered).max(delivered);
        let lag = self.timing.lag;
        let mine = Opinion {
            member: self.me,
            incarnation: me.0,
            verdict: if me.1 && newest.0 - delivered.0 <= lag { Verdict::Good } else { Verdict::Bad },
        };
        let timing = self.timing;
        let mut opinions = vec![mine];
        for member in epoch.membership.iter().filter(|member| *member != self.me) {
            let Some(seen) = self.seen.get_mut(&member) else {
                opinions.push(Opinion { member, incarnation: Incarnation(0), verdict: Verdict::Bad });
                continue;
            };
            let is_live = seen.is_live(&timing, now);
            let holds_up = seen.owes.is_some_and(|(_, since)| now.since(since) > timing.pace_us);
            let is_behind = newest.0 - seen.delivered.0.min(newest.0) > lag;
            let verdict = if !is_live || holds_up || is_behind || !seen.is_willing {
                seen.well_since = None;
                Verdict::Bad
            } else {
                let since = *seen.well_since.get_or_insert(now);
                let wait = timing.join_us.saturating_mul(1 << seen.losses).min(timing.longest_join_us);
                if now.since(since) >= wait { Verdict::Good } else { Verdict::Keep }
            };
            opinions.push(Opinion { member, incarnation: seen.incarnation, verdict });
        }
        opinions
    }

    /// Who should own slots, if a majority of the members was heard lately; `mine` is what this member thinks.
    pub fn wanted_owners(&self, epoch: &EpochStart, mine: &[Opinion], now: Time) -> Option<Vec<Owner>> {
        let voters = &epoch.membership;
        if !voters.is_majority(|member| self.is_heard(member, now)) {
            return None;
        }
        let votes = |owner: Owner, at_least: Verdict| {
            voters.is_majority(|voter| {
                let opinions = if voter == self.me {
                    mine
                } else {
                    match self.seen.get(&voter) {
                        Some(seen) if seen.is_live(&self.timing, now) => &seen.opinions,
                        _ => return false,
                    }
                };
                opinions.iter().any(|opinion| {
                    opinion.member == owner.member
                        && opinion.incarnation == owner.incarnation
                        && opinion.verdict >= at_least
                })
            })
        };
        let lives =
            mine.iter().map(|opinion| Owner { member: opinion.member, incarnation: opinion.incarnation });
        let wanted = lives.filter(|owner| {
            let at_least = if epoch.place(*owner).is_some() { Verdict::Keep } else { Verdict::Good };
            voters.contains(owner.member) && votes(*owner, at_least)
        });
        Some(wanted.collect())
    }

    /// How many members that are heard and not behind come before this one.
    pub fn rank(&self, voters: &Membership, delivered: Slot, now: Time) -> u64 {
        let before = voters.iter().filter(|member| *member < self.me);
        before
            .filter(|member| {
                self.seen.get(member).is_some_and(|seen| {
                    seen.is_live(&self.timing, now) && seen.delivered.0 + self.timing.lag >= delivered.0
                })
            })
            .count() as u64
    }
}
