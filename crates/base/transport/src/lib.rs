//! Connections: blocking, in both directions at once, one thread reading while others write.
//!
//! Owns the seam between those who speak the wire protocol and what carries its bytes: [`socket::SocketConnection`] is
//! plain TCP or the local socket of a node on the same host ([`local`]), [`tls::TlsConnection`] is TLS 1.3 with
//! certificates on both sides; a test may put anything else behind [`Connection`]. And what only those who know the
//! connection can tell: whether what is sent had better be packed ([`packing`]). Knows nothing of frames, volumes or
//! requests.
//!
//! Invariants:
//! * Bytes arrive in the order in which [`Connection::write_all`] calls took them; two calls never mix theirs.
//! * Reading and writing do not wait for each other.
//! * After [`Connection::shutdown`] every call that is under way, and every later one, ends soon.

pub mod certificate;
pub mod connect;
pub mod connection;
mod cores;
pub mod credentials;
pub mod error;
pub mod identity;
pub mod local;
pub mod packing;
pub mod socket;
pub mod tls;

pub use connect::Connector;
pub use connection::{Connection, Delay, Reader, Written};
pub use credentials::{CredentialFiles, Credentials};
pub use error::TransportError;
pub use identity::{Identity, check_name, check_volume_name};
pub use packing::Packing;
pub use socket::SocketConnection;
pub use tls::{ClientTls, MemberTls, ServerTls, TlsConnection};
