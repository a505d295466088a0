//! One direction of a connection whose sender decides from write to write what is compressed.
//!
//! A part is a header of 4 bytes, then its bytes. Header: u32 little-endian, length in bits 0 to 30, bit 31 set:
//! packed. All packed parts together are one stream of [`crate::compression`]. Other parts are sent unchanged, and that
//! stream's history does not contain them. [`crate::frame`] is the layer inside.
//!
//! Invariants:
//! * A part can be read without later bytes.
//! * A side that sends or receives no packed part needs no memory for a history.

use crate::compression::{Compressor, Decompressor, Step};
use crate::error::WireError;

const HEADER_LEN_BYTES: usize = 4;
const PACKED: u32 = 1 << 31;

/// The sending side.
#[derive(Default)]
pub struct PartWriter {
    compressor: Option<Compressor>,
}

impl PartWriter {
    /// Appends `bytes`, which are not empty, to `out` as a part, packed or unchanged.
    ///
    /// # Errors
    /// [`WireError`]: the state of the stream is unknown, and the connection must be closed.
    pub fn append(&mut self, bytes: &[u8], pack: bool, out: &mut Vec<u8>) -> Result<(), WireError> {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_LEN_BYTES]);
        if pack {
            let compressor = match &mut self.compressor {
                Some(compressor) => compressor,
                none => none.insert(Compressor::new()?),
            };
            compressor.pack(bytes, out)?;
        } else {
            out.extend_from_slice(bytes);
        }
        let len_bytes = out.len() - start - HEADER_LEN_BYTES;
        let len =
            u32::try_from(len_bytes).ok().filter(|len| len & PACKED == 0).ok_or(WireError::TooLong {
                what: "part",
                len_bytes: len_bytes as u64,
                limit_bytes: u64::from(PACKED - 1),
            })?;
        if let Some(header) = out.get_mut(start..start + HEADER_LEN_BYTES) {
            header.copy_from_slice(&(len | if pack { PACKED } else { 0 }).to_le_bytes());
        }
        Ok(())
    }
}

/// The receiving side.
#[derive(Default)]
pub struct PartReader {
    decompressor: Option<Decompressor>,
    header: [u8; HEADER_LEN_BYTES],
    header_len_bytes: usize,
    /// Bytes of the current part that were not taken yet.
    left_bytes: usize,
    is_packed: bool,
}

impl PartReader {
    /// As [`Decompressor::unpack`].
    ///
    /// # Errors
    /// [`WireError::Invalid`] for bytes that no [`PartWriter`] sends.
    pub fn unpack(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step, WireError> {
        let mut all = Step { taken_bytes: 0, given_bytes: 0 };
        loop {
            let (rest, room) = (
                input.get(all.taken_bytes..).unwrap_or_default(),
                out.get_mut(all.given_bytes..).unwrap_or_default(),
            );
            let was_in_part = self.left_bytes > 0 || self.is_packed;
            let step = if was_in_part {
                self.step(rest, room)?
            } else {
                Step { taken_bytes: self.take_header(rest)?, given_bytes: 0 }
            };
            all.taken_bytes += step.taken_bytes;
            all.given_bytes += step.given_bytes;
            let is_in_part = self.left_bytes > 0 || self.is_packed;
            let is_stuck = step == (Step { taken_bytes: 0, given_bytes: 0 }) && is_in_part == was_in_part;
            if all.given_bytes == out.len() || is_stuck {
                return Ok(all);
            }
        }
    }

    /// Takes from the current part.
    fn step(&mut self, input: &[u8], room: &mut [u8]) -> Result<Step, WireError> {
        let input = input.get(..self.left_bytes).unwrap_or(input);
        let step = if self.is_packed {
            let decompressor = match &mut self.decompressor {
                Some(decompressor) => decompressor,
                none => none.insert(Decompressor::new()?),
            };
            let step = decompressor.unpack(input, room)?;
            // Taken input may still have output pending; if there is room left, all output has been given.
            if step.taken_bytes == self.left_bytes && step.given_bytes < room.len() {
                self.is_packed = false;
            }
            step
        } else {
            let len_bytes = input.len().min(room.len());
            if let (Some(from), Some(to)) = (input.get(..len_bytes), room.get_mut(..len_bytes)) {
                to.copy_from_slice(from);
            }
            Step { taken_bytes: len_bytes, given_bytes: len_bytes }
        };
        self.left_bytes -= step.taken_bytes;
        Ok(step)
    }

    fn take_header(&mut self, input: &[u8]) -> Result<usize, WireError> {
        let mut taken_bytes = 0;
        for byte in input.iter().take(HEADER_LEN_BYTES - self.header_len_bytes) {
            if let Some(place) = self.header.get_mut(self.header_len_bytes) {
                *place = *byte;
            }
            self.header_len_bytes += 1;
            taken_bytes += 1;
        }
        if self.header_len_bytes == HEADER_LEN_BYTES {
            let header = u32::from_le_bytes(self.header);
            self.header_len_bytes = 0;
            self.is_packed = header & PACKED != 0;
            self.left_bytes = (header & !PACKED) as usize;
            if self.left_bytes == 0 {
                let why = "is 0".to_owned();
                return Err(WireError::Invalid { what: "part of a connection", field: "length", why });
            }
        }
        Ok(taken_bytes)
    }
}

#[cfg(test)]
mod tests;
