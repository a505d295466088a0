//! Admission: a limit on the number of connections inside a transaction. The others wait with a command of their client
//! pending, where the server waits for the next command anyway, so that none of them holds a lock.
//!
//! * [`protocol`], with [`packets`] and [`text`]: the parser of the protocol. They depend on nothing else.
//! * [`stream`], with [`compression`]: the same for a compressed protocol.
//! * [`gate`]: the connections inside, the waiters and their order. [`clock`]: the duration of waits.
//! * [`keeper`]: a thread for events without another observer: expired leases, a changed limit, published statistics.
//! * This module: a connection's seat, which has both, and the rules for reads, writes and waits.
//!
//! A server that asks for a command's header gets EAGAIN once, and then waits with poll. That wait returns with bytes
//! only when the connection is inside or need not be. So a wait here lasts no longer than the server's own would. For a
//! connection that is inside, only the end of each answer is examined.
//!
//! * [`tls`]: connections whose plaintext is read inside TLS.
//!
//! It fails open: a connection whose protocol cannot be followed (pool-of-threads), or that two threads use at the same
//! time, never waits.
//!
//! Lock order: a seat's state, which is only ever locked by `try_lock`, then the gate's. No thread waits at the gate
//! with a seat's state locked.
//!
//! While the limit is off nothing here is called: [`is_on`] is a load.

pub mod clock;
pub mod compression;
pub mod gate;
mod keeper;
pub mod packets;
pub mod protocol;
pub mod stream;
pub mod text;
pub mod tls;

use crate::connection::Connection;
use crate::tls::Ssl;
use crate::{control, next, process};
use clock::{Clock, Patience};
use gate::{Gate, Outcome, Place};
use libc::c_int;
use protocol::Boundary;
use redoubt_locks::IgnorePoisonIfFree;
use redoubt_shm_control::net::{Counter, Limit};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use stream::{LOOK_LEN_BYTES, Stream};
use tls::Look;

static GATE: Gate = Gate::new();
static CLOCK: Clock = Clock::new();
static ADMINISTRATORS: OnceLock<Vec<String>> = OnceLock::new();

/// Protocol state of a connection, under the seat's lock.
struct State {
    stream: Stream,
    /// The next command may be read.
    permitted: bool,
    /// The server got EAGAIN instead of a command, and has not waited since.
    told_empty: bool,
    counted_lost: bool,
    counted_holder: bool,
    counted_administrator: bool,
}

impl State {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            permitted: false,
            told_empty: false,
            counted_lost: false,
            counted_holder: false,
            counted_administrator: false,
        }
    }
}

/// A connection's admission state.
pub struct Seat {
    state: Mutex<State>,
    place: Place,
    /// [`Limit::turned_on`] at the time when the state was reset.
    turned_on: AtomicU32,
    /// Two threads used the connection at the same time: some bytes were missed.
    missed: AtomicBool,
    /// The socket's bytes are encrypted.
    has_tls: AtomicBool,
    /// The next read of the socket returns EAGAIN.
    told_once: AtomicBool,
    /// The OpenSSL connection whose last read would have blocked. Only the server's thread takes it out.
    waits_with: AtomicPtr<Ssl>,
}

impl Default for Seat {
    fn default() -> Self {
        keeper::start();
        Self {
            state: Mutex::new(State::new(Stream::joining())),
            place: Place::default(),
            turned_on: AtomicU32::new(0),
            missed: AtomicBool::new(false),
            has_tls: AtomicBool::new(false),
            told_once: AtomicBool::new(false),
            waits_with: AtomicPtr::new(std::ptr::null_mut()),
        }
    }
}

/// Sets the names of users that never wait. Called once, before the first connection.
pub fn set_administrators(names: Vec<String>) {
    ADMINISTRATORS.get_or_init(|| names);
}

/// There is a limit.
#[inline]
pub fn is_on() -> bool {
    control::limit().count().is_some()
}

fn limit_count(limit: Limit) -> usize {
    limit.count().map_or(usize::MAX, |count| count as usize)
}

/// A connection's seat and its state. `None`: admission is off, or another thread has it.
fn seat(connection: &'static Connection) -> Option<(&'static Seat, MutexGuard<'static, State>, Limit)> {
    let limit = control::limit();
    if limit.count().is_none() || process::is_child() {
        return None;
    }
    let seat = connection.seat();
    let Some(mut state) = seat.state.try_lock().ignore_poison_if_free() else {
        seat.missed.store(true, Ordering::Release);
        return None;
    };
    if seat.turned_on.load(Ordering::Acquire) != limit.turned_on() {
        // Bytes have passed that were not seen.
        begin(seat, &mut state, Stream::joining(), limit);
    }
    if seat.missed.swap(false, Ordering::AcqRel) {
        state.stream.lose();
    }
    Some((seat, state, limit))
}

