//! The log buffer: received frames that are not yet applied.
//!
//! A buffer with monotone positions. One receiver appends; two readers follow: the device writer (makes logged
//! frames durable) and the parser (indexes everything). The bytes themselves are shared (`Arc<Chunk>`): the log
//! index refers into them until they are applied, so the buffer is full when `W - A` reaches its length, and then
//! the receiver waits. That wait is the back-pressure; [`LogBuffer::waits_for`] names the stage that causes it.
//!
//! Memory is bounded as well: decompressed payloads, unlogged frames and the index do not count in `W - A`. So the
//! buffer is also full when frames and index take [`MEMORY_FACTOR`] times its length, or when the node has no room left
//! ([`crate::memory`]). A frame longer than that gets in when all before it is applied; the parser then closes its
//! table early.
//!
//! Lock order: the state mutex is a leaf.

use crate::mark::Point;
use crate::memory::VolumeMemory;
use redoubt_sync::{Condvar, Mutex};

use redoubt_sync::time;
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

/// How much more memory than its length a buffer may take.
pub const MEMORY_FACTOR: u64 = 4;

impl Chunk {
    /// Memory it takes.
    fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + self.wire.len() + self.raw.as_ref().map_or(0, Vec::len)) as u64
    }

    /// The payload, decompressed.
    pub fn payload(&self) -> &[u8] {
        self.raw.as_deref().unwrap_or_else(|| self.wire.get(redoubt_wire::HEADER_LEN_BYTES..).unwrap_or(&[]))
    }
}

struct BufferState {
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
    /// Memory of the frames after A, oldest first: end of a group of frames, and its bytes.
    unapplied: VecDeque<(Seq, u64)>,
    unapplied_bytes: u64,
    /// The receiver waits for room.
    room_wanted: bool,
    full_waits: u64,
    /// How long, by [`Stage`].
    full_wait_times: [Duration; 3],
    /// The receiver waits for this stage since then.
    waiting: Option<(Stage, Instant)>,
    /// It is to end its wait.
    is_wait_over: bool,
    closed: bool,
}

/// The log buffer: received frames that are not yet applied.
pub struct LogBuffer {
    len_bytes: u64,
    memory: Arc<VolumeMemory>,
    state: Mutex<BufferState>,
    for_writer: Condvar,
    for_parser: Condvar,
    for_room: Condvar,
}

/// Outcome of a frame.
pub enum Pushed {
    /// It is in the buffer.
    Yes,
    /// There was no room for it because of this stage; here it is again.
    Full(Chunk, Stage),
    /// The buffer was closed.
    Closed,
}

/// Result of the parser's wait.
pub enum Next {
    /// Frames in order.
    Chunks(Vec<Arc<Chunk>>),
    /// Nothing came for the time given.
    Idle,
    /// All is parsed, and the receiver waits for room: the open table should be applied.
    RoomWanted,
    /// The buffer was closed.
    Closed,
}

/// Stage that keeps the buffer full.
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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Device, Self::Parser, Self::Apply];

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
/// Interval at which a thread that waits for room checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

