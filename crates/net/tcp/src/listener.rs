//! Listeners, and their connections that were not accepted yet.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::time::Micros;

/// Limit of listeners.
pub(crate) const MAX_LISTENERS: u32 = 64;

/// A listener with its queue of connections.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    /// Limit of waiting connections.
    pub(crate) backlog: u32,
    /// Indices of open connections that were not accepted yet.
    pub(crate) waiting: VecDeque<u32>,
    /// When the last cookie was sent, if ever.
    pub(crate) cookie_at: Option<Micros>,
}

impl Listener {
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= self.backlog as usize
    }

    /// Whether a segment for this address is for it.
    pub(crate) fn is_for(&self, address: SocketAddr) -> bool {
        self.address.port() == address.port()
            && self.address.is_ipv4() == address.is_ipv4()
            && (self.address.ip() == address.ip() || self.address.ip().is_unspecified())
    }
}
