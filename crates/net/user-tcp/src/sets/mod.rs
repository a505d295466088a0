//! Epoll sets that contain connections of stacks.
//!
//! A set gets a lane of each stack (see [`crate::lane`]) for the frames of all its members, and the lane is in the
//! kernel's set. So the kernel wakes the thread that waits for the set. This thread receives the frames itself and then
//! gets the ready members: [`members`] has the requested events, and [`wait`] the wait. The members are in the kernel's
//! set too, so that it reports the same errors as ever, but without any requested events. So a change of the events
//! needs no system call.
//!
//! Unsupported uses leave the set or the connection to the kernel for good. The kernel then watches the members, whose
//! descriptors are readable from then on while the connection is, see [`crate::stack`]. Unsupported are:
//!
//! * for a set: a copy, a wait for the set itself, and a set within a set;
//! * for a connection: a second set, a copy, and a wait for it together with others.
//!
//! Lock order: a stack, then the members of a set; a lane is made under neither. Under the members' lock are only calls
//! that do not wait.
//!
//! Invariants:
//! * A connection is a member of one set at most, and [`Socket::set`] is that one; both change under the lock of the
//!   stack.
//! * A waiter counts as a sleeper before its last check whether it has to sleep, and news is in the queue before the
//!   sleepers are checked, so that no wake-up is missed.
//! * A thread that waits for a set without members is not a sleeper of it, but one of the strangers of all sets. The
//!   set's bell wakes them as well: it is in the kernel's set before the first member.
//! * Sets are never freed, and a set is used again only when no thread waits for it.

pub mod members;
mod wait;

pub use wait::{Timeout, wait};

use crate::doorbell::Doorbell;
use crate::lane::Lane;
use crate::next;
use crate::socket::{self, Socket};
use crate::stack::Stack;
use crate::{ACTIVE, stacks};
use libc::{c_int, epoll_event};
use members::Members;
use redoubt_interpose::Descriptors;
use redoubt_locks::IgnorePoison;
use redoubt_shm_control::net::USER_TCP_LINKS;
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// A set's own entries in the kernel's set, beside the members.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    Bell,
    Lane,
}

const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

/// Sets by their descriptors.
static TABLE: Descriptors<Set> = Descriptors::new();
/// Sets that can be used again. Also the lock for making a set: one after the other.
static SPARE: Mutex<Vec<&'static Set>> = Mutex::new(Vec::new());

/// An epoll set that contains connections of stacks.
pub struct Set {
    fd: AtomicI32,
    /// In the kernel's set: ends a wait.
    bell: Doorbell,
    /// Lanes by the stacks' numbers.
    lanes: [AtomicPtr<Lane>; USER_TCP_LINKS],
    members: Mutex<Members<&'static Socket>>,
    /// Copies of the members' counts, for readers without the lock.
    queued: AtomicUsize,
    news: AtomicUsize,
    /// Threads that wait.
    waiters: AtomicU32,
    /// Waiting threads that are in the kernel, or about to be.
    sleepers: AtomicU32,
    /// Threads that receive frames and then collect the ready members.
    takers: AtomicU32,
    /// Consecutive waits that returned without the kernel.
    without_kernel: AtomicU32,
    /// The set is left to the kernel, for good.
    is_left: AtomicBool,
}

/// The set behind a descriptor, if connections of stacks are or were in it. Without any the lookup costs one load.
#[inline]
pub fn get(fd: c_int) -> Option<&'static Set> {
    if ACTIVE.load(Ordering::Relaxed) { TABLE.get(fd) } else { None }
}

/// The descriptors of a range that are such sets.
pub fn in_range(range: RangeInclusive<usize>) -> impl Iterator<Item = c_int> {
    TABLE.in_range(range)
}

/// Current events, as epoll reports them.
fn ready_events(ready: u32) -> u32 {
    let all = libc::POLLIN | libc::POLLRDNORM | libc::POLLOUT | libc::POLLWRNORM | libc::POLLRDHUP;
    (socket::events(ready, all) & !libc::POLLNVAL) as u32
}

