//! Listeners of the server, of which the stacks take connections as well: what they have taken waits here for accept.
//!
//! A listener's descriptor is the kernel's. Who polls it also polls the listener's bell, see [`super::waits`].
//!
//! Locks: the list's and a queue's are taken last, and nothing else is taken under them.

use super::doorbell::Doorbell;
use super::socket::Socket;
use libc::c_int;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A connection that waits for accept.
pub struct Accepted {
    /// It.
    pub socket: &'static Socket,
    /// Its ends.
    pub local: SocketAddr,
    /// See there.
    pub peer: SocketAddr,
}

/// See the module.
pub struct Shadow {
    fd: c_int,
    bound: SocketAddr,
    /// It is bound to `[::]` and does not take connections of IPv4.
    is_only_ipv6: bool,
    backlog: usize,
    bell: Doorbell,
    queue: Mutex<VecDeque<Accepted>>,
}

static COUNT: AtomicUsize = AtomicUsize::new(0);
static LIST: Mutex<Vec<Arc<Shadow>>> = Mutex::new(Vec::new());

fn list() -> MutexGuard<'static, Vec<Arc<Shadow>>> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All there are.
pub fn all() -> Vec<Arc<Shadow>> {
    list().clone()
}

/// There is one.
#[inline]
pub fn is_any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// The one of this descriptor. Without any at all it costs one load.
pub fn get(fd: c_int) -> Option<Arc<Shadow>> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    list().iter().find(|shadow| shadow.fd == fd).cloned()
}

/// Adds one.
pub fn add(shadow: &Arc<Shadow>) {
    let mut list = list();
    list.push(Arc::clone(shadow));
    COUNT.store(list.len(), Ordering::Release);
}

/// Takes one out.
pub fn remove(fd: c_int) -> Option<Arc<Shadow>> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let mut list = list();
    let at = list.iter().position(|shadow| shadow.fd == fd)?;
    let shadow = list.swap_remove(at);
    COUNT.store(list.len(), Ordering::Release);
    Some(shadow)
}

impl Shadow {
    /// For a listening socket that is bound there.
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

    /// The addresses of its connections are told as those of IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.bound.is_ipv6()
    }

    /// How many connections may wait.
    pub fn backlog(&self) -> usize {
        self.backlog
    }

    /// Connections to this address are its.
    pub fn covers(&self, address: IpAddr) -> bool {
        let is_all = self.bound.ip().is_unspecified();
        self.bound.ip() == address
            || is_all && (self.bound.is_ipv4() == address.is_ipv4())
            || is_all && self.bound.is_ipv6() && !self.is_only_ipv6
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Accepted>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more may wait.
    pub fn has_room(&self) -> bool {
        self.queue().len() < self.backlog
    }

    /// One more waits; to be followed by [`Shadow::knock`].
    pub fn push(&self, accepted: Accepted) {
        self.queue().push_back(accepted);
    }

    /// Back to where it came from, for the next accept.
    pub fn push_back(&self, accepted: Accepted) {
        self.queue().push_front(accepted);
        self.knock();
    }

    /// Tells who polls that somebody waits.
    pub fn knock(&self) {
        self.bell.ring();
    }

    /// The first that waits.
    pub fn pop(&self) -> Option<Accepted> {
        let mut queue = self.queue();
        let first = queue.pop_front();
        if queue.is_empty() {
            self.bell.clear();
        }
        first
    }

    /// What tells that somebody waits.
    pub fn bell(&self) -> c_int {
        self.bell.as_raw_fd()
    }
}
