//! Tests of the segment layout.

use super::*;

fn record(epoch: u64, payload: &[u8]) -> Vec<u8> {
    let header = RecordHeader {
        epoch,
        seq: 77,
        durable_seq: 70,
        len_bytes: payload.len() as u32,
        continues: true,
        mark: payload.is_empty(),
        closes: payload.is_empty(),
    };
    let header = RecordHeader { continues: !payload.is_empty(), ..header };
    let mut bytes = header.encode(payload).to_vec();
    bytes.extend_from_slice(payload);
    assert_eq!(RecordHeader::decode(&bytes, 0, epoch), Some(header));
    bytes
}

#[test]
fn any_flipped_bit_makes_a_record_invalid() {
    for payload in [&b""[..], b"x", b"some payload"] {
        let bytes = record(9, payload);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(&flipped, 0, 9), None, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(RecordHeader::decode(&bytes[..len], 0, 9), None, "cut at {len}");
        }
        assert_eq!(RecordHeader::decode(&bytes, 0, 8), None);
    }
}

#[test]
fn any_flipped_bit_makes_a_segment_header_invalid() {
    let header = SegmentHeader { first_seq: 5, epoch: 6, len_bytes: 8192, durable_seq: 4, unit: 512 };
    let bytes = header.encode();
    assert_eq!(bytes.len(), SEGMENT_HEADER_LEN);
    assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
    for bit in 0..(HEADER_CRC_AT + 4) * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(SegmentHeader::decode(&flipped).is_err(), "bit {bit}");
    }
    for len in 0..HEADER_CRC_AT + 4 {
        assert!(SegmentHeader::decode(&bytes[..len]).is_err(), "cut at {len}");
    }
}

#[test]
fn headers_without_a_write_unit_are_still_read() {
    let header = SegmentHeader { first_seq: 5, epoch: 6, len_bytes: 8192, durable_seq: 4, unit: 8 };
    let mut bytes = header.encode();
    bytes[8] = 1;
    bytes[12] = 0;
    let crc = crc32c::crc32c(&bytes[..HEADER_CRC_AT]);
    bytes[HEADER_CRC_AT..HEADER_CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
    for unit in [0, 7, 12, 8192] {
        let bytes = SegmentHeader { unit, ..header }.encode();
        assert!(SegmentHeader::decode(&bytes).is_err(), "{unit}");
    }
}
