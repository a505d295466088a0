//! Who waits for connections, and those that nobody has taken yet.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::time::Micros;

/// Listeners at a time.
pub(crate) const MAX_LISTENERS: u32 = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    /// Connections that may wait.
    pub(crate) backlog: u32,
    /// Places of those that are open and were not accepted.
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
