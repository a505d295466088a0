//! Errors in bytes from the other side.

use redoubt_negotiation::Disagreement;

/// An invalid frame. Each of these errors is fatal for the connection, never for the volume: the sender keeps
/// unacknowledged frames and sends them again on a new connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The first bytes of a connection are not those of Redoubt.
    #[error(
        "the peer does not speak the Redoubt protocol (first bytes {found:02x?}); check that the address is a storage node's"
    )]
    BadMagic {
        /// The bytes found.
        found: [u8; 4],
    },
    /// The two sides have no version in common, or one lacks a feature that the other requires.
    #[error("{0}; install the same version on both, the node's first")]
    Disagreement(#[from] Disagreement),
    /// Checksum mismatch: damaged, replayed or reordered bytes.
    #[error(
        "frame of kind {kind} and {len_bytes} bytes at position {position}: checksum {found:08x}, expected {expected:08x}; bytes were damaged, repeated or left out on the way"
    )]
    Checksum {
        /// Frame kind.
        kind: u8,
        /// Payload length.
        len_bytes: u32,
        /// Expected position of the frame.
        position: u64,
        /// Transmitted checksum.
        found: u32,
        /// Computed checksum.
        expected: u32,
    },
    /// A kind that is not valid here.
    #[error(
        "frame kind {kind} is unknown on a {role} connection: it comes from a newer Redoubt, or is damaged; \
         use the version of Redoubt that wrote it, or a later one"
    )]
    UnknownKind {
        /// Frame kind.
        kind: u8,
        /// Role of the connection.
        role: &'static str,
    },
    /// A value that exceeds its limit.
    #[error("{what} has {len_bytes} bytes, the limit is {limit_bytes}")]
    TooLong {
        /// Name of the value.
        what: &'static str,
        /// Its length.
        len_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The payload ends inside a field.
    #[error("{what} ends after {len_bytes} bytes, inside field {field}")]
    Truncated {
        /// Name of the payload.
        what: &'static str,
        /// Its length.
        len_bytes: usize,
        /// The truncated field.
        field: &'static str,
    },
    /// A field with an invalid value.
    #[error("{what}: field {field} is invalid: {why}")]
    Invalid {
        /// Name of the payload.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// The reason.
        why: String,
    },
}
