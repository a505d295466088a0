//! One connection as the server's threads see it: its readiness, and the wait for changes.
//!
//! The server's descriptor is an eventfd of the kernel, so its number is unique. It becomes readable only when the
//! server has asked the kernel about it, see [`crate::stack`].
//!
//! A thread that waits for a connection with a [`Lane`] waits there, and receives the frames itself. Without a lane, or
//! while another thread attends it, the thread waits for the receiving thread.
//!
//! Bytes received by a lane are read ahead, so that a server which asks for a header and then for the rest takes the
//! stack's lock once. So `ready` may still be set after the bytes were read; [`Socket::ready_now`] checks this.
//!
//! A connection in an epoll set shares the set's lane ([`crate::sets`]) and is not read ahead, so that `ready` is
//! exact.
//!
//! Lock order: the stack, then the bytes read ahead. Invariants: `ready`, `lane` and `set` are written under the lock
//! of the stack only. A waiter is counted before its last check of `ready`, and `ready` is written before the waiters
//! are checked, so no wake-up is missed. Sockets are never freed: under the lock, the generation shows whether a socket
//! still is the caller's connection.

use crate::ahead::Ahead;
use crate::lane::Lane;
use crate::next;
use crate::sets::Set;
use crate::stack::Stack;
use libc::{c_int, c_short, sigset_t};
use redoubt_locks::IgnorePoison;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
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
/// The server has closed the connection.
pub const CLOSED: u32 = 32;

const NONBLOCK: u32 = 1;
/// A connection gets a lane after this many waits: for a connection that ends after its first statements the cost is
/// too high.
const WAITS_BEFORE_LANE: u32 = 6;
/// Waits before the next attempt, if no lane was available.
const WAITS_BETWEEN: u32 = 32;

/// One connection as the server's threads see it: its readiness, and the wait for changes.
pub struct Socket {
    /// Stack of the connection.
    pub stack: &'static Stack,
    /// Index of its slot in the stack.
    pub slot: u32,
    ready: AtomicU32,
    waiters: AtomicU32,
    flags: AtomicU32,
    generation: AtomicU32,
    descriptors: AtomicU32,
    lane: AtomicPtr<Lane>,
    set: AtomicPtr<Set>,
    /// Index in the set.
    place: AtomicU32,
    waits: AtomicU32,
    ahead: Mutex<Ahead>,
    /// All bytes read ahead were taken since `ready` was written.
    is_stale: AtomicBool,
    /// SO_RCVTIMEO and SO_SNDTIMEO in milliseconds; 0: none.
    pub timeouts_ms: [AtomicI64; 2],
    /// The descriptor that the kernel signals, or -1.
    pub placeholder: AtomicI32,
}

impl Socket {
    /// The socket of a slot of a stack.
    pub fn new(stack: &'static Stack, slot: u32) -> Self {
        Self {
            stack,
            slot,
            ready: AtomicU32::new(CLOSED),
            waiters: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            descriptors: AtomicU32::new(0),
            lane: AtomicPtr::new(std::ptr::null_mut()),
            set: AtomicPtr::new(std::ptr::null_mut()),
            place: AtomicU32::new(0),
            waits: AtomicU32::new(0),
            ahead: Mutex::default(),
            is_stale: AtomicBool::new(false),
            timeouts_ms: [const { AtomicI64::new(0) }; 2],
            placeholder: AtomicI32::new(-1),
        }
    }

    /// Number of the connection that currently uses the socket.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// A new connection.
    pub fn open(&self) {
        self.flags.store(0, Ordering::Relaxed);
        self.waits.store(0, Ordering::Relaxed);
        self.timeouts_ms.iter().for_each(|timeout| timeout.store(0, Ordering::Relaxed));
        self.placeholder.store(-1, Ordering::Relaxed);
        self.descriptors.store(1, Ordering::Relaxed);
        self.ready.store(0, Ordering::SeqCst);
    }

    /// The connection is over for the server.
    pub fn end(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        *self.ahead() = Ahead::default();
        self.ready.store(CLOSED, Ordering::SeqCst);
    }

    /// Adds a descriptor. `false`: the connection is closed.
    pub fn add_descriptor(&self) -> bool {
        let more = |count: u32| (count > 0).then(|| count + 1);
        self.descriptors.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Removes a descriptor. `true`: it was the last.
    pub fn remove_descriptor(&self) -> bool {
        self.descriptors.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Current readiness.
    pub fn ready(&self) -> u32 {
        self.ready.load(Ordering::SeqCst)
    }

    /// Sets the readiness, under the lock of the stack, and returns the previous value.
    pub fn set_ready(&self, ready: u32) -> u32 {
        self.is_stale.store(false, Ordering::Relaxed);
        self.ready.swap(ready, Ordering::SeqCst)
    }

    /// Threads wait for this connection alone.
    pub fn is_waited_for(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) != 0 || self.lane().is_some_and(Lane::is_polled)
    }

    /// The epoll set of the connection, if the stack handles it.
    pub fn set(&self) -> Option<&'static Set> {
        // SAFETY: null, or a set, which is never freed.
        unsafe { self.set.load(Ordering::SeqCst).as_ref() }
    }

