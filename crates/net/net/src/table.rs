//! The table of client connections by descriptor, and the connections themselves.
//!
//! Owns the table from a descriptor's number to its [`Connection`], and the pool of connections. These are never freed:
//! a reference is valid for ever, and the lock shows whether the connection still is that descriptor's
//! ([`Connection::lock`]). So a number that is used again never gets the bytes of its predecessor.
//!
//! Invariants: an entry is added after accept and before the server gets the number, and removed before the number is
//! closed. A descriptor without an entry costs two loads.
//!
//! Lock order: the pool's lock is taken alone. It is taken by accept and by the last close only.

use crate::connection::Connection;
use libc::c_int;
use redoubt_interpose::Descriptors;
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

/// Adds a new connection for a descriptor that was just accepted. `None`: the number is too large.
pub fn insert(fd: c_int) -> Option<&'static Connection> {
    if !TABLE.make_room(fd) {
        return None;
    }
    let connection = fresh();
    connection.open();
    TABLE.put(fd, connection);
    Some(connection)
}

/// Adds a second descriptor of a connection. `false`: the number is too large, or the connection is closed.
pub fn share(fd: c_int, connection: &'static Connection) -> bool {
    TABLE.make_room(fd) && connection.add_descriptor() && TABLE.put(fd, connection)
}

/// Removes a descriptor. `true`: it was its connection's last.
pub fn remove(fd: c_int) -> bool {
    TABLE.take(fd).is_some_and(Connection::remove_descriptor)
}

/// Removes a descriptor, in a process where connections are not reused.
pub fn forget(fd: c_int) {
    TABLE.take(fd);
}

/// Puts an unused connection into the pool.
pub fn recycle(connection: &'static Connection) {
    POOL.lock().ignore_poison().push(connection);
}

/// The descriptors of a range that are connections.
pub fn in_range(range: RangeInclusive<usize>) -> impl Iterator<Item = c_int> {
    TABLE.in_range(range)
}

#[cfg(test)]
mod tests;
