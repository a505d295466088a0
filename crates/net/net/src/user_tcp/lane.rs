//! Lanes: a socket of AF_XDP for the frames of one connection, or of those in one set of epoll. A thread that waits for its connection waits in the
//! kernel for its lane, so that the kernel wakes it as it does with its own TCP: no other thread is between the card and
//! the one that is to have the bytes. Which frames come by which lane is only a matter of who is woken: whoever takes a
//! frame from a lane hands it to the stack, whatever connection it belongs to.
//!
//! What is here is used without the stack's lock; the rings are the link's, see [`super::xdp`].
//!
//! Invariants: a lane is there for good and is used again. At most one thread attends to it. `is_polled` is set before
//! the thread looks for the last time whether it has to wait, and who changes something for a waiting thread changes it
//! before he looks at `is_polled` (all of it sequentially consistent), so that no wake-up is missed. Nobody but who
//! attends to a lane clears its bell.

use super::doorbell::Doorbell;
use super::xdp::{self, Watch};
use crate::next;
use libc::{c_int, nfds_t, pollfd, sigset_t};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Lanes: a socket of AF_XDP for the frames of one connection, or of those in one set of epoll.
pub struct Lane {
    /// Its number at the link, which gives it.
    pub number: u32,
    socket: OwnedFd,
    received: Watch,
    bell: Doorbell,
    is_attended: AtomicBool,
    is_polled: AtomicBool,
    is_shared: AtomicBool,
}

impl Lane {
    /// Over a socket and its ring of frames that have come.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(socket: OwnedFd, received: Watch) -> io::Result<Self> {
        let [is_attended, is_polled, is_shared] = [const { AtomicBool::new(false) }; 3];
        let (number, bell) = (u32::MAX, Doorbell::new()?);
        Ok(Self { number, socket, received, bell, is_attended, is_polled, is_shared })
    }

    /// Frames have come.
    pub fn has_frames(&self) -> bool {
        self.received.has_entries()
    }

    /// The frames of all connections in a set of epoll come by it.
    pub fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::SeqCst)
    }

    /// Says so, under the lock of the stack.
    pub fn set_shared(&self, is_shared: bool) {
        self.is_shared.store(is_shared, Ordering::SeqCst);
    }

    /// A thread waits for it, or is about to.
    pub fn is_attended(&self) -> bool {
        self.is_attended.load(Ordering::SeqCst)
    }

    /// From now on this thread attends to it. `false`: another one does.
    pub fn attend(&self) -> bool {
        !self.is_attended.swap(true, Ordering::SeqCst)
    }

    /// It does not any more.
    pub fn leave(&self) {
        self.is_attended.store(false, Ordering::SeqCst);
    }

    /// A thread waits for it in the kernel, or is about to.
    pub fn is_polled(&self) -> bool {
        self.is_polled.load(Ordering::SeqCst)
    }

    /// Ends the wait of a thread.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Waits until frames come, or it is rung, if there still is a reason to. `false`: the kernel has not waited, mostly
    /// as a signal has come; the thread's error number says why.
    pub fn wait(
        &self,
        is_needed: impl Fn() -> bool,
        longest: Option<Duration>,
        mask: *const sigset_t,
    ) -> bool {
        self.is_polled.store(true, Ordering::SeqCst);
        let is_done = if is_needed() && !self.has_frames() { self.sleep(longest, mask) } else { true };
        self.is_polled.store(false, Ordering::SeqCst);
        is_done
    }

    fn sleep(&self, longest: Option<Duration>, mask: *const sigset_t) -> bool {
        let entry = |fd| pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut list = [entry(self.socket.as_raw_fd()), entry(self.bell.as_raw_fd())];
        let timeout = longest.map(super::socket::timespec);
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: a list of this length, null or a time that lives long enough, and null or the caller's mask.
        let result = unsafe { next::ppoll(list.as_mut_ptr(), list.len() as nfds_t, timeout, mask) };
        let [_, bell] = list;
        if result > 0 && bell.revents != 0 {
            self.bell.clear();
        }
        result >= 0
    }

    /// Its descriptor, to have the kernel send what is in its ring.
    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for Lane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Has the kernel send what is in the ring of this socket; what has become of it.
pub fn kick(fd: c_int) -> xdp::Sent {
    // The kernel sends so many frames at a call.
    let mut calls = (0..xdp::KICKS).map(|_| xdp::send(fd));
    calls.find(|sent| *sent != xdp::Sent::Part).unwrap_or(xdp::Sent::Part)
}
