//! Operations of a connection.

use crate::identity::Identity;
use std::fmt::Debug;
use std::io::{Read, Result};
use std::sync::Arc;
use std::time::Duration;

/// A blocking duplex connection. All calls take `&self`: one thread may read while others write.
pub trait Connection: Debug + Send + Sync {
    /// Reads at least one byte into `out`. Returns 0 (for a non-empty `out`) if the peer closed the connection.
    ///
    /// # Errors
    /// `WouldBlock` or `TimedOut` after a timeout or deadline. After any other error the connection is unusable.
    fn read(&self, out: &mut [u8]) -> Result<usize>;

    /// Writes all of `bytes`, after those of earlier calls and before those of later calls.
    ///
    /// # Errors
    /// The connection is unusable: part of the bytes may have been sent.
    fn write_all(&self, bytes: &[u8]) -> Result<()>;

    /// Like [`Connection::write_all`], without waiting for the peer. The next write waits for the bytes that this one
    /// held back.
    ///
    /// # Errors
    /// See [`Connection::write_all`].
    fn write_now(&self, bytes: &[u8]) -> Result<Written>;

    /// Closes both directions, and ends every call in progress. Further calls have no effect.
    fn shutdown(&self);

    /// Sets the time without a received byte after which a read fails. `None`, the default: no timeout.
    ///
    /// # Errors
    /// If the value is invalid, for example a zero duration.
    fn set_read_timeout(&self, timeout: Option<Duration>) -> Result<()>;

    /// Sets the time without any accepted byte after which a write fails. `None`, the default: no timeout.
    ///
    /// # Errors
    /// See [`Connection::set_read_timeout`].
    fn set_write_timeout(&self, timeout: Option<Duration>) -> Result<()>;

    /// Sets the time without an acknowledgement after which the peer counts as gone, also while bytes to it are under
    /// way: the kernel does not probe a peer then, and sends them again for a quarter of an hour. Over a local socket,
    /// where the kernel reports at once that the peer is gone, it is the timeout of a write. No effect without a network.
    fn set_silence_limit(&self, _limit: Duration) {}

    /// Sets the total time for all following reads and writes: a peer that sends single bytes does not extend it.
    /// `None`, the default: no deadline.
    ///
    /// # Errors
    /// See [`Connection::set_read_timeout`].
    fn set_deadline(&self, within: Option<Duration>) -> Result<()>;

    /// The peer's address or name, for people.
    fn peer(&self) -> &str;

    /// The authenticated identity of the peer.
    fn identity(&self) -> &Identity;

    /// Time up to which the peer's certificate is valid, in seconds since 1970. `None`: the peer did not authenticate.
    fn peer_certificate_expires_s(&self) -> Option<i64> {
        None
    }

    /// Whether the connection uses the node's local socket ([`crate::local`]) and not TCP.
    fn is_over_local_socket(&self) -> bool {
        false
    }

    /// Whether there is a known network between the two ends. The call is cheap.
    fn crosses_network(&self) -> bool {
        false
    }

    /// Transmission delay. `None` without a network between the two ends, or if it is unknown.
    fn delay(&self) -> Option<Delay> {
        None
    }
}

/// Result of a write that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// All bytes were sent.
    All,
    /// The connection has accepted the bytes, and holds back those that the peer has no space for. The next write
    /// sends these first, even if it has no bytes of its own.
    Held,
    /// No byte was accepted: another thread is writing.
    Not,
}

/// Time from sending to the peer's acknowledgement, as the operating system measures it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Recent value, smoothed.
    pub now: Duration,
    /// Minimum over a long time, which is the delay without queues.
    pub least: Duration,
}

impl Read for &dyn Connection {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        Connection::read(*self, out)
    }
}

/// Reads from a connection that is shared with writers.
#[derive(Clone, Debug)]
pub struct Reader(pub Arc<dyn Connection>);

impl Read for Reader {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        self.0.read(out)
    }
}
