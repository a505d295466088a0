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

/// See the module.
#[derive(Debug)]
pub(crate) struct Pool {
    free: Vec<Chunk>,
    used: usize,
    max: usize,
    max_free: usize,
    /// Somebody did not get one; said once.
    wanted: bool,
}

impl Pool {
    pub(crate) fn new(max_len_bytes: usize) -> Self {
        let max = max_len_bytes / CHUNK_LEN_BYTES;
        Self { free: Vec::new(), used: 0, max, max_free: (max / 8).clamp(16, 4096), wanted: false }
    }

    pub(crate) fn take(&mut self) -> Option<Chunk> {
        if self.used >= self.max {
            self.wanted = true;
            return None;
        }
        self.used += 1;
        Some(self.free.pop().unwrap_or_else(|| Box::new([0; CHUNK_LEN_BYTES])))
    }

    pub(crate) fn give(&mut self, chunk: Chunk) {
        self.used -= 1;
        if self.free.len() < self.max_free {
            self.free.push(chunk);
        }
    }

    /// Bytes that may still be taken.
    pub(crate) fn free_len_bytes(&self) -> usize {
        (self.max - self.used) * CHUNK_LEN_BYTES
    }

    /// Bytes in use by connections.
    pub(crate) fn used_len_bytes(&self) -> usize {
        self.used * CHUNK_LEN_BYTES
    }

    /// Whether somebody had to go without since the last question, and now some are free.
    pub(crate) fn has_again(&mut self) -> bool {
        self.used < self.max && std::mem::take(&mut self.wanted)
    }
}
