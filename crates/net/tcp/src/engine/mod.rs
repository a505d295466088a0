//! The calls of an engine. See the crate's page.
//!
//! | module | what |
//! |---|---|
//! | `input` | assignment of segments |
//! | `handshake` | from a SYN to an open connection |
//! | `output` | the next packet, the queues, timers |
//! | `calls` | calls on one connection |

mod calls;
mod handshake;
mod input;
mod output;
mod queue;

use std::net::{IpAddr, SocketAddr};

use crate::buffers::Pool;
use crate::config::{Config, ConfigError};
use crate::connection::{Connection, Context, Spare};
use crate::cookies::Cookies;
use crate::counters::Counters;
use crate::demux::{Demux, Key, Target};
use crate::error::{ConnectionError, ListenError};
use crate::half_open::HalfOpens;
use crate::hash::Keyed;
use crate::listener::{Listener, MAX_LISTENERS};
use crate::replies::Replies;
use crate::segment::Refusal;
use crate::slots::Slots;
use crate::time::Micros;
use crate::time_wait::TimeWaits;
use crate::timers::Timers;
use input::Budget;
use queue::Queue;

/// Id of a connection. It is never used for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    index: u32,
    generation: u32,
}

impl ConnectionId {
    /// Index of the connection: unique among existing connections. Indices are reused, so that the largest is less than
    /// the peak number of connections.
    #[must_use]
    pub fn index(self) -> u32 {
        self.index
    }
}

/// Id of a listener. It is never used for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId {
    index: u32,
    generation: u32,
}

/// Outcome of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet was for this engine.
    Taken,
    /// The packet is invalid.
    Refused(Refusal),
    /// No listener or connection of this engine has this address: the packet belongs elsewhere.
    NotOurs,
}

/// Sender of a valid segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The connection's peer.
    pub peer: SocketAddr,
    /// The connection, if the caller has accepted it.
    pub connection: Option<ConnectionId>,
}

/// A packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its length.
    pub len_bytes: usize,
    /// Its destination.
    pub destination: IpAddr,
    /// The connection of the packet. `None`: it belongs to none, or to one that the caller does not hold (any more).
    pub connection: Option<ConnectionId>,
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionState {
    /// Bytes that can be read now.
    pub readable_bytes: u32,
    /// Bytes that can be sent without waiting; 0 after this side has ended.
    pub writable_bytes: u32,
    /// Bytes that wait for the peer's window or the congestion window. Acknowledgements release them.
    pub unsent_bytes: u32,
    /// The peer has ended its side: the end follows the readable bytes.
    pub peer_closed: bool,
    /// Error of a failed connection.
    pub error: Option<ConnectionError>,
}

/// Memory in use by an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Connections, those included that the caller has closed.
    pub connections: usize,
    /// Handshakes.
    pub half_open: usize,
    /// TIME-WAITs.
    pub time_wait: usize,
    /// Bytes of chunks in use for data.
    pub data_len_bytes: usize,
    /// Bytes of all connections: their slots, heap memory (chunks too), timers and table entries.
    pub connections_len_bytes: usize,
}

/// TCP engine: listeners, connections and their tables.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    counters: Counters,
    connections: Slots<Connection>,
    demux: Demux,
    timers: Timers,
    half_opens: HalfOpens,
    time_waits: TimeWaits,
    listeners: Slots<Listener>,
    replies: Replies,
    /// Queue of connections that may have data to send.
    sending: Queue,
    /// Queue of connections that changed since the caller was last notified.
    changed: Queue,
    /// Connections whose caller could not send for lack of memory.
    waiting: Queue,
    pool: Pool,
    spare: Spare,
    cookies: Cookies,
    /// Key for initial sequence numbers and timestamp clocks.
    numbers: Keyed,
    ip_id: u16,
    challenges: Budget,
    resets: Budget,
    heard: Option<Heard>,
}

