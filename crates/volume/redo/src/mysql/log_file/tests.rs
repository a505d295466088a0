//! Headers, checkpoints, names and ranges.

use super::*;

#[test]
fn a_header_is_read_as_it_was_built() {
    let header = LogFileHeader {
        set_id: 0xdead_0001,
        start_lsn: 8192,
        creator: b"MySQL 9.7.4".to_vec(),
        flags: LogFlags::FULL,
    };
    let block = header.build();
    assert_eq!(LogFileHeader::parse(&block).unwrap(), header);
    assert_eq!(block[..16], [0, 0, 0, 6, 0xde, 0xad, 0, 1, 0, 0, 0, 0, 0, 0, 0x20, 0]);
    assert_eq!(block[16..28], *b"MySQL 9.7.4\0");
    assert_eq!(block[48..52], [0, 0, 0, 8]);
    let long = LogFileHeader { creator: vec![b'x'; 50], ..header };
    assert_eq!(LogFileHeader::parse(&long.build()).unwrap().creator, vec![b'x'; 31]);
}

#[test]
fn what_is_no_header_is_told() {
    let header = LogFileHeader { set_id: 1, start_lsn: 8193, creator: Vec::new(), flags: LogFlags(0) };
    assert_eq!(LogFileHeader::parse(&header.build()), Err(LogFileError::StartLsn { start_lsn: 8193 }));
    let mut block = header.build();
    block[3] = 5;
    assert!(matches!(LogFileHeader::parse(&block), Err(LogFileError::Checksum { .. })));
    assert_eq!(LogFileHeader::parse(&seal(block)), Err(LogFileError::Format { format: 5 }));
    assert!(LogFileHeader::parse(&[0; 512]).is_err());
}

#[test]
fn flags_are_bits() {
    let disabled = LogFlags(3);
    assert!(disabled.contains(LogFlags::NO_LOGGING) && disabled.contains(LogFlags::CRASH_UNSAFE));
    assert!(!disabled.contains(LogFlags::FULL) && !LogFlags(0).contains(LogFlags::FULL));
}

#[test]
fn a_checkpoint_is_read_as_it_was_built() {
    assert_eq!(parse_checkpoint(&build_checkpoint(19_876_543)), Some(19_876_543));
    assert_eq!(parse_checkpoint(&[0; 512]), None);
    assert_eq!(parse_checkpoint(&build_checkpoint(0)), None);
    let mut block = build_checkpoint(1);
    block[15] = 2;
    assert_eq!(parse_checkpoint(&block), None);
}

#[test]
fn names_are_read_and_written() {
    for (text, name) in [("#ib_redo0", LogFileName::Log(0)), ("#ib_redo12_tmp", LogFileName::Spare(12))] {
        assert_eq!(LogFileName::parse(text.as_bytes()), Some(name));
        assert_eq!(name.to_string(), text);
    }
    for text in [
        "#ib_redo",
        "#ib_redo_tmp",
        "#ib_redo1x",
        "#ib_redo+1",
        "ib_logfile0",
        "#ib_redo99999999999999999999",
    ] {
        assert_eq!(LogFileName::parse(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn a_range_is_what_follows_the_header() {
    let file = FileRange { start_lsn: 8192, size_bytes: 65_536 };
    assert_eq!(file.end_lsn(), 8192 + 63_488);
    assert_eq!(file.offset_of(8192), Some(2048));
    assert_eq!(file.offset_of(8191), None);
    assert_eq!(file.offset_of(file.end_lsn()), None);
    assert_eq!(file.lsn_at(2048 + 513), Some(8705));
    assert_eq!(file.lsn_at(2047), None);
    assert_eq!(file.lsn_at(65_536), None);
    assert!(FileRange { start_lsn: 0, size_bytes: 10 }.end_lsn() == 0);
}
