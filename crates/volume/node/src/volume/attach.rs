//! Connections of servers to a volume: attaching, log and notices connections. These are flows across receiving,
//! indexing, plain files and session, which own the state.
//!
//! Attaching fences the previous server, so every reason to refuse is checked first: the volume has stopped, waits for
//! room, or makes no progress. All received frames are durable, parsed and executed by then, so that only frames that
//! arrive meanwhile are left to wait for afterwards.

use super::Volume;
use super::context::Condition;
use super::notices::NoticeWriter;
use super::receiving::Received;
use crate::error::NodeError;
use crate::mark::{Point, WaitEnd};
use crate::namespace::Namespace;
use redoubt_sync::{Mutex, time};
use redoubt_transport::Connection;
use redoubt_wire::control::Attachment;
use redoubt_wire::greeting::Features;
use redoubt_wire::hello::{Hello, Status, Welcome};
use redoubt_wire::notice::Notice;
use redoubt_wire::{FrameHeader, ServerVersion, frame, stream};
use std::sync::Arc;
use std::time::Duration;

/// Timeout for received frames to become durable, parsed and executed.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);

/// Attach cuts the old server's connection off when nothing has come on it for this long. A server that is gone, or has
/// received its fencing notice, ends it by itself.
const SILENCE_LIMIT: Duration = Duration::from_secs(3);

/// An accepted log connection.
pub struct Accepted {
    /// Its number.
    pub connection: u64,
    /// What to answer.
    pub welcome: Welcome,
}

impl Volume {
    /// Checks a Hello of any role: the generation must be the newest.
    ///
    /// # Errors
    /// The refusal to send.
    pub fn check_generation(&self, hello: &Hello) -> Result<(), Welcome> {
        self.session.check_generation(hello)
    }

    /// As [`Volume::check_generation`], but also for a volume that has stopped.
    ///
    /// # Errors
    /// The refusal to send.
    pub fn check_fence(&self, hello: &Hello) -> Result<(), Welcome> {
        self.session.check_fence(hello)
    }

    /// Accepts a log connection, or returns the refusal. A full log buffer is no reason.
    ///
    /// # Errors
    /// The refusal to send.
    pub fn accept_log(&self, hello: &Hello) -> Result<Accepted, Welcome> {
        let connection = self.session.next_connection();
        let (received, resumes) = self.session.connect(hello, connection, || {
            self.receiving.set_current(connection);
            self.verification.server_gone();
            self.receiving.buffer.received()
        })?;
        if !resumes {
            // Another process of the same attachment (a script that starts the server again) reads the log from its
            // start.
            *self.server_log.lock() = None;
        }
        tracing::info!(
            event = "server_connected",
            volume = self.context.name,
            connection,
            resumes,
            lsn = received.lsn.0,
            "server connected"
        );
        let welcome = Welcome {
            status: Status::Accepted,
            compression: hello.compression,
            next_seq: received.seq,
            next_lsn: received.lsn,
            message: String::new(),
        };
        Ok(Accepted { connection, welcome })
    }

    /// Sends notices to `stream` from now on, after `welcome` and the notices of the present state. Those are D, the reason
    /// if D cannot move, the trace if one is on, damaged pages that the server may still have, and files that the volume
    /// lacks. Returns the result of `welcome`.
    ///
    /// # Errors
    /// The refusal to send: the server has no log connection, or another writes the volume.
    pub fn attach_notices<R>(
        &self,
        hello: &Hello,
        features: Features,
        stream: &Arc<dyn Connection>,
        welcome: impl FnOnce() -> R,
    ) -> Result<R, Welcome> {
        self.check_generation(hello)?;
        let writer = Arc::new(Mutex::new(NoticeWriter::new(stream, features)));
        // Held until the first notices are written. Another thread cannot send before that, and none waits for this
        // one.
        let mut first = writer.lock();
        self.session.connect_notices(hello, stream, &writer)?;
        let welcomed = welcome();
        first.send(&Notice::Durable(self.receiving.durable().get().seq));
        if let Some(reason) = self.context.waits_for() {
            first.send(&Notice::Waiting { reason });
        }
        if self.context.tracer.one_in() != 0 {
            first.send(&Notice::Trace { one_in: self.context.tracer.one_in() });
        }
        drop(first);
        let request_of = |key| self.indexing.image_request(key);
        for notice in self.quarantine.wanted_images(&request_of) {
            self.context.notices.send(&notice);
        }
        self.verification.server_asked(&self.quarantine.differing());
        for path in self.indexing.unknown_files() {
            self.context.notices.send(&Notice::UnknownFile { path: path.into_bytes() });
        }
        Ok(welcomed)
    }

