//! Variable-length numbers of MySQL's redo records.
//!
//! Layout (`include/mach0data.ic`, `mach/mach0data.cc`): the leading one bits of the first byte say how long a number
//! is. Unlike MariaDB's, the lengths overlap: the other bits are the value itself. The server writes the shortest form,
//! and no other is accepted here: MySQL's records have no checksum of their own, so a form that is never written is the
//! first sign of bytes that are no record.
//!
//! | name | first byte | bytes | value |
//! |---|---|---|---|
//! | c32 | `0xxxxxxx` | 1 | x |
//! | | `10xxxxxx` | 2 | x |
//! | | `110xxxxx` | 3 | x |
//! | | `1110xxxx` | 4 | x |
//! | | `11110000` | 5 | the next 4 bytes |
//! | | `111110xx` | 2 | 0xfffffc00 + x |
//! | | `1111110x` | 3 | 0xfffe0000 + x |
//! | | `11111110` | 4 | 0xff000000 + x |
//! | c64 | c32 | 5 to 9 | c32 times 2^32 + the 4 bytes after it |
//! | m64 | c32 | 1 to 5 | c32 |
//! | | `11111111` | 3 to 11 | c32 times 2^32 + another c32 |
//!
//! The forms for numbers near 2^32 are there for the ids of undo tablespaces and the dictionary. A number near 2^32 in
//! the form of 5 bytes is what servers before them wrote, and is accepted.

/// Smallest number that takes 2 bytes.
const MIN_2_BYTES: u32 = 1 << 7;
/// Smallest number that takes 3 bytes.
const MIN_3_BYTES: u32 = 1 << 14;
/// Smallest number that takes 4 bytes.
const MIN_4_BYTES: u32 = 1 << 21;
/// Smallest number that takes 5 bytes.
const MIN_5_BYTES: u32 = 1 << 28;
/// Smallest number of the short form with 2 bytes.
const HIGH_2_BYTES: u32 = 0xffff_fc00;
/// Smallest number of the short form with 3 bytes.
const HIGH_3_BYTES: u32 = 0xfffe_0000;
/// Smallest number of the short form with 4 bytes.
const HIGH_4_BYTES: u32 = 0xff00_0000;

/// First byte of an m64 of 2^32 or more.
const LARGE: u8 = 0xff;

/// Why bytes are not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VarintError {
    /// The bytes end inside the number.
    Incomplete,
    /// The first byte starts no number, or the number is not in its shortest form.
    Invalid,
}

/// The c32 at the start of `bytes`, and how many bytes it takes.
///
/// # Errors
/// [`VarintError`] when the bytes end early or are no number.
#[inline(always)]
pub fn decode_c32(bytes: &[u8]) -> Result<(u32, usize), VarintError> {
    match *bytes {
        [first, ..] if first < 0x80 => Ok((first as u32, 1)),
        [first, second, ..] if first < 0xc0 => {
            let value = ((first as u32 & 0x3f) << 8) | second as u32;
            if value >= MIN_2_BYTES { Ok((value, 2)) } else { Err(VarintError::Invalid) }
        }
        [a @ 0xc0..=0xdf, b, c, ..] => {
            shortest(u32::from_be_bytes([0, a & 0x1f, b, c]), 3, MIN_3_BYTES..MIN_4_BYTES)
        }
        _ => decode_long(bytes),
    }
}

