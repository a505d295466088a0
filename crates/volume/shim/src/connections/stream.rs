//! The ordered log connection: everything the server changed, in one sequence of frames; and the notices connection,
//! on which the node answers.
//!
//! A frame is given its position, kept in the queue and sent in the caller's thread; it stays in the queue until the
//! node reports it durable. The queue is in a mapped file, so that it survives the death of the process. One
//! background thread owns the connection: it connects, sends again what a lost connection may have swallowed, and
//! reads notices. The two connections live and die together.
//!
//! Invariants:
//! * Frames reach the node in the order of their positions, each exactly once as far as the node keeps them.
//! * [`Stream::wait_durable`] returns `Ok` only when the node has reported everything before the position as durable.
//! * Nothing is ever read from the log connection but its end: so when this process is killed, its kernel continues
//!   sending what was written ([`redoubt_wire::notice`]).
//! * [`Stream::die`] of a server that was connected ends its process, and no call returns because of it. MariaDB
//!   would continue without its binary log after an error of it, and answer commits that are then in no log. Before
//!   the first connection every call fails at once instead of waiting, and nothing is sent.
//! * A thread that waits for its bytes sleeps in a slot of its own and is woken once, when they are durable or the
//!   stream dies. `wake` is only for the connection's state, which few threads wait for.
//!
//! Lock order: `state`, then `wake`, that of `waiters` or one of [`crate::content::dirty`]; `current` is a leaf. `state` may be held while sending
//! blocks (back-pressure); the notice thread therefore never needs it to move `durable`, and ends a blocked send by
//! closing the socket.

mod connection;
mod queue;

use crate::base::counters::Counters;
use crate::base::message;
use crate::base::real::Errno;
use crate::connections::link::{LinkError, Peer};
use crate::connections::trace::Trace;
use crate::connections::unsent_file::OpenedFile;
use crate::connections::wanted_pages::WantedPages;
use queue::FrameQueue;
use redoubt_commit_waiters::{CommitWaiters, WaitEnd};
use redoubt_locks::IgnorePoison;
use redoubt_redo::Lsn;
use redoubt_transport::{Connection, Packing};
use redoubt_wire::Seq;
use redoubt_wire::compression::Compressor;
use redoubt_wire::frame::append_frame;
use redoubt_wire::greeting::{Features, ON_DIFFERENCE};
use redoubt_wire::parts::PartWriter;
use redoubt_wire::stream::{Counter, StreamFrame, SystemFile, Verify};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// Limit of the bytes that are not durable yet; a caller that would exceed it waits.
const UNACKNOWLEDGED_LIMIT_BYTES: u64 = 64 << 20;
/// Time limit for a node that stores nothing, owes a notice and has not reported that it waits. Then the stream
/// connects again. Bytes that were changed on the way (the length of a frame) can make both sides wait for each
/// other; a new connection is cheap.
const SILENT_NODE_LIMIT: Duration = Duration::from_secs(30);
/// Interval between checks of the node's progress.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Longest payload of a stream frame; longer data is split by the callers.
pub const FRAME_LIMIT_BYTES: usize = 8 << 20;
/// Unlogged frames are gathered up to this many bytes and sent with the next logged frame.
const UNLOGGED_LIMIT_BYTES: usize = 32 << 10;
/// Room that is kept for compressed frames.
const SCRATCH_LIMIT_BYTES: usize = 1 << 20;

/// A request of the node for a page that was dropped.
#[derive(Clone, Debug)]
pub enum ImageWanted {
    /// This version, for the report of a difference.
    ForReport(DifferingPage),
    /// The newest one, for the stream: the node's is damaged.
    ForStream {
        /// Tablespace file.
        path: Vec<u8>,
        /// Page number inside it.
        page_no: u32,
    },
}

/// A page of which the node's version differs.
#[derive(Clone, Debug)]
pub struct DifferingPage {
    /// Tablespace file.
    pub path: Vec<u8>,
    /// Page number inside it.
    pub page_no: u32,
    /// LSN of the dropped write.
    pub lsn: Lsn,
}

