//! Bytes to be sent, from the first unacknowledged one on.

use std::collections::VecDeque;

use super::{CHUNK_LEN_BYTES, Chunk, KEPT_PLACES, Pool, Use};

/// Bytes to be sent, from the first unacknowledged one on.
#[derive(Default)]
pub(crate) struct SendBuffer {
    chunks: VecDeque<Chunk>,
    /// Offset of the first byte in the first chunk.
    head: u32,
    len: u32,
}

/// Debug output without the bytes.
impl std::fmt::Debug for SendBuffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes, {} chunks", self.len, self.chunks())
    }
}

impl SendBuffer {
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Appends bytes up to `max_len` and up to the pool's limit; returns how many.
    pub(crate) fn push(&mut self, pool: &mut Pool, mut data: &[u8], max_len: u32) -> usize {
        let before = self.len;
        while !data.is_empty() && self.len < max_len {
            let end = (self.head + self.len) as usize;
            let (chunk, at) = (end / CHUNK_LEN_BYTES, end % CHUNK_LEN_BYTES);
            if chunk == self.chunks.len() {
                let Some(new) = pool.take(Use::Send, chunk) else { break };
                self.chunks.push_back(new);
            }
            let Some(place) = self.chunks.get_mut(chunk).and_then(|chunk| chunk.get_mut(at..)) else { break };
            let count = place.len().min(data.len()).min((max_len - self.len) as usize);
            let (now, later) = data.split_at(count);
            place[..count].copy_from_slice(now);
            self.len += count as u32;
            data = later;
        }
        (self.len - before) as usize
    }

    /// Copies bytes from `offset` on. The buffer must have them all. If `out` is empty, `offset` is ignored: a segment
    /// may lie before the first byte, or after the last one.
    pub(crate) fn copy(&self, offset: u32, mut out: &mut [u8]) {
        if out.is_empty() {
            return;
        }
        let mut at = (self.head + offset) as usize;
        debug_assert!(offset as usize + out.len() <= self.len as usize);
        while !out.is_empty() {
            let Some(chunk) = self.chunks.get(at / CHUNK_LEN_BYTES) else { return };
            let part = &chunk[at % CHUNK_LEN_BYTES..];
            let count = part.len().min(out.len());
            let (place, rest) = out.split_at_mut(count);
            place.copy_from_slice(&part[..count]);
            out = rest;
            at += count;
        }
    }

    /// Removes acknowledged bytes.
    pub(crate) fn advance(&mut self, pool: &mut Pool, count: u32) {
        let count = count.min(self.len);
        self.head += count;
        self.len -= count;
        while self.head as usize >= CHUNK_LEN_BYTES || self.len == 0 {
            let Some(chunk) = self.chunks.pop_front() else {
                self.head = 0;
                break;
            };
            pool.give(Use::Send, chunk);
            self.head = self.head.saturating_sub(CHUNK_LEN_BYTES as u32);
        }
        if self.chunks.is_empty() && self.chunks.capacity() > KEPT_PLACES {
            self.chunks = VecDeque::new();
        }
    }

    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        self.advance(pool, self.len);
    }

    /// Chunks in use.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    pub(crate) fn memory_len_bytes(&self) -> usize {
        self.chunks.len() * CHUNK_LEN_BYTES + self.chunks.capacity() * size_of::<Chunk>()
    }
}