    /// Index in the set.
    pub fn place(&self) -> u32 {
        self.place.load(Ordering::Relaxed)
    }

    /// Sets the epoll set, under the locks of the stack and of the set.
    pub fn set_set(&self, set: Option<(&'static Set, u32)>) {
        if let Some((_, place)) = set {
            self.place.store(place, Ordering::Relaxed);
        }
        let set = set.map_or(std::ptr::null_mut(), |(set, _)| std::ptr::from_ref(set).cast_mut());
        self.set.store(set, Ordering::SeqCst);
    }

    /// An epoll set may handle the connection: it is in none, and its descriptor is the only one.
    pub fn may_join(&self) -> bool {
        self.set().is_none() && self.descriptors.load(Ordering::Acquire) == 1
    }

    /// The lane for the frames of this connection only.
    fn own_lane(&self) -> Option<&'static Lane> {
        self.lane().filter(|lane| !lane.is_shared())
    }

    /// Received bytes are read ahead: a thread waits for this connection alone.
    pub fn reads_ahead(&self) -> bool {
        self.lane().is_some() && self.set().is_none()
    }

    /// The lane for its frames; `None`: the link itself.
    pub fn lane(&self) -> Option<&'static Lane> {
        // SAFETY: null, or a lane, which is never freed.
        unsafe { self.lane.load(Ordering::SeqCst).as_ref() }
    }

    /// Sets the lane, under the lock of the stack. The caller wakes the threads that wait at the old one.
    pub fn set_lane(&self, lane: Option<&'static Lane>) {
        let lane = lane.map_or(std::ptr::null_mut(), |lane| std::ptr::from_ref(lane).cast_mut());
        self.lane.store(lane, Ordering::SeqCst);
    }

    /// Frames have arrived that were not received yet.
    pub fn has_frames(&self) -> bool {
        self.lane().is_some_and(Lane::has_frames)
    }

    /// Readiness, including the frames that have arrived until now.
    pub fn ready_now(&'static self) -> u32 {
        if self.has_frames() {
            self.stack.with(|inner, now| inner.look_at(self, now));
        } else if self.is_stale.load(Ordering::Relaxed) {
            self.stack.with(|inner, _| inner.refresh(self.slot));
        }
        self.ready()
    }

    /// The bytes read ahead.
    pub fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().ignore_poison()
    }

    /// Takes bytes that were read ahead, without the stack's lock; for a connection with a lane only. `None`: there are
    /// none.
    pub fn take_ahead(&self, target: &mut [u8]) -> Option<usize> {
        let mut ahead = self.ahead();
        let len = ahead.take(target);
        if len > 0 && ahead.is_empty() {
            self.is_stale.store(true, Ordering::Relaxed);
        }
        (len > 0).then_some(len)
    }

    /// Wakes all waiting threads.
    pub fn wake(&self) {
        if let Some(lane) = self.lane().filter(|lane| lane.is_polled()) {
            lane.ring();
        }
        if self.waiters.load(Ordering::SeqCst) != 0 {
            self.wake_waiters();
        }
        if let Some(set) = self.set() {
            set.wake();
        }
    }

    fn wake_waiters(&self) {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: an address that stays valid.
        unsafe { libc::syscall(libc::SYS_futex, self.ready.as_ptr(), operation, c_int::MAX) };
    }

    /// Calls do not block.
    pub fn is_nonblocking(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & NONBLOCK != 0
    }

    /// Sets whether calls block.
    pub fn set_nonblocking(&self, wanted: bool) {
        if wanted {
            self.flags.fetch_or(NONBLOCK, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!NONBLOCK, Ordering::Relaxed);
        }
    }

    /// Waits until one of these conditions holds or the time has passed.
    ///
    /// # Errors
    /// EINTR.
    pub fn wait(&'static self, wanted: u32, until: Option<Instant>) -> Result<u32, c_int> {
        self.apart(|| self.wait_anyhow(wanted, until))
    }

    /// While a thread waits for a connection alone, its frames do not go to the set.
    fn apart<Done>(&'static self, wait: impl FnOnce() -> Done) -> Done {
        if self.set().is_none() {
            return wait();
        }
        let generation = self.generation();
        self.stack.with(|inner, now| inner.take_apart(self, generation, now));
        self.stack.give_lane(self);
        let done = wait();
        self.stack.with(|inner, now| inner.put_together(self, generation, now));
        done
    }

    fn wait_anyhow(&'static self, wanted: u32, until: Option<Instant>) -> Result<u32, c_int> {
        let wanted = wanted | CLOSED;
        if self.lane().is_none()
            && self.waits.fetch_add(1, Ordering::Relaxed) % WAITS_BETWEEN == WAITS_BEFORE_LANE
        {
            self.stack.give_lane(self);
        }
        loop {
            if let Some(result) = self.wait_at_lane(wanted, until, std::ptr::null()) {
                return result;
            }
            self.waiters.fetch_add(1, Ordering::SeqCst);
            let result = self.wait_counted(wanted, until);
            self.waiters.fetch_sub(1, Ordering::SeqCst);
            if let Some(result) = result {
                return result;
            }
        }
    }

    /// The same with a signal mask. `None`: only the kernel can wait in this case.
    pub fn wait_with_mask(
        &'static self,
        wanted: u32,
        until: Option<Instant>,
        mask: *const sigset_t,
    ) -> Option<Result<u32, c_int>> {
        self.apart(|| {
            self.stack.give_lane(self);
            self.wait_at_lane(wanted | CLOSED, until, mask)
        })
    }

    /// Waits at the lane and receives its frames. `None`: there is no lane (any more), or another thread attends it.
    fn wait_at_lane(
        &'static self,
        wanted: u32,
        until: Option<Instant>,
        mask: *const sigset_t,
    ) -> Option<Result<u32, c_int>> {
        let lane = self.own_lane().filter(|lane| lane.attend())?;
        let result = self.wait_attending(lane, wanted, until, mask);
        lane.leave();
        if self.waiters.load(Ordering::SeqCst) != 0 {
            // One of the waiters has to attend the lane from now on.
            self.wake_waiters();
        }
        result
    }

    fn wait_attending(
        &'static self,
        lane: &'static Lane,
        wanted: u32,
        until: Option<Instant>,
        mask: *const sigset_t,
    ) -> Option<Result<u32, c_int>> {
        let is_its = || self.lane().is_some_and(|own| std::ptr::eq(own, lane));
        loop {
            let ready = self.ready_now();
            if ready & wanted != 0 {
                return Some(Ok(ready));
            }
            if !is_its() {
                return None;
            }
            let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
            if rest.is_some_and(|rest| rest.is_zero()) {
                return Some(Ok(ready));
            }
            let is_needed = || self.ready() & wanted == 0 && is_its();
            if !lane.wait(is_needed, rest, mask) {
                return Some(Err(next::errno()));
            }
        }
    }

    /// `None`: there is a lane now that no thread attends.
    fn wait_counted(&self, wanted: u32, until: Option<Instant>) -> Option<Result<u32, c_int>> {
        loop {
            let ready = self.ready();
            if ready & wanted != 0 {
                return Some(Ok(ready));
            }
            // The thread that attends the lane wakes this one when it leaves. If it leaves before this one sleeps, the
            // stack's thread receives the frames, some milliseconds later: two threads that wait for one connection are
            // rare.
            if self.own_lane().is_some_and(|lane| !lane.is_attended()) {
                return None;
            }
            let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
            if rest.is_some_and(|rest| rest.is_zero()) {
                return Some(Ok(ready));
            }
            let timeout = rest.map(timespec);
            let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: an address that stays valid, and null or a time that lives long enough.
            let result =
                unsafe { libc::syscall(libc::SYS_futex, self.ready.as_ptr(), operation, ready, timeout) };
            if result < 0 && next::errno() == libc::EINTR {
                return Some(Err(libc::EINTR));
            }
        }
    }
}

/// The time as a kernel structure.
pub fn timespec(rest: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(rest.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(rest.subsec_nanos() as i32),
    }
}

/// New events for waiters with edge triggers. As in the kernel's TCP, the end or failure of a side reports all current
/// events.
pub fn news(before: u32, ready: u32, has_more: bool) -> u32 {
    let new = ready & !before;
    let is_end = new & (PEER_CLOSED | HANG_UP | ERROR) != 0;
    if is_end { ready } else { new | if has_more { READABLE } else { 0 } }
}

/// The pending events among the wanted ones.
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

/// The readiness that corresponds to these events.
pub fn wanted(events: c_short) -> u32 {
    let table = [
        (libc::POLLIN | libc::POLLRDNORM, READABLE),
        (libc::POLLOUT | libc::POLLWRNORM, WRITABLE),
        (libc::POLLRDHUP, PEER_CLOSED),
    ];
    let all = table.into_iter().filter(|(event, _)| events & event != 0);
    all.fold(HANG_UP | ERROR | CLOSED, |all, (_, bit)| all | bit)
}
