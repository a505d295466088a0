//! Header and checkpoint blocks, the mapping of LSNs, and refused formats.

use super::*;

fn header() -> LogHeader {
    LogHeader { first_lsn: Lsn(12_288), creator: b"MariaDB 10.11.19".to_vec() }
}

/// A header with another format number and a right checksum.
fn with_format(format: u32) -> [u8; HEADER_LEN_BYTES] {
    let mut block = header().build();
    put(&mut block, 0, &format.to_be_bytes());
    let crc = crc32c::crc32c(&block[..HEADER_CRC_OFFSET]);
    put(&mut block, HEADER_CRC_OFFSET, &crc.to_be_bytes());
    block
}

#[test]
fn header_round_trips_and_damage_is_noticed() {
    let block = header().build();
    assert_eq!(LogHeader::parse(&block), Ok(header()));
    assert_eq!(&block[..4], b"Phys");
    for byte in 4..HEADER_LEN_BYTES {
        let mut bad = block;
        bad[byte] ^= 1;
        assert!(matches!(LogHeader::parse(&bad), Err(LogFileError::HeaderChecksum { .. })), "{byte}");
    }
    assert!(matches!(LogHeader::parse(&block[..511]), Err(LogFileError::Short { .. })));
}

#[test]
fn other_formats_are_refused_by_name() {
    let encrypted = LogHeader::parse(&with_format(FORMAT_ENCRYPTED)).unwrap_err();
    assert_eq!(encrypted, LogFileError::Encrypted);
    assert!(encrypted.to_string().contains("innodb_encrypt_log"));
    for format in [0, 1, 103, 104, FORMAT_10_5, 104 | FORMAT_ENCRYPTED_FLAG] {
        assert_eq!(LogHeader::parse(&with_format(format)), Err(LogFileError::OldFormat { format }));
    }
    let format = 0x1234_5678;
    assert_eq!(LogHeader::parse(&with_format(format)), Err(LogFileError::UnknownFormat { format }));

    let mut key_set = header().build();
    key_set[CREATOR_END + 3] = 1;
    let crc = crc32c::crc32c(&key_set[..HEADER_CRC_OFFSET]);
    put(&mut key_set, HEADER_CRC_OFFSET, &crc.to_be_bytes());
    assert_eq!(LogHeader::parse(&key_set), Err(LogFileError::Encrypted));
}

#[test]
fn checkpoint_round_trips_and_the_newest_wins() {
    let at = |lsn| CheckpointBlock { checkpoint_lsn: Lsn(lsn), end_lsn: Lsn(lsn + 100) };
    let block = at(20_000).build();
    assert_eq!(CheckpointBlock::parse(&block), Some(at(20_000)));
    for byte in 0..CHECKPOINT_LEN_BYTES {
        let mut bad = block;
        bad[byte] ^= 1;
        assert_eq!(CheckpointBlock::parse(&bad), None, "{byte}");
    }
    assert_eq!(CheckpointBlock::parse(&[0; 64]), None);
    let tie = CheckpointBlock { end_lsn: Lsn(20_001), ..at(20_000) };
    assert_eq!(CheckpointBlock::newest(Some(at(20_000)), Some(tie)), Some(tie));
    assert_eq!(CheckpointBlock::newest(Some(at(20_001)), Some(tie)), Some(at(20_001)));
    assert_eq!(CheckpointBlock::newest(Some(at(20_001)), None), Some(at(20_001)));
    assert_eq!(CheckpointBlock::newest(None, None), None);
}

#[test]
fn lsns_map_to_offsets_and_back() {
    let geometry = LogGeometry::new(Lsn(50_000), 12_288 + 1000).unwrap();
    assert_eq!(geometry.offset_of(Lsn(50_000)), 12_288);
    assert_eq!(geometry.offset_of(Lsn(50_999)), 13_287);
    assert_eq!(geometry.offset_of(Lsn(51_000)), 12_288);
    let bits: Vec<_> =
        [50_000, 50_999, 51_000, 51_999, 52_000].map(|lsn| geometry.sequence_bit(Lsn(lsn))).into();
    assert_eq!(bits, [1, 1, 0, 0, 1]);
    let end = Lsn(52_500);
    for lsn in 51_500..52_500 {
        assert_eq!(geometry.lsn_at(geometry.offset_of(Lsn(lsn)), end), Some(Lsn(lsn)));
    }
    assert_eq!(geometry.lsn_at(12_288 + 10, Lsn(50_010)), None);
    assert_eq!(geometry.lsn_at(12_288 + 9, Lsn(50_010)), Some(Lsn(50_009)));
    assert_eq!(geometry.lsn_at(12_287, end), None);
    assert_eq!(geometry.lsn_at(13_288, end), None);
    assert!(LogGeometry::new(Lsn(50_000), 12_288).is_err());
    assert!(LogGeometry::new(Lsn(12_287), 99_999).is_err());
    assert!(LogGeometry::new(Lsn(u64::MAX), 99_999).is_err());
}

#[test]
fn the_clean_end_is_the_one_mini_transaction_of_a_new_database() {
    // As in crate::mariadb::walk's tests.
    let first = [0xfa, 0, 0, 0, 0, 0, 0, 0, 0, 0x30, 0, 0x01, 0x1f, 0xec, 0x1a, 0x80];
    let geometry = LogGeometry::new(FIRST_LSN, 1 << 20).unwrap();
    assert_eq!(CleanEnd::at(FIRST_LSN, &geometry).redo, first);
    // The end byte of one that spans the end of the file is on the second lap.
    let at_the_end = FIRST_LSN.advance(geometry.capacity_bytes() - 11);
    assert_eq!(CleanEnd::at(at_the_end, &geometry).redo[11], 0);
}