/// Work for the helper thread, as the node requests it.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// A page.
    Image(ImageWanted),
    /// A plain file that the volume does not have, by its path.
    File(Vec<u8>),
}

/// Configuration of the stream.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// The node, and the identity of this server.
    pub peer: Peer,
    /// Timeout of the wait for a lost node.
    pub timeout: Duration,
    /// First frame of the session.
    pub system_files: Vec<SystemFile>,
    /// Directory of the file of unsent frames.
    pub datadir: Vec<u8>,
    /// Ends the server after the stream's death. It returns in tests only, where every call fails then.
    pub end_server: fn(),
}

/// The two connections to the node.
struct Link {
    log: Arc<dyn Connection>,
    notices: Arc<dyn Connection>,
}

impl Link {
    /// Ends both, and with them every call that is under way.
    fn shutdown(&self) {
        self.log.shutdown();
        self.notices.shutdown();
    }
}

struct SendState {
    /// The queue, from the first connection on.
    queue: Option<FrameQueue>,
    link: Option<Arc<Link>>,
    /// How the log connection carries frames. Its compression history belongs to that connection, and ends with it.
    packer: Packer,
    /// Features that this side and the connected node have.
    features: Features,
    unlogged: Vec<u8>,
    scratch: Vec<u8>,
    /// The frame that is being sent.
    frame: Vec<u8>,
}

/// Encoding of frames into the bytes of a log connection.
enum Packer {
    None,
    Whole(Compressor),
    Parts(PartWriter),
}

/// Start of the session.
#[derive(Clone, Copy, Debug)]
pub struct SessionStart {
    /// Position of the session's first frame.
    pub seq: Seq,
    /// LSN of the next redo byte; 0 for a volume without a log.
    pub next_lsn: Lsn,
}

/// The log connection of this process, and that of its notices.
pub struct Stream {
    config: StreamConfig,
    counters: Arc<Counters>,
    state: Mutex<SendState>,
    end: AtomicU64,
    /// The durable position that the node has reported, and the threads that wait for a later one.
    waiters: CommitWaiters,
    /// The connections again, for a thread that must not wait for `state`.
    current: Mutex<Option<Arc<Link>>>,
    /// The node has reported that it waits (for room on its disk, say): it does not hang.
    node_waits: AtomicBool,
    start: OnceLock<SessionStart>,
    /// Opened before the first connection.
    unsent: OnceLock<OpenedFile>,
    death: OnceLock<String>,
    wake_lock: Mutex<()>,
    wake: Condvar,
    wanted: Sender<Wanted>,
    /// Images asked for and not answered yet.
    images_pending: AtomicU64,
    /// Whether writes to the log connection are packed, where that is left to this side.
    packing: Packing,
    trace: Trace,
    wanted_pages: WantedPages,
}

impl Stream {
    /// A stream that is not connected yet; see [`Stream::run`].
    pub fn new(config: StreamConfig, counters: Arc<Counters>, wanted: Sender<Wanted>) -> Arc<Self> {
        Arc::new(Self {
            config,
            counters,
            state: Mutex::new(SendState {
                queue: None,
                link: None,
                packer: Packer::None,
                features: Features::NONE,
                unlogged: Vec::new(),
                scratch: Vec::new(),
                frame: Vec::new(),
            }),
            end: AtomicU64::new(0),
            waiters: CommitWaiters::default(),
            current: Mutex::default(),
            node_waits: AtomicBool::new(false),
            start: OnceLock::new(),
            unsent: OnceLock::new(),
            death: OnceLock::new(),
            wake_lock: Mutex::new(()),
            wake: Condvar::new(),
            wanted,
            images_pending: AtomicU64::new(0),
            packing: Packing::default(),
            trace: Trace::default(),
            wanted_pages: WantedPages::default(),
        })
    }

    /// Pages that the node requests whole.
    pub const fn wanted_pages(&self) -> &WantedPages {
        &self.wanted_pages
    }

    /// Address of the node, and identity of this server.
    pub const fn peer(&self) -> &Peer {
        &self.config.peer
    }

