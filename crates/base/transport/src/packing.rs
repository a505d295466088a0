//! Whether what is sent had better be packed: one direction between two sides, over one connection or many.
//!
//! Owns the measuring and the share of messages that are packed; what to make of the figures is [`decision`], which
//! is pure. The caller asks [`Packing::choose`] for each message, and tells [`Packing::packed`] what packing one did.
//!
//! Invariants:
//! * Without a network between the two sides nothing is ever packed, and nothing is measured.
//! * The share is looked at again at most once in [`INTERVAL`], by whoever sends then; nobody waits for that.
//! * A message is packed without need once in [`PROBE_INTERVAL`] messages at most: to know what packing would do.

mod decision;

use crate::connection::{Connection, Delay};
use crate::cores::Cores;
use decision::{Figures, SHARE_MAX, share_after};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(100);
/// One message in so many is a look at the connection, which costs a call to the kernel.
const LOOK_INTERVAL: u32 = 8;
const PROBE_INTERVAL: u32 = 64;
/// Most looks that are kept in an interval.
const LOOKS_MAX: usize = 64;
/// How soon the least delay that was seen is forgotten: by one part in so many per interval. A path may become longer.
const FORGETTING: u32 = 1000;
/// What packing did is forgotten by the rest of this in an interval.
const REMEMBERING: f64 = 0.98;
/// What is said about changes is said once in this time.
const NEWS_INTERVAL: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Default)]
pub struct Packing {
    /// Of [`SHARE_MAX`] messages so many are packed.
    share: AtomicU32,
    turn: AtomicU32,
    watch: Mutex<Watch>,
}

/// What to do with a message.
#[derive(Debug)]
pub struct Choice {
    /// Pack it.
    pub pack: bool,
    /// For people, when what is done with most messages has changed.
    pub news: Option<String>,
}

struct Watch {
    /// Time of the last decision about the share.
    since: Instant,
    /// The turn it was then.
    first: u32,
    cores: Cores,
    waited: Vec<Duration>,
    least: Option<Duration>,
    /// Of messages, a mean that forgets: sixteen ago counts a third.
    len_bytes: f64,
    packed: Packed,
    /// It could be worth its while, for all that is known: a probe tells.
    is_hopeful: bool,
    /// Time of the last message.
    said: Option<Instant>,
    said_packed: bool,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            first: 0,
            cores: Cores::default(),
            waited: Vec::new(),
            least: None,
            len_bytes: 0.0,
            packed: Packed::USUAL,
            is_hopeful: false,
            said: None,
            said_packed: false,
        }
    }
}

/// What packing did, added up; older messages count less and less, and without new ones it returns to what is usual.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Packed {
    nanos: f64,
    raw_bytes: f64,
    packed_bytes: f64,
}

impl Packed {
    /// As if four pages had been packed.
    const USUAL: Self = Self {
        nanos: 65_536.0 * decision::COST_NS_PER_BYTE,
        raw_bytes: 65_536.0,
        packed_bytes: 65_536.0 * decision::RATIO,
    };

    /// `part` of these, the rest of `others`.
    fn mixed(&self, part: f64, others: &Self) -> Self {
        let mix = |own: f64, other: f64| own * part + other * (1.0 - part);
        Self {
            nanos: mix(self.nanos, others.nanos),
            raw_bytes: mix(self.raw_bytes, others.raw_bytes),
            packed_bytes: mix(self.packed_bytes, others.packed_bytes),
        }
    }

    fn add(&mut self, message: &Self) {
        *self = self.mixed(
            15.0 / 16.0,
            &Self {
                nanos: message.nanos * 16.0,
                raw_bytes: message.raw_bytes * 16.0,
                packed_bytes: message.packed_bytes * 16.0,
            },
        );
    }
}

