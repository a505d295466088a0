//! The writer's side of a volume: attaching, the log connection, the notices, fencing.
//!
//! *Attach* (`redoubt run`) takes a new generation: the server before it is told, its connection no longer
//! counts, and the answer is given only when everything received is durable and executed. A *session* is one
//! server process of a generation; it may lose its connection and come back, and then sends again what was not
//! acknowledged.

use super::Volume;
use super::recovery::decode_chunk;
use crate::counters::add;
use crate::error::NodeError;
use crate::mark::{Point, WaitEnd};
use redoubt_redo::Lsn;
use redoubt_sync::{Mutex, is_planted, time};
use redoubt_transport::Connection;
use redoubt_wire::control::{Attachment, Entry, EntryKind};
use redoubt_wire::hello::{Hello, Status, Welcome};
use redoubt_wire::notice::Notice;
use redoubt_wire::stream::Counter;
use redoubt_wire::{HEADER_LEN_BYTES, Seq};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Attach waits this long for the rest of the old stream to become durable.
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);

/// Attach cuts the old server's connection off when nothing has come on it for this long. A server that is gone, or
/// has been told that it is fenced, ends it by itself.
const SILENCE_LIMIT: Duration = Duration::from_secs(3);

/// Which connection may append.
#[derive(Default)]
pub struct Receiver {
    /// The connection whose frames are appended; 0: none.
    pub connection: u64,
}

/// Sends notices; their position counts from 0 per connection.
struct NoticeWriter {
    stream: Arc<dyn Connection>,
    position: u64,
}

impl NoticeWriter {
    /// Sends one; an error means that the connection is gone, which its reader finds out too.
    fn send(&mut self, notice: &Notice) {
        let (kind, payload) = notice.encode();
        let mut frame = Vec::with_capacity(HEADER_LEN_BYTES + payload.len());
        if redoubt_wire::frame::append_frame(&mut frame, kind, self.position, &payload).is_ok()
            && self.stream.write_all(&frame).is_err()
        {
            // Its reader must notice. What the server sent on its log connection still counts.
            self.stream.shutdown();
        }
        self.position += 1;
    }
}

/// Where notices go. Ends its connection when it is dropped: the server then knows that it must connect again.
struct NoticeLine {
    stream: Arc<dyn Connection>,
    writer: Arc<Mutex<NoticeWriter>>,
}

impl Drop for NoticeLine {
    fn drop(&mut self) {
        self.stream.shutdown();
    }
}

/// The server process that writes the volume.
pub struct LogSession {
    generation: u64,
    session: u64,
    connection: u64,
    connected: bool,
    notices: Option<NoticeLine>,
}

impl LogSession {
    /// Its connection is up.
    pub fn is_connected(&self) -> bool {
        self.connected
    }
}

/// An accepted log connection.
pub struct Accepted {
    /// Its number.
    pub connection: u64,
    /// What to answer.
    pub welcome: Welcome,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Appended to the stream.
    Yes,
    /// The connection no longer counts; close it.
    NotCurrent,
}

fn refusal(status: Status, message: String) -> Welcome {
    Welcome { status, compression: false, next_seq: Seq(0), next_lsn: Lsn(0), message }
}

impl Volume {
    /// Sends a notice to the server, if one is connected.
    pub(super) fn notify(&self, notice: &Notice) {
        let writer = {
            let session = self.session.lock();
            session.as_ref().and_then(|session| session.notices.as_ref()).map(|line| Arc::clone(&line.writer))
        };
        if let Some(writer) = writer {
            writer.lock().send(notice);
        }
    }

    /// Checks a Hello of any role: the generation must be the newest.
    ///
    /// # Errors
    /// The refusal to send.
    pub fn check_generation(&self, hello: &Hello) -> Result<(), Welcome> {
        if let Some(reason) = self.stopped() {
            if self.is_shutting_down() {
                return Err(refusal(Status::TryLater, reason));
            }
            return Err(refusal(Status::Refused, format!("volume {} has stopped: {reason}", self.name)));
        }
        self.check_fence(hello)
    }

