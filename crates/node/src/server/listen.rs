//! The socket that connections come in by, and its end.
//!
//! Accepting waits in one `poll` for the socket and for an eventfd. Stopping writes to the eventfd, so it works
//! whatever has become of the network: the address may be gone and the link down. The socket itself does not block, so
//! a connection that is gone again before it is accepted holds nobody up either.

use crate::error::NodeError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    stopping: AtomicBool,
    wake: OwnedFd,
}

impl Listener {
    /// Takes the address.
    ///
    /// # Errors
    /// [`NodeError::Refused`] if it cannot be had; [`NodeError::Io`].
    pub fn bind(listen: &str) -> Result<Self, NodeError> {
        let socket = TcpListener::bind(listen).map_err(|error| {
            NodeError::Refused(format!(
                "cannot listen on {listen}: {error}; choose another address with --listen, or stop what uses it"
            ))
        })?;
        let failed = |error| NodeError::io("listen on", listen, error);
        let address = socket.local_addr().map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        Ok(Self { socket, address, stopping: AtomicBool::new(false), wake })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next connection, which blocks as usual; waits for one. `None`: stopped.
    ///
    /// # Errors
    /// The system's; the next call may succeed.
    pub fn accept(&self) -> std::io::Result<Option<TcpStream>> {
        loop {
            if self.is_stopping() {
                return Ok(None);
            }
            match self.socket.accept() {
                // On Linux the new socket does not take over that the listening one does not block.
                Ok((stream, _)) => return Ok(Some(stream)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            let mut waiting =
                [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
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
            tracing::error!(%error, "cannot wake the thread that accepts connections");
        }
    }

    /// [`Listener::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

#[cfg(test)]
#[path = "listen_tests.rs"]
mod tests;
