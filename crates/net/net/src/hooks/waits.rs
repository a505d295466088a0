//! poll, select, epoll.

use crate::waiting::{self, Ask};
use crate::{next, sets, table};
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use redoubt_user_tcp as user_tcp;
use redoubt_user_tcp::sets::Timeout;
use redoubt_user_tcp::waits::{Limit, Signals};
use std::time::Duration;

struct Poll {
    timeout: c_int,
}

impl Ask for Poll {
    fn wait(&self, list: &mut [pollfd]) -> c_int {
        // SAFETY: the list's address and length.
        unsafe { next::poll(list.as_mut_ptr(), list.len() as nfds_t, self.timeout) }
    }

    fn longest(&self) -> Option<Duration> {
        u64::try_from(self.timeout).ok().map(Duration::from_millis)
    }
}

struct Ppoll {
    timeout: *const timespec,
    mask: *const sigset_t,
}

impl Ask for Ppoll {
    fn wait(&self, list: &mut [pollfd]) -> c_int {
        // SAFETY: the list's address and length, and pointers of the caller that is still waiting.
        unsafe { next::ppoll(list.as_mut_ptr(), list.len() as nfds_t, self.timeout, self.mask) }
    }

    fn longest(&self) -> Option<Duration> {
        // SAFETY: null, or the caller's.
        let timeout = unsafe { self.timeout.as_ref() }?;
        Some(Duration::new(u64::try_from(timeout.tv_sec).ok()?, u32::try_from(timeout.tv_nsec).ok()?))
    }

    fn mask(&self) -> Option<*const sigset_t> {
        // The kernel rejects an invalid timeout.
        let is_sound = self.timeout.is_null() || self.longest().is_some();
        is_sound.then_some(self.mask)
    }
}

/// A wait for connections of any kind. `timeout_ms` is `None` for forms that only the kernel supports.
fn poll_any(entries: &mut [pollfd], timeout_ms: Option<c_int>, kernel: &impl Ask) -> c_int {
    let signals = match timeout_ms {
        Some(_) => Signals::Unchanged,
        None => kernel.mask().map_or(Signals::ForKernel, Signals::Masked),
    };
    let limit = Limit { longest: kernel.longest(), signals };
    user_tcp::waits::poll(entries, limit, |entries| waiting::poll(entries, timeout_ms, kernel))
}

/// # Safety
/// The address is valid for this many entries, or null.
unsafe fn entries<'a>(list: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    // The kernel rejects a count beyond any process's descriptors.
    let count = usize::try_from(count).ok().filter(|count| *count <= 1 << 20)?;
    // SAFETY: not null and valid by the caller's contract.
    (!list.is_null()).then(|| unsafe { std::slice::from_raw_parts_mut(list, count) })
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's list.
    match unsafe { entries(list, count) } {
        Some(entries) => poll_any(entries, Some(timeout), &Poll { timeout }),
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { next::poll(list, count, timeout) },
    }
}

/// # Safety
/// As the C library's checked form of poll.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __poll_chk(
    list: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    list_len: size_t,
) -> c_int {
    if list_len / size_of::<pollfd>() < count as usize {
        // SAFETY: abort has no requirement.
        unsafe { libc::abort() }
    }
    // SAFETY: the caller's list.
    unsafe { poll(list, count, timeout) }
}

/// The time in milliseconds, if it is a whole number of them.
fn milliseconds(timeout: Option<&timespec>) -> Option<c_int> {
    let Some(timeout) = timeout else { return Some(-1) };
    if timeout.tv_nsec % 1_000_000 != 0 || timeout.tv_sec < 0 {
        return None;
    }
    let whole = timeout.tv_sec.checked_mul(1000)?.checked_add(timeout.tv_nsec / 1_000_000)?;
    c_int::try_from(whole).ok().filter(|whole| *whole >= 0)
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    list: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's list.
    let Some(entries) = (unsafe { entries(list, count) }) else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { next::ppoll(list, count, timeout, mask) };
    };
    // SAFETY: null, or the caller's.
    let known = milliseconds(unsafe { timeout.as_ref() }).filter(|_| mask.is_null());
    poll_any(entries, known, &Ppoll { timeout, mask })
}

/// # Safety
/// As the C library's checked form of ppoll.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __ppoll_chk(
    list: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    list_len: size_t,
) -> c_int {
    if list_len / size_of::<pollfd>() < count as usize {
        // SAFETY: abort has no requirement.
        unsafe { libc::abort() }
    }
    // SAFETY: the caller's arguments.
    unsafe { ppoll(list, count, timeout, mask) }
}

/// # Safety
/// A set of the caller with room for `count` descriptors, or null.
unsafe fn connections_in(set: *const fd_set, count: c_int) -> Vec<c_int> {
    let Some(last) = count.checked_sub(1).and_then(|last| usize::try_from(last).ok()) else {
        return Vec::new();
    };
    if set.is_null() {
        return Vec::new();
    }
    // SAFETY: within the set by the caller's contract.
    user_tcp::sets::in_range(0..=last)
        .filter(|fd| unsafe { libc::FD_ISSET(*fd, set) })
        .for_each(user_tcp::sets::leave);
    // SAFETY: within the set by the caller's contract.
    table::in_range(0..=last).filter(|fd| unsafe { libc::FD_ISSET(*fd, set) }).collect()
}

