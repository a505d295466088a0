//! The log buffer: what has been received and is not yet applied.
//!
//! A ring with monotone positions. One receiver appends; two readers follow: the device writer (makes logged
//! frames durable) and the parser (indexes everything). The bytes themselves are shared (`Arc<Chunk>`): the log
//! index refers into them until they are applied, so the ring is full when `W - A` reaches its length, and then
//! the receiver waits. That wait is the back-pressure; [`LogBuffer::waits_for`] names the stage that causes it.
//!
//! Lock order: the state mutex is a leaf.

use crate::mark::Point;
use parking_lot::{Condvar, Mutex};
use redoubt_redo::Lsn;
use redoubt_wire::Seq;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One frame of the stream.
pub struct Chunk {
    /// Frame kind.
    pub kind: u8,
    /// It is stored and has a Seq of its own.
    pub logged: bool,
    /// Stream position and LSN before it.
    pub start: Point,
    /// Stream position and LSN after it.
    pub end: Point,
    /// The frame as received, header included.
    pub wire: Vec<u8>,
    /// The decompressed payload, if it was compressed.
    pub raw: Option<Vec<u8>>,
}

impl Chunk {
    /// The payload, decompressed.
    pub fn payload(&self) -> &[u8] {
        self.raw.as_deref().unwrap_or_else(|| self.wire.get(redoubt_wire::HEADER_LEN_BYTES..).unwrap_or(&[]))
    }
}

struct State {
    chunks: VecDeque<Arc<Chunk>>,
    /// Number of the chunk at the front.
    first: u64,
    /// Number of the next chunk for the device writer.
    next_to_write: u64,
    /// Number of the next chunk for the parser.
    next_to_parse: u64,
    received: Point,
    durable: Seq,
    parsed: Seq,
    applied: Seq,
    full_waits: u64,
    full_wait_time: Duration,
    closed: bool,
}

/// See the module.
pub struct LogBuffer {
    len_bytes: u64,
    state: Mutex<State>,
    for_writer: Condvar,
    for_parser: Condvar,
    for_room: Condvar,
}

/// What the parser gets.
pub enum Next {
    /// Frames in order.
    Chunks(Vec<Arc<Chunk>>),
    /// Nothing came for the time given.
    Idle,
    /// The buffer was closed.
    Closed,
}

/// Stage that keeps the ring full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The log device.
    Device,
    /// The parser.
    Parser,
    /// The apply workers.
    Apply,
}

impl Stage {
    /// For status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Parser => "parser",
            Self::Apply => "apply",
        }
    }
}

const BATCH_LEN_BYTES: usize = 4 << 20;

impl LogBuffer {
    /// An empty ring of `len_bytes` that starts at `start`; everything before it is applied.
    pub fn new(len_bytes: u64, start: Point) -> Self {
        Self {
            len_bytes,
            state: Mutex::new(State {
                chunks: VecDeque::new(),
                first: 0,
                next_to_write: 0,
                next_to_parse: 0,
                received: start,
                durable: start.seq,
                parsed: start.seq,
                applied: start.seq,
                full_waits: 0,
                full_wait_time: Duration::ZERO,
                closed: false,
            }),
            for_writer: Condvar::new(),
            for_parser: Condvar::new(),
            for_room: Condvar::new(),
        }
    }

    /// W: everything before it has been received.
    pub fn received(&self) -> Point {
        self.state.lock().received
    }

    /// Appends a frame that has just been received. Waits while the ring is full. False: closed.
    pub fn push(&self, chunk: Chunk) -> bool {
        let mut state = self.state.lock();
        if chunk.logged {
            let len_bytes = chunk.wire.len() as u64;
            let mut since = None;
            while !state.closed
                && state.received.seq != state.applied
                && state.received.seq.0 - state.applied.0 + len_bytes > self.len_bytes
            {
                since.get_or_insert_with(Instant::now);
                self.for_room.wait(&mut state);
            }
            if let Some(since) = since {
                state.full_waits += 1;
                state.full_wait_time += since.elapsed();
            }
        }
        if state.closed {
            return false;
        }
        state.received = chunk.end;
        state.chunks.push_back(Arc::new(chunk));
        self.for_writer.notify_one();
        self.for_parser.notify_one();
        true
    }

