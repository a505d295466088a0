//! The server's log buffers, seen from its log writes: detection of the new redo in a write.
//!
//! The server has two buffers. It fills one, and writes it from its start. While less than a block is filled it keeps
//! filling the same buffer, also *during* the write: other threads append after the redo that the write is about,
//! over the zero that marks its end. The bytes after that are from an earlier use of the buffer: whole
//! mini-transactions with right checksums, but old ones. Such a *live* block must not be believed beyond its new
//! redo. Once more than a block is filled, the server swaps the buffers and writes the full one. No thread touches
//! that one until the next swap, which is made by the thread that writes.
//!
//! So after each write of more than a block, its buffer's first block is filled with a byte that no redo record
//! can start with (`FILL`). The next use of the buffer then has no old redo in its first block. The server
//! never reads these bytes: what lies after its redo in a block is garbage by its own design.
//!
//! A write of exactly one full block may be either kind. The next write decides: it comes from the other buffer if
//! this one was swapped. If the other buffer is in use by then, the block is not filled, but its old content is known
//! exactly. A mini-transaction equal to the old content is not believed, and nothing is called durable until a later
//! write has shown what it is ([`LogMemory::is_doubtful`]).
//!
//! A resize of the log has two buffers of its own. When it is done the server frees the old ones, so every address is
//! forgotten then ([`LogMemory::exchanged`]): the memory may be in use for other data.
//!
//! Invariants: bytes handed out once are never different in a later write, which is checked; memory that is no longer
//! a buffer of the log is never written.

use std::borrow::Cow;

use redoubt_redo::mariadb::{LogGeometry, MtrStep, next_mtr};

/// Size of the server's log blocks: `redoubt run` sets innodb_log_write_ahead_size to it.
pub const BLOCK_BYTES: usize = 4096;
/// A record of the reserved type: parsing stops at it with an error, at once.
const FILL: u8 = 0x6f;

type Block = Box<[u8]>;

/// A buffer, by its address.
struct Buffer {
    address: usize,
    /// Old content of its first block; `None`: filled, or zero since it was allocated.
    old: Option<Block>,
}

/// The server's log buffers, seen from its log writes: which bytes of a write are its own redo.
#[derive(Default)]
pub struct LogMemory {
    buffers: Vec<Buffer>,
    /// Buffers of the log that a resize prepares.
    prepared: Vec<Buffer>,
    /// Last write, if it was one full block: its buffer may have been swapped.
    full_block: Option<(usize, Block)>,
    /// Start and end address of the last write.
    last: (usize, usize),
    /// Final bytes of the last block written, from its start, and where it is in the file.
    sent: Vec<u8>,
    sent_offset: u64,
    doubtful: bool,
}

/// A write that can be observed.
pub struct Write<'b> {
    /// The bytes: a copy for live blocks, cut where they are not believed.
    pub bytes: Cow<'b, [u8]>,
    address: usize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One block of a buffer that may still be filled.
    Live,
    /// Several blocks of a buffer at rest.
    AtRest,
    /// The rest of a write that crosses the end of the file.
    Continued,
}