/// The rare lengths, out of line.
#[inline(never)]
fn decode_long(bytes: &[u8]) -> Result<(u32, usize), VarintError> {
    match *bytes {
        [a @ 0xe0..=0xef, b, c, d, ..] => {
            shortest(u32::from_be_bytes([a & 0x0f, b, c, d]), 4, MIN_4_BYTES..MIN_5_BYTES)
        }
        [0xf0, a, b, c, d, ..] => {
            let value = u32::from_be_bytes([a, b, c, d]);
            if value >= MIN_5_BYTES { Ok((value, 5)) } else { Err(VarintError::Invalid) }
        }
        [a @ 0xf8..=0xfb, b, ..] => Ok((HIGH_2_BYTES | u32::from_be_bytes([0, 0, a & 0x03, b]), 2)),
        [a @ 0xfc..=0xfd, b, c, ..] => {
            shortest(HIGH_3_BYTES | u32::from_be_bytes([0, a & 0x01, b, c]), 3, HIGH_3_BYTES..HIGH_2_BYTES)
        }
        [0xfe, b, c, d, ..] => {
            shortest(HIGH_4_BYTES | u32::from_be_bytes([0, b, c, d]), 4, HIGH_4_BYTES..HIGH_3_BYTES)
        }
        [0xf1..=0xf7 | LARGE, ..] => Err(VarintError::Invalid),
        _ => Err(VarintError::Incomplete),
    }
}

#[inline(always)]
fn shortest(value: u32, len_bytes: usize, range: std::ops::Range<u32>) -> Result<(u32, usize), VarintError> {
    if range.contains(&value) { Ok((value, len_bytes)) } else { Err(VarintError::Invalid) }
}

/// The c64 at the start of `bytes`, and how many bytes it takes.
///
/// # Errors
/// [`VarintError`] when the bytes end early or are no number.
#[inline]
pub fn decode_c64(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    let (high, len_bytes) = decode_c32(bytes)?;
    let low = bytes.get(len_bytes..).and_then(|rest| rest.first_chunk()).ok_or(VarintError::Incomplete)?;
    Ok(((u64::from(high) << 32) | u64::from(u32::from_be_bytes(*low)), len_bytes + 4))
}

/// The m64 at the start of `bytes`, and how many bytes it takes.
///
/// # Errors
/// [`VarintError`] when the bytes end early or are no number.
pub fn decode_m64(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    let [LARGE, large @ ..] = bytes else {
        let (value, len_bytes) = decode_c32(bytes)?;
        return Ok((u64::from(value), len_bytes));
    };
    let (high, high_len_bytes) = decode_c32(large)?;
    if high == 0 {
        return Err(VarintError::Invalid);
    }
    let (low, low_len_bytes) = decode_c32(large.get(high_len_bytes..).unwrap_or_default())?;
    Ok(((u64::from(high) << 32) | u64::from(low), 1 + high_len_bytes + low_len_bytes))
}

/// Append `value` as c32 to `out`.
pub fn encode_c32(value: u32, out: &mut Vec<u8>) {
    let [a, b, c, d] = value.to_be_bytes();
    if value < MIN_2_BYTES {
        out.push(d);
    } else if value < MIN_3_BYTES {
        out.extend_from_slice(&[0x80 | c, d]);
    } else if value < MIN_4_BYTES {
        out.extend_from_slice(&[0xc0 | b, c, d]);
    } else if value < MIN_5_BYTES {
        out.extend_from_slice(&[0xe0 | a, b, c, d]);
    } else if value >= HIGH_2_BYTES {
        out.extend_from_slice(&[0xf8 | (c & 0x03), d]);
    } else if value >= HIGH_3_BYTES {
        out.extend_from_slice(&[0xfc | (b & 0x01), c, d]);
    } else if value >= HIGH_4_BYTES {
        out.extend_from_slice(&[0xfe, b, c, d]);
    } else {
        out.extend_from_slice(&[0xf0, a, b, c, d]);
    }
}

/// Append `value` as c64 to `out`.
pub fn encode_c64(value: u64, out: &mut Vec<u8>) {
    encode_c32((value >> 32) as u32, out);
    out.extend_from_slice(&(value as u32).to_be_bytes());
}

/// Append `value` as m64 to `out`.
pub fn encode_m64(value: u64, out: &mut Vec<u8>) {
    let high = (value >> 32) as u32;
    if high != 0 {
        out.push(LARGE);
        encode_c32(high, out);
    }
    encode_c32(value as u32, out);
}

#[cfg(test)]
mod tests;
