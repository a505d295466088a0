//! Flow control: a member that is ahead holds its commits for a short time.
//!
//! The order itself does not wait for appliers. But a member that has fallen behind commits its own transactions late.
//! Its clients then do less and those of the others more. The member has to apply that work as well, which is more than
//! its own, so once behind, it stays behind. Therefore a transaction is held before it is proposed while this or
//! another member is behind. A member is behind if the write set that it applies now was ordered [`GO`] ago, and it
//! lacks more than [`AHEAD`] write sets. The transaction is held until that member has almost caught up ([`STOP`]).
//! Releasing it at the limit itself would keep the member there, with clients that always wait that long.
//!
//! Reports of other members are late by the transmission time. So the shortest delay between order and report in the
//! last active seconds of a member is subtracted from its lag.
//!
//! No member limits the others for long: they wait for it at most [`SHARE`] of the time, after a burst of [`BURST`].
//! They do not wait for a member that is [`HOPELESS`] behind, which has to catch up by itself. Nor do they wait for a
//! desynced one: its server is paused for a backup, or sends its state to another one.
//!
//! Lock order: `others`, then the locks of the callbacks: a transaction's state, the finished positions.
//!
//! A transaction's `last_seen` is determined when it is proposed. So waiting here causes no conflicts, while waiting
//! after the proposal would.

use crate::write_set::Seqno;
use redoubt_consensus::types::MemberId;
use redoubt_locks::IgnorePoison;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Number of unapplied write sets that a member may always have: among few, a large one may take long.
const AHEAD: i64 = 64;
/// A member with a longer lag is behind.
const GO: Duration = Duration::from_millis(10);
/// A member stays behind until its lag is this short.
const STOP: Duration = Duration::from_millis(2);
/// A member with a longer lag is not waited for.
const HOPELESS: Duration = Duration::from_secs(3);
/// Period for the shortest delay, which is that of the last one or two periods.
const SHORTEST_OF: Duration = Duration::from_secs(1);
/// Minimum interval between two samples of the order.
const SAMPLE: Duration = Duration::from_millis(1);
/// Maximum share of the time that others wait for a member.
const SHARE: f64 = 0.1;
/// Maximum time that others wait for a member without a break.
const BURST: Duration = Duration::from_secs(3);
/// Time that a member must regain before others wait for it again, once its burst is used up.
const AGAIN: Duration = Duration::from_secs(1);
/// Age of a member's last report from which on it may be gone.
const FRESH: Duration = Duration::from_millis(250);
/// Maximum time for which a transaction is held.
const LONGEST: Duration = Duration::from_secs(1);
/// Interval between two checks of a held transaction.
const LOOK: Duration = Duration::from_millis(5);

/// Samples of the order with their times, for a little more than [`HOPELESS`].
#[derive(Debug, Default)]
struct Ordered {
    samples: VecDeque<(Seqno, Instant)>,
    /// Everything up to here was ordered earlier.
    forgotten: Seqno,
}

impl Ordered {
    fn note(&mut self, ordered: Seqno, now: Instant) {
        let is_new = |(last, at): &(Seqno, Instant)| *last < ordered && now.duration_since(*at) >= SAMPLE;
        if self.samples.back().is_none_or(is_new) {
            self.samples.push_back((ordered, now));
        }
        while let Some((seqno, at)) = self.samples.front().copied()
            && now.duration_since(at) > HOPELESS + 2 * SAMPLE
        {
            self.samples.pop_front();
            self.forgotten = seqno;
        }
    }

    /// Time since this position was ordered, as far as known.
    fn age_of(&self, seqno: Seqno, now: Instant) -> Duration {
        if seqno <= self.forgotten {
            return HOPELESS + SAMPLE;
        }
        let index = self.samples.partition_point(|(ordered, _)| *ordered < seqno);
        self.samples.get(index).map_or(Duration::ZERO, |(_, at)| now.saturating_duration_since(*at))
    }

    /// Time since the next position was ordered.
    fn age_after(&self, applied: Seqno, now: Instant) -> Duration {
        self.age_of(Seqno(applied.0 + 1), now)
    }
}

/// The shortest delay of the last one or two periods.
#[derive(Clone, Copy, Debug)]
struct Shortest {
    older: Duration,
    newer: Duration,
    began: Instant,
}

impl Shortest {
    fn note(&mut self, age: Duration, now: Instant) {
        if now.duration_since(self.began) >= SHORTEST_OF {
            *self = Self { older: self.newer, newer: age, began: now };
        }
        self.newer = self.newer.min(age);
    }

    fn get(&self) -> Duration {
        self.older.min(self.newer)
    }
}

