//! Connections that are put into an epoll set while bytes that were read ahead are unread.
//!
//! The kernel does not have these bytes and would not report the connection. So it is asked for room to write as well,
//! which there nearly always is, and its report is translated to the server's requested events. From the time when a
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
    /// The server's requested events.
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

/// A descriptor is about to be closed, possibly a set or a connection.
pub fn closed(fd: c_int) {
    retain(|entry| entry.set != fd && entry.fd != fd);
}

/// A connection is added to a set, or changed there; `call` does it.
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
    // Added before the kernel can report it.
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

/// Reduces the kernel's request to the server's.
fn restore(entry: &Entry) {
    let mut event = entry.event;
    // SAFETY: an event that lives long enough.
    unsafe { next::epoll_ctl(entry.set, libc::EPOLL_CTL_MOD, entry.fd, &raw mut event) };
}

/// Before a wait: an entry whose bytes have been read is removed.
fn tidy(set: c_int) {
    retain(|entry| {
        let keep = entry.set != set || entry.connection.has_pending();
        if !keep {
            restore(entry);
        }
        keep
    });
}

/// Translates an event of the kernel to the server's. `None`: the server has not requested it.
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
/// `call` returns the number of events that it has written at `events`.
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
