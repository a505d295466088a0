//! Times of sampled commits and page reads, stage by stage, while a client traces them.
//!
//! A trace is begun for a volume by one client and ends with it. While it is on, the node notes when sampled frames and
//! reads ([`redoubt_wire::trace::is_sampled`]) pass its stages, and joins its notes with the server side's measurements
//! of the same samples.
//!
//! Invariants: while it is off, each tracing point does one relaxed load and nothing else. Memory is bounded: samples
//! that find no partner, or are not fetched, are dropped, oldest first ([`LIMIT`]).
//!
//! Lock: `state`, a leaf.

use crate::mark::Point;
use redoubt_sync::{Mutex, time};
use redoubt_wire::Seq;
use redoubt_wire::page::FileId;
use redoubt_wire::trace::{ServerSample, Stage, commit_key, is_sampled, read_key};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Most of each kind that are kept.
pub const LIMIT: usize = 4096;

/// A logged frame on its way through the node.
struct Frame {
    end: Seq,
    received: Instant,
    taken: Option<Instant>,
    durable: Option<Instant>,
}

/// The read of a page: its request, and the time of each stage.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// The file.
    pub file: FileId,
    /// Offset in it.
    pub offset_bytes: u64,
    /// Required parts of the answer.
    pub need: Seq,
    /// Time on the node as a whole.
    pub total: Duration,
    /// Waiting for the parser.
    pub parse: Duration,
    /// Building the page.
    pub build: BuildTimes,
}

/// Parts of building a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Looking up the log index.
    Index,
    /// Reading the stored image.
    BaseRead,
    /// Applying.
    Apply,
}

/// Receives the end of each part of building a page. `()` ignores it.
pub trait Laps {
    /// The time since the previous lap belongs to `part`.
    fn lap(&mut self, part: Part);
}

impl Laps for () {
    fn lap(&mut self, _part: Part) {}
}

/// How long each part took.
#[derive(Clone, Copy, Debug)]
pub struct BuildTimes {
    last: Instant,
    parts: [Duration; 3],
}

impl BuildTimes {
    /// Begins now.
    pub fn start() -> Self {
        Self { last: time::now(), parts: [Duration::ZERO; 3] }
    }
}

impl Laps for BuildTimes {
    fn lap(&mut self, part: Part) {
        let now = time::now();
        self.parts[part as usize] += now.saturating_duration_since(self.last);
        self.last = now;
    }
}

impl<L: Laps> Laps for Option<L> {
    fn lap(&mut self, part: Part) {
        if let Some(laps) = self {
            laps.lap(part);
        }
    }
}

/// A sample with both of its halves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// A read: file and offset. A commit: `None`.
    pub page: Option<(FileId, u64)>,
    /// Position in the stream: the end of the frame, or the required position of the read.
    pub position: Seq,
    /// Nanoseconds of each stage.
    pub stages: Vec<(Stage, u64)>,
}

#[derive(Default)]
struct Gathered {
    frames: VecDeque<Frame>,
    reads: VecDeque<Read>,
    joined: VecDeque<Joined>,
    dropped: u64,
}

/// The trace of a volume.
#[derive(Default)]
pub struct Tracer {
    /// One commit or read in this many is a sample; 0: the trace is off.
    one_in: AtomicU32,
    state: Mutex<Gathered>,
}

impl Tracer {
    /// Begins a trace. False: another one is on.
    pub fn begin(&self, one_in: u32) -> bool {
        let mut state = self.state.lock();
        if self.one_in.load(Ordering::Relaxed) != 0 {
            return false;
        }
        *state = Gathered::default();
        self.one_in.store(one_in.max(1), Ordering::Relaxed);
        true
    }

    /// Ends the trace.
    pub fn end(&self) {
        let mut state = self.state.lock();
        self.one_in.store(0, Ordering::Relaxed);
        *state = Gathered::default();
    }

    /// One commit or read in this many is a sample; 0: the trace is off.
    pub fn one_in(&self) -> u32 {
        self.one_in.load(Ordering::Relaxed)
    }

    /// The present time if the trace is on.
    pub fn now(&self) -> Option<Instant> {
        (self.one_in() != 0).then(time::now)
    }

    /// A frame that ends at `end` had arrived at `received` ([`Tracer::now`]).
    pub fn received(&self, received: Option<Instant>, end: Seq) {
        if let Some(received) = received
            && is_sampled(commit_key(end), self.one_in())
        {
            let mut state = self.state.lock();
            push(&mut state.frames, Frame { end, received, taken: None, durable: None });
        }
    }

    /// Everything before `end` is being written to the log device.
    pub fn taken(&self, end: Point) {
        self.mark(end, |frame, now| {
            frame.taken.get_or_insert(now);
        });
    }

    /// Everything before `end` is durable.
    pub fn durable(&self, end: Point) {
        self.mark(end, |frame, now| {
            frame.durable.get_or_insert(now);
        });
    }

    fn mark(&self, end: Point, mark: impl Fn(&mut Frame, Instant)) {
        if let Some(now) = self.now() {
            let mut state = self.state.lock();
            // Frames are in order; the newest are at the back.
            state.frames.iter_mut().filter(|frame| frame.end <= end.seq).for_each(|frame| mark(frame, now));
        }
    }

    /// Is this read a sample?
    pub fn wants_read(&self, file: FileId, offset_bytes: u64, need: Seq) -> bool {
        let one_in = self.one_in();
        one_in != 0 && is_sampled(read_key(file, offset_bytes, need), one_in)
    }

    /// A read was answered.
    pub fn read(&self, read: Read) {
        push(&mut self.state.lock().reads, read);
    }