/// Whether a member is behind, with hysteresis.
#[derive(Clone, Copy, Debug, Default)]
struct Behind(bool);

impl Behind {
    fn look(&mut self, age: Duration, lacks: i64) -> bool {
        self.0 = match self.0 {
            true => age > STOP && lacks > AHEAD / 2,
            false => age > GO && lacks > AHEAD,
        };
        self.0
    }
}

#[derive(Clone, Copy, Debug)]
struct Other {
    applied: Seqno,
    told_at: Instant,
    shortest: Shortest,
    behind: Behind,
    /// Time for which others may still wait for it, as of `counted_at`.
    left: Duration,
    counted_at: Instant,
    is_waited_for: bool,
    is_used_up: bool,
    is_in_step: bool,
}

impl Other {
    /// Updates `left`. A waiting thread checks every [`LOOK`], and may be late. So up to twice that time since the last
    /// update counts as waited; more was no wait, because no thread checked.
    fn count(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.counted_at);
        let waited = if self.is_waited_for { passed.min(2 * LOOK) } else { Duration::ZERO };
        self.left = (self.left.saturating_sub(waited) + (passed - waited).mul_f64(SHARE)).min(BURST);
        self.counted_at = now;
        self.is_waited_for = false;
        self.is_used_up = if self.is_used_up { self.left < AGAIN } else { self.left.is_zero() };
    }
}

/// Progress of the other members.
#[derive(Debug, Default)]
struct Others {
    by_member: BTreeMap<MemberId, Other>,
    ordered: Ordered,
    own: Behind,
}

impl Others {
    fn told(&mut self, member: MemberId, applied: Seqno, is_in_step: bool, now: Instant) {
        let age = self.ordered.age_of(applied, now);
        let new = Other {
            applied,
            told_at: now,
            shortest: Shortest { older: Duration::ZERO, newer: Duration::ZERO, began: now },
            behind: Behind::default(),
            left: BURST,
            counted_at: now,
            is_waited_for: false,
            is_used_up: false,
            is_in_step,
        };
        let other = self.by_member.entry(member).or_insert(new);
        // The age of a newly applied position shows the delay. Without new ones there is no information.
        if other.applied < applied {
            other.shortest.note(age, now);
        }
        (other.applied, other.told_at, other.is_in_step) = (applied, now, is_in_step);
    }

    /// Whether to wait for another member, or for this one, which has finished everything up to `applied`.
    fn hold(&mut self, ordered: Seqno, applied: Seqno, now: Instant) -> bool {
        self.ordered.note(ordered, now);
        let age = self.ordered.age_after(applied, now);
        let mut holds = self.own.look(age, ordered.0 - applied.0);
        for other in self.by_member.values_mut() {
            let is_fresh = now.saturating_duration_since(other.told_at) < FRESH;
            other.count(now);
            let age = self.ordered.age_after(other.applied, now);
            let is_behind =
                other.behind.look(age.saturating_sub(other.shortest.get()), ordered.0 - other.applied.0);
            let may_be_waited_for = is_fresh && other.is_in_step && !other.is_used_up;
            if may_be_waited_for && is_behind && age <= HOPELESS {
                other.is_waited_for = true;
                holds = true;
            }
        }
        holds
    }
}

/// Flow control: a member that is ahead holds its commits for a short time.
#[derive(Debug, Default)]
pub struct Pace {
    others: Mutex<Others>,
    changed: Condvar,
}

impl Pace {
    fn others(&self) -> MutexGuard<'_, Others> {
        self.others.lock().ignore_poison()
    }

    /// Records a report of a member: its applied position, and whether it is to keep up.
    pub fn told(&self, member: MemberId, applied: Seqno, is_in_step: bool) {
        self.others().told(member, applied, is_in_step, Instant::now());
        self.changed.notify_all();
    }

    /// The last reported position of a member.
    pub fn applied_by(&self, member: MemberId) -> Option<Seqno> {
        self.others().by_member.get(&member).map(|other| other.applied)
    }

    /// Holds a transaction while a member is behind; `ordered` and `applied` are this member's own. Returns early when
    /// `is_over` is true.
    pub fn hold(&self, ordered: impl Fn() -> Seqno, applied: impl Fn() -> Seqno, is_over: impl Fn() -> bool) {
        let since = Instant::now();
        let mut others = self.others();
        loop {
            let now = Instant::now();
            let ordered = ordered();
            if !others.hold(ordered, applied(), now) || now - since >= LONGEST || is_over() {
                return;
            }
            others = self.changed.wait_timeout(others, LOOK).ignore_poison().0;
        }
    }
}

#[cfg(test)]
mod tests;
