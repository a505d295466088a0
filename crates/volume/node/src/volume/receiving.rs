//! Receives frames from the server and makes them durable: W and D.
//!
//! Owns the log buffer, the log device, and the choice of the connection that may append. A connection's thread appends
//! its frames to the buffer and then also writes to the device, unless another thread is writing. A device thread
//! writes the frames that no connection writes; for a pipelined device, another thread waits for the writes.
//!
//! A connection that waits for room in a full buffer gives up when another becomes current: its frame was never
//! acknowledged and is sent again. So a full buffer never keeps a server from connecting.
//!
//! Invariants: `D <= W`; the device holds whole frames in stream order; only the current connection appends.
//!
//! Lock order: appending, device turn. No lock but the device turn is held while a device syncs.

use super::attach::DRAIN_TIMEOUT;
use super::context::{Context, Waiter};
use super::frozen::is_refusal;
use super::retention::Retention;
use super::written::WrittenEnds;
use crate::counters::add;
use crate::error::NodeError;
use crate::log_buffer::{Chunk, LogBuffer, Pushed, Stage};
use crate::log_device::{self, LogDamage};
use crate::mark::{Mark, Point};
use redoubt_logdev::LogDevice;
use redoubt_redo::Lsn;
use redoubt_storage::HeldDescriptors;
use redoubt_sync::planted::{Bug, is_planted};
use redoubt_sync::thread::catch_panic;
use redoubt_sync::{Mutex, MutexGuard, time};
use redoubt_wire::control::LogDeviceStatus;
use redoubt_wire::notice::Notice;
use redoubt_wire::stream::{FIRST_UNLOGGED_KIND, StreamFrame, decode};
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES, Seq, WireError};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Most bytes read from the device at once.
const READ_LEN_BYTES: u64 = 4 << 20;
/// Bytes that are read to see whether the drive works.
const PROBE_LEN_BYTES: u64 = 4096;
/// A server that waits longer than this for room receives a notice, so that it does not treat the node as dead. Well
/// below the library's own timeout; this is all that [`crate::volume`] and the library agree on.
const PATIENCE: Duration = Duration::from_secs(2);

/// Duration of a write of the log after which the status says that its disk hangs.
const HUNG_WRITE: Duration = Duration::from_secs(10);

/// Outcome of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Appended to the stream.
    Yes,
    /// The connection no longer counts; close it.
    NotCurrent,
}

/// Result of reading the log at the start.
#[derive(Debug)]
pub struct Recovered {
    /// End of the stream.
    pub end: Point,
    /// Why the frame after it cannot be used, if the log has one.
    pub refusal: Option<NodeError>,
}

/// Log buffer, log device, and the connection that may append.
pub struct Receiving {
    context: Arc<Context>,
    /// Frames that were received and are not yet applied.
    pub buffer: LogBuffer,
    /// The start of the retained log.
    pub retention: Arc<Retention>,
    device: Box<dyn LogDevice>,
    /// Damage at the end of the device, which can only be read then.
    damage: Option<LogDamage>,
    /// Warnings about the device for the operator.
    device_warnings: Vec<String>,
    /// Location of the log.
    log_place: String,
    /// Since when a batch is being written by the thread with the device turn.
    writing_since: Mutex<Option<Instant>>,
    _held: Option<HeldDescriptors>,
    /// Ends of the batches that a pipelined device is writing.
    written_ends: WrittenEnds,
    durable: Mark,
    /// Held while a frame is appended.
    appending: Mutex<()>,
    /// The connection whose frames are appended; 0: none.
    current: AtomicU64,
    /// Held by the thread that writes to the log device, with its write buffer.
    device_turn: Mutex<Vec<u8>>,
}

impl Receiving {
    /// Continues at `applied`. The log after it still has to be read back ([`Receiving::recover`]).
    pub fn new(context: &Arc<Context>, log: log_device::Opened, applied: Point) -> Self {
        Self {
            context: Arc::clone(context),
            buffer: LogBuffer::new(context.options.ring_len_bytes, applied, &context.memory),
            retention: Arc::default(),
            device: log.device,
            damage: log.damage,
            device_warnings: log.warnings,
            log_place: log.place,
            writing_since: Mutex::default(),
            _held: log.held,
            written_ends: WrittenEnds::default(),
            durable: Mark::at(applied),
            appending: Mutex::default(),
            current: AtomicU64::new(0),
            device_turn: Mutex::default(),
        }
    }

    /// First position that the log device has.
    pub fn device_start(&self) -> Seq {
        self.device.start()
    }

