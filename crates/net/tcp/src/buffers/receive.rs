//! Received bytes: those in order, which can be read, and early ones behind a gap.
//!
//! Each byte is written at its final position, so early bytes are in order once the gap is filled. Ranges record which
//! early bytes exist. Their bounds are distances from the first byte that can be read.
//!
//! Invariants: ranges ascend, do not touch each other, and begin behind the readable bytes; there are at most
//! [`MAX_RANGES`].

use std::collections::VecDeque;

use super::{CHUNK_LEN_BYTES, Chunk, KEPT_PLACES, Pool, Use};

/// Limit of ranges behind gaps. It bounds the state that a sender can cause by leaving gaps.
pub(crate) const MAX_RANGES: usize = 64;

/// Range of bytes behind a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// Distance from the first byte that can be read.
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Order of changes: the range that changed last has the largest stamp.
    stamp: u32,
}

/// Received bytes: those in order, and early ones behind a gap.
#[derive(Default)]
pub(crate) struct ReceiveBuffer {
    chunks: VecDeque<Option<Chunk>>,
    /// Offset of the first byte in the first chunk.
    head: u32,
    /// Bytes that can be read.
    readable: u32,
    early: Vec<Range>,
    stamp: u32,
}

/// Debug output without the bytes.
impl std::fmt::Debug for ReceiveBuffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} readable, early {:?}, {} chunks", self.readable, self.early, self.chunks())
    }
}

impl ReceiveBuffer {
    pub(crate) fn readable(&self) -> u32 {
        self.readable
    }

    pub(crate) fn has_gap(&self) -> bool {
        !self.early.is_empty()
    }

    /// Ranges behind gaps: the one that changed last, then the others in order.
    pub(crate) fn early(&self) -> impl Iterator<Item = Range> + '_ {
        let last = self.early.iter().max_by_key(|range| range.stamp).copied();
        last.into_iter().chain(self.early.iter().copied().filter(move |range| Some(*range) != last))
    }

    /// Inserts bytes that begin `offset` behind the end of the readable ones. Returns how many more can be read now.
    /// `None`: there was no memory, and the bytes count as not received.
    pub(crate) fn insert(&mut self, pool: &mut Pool, offset: u32, data: &[u8]) -> Option<u32> {
        let start = self.readable + offset;
        let end = start + data.len() as u32;
        if data.is_empty() {
            return Some(0);
        }
        // Index at which the new range is inserted, and the end of the ranges that it touches.
        let first = self.early.partition_point(|range| range.end < start);
        let last = self.early.partition_point(|range| range.start <= end);
        if offset != 0 && first == last && self.early.len() >= MAX_RANGES {
            return None;
        }
        let purpose = if offset == 0 { Use::InOrder } else { Use::Early };
        if self.write(pool, purpose, start, data).is_none() {
            // Returns the new chunks to the pool, if the buffer has no other bytes.
            self.discard(pool, 0);
            return None;
        }
        if offset == 0 {
            let met = self.early.drain(first..last).map(|range| range.end).max();
            let before = self.readable;
            self.readable = end.max(met.unwrap_or(0));
            if self.early.is_empty() {
                self.early = Vec::new();
            }
            return Some(self.readable - before);
        }
        self.stamp = self.stamp.wrapping_add(1);
        let mut new = Range { start, end, stamp: self.stamp };
        for range in self.early.drain(first..last) {
            new.start = new.start.min(range.start);
            new.end = new.end.max(range.end);
        }
        self.early.insert(first, new);
        Some(0)
    }

    /// Whether all these bytes behind a gap were received before.
    pub(crate) fn has_early(&self, offset: u32, len: u32) -> bool {
        let start = self.readable + offset;
        self.early.iter().any(|range| range.start <= start && start + len <= range.end)
    }

    fn write(&mut self, pool: &mut Pool, purpose: Use, start: u32, mut data: &[u8]) -> Option<()> {
        let mut at = (self.head + start) as usize;
        while !data.is_empty() {
            let index = at / CHUNK_LEN_BYTES;
            if index >= self.chunks.len() {
                self.chunks.resize_with(index + 1, || None);
            }
            let slot = self.chunks.get_mut(index)?;
            let chunk = match slot {
                Some(chunk) => chunk,
                None => slot.insert(pool.take(purpose, index)?),
            };
            let place = &mut chunk[at % CHUNK_LEN_BYTES..];
            let count = place.len().min(data.len());
            let (now, later) = data.split_at(count);
            place[..count].copy_from_slice(now);
            data = later;
            at += count;
        }
        Some(())
    }

    /// Reads bytes into `out`.
    pub(crate) fn read(&mut self, pool: &mut Pool, out: &mut [u8]) -> usize {
        let total = out.len().min(self.readable as usize);
        let mut done = 0;
        while done < total {
            let at = self.head as usize + done;
            let Some(Some(chunk)) = self.chunks.get(at / CHUNK_LEN_BYTES) else { break };
            let part = &chunk[at % CHUNK_LEN_BYTES..];
            let count = part.len().min(total - done);
            out[done..done + count].copy_from_slice(&part[..count]);
            done += count;
        }
        self.discard(pool, done as u32);
        done
    }

    /// Removes bytes without delivering them.
    pub(crate) fn discard(&mut self, pool: &mut Pool, count: u32) {
        let count = count.min(self.readable);
        self.head += count;
        self.readable -= count;
        for range in &mut self.early {
            range.start -= count;
            range.end -= count;
        }
        let is_empty = self.readable == 0 && self.early.is_empty();
        while self.head as usize >= CHUNK_LEN_BYTES || is_empty {
            let Some(chunk) = self.chunks.pop_front() else { break };
            if let Some(chunk) = chunk {
                pool.give(Use::InOrder, chunk);
            }
            self.head = self.head.saturating_sub(CHUNK_LEN_BYTES as u32);
        }
        if is_empty {
            self.head = 0;
            if self.chunks.capacity() > KEPT_PLACES {
                self.chunks = VecDeque::new();
            }
        }
    }

    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        self.early = Vec::new();
        self.discard(pool, self.readable);
    }

    /// Chunks in use.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.iter().flatten().count()
    }

    pub(crate) fn memory_len_bytes(&self) -> usize {
        let chunks = self.chunks.iter().flatten().count() * CHUNK_LEN_BYTES;
        chunks
            + self.chunks.capacity() * size_of::<Option<Chunk>>()
            + self.early.capacity() * size_of::<Range>()
    }
}
