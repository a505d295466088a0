use super::*;

#[test]
fn a_drive_that_writes_more_than_a_block_at_once_is_not_formatted() {
    let device = |physical, alignment_offset_bytes| BlockDevice {
        name: "sda1".into(),
        disk: "sda".into(),
        physical_block_len: Some(physical),
        alignment_offset_bytes,
        ..BlockDevice::default()
    };
    for fine in [device(512, Some(0)), device(4096, Some(0)), device(4096, None)] {
        assert_eq!(why_blocks_are_parts(&fine), None);
    }
    let why = |device| why_blocks_are_parts(&device).unwrap();
    assert!(why(device(16_384, Some(0))).contains("writes 16384 bytes at once"));
    assert!(why(device(4096, Some(3584))).contains("alignment_offset 3584"));
}
