//! Adaptive packing of messages in one direction between two sides, over one connection or many.
//!
//! This module measures, and maintains the share of packed messages. The decision itself is in [`decision`], which is
//! pure. The caller asks [`Packing::choose`] for each message, and reports to [`Packing::packed`] the result of
//! packing one.
//!
//! Invariants:
//! * Without a network between the two sides no message is packed, and nothing is measured.
//! * A sending thread updates the share at most once per [`INTERVAL`]; no thread waits for the update.
//! * At most one of [`PROBE_INTERVAL`] messages is packed as a probe, to measure the effect of packing.

mod decision;

use crate::connection::{Connection, Delay};
use crate::cores::Cores;
use decision::{Figures, SHARE_MAX, share_after};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(100);
/// One of so many messages measures the connection, which costs a system call.
const LOOK_INTERVAL: u32 = 8;
const PROBE_INTERVAL: u32 = 64;
/// Maximum number of measurements per interval.
const LOOKS_MAX: usize = 64;
/// Rate at which the minimum delay is forgotten: one part in so many per interval. A path may become longer.
const FORGETTING: u32 = 1000;
/// Factor per interval by which earlier results of packing decay.
const REMEMBERING: f64 = 0.98;
/// Minimum interval between reports of changes.
const NEWS_INTERVAL: Duration = Duration::from_secs(60);

/// Measurements and share of packed messages of one direction.
#[derive(Default)]
pub struct Packing {
    /// Number of packed messages among [`SHARE_MAX`].
    share: AtomicU32,
    turn: AtomicU32,
    watch: Mutex<Watch>,
}

/// Decision about a message.
#[derive(Debug)]
pub struct Choice {
    /// Whether to pack it.
    pub pack: bool,
    /// Report for people, when the treatment of most messages has changed.
    pub news: Option<String>,
}

struct Watch {
    /// Time of the last decision about the share.
    since: Instant,
    /// Number of the message at that time.
    first: u32,
    cores: Cores,
    waited: Vec<Duration>,
    least: Option<Duration>,
    /// Mean length of messages with decay: the sixteenth last counts a third.
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

/// Sum of the results of packing, with decay; without new messages it returns to the usual values.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Packed {
    nanos: f64,
    raw_bytes: f64,
    packed_bytes: f64,
}

impl Packed {
    /// Initial value: four packed pages.
    const USUAL: Self = Self {
        nanos: 65_536.0 * decision::COST_NS_PER_BYTE,
        raw_bytes: 65_536.0,
        packed_bytes: 65_536.0 * decision::RATIO,
    };

    /// A mixture of `part` of these values and the rest of `others`.
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
    /// Decides whether to pack a message of `len_bytes` that is sent over `connection` next.
    pub fn choose(&self, connection: &dyn Connection, len_bytes: usize) -> Choice {
        // Other connections of this direction may cross a network, and have raised the share.
        if !connection.crosses_network() {
            return Choice { pack: false, news: None };
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut news = None;
        let mut is_probe = false;
        if turn.is_multiple_of(LOOK_INTERVAL) {
            let Some(delay) = connection.delay() else { return Choice { pack: false, news: None } };
            // If another thread is measuring, this one does not wait.
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

    /// Records that a message was packed; `took` is CPU time.
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

    /// Runs `pack` on `raw_len_bytes` bytes, which returns their packed length, and records the result.
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

/// Distributes the share evenly over the messages.
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

    /// Returns the new share.
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

    /// Returns `None` if a value is not known yet.
    fn figures(&mut self, rate: f64) -> Option<Figures> {
        let cores = self.cores.look()?;
        let least = self.least?;
        self.waited.sort_unstable();
        // A delayed acknowledgement occasionally adds 40 ms to a delay. A queue delays all messages.
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
    // SAFETY: the structure lives during the call. The call fails only for an invalid clock, and then the time stays
    // 0.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests;
