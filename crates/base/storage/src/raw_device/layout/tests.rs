//! Encoding and decoding of sectors, and rejected sectors.

use super::*;

fn layout() -> Layout {
    Layout::new(77, 1 << 30, 4 << 20).unwrap()
}

#[test]
fn the_parts_do_not_overlap_and_chunks_are_aligned() {
    for (size, chunk_len) in
        [(1 << 30, 4 << 20), (2 << 20, 64 << 10), (10_000_000_001, 1 << 20), (8 << 40, 4 << 20)]
    {
        let layout = Layout::new(1, size, chunk_len).unwrap();
        assert!(layout.area_offset(0) >= TRIAL_OFFSET + TRIAL_ROOM);
        assert_eq!(layout.area_offset(1), layout.area_offset(0) + layout.area_len);
        assert!(layout.data_offset >= layout.area_offset(1) + layout.area_len);
        assert!(layout.chunk_offset(layout.chunk_count) <= size);
        assert!(layout.chunk_offset(layout.chunk_count + 1) > size);
        for chunk in [0, 1, layout.chunk_count - 1] {
            assert!(layout.chunk_offset(chunk).is_multiple_of(chunk_len));
        }
        assert!(layout.max_table_len() >= layout.chunk_count as usize * 8);
    }
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    for (size, chunk_len) in [
        (0, 4 << 20),
        (4 << 20, 4 << 20),
        (1 << 30, 0),
        (1 << 30, 3 << 20),
        (1 << 30, 32 << 10),
        (1 << 50, 2 << 30),
        (1 << 60, 64 << 10),
    ] {
        assert!(Layout::new(1, size, chunk_len).is_err(), "{size} {chunk_len}");
    }
}

#[test]
fn a_superblock_comes_back_unless_it_was_changed() {
    let sector = layout().encode();
    assert_eq!(Layout::decode(&sector), Ok(Some(layout())));
    for at in 0..sector.len() {
        let mut damaged = sector;
        damaged[at] ^= 1;
        match Layout::decode(&damaged) {
            Ok(None) => assert!(at < 8, "{at}"),
            Err(BadSuperblock::Version(_)) => assert!((8..12).contains(&at), "{at}"),
            Err(BadSuperblock::Damaged(_)) => assert!(at >= 12, "{at}"),
            Ok(Some(_)) => panic!("a change at {at} was not seen"),
        }
    }
    assert_eq!(Layout::decode(&[0; 512]), Ok(None));
    assert_eq!(Layout::decode(&[]), Ok(None));
}

#[test]
fn marks_and_snapshots_belong_to_one_format() {
    let other = Layout { format_id: 78, ..layout() };
    let mark = layout().encode_mark(5);
    assert_eq!((layout().decode_mark(&mark), other.decode_mark(&mark)), (5, 0));
    let table = Table::new(&layout()).encode();
    let snapshot = layout().encode_snapshot(6, &table);
    let header = layout().decode_snapshot(&snapshot).unwrap();
    assert_eq!((header.counter, header.table_len), (6, table.len()));
    assert!(header.decode_table(&layout(), &snapshot[BLOCK_LEN..]).unwrap().is_ok());
    assert!(header.decode_table(&layout(), &[1; 4]).is_none());
    assert_eq!(other.decode_snapshot(&snapshot), None);
    // A length that exceeds every area.
    let long = layout().encode_snapshot(6, &vec![0; layout().max_table_len() + 1]);
    assert_eq!(layout().decode_snapshot(&long), None);
}

#[test]
fn what_is_on_a_device_is_named() {
    let mut start = vec![0; INSPECTED_LEN];
    assert_eq!(find_content(&start), None);
    start[100_000] = 1;
    assert_eq!(find_content(&start), Some("something else"));
    start[510..512].copy_from_slice(b"\x55\xaa");
    assert!(find_content(&start).unwrap().contains("MBR"));
    start[512..520].copy_from_slice(b"EFI PART");
    assert!(find_content(&start).unwrap().contains("GPT"));
    start[1080..1082].copy_from_slice(b"\x53\xef");
    start[512] = 0;
    assert!(find_content(&start).unwrap().contains("ext4"));
    start[..4].copy_from_slice(b"XFSB");
    assert!(find_content(&start).unwrap().contains("XFS"));
}