impl Set {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            fd: AtomicI32::new(-1),
            bell: Doorbell::new()?,
            lanes: [const { AtomicPtr::new(std::ptr::null_mut()) }; USER_TCP_LINKS],
            members: Mutex::default(),
            queued: AtomicUsize::new(0),
            news: AtomicUsize::new(0),
            waiters: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            takers: AtomicU32::new(0),
            without_kernel: AtomicU32::new(0),
            is_left: AtomicBool::new(false),
        })
    }

    fn fd(&self) -> c_int {
        self.fd.load(Ordering::Acquire)
    }

    /// Calls a function with the members, and updates the copies of their counts.
    fn with<Done>(&self, call: impl FnOnce(&mut Members<&'static Socket>) -> Done) -> Done {
        let mut members: MutexGuard<'_, _> = self.members.lock().ignore_poison();
        let done = call(&mut members);
        self.queued.store(members.queued(), Ordering::SeqCst);
        self.news.store(members.news(), Ordering::SeqCst);
        done
    }

    /// User data of the bell and the lanes in the kernel's set: addresses that are unique.
    fn mark(&self, own: Own) -> u64 {
        let address = std::ptr::from_ref(self).addr() as u64;
        if own == Own::Bell { address } else { address + 1 }
    }

    /// A thread waits for the set.
    pub fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) != 0
    }

    /// The members.
    pub fn sockets(&self) -> Vec<&'static Socket> {
        self.with(|members| members.owners())
    }

    /// The set's lane of the stack with this number.
    pub fn lane(&self, number: usize) -> Option<&'static Lane> {
        // SAFETY: null, or a lane, which is never freed.
        unsafe { self.lanes.get(number)?.load(Ordering::Acquire).as_ref() }
    }

    /// The lanes, each with its stack.
    fn lanes(&self) -> impl Iterator<Item = (&'static Stack, &'static Lane)> {
        stacks().iter().filter_map(|stack| Some((*stack, self.lane(stack.number())?)))
    }

    /// Adds events of a member, under the lock of its stack; to be followed by [`Set::wake`].
    pub fn note(&self, socket: &Socket, ready: u32) {
        self.with(|members| members.note(socket.place(), ready_events(ready)));
    }

    /// Wakes a waiting thread, if there is news that no other thread will collect.
    pub fn wake(&self) {
        let is_needed = (self.sleepers.load(Ordering::SeqCst) != 0 || wait::has_strangers())
            && self.takers.load(Ordering::SeqCst) == 0
            && self.news.load(Ordering::SeqCst) != 0;
        if is_needed {
            self.bell.ring();
        }
    }

    /// Adds a member, under the lock of its stack. `false`: the set was left to the kernel.
    pub fn join(&'static self, socket: &'static Socket, asked: epoll_event) -> bool {
        self.with(|members| {
            if self.is_left.load(Ordering::Relaxed) {
                return false;
            }
            let place = members.add(socket, asked, ready_events(socket.ready()));
            socket.set_set(Some((self, place)));
            true
        })
    }

    /// Removes a member, under the lock of its stack. With `asked` the kernel watches it from then on.
    pub fn quit(&self, socket: &'static Socket, asked: bool) {
        self.with(|members| {
            let removed = members.remove(socket.place());
            socket.set_set(None);
            if let Some((_, mut event)) = removed.filter(|_| asked) {
                let fd = socket.placeholder.load(Ordering::Relaxed);
                // SAFETY: an event that lives long enough.
                unsafe { next::epoll_ctl(self.fd(), libc::EPOLL_CTL_MOD, fd, &raw mut event) };
            }
        });
    }

    /// Changes the requested events of a member. `false`: it is not a member.
    fn change(&self, socket: &'static Socket, asked: epoll_event) -> bool {
        let is_changed = self.with(|members| {
            let is_member = socket.set().is_some_and(|set| std::ptr::eq(set, self));
            if is_member {
                members.change(socket.place(), asked, ready_events(socket.ready()));
            }
            is_member
        });
        self.wake();
        is_changed
    }

    /// Adds one of the set's own entries to the kernel's set, or removes it.
    fn control_own(&self, operation: c_int, own: Own, fd: c_int) -> bool {
        let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: self.mark(own) };
        // SAFETY: an event that lives long enough.
        unsafe { next::epoll_ctl(self.fd(), operation, fd, &raw mut event) == 0 }
    }

    /// The set's lane of this stack, which is created if there is none.
    fn lane_of_stack(&'static self, stack: &'static Stack) -> Option<&'static Lane> {
        if let Some(lane) = self.lane(stack.number()) {
            return Some(lane);
        }
        let lane = stack.lane_for_set(self)?;
        let place = self.lanes.get(stack.number())?;
        let pointer = std::ptr::from_ref(lane).cast_mut();
        let is_first = place
            .compare_exchange(std::ptr::null_mut(), pointer, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if !is_first || !self.control_own(libc::EPOLL_CTL_ADD, Own::Lane, lane.descriptor()) {
            if is_first {
                place.store(std::ptr::null_mut(), Ordering::Release);
            }
            stack.take_lane_back(lane);
            return self.lane(stack.number());
        }
        Some(lane)
    }

    /// Gives the lanes back.
    fn end_lanes(&self) {
        for stack in stacks() {
            let Some(place) = self.lanes.get(stack.number()) else { continue };
            let lane = place.swap(std::ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: null, or a lane, which is never freed.
            if let Some(lane) = unsafe { lane.as_ref() } {
                self.control_own(libc::EPOLL_CTL_DEL, Own::Lane, lane.descriptor());
                stack.take_lane_back(lane);
            }
        }
        self.control_own(libc::EPOLL_CTL_DEL, Own::Bell, self.bell.as_raw_fd());
    }

    /// Leaves the set to the kernel, for good.
    fn leave(&self) {
        // From then on no connection joins.
        if self.with(|_| self.is_left.swap(true, Ordering::SeqCst)) {
            return;
        }
        for socket in self.sockets() {
            socket.stack.with(|inner, now| {
                if socket.set().is_some_and(|set| std::ptr::eq(set, self)) {
                    inner.arm(socket.slot, now);
                }
            });
        }
        self.end_lanes();
    }
}

