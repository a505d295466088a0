//! The writer of a volume: the generation that was given out last, the server process of it, and its connection.
//!
//! *Attach* (`redoubt run`) takes a new generation, which fences the previous server. A *session* is one server process
//! of a generation. It may lose its connection and reconnect, and then sends again everything that was not
//! acknowledged.
//!
//! Invariants: the generation on disk is never older than one that was given out; at most one connection is the
//! session's.
//!
//! Lock order: attaching, session, changing, identity. The identity is not locked while it is written: a status of the
//! node does not wait for the disk of one volume.

use super::context::Context;
use super::identity::Identity;
use super::notices::NoticeWriter;
use crate::error::NodeError;
use redoubt_redo::Lsn;
use redoubt_sync::planted::{Bug, is_planted};
use redoubt_sync::{Condvar, Mutex, MutexGuard, time};
use redoubt_transport::Connection;
use redoubt_wire::hello::{Compression, Hello, Status, Welcome};
use redoubt_wire::{Seq, ServerVersion};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The server process that writes the volume.
struct LogSession {
    generation: u64,
    /// The server that its generation was given out for.
    server: ServerVersion,
    session: u64,
    connection: u64,
    connected: bool,
    /// Until when the server's certificate is valid, as its newest connection for notices proved it.
    certificate_expires_s: Option<i64>,
}

/// The session of a volume, and its generation.
pub struct Session {
    context: Arc<Context>,
    /// As on disk, or as before a change that is being written.
    identity: Mutex<Identity>,
    /// Held while a changed identity is written, which takes as long as the disk does.
    changing: Mutex<()>,
    /// Held while a server attaches.
    attaching: Mutex<()>,
    current: Mutex<Option<LogSession>>,
    /// Signalled when the session's connection ends.
    ended: Condvar,
    connections: AtomicU64,
    /// The connection whose server was noted last.
    noted: AtomicU64,
}

/// The refusal of a Hello.
pub fn refusal(status: Status, message: String) -> Welcome {
    Welcome { status, compression: Compression::Off, next_seq: Seq(0), next_lsn: Lsn(0), message }
}

impl Session {
    /// No server is connected.
    pub fn new(context: &Arc<Context>, identity: Identity) -> Self {
        Self {
            context: Arc::clone(context),
            identity: Mutex::new(identity),
            changing: Mutex::default(),
            attaching: Mutex::default(),
            current: Mutex::new(None),
            ended: Condvar::new(),
            connections: AtomicU64::new(0),
            noted: AtomicU64::new(0),
        }
    }

    /// Identity of the volume, with its newest generation.
    pub fn identity(&self) -> Identity {
        self.identity.lock().clone()
    }

    /// Changes the identity, durably. `change` says `None` where nothing changes.
    fn change(
        &self,
        change: impl FnOnce(&Identity) -> Result<Option<Identity>, NodeError>,
    ) -> Result<(), NodeError> {
        let _changing = self.changing.lock();
        let before = self.identity();
        let Some(next) = change(&before)? else { return Ok(()) };
        if next.generation == before.generation || !is_planted(Bug::GenerationNotWritten) {
            next.write(&self.context.own)?;
        }
        *self.identity.lock() = next;
        Ok(())
    }

    /// Notes durably whether pages are set aside ([`super::quarantine`]).
    ///
    /// # Errors
    /// [`NodeError::Io`]; the note is then as before.
    pub fn set_quarantine(&self, has_quarantine: bool) -> Result<(), NodeError> {
        self.change(|identity| Ok(Some(Identity { has_quarantine, ..identity.clone() })))
    }

    /// Notes durably that the volume is frozen, and how far the changes in its files may go ([`super::frozen`]). `None`:
    /// it is not.
    ///
    /// # Errors
    /// [`NodeError::Io`]; the note is then as before.
    pub fn set_frozen(&self, frozen_changes_end: Option<u64>) -> Result<(), NodeError> {
        self.change(|identity| Ok(Some(Identity { frozen_changes_end, ..identity.clone() })))
    }

