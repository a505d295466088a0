//! Members that apply at the same pace: who is ahead holds its commits for a moment.
//!
//! Nothing waits for an applier in the order itself. But a member that has fallen behind commits its own transactions
//! late, so that its clients do less and those of the others more, which it then has to apply, too: once behind, it
//! stays so. Therefore a transaction is held before it is put into the order while a member lacks more than [`AHEAD`]
//! write sets and more than were ordered within [`WINDOW`], or this one itself does.
//!
//! No member sets the pace of the others: what they wait for one is at most [`SHARE`] of the time, after a burst of
//! [`BURST`]. And none is waited for that lacks [`HOPELESS`] times as much: it has to catch up by itself.
//!
//! Lock order: `others`, then what those who ask lock to answer: the state of a transaction, what is finished.
//!
//! What a transaction saw counts from when it is put into the order, so one that waits here conflicts with no more
//! others than one that does not, while one that waited after it would.

use crate::write_set::Seqno;
use redoubt_consensus::types::MemberId;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Write sets that are ordered and not applied by a member, without anybody waiting for it.
const AHEAD: i64 = 64;
/// What was ordered within the last one or two of these is not counted: a member may have applied it and not said so.
const WINDOW: Duration = Duration::from_millis(50);
/// Nobody waits for a member that lacks so many times more than is allowed.
const HOPELESS: i64 = 32;
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

#[derive(Clone, Copy, Debug)]
struct Other {
    applied: Seqno,
    told_at: Instant,
    /// How long it may still be waited for, as of `counted_at`.
    left: Duration,
    counted_at: Instant,
    is_waited_for: bool,
    is_used_up: bool,
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

    fn lacks(&self, ordered: Seqno) -> i64 {
        ordered.0 - self.applied.0
    }
}

/// What was ordered before the last one or two windows.
#[derive(Clone, Copy, Debug)]
struct Window {
    older: Seqno,
    newer: Seqno,
    began: Instant,
}

/// How far the others are.
#[derive(Debug, Default)]
struct Others {
    by_member: BTreeMap<MemberId, Other>,
    window: Option<Window>,
}

impl Others {
    fn told(&mut self, member: MemberId, applied: Seqno, now: Instant) {
        let new = Other {
            applied,
            told_at: now,
            left: BURST,
            counted_at: now,
            is_waited_for: false,
            is_used_up: false,
        };
        let other = self.by_member.entry(member).or_insert(new);
        (other.applied, other.told_at) = (applied, now);
    }

    /// How much one may lack.
    fn allowed(&mut self, ordered: Seqno, now: Instant) -> i64 {
        let fresh = Window { older: ordered, newer: ordered, began: now };
        let window = self.window.get_or_insert(fresh);
        match now.saturating_duration_since(window.began) {
            // Nobody has asked for long, so it is not known what was ordered when.
            passed if passed >= 2 * WINDOW => *window = fresh,
            passed if passed >= WINDOW => {
                *window = Window { older: window.newer, newer: ordered, began: now };
            }
            _ => {}
        }
        AHEAD.max(ordered.0 - window.older.0)
    }

    /// Whether one of them is to be waited for, given what one may lack.
    fn hold(&mut self, ordered: Seqno, allowed: i64, now: Instant) -> bool {
        let mut holds = false;
        for other in self.by_member.values_mut() {
            let lacks = other.lacks(ordered);
            let is_fresh = now.saturating_duration_since(other.told_at) < FRESH;
            other.count(now);
            if is_fresh && lacks > allowed && lacks <= HOPELESS * allowed && !other.is_used_up {
                other.is_waited_for = true;
                holds = true;
            }
        }
        holds
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Pace {
    others: Mutex<Others>,
    changed: Condvar,
}

impl Pace {
    fn others(&self) -> MutexGuard<'_, Others> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A member has applied everything up to here.
    pub fn told(&self, member: MemberId, applied: Seqno) {
        self.others().told(member, applied, Instant::now());
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
            let allowed = others.allowed(ordered, now);
            let is_behind = ordered.0 - applied().0 > allowed;
            if !(others.hold(ordered, allowed, now) || is_behind) || now - since >= LONGEST || is_over() {
                return;
            }
            others = self.changed.wait_timeout(others, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests;
