//! Options of connections of stacks.

use crate::calls::{self, Outcome};
use crate::socket::Socket;
use libc::{c_int, c_void, socklen_t};
use redoubt_tcp::{Keepalive, Micros};
use std::sync::atomic::Ordering;

/// Reads a number.
///
/// # Safety
/// The value is null or has this length.
unsafe fn number(value: *const c_void, len: socklen_t) -> Outcome<c_int> {
    if value.is_null() || (len as usize) < size_of::<c_int>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: by the caller's contract.
    Ok(unsafe { value.cast::<c_int>().read_unaligned() })
}

/// Reads a time in milliseconds, at least one if it is not zero.
///
/// # Safety
/// The value is null or has this length.
unsafe fn time_ms(value: *const c_void, len: socklen_t) -> Outcome<i64> {
    if value.is_null() || (len as usize) < size_of::<libc::timeval>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: by the caller's contract.
    let time = unsafe { value.cast::<libc::timeval>().read_unaligned() };
    let whole = time.tv_sec.saturating_mul(1000).saturating_add(time.tv_usec / 1000);
    Ok(if whole == 0 && time.tv_usec > 0 { 1 } else { whole.max(0) })
}

/// setsockopt.
///
/// # Safety
/// The value is null or has this length.
///
/// # Errors
/// Those of setsockopt.
pub unsafe fn set(
    socket: &'static Socket,
    (level, name): (c_int, c_int),
    value: *const c_void,
    len: socklen_t,
) -> Outcome<()> {
    let generation = socket.generation();
    // SAFETY: the caller's value.
    let number = unsafe { number(value, len) };
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => {
            let wanted = number? != 0;
            socket.stack.with(|inner, now| {
                let (id, slot) = inner.slot(socket, generation).ok_or(libc::EBADF)?;
                slot.is_nodelay = wanted;
                inner.engine.set_nodelay(now, id, wanted).map_err(|_| libc::EBADF)
            })
        }
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => {
            let wanted = number? != 0;
            keepalive(socket, |keepalive| keepalive.is_on = wanted)
        }
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
            let seconds = u64::try_from(number?).map_err(|_| libc::EINVAL)?;
            keepalive(socket, |keepalive| keepalive.idle_s = seconds)
        }
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => {
            let seconds = u64::try_from(number?).map_err(|_| libc::EINVAL)?;
            keepalive(socket, |keepalive| keepalive.interval_s = seconds)
        }
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => {
            let count = u8::try_from(number?).map_err(|_| libc::EINVAL)?;
            keepalive(socket, |keepalive| keepalive.probes = count)
        }
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) => {
            // SAFETY: the caller's value.
            let time_ms = unsafe { time_ms(value, len) }?;
            let [receive, send] = &socket.timeouts_ms;
            let place = if name == libc::SO_RCVTIMEO { receive } else { send };
            place.store(time_ms, Ordering::Relaxed);
            Ok(())
        }
        // The stack has nothing to change for these.
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => Ok(()),
        (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_RCVBUF | libc::SO_REUSEADDR | libc::SO_PRIORITY) => {
            Ok(())
        }
        (libc::SOL_SOCKET, libc::SO_LINGER) => Ok(()),
        _ => Err(libc::ENOPROTOOPT),
    }
}

/// Keepalive parameters of one connection.
#[derive(Clone, Copy)]
pub struct KeepaliveSetting {
    is_on: bool,
    idle_s: u64,
    interval_s: u64,
    probes: u8,
}

impl Default for KeepaliveSetting {
    fn default() -> Self {
        // The kernel's defaults.
        Self { is_on: false, idle_s: 7200, interval_s: 75, probes: 9 }
    }
}

fn keepalive(socket: &'static Socket, change: impl FnOnce(&mut KeepaliveSetting)) -> Outcome<()> {
    let generation = socket.generation();
    socket.stack.with(|inner, now| {
        let (id, slot) = inner.slot(socket, generation).ok_or(libc::EBADF)?;
        change(&mut slot.keepalive);
        let KeepaliveSetting { is_on, idle_s, interval_s, probes } = slot.keepalive;
        let keepalive =
            Keepalive { idle: Micros::from_secs(idle_s), interval: Micros::from_secs(interval_s), probes };
        inner.engine.set_keepalive(now, id, is_on.then_some(keepalive)).map_err(|_| libc::EBADF)
    })
}

/// getsockopt.
///
/// # Safety
/// The value is null or as long as `len`.
///
/// # Errors
/// Those of getsockopt.
pub unsafe fn get(
    socket: &'static Socket,
    (level, name): (c_int, c_int),
    value: *mut c_void,
    len: *mut socklen_t,
) -> Outcome<()> {
    let generation = socket.generation();
    let of_slot = |ask: fn(&crate::stack::Slot) -> c_int| {
        socket
            .stack
            .with(|inner, _| inner.slot(socket, generation).map(|(_, slot)| ask(slot)).ok_or(libc::EBADF))
    };
    let number = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => calls::take_error(socket),
        (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => {
            of_slot(|slot| if slot.is_ipv6 { libc::AF_INET6 } else { libc::AF_INET })?
        }
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => 0,
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => of_slot(|slot| c_int::from(slot.keepalive.is_on))?,
        (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_RCVBUF) => 1 << 20,
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => of_slot(|slot| c_int::from(slot.is_nodelay))?,
        _ => return Err(libc::ENOPROTOOPT),
    };
    // SAFETY: null, or the caller's.
    let len = unsafe { len.as_mut() }.filter(|_| !value.is_null()).ok_or(libc::EFAULT)?;
    let bytes = number.to_ne_bytes();
    let fits = bytes.len().min(*len as usize);
    // SAFETY: the caller guarantees room for so many bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), fits) };
    *len = fits as socklen_t;
    Ok(())
}