impl LogMemory {
    /// A write of records is about to be observed; `known_bytes` of it were handed out before.
    ///
    /// # Errors
    /// A description of the inconsistency, for messages.
    pub fn begin<'b>(
        &mut self,
        bytes: &'b [u8],
        offset_bytes: u64,
        known_bytes: usize,
    ) -> Result<Write<'b>, String> {
        let address = bytes.as_ptr() as usize;
        if !bytes.len().is_multiple_of(BLOCK_BYTES) || bytes.is_empty() {
            return Err(format!(
                "a write of {} bytes is not whole blocks of {BLOCK_BYTES}; set innodb_log_write_ahead_size={BLOCK_BYTES}",
                bytes.len()
            ));
        }
        if known_bytes > bytes.len() {
            return Err(format!("{known_bytes} bytes of a write of {} bytes are known already", bytes.len()));
        }
        let continued =
            LogGeometry::is_start(offset_bytes) && address == self.last.1 && address != self.last.0;
        let kind = match (continued, bytes.len()) {
            (true, _) => Kind::Continued,
            (false, BLOCK_BYTES) => Kind::Live,
            (false, _) => Kind::AtRest,
        };
        if kind == Kind::Continued {
            // Its first part came from a buffer that was swapped out, whatever it looked like.
            self.fill(self.last.0);
            self.full_block = None;
        }
        self.settle(address, kind);
        self.doubtful = false;
        let bytes = if kind == Kind::AtRest { Cow::Borrowed(bytes) } else { Cow::Owned(bytes.to_vec()) };
        let mut write = Write { bytes, address, kind };
        self.check_rewritten(&write.bytes, offset_bytes)?;
        if kind == Kind::Live
            && let Some(old) = self.buffers.iter().find(|buffer| buffer.address == address)
            && let Some(old) = &old.old
        {
            self.doubtful = cut_old(write.bytes.to_mut(), old, known_bytes);
        }
        Ok(write)
    }

    /// The last write was one full block. Now that the next one comes, it shows what became of that buffer.
    fn settle(&mut self, address: usize, kind: Kind) {
        let Some((full, content)) = self.full_block.take() else { return };
        match kind {
            // The same buffer again: it was not swapped.
            _ if full == address => {}
            // The other buffer is still being filled, so the full one is at rest.
            Kind::Live => self.fill(full),
            // Buffers were swapped again: the full one is in use, with this old content.
            Kind::AtRest => set_old(&mut self.buffers, full, Some(content)),
            Kind::Continued => {}
        }
    }

    /// Bytes handed out before must be the same in each later write of their block.
    fn check_rewritten(&self, bytes: &[u8], offset_bytes: u64) -> Result<(), String> {
        if self.sent_offset == offset_bytes && !self.sent.is_empty() && !bytes.starts_with(&self.sent) {
            return Err(format!("redo at byte {offset_bytes} of the log file changed after it was written"));
        }
        Ok(())
    }

    /// The write was observed; its first `final_bytes` are final.
    ///
    /// # Errors
    /// A description of the inconsistency, for messages.
    pub fn end(&mut self, write: &Write<'_>, offset_bytes: u64, final_bytes: usize) -> Result<(), String> {
        let len = write.bytes.len();
        let last_block = final_bytes / BLOCK_BYTES * BLOCK_BYTES;
        let Some(sent) = write.bytes.get(last_block..final_bytes) else {
            return Err(format!("{final_bytes} bytes of a write of {len} bytes are final"));
        };
        self.sent = sent.to_vec();
        self.sent_offset = offset_bytes + last_block as u64;
        self.last = (write.address, write.address + len);
        match write.kind {
            Kind::Live if final_bytes == len => {
                self.full_block = Some((write.address, Box::from(&*write.bytes)))
            }
            Kind::AtRest => self.fill(write.address),
            Kind::Live | Kind::Continued => {}
        }
        Ok(())
    }

    /// A write to the log file that a resize prepares. It comes from buffers of its own, which become the log
    /// buffers when the resize is done; their content is not followed, only remembered.
    pub fn note_prepared(&mut self, bytes: &[u8]) {
        let address = bytes.as_ptr() as usize;
        let old = if bytes.len() > BLOCK_BYTES {
            // SAFETY: the first block of a buffer at rest, as in `fill`: this write is still under way.
            unsafe { fill_block(address) };
            None
        } else {
            Some(Box::from(bytes))
        };
        set_old(&mut self.prepared, address, old);
    }

    /// A log is prepared, or its preparation was cancelled: it has no buffers yet, or no longer.
    pub fn forget_prepared(&mut self) {
        self.prepared.clear();
    }

    /// The prepared log became the log: the server frees the old buffers, and continues with those of the prepared
    /// log.
    pub fn exchanged(&mut self) {
        self.buffers = std::mem::take(&mut self.prepared);
        self.full_block = None;
        self.last = (0, 0);
    }

    /// Something in the last write was not believed, and may yet be the server's redo.
    pub fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    fn fill(&mut self, address: usize) {
        // SAFETY: `address` is the start of a buffer of the server, from which a log write of at least one block
        // came. It is the server's own heap memory, writable, and at rest as the module explains: the only thread
        // that can swap makes the write that just ended (or the one now under way from the other buffer). The server
        // frees a buffer only when it exchanges the log, and no address outlives that (`exchanged`).
        unsafe { fill_block(address) };
        set_old(&mut self.buffers, address, None);
    }
}

fn set_old(buffers: &mut Vec<Buffer>, address: usize, old: Option<Block>) {
    match buffers.iter_mut().find(|buffer| buffer.address == address) {
        Some(buffer) => buffer.old = old,
        None => buffers.push(Buffer { address, old }),
    }
}

/// # Safety
/// `address` must be the start of at least [`BLOCK_BYTES`] writable bytes without concurrent access.
unsafe fn fill_block(address: usize) {
    let block = std::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: the caller's promise.
    unsafe { std::ptr::write_bytes(block, FILL, BLOCK_BYTES) };
}

/// Cuts `bytes` at the first mini-transaction after `known_bytes` that equals the old content at its place.
/// True: cut.
fn cut_old(bytes: &mut [u8], old: &[u8], known_bytes: usize) -> bool {
    let mut at = known_bytes;
    while let Some(rest) = bytes.get(at..)
        && let Ok(MtrStep::Mtr { total_len_bytes, .. }) = next_mtr(rest)
    {
        if bytes.get(at..at + total_len_bytes) == old.get(at..at + total_len_bytes) {
            if let Some(tail) = bytes.get_mut(at..) {
                tail.fill(0);
            }
            return true;
        }
        at += total_len_bytes;
    }
    false
}

#[cfg(test)]
mod tests;