    /// D.
    pub fn durable(&self) -> &Mark {
        &self.durable
    }

    /// Only `connection` may append from now on (0: none). When this returns, no append of another connection is under
    /// way.
    pub fn set_current(&self, connection: u64) {
        self.current.store(connection, Ordering::Release);
        // A thread that waits for room for a frame of another connection gives up.
        self.buffer.wake_waiting();
        drop(self.appending.lock());
    }

    /// No frame is appended until the guard is dropped. `None`: an append has been waiting for room for
    /// [`DRAIN_TIMEOUT`].
    pub fn pause_appending(&self) -> Option<MutexGuard<'_, ()>> {
        self.appending.try_lock_for(DRAIN_TIMEOUT)
    }

    /// Appends a frame received on `connection`. Waits while the log buffer is full.
    ///
    /// # Errors
    /// [`NodeError::Wire`] for a frame that must not be used; [`NodeError::Stopped`].
    pub fn receive(&self, connection: u64, wire: Vec<u8>) -> Result<Received, NodeError> {
        let arrived = self.context.tracer.now();
        let _appending = self.appending.lock();
        if !self.is_current(connection) {
            return Ok(Received::NotCurrent);
        }
        let chunk = decode_chunk(wire, self.buffer.received())?;
        let (logged, end) = (chunk.logged, chunk.end);
        let counted = Counted::of(&chunk);
        let redo_starts = chunk.start;
        let pushed = self.push(connection, chunk)?;
        if pushed == Received::Yes {
            if logged {
                self.context.tracer.received(arrived, end.seq);
            }
            counted.count(&self.context);
            self.retention.note(redo_starts, end);
        }
        Ok(pushed)
    }

    fn is_current(&self, connection: u64) -> bool {
        self.current.load(Ordering::Acquire) == connection || is_planted(Bug::AnyConnectionAppends)
    }

    fn push(&self, connection: u64, mut chunk: Chunk) -> Result<Received, NodeError> {
        let mut waited = false;
        let pushed = loop {
            match self.buffer.push(chunk, PATIENCE) {
                Pushed::Yes => break Ok(Received::Yes),
                Pushed::Closed => break Err(self.context.stopped_error()),
                Pushed::Full(_, _) if !self.is_current(connection) => break Ok(Received::NotCurrent),
                Pushed::Full(back, stage) => {
                    chunk = back;
                    waited = true;
                    self.context.begin_wait(Waiter::Room, &full(stage));
                }
            }
        };
        if waited {
            self.context.end_wait(Waiter::Room);
        }
        pushed
    }

    /// Appends a frame that is the node's own and not part of the stream.
    pub fn push_own(&self, chunk: Chunk) {
        let mut chunk = Some(chunk);
        while let Some(own) = chunk.take() {
            if let Pushed::Full(back, _) = self.buffer.push(own, PATIENCE) {
                chunk = Some(back);
            }
        }
        self.buffer.wake_device();
    }

    /// W -> D for frames that no connection writes itself (see [`Receiving::write_received`]).
    pub fn run_device(&self) -> Result<(), NodeError> {
        while self.buffer.wait_for_device_work() {
            let mut batch = self.device_turn.lock();
            self.write_batches(&mut batch)?;
        }
        Ok(())
    }

    /// Writes the received frames to the log device in the thread of their connection. This saves each commit a context
    /// switch. If another thread is writing, that thread continues, or the device thread is woken.
    ///
    /// # Errors
    /// Any error that must stop the volume.
    pub fn write_received(&self) -> Result<(), NodeError> {
        let Some(mut batch) = self.device_turn.try_lock() else {
            self.buffer.wake_device();
            return Ok(());
        };
        let written = std::panic::catch_unwind(AssertUnwindSafe(|| self.write_batches(&mut batch)));
        written.unwrap_or_else(|_| {
            Err(NodeError::Stopped("writing its log met a defect of the node".to_owned()))
        })
    }

    /// Appends everything received to the log device and makes it durable, batch by batch. A batch holds the frames
    /// that arrived while the previous one was synced. `batch` is the write buffer of the thread that holds the device
    /// turn.
    fn write_batches(&self, batch: &mut Vec<u8>) -> Result<(), NodeError> {
        loop {
            let chunks = self.buffer.take_for_device();
            let Some(end) = chunks.last().map(|chunk| chunk.end) else { return Ok(()) };
            self.context.tracer.taken(end);
            batch.clear();
            for chunk in &chunks {
                batch.extend_from_slice(&chunk.wire);
            }
            let since = time::now();
            *self.writing_since.lock() = Some(since);
            let appended = self.context.with_retry(Waiter::Log, || Ok(self.device.append(batch)?))?;
            if appended != end.seq {
                let reason = format!("log device is at {appended}, the stream at {}", end.seq);
                return Err(NodeError::Damaged { path: self.log_path(), reason });
            }
            if self.device.is_pipelined() && self.device.durable_end() < end.seq {
                self.written_ends.push(end, since);
            } else {
                if !is_planted(Bug::AnsweredBeforeDurable) {
                    self.device.wait_durable(end.seq)?;
                }
                self.became_durable(end, since);
            }
            *self.writing_since.lock() = None;
        }
    }

    /// The reason, if a write of the log has not returned for so long that its disk may never answer. No commit is
    /// acknowledged then.
    pub fn hung_write(&self) -> Option<String> {
        let writing_since = *self.writing_since.lock();
        let since = writing_since.into_iter().chain(self.written_ends.oldest()).min()?;
        let seconds = Some(time::elapsed(since)).filter(|hung| *hung >= HUNG_WRITE)?.as_secs();
        Some(format!(
            "a write of the log {} has not returned for {seconds} s: its disk does not answer, and commits wait",
            self.log_path().display()
        ))
    }

    /// Waits for the writes of a pipelined device.
    pub fn run_durable(&self) -> Result<(), NodeError> {
        while let Some(first) = self.written_ends.first() {
            let durable = self.device.wait_durable(first.seq)?;
            if let Some((end, since)) = self.written_ends.take_durable(durable) {
                self.became_durable(end, since);
            }
        }
        Ok(())
    }

    /// Everything before `end`, which the device received at `since`, is durable: moves D and notifies the server.
    fn became_durable(&self, end: Point, since: Instant) {
        self.context.figures.log_write.record_since(since);
        self.context.tracer.durable(end);
        add(&self.context.counters.log_syncs, 1);
        self.durable.advance(end);
        self.context.notices.send(&Notice::Durable(end.seq));
        self.buffer.set_durable(end.seq);
    }

    /// Feeds everything in the log after `applied` back into the log buffer, and finds the end of the stream. The part
    /// before `applied`, kept for the server's next start, is not read: the device has checked that it is whole. Nor is
    /// the part after `limit`, which the parser refuses ([`super::frozen`]). A frame that is damaged or invalid ends the
    /// stream, and so does the damaged end of the device. If that is before `applied`, or the log begins after it, the
    /// stream ends at `applied`.
    ///
    /// # Errors
    /// [`NodeError::LogDevice`].
    pub fn recover(
        &self,
        log_start: Point,
        applied: Point,
        limit: Option<Seq>,
    ) -> Result<Recovered, NodeError> {
        let device_end = self.device.end();
        let end = limit.map_or(device_end, |limit| device_end.min(limit));
        self.retention.begin(log_start);
        if let Some(reason) = self.missing_after(applied, end) {
            let why = self.damage.as_ref().map_or("files of the log are missing", |damage| &damage.reason);
            let reason = format!("{reason}; {why}");
            // Pages and plain files have everything before A.
            let refusal = NodeError::Damaged { path: self.log_path(), reason };
            return Ok(Recovered { end: applied, refusal: Some(refusal) });
        }
        let mut recovered_bytes = 0u64;
        let mut last = applied;
        let read = catch_panic(|| {
            self.read_frames(applied, end, |chunk| {
                self.retention.note(chunk.start, chunk.end);
                recovered_bytes += chunk.wire.len() as u64;
                last = chunk.end;
                self.buffer.push_recovered(chunk);
                Ok(())
            })
        });
        let damaged_end = || {
            let damage = self.damage.as_ref().filter(|_| limit.is_none_or(|limit| device_end < limit))?;
            Some(NodeError::Damaged { path: self.log_path(), reason: damage.reason.clone() })
        };
        let refusal = match read {
            Ok(Ok(_)) => damaged_end(),
            Ok(Err(error)) if is_refusal(&error) => Some(error),
            Ok(Err(error)) => return Err(error),
            Err(panic) => {
                let reason = format!("reading it met a defect of the node: {panic}; report it");
                Some(NodeError::Redo { lsn: last.lsn, reason })
            }
        };
        self.durable.advance(last);
        self.buffer.set_durable(last.seq);
        tracing::info!(
            event = "volume_recovered",
            volume = self.context.name,
            applied_lsn = applied.lsn.0,
            end_lsn = last.lsn.0,
            recovered_bytes,
            "volume recovered"
        );
        Ok(Recovered { end: last, refusal })
    }

    /// The log, which is read up to `end`, does not have all from A on.
    fn missing_after(&self, applied: Point, end: Seq) -> Option<String> {
        let (a, start) = (applied.seq, self.device.start());
        if end < a {
            Some(format!("the log ends at {end}, but the checkpoint says that {a} was durable"))
        } else if start > a {
            Some(format!("the log begins at {start}, but the checkpoint needs it from {a} on"))
        } else {
            None
        }
    }

    /// Calls `each` for the frames in `[start.seq, end)` of the log. Returns the point after the last. If the log is
    /// damaged there, the frames before the damage are read first.
    ///
    /// # Errors
    /// Those of `each`; [`NodeError::Damaged`], [`NodeError::LogDevice`].
    pub fn read_frames(
        &self,
        start: Point,
        end: Seq,
        each: impl FnMut(Chunk) -> Result<(), NodeError>,
    ) -> Result<Point, NodeError> {
        self.read_frames_by(READ_LEN_BYTES, start, end, each)
    }

    /// The same, with reads of this length, from the drive as far as its caches can be dropped.
    ///
    /// # Errors
    /// As [`Receiving::read_frames`].
    pub fn read_stored_frames(
        &self,
        read_len_bytes: u64,
        start: Point,
        end: Seq,
        each: impl FnMut(Chunk) -> Result<(), NodeError>,
    ) -> Result<Point, NodeError> {
        // Frames reach into the next read.
        let len_bytes = (2 * read_len_bytes).min(end.0.saturating_sub(start.seq.0));
        self.device.drop_cache(start.seq, len_bytes as usize);
        self.read_frames_by(read_len_bytes, start, end, each)
    }

    fn read_frames_by(
        &self,
        read_len_bytes: u64,
        start: Point,
        end: Seq,
        mut each: impl FnMut(Chunk) -> Result<(), NodeError>,
    ) -> Result<Point, NodeError> {
        let mut at = start;
        let mut window: Vec<u8> = Vec::new();
        let mut window_start = start.seq.0;
        let mut damage = self.damage_before(end);
        while at.seq < end {
            let from = (at.seq.0 - window_start) as usize;
            let rest = window.get(from..).unwrap_or(&[]);
            let frame_len = frame_len(rest);
            match frame_len.and_then(|len| rest.get(..len as usize)) {
                Some(wire) => {
                    let chunk = decode_chunk(wire.to_vec(), at)?;
                    at = chunk.end;
                    each(chunk)?;
                }
                None => {
                    let have = rest.len() as u64;
                    let wanted = frame_len.unwrap_or(HEADER_LEN_BYTES as u64).max(read_len_bytes);
                    let readable_end = damage.as_ref().map_or(end, |(from, _)| *from);
                    let wanted = wanted.min(readable_end.0.saturating_sub(at.seq.0));
                    if wanted <= have {
                        if let Some((_, damage)) = damage {
                            return Err(damage);
                        }
                        let reason = format!("the last frame, at {}, is cut off", at.seq);
                        return Err(NodeError::Damaged { path: self.log_path(), reason });
                    }
                    window.resize(wanted as usize, 0);
                    window_start = at.seq.0;
                    if let Err(error) = self.device.read_at(at.seq, &mut window) {
                        match error.damaged_from() {
                            Some(from) if from < readable_end => damage = Some((from, error.into())),
                            _ => return Err(error.into()),
                        }
                        window.clear();
                    }
                }
            }
        }
        Ok(at)
    }

    /// The end of a damaged log, if it is before `end`.
    fn damage_before(&self, end: Seq) -> Option<(Seq, NodeError)> {
        let (damage, from) = (self.damage.as_ref()?, self.device.end());
        let error = || NodeError::Damaged { path: self.log_path(), reason: damage.reason.clone() };
        (from < end).then(|| (from, error()))
    }

    /// The drive of the log can read some of the bytes in `[start, end)`.
    pub fn is_readable_within(&self, start: Seq, end: Seq) -> bool {
        let len = PROBE_LEN_BYTES.min(end.0.saturating_sub(start.0));
        let can_read = |at: Seq| self.device.read_at(at, &mut vec![0; len as usize]).is_ok();
        len > 0 && (can_read(start) || can_read(Seq(end.0 - len)))
    }

    /// A checkpoint needs the log from `needed` on: discards the part that no pin needs either. The log of a frozen volume
    /// stays as it is.
    ///
    /// # Errors
    /// [`NodeError::LogDevice`].
    pub fn give_up_before(&self, needed: Point) -> Result<(), NodeError> {
        // A person may put back what is missing.
        if self.context.frozen_end().is_some() {
            return Ok(());
        }
        let from = self.retention.give_up_before(needed);
        Ok(self.device.discard_before(from.seq)?)
    }

    /// Directory of the log, for messages.
    pub fn log_path(&self) -> PathBuf {
        self.context.own.path().join("log")
    }

    /// Kind and properties of the log device, for people.
    pub fn device_status(&self) -> LogDeviceStatus {
        let (info, stats) = (self.device.info(), self.device.stats());
        LogDeviceStatus {
            kind: info.kind.name().to_owned(),
            detail: info.detail,
            directory: self.log_place.clone(),
            write_unit_bytes: info.write_unit_bytes as u64,
            max_in_flight: info.max_in_flight as u64,
            written_per_appended_byte: match stats.bytes_appended {
                0 => 0.0,
                appended => stats.bytes_written as f64 / appended as f64,
            },
            warnings: self.device_warnings.clone(),
        }
    }

    /// Counters of the device and the buffer.
    pub fn counters(&self) -> [(&'static str, u64); 5] {
        let stats = self.device.stats();
        let (full_waits, full_wait_times) = self.buffer.full_waits();
        [
            ("log_device_appended_bytes", stats.bytes_appended),
            ("log_device_written_bytes", stats.bytes_written),
            ("log_device_writes", stats.syncs),
            ("ring_full_waits", full_waits),
            ("ring_full_wait_micros", full_wait_times.iter().sum::<Duration>().as_micros() as u64),
        ]
    }

    /// Ends all waits of this part.
    pub fn close(&self) {
        self.buffer.close();
        self.written_ends.close();
        self.durable.close();
    }
}

