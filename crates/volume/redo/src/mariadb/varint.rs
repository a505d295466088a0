//! Variable-length numbers of the redo log: lengths, ids and offsets.
//!
//! Layout: the leading one bits of the first byte say how many bytes follow; each length starts where the
//! shorter one ends, so every number has exactly one encoding.
//!
//! | first byte | bytes | value |
//! |---|---|---|
//! | `0xxxxxxx` | 1 | x |
//! | `10xxxxxx` | 2 | 128 + x |
//! | `110xxxxx` | 3 | 16,512 + x |
//! | `1110xxxx` | 4 | 2,113,664 + x |
//! | `11110000` | 5 | 270,549,120 + the next 4 bytes |

/// Smallest number that takes 2 bytes.
pub const MIN_2_BYTES: u32 = 1 << 7;
/// Smallest number that takes 3 bytes.
pub const MIN_3_BYTES: u32 = MIN_2_BYTES + (1 << 14);
/// Smallest number that takes 4 bytes.
pub const MIN_4_BYTES: u32 = MIN_3_BYTES + (1 << 21);
/// Smallest number that takes 5 bytes.
pub const MIN_5_BYTES: u32 = MIN_4_BYTES + (1 << 28);

/// Why bytes are not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VarintError {
    /// The bytes end inside the number.
    Incomplete,
    /// The first byte starts no number, or the number is 2^32 or more.
    Invalid,
}

/// The number at the start of `bytes`, and how many bytes it takes.
///
/// # Errors
/// [`VarintError`] when the bytes end early or are no number.
#[inline(always)]
pub fn decode(bytes: &[u8]) -> Result<(u32, usize), VarintError> {
    match *bytes {
        [first, ..] if first < 0x80 => Ok((first as u32, 1)),
        [first, second, ..] if first < 0xc0 => {
            Ok((MIN_2_BYTES + ((first as u32 & 0x3f) << 8 | second as u32), 2))
        }
        _ => decode_long(bytes),
    }
}

/// The rare lengths, out of line.
#[inline(never)]
fn decode_long(bytes: &[u8]) -> Result<(u32, usize), VarintError> {
    match *bytes {
        [a @ 0xc0..=0xdf, b, c, ..] => Ok((MIN_3_BYTES + u32::from_be_bytes([0, a & 0x1f, b, c]), 3)),
        [a @ 0xe0..=0xef, b, c, d, ..] => Ok((MIN_4_BYTES + u32::from_be_bytes([a & 0x0f, b, c, d]), 4)),
        [0xf0, a, b, c, d, ..] => u32::from_be_bytes([a, b, c, d])
            .checked_add(MIN_5_BYTES)
            .map(|value| (value, 5))
            .ok_or(VarintError::Invalid),
        [0xf1..=0xff, ..] => Err(VarintError::Invalid),
        _ => Err(VarintError::Incomplete),
    }
}

/// Append `value` to `out`.
pub fn encode(value: u32, out: &mut Vec<u8>) {
    if value < MIN_2_BYTES {
        out.push(value as u8);
    } else if value < MIN_3_BYTES {
        let rest = value - MIN_2_BYTES;
        out.extend_from_slice(&[0x80 | (rest >> 8) as u8, rest as u8]);
    } else if value < MIN_4_BYTES {
        let [_, a, b, c] = (value - MIN_3_BYTES).to_be_bytes();
        out.extend_from_slice(&[0xc0 | a, b, c]);
    } else if value < MIN_5_BYTES {
        let [a, b, c, d] = (value - MIN_4_BYTES).to_be_bytes();
        out.extend_from_slice(&[0xe0 | a, b, c, d]);
    } else {
        out.push(0xf0);
        out.extend_from_slice(&(value - MIN_5_BYTES).to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
