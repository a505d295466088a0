//! Connections that are put into an epoll set while bytes that were read ahead are unread.
//!
//! The kernel does not know of these bytes and would not report the connection. So it is asked for room to write as well,
//! which there nearly always is, and what it then reports becomes what the server has asked for. From the moment a
//! connection is in a set nothing more is read ahead, so this happens once for a connection at most.
//!
//! Lock: the list's, taken alone. Without an entry (nearly always) a call costs one load.

use crate::connection::Connection;
use crate::next;
use libc::{c_int, epoll_event};
use redoubt_locks::IgnorePoison;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
const WRITABLE: u32 = libc::EPOLLOUT as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
const ON_CHANGE: u32 = libc::EPOLLET as u32;

struct Entry {
    set: c_int,
    fd: c_int,
    connection: &'static Connection,
    /// What the server has asked for.
    event: epoll_event,
}

static COUNT: AtomicUsize = AtomicUsize::new(0);
static LIST: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

fn list() -> MutexGuard<'static, Vec<Entry>> {
    LIST.lock().ignore_poison()
}

fn retain(keep: impl FnMut(&Entry) -> bool) {
    if COUNT.load(Ordering::Acquire) != 0 {
        let mut list = list();
        list.retain(keep);
        COUNT.store(list.len(), Ordering::Release);
    }
}

/// A descriptor is about to be closed, be it a set or a connection.
pub fn closed(fd: c_int) {
    retain(|entry| entry.set != fd && entry.fd != fd);
}

/// A connection is put into a set, or changed there; `call` does it.
pub fn put(
    set: c_int,
    fd: c_int,
    connection: &'static Connection,
    event: epoll_event,
    call: impl FnOnce(epoll_event) -> c_int,
) -> c_int {
    retain(|entry| entry.set != set || entry.fd != fd);
    if !connection.has_pending() || event.events & READABLE == 0 {
        return call(event);
    }
    // Known before the kernel can report it.
    {
        let mut list = list();
        list.push(Entry { set, fd, connection, event });
        COUNT.store(list.len(), Ordering::Release);
    }
    let result = call(epoll_event { events: event.events | WRITABLE, u64: event.u64 });
    if result != 0 {
        retain(|entry| entry.set != set || entry.fd != fd);
    }
    result
}

/// Asks the kernel for no more than the server does.
fn restore(entry: &Entry) {
    let mut event = entry.event;
    // SAFETY: an event that lives long enough.
    unsafe { next::epoll_ctl(entry.set, libc::EPOLL_CTL_MOD, entry.fd, &raw mut event) };
}

/// Before a wait: what has been read meanwhile needs no help any more.
fn tidy(set: c_int) {
    retain(|entry| {
        let keep = entry.set != set || entry.connection.has_pending();
        if !keep {
            restore(entry);
        }
        keep
    });
}

/// Makes one event that the kernel reports the server's. `None`: it is none of its.
fn translate(set: c_int, event: epoll_event) -> Option<epoll_event> {
    let mut list = list();
    let data = event.u64;
    let Some(at) = list.iter().position(|entry| entry.set == set && { entry.event.u64 } == data) else {
        return Some(event);
    };
    let entry = list.get(at)?;
    let wanted = entry.event.events;
    let pending = entry.connection.has_pending();
    let mut events = event.events & (!WRITABLE | wanted);
    if pending {
        events |= wanted & READABLE;
    }
    if !pending || wanted & (ONCE | ON_CHANGE) != 0 {
        if wanted & ONCE == 0 || events == 0 {
            restore(entry);
        }
        list.swap_remove(at);
        COUNT.store(list.len(), Ordering::Release);
    }
    (events != 0).then_some(epoll_event { events, u64: data })
}

/// A wait for a set; `call` is the kernel's.
///
/// # Safety
/// What `call` returns is how many events at `events` it has written.
pub unsafe fn wait(set: c_int, events: *mut epoll_event, call: impl Fn() -> c_int) -> c_int {
    loop {
        if COUNT.load(Ordering::Acquire) == 0 {
            return call();
        }
        tidy(set);
        let ready = call();
        let Ok(count @ 1..) = usize::try_from(ready) else { return ready };
        let mut kept = 0;
        for at in 0..count {
            // SAFETY: the kernel has written this many.
            if let Some(event) = translate(set, unsafe { *events.add(at) }) {
                // SAFETY: not after the event that was just read.
                unsafe { *events.add(kept) = event };
                kept += 1;
            }
        }
        if kept > 0 {
            return kept as c_int;
        }
    }
}
