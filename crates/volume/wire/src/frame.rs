//! The frame: 8 bytes of header, then the payload.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind; bit 7 set: payload is compressed: raw length (3 bytes), algorithm (0 LZ4 block, 1 Zstandard frame), bytes |
//! | 1 | 3 | payload length, little-endian |
//! | 4 | 4 | CRC-32C, little-endian, of: position (u64 little-endian), bytes 0..4, payload |
//!
//! `position` is not transmitted. On a log connection it is the frame's [`crate::Seq`] for logged frames;
//! on all others, and for unlogged frames, it counts frames of that direction from 0. So a frame that is
//! replayed, left out or moved fails its checksum, at no cost in bytes.

use crate::error::WireError;
use std::cell::RefCell;
use zstd::bulk::{Compressor, Decompressor};

/// Bytes before the payload.
pub const HEADER_LEN_BYTES: usize = 8;
/// Longest payload.
pub const MAX_PAYLOAD_LEN_BYTES: usize = (1 << 24) - 1;
/// Bit of the kind for a compressed payload.
pub const COMPRESSED: u8 = 0x80;

/// A decoded header. No field is trusted before [`FrameHeader::check`] has checked the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Kind with the compression bit removed.
    pub kind: u8,
    /// The payload is compressed.
    pub compressed: bool,
    /// Payload length in bytes.
    pub len_bytes: u32,
    /// Checksum as transmitted.
    pub crc: u32,
}

impl FrameHeader {
    /// Decodes the 8 header bytes.
    pub fn decode(bytes: &[u8; HEADER_LEN_BYTES]) -> Self {
        let [kind, l0, l1, l2, c0, c1, c2, c3] = *bytes;
        Self {
            kind: kind & !COMPRESSED,
            compressed: kind & COMPRESSED != 0,
            len_bytes: u32::from_le_bytes([l0, l1, l2, 0]),
            crc: u32::from_le_bytes([c0, c1, c2, c3]),
        }
    }

    /// Header and payload, in bytes.
    pub fn total_len_bytes(&self) -> u64 {
        HEADER_LEN_BYTES as u64 + u64::from(self.len_bytes)
    }

    /// Checks the checksum of a frame expected at `position`.
    pub fn check(&self, position: u64, payload: &[u8]) -> Result<(), WireError> {
        let kind = self.kind | if self.compressed { COMPRESSED } else { 0 };
        let expected = checksum(position, kind, payload);
        if payload.len() as u64 == u64::from(self.len_bytes) && expected == self.crc {
            return Ok(());
        }
        Err(WireError::Checksum {
            kind: self.kind,
            len_bytes: self.len_bytes,
            position,
            found: self.crc,
            expected,
        })
    }
}

fn checksum(position: u64, kind: u8, payload: &[u8]) -> u32 {
    let [l0, l1, l2, _] = (payload.len() as u32).to_le_bytes();
    let mut head = [0u8; 12];
    head[..8].copy_from_slice(&position.to_le_bytes());
    head[8..].copy_from_slice(&[kind, l0, l1, l2]);
    crc32c::crc32c_append(crc32c::crc32c(&head), payload)
}

/// The header for a payload at `position`. `kind` may carry [`COMPRESSED`].
///
/// # Errors
/// [`WireError::TooLong`] if the payload is over [`MAX_PAYLOAD_LEN_BYTES`], which is a bug of the caller.
pub fn encode_header(kind: u8, position: u64, payload: &[u8]) -> Result<[u8; HEADER_LEN_BYTES], WireError> {
    if payload.len() > MAX_PAYLOAD_LEN_BYTES {
        return Err(WireError::TooLong {
            what: "frame payload",
            len_bytes: payload.len() as u64,
            limit_bytes: MAX_PAYLOAD_LEN_BYTES as u64,
        });
    }
    let [l0, l1, l2, _] = (payload.len() as u32).to_le_bytes();
    let [c0, c1, c2, c3] = checksum(position, kind, payload).to_le_bytes();
    Ok([kind, l0, l1, l2, c0, c1, c2, c3])
}