    /// Appends a frame received on `connection`. Waits while the log buffer is full.
    ///
    /// # Errors
    /// [`NodeError::Wire`] for a frame that must not be used; [`NodeError::Refused`] for the first change of a server
    /// that is fenced; [`NodeError::Io`]; [`NodeError::Stopped`].
    pub fn receive(&self, connection: u64, wire: Vec<u8>) -> Result<Received, NodeError> {
        if self.session.is_unnoted(connection) && changes_innodb(&wire) {
            self.session.note_server(connection)?;
            self.note_family();
        }
        self.receiving.receive(connection, wire)
    }

    /// Writes the received frames to the log device (see [`super::receiving`]).
    ///
    /// # Errors
    /// The error that stopped the volume.
    pub fn write_received(&self) -> Result<(), NodeError> {
        self.receiving.write_received().inspect_err(|error| self.stop(&error.to_string()))
    }

    /// A log connection ended.
    pub fn disconnected(&self, connection: u64) {
        self.receiving.buffer.wake_device();
        if self.session.disconnected(connection) {
            self.verification.server_gone();
        }
    }

    /// A server is connected, or an export is under way.
    pub fn in_use(&self) -> bool {
        self.session.is_connected() || self.exports.is_active()
    }

    /// No server, export, reader, check or trace uses it, all that it received is in its files, and nothing is wrong with it. Its
    /// key is not needed to open it again.
    pub fn is_idle(&self) -> bool {
        let received = self.receiving.buffer.received().seq;
        let is_used = self.in_use()
            || self.moment.is_kept()
            || self.receiving.retention.has_pins()
            || self.context.tracer.one_in() > 0
            || self.has_check();
        let is_sound = self.context.condition() == Condition::Running
            && !self.freezes()
            && self.unlocked.is_none()
            && self.quarantined() == 0
            && self.indexing.unknown_files().is_empty();
        let is_applied = self.receiving.durable().seq() >= received
            && self.applying.applied().seq() >= received
            && !self.applying.repairs.has_any()
            && self.plain.wait_executed(received, Some(time::now())) == WaitEnd::Reached;
        !is_used && is_sound && is_applied
    }

    /// Takes the volume over for a new server. `seen_generation` must be the newest one, if it is given: a request that
    /// waited here may be out of date, and its client gone.
    ///
    /// # Errors
    /// * [`NodeError::Io`] if the generation cannot be written;
    /// * [`NodeError::NotNow`] if the received frames do not become durable (the message tells whether the old server
    ///   was fenced), or another attach was faster;
    /// * [`NodeError::Refused`] for a server that is older than one that ran on the volume; [`NodeError::Stopped`].
    pub fn attach(
        &self,
        who: &str,
        server: ServerVersion,
        seen_generation: Option<u64>,
    ) -> Result<Attachment, NodeError> {
        let name = &self.context.name;
        // One at a time: a server that an earlier attach still has to end must not be the server of a later one.
        let Some(_attaching) = self.session.begin_attach(DRAIN_TIMEOUT) else {
            let message = format!("another server has been attaching volume {name} for long; try again");
            return Err(NodeError::NotNow(message));
        };
        self.check_may_attach(server, seen_generation)?;
        let generation = self.session.next_generation(who, server)?;
        self.context.notices.send(&Notice::Fenced { generation });
        self.await_old_server();
        self.receiving.set_current(0);
        self.session.end();
        *self.server_log.lock() = None;
        tracing::info!(event = "volume_attached", volume = name, generation, who, %server, "volume attached");
        self.drain().and_then(|end| self.end_log(end)).map_err(|error| match error {
            NodeError::NotNow(message) => NodeError::NotNow(format!(
                "{message}. The previous server is fenced (generation {generation}); another attach continues \
                 from here"
            )),
            other => other,
        })?;
        self.attachment(&self.indexing.names.read(), generation)
    }

