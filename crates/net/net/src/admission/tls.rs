//! Connections with TLS: the server's reads and writes are followed inside TLS ([`crate::tls`]); the socket's own bytes
//! are ignored.
//!
//! Where a command would have to wait, OpenSSL gets EAGAIN once from its socket; the server then waits, as without TLS.
//! Bytes received by the end of that wait are decrypted then, by a peek: they stay in OpenSSL for the server's next
//! read.

use super::{Seat, is_on, may_read, note, seat};
use crate::connection::Connection;
use crate::tls::{Ssl, peek};
use std::sync::atomic::Ordering;

/// The received bytes.
pub enum Look {
    /// Nothing that could be a command.
    Nothing,
    /// Number of decrypted bytes; 0: the connection's end.
    Bytes(usize),
}

/// The seat of a connection that has TLS.
pub fn seat_of(connection: &Connection) -> Option<&Seat> {
    connection.seat_if_any().filter(|seat| seat.has_tls.load(Ordering::Acquire))
}

/// The connection has TLS from now on, if not before.
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

/// The server asks for bytes. `is_empty`: OpenSSL has none buffered.
pub fn before_read(connection: &'static Connection, len_bytes: usize, is_empty: bool) {
    let Some(seat) = seat_of(connection) else { return };
    seat.waits_with.store(std::ptr::null_mut(), Ordering::Release);
    if is_on() && !may_read(connection, len_bytes) && is_empty {
        seat.told_once.store(true, Ordering::Release);
    }
}

/// The read returned these bytes, or none.
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

/// Decrypts the received bytes. `None`: the server's last read did not block.
pub fn look(seat: &Seat, space: &mut [u8]) -> Option<Look> {
    let ssl = seat.waits_with.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if ssl.is_null() {
        return None;
    }
    // SAFETY: the server's last read of it would have blocked, and now the server waits, in this thread, to read again.
    Some(match unsafe { peek(ssl, space) } {
        Some(len) => Look::Bytes(len),
        None => Look::Nothing,
    })
}
