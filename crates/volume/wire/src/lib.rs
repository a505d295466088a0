//! Frames between the shim, the `redoubt` command and the storage node.
//!
//! Owns the bytes on the wire and nothing else: no sockets, no threads, no blocking. A connection starts
//! with a [`greeting`]; after that it has one of four roles:
//!
//! * **log**: one per server, ordered. Carries [`stream`] frames to the node, and nothing back. The logged
//!   frames, header included, are exactly the bytes the node's log device stores, so a
//!   [`redoubt_types::Seq`] is a position both sides agree on.
//! * **notices**: one per server. Carries [`notice`] frames from the node, and nothing to it.
//! * **page**: a pool per server. One [`page`] request, one reply, in turn.
//! * **control**: JSON requests and replies ([`control`]), plus raw data frames for file contents.
//!
//! A log connection may be compressed as a whole ([`compression`]) or in part ([`parts`]); then all of this is inside
//! of that.
//!
//! Every frame is [`frame`]: a kind, a length, a CRC-32C seeded with the frame's position, a payload.

pub mod compression;
pub mod control;
mod damage;
pub mod error;
pub mod figures;
pub mod frame;
pub mod greeting;
pub mod hello;
pub mod notice;
pub mod page;
pub mod parts;
mod reader;
pub mod server_version;
pub mod stream;
pub mod trace;
pub mod view;

pub use error::WireError;
pub use frame::{FrameHeader, HEADER_LEN_BYTES, MAX_PAYLOAD_LEN_BYTES};
pub use redoubt_negotiation as negotiation;
pub use redoubt_types::Seq;
pub use server_version::ServerVersion;

/// The newest version of everything in this crate.
pub const PROTOCOL_VERSION: u16 = 5;
/// The oldest one. Peers with a version between the two are served; see [`greeting`].
pub const OLDEST_PROTOCOL_VERSION: u16 = 5;
