//! Connections: blocking, in both directions at once, one thread reading while others write.
//!
//! Owns the seam between those who speak the wire protocol and what carries its bytes: [`tcp::TcpConnection`] is
//! plain TCP; a test may put anything else behind [`Connection`]. Knows nothing of frames, volumes or requests.
//!
//! Invariants:
//! * Bytes arrive in the order in which [`Connection::write_all`] calls took them; two calls never mix theirs.
//! * Reading and writing do not wait for each other.
//! * After [`Connection::shutdown`] every call that is under way, and every later one, ends soon.

pub mod connection;
pub mod identity;
pub mod tcp;

pub use connection::{Connection, Reader};
pub use identity::Identity;
pub use tcp::TcpConnection;
