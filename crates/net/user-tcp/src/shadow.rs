//! Listeners of the server for which the stacks accept connections as well: these wait here for accept.
//!
//! A listener's descriptor is the kernel's. A thread that polls it also polls the listener's bell, see
//! [`crate::waits`].
//!
//! Shadows are never freed; a server has only a few. Every wait of every thread looks them up, without a lock. A
//! queue's lock is taken last, and nothing else is taken under it. The bell rings only while a connection waits: it is
//! rung and silenced under that lock.

use crate::doorbell::Doorbell;
use crate::socket::Socket;
use libc::c_int;
use redoubt_interpose::Descriptors;
use redoubt_locks::IgnorePoison;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard};

/// A connection that waits for accept.
pub struct Accepted {
    /// The connection.
    pub socket: &'static Socket,
    /// Local address.
    pub local: SocketAddr,
    /// Address of the peer.
    pub peer: SocketAddr,
}

/// A listener of the server, and the stacks' connections that wait for accept.
pub struct Shadow {
    fd: c_int,
    bound: SocketAddr,
    /// It is bound to `[::]` and does not accept IPv4 connections.
    is_only_ipv6: bool,
    backlog: usize,
    bell: Doorbell,
    queue: Mutex<VecDeque<Accepted>>,
}

/// Shadows by the listeners' descriptors.
static TABLE: Descriptors<Shadow> = Descriptors::new();

/// All shadows.
pub fn all() -> Vec<&'static Shadow> {
    in_range(0..=usize::MAX).filter_map(get).collect()
}

/// The shadow of this descriptor. Without any shadows the lookup costs two loads.
#[inline]
pub fn get(fd: c_int) -> Option<&'static Shadow> {
    TABLE.get(fd)
}

/// Adds a shadow. `false`: the number of its descriptor is too large.
pub fn add(shadow: &'static Shadow) -> bool {
    TABLE.put(shadow.fd, shadow)
}

/// Removes a shadow.
pub fn remove(fd: c_int) -> Option<&'static Shadow> {
    TABLE.take(fd)
}

/// The descriptors of a range that have a shadow.
pub fn in_range(range: RangeInclusive<usize>) -> impl Iterator<Item = c_int> {
    TABLE.in_range(range)
}

impl Shadow {
    /// The shadow of a listening socket with this bound address.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn new(fd: c_int, bound: SocketAddr, is_only_ipv6: bool, backlog: c_int) -> std::io::Result<Self> {
        let backlog = usize::try_from(backlog).unwrap_or(0).clamp(1, 4096);
        Ok(Self { fd, bound, is_only_ipv6, backlog, bell: Doorbell::new()?, queue: Mutex::default() })
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.bound.port()
    }

    /// The addresses of its connections are reported as IPv6 addresses.
    pub fn is_ipv6(&self) -> bool {
        self.bound.is_ipv6()
    }

    /// Maximum number of waiting connections.
    pub fn backlog(&self) -> usize {
        self.backlog
    }

    /// Connections to this address belong to the listener.
    pub fn covers(&self, address: IpAddr) -> bool {
        let is_all = self.bound.ip().is_unspecified();
        self.bound.ip() == address
            || is_all && (self.bound.is_ipv4() == address.is_ipv4())
            || is_all && self.bound.is_ipv6() && !self.is_only_ipv6
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Accepted>> {
        self.queue.lock().ignore_poison()
    }

    /// Another connection may wait.
    pub fn has_room(&self) -> bool {
        self.queue().len() < self.backlog
    }

    /// Adds a waiting connection; to be followed by [`Shadow::knock`].
    pub fn push(&self, accepted: Accepted) {
        self.queue().push_back(accepted);
    }

    /// Puts a connection back to the front, for the next accept.
    pub fn push_back(&self, accepted: Accepted) {
        self.queue().push_front(accepted);
        self.knock();
    }

    /// Signals the polling threads that a connection waits, unless another thread has accepted it meanwhile: MySQL
    /// treats an accept without a connection as an error.
    pub fn knock(&self) {
        let queue = self.queue();
        if !queue.is_empty() {
            self.bell.ring();
        }
    }

    /// Takes the first waiting connection.
    pub fn pop(&self) -> Option<Accepted> {
        let mut queue = self.queue();
        let first = queue.pop_front();
        if queue.is_empty() {
            self.bell.clear();
        }
        first
    }

    /// Descriptor that is readable while a connection waits.
    pub fn bell(&self) -> c_int {
        self.bell.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another thread has accepted the connection of the knock.
    #[test]
    fn a_knock_for_nobody_is_not_heard() {
        let shadow = Shadow::new(7, "127.0.0.1:3306".parse().unwrap(), false, 5).unwrap();
        shadow.knock();
        let mut entry = libc::pollfd { fd: shadow.bell(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        assert_eq!(unsafe { libc::poll(&raw mut entry, 1, 0) }, 0);
    }
}
