//! Every length of number, at both ends of its range.

use super::*;

#[test]
fn boundaries_round_trip_and_take_the_stated_length() {
    let cases = [
        (0, 1),
        (MIN_2_BYTES - 1, 1),
        (MIN_2_BYTES, 2),
        (MIN_3_BYTES - 1, 2),
        (MIN_3_BYTES, 3),
        (MIN_4_BYTES - 1, 3),
        (MIN_4_BYTES, 4),
        (MIN_5_BYTES - 1, 4),
        (MIN_5_BYTES, 5),
        (u32::MAX, 5),
    ];
    for (value, len_bytes) in cases {
        let mut bytes = Vec::new();
        encode(value, &mut bytes);
        assert_eq!(bytes.len(), len_bytes, "{value}");
        assert_eq!(decode(&bytes), Ok((value, len_bytes)));
        for cut in 0..len_bytes {
            assert_eq!(decode(&bytes[..cut]), Err(VarintError::Incomplete), "{value} cut at {cut}");
        }
    }
}

#[test]
fn first_bytes_without_meaning_and_overflow_are_refused() {
    for first in 0xf1..=0xffu8 {
        assert_eq!(decode(&[first, 0, 0, 0, 0]), Err(VarintError::Invalid));
    }
    let too_large = (u32::MAX - MIN_5_BYTES + 1).to_be_bytes();
    let mut bytes = vec![0xf0];
    bytes.extend_from_slice(&too_large);
    assert_eq!(decode(&bytes), Err(VarintError::Invalid));
}