    /// Joins the samples that the server's side measured.
    pub fn join(&self, samples: &[ServerSample]) {
        if self.one_in() == 0 {
            return;
        }
        let mut state = self.state.lock();
        for sample in samples {
            let joined = match *sample {
                ServerSample::Commit { end, queue_nanos, answer_nanos, wake_nanos } => {
                    join_commit(&mut state.frames, end, [queue_nanos, answer_nanos, wake_nanos])
                }
                ServerSample::Read { file, offset_bytes, need, queue_nanos, answer_nanos } => {
                    let is_it =
                        |read: &Read| (read.file, read.offset_bytes, read.need) == (file, offset_bytes, need);
                    let found = state.reads.iter().position(is_it);
                    found
                        .and_then(|at| state.reads.remove(at))
                        .map(|read| join_read(&read, queue_nanos, answer_nanos))
                }
            };
            match joined {
                Some(joined) => {
                    if push(&mut state.joined, joined) {
                        state.dropped += 1;
                    }
                }
                None => state.dropped += 1,
            }
        }
    }

    /// Samples joined since the last call, and the number of samples lost since the trace began.
    pub fn take(&self) -> (Vec<Joined>, u64) {
        let mut state = self.state.lock();
        (state.joined.drain(..).collect(), state.dropped)
    }
}

/// True: the oldest had to go.
fn push<T>(queue: &mut VecDeque<T>, item: T) -> bool {
    let is_full = queue.len() >= LIMIT;
    if is_full {
        queue.pop_front();
    }
    queue.push_back(item);
    is_full
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

fn join_commit(frames: &mut VecDeque<Frame>, end: Seq, [queue, answer, wake]: [u64; 3]) -> Option<Joined> {
    let at = frames.iter().position(|frame| frame.end == end)?;
    let frame = frames.remove(at)?;
    let (taken, durable) = (frame.taken?, frame.durable?);
    let buffer = nanos(taken.saturating_duration_since(frame.received));
    let device = nanos(durable.saturating_duration_since(taken));
    let stages = vec![
        (Stage::ServerQueue, queue),
        (Stage::Wire, answer.saturating_sub(buffer + device)),
        (Stage::LogBuffer, buffer),
        (Stage::Device, device),
        (Stage::WakeUp, wake),
    ];
    Some(Joined { page: None, position: end, stages })
}

fn join_read(read: &Read, queue: u64, answer: u64) -> Joined {
    let [index, base, apply] = read.build.parts.map(nanos);
    let stages = vec![
        (Stage::ServerQueue, queue),
        (Stage::Wire, answer.saturating_sub(nanos(read.total))),
        (Stage::Parse, nanos(read.parse)),
        (Stage::Index, index),
        (Stage::BaseRead, base),
        (Stage::Apply, apply),
    ];
    Joined { page: Some((read.file, read.offset_bytes)), position: read.need, stages }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redoubt_redo::Lsn;

    fn point(seq: u64) -> Point {
        Point { seq: Seq(seq), lsn: Lsn(seq) }
    }

    fn commit(end: u64) -> ServerSample {
        ServerSample::Commit { end: Seq(end), queue_nanos: 5, answer_nanos: 60_000_000_000, wake_nanos: 7 }
    }

    #[test]
    fn both_halves_of_a_commit_meet_and_the_wire_is_what_is_left() {
        let tracer = Tracer::default();
        assert_eq!(tracer.now(), None);
        tracer.received(tracer.now(), Seq(10));
        assert!(tracer.begin(1) && !tracer.begin(1));
        tracer.received(tracer.now(), Seq(20));
        tracer.received(tracer.now(), Seq(30));
        tracer.taken(point(20));
        tracer.durable(point(20));
        tracer.join(&[commit(10), commit(20), commit(30)]);
        let (joined, dropped) = tracer.take();
        assert_eq!((joined.len(), dropped), (1, 2), "10 came before the trace, 30 is not durable");
        let total: u64 = joined[0].stages.iter().map(|(_, nanos)| nanos).sum();
        assert_eq!((joined[0].position, total), (Seq(20), 60_000_000_012));
        tracer.end();
        tracer.join(&[commit(20)]);
        assert!(tracer.take().0.is_empty() && tracer.begin(2));
    }

    #[test]
    fn a_read_meets_its_half_and_memory_is_bounded() {
        let tracer = Tracer::default();
        tracer.begin(1);
        let mut build = BuildTimes::start();
        build.lap(Part::Apply);
        let read = |offset_bytes| Read {
            file: FileId(1),
            offset_bytes,
            need: Seq(4),
            total: Duration::from_nanos(300),
            parse: Duration::from_nanos(100),
            build,
        };
        for offset_bytes in 0..2 * LIMIT as u64 {
            tracer.read(read(offset_bytes));
            tracer.received(tracer.now(), Seq(offset_bytes));
        }
        let sample = |offset_bytes| ServerSample::Read {
            file: FileId(1),
            offset_bytes,
            need: Seq(4),
            queue_nanos: 2,
            answer_nanos: 1000,
        };
        tracer.join(&[sample(0), sample(2 * LIMIT as u64 - 1)]);
        let (joined, dropped) = tracer.take();
        assert_eq!((joined.len(), dropped), (1, 1));
        assert_eq!(joined[0].page, Some((FileId(1), 2 * LIMIT as u64 - 1)));
        let of = |stage| joined[0].stages.iter().find(|(found, _)| *found == stage).unwrap().1;
        assert_eq!((of(Stage::ServerQueue), of(Stage::Wire), of(Stage::Parse)), (2, 700, 100));
        let state = tracer.state.lock();
        assert!(state.frames.len() == LIMIT && state.reads.len() < LIMIT);
    }
}