    /// As [`Volume::check_generation`], but also for a volume that has stopped.
    ///
    /// # Errors
    /// The refusal to send.
    pub fn check_fence(&self, hello: &Hello) -> Result<(), Welcome> {
        let identity = self.identity.lock();
        if hello.generation == identity.generation
            || (hello.generation < identity.generation && is_planted("old generation let in"))
        {
            return Ok(());
        }
        if hello.generation < identity.generation {
            let message = format!(
                "volume {} was attached by {} (generation {}, yours is {})",
                self.name, identity.attached_by, identity.generation, hello.generation
            );
            return Err(refusal(Status::Fenced, message));
        }
        let message = format!(
            "generation {} of volume {} was never given out (newest is {}); start the server with `redoubt run`",
            hello.generation, self.name, identity.generation
        );
        Err(refusal(Status::Refused, message))
    }

    /// Accepts a log connection, or says why not.
    ///
    /// # Errors
    /// The refusal to send.
    pub fn accept_log(&self, hello: &Hello) -> Result<Accepted, Welcome> {
        self.check_generation(hello)?;
        // In-flight appends of an older connection finish first.
        let Some(mut receive) = self.receive.try_lock_for(DRAIN_TIMEOUT) else {
            return Err(refusal(Status::TryLater, self.still_full().to_string()));
        };
        let mut session = self.session.lock();
        self.check_generation(hello)?;
        if let Some(current) = &*session
            && current.session != hello.session
            && current.generation == hello.generation
            && current.connected
        {
            let message =
                format!("another server process writes volume {} with the same generation", self.name);
            return Err(refusal(Status::TryLater, message));
        }
        let received = self.buffer.received();
        let resumes = session.as_ref().is_some_and(|current| current.session == hello.session);
        // Whether this node remembers the session or was restarted since: a first connection says 0.
        if hello.resume > received.seq {
            let message = format!(
                "the node has the stream up to {} only, but {} was acknowledged; its log has lost data",
                received.seq, hello.resume
            );
            return Err(refusal(Status::Refused, message));
        }
        let connection = self.next_connection();
        receive.connection = connection;
        *session = Some(LogSession {
            generation: hello.generation,
            session: hello.session,
            connection,
            connected: true,
            notices: None,
        });
        // Neither lock may be held while waiting for a reader of the server's log, who may wait for them.
        drop((session, receive));
        if !resumes {
            // Another process of the same attachment (a script that starts the server again) reads its log anew.
            *self.server_log.lock() = None;
        }
        tracing::info!(volume = self.name, connection, resumes, lsn = received.lsn.0, "server connected");
        let welcome = Welcome {
            status: Status::Accepted,
            compression: hello.compression,
            next_seq: received.seq,
            next_lsn: received.lsn,
            message: String::new(),
        };
        Ok(Accepted { connection, welcome })
    }

    /// From now on notices go to `stream`, after `welcome`, and after one that tells where D is and one that tells what
    /// keeps it from moving, if something does. Returns what `welcome` did.
    ///
    /// # Errors
    /// The refusal to send: the server has no log connection, or another writes the volume.
    pub fn attach_notices<R>(
        &self,
        hello: &Hello,
        stream: &Arc<dyn Connection>,
        welcome: impl FnOnce() -> R,
    ) -> Result<R, Welcome> {
        self.check_generation(hello)?;
        let writer = Arc::new(Mutex::new(NoticeWriter { stream: Arc::clone(stream), position: 0 }));
        // Held until all that comes first is written; another thread cannot send before, and none waits for this one.
        let mut first = writer.lock();
        {
            let mut session = self.session.lock();
            let current = session.as_mut().filter(|current| {
                (current.generation, current.session) == (hello.generation, hello.session)
                    && current.connected
            });
            let Some(current) = current else {
                let message = format!("the log connection to volume {} comes first", self.name);
                return Err(refusal(Status::TryLater, message));
            };
            current.notices = Some(NoticeLine { stream: Arc::clone(stream), writer: Arc::clone(&writer) });
        }
        let welcomed = welcome();
        first.send(&Notice::Durable(self.durable.get().seq));
        let waiting = match &*self.run_state.lock() {
            super::RunState::Waiting(reason) => Some(reason.clone()),
            _ => None,
        };
        if let Some(reason) = waiting {
            first.send(&Notice::Waiting { reason });
        }
        if self.tracer.one_in() != 0 {
            first.send(&Notice::Trace { one_in: self.tracer.one_in() });
        }
        Ok(welcomed)
    }