impl Packing {
    /// Whether a message of `len_bytes` that goes over `connection` next is to be packed.
    pub fn choose(&self, connection: &dyn Connection, len_bytes: usize) -> Choice {
        // Others of this direction may have a network, and raised the share.
        if !connection.crosses_network() {
            return Choice { pack: false, news: None };
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut news = None;
        let mut is_probe = false;
        if turn.is_multiple_of(LOOK_INTERVAL) {
            let Some(delay) = connection.delay() else { return Choice { pack: false, news: None } };
            // Whoever finds another one looking has nothing to wait for.
            if let Ok(mut watch) = self.watch.try_lock() {
                watch.note(delay, len_bytes);
                if watch.since.elapsed() >= INTERVAL {
                    let share = watch.look(self.share.load(Ordering::Relaxed), turn);
                    self.share.store(share, Ordering::Relaxed);
                    news = watch.news(share);
                }
                is_probe = watch.is_hopeful && turn.is_multiple_of(PROBE_INTERVAL);
            }
        }
        Choice { pack: is_probe || takes_turn(self.share.load(Ordering::Relaxed), turn), news }
    }

    /// A message was packed; `took` is CPU time.
    pub fn packed(&self, raw_len_bytes: usize, packed_len_bytes: usize, took: Duration) {
        let raw = raw_len_bytes.max(1) as f64;
        if let Ok(mut watch) = self.watch.try_lock() {
            watch.packed.add(&Packed {
                nanos: took.as_nanos() as f64,
                raw_bytes: raw,
                packed_bytes: packed_len_bytes as f64,
            });
        }
    }

    /// Runs `pack` on `raw_len_bytes` bytes, which answers how long they are then, and takes note of what it did.
    pub fn measured<R>(
        &self,
        raw_len_bytes: usize,
        pack: impl FnOnce() -> R,
        len_bytes: impl FnOnce(&R) -> usize,
    ) -> R {
        let before = thread_time();
        let result = pack();
        self.packed(raw_len_bytes, len_bytes(&result), thread_time().saturating_sub(before));
        result
    }
}

/// Spreads the share evenly over turns.
const fn takes_turn(share: u32, turn: u32) -> bool {
    let at = turn % SHARE_MAX;
    (at + 1) * share / SHARE_MAX != at * share / SHARE_MAX
}

impl Watch {
    fn note(&mut self, delay: Delay, len_bytes: usize) {
        self.least = Some(self.least.map_or(delay.least, |least| least.min(delay.least)));
        self.len_bytes += (len_bytes as f64 - self.len_bytes) / 16.0;
        if self.waited.len() < LOOKS_MAX {
            self.waited.push(delay.now);
        }
    }

    /// The share from now on.
    fn look(&mut self, share: u32, turn: u32) -> u32 {
        let messages = turn.wrapping_sub(self.first);
        let rate = f64::from(messages) / self.since.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
        (self.since, self.first) = (Instant::now(), turn);
        let figures = self.figures(rate);
        self.waited.clear();
        self.least = self.least.map(|least| least + least / FORGETTING);
        self.packed = self.packed.mixed(REMEMBERING, &Packed::USUAL);
        let Some(figures) = figures else { return share };
        self.is_hopeful = decision::may_be_worth(&figures);
        share_after(share, &figures)
    }

    /// `None`: something is not known yet.
    fn figures(&mut self, rate: f64) -> Option<Figures> {
        let cores = self.cores.look()?;
        let least = self.least?;
        self.waited.sort_unstable();
        // An acknowledgement that its sender held back makes a delay of 40 ms out of none, now and then. A queue
        // delays all.
        let delay = self.waited.get(self.waited.len() / 4)?;
        Some(Figures {
            queued: delay.saturating_sub(least),
            rate,
            len_bytes: self.len_bytes,
            cost_ns_per_byte: self.packed.nanos / self.packed.raw_bytes,
            ratio: self.packed.packed_bytes / self.packed.raw_bytes,
            cores: cores.cores,
            idle_cores: cores.idle_cores,
            runnable: cores.runnable,
        })
    }

    /// The change to report, if a report is due.
    fn news(&mut self, share: u32) -> Option<String> {
        let is_packed = decision::is_mostly_packed(share, self.said_packed);
        if is_packed == self.said_packed || self.said.is_some_and(|at| at.elapsed() < NEWS_INTERVAL) {
            return None;
        }
        self.said_packed = is_packed;
        self.said = Some(Instant::now());
        let ratio = self.packed.packed_bytes / self.packed.raw_bytes * 100.0;
        Some(if is_packed {
            format!(
                "compressed from now on: the network delays them, processors are idle (to {ratio:.0} % of their length)"
            )
        } else {
            "not compressed from now on: the network has room, or the processors have none".to_owned()
        })
    }
}

/// CPU time of the calling thread.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives during the call. Nothing but a wrong clock can fail, and then the time stays 0.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests;
