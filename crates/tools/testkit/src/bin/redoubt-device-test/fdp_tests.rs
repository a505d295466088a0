//! Answers as a drive sends them, byte by byte.

use super::*;

/// `len` zero bytes with some parts filled in.
fn answer(len: usize, parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (at, part) in parts {
        bytes[*at..at + part.len()].copy_from_slice(part);
    }
    bytes
}

#[test]
fn a_namespace_says_its_group_and_block_length() {
    // Format 4 of 8: blocks of 2^12 bytes; group 1.
    let identity = answer(4096, &[(26, &[0x04]), (102, &[1, 0]), (130, &[9]), (128 + 16 + 2, &[12])]);
    assert_eq!(endurance_group(&identity).unwrap(), 1);
    assert_eq!(block_len_bytes(&identity).unwrap(), 4096);
    assert_eq!(block_len_bytes(&answer(4096, &[(130, &[9])])).unwrap(), 512);
    // Format 17: the two high bits of the number are bits 5 and 6.
    let identity = answer(4096, &[(26, &[0x21]), (128 + 68 + 2, &[14])]);
    assert_eq!(block_len_bytes(&identity).unwrap(), 16384);
    assert!(matches!(block_len_bytes(&[0; 4096]), Err(FdpError::Wrong { .. })), "blocks of one byte");
    assert!(matches!(block_len_bytes(&[0; 100]), Err(FdpError::TooShort { at: 130, .. })));
}

#[test]
fn the_handle_status_lists_placement_handles() {
    let bytes = answer(
        4096,
        &[
            (14, &[2, 0]),
            (16, &[0, 0, 5, 0]),
            (24, &[0x34, 0x12, 0, 0, 0, 0, 0, 0]),
            (48, &[1, 0, 7, 0]),
            (56, &[0, 0, 0, 0, 1, 0, 0, 0]),
        ],
    );
    assert_eq!(
        placement_handles(&bytes).unwrap(),
        [
            PlacementHandle { placement_id: 0, handle: 5, available_blocks: 0x1234 },
            PlacementHandle { placement_id: 1, handle: 7, available_blocks: 1 << 32 },
        ]
    );
    // More of them than the answer has.
    let cut = answer(60, &[(14, &[2, 0])]);
    assert!(matches!(placement_handles(&cut), Err(FdpError::TooShort { .. })));
}

#[test]
fn the_statistics_are_three_numbers() {
    let bytes = answer(64, &[(0, &[1, 2]), (16, &[3, 4, 5]), (32, &[6])]);
    assert_eq!(
        statistics(&bytes).unwrap(),
        Statistics { host_bytes_written: 0x201, media_bytes_written: 0x5_0403, media_bytes_erased: 6 }
    );
    assert!(matches!(statistics(&bytes[..40]), Err(FdpError::TooShort { .. })));
    // 2^64 bytes cannot be.
    assert!(matches!(statistics(&answer(64, &[(8, &[1])])), Err(FdpError::Wrong { .. })));
}

#[test]
fn the_usage_log_says_who_chose_a_handle() {
    let bytes = answer(32, &[(0, &[3, 0]), (8, &[1]), (16, &[0]), (24, &[0xfa])]);
    assert_eq!(
        handle_usage(&bytes).unwrap(),
        [HandleUsage::HostSpecified, HandleUsage::Unused, HandleUsage::ControllerSpecified]
    );
    assert!(matches!(handle_usage(&bytes[..24]), Err(FdpError::TooShort { .. })));
    assert!(matches!(handle_usage(&answer(16, &[(0, &[1]), (8, &[3])])), Err(FdpError::Wrong { .. })));
}

#[test]
fn the_active_configuration_is_found_after_others() {
    // Two configurations, of 96 and 64 bytes.
    let bytes = answer(
        2048,
        &[
            (0, &[1, 0]),
            (16, &[96, 0]),
            (20, &[1]),
            (24, &[8]),
            (35, &[1]),
            (112, &[64, 0]),
            (116, &[2]),
            (120, &[4]),
            (132, &[1]),
        ],
    );
    let first = Configuration { reclaim_groups: 1, handles: 8, reclaim_unit_len_bytes: 1 << 24 };
    let second = Configuration { reclaim_groups: 2, handles: 4, reclaim_unit_len_bytes: 1 << 32 };
    assert_eq!(configuration(&bytes, 0).unwrap(), first);
    assert_eq!(configuration(&bytes, 1).unwrap(), second);
    assert!(matches!(configuration(&bytes, 2), Err(FdpError::Wrong { .. })));
    assert!(matches!(configuration(&bytes[..120], 1), Err(FdpError::TooShort { .. })));
    assert_eq!(active_configuration(0x0101), Some(1));
    assert_eq!(active_configuration(0x0100), None, "off");
}

#[test]
fn the_kernels_counters_are_in_sectors() {
    let counters = "  100  0  800  5  10  2  24  7  0  1  1  0 0 0 0 0 0";
    assert_eq!(bytes_written(counters), Some(24 * 512));
    assert_eq!(bytes_written("1 2 3"), None);
}