    /// Appends a frame received on `connection`. Waits while the ring is full.
    ///
    /// # Errors
    /// [`NodeError::Wire`] for a frame that must not be used; [`NodeError::Stopped`].
    pub fn receive(&self, connection: u64, wire: Vec<u8>) -> Result<Received, NodeError> {
        let arrived = self.tracer.now();
        let receive = self.receive.lock();
        if receive.connection != connection && !is_planted("any connection may append") {
            return Ok(Received::NotCurrent);
        }
        let chunk = decode_chunk(wire, self.buffer.received())?;
        if chunk.logged {
            self.tracer.received(arrived, chunk.end.seq);
        }
        add(&self.counters.frames, 1);
        add(&self.counters.images, u64::from(chunk.kind == redoubt_wire::stream::KIND_IMAGE));
        add(&self.counters.received_bytes, chunk.wire.len() as u64);
        if chunk.start.lsn != Lsn(0) {
            add(&self.counters.redo_bytes, chunk.end.lsn.0 - chunk.start.lsn.0);
        }
        self.note_redo_position(&chunk);
        if self.buffer.push(chunk) {
            return Ok(Received::Yes);
        }
        Err(NodeError::Stopped(self.stopped().unwrap_or_default()))
    }

    /// A server is connected, or an export holds a state.
    pub fn in_use(&self) -> bool {
        let connected = self.session.lock().as_ref().is_some_and(LogSession::is_connected);
        connected || self.wake_lock.lock().hold.is_some()
    }

    /// A log connection ended.
    pub fn disconnected(&self, connection: u64) {
        self.buffer.wake_device();
        let mut session = self.session.lock();
        if let Some(current) = session.as_mut().filter(|current| current.connection == connection) {
            current.connected = false;
            current.notices = None;
            self.session_ended.notify_all();
            tracing::info!(volume = self.name, connection, "server disconnected");
        }
    }

    /// Takes the volume over for a new server.
    ///
    /// # Errors
    /// [`NodeError::Io`] if the generation cannot be written; [`NodeError::NotNow`] if the old stream does not
    /// become durable; [`NodeError::Stopped`].
    pub fn attach(&self, who: &str) -> Result<Attachment, NodeError> {
        // One at a time: what an earlier one still has to end must not be the server of a later one.
        let Some(_attaching) = self.attaching.try_lock_for(DRAIN_TIMEOUT) else {
            let message =
                format!("another server has been attaching volume {} for long; try again", self.name);
            return Err(NodeError::NotNow(message));
        };
        self.check_running()?;
        let generation = {
            let mut identity = self.identity.lock();
            let mut next = identity.clone();
            next.generation += 1;
            who.clone_into(&mut next.attached_by);
            if !is_planted("generation not written") {
                next.write(&self.own)?;
            }
            *identity = next;
            identity.generation
        };
        self.notify(&Notice::Fenced { generation });
        self.take_the_rest();
        // The old server's receiver may be waiting for room; it must be out before anything is answered.
        self.receive.try_lock_for(DRAIN_TIMEOUT).ok_or_else(|| self.still_full())?.connection = 0;
        *self.session.lock() = None;
        *self.server_log.lock() = None;
        tracing::info!(volume = self.name, generation, who, "volume attached");
        self.drain()?;
        Ok(self.attachment(generation))
    }

    /// Takes in what the old server sent before it ended. A killed server has told its clients of commits whose
    /// binary log it only wrote (`sync_binlog=0`), which on a local disk survive it; here they may still be on the
    /// connection.
    fn take_the_rest(&self) {
        let last = time::now() + DRAIN_TIMEOUT;
        let (mut received, mut since) = (self.buffer.received(), time::now());
        let mut session = self.session.lock();
        while session.as_ref().is_some_and(LogSession::is_connected)
            && time::elapsed(since) < SILENCE_LIMIT
            && time::now() < last
        {
            let until = (since + SILENCE_LIMIT).min(last);
            self.session_ended.wait_until(&mut session, until);
            // A full log buffer is not the old server's silence.
            if self.buffer.received() != received || self.buffer.waits_for().is_some() {
                (received, since) = (self.buffer.received(), time::now());
            }
        }
    }

    /// The log buffer stays full for so long that somebody must look.
    pub(super) fn still_full(&self) -> NodeError {
        let waits_for = self.buffer.waits_for().map_or("", |stage| stage.name());
        NodeError::NotNow(format!(
            "the log buffer of volume {} has been full for {} s and waits for {waits_for}; see `redoubt status`",
            self.name,
            DRAIN_TIMEOUT.as_secs()
        ))
    }