/// Amounts that a frame adds to the counters once it is in the stream.
struct Counted {
    is_image: bool,
    received_bytes: u64,
    redo_bytes: u64,
}

impl Counted {
    fn of(chunk: &Chunk) -> Self {
        Self {
            is_image: redoubt_wire::stream::is_image(chunk.kind),
            received_bytes: chunk.wire.len() as u64,
            // The first redo of a volume does not begin at LSN 0.
            redo_bytes: if chunk.start.lsn == Lsn(0) { 0 } else { chunk.end.lsn.0 - chunk.start.lsn.0 },
        }
    }

    fn count(&self, context: &Context) {
        let counters = &context.counters;
        add(&counters.frames, 1);
        add(&counters.images, u64::from(self.is_image));
        add(&counters.received_bytes, self.received_bytes);
        add(&counters.redo_bytes, self.redo_bytes);
    }
}

fn full(stage: Stage) -> String {
    let what = match stage {
        Stage::Device => "the log device",
        Stage::Parser => "the parser",
        Stage::Apply => "changes to be applied to the pages",
    };
    format!("the log buffer is full and waits for {what}")
}

fn frame_len(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk::<HEADER_LEN_BYTES>().map(|header| FrameHeader::decode(header).total_len_bytes())
}

/// Checks a frame that starts at `start` and turns it into a chunk.
///
/// # Errors
/// [`NodeError::Wire`] for a frame that is damaged or does not belong there.
pub fn decode_chunk(wire: Vec<u8>, start: Point) -> Result<Chunk, NodeError> {
    let cut = WireError::Truncated { what: "frame", len_bytes: wire.len(), field: "header" };
    let Some((header, payload)) = wire.split_first_chunk() else { return Err(cut.into()) };
    let header = FrameHeader::decode(header);
    header.check(start.seq.0, payload)?;
    let raw = if header.compressed { Some(redoubt_wire::frame::decompress(payload)?) } else { None };
    let logged = header.kind < FIRST_UNLOGGED_KIND;
    let mut end = start;
    if logged {
        end.seq = Seq(start.seq.0 + wire.len() as u64);
    }
    match decode(header.kind, raw.as_deref().unwrap_or(payload))? {
        StreamFrame::Redo(_) if start.lsn == Lsn(0) => {
            return Err(NodeError::Wire(WireError::Invalid {
                what: "redo",
                field: "position",
                why: "it comes before the first redo log file frame, so its LSN is not known".to_owned(),
            }));
        }
        StreamFrame::Redo(bytes) => end.lsn = start.lsn.advance(bytes.len() as u64),
        StreamFrame::LogFile { next_lsn, .. } | StreamFrame::LogFront { next_lsn, .. }
            if start.lsn == Lsn(0) =>
        {
            end.lsn = next_lsn;
        }
        _ => {}
    }
    Ok(Chunk { kind: header.kind, logged, start, end, wire, raw })
}
