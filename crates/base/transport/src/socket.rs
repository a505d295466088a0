//! Connections over plain TCP, or over a unix socket between processes of one host ([`crate::local`]).
//!
//! Both are held as a `TcpStream`, of which only those calls are used that mean the same for any stream socket; the rest
//! fails on a unix socket and is not needed there. Uses socket calls only (`connect`, `send`, `recv`, `setsockopt`, `shutdown`): the preloaded library may use it
//! inside a server whose file calls it watches.
//!
//! Timeouts are the kernel's (`SO_RCVTIMEO`, `SO_SNDTIMEO`). Under a deadline, the timeout of each call is at most the
//! remaining time. That costs a system call each time, but only greetings have deadlines.

use crate::connection::{Connection, Delay, Written};
use crate::identity::Identity;
use redoubt_locks::{IgnorePoison, IgnorePoisonIfFree};
use redoubt_peer_credentials::Process;
use rustix::net::{SendFlags, send, sockopt};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time without a byte before the kernel probes the peer, and interval of these probes.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_QUESTIONS: u32 = 5;
/// Time after which the kernel closes an idle connection to a host that is gone, and the limit of a node's connections
/// to servers ([`Connection::set_silence_limit`]).
pub const LOST_PEER_AFTER: Duration = KEEP_ALIVE.saturating_mul(KEEP_ALIVE_QUESTIONS + 1);

/// Maximum number of bytes that are read from a rejected peer.
const SOFT_END_LIMIT_BYTES: usize = 256 << 10;

/// A TCP connection without the delay of Nagle's algorithm, which detects the failure of the peer's host within about
/// a minute; or a connection over a local socket.
#[derive(Debug)]
pub struct SocketConnection {
    stream: TcpStream,
    peer: String,
    is_over_local_socket: bool,
    /// Whether both ends are on one host, without a network between them.
    is_local: bool,
    limits: Mutex<Limits>,
    /// Lock of the writer: otherwise, the kernel may take part of a write and then another thread's. Contains bytes
    /// that an earlier write held back.
    writing: Mutex<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    read: Option<Duration>,
    write: Option<Duration>,
    deadline: Option<Instant>,
}

impl SocketConnection {
    /// Wraps a connected stream.
    pub fn new(stream: TcpStream) -> Self {
        let peer = stream.peer_addr().map_or_else(|_| "?".to_owned(), |peer| peer.to_string());
        // A failure leaves a connection that is slower to send, or to detect a failure.
        let _ = stream.set_nodelay(true);
        keep_alive(&stream, KEEP_ALIVE, KEEP_ALIVE_QUESTIONS);
        let is_local = is_local(&stream);
        Self::of(stream, peer, is_local, false)
    }

    /// Wraps a unix socket that is connected to this process.
    pub fn local(stream: UnixStream, process: Process) -> Self {
        let peer = format!("process {} of user {} on this host", process.id, process.uid);
        Self::of(TcpStream::from(OwnedFd::from(stream)), peer, true, true)
    }

    fn of(stream: TcpStream, peer: String, is_local: bool, is_over_local_socket: bool) -> Self {
        let (limits, writing) = (Mutex::default(), Mutex::default());
        Self { stream, peer, is_over_local_socket, is_local, limits, writing }
    }

    /// A duplicate of the socket, to close it from another thread.
    ///
    /// # Errors
    /// Error of the system.
    pub fn try_clone(&self) -> Result<TcpStream> {
        self.stream.try_clone()
    }

    /// The first unread byte, which stays unread; `None` if the peer closed the connection.
    ///
    /// # Errors
    /// See [`Connection::read`].
    pub fn peek(&self) -> Result<Option<u8>> {
        let limits = *self.limits();
        if let Some(deadline) = limits.deadline {
            self.stream.set_read_timeout(left(deadline, limits.read)?)?;
        }
        let mut byte = [0];
        loop {
            match self.stream.peek(&mut byte) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result.map(|len| (len > 0).then_some(byte[0])),
            }
        }
    }

    /// Closes the connection so that the peer still receives the last written bytes. A close with unread bytes would
    /// make the kernel reset the connection, and the peer would lose the answer with the reason. So unread bytes are
    /// read for a short time.
    pub fn end_softly(&self, within: Duration) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let (mut bytes, mut left_bytes) = ([0; 4096], SOFT_END_LIMIT_BYTES);
        if !within.is_zero() && self.set_deadline(Some(within)).is_ok() {
            while let Ok(len @ 1..) = self.read(&mut bytes)
                && left_bytes > len
            {
                left_bytes -= len;
            }
        }
        self.shutdown();
    }

    /// Waits until all bytes are written.
    fn send_all(&self, mut bytes: &[u8]) -> Result<()> {
        let limits = *self.limits();
        while !bytes.is_empty() {
            if let Some(deadline) = limits.deadline {
                self.stream.set_write_timeout(left(deadline, limits.write)?)?;
            }
            match (&self.stream).write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes as much as the kernel accepts, and returns the rest.
    fn send_some<'a>(&self, mut bytes: &'a [u8]) -> Result<&'a [u8]> {
        while !bytes.is_empty() {
            match send(&self.stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(bytes)
    }

    fn limits(&self) -> std::sync::MutexGuard<'_, Limits> {
        self.limits.lock().ignore_poison()
    }

    /// Changes the limits, and sets the kernel's timeouts accordingly.
    fn change(&self, change: impl FnOnce(&mut Limits)) -> Result<()> {
        let mut limits = self.limits();
        change(&mut limits);
        self.stream.set_read_timeout(limits.read)?;
        self.stream.set_write_timeout(limits.write)
    }
}

