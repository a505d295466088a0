//! Waits for connections: `poll` and its relatives.
//!
//! Bytes read ahead make a connection readable, whatever the kernel reports. While a thread waits in the kernel for a
//! connection, nothing is read ahead on it: the wait has to end with those bytes.
//!
//! A wait for one connection by a server with the habit of [`crate::reading`] becomes a read. The kernel's descriptor
//! then blocks in `recv` although the server has set O_NONBLOCK, and all other calls on it are made non-blocking.
//!
//! The kernel ends reads after SO_RCVTIMEO, which for long times is up to an eighth later than poll would be. So the
//! option is set to seven eighths of the timeout, and poll waits for the rest. Poll also waits for the rest after a
//! signal has ended the read: the process may only have been stopped, or examined by a debugger, and only poll resumes
//! by itself after that.

use crate::connection::{Connection, Locked, NONBLOCK, Step, set_receive_timeout};
use crate::reading::{ENGAGE_CYCLES, can_wait_in_read, count_request, fill, mode};
use crate::{admission, control, next, process, table};
use libc::{c_int, c_short, nfds_t, pollfd, sigset_t};
use redoubt_shm_control::net::Mode;
use std::time::{Duration, Instant};

/// Events that are set while there are bytes to read.
const READABLE: c_short = libc::POLLIN | libc::POLLRDNORM;
/// Shortest wait that becomes a read, in milliseconds.
const SHORTEST_READ_MS: c_int = 1000;
/// SO_RCVTIMEO for a wait without end: a wait with an end is always interrupted by signals, as poll is.
const ENDLESS_MS: i64 = 1000 * 86_400 * 365;

/// The kernel's wait, with the caller's timeout.
pub trait Ask {
    /// Waits like poll.
    fn wait(&self, list: &mut [pollfd]) -> c_int;

    /// Timeout. `None`: no end.
    fn longest(&self) -> Option<Duration>;

    /// Signal mask for the time of the wait, or null. `None`: the kernel has to be asked in any case.
    fn mask(&self) -> Option<*const sigset_t> {
        Some(std::ptr::null())
    }
}

/// The kernel's answer without waiting.
fn look(list: &mut [pollfd]) -> c_int {
    // SAFETY: the list's address and length.
    unsafe { next::poll(list.as_mut_ptr(), list.len() as nfds_t, 0) }
}

/// `poll`. `timeout_ms` is `None` for forms that only the kernel supports.
pub fn poll(list: &mut [pollfd], timeout_ms: Option<c_int>, kernel: &impl Ask) -> c_int {
    if process::is_child() {
        return kernel.wait(list);
    }
    if let [entry] = list {
        return match table::get(entry.fd) {
            Some(connection) if admission::is_on() => admitted(connection, entry, timeout_ms, kernel),
            Some(connection) => one(connection, entry, timeout_ms, kernel),
            None => kernel.wait(list),
        };
    }
    several(list, timeout_ms, kernel)
}

/// A wait that ends with a command only when the command may be executed.
fn admitted(
    connection: &'static Connection,
    entry: &mut pollfd,
    timeout_ms: Option<c_int>,
    kernel: &impl Ask,
) -> c_int {
    let (start, longest) = (Instant::now(), kernel.longest());
    let is_look = longest.is_some_and(|longest| longest.is_zero());
    let is_clients_turn = !is_look && admission::client_is_waited_for(connection);
    let ready = one(connection, entry, timeout_ms, kernel);
    if is_clients_turn {
        admission::client_has_come(connection);
    }
    if ready != 1 || is_look || entry.revents & READABLE == 0 {
        return ready;
    }
    let rest = longest.map(|longest| longest.saturating_sub(start.elapsed()));
    if !admission::hold(connection, entry.fd, rest) {
        entry.revents = 0;
        return 0;
    }
    ready
}

/// Adds pending bytes and errors of the library to the kernel's answer.
fn add_pending(list: &mut [pollfd]) -> c_int {
    let mut ready = look(list);
    if ready < 0 {
        return ready;
    }
    for entry in list {
        let pending = pending_events(entry);
        if pending != 0 {
            ready += c_int::from(entry.revents == 0);
            entry.revents |= pending;
        }
    }
    ready
}

/// Events of pending bytes and errors.
fn pending_events(entry: &pollfd) -> c_short {
    let Some(connection) = table::get(entry.fd).filter(|connection| connection.has_pending()) else {
        return 0;
    };
    // An error is always reported.
    let error = if connection.has_pending_error() { libc::POLLERR } else { 0 };
    error | entry.events & READABLE
}

/// Maximum time of one wait in the kernel beside a reading thread, in milliseconds.
const SLICE_MS: c_int = 5;

/// Waits in the kernel for connections of which another thread reads one: the kernel does not report the bytes that
/// this thread takes. No known server does this.
fn beside_reader(list: &mut [pollfd], timeout_ms: c_int) -> c_int {
    let start = Instant::now();
    loop {
        let elapsed_ms = c_int::try_from(start.elapsed().as_millis()).unwrap_or(c_int::MAX);
        let rest_ms = if timeout_ms < 0 { c_int::MAX } else { (timeout_ms - elapsed_ms).max(0) };
        // SAFETY: the list's address and length.
        let ready = unsafe { next::poll(list.as_mut_ptr(), list.len() as nfds_t, rest_ms.min(SLICE_MS)) };
        if ready != 0 {
            return ready;
        }
        if rest_ms == 0 || list.iter().any(|entry| pending_events(entry) != 0) {
            return add_pending(list);
        }
    }
}