/// The set of a descriptor, which is made if there is none. `None`: the descriptor is not an epoll set, or resources
/// are exhausted.
fn make(fd: c_int) -> Option<&'static Set> {
    let mut spare = SPARE.lock().ignore_poison();
    if let Some(set) = TABLE.get(fd) {
        return Some(set);
    }
    let set = match spare.pop() {
        Some(set) => set,
        None => Box::leak(Box::new(Set::new().ok()?)),
    };
    set.fd.store(fd, Ordering::Release);
    set.is_left.store(false, Ordering::Relaxed);
    if TABLE.make_room(fd) && set.control_own(libc::EPOLL_CTL_ADD, Own::Bell, set.bell.as_raw_fd()) {
        TABLE.put(fd, set);
        return Some(set);
    }
    spare.push(set);
    None
}

/// A descriptor is about to be closed, possibly a set.
pub fn closed(fd: c_int) {
    let Some(set) = TABLE.take(fd) else { return };
    // From now on no connection joins.
    set.with(|_| set.is_left.store(true, Ordering::SeqCst));
    for socket in set.sockets() {
        socket.stack.with(|inner, now| {
            if socket.set().is_some_and(|of_socket| std::ptr::eq(of_socket, set)) {
                inner.leave_set(socket, now);
            }
        });
    }
    set.end_lanes();
    if set.waiters.load(Ordering::SeqCst) == 0 {
        SPARE.lock().ignore_poison().push(set);
    }
}

/// A descriptor is used in an unsupported way; if it is a set, the set is left to the kernel.
pub fn leave(fd: c_int) {
    if let Some(set) = get(fd).filter(|_| !crate::is_child()) {
        set.leave();
    }
}

/// epoll_ctl of a connection.
///
/// # Safety
/// As epoll_ctl.
pub unsafe fn control(
    set: c_int,
    operation: c_int,
    socket: &'static Socket,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's arguments.
    let ask = |event| unsafe { next::epoll_ctl(set, operation, fd, event) };
    let generation = socket.generation();
    let member_of = socket.set().filter(|of_socket| of_socket.fd() == set);
    // SAFETY: null, or the caller's.
    let asked = unsafe { event.as_ref() }.filter(|event| { event.events } & EXCLUSIVE == 0);
    match (operation, asked, member_of) {
        (libc::EPOLL_CTL_MOD, Some(asked), Some(of_socket)) if of_socket.change(socket, *asked) => 0,
        (libc::EPOLL_CTL_DEL, _, Some(_)) => {
            socket.stack.with(|inner, now| inner.leave_set(socket, now));
            ask(event)
        }
        (libc::EPOLL_CTL_ADD, Some(asked), None) if socket.may_join() => add(set, socket, fd, *asked),
        (libc::EPOLL_CTL_ADD, _, None) => left(socket, generation, ask(event)),
        // Members that were left to the kernel, and calls that the kernel rejects.
        _ => ask(event),
    }
}

/// The kernel has added a connection to a set, or has failed to; on success it handles the connection there.
fn left(socket: &'static Socket, generation: u32, result: c_int) -> c_int {
    if result == 0 {
        socket.stack.with(|inner, now| {
            // Another thread may have received its events already, and have closed it.
            if inner.slot(socket, generation).is_some() {
                inner.arm(socket.slot, now);
            }
        });
    }
    result
}

fn add(set: c_int, socket: &'static Socket, fd: c_int, asked: epoll_event) -> c_int {
    let generation = socket.generation();
    let ask = |operation, mut event: epoll_event| {
        // SAFETY: an event that lives long enough.
        unsafe { next::epoll_ctl(set, operation, fd, &raw mut event) }
    };
    let way = make(set)
        .filter(|made| !made.is_left.load(Ordering::Relaxed))
        .and_then(|made| Some((made, made.lane_of_stack(socket.stack)?)));
    let Some((made, lane)) = way else { return left(socket, generation, ask(libc::EPOLL_CTL_ADD, asked)) };
    let result = ask(libc::EPOLL_CTL_ADD, epoll_event { events: 0, u64: asked.u64 });
    if result != 0 {
        return result;
    }
    let is_joined =
        socket.stack.with(|inner, now| inner.join_set(socket, generation, (made, lane), asked, now));
    if is_joined {
        made.wake();
        return 0;
    }
    left(socket, generation, ask(libc::EPOLL_CTL_MOD, asked))
}
