//! Blocks composed and parsed, and invalid blocks.

use super::*;

const LSN: u64 = 8192;
const START: Lsn = from_server_lsn(LSN);

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|index| index as u8 ^ 0x5a).collect()
}

/// Changes a block and makes its CRC right again.
fn changed(block: &[u8; BLOCK_BYTES], offset: usize, bytes: &[u8]) -> [u8; BLOCK_BYTES] {
    let mut block = *block;
    block[offset..offset + bytes.len()].copy_from_slice(bytes);
    let crc = crc32c::crc32c(&block[..508]);
    block[508..].copy_from_slice(&crc.to_be_bytes());
    block
}

#[test]
fn a_composed_block_is_parsed_as_it_was() {
    for len in [0, 1, 100, 495, 496] {
        let payload = payload(len);
        for first_group in [None, Some(START), Some(START.advance(len as u64 / 2))] {
            let bytes = compose(START, &payload, first_group);
            let block = Block::parse(&bytes, LSN).unwrap();
            assert_eq!(block, Block { start: START, payload: &payload, first_group });
            assert_eq!(block.is_full(), len == 496);
            assert_eq!(block.end(), START.advance(len as u64));
        }
    }
}

#[test]
fn a_group_that_would_start_at_the_end_is_told_unless_the_block_is_full() {
    let bytes = compose(START, &payload(10), Some(START.advance(10)));
    assert_eq!(bytes[4..8], [0, 22, 0, 22]);
    assert_eq!(Block::parse(&bytes, LSN).unwrap().first_group, Some(START.advance(10)));
    // The next block's first byte.
    let bytes = compose(START, &payload(496), Some(START.advance(496)));
    assert_eq!(bytes[4..8], [2, 0, 0, 0]);
    assert_eq!(Block::parse(&bytes, LSN).unwrap().first_group, None);
    let bytes = compose(START, &payload(496), Some(Lsn(0)));
    assert_eq!(Block::parse(&bytes, LSN).unwrap().first_group, None);
}

#[test]
fn number_and_epoch_follow_the_lsn() {
    assert_eq!(number_and_epoch(0), (1, 1));
    assert_eq!(number_and_epoch(512 * 5), (6, 1));
    assert_eq!(number_and_epoch(512 << 30), (1, 2));
    assert_eq!(number_and_epoch((512 << 30) - 512), (1 << 30, 1));
    let far = from_server_lsn((512 << 30) * 3 + 512);
    let bytes = compose(far, &[1], None);
    assert_eq!(bytes[..4], [0, 0, 0, 2]);
    assert_eq!(bytes[8..12], [0, 0, 0, 4]);
}

#[test]
fn what_is_not_the_block_is_told() {
    let bytes = compose(START, &payload(100), Some(START));
    assert_eq!(Block::parse(&[0; 512], LSN), Err(BlockError::Empty { lsn: LSN }));
    assert_eq!(
        Block::parse(&bytes, LSN + 512),
        Err(BlockError::Number { lsn: LSN + 512, number: 17, epoch: 1 })
    );
    let mut damaged = bytes;
    damaged[50] ^= 1;
    assert!(matches!(Block::parse(&damaged, LSN), Err(BlockError::Checksum { .. })));
    let mut unchecked = bytes;
    unchecked[508..].copy_from_slice(&NO_CHECKSUM.to_be_bytes());
    assert_eq!(Block::parse(&unchecked, LSN), Err(BlockError::NoChecksum { lsn: LSN }));
    assert_eq!(Block::parse(&changed(&bytes, 4, &[0x80]), LSN), Err(BlockError::Encrypted { lsn: LSN }));
    for len in [0u16, 11, 508, 509, 511, 513, 0x7fff] {
        let bad = changed(&bytes, 4, &len.to_be_bytes());
        assert!(matches!(Block::parse(&bad, LSN), Err(BlockError::Header { .. })), "{len}");
    }
    for group in [1u16, 11, 113, 600] {
        let bad = changed(&bytes, 6, &group.to_be_bytes());
        assert!(matches!(Block::parse(&bad, LSN), Err(BlockError::Header { .. })), "{group}");
    }
}

#[test]
fn a_crc_that_happens_to_look_like_none_counts() {
    let bytes = compose(START, &payload(3), None);
    assert!(check_crc(&bytes, LSN).is_ok());
}
