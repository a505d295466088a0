//! The listener and its connections: a thread each, of low priority, as everywhere in a node.
//!
//! Limits against slow, numerous or hostile clients:
//! * [`MAX_CONNECTIONS`]; beyond it, the connection that has been idle for the longest time is closed.
//! * [`MAX_AT_ONCE`] requests being answered at a time.
//! * The length and time of a request ([`crate::nfs::rpc`]).
//! * [`WRITE_TIMEOUT`] for a client that does not read its answer.
//!
//! A connection has one request under way, so it holds at most one answer.
//!
//! Lock order: all are leaves.

use crate::nfs::exports::{Exports, Limits, Volumes};
use crate::nfs::mount;
use crate::nfs::program::{self, Program};
use crate::nfs::rpc::{self, Record, Taken};
use redoubt_locks::IgnorePoison;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Limit of connections.
pub const MAX_CONNECTIONS: usize = 64;
/// Limit of threads, including those of connections that are being closed.
const MAX_THREADS: usize = 2 * MAX_CONNECTIONS;
/// Limit of requests answered at a time: the node's resources for all clients together.
pub const MAX_AT_ONCE: usize = 8;
/// Time within which a client must accept an answer, or a part of it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of the search for unused exports and files.
const SWEEP_INTERVAL: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// Pause after an error of accept, most likely too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Nice value of the threads, from 0 to 19.
const NICENESS: i32 = 10;

/// Error that prevents NFS.
#[derive(Debug, thiserror::Error)]
pub enum NfsError {
    /// The address cannot be listened on.
    #[error("cannot serve NFS on {address}: {source}; choose another address with --nfs")]
    Listen {
        /// The address.
        address: String,
        /// The error.
        source: std::io::Error,
    },
    /// Other hosts could read everything.
    #[error(
        "refusing to serve NFS on {0}: every host that reaches it could read all volumes, since NFS version 3 \
         has no TLS and no authentication; listen on 127.0.0.1, or, if the whole network is trusted, add \
         --nfs-allow-remote"
    )]
    Exposed(SocketAddr),
    /// A thread could not be started.
    #[error("cannot start serving NFS: {0}")]
    Start(std::io::Error),
}

/// Settings of the operator.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address to listen on, `host:port`; port 0 takes a free one.
    pub listen: String,
    /// Other hosts may read all volumes.
    pub allow_remote: bool,
    /// See [`Limits`].
    pub limits: Limits,
}

/// An address that is bound and not served yet.
pub struct Nfs {
    listener: TcpListener,
    address: SocketAddr,
    limits: Limits,
}

impl Nfs {
    /// Binds the address.
    ///
    /// # Errors
    /// [`NfsError::Listen`]; [`NfsError::Exposed`] for an address that other hosts reach, unless that is allowed.
    pub fn bind(settings: &Settings) -> Result<Self, NfsError> {
        let failed = |source| NfsError::Listen { address: settings.listen.clone(), source };
        let listener = TcpListener::bind(&settings.listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        if !address.ip().to_canonical().is_loopback() {
            if !settings.allow_remote {
                return Err(NfsError::Exposed(address));
            }
            tracing::warn!(
                event = "nfs_unauthenticated",
                "serving NFS on {address} WITHOUT AUTHENTICATION, IN PLAIN TEXT: every host that reaches this \
                 address can read all volumes"
            );
        }
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { listener, address, limits: settings.limits })
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves these volumes until the result is dropped.
    ///
    /// # Errors
    /// [`NfsError::Start`].
    pub fn start(self, volumes: Arc<dyn Volumes>) -> Result<Running, NfsError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| NfsError::Start(error.into()))?;
        let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let exports = Arc::new(Exports::new(volumes, self.limits));
        let server = Arc::new(Server {
            program: Program { exports, owner },
            wake,
            is_stopping: AtomicBool::new(false),
            connections: Mutex::default(),
            permits: Mutex::new(MAX_AT_ONCE),
            permit_free: Condvar::new(),
        });
        let (accepting, listener) = (Arc::clone(&server), self.listener);
        let thread = std::thread::Builder::new()
            .name("nfs".to_owned())
            .spawn(move || accepting.accept(&listener))
            .map_err(NfsError::Start)?;
        tracing::info!(event = "nfs_listening", "serving NFS version 3 on {}, read-only", self.address);
        Ok(Running { server, thread: Some(thread) })
    }
}

