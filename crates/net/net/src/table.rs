//! Which descriptors are connections of clients, and the connections themselves.
//!
//! Owns the table from a descriptor's number to its [`Connection`], and the pool of connections, which are never given
//! back: whoever holds one may look at it for ever, and finds out under its lock whether it still is that descriptor's
//! ([`Connection::lock`]). A number that is used again thereby never gets what its predecessor had.
//!
//! Invariants: an entry is put in after accept and before the server knows the number, and taken out before the number
//! is closed. A descriptor without an entry costs two loads.
//!
//! Lock order: the pool's lock is taken alone. It is taken by accept and by the last close only.

use crate::connection::Connection;
use crate::descriptors::Descriptors;
use libc::c_int;
use redoubt_locks::IgnorePoison;
use std::ops::RangeInclusive;
use std::sync::Mutex;

static TABLE: Descriptors<Connection> = Descriptors::new();
static POOL: Mutex<Vec<&'static Connection>> = Mutex::new(Vec::new());

/// The connection behind a descriptor.
#[inline]
pub fn get(fd: c_int) -> Option<&'static Connection> {
    TABLE.get(fd)
}

fn fresh() -> &'static Connection {
    let pooled = POOL.lock().ignore_poison().pop();
    pooled.unwrap_or_else(|| Box::leak(Box::default()))
}

/// Puts in a connection of its own for a descriptor that was just accepted. `None`: the number is too large.
pub fn insert(fd: c_int) -> Option<&'static Connection> {
    if !TABLE.make_room(fd) {
        return None;
    }
    let connection = fresh();
    connection.open();
    TABLE.put(fd, connection);
    Some(connection)
}

/// A second descriptor of a connection. `false`: the number is too large, or the connection is closed.
pub fn share(fd: c_int, connection: &'static Connection) -> bool {
    TABLE.make_room(fd) && connection.add_descriptor() && TABLE.put(fd, connection)
}

/// Takes a descriptor out. `true`: it was its connection's last.
pub fn remove(fd: c_int) -> bool {
    TABLE.take(fd).is_some_and(Connection::remove_descriptor)
}

/// Takes a descriptor out, in a process where nothing is used again.
pub fn forget(fd: c_int) {
    TABLE.take(fd);
}

/// A connection that nobody uses any more.
pub fn recycle(connection: &'static Connection) {
    POOL.lock().ignore_poison().push(connection);
}

/// The descriptors of a range that are connections.
pub fn in_range(range: RangeInclusive<usize>) -> impl Iterator<Item = c_int> {
    TABLE.in_range(range)
}

#[cfg(test)]
mod tests;
