//! Connections with TLS: what the server reads and writes is seen inside of it ([`crate::tls`]), and what goes through
//! the socket says nothing any more.
//!
//! Where a command would have to wait, OpenSSL is told once that its socket has nothing, which it takes for that; the
//! server then waits, as without TLS. What has come by the end of that wait is decrypted then, by a peek: it stays in
//! OpenSSL for the server's next read.

use super::{Seat, is_on, may_read, note, seat};
use crate::connection::Connection;
use crate::tls::{Ssl, peek};
use std::sync::atomic::Ordering;

/// What has come.
pub enum Look {
    /// Nothing that could be a command.
    Nothing,
    /// This many bytes; 0: the connection's end.
    Bytes(usize),
}

/// The seat of a connection that has TLS.
pub fn seat_of(connection: &Connection) -> Option<&Seat> {
    connection.seat_if_any().filter(|seat| seat.has_tls.load(Ordering::Acquire))
}

/// From now on, if not before, the connection has TLS.
pub fn begins(connection: &'static Connection) {
    if seat_of(connection).is_some() {
        return;
    }
    if let Some((seat, mut state, limit)) = seat(connection) {
        seat.has_tls.store(true, Ordering::Release);
        state.stream.encrypt();
        note(connection, seat, &mut state, limit);
    }
}

/// The server asks for bytes. `is_empty`: OpenSSL has none.
pub fn before_read(connection: &'static Connection, len_bytes: usize, is_empty: bool) {
    let Some(seat) = seat_of(connection) else { return };
    seat.waits_with.store(std::ptr::null_mut(), Ordering::Release);
    if is_on() && !may_read(connection, len_bytes) && is_empty {
        seat.told_once.store(true, Ordering::Release);
    }
}

/// It has got these, or none.
pub fn after_read(connection: &'static Connection, ssl: *mut Ssl, bytes: Option<&[u8]>) {
    let Some(seat) = seat_of(connection) else { return };
    seat.told_once.store(false, Ordering::Release);
    match bytes {
        Some(bytes) => super::follow_received(connection, bytes),
        None => seat.waits_with.store(ssl, Ordering::Release),
    }
}

/// The server has sent this.
pub fn sent(connection: &'static Connection, bytes: &[u8]) {
    super::follow_sent(connection, bytes);
}

/// Looks at what has come. `None`: the server has not read in vain.
pub fn look(seat: &Seat, space: &mut [u8]) -> Option<Look> {
    let ssl = seat.waits_with.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if ssl.is_null() {
        return None;
    }
    // SAFETY: the server has just read from it in vain, and now waits, in this thread, to read again.
    Some(match unsafe { peek(ssl, space) } {
        Some(len) => Look::Bytes(len),
        None => Look::Nothing,
    })
}
