//! Memory for the data of connections: chunks of one size, taken from a pool when bytes arrive and returned when the
//! bytes are gone. A connection without waiting data holds no chunk.
//!
//! Invariants: all connections together never use more than the pool's limit. Free chunks are retained up to a second
//! limit, so that a connection in steady use allocates nothing.

mod receive;
mod send;
#[cfg(test)]
mod tests;

pub(crate) use receive::ReceiveBuffer;
pub(crate) use send::SendBuffer;

/// Bytes of a chunk.
pub(crate) const CHUNK_LEN_BYTES: usize = 4096;
/// Capacity that a chunk queue retains for its next use.
const KEPT_PLACES: usize = 4;

pub(crate) type Chunk = Box<[u8; CHUNK_LEN_BYTES]>;

/// Limit of chunks up to which a buffer counts as small: enough for a statement or an answer that is not large.
const FEW_CHUNKS: usize = 8;

/// Purpose of a chunk. No purpose gets the whole pool. If received data filled it, a caller that has to send before it
/// continues to read would block forever. A gap would never close either, because the data behind gaps would leave no
/// memory for the missing bytes. A buffer that already holds many chunks, because its data is not read, leaves room for
/// the other connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// At most three quarters of the pool; five eighths for a buffer with [`FEW_CHUNKS`] or more.
    Send,
    /// The same limits, including early data.
    InOrder,
    /// At most half of the pool, including data in order.
    Early,
}

/// Chunk pool with its limits and the chunks in use by direction.
#[derive(Debug)]
pub(crate) struct Pool {
    free: Vec<Chunk>,
    sending: usize,
    receiving: usize,
    max: usize,
    max_free: usize,
}

impl Pool {
    pub(crate) fn new(max_len_bytes: usize) -> Self {
        let max = max_len_bytes / CHUNK_LEN_BYTES;
        Self { free: Vec::new(), sending: 0, receiving: 0, max, max_free: (max / 8).clamp(16, 4096) }
    }

    /// Chunks that are still available for a purpose.
    fn left(&self, purpose: Use, has_few: bool) -> usize {
        let most = if has_few { self.max - self.max / 4 } else { self.max / 8 * 5 };
        let (used, most) = match purpose {
            Use::Send => (self.sending, most),
            Use::InOrder => (self.receiving, most),
            Use::Early => (self.receiving, self.max / 2),
        };
        most.saturating_sub(used).min(self.max.saturating_sub(self.sending + self.receiving))
    }

    /// Takes a chunk for a buffer that already has `chunks`.
    pub(crate) fn take(&mut self, purpose: Use, chunks: usize) -> Option<Chunk> {
        if self.left(purpose, chunks < FEW_CHUNKS) == 0 {
            return None;
        }
        *self.used(purpose) += 1;
        Some(self.free.pop().unwrap_or_else(|| Box::new([0; CHUNK_LEN_BYTES])))
    }

    pub(crate) fn give(&mut self, purpose: Use, chunk: Chunk) {
        *self.used(purpose) -= 1;
        if self.free.len() < self.max_free {
            self.free.push(chunk);
        }
    }

    fn used(&mut self, purpose: Use) -> &mut usize {
        if purpose == Use::Send { &mut self.sending } else { &mut self.receiving }
    }

    /// Bytes that may still be put into a send buffer with `chunks` chunks.
    pub(crate) fn sendable_len_bytes(&self, chunks: usize) -> usize {
        let few = FEW_CHUNKS.saturating_sub(chunks).min(self.left(Use::Send, true));
        few.max(self.left(Use::Send, false)) * CHUNK_LEN_BYTES
    }

    /// Bytes in use by connections.
    pub(crate) fn used_len_bytes(&self) -> usize {
        (self.sending + self.receiving) * CHUNK_LEN_BYTES
    }
}