    /// A number that no connection had before.
    pub fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A server is connected.
    pub fn is_connected(&self) -> bool {
        self.current.lock().as_ref().is_some_and(|current| current.connected)
    }

    /// Until when the certificate of the server that is connected is valid, in seconds since 1970.
    pub fn certificate_expires_s(&self) -> Option<i64> {
        self.current.lock().as_ref().filter(|current| current.connected)?.certificate_expires_s
    }

    /// Checks a Hello of any role: the generation must be the newest.
    ///
    /// # Errors
    /// The refusal to send.
    pub fn check_generation(&self, hello: &Hello) -> Result<(), Welcome> {
        if let Some(reason) = self.context.stopped() {
            if self.context.is_shutting_down() {
                return Err(refusal(Status::TryLater, reason));
            }
            let message = format!("volume {} has stopped: {reason}", self.context.name);
            return Err(refusal(Status::Refused, message));
        }
        if let Err(error) = self.context.check_writable() {
            return Err(refusal(Status::Refused, error.to_string()));
        }
        self.check_fence(hello)
    }

    /// As [`Session::check_generation`], but also for a volume that has stopped.
    ///
    /// # Errors
    /// The refusal to send.
    pub fn check_fence(&self, hello: &Hello) -> Result<(), Welcome> {
        self.server_of(hello).map(drop)
    }

    /// The server of a generation that is the newest.
    fn server_of(&self, hello: &Hello) -> Result<ServerVersion, Welcome> {
        let (identity, name) = (self.identity.lock(), &self.context.name);
        if hello.generation == identity.generation
            || (hello.generation < identity.generation && is_planted(Bug::OldGenerationAdmitted))
        {
            return Ok(identity.server_of_generation());
        }
        if hello.generation < identity.generation {
            let message = format!(
                "volume {name} was attached by {} (generation {}, yours is {})",
                identity.attached_by, identity.generation, hello.generation
            );
            return Err(refusal(Status::Fenced, message));
        }
        let message = format!(
            "generation {} of volume {name} was never given out (newest is {}); start the server with `redoubt run`",
            hello.generation, identity.generation
        );
        Err(refusal(Status::Refused, message))
    }