fn in_kernel(
    connections: &[&'static Connection],
    list: &mut [pollfd],
    timeout_ms: Option<c_int>,
    kernel: &impl Ask,
) -> c_int {
    for connection in connections {
        connection.wait_in_kernel(true);
    }
    // From here on no thread begins to read ahead, and the bytes read before are checked.
    let is_pending = list.iter().any(|entry| pending_events(entry) != 0);
    let result = match timeout_ms {
        _ if is_pending => add_pending(list),
        Some(timeout_ms) if connections.iter().any(|connection| connection.is_busy()) => {
            beside_reader(list, timeout_ms)
        }
        _ => kernel.wait(list),
    };
    for connection in connections {
        connection.wait_in_kernel(false);
    }
    result
}

fn several(list: &mut [pollfd], timeout_ms: Option<c_int>, kernel: &impl Ask) -> c_int {
    // Where servers listen the list is empty and allocates nothing.
    let connections: Vec<_> = list.iter().filter_map(|entry| table::get(entry.fd)).collect();
    if connections.is_empty() {
        return kernel.wait(list);
    }
    in_kernel(&connections, list, timeout_ms, kernel)
}

fn one(
    connection: &'static Connection,
    entry: &mut pollfd,
    timeout_ms: Option<c_int>,
    kernel: &impl Ask,
) -> c_int {
    let Some(mut locked) = connection.lock(entry.fd) else {
        return in_kernel(&[connection], std::slice::from_mut(entry), timeout_ms, kernel);
    };
    let reader = locked.reader();
    reader.calls += 1;
    let is_plain = entry.events & !(READABLE | libc::POLLPRI) == 0 && entry.events & libc::POLLIN != 0;
    if !reader.unread().is_empty() && is_plain {
        entry.revents = entry.events & READABLE;
        return 1;
    }
    reader.system_calls += 1;
    if connection.has_pending() {
        drop(locked);
        return add_pending(std::slice::from_mut(entry));
    }
    let step = std::mem::take(&mut reader.step);
    let is_wait = is_plain && timeout_ms != Some(0);
    let known_timeout = timeout_ms == Some(reader.last_timeout_ms);
    if is_wait && step != Step::Other {
        reader.cycles = reader.cycles.saturating_add(1);
        reader.last_timeout_ms = timeout_ms.unwrap_or(0);
        reader.waits_simply = timeout_ms.is_some();
        if reader.cycles >= ENGAGE_CYCLES && !std::mem::replace(&mut reader.habit_is_noted, true) {
            control::note_habit(can_wait_in_read(connection, reader));
        }
    }
    let may_read = is_wait
        && step != Step::Other
        && known_timeout
        && connection.has(NONBLOCK)
        && mode(connection, reader) == Mode::On;
    if let Some(timeout_ms) =
        timeout_ms.filter(|timeout| may_read && (*timeout < 0 || *timeout >= SHORTEST_READ_MS))
        && prepare(connection, &mut locked, entry.fd, timeout_ms)
    {
        return wait_in_read(connection, locked, entry, timeout_ms);
    }
    if is_wait {
        count_request(connection, &mut locked);
    }
    drop(locked);
    in_kernel(&[connection], std::slice::from_mut(entry), timeout_ms, kernel)
}

/// Makes the kernel's descriptor block for seven eighths of this time.
fn prepare(connection: &Connection, locked: &mut Locked, fd: c_int, timeout_ms: c_int) -> bool {
    let reader = locked.reader();
    if reader.kernel_timeout_ms != timeout_ms || !connection.has(crate::connection::BLOCKING) {
        let told = if timeout_ms < 0 { ENDLESS_MS } else { i64::from(timeout_ms) * 7 / 8 };
        reader.system_calls += 3;
        if !set_receive_timeout(fd, told) || !connection.make_blocking(fd) {
            connection.give_up(fd);
            return false;
        }
        reader.kernel_timeout_ms = timeout_ms;
    }
    true
}

fn wait_in_read(
    connection: &'static Connection,
    mut locked: Locked,
    entry: &mut pollfd,
    timeout_ms: c_int,
) -> c_int {
    let start = Instant::now();
    loop {
        match fill(&mut locked, entry.fd, 0) {
            Ok(0) => return look(std::slice::from_mut(entry)),
            Ok(_) => {
                count_request(connection, &mut locked);
                entry.revents = entry.events & READABLE;
                return 1;
            }
            Err(libc::EAGAIN) if timeout_ms < 0 => {}
            Err(libc::EAGAIN | libc::EINTR) => {
                return wait_for_rest(connection, locked, entry, timeout_ms, start);
            }
            Err(error) => {
                locked.keep_error(error);
                drop(locked);
                look(std::slice::from_mut(entry));
                entry.revents |= libc::POLLERR | entry.events & READABLE;
                return 1;
            }
        }
    }
}

fn wait_for_rest(
    connection: &Connection,
    mut locked: Locked,
    entry: &mut pollfd,
    timeout_ms: c_int,
    start: Instant,
) -> c_int {
    locked.reader().system_calls += 1;
    drop(locked);
    let rest_ms = u64::try_from(timeout_ms).map_or(-1, |whole_ms| {
        let rest = Duration::from_millis(whole_ms).saturating_sub(start.elapsed());
        c_int::try_from(rest.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
    });
    connection.wait_in_kernel(true);
    // SAFETY: one entry.
    let result = unsafe { next::poll(entry, 1, rest_ms) };
    connection.wait_in_kernel(false);
    result
}
