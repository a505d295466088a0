//! Unsigned numbers below 2^64 in LEB128: seven bits in each byte, the lowest first; bit 7 is set in all bytes but the
//! last.
//!
//! Each number has one encoding: [`take`] refuses longer forms.

/// The longest encoding in bytes: 9 whole bytes and one bit of the tenth.
pub const MAX_LEN_BYTES: usize = 10;

/// Bytes that are no number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Leb128Error {
    /// The bytes end within the number.
    #[error("the bytes end within a number")]
    Ended,
    /// The number is longer than its shortest form, or above 2^64 - 1.
    #[error("a number is longer than it must be, or above 2^64 - 1")]
    NotCanonical,
}

/// Gives the bytes of `number` to `push`, in their order.
#[inline]
pub fn put(mut number: u64, mut push: impl FnMut(u8)) {
    while number >= 0x80 {
        push(number as u8 | 0x80);
        number >>= 7;
    }
    push(number as u8);
}

/// Takes a number from `next`, which returns one byte after the other and `None` at the end.
///
/// # Errors
/// [`Leb128Error`]. Bytes up to the one that shows the error were taken.
#[inline]
pub fn take(mut next: impl FnMut() -> Option<u8>) -> Result<u64, Leb128Error> {
    let mut number = 0;
    for place in 0..MAX_LEN_BYTES {
        let byte = next().ok_or(Leb128Error::Ended)?;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let is_shortest = byte != 0 || place == 0;
            let is_below_2_to_64 = byte <= 1 || place + 1 < MAX_LEN_BYTES;
            if is_shortest && is_below_2_to_64 {
                return Ok(number);
            }
            break;
        }
    }
    Err(Leb128Error::NotCanonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(number, |byte| bytes.push(byte));
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<u64, Leb128Error> {
        let mut rest = bytes.iter().copied();
        let number = take(|| rest.next());
        assert!(number.is_err() || rest.next().is_none(), "{bytes:x?}");
        number
    }

    #[test]
    fn encoding_is_that_of_the_format() {
        for (number, bytes) in [
            (0, &[0][..]),
            (0x7f, &[0x7f]),
            (0x80, &[0x80, 1]),
            (300, &[0xac, 2]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ] {
            assert_eq!(encode(number), bytes, "{number}");
        }
    }

    #[test]
    fn every_length_is_read_back() {
        for shift in 0..64 {
            for number in [1 << shift, (1_u64 << shift) - 1, (1 << shift) | 1] {
                let bytes = encode(number);
                assert_eq!(decode(&bytes), Ok(number));
                for cut in 0..bytes.len() {
                    assert_eq!(decode(&bytes[..cut]), Err(Leb128Error::Ended), "{number} cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn longer_forms_and_overflow_are_refused() {
        for bytes in [
            &[0x80, 0][..],
            &[0xff, 0x80, 0],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 0],
            &[0x80; 20],
        ] {
            assert_eq!(decode(bytes), Err(Leb128Error::NotCanonical), "{bytes:x?}");
        }
    }
}