impl LogBuffer {
    /// An empty buffer of `len_bytes` that starts at `start`; everything before it is applied. `memory` counts the
    /// memory of the buffer and of the index.
    pub fn new(len_bytes: u64, start: Point, memory: &Arc<VolumeMemory>) -> Self {
        Self {
            len_bytes,
            memory: Arc::clone(memory),
            state: Mutex::new(BufferState {
                chunks: VecDeque::new(),
                first: 0,
                next_to_write: 0,
                next_to_parse: 0,
                received: start,
                durable: start.seq,
                parsed: start.seq,
                applied: start.seq,
                unapplied: VecDeque::new(),
                unapplied_bytes: 0,
                room_wanted: false,
                full_waits: 0,
                full_wait_times: [Duration::ZERO; 3],
                waiting: None,
                is_wait_over: false,
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

    /// W, unless a thread is just changing the buffer.
    pub fn try_received(&self) -> Option<Point> {
        self.state.try_lock().map(|state| state.received)
    }

    /// Appends a frame that has just been received. Waits while the buffer is full, at most for `patience`, or until
    /// [`LogBuffer::wake_waiting`]: then it returns the frame. The caller has the frame written to the device.
    pub fn push(&self, chunk: Chunk, patience: Duration) -> Pushed {
        let mut state = self.state.lock();
        let since = time::now();
        let mut waited = false;
        while !state.closed && self.is_full_for(&state, &chunk) {
            let stage = self.stage_behind(&state);
            if waited && (time::elapsed(since) >= patience || state.is_wait_over) {
                state.room_wanted = false;
                state.is_wait_over = false;
                return Pushed::Full(chunk, stage);
            }
            waited = true;
            // Each stretch counts for the stage that is behind when it begins.
            state.waiting = Some((stage, time::now()));
            state.room_wanted = true;
            self.for_parser.notify_one();
            // No other thread may be about to write the previous frames.
            self.for_writer.notify_one();
            // Room in the node's memory may come from another volume, which sends no signal here.
            let look_at = (time::now() + LOOK_INTERVAL).min(since + patience);
            self.for_room.wait_until(&mut state, look_at);
            if let Some((stage, since)) = state.waiting.take() {
                state.full_wait_times[stage as usize] += time::elapsed(since);
            }
        }
        state.is_wait_over = false;
        if waited {
            state.room_wanted = false;
            state.full_waits += 1;
        }
        if state.closed {
            return Pushed::Closed;
        }
        self.count_unapplied(&mut state, &chunk);
        state.received = chunk.end;
        state.chunks.push_back(Arc::new(chunk));
        self.for_parser.notify_one();
        Pushed::Yes
    }

    /// Ends the wait for room of another thread.
    pub fn wake_waiting(&self) {
        let mut state = self.state.lock();
        if state.waiting.is_some() {
            state.is_wait_over = true;
            self.for_room.notify_all();
        }
    }

    fn is_full_for(&self, state: &BufferState, chunk: &Chunk) -> bool {
        if state.received.seq == state.applied {
            // Unlogged frames alone: they go as soon as both readers have passed them.
            return !state.chunks.is_empty() && state.unapplied_bytes > MEMORY_FACTOR * self.len_bytes;
        }
        let used_bytes = state.received.seq.0 - state.applied.0;
        let added_bytes = chunk.end.seq.0 - chunk.start.seq.0;
        (chunk.logged && used_bytes + added_bytes > self.len_bytes)
            || (!chunk.wire.is_empty() && !self.has_memory_for(chunk))
    }

    fn has_memory_for(&self, chunk: &Chunk) -> bool {
        let bytes = chunk.memory_bytes();
        self.memory.used_bytes() + bytes <= MEMORY_FACTOR * self.len_bytes && self.memory.fits(bytes)
    }

    /// Appends a frame read back from the log device: already durable, never waits.
    pub fn push_recovered(&self, chunk: Chunk) {
        let mut state = self.state.lock();
        self.count_unapplied(&mut state, &chunk);
        state.received = chunk.end;
        state.durable = chunk.end.seq;
        state.chunks.push_back(Arc::new(chunk));
        state.next_to_write = state.first + state.chunks.len() as u64;
        self.for_parser.notify_one();
    }

    /// Waits until there are frames that were not given to the device writer. False: closed.
    pub fn wait_for_device_work(&self) -> bool {
        let mut state = self.state.lock();
        while !state.closed && state.next_to_write == state.first + state.chunks.len() as u64 {
            self.for_writer.wait(&mut state);
        }
        !state.closed
    }

    /// Wakes the thread that waits in [`LogBuffer::wait_for_device_work`].
    pub fn wake_device(&self) {
        self.for_writer.notify_one();
    }

    /// Logged frames not yet given to the device writer, up to a batch; empty if there are none.
    pub fn take_for_device(&self) -> Vec<Arc<Chunk>> {
        let mut state = self.state.lock();
        let mut taken = Vec::new();
        let mut taken_bytes = 0;
        while taken_bytes < BATCH_LEN_BYTES && !state.closed {
            let at = (state.next_to_write - state.first) as usize;
            let Some(chunk) = state.chunks.get(at).cloned() else { break };
            state.next_to_write += 1;
            if chunk.logged {
                taken_bytes += chunk.wire.len();
                taken.push(chunk);
            }
        }
        if self.drop_consumed(&mut state) {
            self.for_room.notify_all();
        }
        taken
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
                if self.drop_consumed(&mut state) {
                    self.for_room.notify_all();
                }
                return Next::Chunks(taken);
            }
            if state.room_wanted {
                state.room_wanted = false;
                return Next::RoomWanted;
            }
            if self.for_parser.wait_until(&mut state, deadline).timed_out() {
                return Next::Idle;
            }
        }
    }

    /// D moved (for [`LogBuffer::waits_for`]).
    pub fn set_durable(&self, seq: Seq) {
        let mut state = self.state.lock();
        state.durable = state.durable.max(seq);
    }

    /// P moved (for [`LogBuffer::waits_for`]).
    pub fn set_parsed(&self, seq: Seq) {
        self.state.lock().parsed = seq;
    }

    /// A moved: there is room again.
    pub fn set_applied(&self, seq: Seq) {
        let mut state = self.state.lock();
        state.applied = seq;
        while let Some((end, bytes)) = state.unapplied.front().copied()
            && end <= seq
        {
            state.unapplied.pop_front();
            state.unapplied_bytes -= bytes;
            self.memory.remove(bytes);
        }
        drop(state);
        self.for_room.notify_all();
    }

    /// `W - A` in bytes.
    pub fn used_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.received.seq.0 - state.applied.0
    }

    /// Length of the buffer in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// How often the receiver waited for room, and for how long for each [`Stage`]. The time of a wait that has not
    /// ended counts already.
    pub fn full_waits(&self) -> (u64, [Duration; 3]) {
        let state = self.state.lock();
        let mut times = state.full_wait_times;
        if let Some((stage, since)) = state.waiting {
            times[stage as usize] += time::elapsed(since);
        }
        (state.full_waits, times)
    }

    /// The buffer is (nearly) full because of this stage.
    pub fn waits_for(&self) -> Option<Stage> {
        let state = self.state.lock();
        let used_bytes = state.received.seq.0 - state.applied.0;
        if used_bytes < self.len_bytes / 100 * 95
            && self.memory.used_bytes() / MEMORY_FACTOR < self.len_bytes / 100 * 95
            && self.memory.fits(self.len_bytes / 100)
        {
            return None;
        }
        Some(self.stage_behind(&state))
    }

    fn stage_behind(&self, state: &BufferState) -> Stage {
        let undurable = state.received.seq.0.saturating_sub(state.durable.0);
        let unparsed = state.received.seq.0.saturating_sub(state.parsed.0);
        if undurable * 2 > self.len_bytes {
            Stage::Device
        } else if unparsed * 2 > self.len_bytes {
            Stage::Parser
        } else {
            Stage::Apply
        }
    }

    /// Ends all waits; nothing is accepted any more.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.for_writer.notify_all();
        self.for_parser.notify_all();
        self.for_room.notify_all();
    }