/// The running NFS server.
pub struct Running {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Closes all connections, and accepts no more. Requests in progress end by themselves, without a reply.
    pub fn stop(&self) {
        self.server.is_stopping.store(true, Ordering::Release);
        if let Err(error) = rustix::io::write(&self.server.wake, &1_u64.to_ne_bytes()) {
            tracing::error!(event = "nfs_stop_failed", %error, "cannot wake the thread that accepts NFS clients");
        }
        for connection in lock(&self.server.connections).known.values() {
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

struct Known {
    stream: TcpStream,
    /// Time of the last request.
    asked: Instant,
}

#[derive(Default)]
struct Connections {
    known: BTreeMap<u64, Known>,
    next: u64,
    threads: usize,
}

struct Server {
    program: Program,
    wake: OwnedFd,
    is_stopping: AtomicBool,
    connections: Mutex<Connections>,
    permits: Mutex<usize>,
    permit_free: Condvar,
}

/// A counted connection; dropping it ends the count.
struct Counted<'s> {
    server: &'s Server,
    number: u64,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut connections = lock(&self.server.connections);
        connections.known.remove(&self.number);
        connections.threads -= 1;
    }
}

/// Permit for one of [`MAX_AT_ONCE`] requests.
struct Permit<'s>(&'s Server);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *lock(&self.0.permits) += 1;
        self.0.permit_free.notify_one();
    }
}

impl Server {
    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let mut swept = Instant::now();
        while !self.is_stopping() {
            if swept.elapsed().as_secs() >= SWEEP_INTERVAL.tv_sec.unsigned_abs() {
                self.program.exports.sweep();
                swept = Instant::now();
            }
            match listener.accept() {
                Ok((stream, _)) => self.admit(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut waiting =
                        [PollFd::new(listener, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
                    // The next accept reports a failure.
                    let _ = poll(&mut waiting, Some(&SWEEP_INTERVAL));
                }
                Err(error) => {
                    tracing::warn!(event = "nfs_accept_failed", %error, "cannot accept an NFS client");
                    std::thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    fn admit(self: &Arc<Self>, stream: TcpStream) {
        let set_up = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_write_timeout(Some(WRITE_TIMEOUT)))
            .and_then(|()| stream.set_nodelay(true))
            .and_then(|()| stream.try_clone());
        let Ok(own) = set_up else { return };
        let mut connections = lock(&self.connections);
        if connections.threads >= MAX_THREADS {
            return;
        }
        if connections.known.len() >= MAX_CONNECTIONS {
            let longest = connections.known.iter().min_by_key(|(_, known)| known.asked);
            if let Some(number) = longest.map(|(number, _)| *number)
                && let Some(known) = connections.known.remove(&number)
            {
                let _ = known.stream.shutdown(Shutdown::Both);
            }
        }
        let number = connections.next;
        connections.next += 1;
        connections.threads += 1;
        connections.known.insert(number, Known { stream: own, asked: Instant::now() });
        drop(connections);
        let server = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("nfs-client".to_owned()).spawn(move || {
            let counted = Counted { server: &server, number };
            // Applies to this thread only. If it fails, a read is as urgent as a commit, and nothing worse.
            let _ = rustix::process::nice(NICENESS);
            counted.serve(stream);
        });
        if let Err(error) = spawned {
            tracing::warn!(event = "nfs_thread_failed", %error, "cannot start a thread for an NFS client");
            drop(Counted { server: self, number });
        }
    }

    fn permit(&self) -> Permit<'_> {
        let mut permits = lock(&self.permits);
        while *permits == 0 {
            permits = self.permit_free.wait(permits).ignore_poison();
        }
        *permits -= 1;
        Permit(self)
    }

    fn answer(&self, record: &[u8]) -> Option<Vec<u8>> {
        answer(&self.program, record, || self.permit())
    }
}

/// The answer to a record, with its mark; `None`: the record is no call. The value returned by `admit` is retained
/// until the NFS program has answered.
pub fn answer<A>(program: &Program, record: &[u8], admit: impl FnOnce() -> A) -> Option<Vec<u8>> {
    let call = match rpc::decode(record).ok()? {
        Record::Call(call) => call,
        Record::Denied(answer) => return Some(answer),
    };
    let mut out = rpc::answer(call.xid, Taken::Success);
    let taken = match (call.program, call.version) {
        (program::PROGRAM, program::VERSION) => {
            let _admitted = admit();
            program.call(call.procedure, call.arguments, &mut out)
        }
        // Creating a snapshot may take long, and such calls wait for each other.
        (mount::PROGRAM, mount::VERSION) => {
            mount::call(&program.exports, call.procedure, call.arguments, &mut out)
        }
        (program::PROGRAM, _) => Ok(Taken::OtherVersion(program::VERSION)),
        (mount::PROGRAM, _) => Ok(Taken::OtherVersion(mount::VERSION)),
        _ => Ok(Taken::NoProgram),
    };
    Some(rpc::marked(match taken.unwrap_or(Taken::Garbage) {
        Taken::Success => out,
        taken => rpc::answer(call.xid, taken),
    }))
}

impl Counted<'_> {
    /// Serves the connection to its end, which concerns its client only.
    fn serve(&self, mut stream: TcpStream) {
        while let Ok(Some(record)) = rpc::read_record(&mut stream) {
            if let Some(known) = lock(&self.server.connections).known.get_mut(&self.number) {
                known.asked = Instant::now();
            }
            if self.server.is_stopping() {
                return;
            }
            let Some(answer) = self.server.answer(&record) else { return };
            drop(record);
            if rpc::write_record(&mut stream, &answer).is_err() {
                return;
            }
        }
    }
}
