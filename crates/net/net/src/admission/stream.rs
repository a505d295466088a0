//! Protocol state of one connection, compressed or not.

use super::compression::{self, Compression};
use super::protocol::{Boundary, Tracker};

/// Examined length of a command that would have to wait, in bytes. The first query of Connector/J has a thousand.
pub const LOOK_LEN_BYTES: usize = 2048;

/// A [`Tracker`] behind the decompression, if any.
pub struct Stream {
    tracker: Tracker,
    compression: Option<Box<Compression>>,
}

impl Stream {
    /// The stream of a new connection.
    pub fn accepted() -> Self {
        Self { tracker: Tracker::accepted(), compression: None }
    }

    /// As [`Tracker::joining`].
    pub fn joining() -> Self {
        Self { tracker: Tracker::joining(), compression: None }
    }

    /// The protocol state.
    pub fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// Stops following the connection.
    pub fn lose(&mut self) {
        self.tracker.lose();
        self.compression = None;
    }

    /// The following bytes are plaintext inside TLS.
    pub fn encrypt(&mut self) {
        self.tracker.encrypt();
    }

    /// The server has sent this.
    pub fn sent(&mut self, bytes: &[u8]) {
        match &mut self.compression {
            Some(compression) => compression.sent(&mut self.tracker, bytes),
            None => self.tracker.sent(bytes),
        }
    }

    /// The server has read this.
    pub fn received(&mut self, bytes: &[u8]) {
        match &mut self.compression {
            Some(compression) => compression.received(&mut self.tracker, bytes),
            None => self.tracker.received(bytes),
        }
    }

    /// The server asks for bytes of this length, at most.
    pub fn asks(&mut self, len_bytes: usize) -> Boundary {
        let is_header = len_bytes == compression::HEADER_LEN_BYTES;
        if self.compression.is_none() && is_header && self.tracker.begins_compressed() {
            self.compression = Some(Box::default());
        }
        match &self.compression {
            None => self.tracker.asks(len_bytes),
            Some(compression) if !compression.is_at_start() => Boundary::None,
            Some(_) => {
                let boundary = self.tracker.boundary();
                if boundary != Boundary::None && !is_header {
                    self.lose();
                    return Boundary::None;
                }
                boundary
            }
        }
    }

    /// The input that a wait of the server at this point is for.
    pub fn boundary(&mut self) -> Boundary {
        if self.compression.as_ref().is_some_and(|compression| !compression.is_at_start()) {
            return Boundary::None;
        }
        self.tracker.boundary()
    }

    /// As [`Tracker::is_free`].
    pub fn is_free(&self, bytes: &[u8]) -> bool {
        if self.compression.is_none() {
            return self.tracker.is_free(bytes);
        }
        let mut space = [0u8; LOOK_LEN_BYTES];
        compression::look(bytes, &mut space).is_some_and(|bytes| self.tracker.is_free(bytes))
    }
}
