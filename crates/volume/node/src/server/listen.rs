//! The sockets of incoming connections, and their end: TCP, and the local socket for servers on this host
//! ([`redoubt_transport::local`]). A node works without the local one.
//!
//! Accepting waits in one `poll` for the sockets and for an eventfd. Stopping writes to the eventfd, so it works
//! whatever has become of the network: the address may be gone and the link down. The sockets themselves do not block,
//! so a connection that is gone again before it is accepted does not delay the others either.

use crate::error::NodeError;
use redoubt_transport::local;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};

/// An accepted connection; it blocks as usual.
#[derive(Debug)]
pub enum Incoming {
    /// By TCP.
    Tcp(TcpStream),
    /// Over the local socket.
    Local(UnixStream),
}

/// The listening sockets of a node.
pub struct Listener {
    socket: TcpListener,
    local: Option<UnixListener>,
    address: SocketAddr,
    stopping: AtomicBool,
    wake: OwnedFd,
}

impl Listener {
    /// Takes the address, and with `with_local` the name of the local socket that belongs to it.
    ///
    /// # Errors
    /// [`NodeError::Refused`] if the address is in use; [`NodeError::Io`].
    pub fn bind(listen: &str, with_local: bool) -> Result<Self, NodeError> {
        let socket = TcpListener::bind(listen).map_err(|error| {
            NodeError::Refused(format!(
                "cannot listen on {listen}: {error}; choose another address with --listen, or stop what uses it"
            ))
        })?;
        let failed = |error| NodeError::io("listen on", listen, error);
        let address = socket.local_addr().map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let local = if with_local { listen_locally(address) } else { None };
        Ok(Self { socket, local, address, stopping: AtomicBool::new(false), wake })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Name of the local socket, if there is one.
    pub fn local_name(&self) -> Option<String> {
        self.local.as_ref().map(|_| local::name(self.address))
    }

    /// The next connection; waits for one. `None`: stopped.
    ///
    /// # Errors
    /// The system's; the next call may succeed.
    pub fn accept(&self) -> std::io::Result<Option<Incoming>> {
        loop {
            if self.is_stopping() {
                return Ok(None);
            }
            // On Linux a new socket does not inherit the listening socket's non-blocking mode.
            if let Some((stream, _)) = come(self.socket.accept())? {
                return Ok(Some(Incoming::Tcp(stream)));
            }
            if let Some(local) = &self.local
                && let Some((stream, _)) = come(local.accept())?
            {
                return Ok(Some(Incoming::Local(stream)));
            }
            let sockets = [Some(self.socket.as_fd()), self.local.as_ref().map(AsFd::as_fd)];
            let descriptors = sockets.into_iter().flatten().chain([self.wake.as_fd()]);
            let mut waiting: Vec<_> =
                descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)).collect();
            match poll(&mut waiting, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Ends [`Listener::accept`], now and for good.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        if let Err(error) = rustix::io::write(&self.wake, &1_u64.to_ne_bytes()) {
            tracing::error!(event = "stop_failed", %error, "cannot wake the thread that accepts connections");
        }
    }

    /// [`Listener::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

fn listen_locally(address: SocketAddr) -> Option<UnixListener> {
    let listening = local::listen(address);
    let warn = |error: &Error| {
        tracing::warn!(event = "local_socket_failed",
            %error,
            "cannot listen on the local socket @{}, which another process may have; servers on this host use TCP",
            local::name(address)
        );
    };
    listening.inspect_err(warn).ok()
}

/// Turns "would block" into `None`: no connection is waiting.
fn come<T>(accepted: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match accepted {
        Ok(accepted) => Ok(Some(accepted)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "listen_tests.rs"]
mod tests;