/// Runs the kernel's form of select; it gets `true` if it must not wait.
///
/// # Safety
/// The sets are the caller's, with room for `count` descriptors, or null.
unsafe fn select_with(count: c_int, read: *mut fd_set, kernel: impl Fn(bool) -> c_int) -> c_int {
    // SAFETY: the caller's set.
    let connections = unsafe { connections_in(read, count) };
    if connections.is_empty() || crate::process::is_child() {
        return kernel(false);
    }
    let all: Vec<_> = connections.iter().filter_map(|fd| table::get(*fd)).collect();
    all.iter().for_each(|connection| connection.wait_in_kernel(true));
    let pending: Vec<c_int> = connections
        .into_iter()
        .filter(|fd| table::get(*fd).is_some_and(|found| found.has_pending()))
        .collect();
    let mut ready = kernel(!pending.is_empty());
    all.iter().for_each(|connection| connection.wait_in_kernel(false));
    if ready >= 0 {
        for fd in pending {
            // SAFETY: within the set by the caller's contract.
            unsafe {
                ready += c_int::from(!libc::FD_ISSET(fd, read));
                libc::FD_SET(fd, read);
            }
        }
    }
    ready
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let kernel = |at_once: bool| {
        let mut zero = timeval { tv_sec: 0, tv_usec: 0 };
        let timeout = if at_once { &raw mut zero } else { timeout };
        // SAFETY: the caller's sets, and a timeout that lives long enough.
        unsafe { next::select(count, read, write, except, timeout) }
    };
    // SAFETY: the caller's set.
    unsafe { select_with(count, read, kernel) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let kernel = |at_once: bool| {
        let zero = timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = if at_once { &raw const zero } else { timeout };
        // SAFETY: the caller's sets, and a timeout that lives long enough.
        unsafe { next::pselect(count, read, write, except, timeout, mask) }
    };
    // SAFETY: the caller's set.
    unsafe { select_with(count, read, kernel) }
}

/// The kernel's sets do not include bytes read ahead: a connection in one is left to the kernel.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    crate::bypass::client::put_in_set(fd);
    // SAFETY: the caller's arguments.
    if let Some(result) = unsafe { user_tcp::waits::control_set(set, operation, fd, event) } {
        return result;
    }
    if let Some(connection) = table::get(fd)
        && operation != libc::EPOLL_CTL_DEL
        && !crate::process::is_child()
        // SAFETY: null, or the caller's event.
        && let Some(event) = unsafe { event.as_ref() }
    {
        connection.give_up(fd);
        crate::admission::lose(connection);
        return sets::put(set, fd, connection, *event, |mut event| {
            // SAFETY: an event that lives long enough.
            unsafe { next::epoll_ctl(set, operation, fd, &raw mut event) }
        });
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { next::epoll_ctl(set, operation, fd, event) }
}

/// Timeout for epoll_wait. `None`: the caller's.
fn milliseconds_of(limit: Timeout) -> Option<c_int> {
    match limit {
        Timeout::Whole => None,
        Timeout::Rest(rest) => Some(c_int::try_from(rest.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)),
    }
}

/// A wait for a set.
///
/// # Safety
/// There is room for `count` events, and `call` returns the number of events written.
unsafe fn wait_for_set(
    set: c_int,
    (events, count): (*mut epoll_event, c_int),
    longest: Option<Duration>,
    call: impl Fn(*mut epoll_event, c_int, Timeout) -> c_int,
) -> c_int {
    // SAFETY: by the caller's contract.
    let call = |events, count, limit| unsafe { sets::wait(set, events, || call(events, count, limit)) };
    // SAFETY: as above.
    unsafe { user_tcp::sets::wait(set, (events, count), longest, call) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    let longest = u64::try_from(timeout).ok().map(Duration::from_millis);
    // SAFETY: the caller's arguments, or a part of the caller's buffer.
    let call = |events, count, limit| unsafe {
        next::epoll_wait(set, events, count, milliseconds_of(limit).unwrap_or(timeout))
    };
    // SAFETY: as above; the kernel returns the number of events written.
    unsafe { wait_for_set(set, (events, count), longest, call) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    let longest = u64::try_from(timeout).ok().map(Duration::from_millis);
    // SAFETY: the caller's arguments, or a part of the caller's buffer.
    let call = |events, count, limit| unsafe {
        next::epoll_pwait(set, events, count, milliseconds_of(limit).unwrap_or(timeout), mask)
    };
    // SAFETY: as above; the kernel returns the number of events written.
    unsafe { wait_for_set(set, (events, count), longest, call) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let longest = Ppoll { timeout, mask }.longest();
    let call = |events, count, limit| {
        let rest = match limit {
            Timeout::Whole => None,
            Timeout::Rest(rest) => Some(user_tcp::socket::timespec(rest)),
        };
        let timeout = rest.as_ref().map_or(timeout, std::ptr::from_ref);
        // SAFETY: the caller's arguments, or a part of the caller's buffer, and a time that lives long enough.
        unsafe { next::epoll_pwait2(set, events, count, timeout, mask) }
    };
    // SAFETY: as above; the kernel returns the number of events written.
    unsafe { wait_for_set(set, (events, count), longest, call) }
}
