//! A member's view of the others, and its votes on which members own slots.
//!
//! A silent owner holds up all members, because they do not know the content of its slots. So each member votes about
//! every other one. A member with a majority of votes against it loses its slots. A wrong vote is never a safety
//! problem: a majority begins the epoch, whatever the reason.
//!
//! A member gets slots again only after it was well for a while. That time doubles with each loss.

use crate::message::{Opinion, Progress, Verdict};
use crate::types::{EpochStart, Incarnation, MemberId, Membership, Owner, Slot, Time};
use std::collections::BTreeMap;

/// Timeouts and intervals of the protocol, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Interval of messages of a member that has nothing to report.
    pub heartbeat_us: u64,
    /// Maximum delay of news that the receiver does not wait for and that no other message carries.
    pub lazy_us: u64,
    /// A member that sends nothing for this long counts as silent.
    pub silence_us: u64,
    /// Time after which an owner holds the others up, if it does not report its slots that lie before entries of
    /// others.
    pub pace_us: u64,
    /// Time without an acknowledgement after which a message is sent again.
    pub retransmit_us: u64,
    /// Time after which a candidate gives up.
    pub candidacy_us: u64,
    /// Delay between the candidacies of two members that detect the same condition.
    pub rank_us: u64,
    /// Time that a member has to be well before it gets slots. It doubles with each loss of slots.
    pub join_us: u64,
    /// Maximum of that doubled time.
    pub longest_join_us: u64,
    /// Number of slots that a member may lag and still own slots.
    pub lag: u64,
    /// Time that a member waits for entries that no reachable member can send, before it asks for a snapshot. Ten
    /// times as long while some members are unreachable.
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
    /// First slot of the owner that is unknown while later slots are known, and the time since when.
    owes: Option<(Slot, Time)>,
    well_since: Option<Time>,
    losses: u32,
}

impl Seen {
    fn is_live(&self, timing: &Timing, now: Time) -> bool {
        !self.is_lost && self.heard_at.is_some_and(|at| now.since(at) <= timing.silence_us)
    }
}

/// State of the other members, and the votes about them.
#[derive(Clone, Debug)]
pub struct Health {
    me: MemberId,
    timing: Timing,
    seen: BTreeMap<MemberId, Seen>,
}

impl Health {
    /// Creates the state without any other member.
    pub const fn new(me: MemberId, timing: Timing) -> Self {
        Self { me, timing, seen: BTreeMap::new() }
    }

    /// A progress message of a member arrived.
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

    /// `slot` is the first unknown slot of the owner, if later slots have entries.
    pub fn owes(&mut self, owner: Owner, slot: Option<Slot>, now: Time) {
        let seen = self.seen.entry(owner.member).or_default();
        // A later incarnation of the member cannot fill that slot.
        let slot = slot.filter(|_| seen.incarnation <= owner.incarnation);
        seen.owes = slot.map(|slot| match seen.owes {
            Some((before, since)) if before == slot => (slot, since),
            _ => (slot, now),
        });
    }

    /// An epoch began: a member that is no longer an owner has lost its slots.
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

    /// Whether a member is this one, or is reachable: its last message is not older than the silence timeout.
    pub fn is_heard(&self, member: MemberId, now: Time) -> bool {
        member == self.me || self.seen.get(&member).is_some_and(|seen| seen.is_live(&self.timing, now))
    }

    /// The slot before which a member had delivered everything, as of its newest message.
    pub fn delivered(&self, member: MemberId) -> Slot {
        self.seen.get(&member).map_or(Slot(0), |seen| seen.delivered)
    }

    /// The newest known incarnation of a member.
    pub fn incarnation(&self, member: MemberId) -> Incarnation {
        self.seen.get(&member).map_or(Incarnation(0), |seen| seen.incarnation)
    }

    /// Votes about all members. `me` is this member's own incarnation, and whether it accepts slots.
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

    /// Members that should own slots, if a majority of the members is reachable. `mine` are this member's own votes.
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

    /// Number of reachable members that do not lag and precede this one.
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
