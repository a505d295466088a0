//! Memory of connections' data: chunks of one size, taken from a pool when bytes come and given back when they are gone.
//! A connection on which nothing waits has none.
//!
//! Invariants: no more than the pool's bound is ever in use by all connections together; what is free is kept for the
//! next up to another bound, so that a connection which is used steadily allocates nothing.

mod receive;
mod send;
#[cfg(test)]
mod tests;

pub(crate) use receive::ReceiveBuffer;
pub(crate) use send::SendBuffer;

/// Bytes of a chunk.
pub(crate) const CHUNK_LEN_BYTES: usize = 4096;
/// What a queue of chunks keeps for when it is used again.
const KEPT_PLACES: usize = 4;

pub(crate) type Chunk = Box<[u8; CHUNK_LEN_BYTES]>;

/// Chunks of one buffer that are few: what a statement or an answer takes that is not large.
const FEW_CHUNKS: usize = 8;

/// What a chunk is for. Nobody gets all: if what was received took everything, a caller that has to send before it reads
/// on would wait for ever, and so would a gap whose missing bytes have no place because of what lies behind gaps. Those
/// whose buffers have many chunks already, since nobody reads from them, leave room for what others say and are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Three quarters at most; by those who have [`FEW_CHUNKS`] or more, five eighths.
    Send,
    /// As much, with what is early.
    InOrder,
    /// Half at most, with what is in order.
    Early,
}

/// See the module.
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

    /// How many more there are for that.
    fn left(&self, purpose: Use, has_few: bool) -> usize {
        let most = if has_few { self.max - self.max / 4 } else { self.max / 8 * 5 };
        let (used, most) = match purpose {
            Use::Send => (self.sending, most),
            Use::InOrder => (self.receiving, most),
            Use::Early => (self.receiving, self.max / 2),
        };
        most.saturating_sub(used).min(self.max.saturating_sub(self.sending + self.receiving))
    }

    /// One more for a buffer in whose queue there are so many chunks.
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

    /// Bytes that may still be put into a buffer for sending which has so many chunks.
    pub(crate) fn sendable_len_bytes(&self, chunks: usize) -> usize {
        let few = FEW_CHUNKS.saturating_sub(chunks).min(self.left(Use::Send, true));
        few.max(self.left(Use::Send, false)) * CHUNK_LEN_BYTES
    }

    /// Bytes in use by connections.
    pub(crate) fn used_len_bytes(&self) -> usize {
        (self.sending + self.receiving) * CHUNK_LEN_BYTES
    }
}
