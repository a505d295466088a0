//! Both ways, around the ends of a block.

use super::*;

#[test]
fn positions_and_server_lsns_are_the_same_both_ways() {
    // The first LSN of a new instance is 8192; its first payload byte is at 8204.
    assert_eq!(from_server_lsn(8192), Lsn(16 * 496));
    assert_eq!(server_lsn(Lsn(16 * 496)), 8204);
    for position in 0..5000 {
        let lsn = server_lsn(Lsn(position));
        assert_eq!(from_server_lsn(lsn), Lsn(position));
        assert!((12..508).contains(&(lsn % 512)));
        assert_eq!(block_start(Lsn(position)), lsn / 512 * 512);
    }
}

#[test]
fn lsns_in_headers_and_trailers_are_the_next_payload_byte() {
    for in_block in 0..=12 {
        assert_eq!(from_server_lsn(1024 + in_block), Lsn(2 * 496));
    }
    for in_block in 508..512 {
        assert_eq!(from_server_lsn(1024 + in_block), Lsn(3 * 496));
    }
    assert_eq!(from_server_lsn(1024 + 507), Lsn(3 * 496 - 1));
    assert_eq!(from_server_lsn(u64::MAX).0, u64::MAX / 512 * 496 + 496);
    assert_eq!(server_lsn(Lsn(u64::MAX)), u64::MAX);
}