fn begin(seat: &Seat, state: &mut State, stream: Stream, limit: Limit) {
    *state = State::new(stream);
    GATE.leave(&seat.place, limit_count(limit));
    seat.turned_on.store(limit.turned_on(), Ordering::Release);
}

/// A connection was accepted.
pub fn opened(connection: &'static Connection) {
    if is_on()
        && let Some((seat, mut state, limit)) = seat(connection)
    {
        seat.missed.store(false, Ordering::Release);
        begin(seat, &mut state, Stream::accepted(), limit);
    }
}

/// A connection is about to be closed.
pub fn closed(connection: &'static Connection) {
    if let Some(seat) = connection.seat_if_any() {
        GATE.end(&seat.place);
        GATE.leave(&seat.place, limit_count(control::limit()));
        GATE.renew(&seat.place);
        seat.has_tls.store(false, Ordering::Release);
        seat.told_once.store(false, Ordering::Release);
        seat.waits_with.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// Another thread ends the connection: its wait for admission is called off.
pub fn shut_down(connection: &'static Connection) {
    if let Some(seat) = connection.seat_if_any() {
        GATE.end(&seat.place);
    }
}

/// Counts the first occurrence of each condition, and releases the place of a connection that cannot be followed.
fn note(connection: &Connection, seat: &Seat, state: &mut State, limit: Limit) {
    if state.stream.tracker().lost() && !std::mem::replace(&mut state.counted_lost, true) {
        control::count(connection.shard(), Counter::NotUnderstood, 1);
        GATE.leave(&seat.place, limit_count(limit));
    }
    if state.stream.tracker().holds() != 0 && !std::mem::replace(&mut state.counted_holder, true) {
        control::count(connection.shard(), Counter::Holders, 1);
    }
}

/// The server has sent this through its socket.
pub fn sent(connection: &'static Connection, bytes: &[u8]) {
    if tls::seat_of(connection).is_none() {
        follow_sent(connection, bytes);
    }
}

fn follow_sent(connection: &'static Connection, bytes: &[u8]) {
    let Some((seat, mut state, limit)) = seat(connection) else { return };
    state.stream.sent(bytes);
    note(connection, seat, &mut state, limit);
}

/// The server has read this from its socket.
pub fn received(connection: &'static Connection, bytes: &[u8]) {
    if tls::seat_of(connection).is_none() {
        follow_received(connection, bytes);
    }
}

fn follow_received(connection: &'static Connection, bytes: &[u8]) {
    let Some((seat, mut state, limit)) = seat(connection) else { return };
    state.stream.received(bytes);
    (state.permitted, state.told_empty) = (false, false);
    if seat.place.idle_since_ms() != 0 {
        seat.place.set_idle_since(0);
    }
    note(connection, seat, &mut state, limit);
}

/// The server has sent or read in a way that the tracker does not follow.
pub fn lose(connection: &'static Connection) {
    if is_on()
        && let Some((seat, mut state, limit)) = seat(connection)
    {
        state.stream.lose();
        note(connection, seat, &mut state, limit);
    }
}

/// Releases the place of a finished transaction where the server waits for a command. `true`: the next command has to
/// enter.
fn has_to_enter(
    connection: &Connection,
    seat: &Seat,
    state: &mut State,
    boundary: Boundary,
    limit: Limit,
) -> bool {
    note(connection, seat, state, limit);
    let Boundary::Command { may_wait, keeps } = boundary else { return false };
    if state.permitted {
        return false;
    }
    if seat.place.is_inside() {
        if keeps {
            if seat.place.idle_since_ms() == 0 {
                seat.place.set_idle_since(CLOCK.now_ms());
            }
            return false;
        }
        GATE.leave(&seat.place, limit_count(limit));
    }
    if !may_wait {
        return false;
    }
    let user = state.stream.tracker().user();
    let is_administrator =
        ADMINISTRATORS.get().is_some_and(|names| names.iter().any(|name| name.as_bytes() == user));
    if is_administrator && !std::mem::replace(&mut state.counted_administrator, true) {
        control::count(connection.shard(), Counter::Administrators, 1);
    }
    !is_administrator
}

/// The server begins to wait for a client in the middle of a command or of a result: the client leaves its place idle
/// from now on, as between the commands of a transaction. `false`: it has no place, or is already marked as idle.
pub fn client_is_waited_for(connection: &Connection) -> bool {
    let Some(seat) = connection.seat_if_any() else { return false };
    let begins = seat.place.is_inside() && seat.place.idle_since_ms() == 0;
    if begins {
        seat.place.set_idle_since(CLOCK.now_ms());
    }
    begins
}

/// The wait for the client is over.
pub fn client_has_come(connection: &Connection) {
    if let Some(seat) = connection.seat_if_any() {
        seat.place.set_idle_since(0);
    }
}

/// The server asks its socket for bytes, without waiting. `false`: the read returns EAGAIN.
pub fn may_read_socket(connection: &'static Connection, len_bytes: usize) -> bool {
    match tls::seat_of(connection) {
        Some(seat) => !seat.told_once.swap(false, Ordering::AcqRel),
        None => may_read(connection, len_bytes),
    }
}

fn may_read(connection: &'static Connection, len_bytes: usize) -> bool {
    let Some((seat, mut state, limit)) = seat(connection) else { return true };
    let boundary = state.stream.asks(len_bytes);
    if !has_to_enter(connection, seat, &mut state, boundary, limit) {
        return true;
    }
    // A server that asks again instead of waiting gets the available bytes.
    std::mem::replace(&mut state.told_empty, true)
}

/// Waits, after the server's wait for a connection has ended with bytes, until it is inside if it has to be.
/// `false`: the server's wait is over before that.
pub fn hold(connection: &'static Connection, fd: c_int, rest: Option<Duration>) -> bool {
    let Some((seat, mut state, limit)) = seat(connection) else { return true };
    let boundary = state.stream.boundary();
    if !has_to_enter(connection, seat, &mut state, boundary, limit) {
        return true;
    }
    let count = limit_count(limit);
    state.told_empty = false;
    let mut space;
    let inside_tls = if seat.has_tls.load(Ordering::Acquire) {
        space = [0u8; LOOK_LEN_BYTES];
        match tls::look(seat, &mut space) {
            Some(Look::Bytes(len)) => space.get(..len),
            // The received bytes hold nothing that the server can process.
            Some(Look::Nothing) | None => return true,
        }
    } else {
        None
    };
    state.permitted = true;
    if GATE.enter(&seat.place, count) {
        control::count(connection.shard(), Counter::Entered, 1);
        return true;
    }
    let is_free = match inside_tls {
        Some(bytes) => bytes.is_empty() || state.stream.is_free(bytes),
        None => is_free(connection, fd, &state.stream),
    };
    if is_free {
        return true;
    }
    state.permitted = false;
    drop(state);
    wait(connection, seat, fd, rest, limit)
}

fn wait(
    connection: &'static Connection,
    seat: &'static Seat,
    fd: c_int,
    rest: Option<Duration>,
    limit: Limit,
) -> bool {
    let patience = Patience::new(&CLOCK, rest, Duration::from_millis(control::longest_wait_ms()));
    // SAFETY: no arguments.
    let thread_id = unsafe { libc::syscall(libc::SYS_gettid) } as u64;
    seat.place.set_label(thread_id << 32 | u64::from(fd.unsigned_abs()));
    control::count(connection.shard(), Counter::Waited, 1);
    let outcome = GATE.wait(&seat.place, limit_count(limit), patience.since_ms(), || patience.left());
    keeper::note_wait(patience.elapsed());
    match outcome {
        Outcome::Entered => {}
        Outcome::TimedOut if !patience.is_exhausted() => {
            control::count(connection.shard(), Counter::WaitsEnded, 1);
            return false;
        }
        Outcome::TimedOut => {
            GATE.force(&seat.place);
            control::count(connection.shard(), Counter::LetInLate, 1);
        }
        Outcome::CalledOff => control::count(connection.shard(), Counter::WaitsEnded, 1),
    }
    if let Ok(mut state) = seat.state.try_lock() {
        state.permitted = true;
    }
    true
}

/// The client's pending bytes begin with a command that need not wait.
fn is_free(connection: &'static Connection, fd: c_int, stream: &Stream) -> bool {
    if let Some(mut locked) = connection.lock(fd) {
        let unread = locked.reader().unread();
        if !unread.is_empty() {
            return stream.is_free(unread);
        }
    }
    let mut bytes = [0u8; LOOK_LEN_BYTES];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: a buffer of this length.
    let result = unsafe { next::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), flags) };
    match usize::try_from(result) {
        // The end of the connection, or an error, is nothing to wait with.
        Ok(0) | Err(_) => true,
        Ok(len) => bytes.get(..len).is_some_and(|bytes| stream.is_free(bytes)),
    }
}