/// Time until the deadline, or the timeout if it is shorter.
fn left(deadline: Instant, timeout: Option<Duration>) -> Result<Option<Duration>> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Error::new(ErrorKind::TimedOut, "it took too long"));
    }
    Ok(Some(timeout.map_or(left, |timeout| timeout.min(left))))
}

impl Connection for SocketConnection {
    fn read(&self, out: &mut [u8]) -> Result<usize> {
        let limits = *self.limits();
        if let Some(deadline) = limits.deadline {
            self.stream.set_read_timeout(left(deadline, limits.read)?)?;
        }
        loop {
            match (&self.stream).read(out) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn write_all(&self, bytes: &[u8]) -> Result<()> {
        let mut held = self.writing.lock().ignore_poison();
        if !held.is_empty() {
            self.send_all(&held)?;
            // The buffer may have been large, and may never be so again.
            *held = Vec::new();
        }
        self.send_all(bytes)
    }

    fn write_now(&self, bytes: &[u8]) -> Result<Written> {
        let Some(mut held) = self.writing.try_lock().ignore_poison_if_free() else {
            return Ok(Written::Not);
        };
        if held.is_empty() {
            let left = self.send_some(bytes)?;
            held.extend_from_slice(left);
        } else {
            held.extend_from_slice(bytes);
        }
        Ok(if held.is_empty() { Written::All } else { Written::Held })
    }

    fn shutdown(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.change(|limits| limits.read = timeout)
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.change(|limits| limits.write = timeout)
    }

    fn set_silence_limit(&self, limit: Duration) {
        if self.is_over_local_socket {
            let _ = self.set_write_timeout(Some(limit));
            return;
        }
        let limit_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        keep_alive(&self.stream, limit / 3, 3);
        let _ = sockopt::set_tcp_user_timeout(&self.stream, limit_ms);
    }

    fn set_deadline(&self, within: Option<Duration>) -> Result<()> {
        self.change(|limits| limits.deadline = within.map(|within| Instant::now() + within))
    }

    fn peer(&self) -> &str {
        &self.peer
    }

    fn identity(&self) -> &Identity {
        &Identity::Unproven
    }

    fn is_over_local_socket(&self) -> bool {
        self.is_over_local_socket
    }

    fn crosses_network(&self) -> bool {
        !self.is_local
    }

    fn delay(&self) -> Option<Delay> {
        if self.is_local { None } else { delay(&self.stream) }
    }
}

/// Whether both ends have the same address, or the peer's address is a loopback address.
fn is_local(stream: &TcpStream) -> bool {
    let (Ok(own), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return true };
    let peer = peer.ip().to_canonical();
    peer.is_loopback() || peer == own.ip().to_canonical()
}

/// Length of the requested part of `struct tcp_info`: up to the end of the last used field.
const TCP_INFO_LEN_BYTES: usize = 152;
const TCP_INFO_RTT: usize = 68;
const TCP_INFO_LEAST_RTT: usize = 148;

/// Reads `TCP_INFO`, which rustix does not have. Kernels before 4.9 do not return enough fields.
fn delay(stream: &TcpStream) -> Option<Delay> {
    let mut info = [0u8; TCP_INFO_LEN_BYTES];
    let mut len = TCP_INFO_LEN_BYTES as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel writes at most `len` bytes to `info`, which is that long.
    let got = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if got != 0 || (len as usize) < TCP_INFO_LEN_BYTES {
        return None;
    }
    let micros = |at: usize| {
        let field = info.get(at..)?.first_chunk().copied()?;
        Some(Duration::from_micros(u32::from_ne_bytes(field).into()))
    };
    Some(Delay { now: micros(TCP_INFO_RTT)?, least: micros(TCP_INFO_LEAST_RTT)? })
}

/// Sets the interval of probes to a silent peer, and the number of unanswered probes after which the kernel closes the
/// connection.
fn keep_alive(stream: &TcpStream, period: Duration, questions: u32) {
    let period = period.max(Duration::from_secs(1));
    // A failure only leaves the kernel's own default in place.
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, period);
    let _ = sockopt::set_tcp_keepintvl(stream, period);
    let _ = sockopt::set_tcp_keepcnt(stream, questions);
}

#[cfg(test)]
mod tests;