    /// Checks everything that can refuse an attach, before a server is fenced.
    fn check_may_attach(&self, server: ServerVersion, seen_generation: Option<u64>) -> Result<(), NodeError> {
        let name = &self.context.name;
        self.context.check_writable()?;
        let identity = self.session.identity();
        if let Some(seen) = seen_generation.filter(|seen| *seen != identity.generation) {
            return Err(NodeError::NotNow(format!(
                "volume {name} was attached by {} (generation {}) since this command read its state (generation \
                 {seen}); to take it over, start the command again. No server was fenced",
                identity.attached_by, identity.generation
            )));
        }
        if let Some(why) = identity.refused_server(server) {
            return Err(NodeError::Refused(format!("volume {name}: {why}. No server was fenced")));
        }
        if let Some(reason) = self.context.blocked() {
            return Err(NodeError::NotNow(format!(
                "volume {name} waits: {reason}. It is not taken over before that has ended; no server was fenced"
            )));
        }
        match self.drain() {
            Err(NodeError::NotNow(message)) => {
                return Err(NodeError::NotNow(format!("{message}; no server was fenced")));
            }
            drained => drained.map(drop)?,
        }
        self.check_family(server)
    }

    /// The redo log must be of the server's family, also where no server was noted: nodes of 0.1.0 noted none.
    fn check_family(&self, server: ServerVersion) -> Result<(), NodeError> {
        let names = self.indexing.names.read();
        let has_log = names.log_file().is_some() || names.log_set().is_some();
        if !has_log || names.family() == server.family {
            return Ok(());
        }
        Err(NodeError::Refused(format!(
            "volume {}: its redo log is of {}, and {server} cannot read that. No server was fenced",
            self.context.name,
            names.family()
        )))
    }

    /// Receives the frames that the old server sent before it ended. A killed server has acknowledged commits to its
    /// clients whose binary log it only wrote (`sync_binlog=0`). On a local disk those survive; here they may still be
    /// on the connection.
    fn await_old_server(&self) {
        let buffer = &self.receiving.buffer;
        let (mut received, mut since) = (buffer.received(), time::now());
        self.session.wait_ended(time::now() + DRAIN_TIMEOUT, || {
            // A full log buffer is not the old server's silence.
            if buffer.received() != received || buffer.waits_for().is_some() {
                (received, since) = (buffer.received(), time::now());
            }
            (time::elapsed(since) < SILENCE_LIMIT).then_some(since + SILENCE_LIMIT)
        });
    }

    /// Error for a log buffer that stays full for so long that an operator must act.
    pub(super) fn still_full(&self) -> NodeError {
        let waits_for = self.receiving.buffer.waits_for().map_or("", |stage| stage.name());
        NodeError::NotNow(format!(
            "the log buffer of volume {} has been full for {} s and waits for {waits_for}; see `redoubt status`",
            self.context.name,
            DRAIN_TIMEOUT.as_secs()
        ))
    }

    /// Waits until everything received is durable, parsed and executed.
    pub(super) fn drain(&self) -> Result<Point, NodeError> {
        let received = self.receiving.buffer.received();
        let deadline = Some(time::now() + DRAIN_TIMEOUT);
        let late = |what: &str| {
            let seconds = DRAIN_TIMEOUT.as_secs();
            NodeError::NotNow(format!(
                "not everything received became {what} within {seconds} s; see `redoubt status`"
            ))
        };
        let check = |end: WaitEnd, what: &str| match end {
            WaitEnd::Reached => Ok(()),
            WaitEnd::Closed => Err(self.context.stopped_error()),
            WaitEnd::TimedOut => Err(late(what)),
        };
        check(self.receiving.durable().wait_for(received.seq, deadline), "durable")?;
        check(self.indexing.parsed().wait_for(received.seq, deadline), "parsed")?;
        check(self.plain.wait_executed(received.seq, deadline), "part of the plain files")?;
        Ok(received)
    }

    pub(super) fn attachment(&self, names: &Namespace, generation: u64) -> Result<Attachment, NodeError> {
        Ok(Attachment {
            volume_id: self.session.identity().volume_id,
            generation,
            empty: !names.has_log(),
            end_lsn: self.receiving.buffer.received().lsn.0,
            entries: names.entries(|file| self.plain.len_bytes(file))?,
            frozen: None,
        })
    }
}

/// Whether a frame changes pages, the redo log or files of InnoDB. A frame that cannot be decoded is rejected when it
/// is appended.
fn changes_innodb(wire: &[u8]) -> bool {
    let Some((header, payload)) = wire.split_first_chunk() else { return false };
    let header = FrameHeader::decode(header);
    let unpacked = if header.compressed { frame::decompress(payload).ok() } else { None };
    stream::decode(header.kind, unpacked.as_deref().unwrap_or(payload))
        .is_ok_and(|frame| frame.changes_innodb())
}