    /// Counts the memory of a frame until the point after it is applied.
    fn count_unapplied(&self, state: &mut BufferState, chunk: &Chunk) {
        let bytes = chunk.memory_bytes();
        state.unapplied_bytes += bytes;
        self.memory.add(bytes);
        match state.unapplied.back_mut() {
            Some((end, group)) if *end == chunk.end.seq || *group < GROUP_BYTES => {
                *end = chunk.end.seq;
                *group += bytes;
            }
            _ => state.unapplied.push_back((chunk.end.seq, bytes)),
        }
    }

    /// Drops the chunks that both readers have passed. True: the buffer is empty, and everything received is applied.
    fn drop_consumed(&self, state: &mut BufferState) -> bool {
        let consumed = state.next_to_write.min(state.next_to_parse);
        while state.first < consumed && state.chunks.pop_front().is_some() {
            state.first += 1;
        }
        let empty = state.chunks.is_empty() && state.received.seq == state.applied;
        if empty {
            state.unapplied.clear();
            self.memory.remove(std::mem::take(&mut state.unapplied_bytes));
        }
        empty
    }
}

/// Frames of a group of [`BufferState::unapplied`], in bytes.
const GROUP_BYTES: u64 = 16 << 10;

#[cfg(test)]
#[path = "log_buffer_tests.rs"]
mod tests;
