//! Page connections: requests that are answered one by one.
//!
//! Connections are made on demand, up to a limit, and used by one request at a time. A request whose connection
//! fails is sent again on another one: all page requests can be repeated.
//!
//! Invariant: a request either returns the node's answer or `EIO`. It waits for a lost node no longer than the
//! configured timeout, and not at all once the stream is dead.

use crate::base::counters::Counters;
use crate::base::message;
use crate::base::real::Errno;
use crate::connections::link::{self, LinkError, read_frame, write_frame};
use crate::connections::stream::Stream;
use redoubt_locks::IgnorePoison;
use redoubt_transport::Reader;
use redoubt_wire::Seq;
use redoubt_wire::hello::Role;
use redoubt_wire::page::{FileId, PageReply, PageRequest};
use std::io::BufReader;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const CONNECTIONS_MAX: usize = 64;
/// After this time without a byte of the answer a request is sent again on another connection: its own, or the
/// answer's, length may have been changed on the way, and then both sides wait. At most; a short timeout shortens it.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(30);
/// Attempts that fit into the timeout, at least.
const ATTEMPTS_MIN: u32 = 4;
const BACK_OFF_MIN: Duration = Duration::from_millis(20);
const BACK_OFF_MAX: Duration = Duration::from_secs(1);

struct Connection {
    socket: BufReader<Reader>,
    requests: u64,
    payload: Vec<u8>,
    buffer: Vec<u8>,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Connection>,
    open: usize,
}

/// The connections.
pub struct PagePool {
    stream: Arc<Stream>,
    counters: Arc<Counters>,
    pool: Mutex<Pool>,
    freed: Condvar,
}

impl PagePool {
    /// A pool without connections.
    pub fn new(stream: Arc<Stream>, counters: Arc<Counters>) -> Self {
        Self { stream, counters, pool: Mutex::default(), freed: Condvar::new() }
    }

    /// Sends a request and hands the answer to `use_reply`. [`PageReply::Failed`] never arrives there.
    ///
    /// # Errors
    /// `EIO` when the node cannot answer; a message gives the reason.
    pub fn request<R>(
        &self,
        request: &PageRequest<'_>,
        use_reply: impl FnOnce(PageReply<'_>) -> R,
    ) -> Result<R, Errno> {
        let mut payload = Vec::new();
        let kind = request.encode(&mut payload);
        let sample = match *request {
            PageRequest::Read { need, file, offset_bytes, .. }
                if self.stream.trace().wants_read(file, offset_bytes, need) =>
            {
                Some((file, offset_bytes, need))
            }
            _ => None,
        };
        let mut deadline = Instant::now() + self.stream.timeout();
        let mut pause = BACK_OFF_MIN;
        loop {
            if self.stream.death().is_some() {
                return Err(Errno::EIO);
            }
            let why = match self.attempt(kind, &payload, sample) {
                Ok((connection, reply_kind)) => match PageReply::decode(reply_kind, &connection.payload) {
                    Ok(PageReply::Failed { retry: true, message }) => {
                        self.give_back(connection);
                        // The node answers, but waits itself (its disk may be full): so the timeout starts again.
                        deadline = Instant::now() + self.stream.timeout();
                        message
                    }
                    Ok(PageReply::Failed { retry: false, message }) => {
                        message::error(&format!("the storage node cannot answer: {message}"));
                        self.give_back(connection);
                        return Err(Errno::EIO);
                    }
                    Ok(reply) => {
                        let result = use_reply(reply);
                        self.give_back(connection);
                        return Ok(result);
                    }
                    Err(error) => {
                        self.lose();
                        error.to_string()
                    }
                },
                Err(error) => {
                    if error.is_final(true) {
                        self.stream.die(&error.to_string());
                        return Err(Errno::EIO);
                    }
                    error.to_string()
                }
            };
            if Instant::now() >= deadline {
                let (node, seconds) =
                    (&self.stream.peer().connector.address, self.stream.timeout().as_secs());
                // After an error the server would continue: a rollback leaves out pages that it cannot read, and the
                // redo of that may well become durable.
                self.stream.die(&format!(
                    "a page request to storage node {node} was not answered within {seconds} s: {why}"
                ));
                return Err(Errno::EIO);
            }
            self.stream.pause(pause);
            pause = (pause * 2).min(BACK_OFF_MAX);
        }
    }

    /// Sends a request once and hands the answer, if there is one, to `use_reply`. A failure is not reported, because
    /// no caller depends on the answer.
    pub fn try_once(&self, request: &PageRequest<'_>, use_reply: impl FnOnce(PageReply<'_>)) {
        if self.stream.death().is_some() {
            return;
        }
        let mut payload = Vec::new();
        let kind = request.encode(&mut payload);
        let Ok((connection, reply_kind)) = self.attempt(kind, &payload, None) else { return };
        match PageReply::decode(reply_kind, &connection.payload) {
            Ok(reply) => {
                use_reply(reply);
                self.give_back(connection);
            }
            Err(_) => self.lose(),
        }
    }

