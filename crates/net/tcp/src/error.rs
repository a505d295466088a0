//! Errors of calls.

/// Cause of a connection's premature end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// The peer reset it.
    #[error("the peer has reset the connection")]
    Reset,
    /// The peer does not answer.
    #[error("the peer does not answer")]
    TimedOut,
}

/// Failed call on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The connection no longer exists: it was closed. Another one may have its index.
    #[error("the connection was closed")]
    Stale,
    /// Nothing to read, or no room to write; [`crate::Engine::changed`] returns the connection when that changes.
    #[error("would block")]
    WouldBlock,
    /// This side has ended its sending.
    #[error("this side has closed its sending direction")]
    Ended,
    /// The connection has failed.
    #[error(transparent)]
    Failed(#[from] ConnectionError),
}

/// An address that cannot be listened on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// Another listener uses the address.
    #[error("address already in use")]
    InUse,
    /// An address of several hosts, or port 0.
    #[error("not the address and port of one host")]
    Address,
    /// There are too many listeners.
    #[error("too many listeners")]
    TooMany,
}
