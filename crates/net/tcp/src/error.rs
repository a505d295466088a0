//! Errors of calls.

/// How a connection ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// The peer reset it.
    #[error("the peer has reset the connection")]
    Reset,
    /// The peer does not answer.
    #[error("the peer does not answer")]
    TimedOut,
}

/// A call on a connection that cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// There is no such connection any more: it was closed. Another one may have its place.
    #[error("the connection was closed")]
    Stale,
    /// Nothing to read, or no place to write; [`crate::Engine::changed`] says when to ask again.
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
    /// Of several hosts, or port 0.
    #[error("not the address and port of one host")]
    Address,
    /// There are too many listeners.
    #[error("too many listeners")]
    TooMany,
}