    /// One request on one connection. A failed connection is closed.
    fn attempt(
        &self,
        kind: u8,
        payload: &[u8],
        sample: Option<(FileId, u64, Seq)>,
    ) -> Result<(Connection, u8), LinkError> {
        let began = sample.map(|_| Instant::now());
        let mut connection = self.take()?;
        let taken = sample.map(|_| Instant::now());
        match connection.exchange(kind, payload, &self.counters) {
            Ok(reply_kind) => {
                if let (Some(sample), Some(began), Some(taken)) = (sample, began, taken) {
                    self.stream.trace().read(sample, taken - began, taken.elapsed());
                }
                Ok((connection, reply_kind))
            }
            Err(error) => {
                drop(connection);
                self.lose();
                self.drop_idle();
                Err(error)
            }
        }
    }

    /// A connection broke: connections that have been idle since before are most likely broken too (the node was
    /// restarted), and each would cost a request one attempt.
    fn drop_idle(&self) {
        let mut pool = self.pool.lock().ignore_poison();
        let idle = std::mem::take(&mut pool.idle);
        pool.open -= idle.len();
        drop(pool);
        self.freed.notify_all();
    }

    fn take(&self) -> Result<Connection, LinkError> {
        let mut pool = self.pool.lock().ignore_poison();
        loop {
            if let Some(connection) = pool.idle.pop() {
                return Ok(connection);
            }
            if pool.open < CONNECTIONS_MAX {
                pool.open += 1;
                break;
            }
            pool = self.freed.wait(pool).ignore_poison();
        }
        drop(pool);
        match link::connect(self.stream.peer(), Role::Page, Seq(0), &self.counters) {
            Ok((socket, _)) => {
                // A node that hangs must not hold a read for ever.
                let limit = (self.stream.timeout() / ATTEMPTS_MIN).min(ATTEMPT_LIMIT);
                let _ = socket.set_read_timeout(Some(limit));
                Ok(Connection {
                    socket: BufReader::with_capacity(32 << 10, Reader(socket)),
                    requests: 0,
                    payload: Vec::new(),
                    buffer: Vec::new(),
                })
            }
            Err(error) => {
                self.lose();
                Err(error)
            }
        }
    }

    fn give_back(&self, connection: Connection) {
        self.pool.lock().ignore_poison().idle.push(connection);
        self.freed.notify_one();
    }

    fn lose(&self) {
        self.pool.lock().ignore_poison().open -= 1;
        self.freed.notify_one();
    }
}

impl Connection {
    fn exchange(&mut self, kind: u8, payload: &[u8], counters: &Counters) -> Result<u8, LinkError> {
        let position = self.requests;
        self.requests += 1;
        write_frame(&*self.socket.get_ref().0, kind, position, payload, &mut self.buffer, counters)?;
        read_frame(&mut self.socket, position, &mut self.payload, counters)
    }
}
