//! The wait for a set: the waiting thread receives the frames.

use super::{Own, Set, ready_events};
use crate::socket::Socket;
use libc::{c_int, epoll_event};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Waits without the kernel after which it is asked for other events.
const LOOK_AFTER: u32 = 16;
/// Poll interval in a child, where no thread consumes the wake-ups.
const NAP: Duration = Duration::from_millis(1);

/// Timeout of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// The caller's timeout.
    Whole,
    /// This time.
    Rest(Duration),
}

impl Timeout {
    const NONE: Self = Self::Rest(Duration::ZERO);
}

/// The caller's buffer for events.
struct Room {
    events: *mut epoll_event,
    count: usize,
    used: usize,
}

impl Room {
    fn left(&self) -> usize {
        self.count - self.used
    }

    fn push(&mut self, event: epoll_event) {
        if self.used < self.count {
            // SAFETY: within the caller's room.
            unsafe { *self.events.add(self.used) = event };
            self.used += 1;
        }
    }

    /// Has the kernel write events, and removes the set's own.
    fn ask(&mut self, set: &Set, call: impl FnOnce(*mut epoll_event, c_int) -> c_int) -> Answer {
        let left = c_int::try_from(self.left()).unwrap_or(c_int::MAX);
        let begin = self.used;
        // SAFETY: within the caller's room.
        let mut answer = Answer { result: call(unsafe { self.events.add(begin) }, left), own: 0 };
        for at in begin..begin + usize::try_from(answer.result).unwrap_or(0) {
            // SAFETY: the kernel has written this many.
            let event = unsafe { *self.events.add(at) };
            let data = event.u64;
            match data {
                data if data == set.mark(Own::Lane) => answer.own |= LANE,
                data if data == set.mark(Own::Bell) => answer.own |= BELL,
                _ => self.push(event),
            }
        }
        answer
    }
}

/// The set's own events in an answer.
const LANE: u8 = 1;
const BELL: u8 = 2;

struct Answer {
    /// Result of the call.
    result: c_int,
    own: u8,
}

impl Set {
    fn has_something(&self) -> bool {
        self.queued.load(Ordering::SeqCst) != 0 || self.lanes().any(|(_, lane)| lane.has_frames())
    }

    /// Receives the frames, and collects the ready members.
    fn gather(&self, room: &mut Room) {
        if !self.has_something() {
            return;
        }
        self.takers.fetch_add(1, Ordering::SeqCst);
        for (stack, lane) in self.lanes() {
            if lane.has_frames() {
                stack.with(|inner, now| inner.take_by(lane, now));
            }
        }
        let ready = |socket: &'static Socket| ready_events(socket.ready());
        self.with(|members| members.tell(room.left(), ready, |event| room.push(event)));
        self.takers.fetch_sub(1, Ordering::SeqCst);
        // The rest, and news since then, is for another thread.
        self.wake();
    }

    /// Waits in the kernel, if there still is a reason to. `None`: there is none.
    fn sleep(&self, room: &mut Room, call: impl FnOnce(*mut epoll_event, c_int) -> c_int) -> Option<c_int> {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let answer = (!self.has_something()).then(|| room.ask(self, call));
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        let Answer { result, own } = answer?;
        if own & BELL != 0 {
            // Members that this ring was for are collected after this.
            self.bell.clear();
        }
        Some(result)
    }

    fn wait(
        &self,
        room: &mut Room,
        limit: (Instant, Option<Duration>),
        mut timeout: Timeout,
        call: &impl Fn(*mut epoll_event, c_int, Timeout) -> c_int,
    ) -> c_int {
        loop {
            self.gather(room);
            if room.used > 0 {
                let is_to_look = self.without_kernel.fetch_add(1, Ordering::Relaxed) >= LOOK_AFTER;
                if is_to_look && room.left() > 0 {
                    self.without_kernel.store(0, Ordering::Relaxed);
                    // If the bell has been rung, that is for others.
                    room.ask(self, |events, count| call(events, count, Timeout::NONE));
                }
                return room.used as c_int;
            }
            let Some(result) = self.sleep(room, |events, count| call(events, count, timeout)) else {
                continue;
            };
            self.without_kernel.store(0, Ordering::Relaxed);
            if result < 0 {
                return result;
            }
            self.gather(room);
            if room.used > 0 {
                return room.used as c_int;
            }
            timeout = rest(limit);
            if result == 0 || timeout == Timeout::NONE {
                return 0;
            }
        }
    }
}

/// Threads that wait for sets without members, or are about to. When such a set gets its first member, a thread that
/// waits for it already is not counted among its sleepers.
static STRANGERS: AtomicU32 = AtomicU32::new(0);

/// A thread may wait for a set without being counted there.
pub(super) fn has_strangers() -> bool {
    STRANGERS.load(Ordering::SeqCst) != 0
}

/// One of these threads. Counted before it checks whether the set has members.
struct Stranger;

impl Stranger {
    fn begin() -> Option<Self> {
        crate::is_wanted().then(|| {
            STRANGERS.fetch_add(1, Ordering::SeqCst);
            Self
        })
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        STRANGERS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A wait for a set, as epoll_wait; `call` is the kernel's.
///
/// # Safety
/// There is room for `count` events, and `call` returns the number of events written.
pub unsafe fn wait(
    fd: c_int,
    (events, count): (*mut epoll_event, c_int),
    longest: Option<Duration>,
    call: impl Fn(*mut epoll_event, c_int, Timeout) -> c_int,
) -> c_int {
    if events.is_null() || count <= 0 {
        return call(events, count, Timeout::Whole);
    }
    let start = Instant::now();
    let mut room = Room { events, count: count as usize, used: 0 };
    let stranger = Stranger::begin();
    let Some(set) = super::get(fd) else {
        let result = call(events, count, Timeout::Whole);
        drop(stranger);
        // The first member may have joined meanwhile.
        let Some(set) = super::get(fd).filter(|_| result > 0) else { return result };
        room.ask(set, |_, _| result);
        if room.used > 0 {
            return room.used as c_int;
        }
        return wait_in(set, &mut room, (start, longest), rest((start, longest)), &call);
    };
    drop(stranger);
    wait_in(set, &mut room, (start, longest), Timeout::Whole, &call)
}

fn wait_in(
    set: &'static Set,
    room: &mut Room,
    limit: (Instant, Option<Duration>),
    timeout: Timeout,
    call: &impl Fn(*mut epoll_event, c_int, Timeout) -> c_int,
) -> c_int {
    if crate::is_child() {
        return wait_in_child(set, room, limit, call);
    }
    set.waiters.fetch_add(1, Ordering::SeqCst);
    let result = set.wait(room, limit, timeout, call);
    set.waiters.fetch_sub(1, Ordering::SeqCst);
    result
}

/// The rest of a timeout.
fn rest((start, longest): (Instant, Option<Duration>)) -> Timeout {
    longest.map_or(Timeout::Whole, |longest| Timeout::Rest(longest.saturating_sub(start.elapsed())))
}

/// A child does not consume wake-ups for its parent.
fn wait_in_child(
    set: &Set,
    room: &mut Room,
    limit: (Instant, Option<Duration>),
    call: &impl Fn(*mut epoll_event, c_int, Timeout) -> c_int,
) -> c_int {
    loop {
        let Answer { result, own } = room.ask(set, |events, count| call(events, count, Timeout::Whole));
        if room.used > 0 {
            return room.used as c_int;
        }
        if own == 0 || rest(limit) == Timeout::NONE {
            return result.min(0);
        }
        std::thread::sleep(NAP);
    }
}