/// Appends a whole frame to `out`.
///
/// # Errors
/// As [`encode_header`].
pub fn append_frame(out: &mut Vec<u8>, kind: u8, position: u64, payload: &[u8]) -> Result<(), WireError> {
    let header = encode_header(kind, position, payload)?;
    out.extend_from_slice(&header);
    out.extend_from_slice(payload);
    Ok(())
}

/// Algorithm of the first protocol version, which logs still contain. It is only decoded.
const ALGORITHM_LZ4: u8 = 0;
const ALGORITHM_ZSTANDARD: u8 = 1;
/// The fastest level with an entropy coder. Pages of random text have no repetitions, but few different bytes.
const ZSTANDARD_LEVEL: i32 = 1;

thread_local! {
    // Their tables are larger than most payloads: creating them each time would cost more than the compression.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Compresses a payload. `None` if the result would not be smaller, or the payload is over [`MAX_PAYLOAD_LEN_BYTES`].
pub fn compress(payload: &[u8]) -> Option<Vec<u8>> {
    if payload.len() > MAX_PAYLOAD_LEN_BYTES || payload.len() <= 4 {
        return None;
    }
    let [l0, l1, l2, _] = (payload.len() as u32).to_le_bytes();
    // One byte less than the payload: a result that does not fit is not smaller.
    let mut packed = vec![0; payload.len() - 1];
    packed[..4].copy_from_slice(&[l0, l1, l2, ALGORITHM_ZSTANDARD]);
    let len_bytes = COMPRESSOR.try_with(|kept| {
        let mut kept = kept.try_borrow_mut().ok()?;
        if kept.is_none() {
            let mut new = Compressor::new(ZSTANDARD_LEVEL).ok()?;
            // The size is in front already.
            new.include_contentsize(false).ok()?;
            *kept = Some(new);
        }
        kept.as_mut()?.compress_to_buffer(payload, packed.get_mut(4..)?).ok()
    });
    // A thread that is ending has no compressor.
    let len_bytes = len_bytes.ok().flatten()?;
    packed.truncate(4 + len_bytes);
    Some(packed)
}

/// Undoes [`compress`].
///
/// # Errors
/// [`WireError::Invalid`] for a damaged block, an unknown algorithm, or a length other than the announced one.
pub fn decompress(payload: &[u8]) -> Result<Vec<u8>, WireError> {
    let Some(([l0, l1, l2, algorithm], block)) = payload.split_first_chunk::<4>() else {
        return Err(WireError::Truncated {
            what: "compressed payload",
            len_bytes: payload.len(),
            field: "raw length",
        });
    };
    let raw_len_bytes = u32::from_le_bytes([*l0, *l1, *l2, 0]) as usize;
    let invalid = |field, why: String| WireError::Invalid { what: "compressed payload", field, why };
    let raw = match *algorithm {
        ALGORITHM_LZ4 => lz4_flex::block::decompress(block, raw_len_bytes)
            .map_err(|error| invalid("LZ4 block", error.to_string()))?,
        ALGORITHM_ZSTANDARD => decompress_zstandard(block, raw_len_bytes)
            .map_err(|error| invalid("Zstandard frame", error.to_string()))?,
        other => {
            return Err(invalid(
                "algorithm",
                format!("{other} is not known; it was written by a newer version"),
            ));
        }
    };
    if raw.len() != raw_len_bytes {
        return Err(invalid("raw length", format!("is {raw_len_bytes}, the block has {}", raw.len())));
    }
    Ok(raw)
}

fn decompress_zstandard(block: &[u8], raw_len_bytes: usize) -> std::io::Result<Vec<u8>> {
    let kept = DECOMPRESSOR.try_with(|kept| {
        let mut kept = kept.try_borrow_mut().ok()?;
        if kept.is_none() {
            *kept = Decompressor::new().ok();
        }
        Some(kept.as_mut()?.decompress(block, raw_len_bytes))
    });
    match kept {
        Ok(Some(result)) => result,
        // Without a thread-local decompressor, as in a thread that is ending.
        _ => Decompressor::new()?.decompress(block, raw_len_bytes),
    }
}

#[cfg(test)]
mod tests;
