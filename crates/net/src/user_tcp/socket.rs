//! One connection as the server's threads see it: what they can do with it now, and the wait for more.
//!
//! The server's descriptor is an eventfd of the kernel, so its number is nobody else's. It becomes readable only when
//! the server has asked the kernel about it, see [`super::stack`].
//!
//! Invariants: `ready` is written under the lock of the stack only. A waiter is counted before it looks at `ready` for
//! the last time, and `ready` is written before the waiters are looked at, so no wake-up is missed. Sockets are never
//! given back to the system: whoever holds one finds out by its generation, under the lock, whether it still is his.

use super::stack::Stack;
use crate::next;
use libc::{c_int, c_short};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// There are bytes, or the end, or an error.
pub const READABLE: u32 = 1;
/// There is room for bytes, or an error.
pub const WRITABLE: u32 = 2;
/// The peer has ended its side.
pub const PEER_CLOSED: u32 = 4;
/// Both sides have ended.
pub const HANG_UP: u32 = 8;
/// There is an error.
pub const ERROR: u32 = 16;
/// The server has closed it.
pub const CLOSED: u32 = 32;

const NONBLOCK: u32 = 1;

/// See the module.
pub struct Socket {
    /// Whose it is.
    pub stack: &'static Stack,
    /// Its place there.
    pub slot: u32,
    ready: AtomicU32,
    waiters: AtomicU32,
    flags: AtomicU32,
    generation: AtomicU32,
    descriptors: AtomicU32,
    /// SO_RCVTIMEO and SO_SNDTIMEO in milliseconds; 0: none.
    pub timeouts_ms: [AtomicI64; 2],
    /// The descriptor that the kernel signals, or -1.
    pub placeholder: AtomicI32,
}

impl Socket {
    /// For a place of a stack.
    pub fn new(stack: &'static Stack, slot: u32) -> Self {
        Self {
            stack,
            slot,
            ready: AtomicU32::new(CLOSED),
            waiters: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            descriptors: AtomicU32::new(0),
            timeouts_ms: [const { AtomicI64::new(0) }; 2],
            placeholder: AtomicI32::new(-1),
        }
    }

    /// Which connection it is now.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// A new connection.
    pub fn open(&self) {
        self.flags.store(0, Ordering::Relaxed);
        self.timeouts_ms.iter().for_each(|timeout| timeout.store(0, Ordering::Relaxed));
        self.placeholder.store(-1, Ordering::Relaxed);
        self.descriptors.store(1, Ordering::Relaxed);
        self.ready.store(0, Ordering::SeqCst);
    }

    /// The connection is over for the server.
    pub fn end(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.ready.store(CLOSED, Ordering::SeqCst);
    }

    /// One more descriptor. `false`: it is closed.
    pub fn add_descriptor(&self) -> bool {
        let more = |count: u32| (count > 0).then(|| count + 1);
        self.descriptors.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// One less. `true`: it was the last.
    pub fn remove_descriptor(&self) -> bool {
        self.descriptors.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// What can be done now.
    pub fn ready(&self) -> u32 {
        self.ready.load(Ordering::SeqCst)
    }

    /// Writes that down, under the lock of the stack. `true`: somebody is to be woken.
    pub fn set_ready(&self, ready: u32) -> bool {
        self.ready.swap(ready, Ordering::SeqCst) != ready && self.waiters.load(Ordering::SeqCst) != 0
    }

    /// Wakes everybody who waits.
    pub fn wake(&self) {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: an address that is there for good.
        unsafe { libc::syscall(libc::SYS_futex, self.ready.as_ptr(), operation, c_int::MAX) };
    }

    /// Calls do not wait.
    pub fn is_nonblocking(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & NONBLOCK != 0
    }

    /// Says whether calls wait.
    pub fn set_nonblocking(&self, wanted: bool) {
        if wanted {
            self.flags.fetch_or(NONBLOCK, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!NONBLOCK, Ordering::Relaxed);
        }
    }

    /// Waits until one of these is so, at most until then.
    ///
    /// # Errors
    /// EINTR.
    pub fn wait(&self, wanted: u32, until: Option<Instant>) -> Result<u32, c_int> {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let result = self.wait_counted(wanted | CLOSED, until);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        result
    }

    fn wait_counted(&self, wanted: u32, until: Option<Instant>) -> Result<u32, c_int> {
        loop {
            let ready = self.ready();
            if ready & wanted != 0 {
                return Ok(ready);
            }
            let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
            if rest.is_some_and(|rest| rest.is_zero()) {
                return Ok(ready);
            }
            let timeout = rest.map(timespec);
            let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: an address that is there for good, and null or a time that lives long enough.
            let result =
                unsafe { libc::syscall(libc::SYS_futex, self.ready.as_ptr(), operation, ready, timeout) };
            if result < 0 && next::errno() == libc::EINTR {
                return Err(libc::EINTR);
            }
        }
    }
}

fn timespec(rest: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(rest.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(rest.subsec_nanos() as i32),
    }
}

/// Which of these events are there.
pub fn events(ready: u32, wanted: c_short) -> c_short {
    let table = [
        (READABLE, wanted & (libc::POLLIN | libc::POLLRDNORM)),
        (WRITABLE, wanted & (libc::POLLOUT | libc::POLLWRNORM)),
        (PEER_CLOSED, wanted & libc::POLLRDHUP),
        (HANG_UP, libc::POLLHUP),
        (ERROR, libc::POLLERR),
        (CLOSED, libc::POLLNVAL),
    ];
    table.into_iter().filter(|(bit, _)| ready & bit != 0).fold(0, |all, (_, event)| all | event)
}

/// What has to be so for one of these events.
pub fn wanted(events: c_short) -> u32 {
    let table = [
        (libc::POLLIN | libc::POLLRDNORM, READABLE),
        (libc::POLLOUT | libc::POLLWRNORM, WRITABLE),
        (libc::POLLRDHUP, PEER_CLOSED),
    ];
    let all = table.into_iter().filter(|(event, _)| events & event != 0);
    all.fold(HANG_UP | ERROR | CLOSED, |all, (_, bit)| all | bit)
}