impl Engine {
    /// # Errors
    /// Settings out of their range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let key = |purpose| Keyed::new(&config.secret, purpose);
        Ok(Self {
            counters: Counters::default(),
            connections: Slots::new(config.max_connections),
            demux: Demux::new(key(1)),
            timers: Timers::new(),
            half_opens: HalfOpens::new(config.max_half_open),
            time_waits: TimeWaits::new(config.max_time_wait),
            listeners: Slots::new(MAX_LISTENERS),
            replies: Replies::default(),
            sending: Queue::default(),
            changed: Queue::default(),
            waiting: Queue::default(),
            pool: Pool::new(config.memory_len_bytes),
            spare: Spare::default(),
            cookies: Cookies::new(key(2), key(3)),
            numbers: key(4),
            ip_id: key(5).hash(&[]) as u16,
            challenges: Budget::default(),
            resets: Budget::default(),
            heard: None,
            config,
        })
    }

    /// Listens on an address; its host part may be unspecified for all of its family. `backlog`: limit of connections
    /// that wait to be accepted, at least one.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&mut self, address: SocketAddr, backlog: u32) -> Result<ListenerId, ListenError> {
        if address.port() == 0 || address.ip().is_multicast() {
            return Err(ListenError::Address);
        }
        let is_there = |index| self.listeners.get(index).is_some_and(|listener| listener.address == address);
        if self.listeners.indices().any(is_there) {
            return Err(ListenError::InUse);
        }
        let backlog = backlog.max(1);
        let listener = Listener { address, backlog, waiting: Default::default(), cookie_at: None };
        let (index, generation) = self.listeners.insert(listener).ok_or(ListenError::TooMany)?;
        Ok(ListenerId { index, generation })
    }

    /// Closes a listener. Connections that were not accepted are reset.
    pub fn unlisten(&mut self, now: Micros, id: ListenerId) {
        if self.listeners.generation(id.index) != Some(id.generation) {
            return;
        }
        let Some(listener) = self.listeners.remove(id.index) else { return };
        for index in listener.waiting {
            self.reset_connection(now, index);
        }
        let half_opens: Vec<_> = self.half_opens.slots.indices().collect();
        for index in half_opens {
            let is_its = |half_open: &crate::half_open::HalfOpen| half_open.listener == id.index;
            if self.half_opens.slots.get(index).is_some_and(is_its) {
                self.remove_half_open(index);
            }
        }
    }

    /// The next connection to a listener, and its peer.
    pub fn accept(&mut self, id: ListenerId) -> Option<(ConnectionId, SocketAddr)> {
        if self.listeners.generation(id.index) != Some(id.generation) {
            return None;
        }
        let index = self.listeners.get_mut(id.index)?.waiting.pop_front()?;
        let generation = self.connections.generation(index)?;
        let connection = self.connections.get_mut(index)?;
        connection.is_accepted = true;
        Some((ConnectionId { index, generation }, connection.key.remote))
    }

    /// The next connection that has changed since it was last returned.
    pub fn changed(&mut self) -> Option<ConnectionId> {
        while let Some(index) = self.changed.pop() {
            let known = |connection: &&Connection| connection.is_accepted && !connection.is_orphan;
            if self.connections.get(index).filter(known).is_some() {
                return Some(ConnectionId { index, generation: self.connections.generation(index)? });
            }
        }
        None
    }

    /// Sender of the last packet, if the packet fitted a connection that is not closed. Another host would have had to
    /// guess its numbers.
    pub fn heard(&mut self) -> Option<Heard> {
        self.heard.take()
    }

    /// Counters since the engine's creation.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Memory in use. The call visits all connections.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let each = |index| self.connections.get(index).map(Connection::memory_len_bytes);
        let heap: usize = self.connections.indices().filter_map(each).sum();
        Memory {
            connections: self.connections.len(),
            half_open: self.half_opens.slots.len(),
            time_wait: self.time_waits.len(),
            data_len_bytes: self.pool.used_len_bytes(),
            connections_len_bytes: heap
                + self.connections.places() * size_of::<(u64, Connection)>()
                + self.timers.memory_len_bytes()
                + self.demux.memory_len_bytes(),
        }
    }

    /// Debug output of all connections, for troubleshooting.
    #[doc(hidden)]
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let each = |index| self.connections.get(index).map(|connection| format!("{connection:?}"));
        self.connections.indices().filter_map(each).collect()
    }

    /// Panics if an invariant is violated; for tests.
    #[doc(hidden)]
    pub fn require_sound(&self) {
        let mut data = 0;
        let mut named = self.half_opens.slots.len() + self.time_waits.len();
        for index in self.connections.indices() {
            let Some(connection) = self.connections.get(index) else { continue };
            connection.require_sound(&self.config);
            data += connection.chunks();
            named += usize::from(self.demux.get(&connection.key) == Some(Target::Connection(index)));
            assert!(!connection.wants_to_send() || self.sending.has(index));
        }
        assert_eq!(data * crate::buffers::CHUNK_LEN_BYTES, self.pool.used_len_bytes());
        assert!(self.pool.used_len_bytes() <= self.config.memory_len_bytes);
        assert_eq!(self.demux.len(), named);
        assert!(self.half_opens.slots.len() <= self.config.max_half_open as usize);
        assert!(self.time_waits.len() <= self.config.max_time_wait as usize);
        assert!(self.connections.len() <= self.config.max_connections as usize);
    }

    fn number_of(&self, now: Micros, key: &Key) -> crate::sequence::Seq {
        // RFC 6528: a clock of 4 microseconds and a secret offset.
        crate::sequence::Seq(((now.0 / 4) as u32).wrapping_add(key.hash_with(&self.numbers, &[0]) as u32))
    }

    fn clock_offset_of(&self, key: &Key) -> u32 {
        key.hash_with(&self.numbers, &[1]) as u32
    }

    /// Calls a function with a connection and the parts of the engine that it uses.
    fn with<R>(
        &mut self,
        now: Micros,
        index: u32,
        call: impl FnOnce(&mut Connection, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let connection = self.connections.get_mut(index)?;
        let mut context = Context {
            now,
            config: &self.config,
            pool: &mut self.pool,
            spare: &mut self.spare,
            counters: &mut self.counters,
        };
        Some(call(connection, &mut context))
    }
}
