//! Blocking connections with concurrent directions: one thread reads while others write.
//!
//! The crate separates the wire protocol from the transport of its bytes. [`socket::SocketConnection`] is plain TCP or
//! the local socket of a node on the same host ([`local`]). [`tls::TlsConnection`] is TLS 1.3 with certificates on
//! both sides. A test may implement [`Connection`] in any other way. The crate also decides whether messages should be
//! packed ([`packing`]), because that depends on the connection. It does not handle frames, volumes or requests.
//!
//! Invariants:
//! * Bytes arrive in the order in which [`Connection::write_all`] calls accepted them; the bytes of two calls never
//!   mix.
//! * Reads and writes do not wait for each other.
//! * After [`Connection::shutdown`] every call in progress, and every later one, ends soon.

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
