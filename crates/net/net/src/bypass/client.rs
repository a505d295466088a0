//! The client's side: an offer before it connects, and its result.

use super::server::take_token;
use super::{Address, Place, WORD, door, exchange, is_client, messages, option};
use crate::next;
use libc::{c_int, c_void, pollfd, socklen_t, timeval};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Timeout for a non-blocking connect, in milliseconds: over the loopback interface the connection usually exists when
/// connect returns.
const CONNECT_MS: c_int = 20;
/// Timeout for the server's accept, in milliseconds.
const ACCEPT_MS: c_int = 200;
/// Timeout for the confirmation of a server that has taken the offer, in milliseconds.
const WORD_MS: c_int = 5000;

/// Descriptors that are or were in an epoll set: the set would lose an exchanged descriptor.
static IN_SETS: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

fn in_sets(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let index = usize::try_from(fd).ok()?;
    Some((IN_SETS.get(index / 64)?, 1 << (index % 64)))
}

/// A descriptor is put into an epoll set.
pub fn put_in_set(fd: c_int) {
    if let Some((word, bit)) = in_sets(fd).filter(|_| is_client()) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// A descriptor is about to be closed.
pub fn closed(fd: c_int) {
    if let Some((word, bit)) = in_sets(fd).filter(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

fn was_in_set(fd: c_int) -> bool {
    in_sets(fd).is_none_or(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// An offer to a server.
pub struct Offer {
    unix: OwnedFd,
    token: OwnedFd,
    to: Address,
}

/// Offers the server at this address to exchange the connection that connect is about to make.
pub fn offer(fd: c_int, to: Address) -> Option<Offer> {
    let address = to.tcp()?;
    let is_tcp = [libc::AF_INET, libc::AF_INET6].contains(&option(fd, libc::SO_DOMAIN, 0 as c_int)?)
        && option(fd, libc::SO_PROTOCOL, 0 as c_int)? == libc::IPPROTO_TCP;
    if !is_tcp || was_in_set(fd) || Address::ask(fd, next::getpeername).is_some() {
        return None;
    }
    let unix = knock(address)?;
    if !redoubt_peer_credentials::is_of_this_host(address.ip()) {
        return None;
    }
    let credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let uid = option(unix.as_raw_fd(), libc::SO_PEERCRED, credentials)?.uid;
    if !redoubt_peer_credentials::may_stand_in(uid, address) {
        return None;
    }
    // SAFETY: no pointers; a new descriptor is ours.
    let token = unsafe {
        let fd = libc::eventfd(1, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
        if fd < 0 {
            return None;
        }
        OwnedFd::from_raw_fd(fd)
    };
    messages::send(&unix, WORD, [fd, token.as_raw_fd()]).then_some(Offer { unix, token, to })
}

/// Connects to the rendezvous socket for this address alone, or to the one for all addresses.
fn knock(to: SocketAddr) -> Option<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers; a new descriptor is ours.
    let unix = unsafe {
        let fd = libc::socket(libc::AF_UNIX, kind, 0);
        if fd < 0 {
            return None;
        }
        OwnedFd::from_raw_fd(fd)
    };
    let is_open = [Some(to.ip()), None].into_iter().any(|ip| {
        let (address, len) = door(Place { ip, port: to.port() });
        // SAFETY: an address of this length.
        unsafe { next::connect(unix.as_raw_fd(), (&raw const address).cast(), len) == 0 }
    });
    is_open.then_some(unix)
}

/// Waits with a timeout that signals do not shorten: both sides rely on the decision at its end.
fn wait(fd: c_int, events: libc::c_short, timeout_ms: c_int) -> bool {
    let (start, longest) = (Instant::now(), Duration::from_millis(timeout_ms.unsigned_abs().into()));
    loop {
        let rest = longest.saturating_sub(start.elapsed());
        let rest_ms = c_int::try_from(rest.as_micros().div_ceil(1000)).unwrap_or(timeout_ms);
        let mut entry = pollfd { fd, events, revents: 0 };
        // SAFETY: one entry.
        let ready = unsafe { next::poll(&raw mut entry, 1, rest_ms) };
        if ready >= 0 || next::errno() != libc::EINTR || rest_ms == 0 {
            return ready == 1;
        }
    }
}

impl Offer {
    /// Result of connect, after the kernel has returned `result` with the current error number.
    pub fn settle(self, fd: c_int, result: c_int) -> c_int {
        let errno = next::errno();
        let (result, errno) = self.outcome(fd, result, errno);
        drop(self);
        next::set_errno(errno);
        result
    }

    fn outcome(&self, fd: c_int, result: c_int, errno: c_int) -> (c_int, c_int) {
        let is_there = result == 0 || errno == libc::EINPROGRESS && wait(fd, libc::POLLOUT, CONNECT_MS);
        // A client that continues with TCP has to have the token.
        if !is_there && take_token(&self.token) {
            return (result, errno);
        }
        if result != 0
            && let Some(error) = option(fd, libc::SO_ERROR, 0 as c_int).filter(|error| *error != 0)
        {
            return (-1, error);
        }
        match self.is_taken() {
            false => (result, errno),
            true if self.exchange(fd) => (0, errno),
            // The server has left TCP: this end must not continue with it.
            true => (-1, libc::ECONNRESET),
        }
    }

    /// The server has taken the offer. If not, it cannot take it later.
    fn is_taken(&self) -> bool {
        let unix = self.unix.as_raw_fd();
        if !wait(unix, libc::POLLIN, ACCEPT_MS)
            && (take_token(&self.token) || !wait(unix, libc::POLLIN, WORD_MS))
        {
            return false;
        }
        let mut word = [0u8];
        // SAFETY: one byte.
        unsafe { next::recv(unix, word.as_mut_ptr().cast(), 1, libc::MSG_DONTWAIT) == 1 && word[0] == WORD }
    }

    fn exchange(&self, fd: c_int) -> bool {
        let unix = self.unix.as_raw_fd();
        let Some(own) = Address::ask(fd, next::getsockname) else { return false };
        // SAFETY: no pointers.
        let (status, flags) =
            unsafe { (next::fcntl(fd, libc::F_GETFL, 0), next::fcntl(fd, libc::F_GETFD, 0)) };
        if status & libc::O_NONBLOCK == 0 {
            // SAFETY: no pointers.
            unsafe { next::fcntl(unix, libc::F_SETFL, 0) };
        }
        for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            let value = option(fd, name, timeval { tv_sec: 0, tv_usec: 0 });
            let pointer =
                value.as_ref().map_or(std::ptr::null(), |value| std::ptr::from_ref(value).cast::<c_void>());
            // SAFETY: a timeval, or nothing, which the kernel refuses.
            unsafe {
                next::setsockopt(unix, libc::SOL_SOCKET, name, pointer, size_of::<timeval>() as socklen_t)
            };
        }
        exchange(fd, unix, self.to, own, flags & libc::FD_CLOEXEC != 0)
    }
}
