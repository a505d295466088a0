//! Operations of a connection.

use crate::identity::Identity;
use std::fmt::Debug;
use std::io::{Read, Result};
use std::sync::Arc;
use std::time::Duration;

/// A blocking duplex connection. All calls take `&self`: one thread may read while others write.
pub trait Connection: Debug + Send + Sync {
    /// Reads some bytes into `out`, at least one; 0 (for a non-empty `out`): the peer ended the connection.
    ///
    /// # Errors
    /// `WouldBlock` or `TimedOut` when a timeout or deadline has passed, anything else when the connection is of
    /// no use any more.
    fn read(&self, out: &mut [u8]) -> Result<usize>;

    /// Writes all of `bytes`, after those of earlier calls and before those of later ones.
    ///
    /// # Errors
    /// The connection is of no use any more: part of the bytes may have been sent.
    fn write_all(&self, bytes: &[u8]) -> Result<()>;

    /// As [`Connection::write_all`], without waiting for the peer. The next write waits for what it has held back.
    ///
    /// # Errors
    /// As [`Connection::write_all`].
    fn write_now(&self, bytes: &[u8]) -> Result<Written>;

    /// Ends both directions and with them every call that is under way. Repeating it does nothing.
    fn shutdown(&self);

    /// A read that gets no byte for so long fails. `None`, the default: it waits.
    ///
    /// # Errors
    /// When it cannot be set, for example to a zero duration.
    fn set_read_timeout(&self, timeout: Option<Duration>) -> Result<()>;

    /// A write of which the peer takes nothing for so long fails. `None`, the default: it waits.
    ///
    /// # Errors
    /// As [`Connection::set_read_timeout`].
    fn set_write_timeout(&self, timeout: Option<Duration>) -> Result<()>;

    /// Everything that is read or written from now on must be done within this time, all of it together: a peer
    /// that sends a byte now and then does not extend it. `None`, the default: there is no such limit.
    ///
    /// # Errors
    /// As [`Connection::set_read_timeout`].
    fn set_deadline(&self, within: Option<Duration>) -> Result<()>;

    /// The peer's address or name, for people.
    fn peer(&self) -> &str;

    /// The authenticated identity of the peer.
    fn identity(&self) -> &Identity;

    /// Until when the certificate is valid with which the peer proved it, in seconds since 1970. `None`: it proved
    /// nothing.
    fn peer_certificate_expires_s(&self) -> Option<i64> {
        None
    }

    /// Whether it goes over the node's local socket ([`crate::local`]) and not over TCP.
    fn is_over_local_socket(&self) -> bool {
        false
    }

    /// Whether there is a network between the two, as far as is known. Costs nothing to ask.
    fn crosses_network(&self) -> bool {
        false
    }

    /// How long what is sent is on its way. `None`: there is no network between the two, or nothing is known about it.
    fn delay(&self) -> Option<Delay> {
        None
    }
}

/// Outcome of a write that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// All are on their way.
    All,
    /// The connection has taken them, and holds back what the peer has no room for: the next write sends that first,
    /// be it one of no bytes.
    Held,
    /// None was taken: another thread is writing.
    Not,
}

/// Time from sending to the peer's acknowledgement, as the operating system measures it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Lately, smoothed.
    pub now: Duration,
    /// The least in a long time: without a queue on the way.
    pub least: Duration,
}

impl Read for &dyn Connection {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        Connection::read(*self, out)
    }
}

/// Reads from a connection that it shares with writers.
#[derive(Clone, Debug)]
pub struct Reader(pub Arc<dyn Connection>);

impl Read for Reader {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        self.0.read(out)
    }
}
