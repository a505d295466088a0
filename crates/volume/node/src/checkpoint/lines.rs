//! Files that are appended to: text, one entry a line, CRC-32C (8 hex), a space, JSON.
//!
//! The checksum continues that of the previous line, so a missing or misplaced line is found like a damaged one. Each line
//! ends at a multiple of 4096, with spaces after its JSON. So no block with lines that were durable is written again.

use serde::Serialize;
use std::io;

/// Block that the disk may write as a unit.
const BLOCK_BYTES: usize = 4096;
/// The checksum of a line, and a space.
const CRC_BYTES: usize = 9;

/// Adds a line that ends at a multiple of [`BLOCK_BYTES`] if `bytes` begins at one. Returns its checksum; `before` is
/// the previous line's.
///
/// # Errors
/// If the content cannot be serialised, which is a defect.
pub fn push_line(bytes: &mut Vec<u8>, before: u32, content: &impl Serialize) -> io::Result<u32> {
    let mut json = serde_json::to_vec(content)?;
    let len = bytes.len() + CRC_BYTES + json.len() + 1;
    json.resize(json.len() + (len.next_multiple_of(BLOCK_BYTES) - len), b' ');
    let crc = crc32c::crc32c_append(before, &json);
    bytes.extend_from_slice(format!("{crc:08x} ").as_bytes());
    bytes.extend_from_slice(&json);
    bytes.push(b'\n');
    Ok(crc)
}

/// The lines of a file, checked.
pub struct Lines<'b> {
    rest: &'b [u8],
    at: u64,
    crc: u32,
}

impl<'b> Lines<'b> {
    /// Of a whole file.
    pub fn of(bytes: &'b [u8]) -> Self {
        Self { rest: bytes, at: 0, crc: 0 }
    }

    /// Checksum of the last line.
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// The JSON of the next line, or its fault. `None`: the end.
    pub fn next_line(&mut self) -> Option<Result<&'b [u8], String>> {
        if self.rest.is_empty() {
            return None;
        }
        let at = self.at;
        let line = self.take_line();
        Some(line.ok_or_else(|| format!("the line at byte {at} is damaged")))
    }

    fn take_line(&mut self) -> Option<&'b [u8]> {
        let len = self.rest.iter().position(|byte| *byte == b'\n')?;
        let (line, rest) = self.rest.split_at(len);
        let (crc, json) = line.split_first_chunk::<CRC_BYTES>()?;
        let crc = std::str::from_utf8(crc).ok()?.strip_suffix(' ')?;
        let crc = u32::from_str_radix(crc, 16).ok()?;
        if crc != crc32c::crc32c_append(self.crc, json) {
            return None;
        }
        (self.crc, self.rest, self.at) = (crc, rest.get(1..)?, self.at + len as u64 + 1);
        Some(json)
    }
}
