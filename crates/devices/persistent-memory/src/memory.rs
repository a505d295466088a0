//! The copy routine that makes bytes durable, over a memory of primitive steps.
//!
//! Decides how bytes are stored. Whole cache lines go by non-temporal stores, which leave nothing in the cache. The
//! rest, at most one line at each end, goes by ordinary stores and a flush of that line. [`Memory`] is implemented by
//! mapped memory and by the store-order model, and the routine is the same code on both.

/// The length of a cache line in bytes.
pub const LINE_LEN_BYTES: usize = 64;

/// The primitive steps towards durable bytes. Offsets are from a line-aligned base.
pub trait Memory {
    /// Stores whole lines past the cache. `offset_bytes` and the length are multiples of [`LINE_LEN_BYTES`].
    /// Durable after the next fence.
    fn store_nt(&self, offset_bytes: usize, lines: &[u8]);
    /// Stores bytes into the cache. Durable after a flush of their lines and the fence after it.
    fn store_cached(&self, offset_bytes: usize, bytes: &[u8]);
    /// Begins to write back the line that starts at `line_offset_bytes`, a multiple of [`LINE_LEN_BYTES`].
    fn flush_line(&self, line_offset_bytes: usize);
    /// Waits for the non-temporal stores and the flushes before it.
    fn fence(&self);
}

/// Stores `bytes` so that they are durable after the next [`Memory::fence`].
#[inline]
pub fn store_durably(memory: &impl Memory, offset_bytes: usize, bytes: &[u8]) {
    let to_line = offset_bytes.wrapping_neg() % LINE_LEN_BYTES;
    let (head, rest) = bytes.split_at(to_line.min(bytes.len()));
    let (lines, tail) = rest.split_at(rest.len() - rest.len() % LINE_LEN_BYTES);
    if !head.is_empty() {
        memory.store_cached(offset_bytes, head);
        flush(memory, offset_bytes, head.len());
    }
    let at = offset_bytes + head.len();
    if !lines.is_empty() {
        memory.store_nt(at, lines);
    }
    let at = at + lines.len();
    if !tail.is_empty() {
        memory.store_cached(at, tail);
        flush(memory, at, tail.len());
    }
}

/// Flushes every line that holds a byte of the range.
#[inline]
pub fn flush(memory: &impl Memory, offset_bytes: usize, len: usize) {
    let mut line = offset_bytes & !(LINE_LEN_BYTES - 1);
    while line < offset_bytes + len {
        memory.flush_line(line);
        line += LINE_LEN_BYTES;
    }
}
