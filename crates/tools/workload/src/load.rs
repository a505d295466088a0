//! Clients in a closed loop: a warm-up, then a window that counts, without a pause between them.
//!
//! Each client is a thread with a worker that does one transaction after the other. The window opens when the warm-up's
//! transactions are done and closes after its time or number of transactions. Further values (bytes, CPU time,
//! counters) are read at both edges while the clients continue, so that no client idles at an edge. A transaction
//! counts if it *ended* in the window. Its latency includes its retries.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::process::check_interrupt;

/// Pause between two looks at how far the clients are. Bounds how late the window's edges are noticed; each edge is
/// then taken exactly.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// After so long a client that waits looks whether the load has ended.
const SLEEP_SLICE: Duration = Duration::from_millis(50);

/// When a load ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// After this time.
    Elapsed(Duration),
    /// After this many transactions.
    Transactions(u64),
}

/// Does transactions on a connection of its own.
pub trait Worker: Send {
    /// Chooses the next transaction; the client waits this long before it.
    fn choose(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Does it, again and again if it must be, and says which kind it was.
    ///
    /// # Errors
    /// An error that a retry cannot fix.
    fn run(&mut self) -> Result<u8>;

    /// How long the client waits after it.
    fn think(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// A transaction that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When it ended, since the load began.
    pub ended_micros: u64,
    /// How long it took.
    pub latency_micros: u32,
    /// Which kind it was.
    pub kind: u8,
}

/// Results of a load in its window.
#[derive(Debug)]
pub struct Window<P> {
    /// Transactions that ended in the window, by time; their times count from its begin.
    pub samples: Vec<Sample>,
    /// Length of the window.
    pub elapsed: Duration,
    /// Length of the warm-up.
    pub warm_up: Duration,
    /// Values of the probe at both ends.
    pub probes: [P; 2],
}

/// How far a load is, for a progress bar: transactions done, and the number at which the part ends, if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// False: warm-up.
    pub in_window: bool,
    /// Transactions of this part.
    pub transactions: u64,
    /// How long this part has run.
    pub elapsed: Duration,
}

struct Shared {
    began: Instant,
    done: AtomicU64,
    stop: AtomicBool,
}

/// Runs all workers; `probe` is called at both ends of the window, `progress` again and again.
///
/// # Errors
/// The first of a worker or of `probe`; [`Error::Interrupted`].
pub fn run<P>(
    workers: Vec<Box<dyn Worker + '_>>,
    warm_up: u64,
    until: Until,
    mut probe: impl FnMut() -> Result<P>,
    mut progress: impl FnMut(Progress),
) -> Result<Window<P>> {
    let shared = Shared { began: Instant::now(), done: AtomicU64::new(0), stop: AtomicBool::new(false) };
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(|| client(worker, &shared, &failure))).collect();
        let watched = watch(&shared, warm_up, until, &mut probe, &mut progress);
        shared.stop.store(true, Ordering::Relaxed);
        let mut samples = Vec::new();
        for thread in threads {
            samples.extend(thread.join().map_err(|_| Error::State("a client panicked".to_owned()))?);
        }
        // A client's failure is why the watch ended early.
        if let Some(error) = failure.lock().ok().and_then(|mut failure| failure.take()) {
            return Err(error);
        }
        let (begin, end, probes) = watched?;
        Ok(Window { samples: cut(samples, begin, end), elapsed: end - begin, warm_up: begin, probes })
    })
}

/// Samples that ended in the window, in order, with times from its begin.
fn cut(mut samples: Vec<Sample>, begin: Duration, end: Duration) -> Vec<Sample> {
    let (begin, end) = (begin.as_micros() as u64, end.as_micros() as u64);
    samples.retain(|sample| (begin..end).contains(&sample.ended_micros));
    samples.sort_unstable_by_key(|sample| sample.ended_micros);
    for sample in &mut samples {
        sample.ended_micros -= begin;
    }
    samples
}

/// Waits for both ends of the window; times count from the load's begin.
fn watch<P>(
    shared: &Shared,
    warm_up: u64,
    until: Until,
    probe: &mut impl FnMut() -> Result<P>,
    progress: &mut impl FnMut(Progress),
) -> Result<(Duration, Duration, [P; 2])> {
    let wait = |reached: &dyn Fn(u64, Duration) -> bool, part: &mut dyn FnMut(u64)| -> Result<bool> {
        loop {
            let done = shared.done.load(Ordering::Relaxed);
            if reached(done, shared.began.elapsed()) {
                return Ok(true);
            }
            if shared.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            check_interrupt()?;
            part(done);
            std::thread::sleep(LOOK_INTERVAL);
        }
    };
    let began = shared.began;
    wait(&|done, _| done >= warm_up, &mut |transactions| {
        progress(Progress { in_window: false, transactions, elapsed: began.elapsed() });
    })?;
    let first = probe()?;
    let (begin, before) = (began.elapsed(), shared.done.load(Ordering::Relaxed));
    let reached = |done: u64, now: Duration| match until {
        Until::Elapsed(length) => now >= begin + length,
        Until::Transactions(count) => done - before >= count,
    };
    let complete = wait(&reached, &mut |done| {
        let elapsed = began.elapsed().saturating_sub(begin);
        progress(Progress { in_window: true, transactions: done - before, elapsed });
    })?;
    let end = began.elapsed();
    if !complete {
        return Err(Error::State("the clients ended before the load".to_owned()));
    }
    Ok((begin, end, [first, probe()?]))
}

fn client(mut worker: Box<dyn Worker + '_>, shared: &Shared, failure: &Mutex<Option<Error>>) -> Vec<Sample> {
    let mut samples = Vec::new();
    while !shared.stop.load(Ordering::Relaxed) {
        let keying = worker.choose();
        if !pause(keying, shared) {
            break;
        }
        let began = Instant::now();
        match worker.run() {
            Ok(kind) => {
                let ended = shared.began.elapsed();
                let latency = u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX);
                samples.push(Sample {
                    ended_micros: ended.as_micros() as u64,
                    latency_micros: latency,
                    kind,
                });
                shared.done.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                if let Ok(mut failure) = failure.lock() {
                    failure.get_or_insert(error);
                }
                shared.stop.store(true, Ordering::Relaxed);
                break;
            }
        }
        let thinking = worker.think();
        if !pause(thinking, shared) {
            break;
        }
    }
    samples
}

/// Sleeps; false if the load has ended meanwhile.
fn pause(length: Duration, shared: &Shared) -> bool {
    let until = Instant::now() + length;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        if shared.stop.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(left.min(SLEEP_SLICE));
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
