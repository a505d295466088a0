//! Members that apply at the same pace: who is ahead holds its commits for a moment.
//!
//! Nothing waits for an applier in the order itself. But a member that has fallen behind commits its own transactions
//! late, so that its clients do less and those of the others more, which it then has to apply, too, and that is more
//! work than what is its own: once behind, it stays so. Therefore a transaction is held before it is put into the order
//! while another member, or this one, is behind: what it applies now was ordered [`GO`] ago, and it lacks more than
//! [`AHEAD`] write sets. It is held until the other one has almost caught up ([`STOP`]): one that were let go as soon as
//! that one is no more behind than is allowed would have it stay just there, with clients that wait so long.
//!
//! What is known of others is late by the time that messages take. So the shortest time is taken off that one of them
//! took for anything in the last seconds in which it did anything.
//!
//! No member sets the pace of the others: what they wait for one is at most [`SHARE`] of the time, after a burst of
//! [`BURST`]. And none is waited for that is [`HOPELESS`] behind: it has to catch up by itself. Nor one that says that it
//! is not to keep up: its server is paused for a backup, or gives its state to another one.
//!
//! Lock order: `others`, then what those who ask lock to answer: the state of a transaction, what is finished.
//!
//! What a transaction saw counts from when it is put into the order, so one that waits here conflicts with no more
//! others than one that does not, while one that waited after it would.

use crate::write_set::Seqno;
use redoubt_consensus::types::MemberId;
use redoubt_locks::IgnorePoison;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Write sets that are ordered and not applied by a member, without anybody waiting for it: among few a large one may
/// take its time.
const AHEAD: i64 = 64;
/// A member is behind from here on.
const GO: Duration = Duration::from_millis(10);
/// It is so until it has come here.
const STOP: Duration = Duration::from_millis(2);
/// Nobody waits for a member that is further behind.
const HOPELESS: Duration = Duration::from_secs(3);
/// The shortest time is that of the last one or two of these.
const SHORTEST_OF: Duration = Duration::from_secs(1);
/// Between two times of which it is known what was ordered.
const SAMPLE: Duration = Duration::from_millis(1);
/// Of the time that others wait for a member, at most.
const SHARE: f64 = 0.1;
/// For so long they do in one go.
const BURST: Duration = Duration::from_secs(3);
/// One that has used up its burst is waited for again when it has so much of it.
const AGAIN: Duration = Duration::from_secs(1);
/// A member that has not said for so long how far it is may be gone.
const FRESH: Duration = Duration::from_millis(250);
/// How long one transaction is held.
const LONGEST: Duration = Duration::from_secs(1);
/// Between two looks of one that is held.
const LOOK: Duration = Duration::from_millis(5);

/// What was ordered when, of the last [`HOPELESS`] and a little more.
#[derive(Debug, Default)]
struct Ordered {
    samples: VecDeque<(Seqno, Instant)>,
    /// All up to here was ordered longer ago.
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

    /// How long ago this one was ordered, as far as that is known.
    fn age_of(&self, seqno: Seqno, now: Instant) -> Duration {
        if seqno <= self.forgotten {
            return HOPELESS + SAMPLE;
        }
        let index = self.samples.partition_point(|(ordered, _)| *ordered < seqno);
        self.samples.get(index).map_or(Duration::ZERO, |(_, at)| now.saturating_duration_since(*at))
    }

    /// The same of what comes after it.
    fn age_after(&self, applied: Seqno, now: Instant) -> Duration {
        self.age_of(Seqno(applied.0 + 1), now)
    }
}

/// The shortest of the last one or two periods.
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

/// Whether it is behind, which it is until it has almost caught up.
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
    /// How long it may still be waited for, as of `counted_at`.
    left: Duration,
    counted_at: Instant,
    is_waited_for: bool,
    is_used_up: bool,
    is_in_step: bool,
}

impl Other {
    /// Counts the time since it was counted last, at most `LOOK` of it as waited for: those who wait look so often.
    fn count(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.counted_at);
        let waited = if self.is_waited_for { passed.min(2 * LOOK) } else { Duration::ZERO };
        self.left = (self.left.saturating_sub(waited) + (passed - waited).mul_f64(SHARE)).min(BURST);
        self.counted_at = now;
        self.is_waited_for = false;
        self.is_used_up = if self.is_used_up { self.left < AGAIN } else { self.left.is_zero() };
    }
}

/// How far the others are.
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
        // What it has applied just now shows how long that takes; nothing does while nothing is ordered.
        if other.applied < applied {
            other.shortest.note(age, now);
        }
        (other.applied, other.told_at, other.is_in_step) = (applied, now, is_in_step);
    }

    /// Whether one of them is to be waited for, or this one, which has done everything up to `applied`.
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

/// Members that apply at the same pace: who is ahead holds its commits for a moment.
#[derive(Debug, Default)]
pub struct Pace {
    others: Mutex<Others>,
    changed: Condvar,
}

impl Pace {
    fn others(&self) -> MutexGuard<'_, Others> {
        self.others.lock().ignore_poison()
    }

    /// A member has applied everything up to here, and is to keep up or not.
    pub fn told(&self, member: MemberId, applied: Seqno, is_in_step: bool) {
        self.others().told(member, applied, is_in_step, Instant::now());
        self.changed.notify_all();
    }

    /// What a member has said last of how far it is.
    pub fn applied_by(&self, member: MemberId) -> Option<Seqno> {
        self.others().by_member.get(&member).map(|other| other.applied)
    }

    /// Holds a transaction while somebody is behind; `ordered` and `applied` are this member's own. Not one that is
    /// wanted back, as `is_over` says.
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