    /// Waits until everything received is durable, parsed and executed.
    pub(super) fn drain(&self) -> Result<Point, NodeError> {
        let received = self.buffer.received();
        let deadline = Some(time::now() + DRAIN_TIMEOUT);
        for (mark, what) in [(&self.durable, "durable"), (&self.parsed, "parsed")] {
            match mark.wait_for(received.seq, deadline) {
                WaitEnd::Reached => {}
                WaitEnd::Closed => return Err(NodeError::Stopped(self.stopped().unwrap_or_default())),
                WaitEnd::TimedOut => {
                    return Err(NodeError::NotNow(format!(
                        "not everything received became {what} within {} s; see `redoubt status`",
                        DRAIN_TIMEOUT.as_secs()
                    )));
                }
            }
        }
        match self.plain.wait_executed(received.seq, deadline) {
            WaitEnd::Reached => Ok(received),
            WaitEnd::Closed => Err(NodeError::Stopped(self.stopped().unwrap_or_default())),
            WaitEnd::TimedOut => Err(NodeError::NotNow(format!(
                "not all changes of plain files were made within {} s; is an export of volume {} under way?",
                DRAIN_TIMEOUT.as_secs(),
                self.name
            ))),
        }
    }

    fn attachment(&self, generation: u64) -> Attachment {
        let names = self.names.read();
        Attachment {
            volume_id: self.identity.lock().volume_id.clone(),
            generation,
            empty: names.log_file().is_none(),
            end_lsn: self.buffer.received().lsn.0,
            entries: self.entries(&names),
        }
    }

    /// Directories and files, parents first.
    pub(super) fn entries(&self, names: &crate::namespace::Namespace) -> Vec<Entry> {
        let mut entries: Vec<_> = names
            .directories()
            .map(|(path, mode)| Entry {
                path: path.to_owned(),
                kind: EntryKind::Directory,
                mode,
                len_bytes: 0,
            })
            .collect();
        entries.extend(names.files().map(|(id, entry)| Entry {
            path: entry.path.clone(),
            kind: if entry.tablespace { EntryKind::Tablespace } else { EntryKind::Plain },
            mode: entry.mode,
            len_bytes: if entry.tablespace { entry.len_bytes } else { self.plain.len_bytes(id) },
        }));
        if let Some(log_file) = names.log_file() {
            entries.push(Entry {
                path: "ib_logfile0".to_owned(),
                kind: EntryKind::RedoLog,
                mode: 0o660,
                len_bytes: log_file.file_size_bytes,
            });
        }
        entries
    }
}

/// The shim's counters by name.
pub(super) fn name_counters(counters: &[(u8, u64)]) -> BTreeMap<String, u64> {
    const NAMES: [(Counter, &str); 24] = [
        (Counter::RedoBytes, "redo_bytes"),
        (Counter::LogWrittenBytes, "log_written_bytes"),
        (Counter::SentBytes, "sent_bytes"),
        (Counter::ReceivedBytes, "received_bytes"),
        (Counter::PageBytesDropped, "page_bytes_dropped"),
        (Counter::PagesDropped, "pages_dropped"),
        (Counter::DoublewriteBytesDropped, "doublewrite_bytes_dropped"),
        (Counter::ImageBytes, "image_bytes"),
        (Counter::PlainBytes, "plain_bytes"),
        (Counter::PageBytesRead, "page_bytes_read"),
        (Counter::PageReads, "page_reads"),
        (Counter::DurabilityWaits, "durability_waits"),
        (Counter::DurabilityWaitMicros, "durability_wait_micros"),
        (Counter::VerifySent, "verify_sent"),
        (Counter::ScrubPagesDropped, "scrub_pages_dropped"),
        (Counter::Reconnects, "reconnects"),
        (Counter::DurabilityWakeups, "durability_wakeups"),
        (Counter::DurabilityWakeupsNotReached, "durability_wakeups_not_reached"),
        (Counter::CacheHits, "page_cache_hits"),
        (Counter::CacheMisses, "page_cache_misses"),
        (Counter::CacheEvictions, "page_cache_evictions"),
        (Counter::CacheCapacityBytes, "page_cache_capacity_bytes"),
        (Counter::ReadAheadPages, "read_ahead_pages"),
        (Counter::ReadAheadUsed, "read_ahead_used"),
    ];
    let name = |id: u8| NAMES.iter().find(|(counter, _)| *counter as u8 == id).map(|(_, name)| *name);
    counters.iter().filter_map(|(id, value)| Some((name(*id)?.to_owned(), *value))).collect()
}
