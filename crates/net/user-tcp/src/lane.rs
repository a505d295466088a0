//! Lanes: an AF_XDP socket for the frames of one connection, or of those in one epoll set.
//!
//! A thread that waits for its connection waits in the kernel for its lane. So the kernel wakes it as it does with its
//! own TCP: no other thread is between the NIC and the receiving one. The choice of a lane only decides which thread is
//! woken: every frame of a lane goes to the stack, for any connection.
//!
//! This module works without the stack's lock; the rings are the link's, see [`crate::xdp`].
//!
//! Invariants: a lane is never freed, and is used again. At most one thread attends it, and only that thread clears its
//! bell. `is_polled` is set before the waiting thread's last check whether it has to wait. Another thread changes the
//! condition of that check before it reads `is_polled`. All of this is sequentially consistent, so no wake-up is
//! missed.

use crate::doorbell::Doorbell;
use crate::next;
use crate::xdp::{self, Watch};
use libc::{c_int, nfds_t, pollfd, sigset_t};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An AF_XDP socket for the frames of one connection, or of those in one epoll set.
pub struct Lane {
    /// Its number at the link, which assigns it.
    pub number: u32,
    socket: OwnedFd,
    received: Watch,
    bell: Doorbell,
    is_attended: AtomicBool,
    is_polled: AtomicBool,
    is_shared: AtomicBool,
}

impl Lane {
    /// The lane of a socket and its receive ring.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(socket: OwnedFd, received: Watch) -> io::Result<Self> {
        let [is_attended, is_polled, is_shared] = [const { AtomicBool::new(false) }; 3];
        let (number, bell) = (u32::MAX, Doorbell::new()?);
        Ok(Self { number, socket, received, bell, is_attended, is_polled, is_shared })
    }

    /// Frames have arrived.
    pub fn has_frames(&self) -> bool {
        self.received.has_entries()
    }

    /// The lane receives the frames of all connections in an epoll set.
    pub fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::SeqCst)
    }

    /// Sets this, under the lock of the stack.
    pub fn set_shared(&self, is_shared: bool) {
        self.is_shared.store(is_shared, Ordering::SeqCst);
    }

    /// A thread waits for it, or is about to.
    pub fn is_attended(&self) -> bool {
        self.is_attended.load(Ordering::SeqCst)
    }

    /// This thread attends the lane from now on. `false`: another one does.
    pub fn attend(&self) -> bool {
        !self.is_attended.swap(true, Ordering::SeqCst)
    }

    /// The thread does not attend it any more.
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

    /// Waits until frames arrive, or the bell is rung, if there still is a reason to. `false`: the kernel has not
    /// waited, mostly because of a signal; errno has the reason.
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
        let timeout = longest.map(crate::socket::timespec);
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: a list of this length, null or a time that lives long enough, and null or the caller's mask.
        let result = unsafe { next::ppoll(list.as_mut_ptr(), list.len() as nfds_t, timeout, mask) };
        let [_, bell] = list;
        if result > 0 && bell.revents != 0 {
            self.bell.clear();
        }
        result >= 0
    }

    /// Its descriptor, for kicks.
    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for Lane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Has the kernel send the frames in the ring of this socket, and returns the result.
pub fn kick(fd: c_int) -> xdp::Sent {
    // The kernel sends a limited number of frames per call.
    let mut calls = (0..xdp::KICKS).map(|_| xdp::send(fd));
    calls.find(|sent| *sent != xdp::Sent::Part).unwrap_or(xdp::Sent::Part)
}
