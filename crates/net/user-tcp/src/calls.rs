//! The server's calls on a connection of a stack, with the kernel's results.

use crate::ahead::Ahead;
use crate::shadow;
use crate::socket::{self, Socket};
use libc::{c_int, c_short, sigset_t};
use redoubt_tcp::CallError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A call's result, or its error number.
pub type Outcome<Done = usize> = Result<Done, c_int>;

/// Reading and writing, as an index.
const READ: usize = 0;
const WRITE: usize = 1;

fn waits(socket: &Socket, flags: c_int, direction: usize) -> Option<Option<Instant>> {
    if socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0 {
        return None;
    }
    let timeout = socket.timeouts_ms.get(direction).map_or(0, |timeout| timeout.load(Ordering::Relaxed));
    let timeout = u64::try_from(timeout).ok().filter(|timeout| *timeout > 0);
    Some(timeout.and_then(|timeout| Instant::now().checked_add(Duration::from_millis(timeout))))
}

/// recv.
///
/// # Errors
/// Those of recv.
pub fn receive(socket: &'static Socket, target: &mut [u8], flags: c_int) -> Outcome {
    if flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
        return Err(libc::EINVAL);
    }
    let generation = socket.generation();
    let waits = waits(socket, flags, READ);
    let mut done = 0;
    if flags & (libc::MSG_PEEK | libc::MSG_WAITALL) == 0
        && socket.reads_ahead()
        && let Some(len) = socket.take_ahead(target)
    {
        return Ok(len);
    }
    loop {
        // Without the lock, if there is nothing: a server reads before it waits.
        let is_ready = socket.ready() & (socket::READABLE | socket::CLOSED) != 0 || socket.has_frames();
        let result = if is_ready { read(socket, generation, target, done, flags) } else { Err(libc::EAGAIN) };
        match result {
            Ok(0) => return Ok(done),
            Ok(len) => {
                done += len;
                let is_enough = flags & libc::MSG_WAITALL == 0 || flags & libc::MSG_PEEK != 0;
                if is_enough || done >= target.len() {
                    return Ok(done);
                }
            }
            Err(libc::EAGAIN) => {}
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
        let Some(until) = waits else { return if done > 0 { Ok(done) } else { Err(libc::EAGAIN) } };
        match socket.wait(socket::READABLE, until) {
            Ok(ready) if ready & (socket::READABLE | socket::CLOSED) != 0 => {}
            Ok(_) => return if done > 0 { Ok(done) } else { Err(libc::EAGAIN) },
            Err(error) => return if done > 0 { Ok(done) } else { Err(error) },
        }
    }
}

/// Reads the available bytes. The end is `Ok(0)`.
fn read(socket: &'static Socket, generation: u32, target: &mut [u8], done: usize, flags: c_int) -> Outcome {
    socket.stack.with(|inner, now| {
        inner.take_from(socket, now);
        let (id, slot) = inner.slot(socket, generation).ok_or(libc::EBADF)?;
        let target = target.get_mut(done..).unwrap_or_default();
        let is_shut = slot.is_shut.first() == Some(&true);
        let mut ahead = socket.ahead();
        let len = if flags & libc::MSG_PEEK != 0 {
            let more = target.len().saturating_sub(ahead.rest().len());
            ahead.fill(more, |space| inner.engine.read(now, id, space).unwrap_or(0));
            ahead.look(target)
        } else if ahead.is_empty() {
            inner.engine.read(now, id, target).unwrap_or(0)
        } else {
            ahead.take(target)
        };
        drop(ahead);
        let state = inner.engine.state(id);
        let ends = state.is_ok_and(|state| state.peer_closed || state.error.is_some());
        inner.refresh(socket.slot);
        let (_, slot) = inner.slot(socket, generation).ok_or(libc::EBADF)?;
        match len {
            0 if target.is_empty() => Ok(0),
            0 if slot.error != 0 => {
                let error = std::mem::take(&mut slot.error);
                slot.is_told = true;
                inner.refresh(socket.slot);
                // A failed connection returns its error once, and then its end.
                Err(error)
            }
            0 if is_shut || ends => Ok(0),
            0 => Err(libc::EAGAIN),
            len => Ok(len),
        }
    })
}

/// send.
///
/// # Errors
/// Those of send.
pub fn send(socket: &'static Socket, bytes: &[u8], flags: c_int) -> Outcome {
    if flags & libc::MSG_OOB != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let generation = socket.generation();
    let waits = waits(socket, flags, WRITE);
    let mut done = 0;
    loop {
        let rest = bytes.get(done..).unwrap_or_default();
        match write(socket, generation, rest) {
            Ok(len) => done += len,
            Err(_) if done > 0 => return Ok(done),
            Err(libc::EPIPE) => {
                if flags & libc::MSG_NOSIGNAL == 0 {
                    // SAFETY: no pointers.
                    unsafe { libc::raise(libc::SIGPIPE) };
                }
                return Err(libc::EPIPE);
            }
            Err(error) => return Err(error),
        }
        if done >= bytes.len() {
            return Ok(done);
        }
        let result = match waits {
            None => Err(libc::EAGAIN),
            Some(until) => match socket.wait(socket::WRITABLE, until) {
                Ok(ready) if ready & (socket::WRITABLE | socket::CLOSED) != 0 => Ok(()),
                Ok(_) => Err(libc::EAGAIN),
                Err(error) => Err(error),
            },
        };
        if let Err(error) = result {
            return if done > 0 { Ok(done) } else { Err(error) };
        }
    }
}

