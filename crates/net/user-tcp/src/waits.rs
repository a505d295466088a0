//! Waits of the server for connections of stacks, or for listeners that have a shadow.
//!
//! A wait for one connection is a wait in user space. A wait for several descriptors is the kernel's: the placeholder
//! of a connection stands for it, and the bell of a shadow is polled beside its listener.

use crate::socket::{self, Socket};
use crate::{calls, get, next, sets, shadow, withdraw};
use libc::{c_int, c_short, epoll_event, nfds_t, pollfd, sigset_t};
use std::time::Duration;

/// How a caller waits.
#[derive(Clone, Copy)]
pub struct Limit {
    /// Timeout. `None`: no end.
    pub longest: Option<Duration>,
    /// The caller's signal mask.
    pub signals: Signals,
}

/// Signals during a wait.
#[derive(Clone, Copy)]
pub enum Signals {
    /// The thread's mask stays.
    Unchanged,
    /// The caller's mask, or null, which only the kernel can set for the duration of a wait.
    Masked(*const sigset_t),
    /// The kernel has to be asked in any case.
    ForKernel,
}

/// `poll`. Waits in which no connection of a stack and no listener with a shadow takes part are left to `others`, and so
/// is the wait for placeholders.
pub fn poll(list: &mut [pollfd], limit: Limit, others: impl FnOnce(&mut [pollfd]) -> c_int) -> c_int {
    if let [entry] = list
        && let Some(socket) = get(entry.fd)
    {
        return one(socket, entry, limit, others);
    }
    if crate::is_child() || !crate::is_active() {
        return others(list);
    }
    list.iter().for_each(|entry| sets::leave(entry.fd));
    let is_concerned = |entry: &pollfd| get(entry.fd).is_some() || is_shadowed(entry.fd);
    if !list.iter().any(is_concerned) {
        return others(list);
    }
    several(list, others)
}

/// Connections of stacks may wait there for accept.
pub fn is_shadowed(fd: c_int) -> bool {
    shadow::get(fd).is_some() && !crate::is_child()
}

fn one(
    socket: &'static Socket,
    entry: &mut pollfd,
    limit: Limit,
    others: impl FnOnce(&mut [pollfd]) -> c_int,
) -> c_int {
    let result = match limit.signals {
        Signals::Unchanged => Some(calls::poll(socket, entry.events, limit.longest)),
        // With a signal mask, which only the kernel can set for the duration of a wait.
        Signals::Masked(mask) => calls::poll_with_mask(socket, entry.events, limit.longest, mask),
        Signals::ForKernel => None,
    };
    let Some(result) = result else { return several(std::slice::from_mut(entry), others) };
    match result {
        Ok(found) => {
            entry.revents = found;
            c_int::from(found != 0)
        }
        Err(error) => {
            next::set_errno(error);
            -1
        }
    }
}

/// Current events of a connection of a stack.
fn events(entry: &pollfd) -> Option<c_short> {
    get(entry.fd).map(|socket| socket::events(socket.ready(), entry.events))
}

/// The kernel's poll list: the entries, with placeholders for connections of stacks, and the bells of the shadows.
fn question(list: &[pollfd]) -> (Vec<pollfd>, Vec<(usize, usize)>) {
    let mut asked: Vec<pollfd> = Vec::with_capacity(list.len() + 2);
    for entry in list {
        let events = match get(entry.fd) {
            Some(socket) => {
                socket.stack.with(|inner, now| inner.arm(socket.slot, now));
                libc::POLLIN
            }
            None => entry.events,
        };
        asked.push(pollfd { fd: entry.fd, events, revents: 0 });
    }
    let mut bells = Vec::new();
    for (at, entry) in list.iter().enumerate().filter(|(_, entry)| entry.events & libc::POLLIN != 0) {
        if let Some(shadow) = shadow::get(entry.fd) {
            bells.push((at, asked.len()));
            asked.push(pollfd { fd: shadow.bell(), events: libc::POLLIN, revents: 0 });
        }
    }
    (asked, bells)
}

fn several(list: &mut [pollfd], others: impl FnOnce(&mut [pollfd]) -> c_int) -> c_int {
    let (mut asked, bells) = question(list);
    let is_ready = list.iter().any(|entry| events(entry).is_some_and(|events| events != 0));
    let for_room: Vec<_> = list
        .iter()
        .filter(|entry| entry.events & (libc::POLLOUT | libc::POLLWRNORM) != 0)
        .filter_map(|entry| get(entry.fd))
        .collect();
    let tell = |begins| {
        for socket in &for_room {
            socket.stack.with(|inner, _| inner.wait_for_room(socket.slot, begins));
        }
    };
    tell(true);
    let result = if is_ready { look(&mut asked, 0) } else { others(&mut asked) };
    tell(false);
    if result < 0 {
        return result;
    }
    for (entry, answer) in list.iter_mut().zip(&asked) {
        entry.revents = events(entry).unwrap_or(answer.revents);
    }
    for (at, bell) in bells {
        let is_rung = asked.get(bell).is_some_and(|answer| answer.revents != 0);
        if let Some(entry) = list.get_mut(at).filter(|_| is_rung) {
            entry.revents |= libc::POLLIN;
        }
    }
    list.iter().filter(|entry| entry.revents != 0).count() as c_int
}

fn look(asked: &mut [pollfd], timeout_ms: c_int) -> c_int {
    // SAFETY: the list's address and length.
    unsafe { next::poll(asked.as_mut_ptr(), asked.len() as nfds_t, timeout_ms) }
}

/// A blocking accept also waits for connections of the stacks.
pub fn before_accept(fd: c_int) {
    // SAFETY: no pointers.
    let flags = unsafe { next::fcntl(fd, libc::F_GETFL, 0) };
    if flags < 0 || flags & libc::O_NONBLOCK != 0 {
        return;
    }
    if let Some(shadow) = shadow::get(fd) {
        let entry = |fd| pollfd { fd, events: libc::POLLIN, revents: 0 };
        look(&mut [entry(fd), entry(shadow.bell())], -1);
    }
}

/// Adds, changes or removes a descriptor of an epoll set, unless it concerns the kernel alone. A listener that is added
/// to a set is left to the kernel.
///
/// # Safety
/// As epoll_ctl.
pub unsafe fn control_set(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> Option<c_int> {
    if !crate::is_active() || crate::is_child() {
        return None;
    }
    if operation != libc::EPOLL_CTL_DEL {
        if is_shadowed(fd) {
            crate::report("a listener is in an epoll set and stays with the kernel");
            withdraw(fd);
        }
        sets::leave(fd);
    }
    let socket = get(fd)?;
    // SAFETY: the caller's arguments.
    Some(unsafe { sets::control(set, operation, socket, fd, event) })
}
