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

/// What a chunk is for. Nobody gets all: if what was received took everything, a caller that has to send before it reads
/// on would wait for ever, and so would a gap whose missing bytes have no place because of what lies behind gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Three quarters at most.
    Send,
    /// Three quarters at most, with what is early.
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
    /// Somebody did not get one to send; said once.
    wanted: bool,
}

impl Pool {
    pub(crate) fn new(max_len_bytes: usize) -> Self {
        let max = max_len_bytes / CHUNK_LEN_BYTES;
        Self {
            free: Vec::new(),
            sending: 0,
            receiving: 0,
            max,
            max_free: (max / 8).clamp(16, 4096),
            wanted: false,
        }
    }

    /// How many more there are for that.
    fn left(&self, purpose: Use) -> usize {
        let most = self.max - self.max / 4;
        let (used, most) = match purpose {
            Use::Send => (self.sending, most),
            Use::InOrder => (self.receiving, most),
            Use::Early => (self.receiving, self.max / 2),
        };
        most.saturating_sub(used).min(self.max.saturating_sub(self.sending + self.receiving))
    }

    pub(crate) fn take(&mut self, purpose: Use) -> Option<Chunk> {
        if self.left(purpose) == 0 {
            self.wanted |= purpose == Use::Send;
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

    /// Bytes that may still be sent.
    pub(crate) fn free_len_bytes(&self) -> usize {
        self.left(Use::Send) * CHUNK_LEN_BYTES
    }

    /// Bytes in use by connections.
    pub(crate) fn used_len_bytes(&self) -> usize {
        (self.sending + self.receiving) * CHUNK_LEN_BYTES
    }

    /// Whether somebody could not send since the last question, and now there is something again.
    pub(crate) fn has_again(&mut self) -> bool {
        self.left(Use::Send) > 0 && std::mem::take(&mut self.wanted)
    }
}