    /// Samples of latencies, taken while the node requests them.
    pub const fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Timeout of the wait for a lost node.
    pub const fn timeout(&self) -> Duration {
        self.config.timeout
    }

    /// Reason of the stream's death; `None` while it works.
    pub fn death(&self) -> Option<&str> {
        self.death.get().map(String::as_str)
    }

    /// Position after the last frame.
    pub fn end(&self) -> Seq {
        Seq(self.end.load(Ordering::Acquire))
    }

    /// Start of the session, once there was a connection.
    pub fn session_start(&self) -> Option<SessionStart> {
        self.start.get().copied()
    }

    /// An image the node asked for was answered.
    pub fn image_answered(&self) {
        self.images_pending.fetch_sub(1, Ordering::AcqRel);
        self.wake_all();
    }

    /// Waits until all images asked for are answered, for at most `limit`: after the stream's death the server
    /// ends, and the images with it.
    fn wait_images(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut guard = self.lock_wake();
        while self.images_pending.load(Ordering::Acquire) > 0 && self.death.get().is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            guard = self.wake.wait_timeout(guard, left).ignore_poison().0;
        }
    }

    /// Waits for the first connection.
    ///
    /// # Errors
    /// `EIO` when the stream died first.
    pub fn wait_connected(&self) -> Result<SessionStart, Errno> {
        let mut guard = self.lock_wake();
        loop {
            if self.death.get().is_some() {
                return Err(Errno::EIO);
            }
            if let Some(start) = self.start.get() {
                return Ok(*start);
            }
            guard = self.wake.wait(guard).ignore_poison();
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, SendState> {
        self.state.lock().ignore_poison()
    }

    fn lock_wake(&self) -> MutexGuard<'_, ()> {
        self.wake_lock.lock().ignore_poison()
    }

    fn wake_all(&self) {
        drop(self.lock_wake());
        self.wake.notify_all();
    }

    /// Ends the stream permanently, and the server with it, once there was a connection. Before that, every later
    /// call, and every call that waits now, fails.
    pub fn die(&self, reason: &str) {
        // A concurrent caller blocks here, so no thread sees the death before the server has ended.
        self.death.get_or_init(|| {
            let was_connected = self.start.get().is_some();
            let what = if was_connected {
                "the server ends now"
            } else {
                "all I/O on this data directory fails from now on"
            };
            message::error(&format!("{reason}. Nothing more can be made durable: {what}"));
            if was_connected {
                (self.config.end_server)();
            }
            reason.to_owned()
        });
        self.wake_all();
        self.waiters.close();
        self.close_link();
    }

    /// Ends a send that blocks, and the reading of notices.
    fn close_link(&self) {
        if let Some(link) = &*self.current() {
            link.shutdown();
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Link>>> {
        self.current.lock().ignore_poison()
    }

    /// Waits up to `limit`; ends early when the stream dies. For back-off between attempts.
    pub fn pause(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut guard = self.lock_wake();
        while self.death.get().is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            guard = self.wake.wait_timeout(guard, left).ignore_poison().0;
        }
    }

    /// Appends a logged frame; returns the position after it. Blocks while too much is not durable.
    ///
    /// # Errors
    /// `EIO` when the stream is dead.
    pub fn append(&self, frame: &StreamFrame<'_>) -> Result<Seq, Errno> {
        Ok(self.append_if(frame, || true)?.unwrap_or_else(|| self.end()))
    }

    /// [`Stream::append`], if `is_due` is true when nothing else can be appended before the frame. `None`: it was false.
    ///
    /// # Errors
    /// As [`Stream::append`].
    pub fn append_if(
        &self,
        frame: &StreamFrame<'_>,
        is_due: impl FnOnce() -> bool,
    ) -> Result<Option<Seq>, Errno> {
        let began = self.trace.now();
        let mut state = self.lock_state();
        loop {
            if self.death.get().is_some() {
                return Err(Errno::EIO);
            }
            let Some(queue) = &mut state.queue else { return Err(not_begun()) };
            queue.trim(Seq(self.waiters.durable()));
            if queue.used_bytes() < UNACKNOWLEDGED_LIMIT_BYTES {
                break;
            }
            let half_way = Seq(queue.oldest().0 + UNACKNOWLEDGED_LIMIT_BYTES / 4).min(queue.end());
            drop(state);
            self.wait_durable(half_way)?;
            state = self.lock_state();
        }
        if !is_due() {
            return Ok(None);
        }
        let end = self.append_locked(&mut state, frame, began)?;
        self.trace.sent(began, end);
        Ok(Some(end))
    }

    fn append_locked(
        &self,
        state: &mut SendState,
        frame: &StreamFrame<'_>,
        began: Option<Instant>,
    ) -> Result<Seq, Errno> {
        let mut bytes = std::mem::take(&mut state.frame);
        let Some(queue) = &mut state.queue else { return Err(not_begun()) };
        queue.push(frame.kind(), &mut bytes, |out| frame.encode_payload(out)).map_err(|error| {
            // It was made here, so the node would go on without it.
            self.die(&format!("a change cannot be sent to the storage node: {error}"));
            Errno::EIO
        })?;
        let end = queue.end();
        self.end.store(end.0, Ordering::Release);
        self.trace.sending(began, end);
        self.send(state, &bytes);
        bytes.clear();
        bytes.shrink_to(SCRATCH_LIMIT_BYTES);
        state.frame = bytes;
        Ok(end)
    }

    /// Sends what was gathered, then `bytes`. A failure is no error here: the frame stays in the queue, and
    /// the connection thread notices the closed socket.
    fn send(&self, state: &mut SendState, bytes: &[u8]) {
        let Some(link) = state.link.clone() else {
            state.unlogged.clear();
            return;
        };
        let gathered;
        let bytes = if state.unlogged.is_empty() {
            bytes
        } else {
            gathered = [&state.unlogged[..], bytes].concat();
            state.unlogged.clear();
            &gathered
        };
        if self.write(&link, &mut state.packer, &mut state.scratch, bytes).is_err() {
            link.shutdown();
            state.link = None;
        }
    }

    /// Writes to the log connection what may be read at once at its other end.
    fn write(
        &self,
        link: &Link,
        packer: &mut Packer,
        scratch: &mut Vec<u8>,
        bytes: &[u8],
    ) -> Result<(), LinkError> {
        scratch.clear();
        let on_wire = match packer {
            Packer::None => bytes,
            Packer::Whole(compressor) => {
                compressor.pack(bytes, scratch)?;
                &*scratch
            }
            Packer::Parts(writer) => {
                self.append_part(&*link.log, writer, bytes, scratch)?;
                &*scratch
            }
        };
        if matches!(packer, Packer::Whole(_)) || on_wire.len() < bytes.len() {
            self.counters.add(Counter::LogWritesCompressed, 1);
            self.counters.add(Counter::LogBytesSaved, bytes.len().saturating_sub(on_wire.len()) as u64);
        }
        link.log.write_all(on_wire)?;
        self.counters.add(Counter::SentBytes, on_wire.len() as u64);
        scratch.shrink_to(SCRATCH_LIMIT_BYTES);
        Ok(())
    }

    /// Appends `bytes` to `out`, packed if that is worth its while now.
    fn append_part(
        &self,
        log: &dyn Connection,
        writer: &mut PartWriter,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), LinkError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let choice = self.packing.choose(log, bytes.len());
        if let Some(news) = choice.news {
            message::note(&format!("writes to the storage node are {news}"));
        }
        if !choice.pack {
            return Ok(writer.append(bytes, false, out)?);
        }
        let packed = self.packing.measured(
            bytes.len(),
            || writer.append(bytes, true, out).map(|()| out.len()),
            |packed| packed.as_ref().map_or(bytes.len(), |len_bytes| *len_bytes),
        );
        packed?;
        Ok(())
    }

    /// Has a dropped page write compared. `heals`: a node with that feature takes this server's page on a difference; every
    /// other one stops the volume.
    pub fn append_verify(&self, verify: Verify<'_>, heals: bool) {
        let state = self.lock_state();
        if heals && state.features.contains(ON_DIFFERENCE) {
            self.append_unlogged_locked(state, &StreamFrame::VerifyOrHeal(verify));
        } else {
            self.append_unlogged_locked(state, &StreamFrame::Verify(verify));
        }
    }

    /// Appends a frame that is not stored. It may be lost with the connection.
    pub fn append_unlogged(&self, frame: &StreamFrame<'_>) {
        self.append_unlogged_locked(self.lock_state(), frame);
    }

    fn append_unlogged_locked(&self, mut state: MutexGuard<'_, SendState>, frame: &StreamFrame<'_>) {
        if state.link.is_none() || self.death.get().is_some() {
            return;
        }
        let Some(position) = state.queue.as_ref().map(|queue| queue.end().0) else { return };
        let mut payload = Vec::new();
        frame.encode_payload(&mut payload);
        if append_frame(&mut state.unlogged, frame.kind(), position, &payload).is_ok()
            && state.unlogged.len() >= UNLOGGED_LIMIT_BYTES
        {
            self.send(&mut state, &[]);
        }
    }

    /// Sends the counters, and with them all gathered unlogged frames.
    pub fn send_counters(&self) {
        let stats = self.waiters.stats();
        self.counters.raise_to(Counter::DurabilityWakeups, stats.wakeups);
        self.counters.raise_to(Counter::DurabilityWakeupsNotReached, stats.wakeups_not_reached);
        self.append_unlogged(&StreamFrame::Counters(self.counters.snapshot()));
        let samples = self.trace.take();
        if !samples.is_empty() {
            self.append_unlogged(&StreamFrame::Trace(samples));
        }
        let mut state = self.lock_state();
        if !state.unlogged.is_empty() {
            self.send(&mut state, &[]);
        }
    }

    /// Body of a thread of its own, because every other one may be waiting for the node. It closes a connection whose
    /// node has made nothing durable for a time although frames are pending. Its host may be up and receive bytes
    /// while the process hangs; only the next greeting shows the difference.
    pub fn watch(&self) {
        let (mut seen, mut since) = (0, Instant::now());
        while self.death().is_none() {
            self.pause(WATCH_INTERVAL);
            let durable = self.waiters.durable();
            // Without a connection there is nothing to close.
            let is_idle = self.end.load(Ordering::Acquire) <= durable || self.current().is_none();
            if durable != seen || is_idle || self.node_waits.load(Ordering::Acquire) {
                (seen, since) = (durable, Instant::now());
            } else if since.elapsed() >= self.timeout().min(SILENT_NODE_LIMIT) {
                since = Instant::now();
                message::warning("the storage node has stored nothing for too long; connecting again");
                self.close_link();
            }
        }
    }

    /// A queue without a connection: what is appended stays in it.
    #[cfg(test)]
    pub fn begin_alone(&self) {
        let ring = crate::connections::unsent_file::tests::mapped().begin(1, 1, Seq(0));
        self.lock_state().queue = Some(FrameQueue::new(ring));
    }

    /// Waits until everything before `seq` is durable.
    ///
    /// # Errors
    /// `EIO` when the stream died before that.
    pub fn wait_durable(&self, seq: Seq) -> Result<(), Errno> {
        let is_dead = || self.death.get().is_some();
        if self.waiters.durable() >= seq.0 {
            self.trace.awake(seq, false);
            return if is_dead() { Err(Errno::EIO) } else { Ok(()) };
        }
        let began = Instant::now();
        if self.waiters.wait(seq.0, None) != WaitEnd::Reached || is_dead() {
            return Err(Errno::EIO);
        }
        self.trace.awake(seq, true);
        self.counters.add(Counter::DurabilityWaits, 1);
        self.counters.add(Counter::DurabilityWaitMicros, began.elapsed().as_micros() as u64);
        Ok(())
    }
}

#[cold]
fn not_begun() -> Errno {
    message::error("a change comes before the first connection to the storage node; it cannot be sent");
    Errno::EIO
}

#[cfg(test)]
mod tests;
