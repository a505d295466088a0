//! A thread that checks, while there is a limit, ten times a second for events without another observer: clients that
//! have left a transaction idle for too long, and a changed or removed limit. It also publishes the waiters.
//!
//! It takes the gate's lock briefly, and no other.

use super::{CLOCK, GATE, limit_count};
use crate::bypass::{self, End};
use crate::{control, next, table};
use redoubt_shm_control::net::{Counter, Limit, WAITERS, Waiter};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Interval between two checks.
pub const TICK: Duration = Duration::from_millis(100);
/// Interval while there is no limit.
const IDLE_TICK: Duration = Duration::from_secs(1);

static LONGEST_WAIT_MS: AtomicU64 = AtomicU64::new(0);

/// Records the duration of a finished wait.
pub fn note_wait(took: Duration) {
    LONGEST_WAIT_MS.fetch_max(u64::try_from(took.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Starts the thread, once. If it cannot be started, leases do not end.
pub fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        // SAFETY: signal sets that live long enough. The server's signals are for threads of its own.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            let builder = std::thread::Builder::new().name("redoubt-net".to_owned());
            if builder.spawn(run).is_ok() {
                CLOCK.start();
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        }
    });
}

fn run() {
    let mut waiters_written = 0;
    let mut looked = Instant::now();
    loop {
        CLOCK.advance(looked.elapsed());
        looked = Instant::now();
        let limit = control::limit();
        if limit.count().is_none() {
            GATE.call_off_all();
        } else {
            GATE.admit(limit_count(limit));
        }
        sweep(limit);
        waiters_written = publish(waiters_written);
        std::thread::sleep(if limit.count().is_some() { TICK } else { IDLE_TICK });
    }
}

/// Takes off the places of idle or outdated connections.
fn sweep(limit: Limit) {
    if GATE.inside() == 0 {
        return;
    }
    let (now_ms, lease_ms) = (CLOCK.now_ms(), control::lease_ms());
    for fd in table::in_range(0..=usize::MAX) {
        let Some(seat) = table::get(fd).and_then(|connection| connection.seat_if_any()) else { continue };
        if !seat.place.is_inside() {
            continue;
        }
        let was_turned_off =
            limit.count().is_none() || seat.turned_on.load(Ordering::Acquire) != limit.turned_on();
        let idle_since_ms = seat.place.idle_since_ms();
        let is_left = idle_since_ms != 0 && now_ms.saturating_sub(idle_since_ms) >= lease_ms;
        // While no connection waits, an idle one may keep its place.
        if was_turned_off {
            GATE.leave(&seat.place, limit_count(limit));
        } else if is_left && GATE.waiting() > 0 && GATE.leave(&seat.place, limit_count(limit)) {
            control::count(0, Counter::LeasesEnded, 1);
        }
    }
}

/// Publishes the statistics and returns the number of waiters written.
fn publish(written_before: usize) -> usize {
    let now_ms = CLOCK.now_ms();
    let waiters: Vec<Waiter> = GATE
        .waiters(WAITERS)
        .into_iter()
        .map(|waiter| {
            let descriptor = waiter.label as u32;
            let (address, port) = peer(descriptor as libc::c_int).unwrap_or_default();
            let waited_ms = now_ms.saturating_sub(waiter.since_ms);
            Waiter { thread_id: (waiter.label >> 32) as u32, descriptor, waited_ms, address, port }
        })
        .collect();
    control::publish_admission(
        GATE.inside(),
        GATE.waiting(),
        LONGEST_WAIT_MS.load(Ordering::Relaxed),
        &waiters,
        written_before,
    );
    waiters.len()
}

/// Address and port of an IPv4 client, also if it is mapped to IPv6.
fn peer(fd: libc::c_int) -> Option<([u8; 4], u16)> {
    // SAFETY: all zero bytes are a valid address.
    let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    let pointer = (&raw mut address).cast();
    // SAFETY: an address and its length.
    let result = unsafe {
        bypass::name_of(fd, End::Peer, pointer, &raw mut len)
            .unwrap_or_else(|| next::getpeername(fd, pointer, &raw mut len))
    };
    if result != 0 {
        return None;
    }
    match libc::c_int::from(address.sin6_family) {
        libc::AF_INET => {
            // SAFETY: the kernel returned an address of this family, which is the smaller type.
            let address = unsafe { &*(&raw const address).cast::<libc::sockaddr_in>() };
            Some((address.sin_addr.s_addr.to_ne_bytes(), u16::from_be(address.sin_port)))
        }
        libc::AF_INET6 => {
            let [.., a, b, c, d] = address.sin6_addr.s6_addr;
            let is_mapped =
                address.sin6_addr.s6_addr.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
            is_mapped.then_some(([a, b, c, d], u16::from_be(address.sin6_port)))
        }
        _ => None,
    }
}
