//! The server's part of a trace: how long sampled commits and page reads took before, between and after the node.
//!
//! The node starts and stops the trace by a notice. Both sides select the same events as samples, from data that both
//! have ([`redoubt_wire::trace`]).
//!
//! Invariants: while it is off, each place that would note something does one relaxed load and nothing else. Memory
//! is bounded: commits beyond `OPEN_LIMIT`, and samples that are not fetched, are dropped.
//!
//! Lock: `state`, a leaf.

use redoubt_locks::IgnorePoison;
use redoubt_wire::Seq;
use redoubt_wire::page::FileId;
use redoubt_wire::trace::{MAX_SAMPLES, ServerSample, commit_key, is_sampled, read_key};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Commits that may be under way. More are not waited for one by one.
const OPEN_LIMIT: usize = 256;

/// A frame that was sent.
struct Open {
    end: u64,
    began: Instant,
    sent: Instant,
    durable: Option<Instant>,
}

#[derive(Default)]
struct TracedFrames {
    open: VecDeque<Open>,
    done: Vec<ServerSample>,
}

/// Samples of the server's part of a trace.
#[derive(Default)]
pub struct Trace {
    one_in: AtomicU32,
    state: Mutex<TracedFrames>,
}

impl Trace {
    fn lock(&self) -> MutexGuard<'_, TracedFrames> {
        self.state.lock().ignore_poison()
    }

    /// Sets the sampling rate: one event in `one_in` is a sample; 0: none.
    pub fn set(&self, one_in: u32) {
        let mut state = self.lock();
        *state = TracedFrames::default();
        self.one_in.store(one_in, Ordering::Relaxed);
    }

    fn one_in(&self) -> u32 {
        self.one_in.load(Ordering::Relaxed)
    }

    /// The present time if the trace is on.
    pub fn now(&self) -> Option<Instant> {
        (self.one_in() != 0).then(Instant::now)
    }

    /// The frame that ends at `end`, and that the server began to write at `began` ([`Trace::now`]), is about to be
    /// sent. Call it before sending, because the node's notice may arrive before the sending thread continues.
    pub fn sending(&self, began: Option<Instant>, end: Seq) {
        let Some(began) = began.filter(|_| is_sampled(commit_key(end), self.one_in())) else { return };
        let mut state = self.lock();
        if state.open.len() >= OPEN_LIMIT {
            state.open.pop_front();
        }
        state.open.push_back(Open { end: end.0, began, sent: Instant::now(), durable: None });
    }

    /// It was sent.
    pub fn sent(&self, began: Option<Instant>, end: Seq) {
        if began.is_none() {
            return;
        }
        let now = Instant::now();
        let mut state = self.lock();
        if let Some(open) = state.open.iter_mut().rfind(|open| open.end == end.0 && open.durable.is_none()) {
            open.sent = now;
        }
    }

    /// The node has reported everything before `seq` as durable. Call it before any waiting thread is woken.
    pub fn durable(&self, seq: Seq) {
        let Some(now) = self.now() else { return };
        for open in self.lock().open.iter_mut().filter(|open| open.end <= seq.0) {
            open.durable.get_or_insert(now);
        }
    }

    /// A thread that needs everything before `seq` to be durable continues; `has_waited`: it had to wait for that.
    pub fn awake(&self, seq: Seq, has_waited: bool) {
        let Some(now) = self.now() else { return };
        let mut state = self.lock();
        let TracedFrames { open, done } = &mut *state;
        open.retain(|one| {
            let Some(durable) = one.durable.filter(|_| one.end <= seq.0) else { return true };
            if done.len() < MAX_SAMPLES {
                done.push(ServerSample::Commit {
                    end: Seq(one.end),
                    queue_nanos: nanos(one.sent.saturating_duration_since(one.began)),
                    answer_nanos: nanos(durable.saturating_duration_since(one.sent)),
                    wake_nanos: if has_waited { nanos(now.saturating_duration_since(durable)) } else { 0 },
                });
            }
            false
        });
    }

    /// True if this read is a sample.
    pub fn wants_read(&self, file: FileId, offset_bytes: u64, need: Seq) -> bool {
        let one_in = self.one_in();
        one_in != 0 && is_sampled(read_key(file, offset_bytes, need), one_in)
    }

    /// A read was answered.
    pub fn read(&self, (file, offset_bytes, need): (FileId, u64, Seq), queue: Duration, answer: Duration) {
        let mut state = self.lock();
        if state.done.len() < MAX_SAMPLES {
            let (queue_nanos, answer_nanos) = (nanos(queue), nanos(answer));
            state.done.push(ServerSample::Read { file, offset_bytes, need, queue_nanos, answer_nanos });
        }
    }

    /// The complete samples, which are removed.
    pub fn take(&self) -> Vec<ServerSample> {
        if self.one_in() == 0 { Vec::new() } else { std::mem::take(&mut self.lock().done) }
    }
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_complete_when_a_thread_that_waited_for_it_goes_on() {
        let trace = Trace::default();
        trace.sending(trace.now(), Seq(10));
        trace.set(1);
        for end in [20, 30, 40] {
            trace.sending(trace.now(), Seq(end));
            trace.sent(trace.now(), Seq(end));
        }
        trace.awake(Seq(20), true);
        assert!(trace.take().is_empty(), "nothing is durable");
        trace.durable(Seq(30));
        trace.awake(Seq(20), true);
        trace.awake(Seq(20), true);
        let taken = trace.take();
        assert!(matches!(taken[..], [ServerSample::Commit { end: Seq(20), .. }]), "{taken:?}");
        trace.durable(Seq(40));
        trace.awake(Seq(40), false);
        let taken = trace.take();
        assert_eq!(taken.len(), 2);
        assert!(
            taken.iter().all(|sample| matches!(sample, ServerSample::Commit { wake_nanos: 0, .. })),
            "{taken:?}"
        );
        trace.set(0);
        assert!(trace.now().is_none() && !trace.wants_read(FileId(1), 0, Seq(0)));
    }

    #[test]
    fn memory_is_bounded() {
        let trace = Trace::default();
        trace.set(1);
        for end in 0..2 * OPEN_LIMIT as u64 {
            trace.sending(trace.now(), Seq(end));
            trace.read((FileId(1), end, Seq(0)), Duration::ZERO, Duration::ZERO);
            trace.read((FileId(2), end, Seq(0)), Duration::ZERO, Duration::ZERO);
        }
        assert_eq!(trace.lock().open.len(), OPEN_LIMIT);
        assert_eq!(trace.take().len(), MAX_SAMPLES);
    }
}