    /// Excludes other attaches until the guard is dropped. `None`: another attach has taken longer than `timeout`.
    pub fn begin_attach(&self, timeout: Duration) -> Option<MutexGuard<'_, ()>> {
        self.attaching.try_lock_for(timeout)
    }

    /// Gives out the next generation, durably.
    ///
    /// # Errors
    /// [`NodeError::Refused`] for a server that is older than one that ran on the volume; [`NodeError::Io`]. The old
    /// generation then stays the newest.
    pub fn next_generation(&self, who: &str, server: ServerVersion) -> Result<u64, NodeError> {
        let mut generation = 0;
        self.change(|identity| {
            // In one step with the new generation: a newer server may have been noted until now.
            if let Some(why) = identity.refused_server(server) {
                let name = &self.context.name;
                return Err(NodeError::Refused(format!("volume {name}: {why}. No server was fenced")));
            }
            let mut next = identity.clone();
            next.generation += 1;
            who.clone_into(&mut next.attached_by);
            next.attached_server = Some(server);
            generation = next.generation;
            Ok(Some(next))
        })?;
        Ok(generation)
    }

    /// Makes `hello` the volume's session, or returns the refusal. `take_place` lets only the new connection append,
    /// and returns the stream's end at that time. It is called when only that end can still refuse the session. Returns
    /// the result of `take_place`, and whether the session has reconnected.
    ///
    /// # Errors
    /// The refusal to send.
    pub fn connect(
        &self,
        hello: &Hello,
        connection: u64,
        take_place: impl FnOnce() -> crate::mark::Point,
    ) -> Result<(crate::mark::Point, bool), Welcome> {
        let mut session = self.current.lock();
        self.check_generation(hello)?;
        let server = self.server_of(hello)?;
        if let Some(current) = &*session
            && current.session != hello.session
            && current.generation == hello.generation
            && current.connected
        {
            let name = &self.context.name;
            let message = format!("another server process writes volume {name} with the same generation");
            return Err(refusal(Status::TryLater, message));
        }
        let received = take_place();
        let resumes = session.as_ref().is_some_and(|current| current.session == hello.session);
        // Works whether this node remembers the session or was restarted since: a first connection sends 0.
        if hello.resume > received.seq {
            let message = format!(
                "the node has the stream up to {} only, but {} was acknowledged; its log has lost data",
                received.seq, hello.resume
            );
            return Err(refusal(Status::Refused, message));
        }
        self.context.notices.disconnect();
        *session = Some(LogSession {
            generation: hello.generation,
            server,
            session: hello.session,
            connection,
            connected: true,
            certificate_expires_s: None,
        });
        Ok((received, resumes))
    }

    /// Whether the server on `connection` still has to be noted ([`Session::note_server`]).
    pub fn is_unnoted(&self, connection: u64) -> bool {
        self.noted.load(Ordering::Acquire) != connection
    }

    /// The server on `connection` is about to change pages or the redo log: keeps, durably, that it has run on the
    /// volume. It may be fenced. An attach compares its own server with the servers noted by then, so a fenced server is
    /// noted only if the server of the newest generation can start after it.
    ///
    /// # Errors
    /// [`NodeError::Refused`] if that server cannot; [`NodeError::Io`]. Nothing of what it sent may be used then.
    pub fn note_server(&self, connection: u64) -> Result<(), NodeError> {
        let server = {
            let session = self.current.lock();
            let current = session.as_ref().filter(|current| current.connection == connection);
            current.map(|current| current.server)
        };
        // A connection that is not the session's cannot append either ([`super::receiving`]).
        let Some(server) = server else { return Ok(()) };
        self.change(|identity| {
            let newest = identity.server_of_generation();
            if newest.refused_after(server).is_some() {
                return Err(NodeError::Refused(format!(
                    "{server} was fenced by {newest} before its first change of volume {}; the change is discarded, \
                     because {newest} could not read it",
                    self.context.name
                )));
            }
            Ok(identity.with_server_run(server))
        })?;
        self.noted.store(connection, Ordering::Release);
        Ok(())
    }

    /// From now on notices of the session go through `writer` to `stream`.
    ///
    /// # Errors
    /// The refusal to send: the server has no log connection, or another writes the volume.
    pub fn connect_notices(
        &self,
        hello: &Hello,
        stream: &Arc<dyn Connection>,
        writer: &Arc<Mutex<NoticeWriter>>,
    ) -> Result<(), Welcome> {
        let mut session = self.current.lock();
        let is_current = |current: &&mut LogSession| {
            (current.generation, current.session) == (hello.generation, hello.session) && current.connected
        };
        let Some(current) = session.as_mut().filter(is_current) else {
            let message = format!("the log connection to volume {} comes first", self.context.name);
            return Err(refusal(Status::TryLater, message));
        };
        current.certificate_expires_s = stream.peer_certificate_expires_s();
        self.context.notices.connect(stream, writer);
        Ok(())
    }

    /// A log connection ended. True: it was the current one.
    pub fn disconnected(&self, connection: u64) -> bool {
        let mut session = self.current.lock();
        let current = session.as_mut().filter(|current| current.connection == connection);
        let is_current = current.is_some();
        if let Some(current) = current {
            current.connected = false;
            self.context.notices.disconnect();
            self.ended.notify_all();
            tracing::info!(
                event = "server_disconnected",
                volume = self.context.name,
                connection,
                "server disconnected"
            );
        }
        is_current
    }

    /// Waits until the session's connection has ended, `next_look` returns `None`, or `last` has passed. `next_look`
    /// otherwise returns the latest time of its next call.
    pub fn wait_ended(&self, last: Instant, mut next_look: impl FnMut() -> Option<Instant>) {
        let mut session = self.current.lock();
        while session.as_ref().is_some_and(|current| current.connected) && time::now() < last {
            let Some(look_at) = next_look() else { return };
            self.ended.wait_until(&mut session, look_at.min(last));
        }
    }

    /// The session is over.
    pub fn end(&self) {
        *self.current.lock() = None;
        self.context.notices.disconnect();
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