fn write(socket: &'static Socket, generation: u32, bytes: &[u8]) -> Outcome {
    socket.stack.with(|inner, now| {
        inner.take_from(socket, now);
        let (id, slot) = inner.slot(socket, generation).ok_or(libc::EBADF)?;
        if slot.error != 0 {
            slot.is_told = true;
            let error = std::mem::take(&mut slot.error);
            inner.refresh(socket.slot);
            return Err(error);
        }
        if slot.is_shut.get(WRITE) == Some(&true) {
            return Err(libc::EPIPE);
        }
        let len = match inner.engine.send(now, id, bytes) {
            Err(CallError::WouldBlock) => 0,
            result => result.map_err(|_| libc::EPIPE)?,
        };
        inner.refresh(socket.slot);
        Ok(len)
    })
}

/// shutdown.
///
/// # Errors
/// Those of shutdown.
pub fn shutdown(socket: &'static Socket, how: c_int) -> Outcome<()> {
    let [read, write] = match how {
        libc::SHUT_RD => [true, false],
        libc::SHUT_WR => [false, true],
        libc::SHUT_RDWR => [true, true],
        _ => return Err(libc::EINVAL),
    };
    let generation = socket.generation();
    socket.stack.with(|inner, now| {
        let (id, slot) = inner.slot(socket, generation).ok_or(libc::EBADF)?;
        slot.is_shut = [slot.is_shut[READ] || read, slot.is_shut[WRITE] || write];
        // Where the connection has failed there is nothing left to end.
        if read {
            *socket.ahead() = Ahead::default();
            let _ = inner.engine.shutdown_read(now, id);
        }
        if write {
            let _ = inner.engine.shutdown_write(now, id);
        }
        inner.refresh(socket.slot);
        Ok(())
    })
}

/// The server has closed the last descriptor.
pub fn close(socket: &'static Socket) {
    socket.stack.with(|inner, now| inner.remove(socket, now));
}

/// Number of readable bytes.
pub fn unread(socket: &'static Socket) -> usize {
    let generation = socket.generation();
    socket.stack.with(|inner, now| {
        inner.take_from(socket, now);
        let Some((id, _)) = inner.slot(socket, generation) else { return 0 };
        let ahead = socket.ahead().rest().len();
        ahead + inner.engine.state(id).map_or(0, |state| state.readable_bytes as usize)
    })
}

/// SO_ERROR: the pending error, which is cleared.
pub fn take_error(socket: &'static Socket) -> c_int {
    let generation = socket.generation();
    socket.stack.with(|inner, _| {
        let Some((_, slot)) = inner.slot(socket, generation) else { return 0 };
        slot.is_told |= slot.error != 0;
        let error = std::mem::take(&mut slot.error);
        inner.refresh(socket.slot);
        error
    })
}

/// Both ends, as IPv6 addresses if the listener is IPv6.
pub fn ends(socket: &'static Socket) -> Option<[std::net::SocketAddr; 2]> {
    let generation = socket.generation();
    socket.stack.with(|inner, _| {
        let (_, slot) = inner.slot(socket, generation)?;
        Some([slot.local, slot.peer].map(|address| if slot.is_ipv6 { mapped(address) } else { address }))
    })
}

/// The address as an IPv6 listener reports it.
pub fn mapped(address: std::net::SocketAddr) -> std::net::SocketAddr {
    match address.ip() {
        std::net::IpAddr::V4(ip) => (ip.to_ipv6_mapped(), address.port()).into(),
        std::net::IpAddr::V6(_) => address,
    }
}

/// Takes the first connection that waits at a listener.
pub fn accept(listener: &shadow::Shadow) -> Option<shadow::Accepted> {
    let accepted = listener.pop()?;
    // The queue has room for another connection.
    let stack = accepted.socket.stack;
    stack.with(|inner, _| inner.accept(stack));
    Some(accepted)
}

/// Waits for one connection. `longest` of `None`: no timeout.
pub fn poll(socket: &'static Socket, wanted: c_short, longest: Option<Duration>) -> Outcome<c_short> {
    let found = socket::events(socket.ready_now(), wanted);
    if found != 0 || longest.is_some_and(|longest| longest.is_zero()) {
        return Ok(found);
    }
    socket.wait(socket::wanted(wanted), end(longest)).map(|ready| socket::events(ready, wanted))
}

/// End of a wait, always finite: such a wait is always interrupted by signals, as poll is.
fn end(longest: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(longest.unwrap_or(Duration::from_secs(86_400 * 365)))
}

/// The same with a signal mask. `None`: the caller has to wait for the placeholder.
pub fn poll_with_mask(
    socket: &'static Socket,
    wanted: c_short,
    longest: Option<Duration>,
    mask: *const sigset_t,
) -> Option<Outcome<c_short>> {
    let found = socket::events(socket.ready_now(), wanted);
    if found != 0 {
        return Some(Ok(found));
    }
    let result = socket.wait_with_mask(socket::wanted(wanted), end(longest), mask)?;
    Some(result.map(|ready| socket::events(ready, wanted)))
}
