//! Connections to a server: the look-up of its name, and the attempts to connect. Both end at a deadline.
//!
//! The look-up of the C library has no deadline, so it runs in a thread of its own, one at a time. If it is late, the
//! next call of [`Dialer::dial`] gets its result. A slow name server thus delays the first connection only.
//!
//! The addresses of a name are tried side by side: the next attempt begins [`STEP`] after the previous one, or at once
//! when no attempt is left. The first connection counts. So an address that drops all packets costs one step.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_error};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time between the beginnings of two attempts, as RFC 8305 recommends.
const STEP: Duration = Duration::from_millis(250);

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Its socket.
    Socket(PathBuf),
    /// Over the network.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
}

/// An established connection.
pub enum Socket {
    /// Through a socket in the file system.
    Unix(UnixStream),
    /// Over the network.
    Tcp(TcpStream),
}

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The look-up of the name is not finished at the deadline.
    #[error("the look-up of its name is not finished yet")]
    NameIsLate,
    /// The look-up or the connection failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

type Found = std::io::Result<Vec<SocketAddr>>;
type LookUp = dyn Fn(&str, u16) -> Found + Send + Sync;

/// Connects to one server, again and again.
pub struct Dialer {
    address: Address,
    look_up: Arc<LookUp>,
    /// A look-up whose result was not fetched yet.
    running: Option<Receiver<Found>>,
}

/// The time up to a deadline.
///
/// # Errors
/// `TimedOut` if there is none.
pub fn time_up_to(until: Instant) -> std::io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

impl Dialer {
    /// For this server.
    pub fn new(address: Address) -> Self {
        let look_up = |host: &str, port: u16| -> Found { Ok((host, port).to_socket_addrs()?.collect()) };
        Self::with_look_up(address, Arc::new(look_up))
    }

    /// With another look-up of names than the system's.
    pub fn with_look_up(address: Address, look_up: Arc<LookUp>) -> Self {
        Self { address, look_up, running: None }
    }

    /// A connection, made before the deadline.
    ///
    /// # Errors
    /// [`DialError`].
    pub fn dial(&mut self, until: Instant) -> Result<Socket, DialError> {
        let (host, port) = match &self.address {
            Address::Socket(path) => return Ok(Socket::Unix(connect_unix(path, until)?)),
            Address::Tcp { host, port } => (host.clone(), *port),
        };
        let addresses = match host.parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, port)],
            Err(_) => self.addresses(host, port, until)?,
        };
        let stream = connect_first(&addresses, until)?;
        stream.set_nodelay(true)?;
        Ok(Socket::Tcp(stream))
    }

    /// The addresses of the name. Each result serves one call: the name may have other addresses later.
    fn addresses(&mut self, host: String, port: u16, until: Instant) -> Result<Vec<SocketAddr>, DialError> {
        let running = match self.running.take() {
            Some(running) => running,
            None => self.start_look_up(host, port)?,
        };
        match running.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(found) => Ok(found?),
            Err(RecvTimeoutError::Timeout) => {
                self.running = Some(running);
                Err(DialError::NameIsLate)
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(std::io::Error::other("the look-up of the name ended without a result").into())
            }
        }
    }

    fn start_look_up(&self, host: String, port: u16) -> std::io::Result<Receiver<Found>> {
        let (sender, receiver) = mpsc::channel();
        let look_up = Arc::clone(&self.look_up);
        let work = move || {
            // It fails if the dialer has ended.
            let _ = sender.send(look_up(&host, port));
        };
        std::thread::Builder::new().name("redoubt-look-up".to_owned()).spawn(work)?;
        Ok(receiver)
    }
}

/// The first connection to one of these addresses.
fn connect_first(addresses: &[SocketAddr], until: Instant) -> std::io::Result<TcpStream> {
    let mut last_error: std::io::Error = ErrorKind::AddrNotAvailable.into();
    let mut rest = addresses.iter();
    let mut attempts: Vec<OwnedFd> = Vec::new();
    let mut next_begins = Instant::now();
    loop {
        if attempts.is_empty() || Instant::now() >= next_begins {
            match rest.next() {
                Some(address) => {
                    next_begins = Instant::now() + STEP;
                    match begin(address) {
                        Ok(attempt) => attempts.push(attempt),
                        Err(error) => last_error = error.into(),
                    }
                    continue;
                }
                None if attempts.is_empty() => return Err(last_error),
                None => next_begins = until,
            }
        }
        let left = time_up_to(until)?.min(next_begins.saturating_duration_since(Instant::now()));
        let mut has_ended = poll_all(&attempts, left)?.into_iter();
        let (ended, waiting): (Vec<_>, Vec<_>) =
            attempts.into_iter().partition(|_| has_ended.next().unwrap_or(false));
        attempts = waiting;
        for attempt in ended {
            match socket_error(&attempt)? {
                Ok(()) => {
                    let stream = TcpStream::from(attempt);
                    stream.set_nonblocking(false)?;
                    return Ok(stream);
                }
                Err(error) => last_error = error.into(),
            }
        }
    }
}

/// Begins to connect.
fn begin(address: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Waits until an attempt has ended, and returns which ones have.
fn poll_all(attempts: &[OwnedFd], longest: Duration) -> std::io::Result<Vec<bool>> {
    let mut list: Vec<PollFd<'_>> =
        attempts.iter().map(|attempt| PollFd::new(attempt, PollFlags::OUT)).collect();
    let timeout = Timespec::try_from(longest).map_err(|_| ErrorKind::InvalidInput)?;
    match poll(&mut list, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(list.iter().map(|entry| !entry.revents().is_empty()).collect()),
        Err(error) => Err(error.into()),
    }
}

/// A server that accepts no connections fills its backlog; further connects wait then. The send timeout limits that.
fn connect_unix(path: &Path, until: Instant) -> std::io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let address = SocketAddrUnix::new(path)?;
    set_socket_timeout(&socket, Timeout::Send, Some(time_up_to(until)?))?;
    connect(&socket, &address)?;
    Ok(socket.into())
}