    /// Appends a frame read back from the log device: already durable, never waits.
    pub fn push_recovered(&self, chunk: Chunk) {
        let mut state = self.state.lock();
        state.received = chunk.end;
        state.durable = chunk.end.seq;
        state.chunks.push_back(Arc::new(chunk));
        state.next_to_write = state.first + state.chunks.len() as u64;
        self.for_parser.notify_one();
    }

    /// Logged frames not yet given to the device writer, at least one. `None`: closed.
    pub fn take_for_device(&self) -> Option<Vec<Arc<Chunk>>> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            let mut taken = Vec::new();
            let mut taken_bytes = 0;
            while taken_bytes < BATCH_LEN_BYTES {
                let at = (state.next_to_write - state.first) as usize;
                let Some(chunk) = state.chunks.get(at).cloned() else { break };
                state.next_to_write += 1;
                if chunk.logged {
                    taken_bytes += chunk.wire.len();
                    taken.push(chunk);
                }
            }
            drop_consumed(&mut state);
            if !taken.is_empty() {
                return Some(taken);
            }
            self.for_writer.wait(&mut state);
        }
    }

    /// Frames for the parser; waits at most until `deadline` for the first.
    pub fn take_for_parser(&self, deadline: Instant) -> Next {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return Next::Closed;
            }
            let from = (state.next_to_parse - state.first) as usize;
            if from < state.chunks.len() {
                let taken: Vec<_> = state.chunks.iter().skip(from).take(64).cloned().collect();
                state.next_to_parse += taken.len() as u64;
                drop_consumed(&mut state);
                return Next::Chunks(taken);
            }
            if self.for_parser.wait_until(&mut state, deadline).timed_out() {
                return Next::Idle;
            }
        }
    }

    /// D moved (for [`LogBuffer::waits_for`]).
    pub fn set_durable(&self, seq: Seq) {
        self.state.lock().durable = seq;
    }

    /// P moved (for [`LogBuffer::waits_for`]).
    pub fn set_parsed(&self, seq: Seq) {
        self.state.lock().parsed = seq;
    }

    /// A moved: there is room again.
    pub fn set_applied(&self, seq: Seq) {
        self.state.lock().applied = seq;
        self.for_room.notify_all();
    }

    /// `W - A` in bytes.
    pub fn used_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.received.seq.0 - state.applied.0
    }

    /// Length of the ring in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// How often, and for how long in all, the receiver waited for room.
    pub fn full_waits(&self) -> (u64, Duration) {
        let state = self.state.lock();
        (state.full_waits, state.full_wait_time)
    }

    /// The ring is (nearly) full because of this stage.
    pub fn waits_for(&self) -> Option<Stage> {
        let state = self.state.lock();
        if state.received.seq.0 - state.applied.0 < self.len_bytes / 100 * 95 {
            return None;
        }
        let undurable = state.received.seq.0.saturating_sub(state.durable.0);
        let unparsed = state.received.seq.0.saturating_sub(state.parsed.0);
        Some(if undurable * 2 > self.len_bytes {
            Stage::Device
        } else if unparsed * 2 > self.len_bytes {
            Stage::Parser
        } else {
            Stage::Apply
        })
    }

    /// Ends all waits; nothing is accepted any more.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.for_writer.notify_all();
        self.for_parser.notify_all();
        self.for_room.notify_all();
    }

    /// The LSN is not known before the first redo log file is announced; this sets it once.
    pub fn set_first_lsn(&self, lsn: Lsn) {
        let mut state = self.state.lock();
        if state.received.lsn == Lsn(0) {
            state.received.lsn = lsn;
        }
    }
}

fn drop_consumed(state: &mut State) {
    let consumed = state.next_to_write.min(state.next_to_parse);
    while state.first < consumed && state.chunks.pop_front().is_some() {
        state.first += 1;
    }
}

#[cfg(test)]
#[path = "log_buffer_tests.rs"]
mod tests;
