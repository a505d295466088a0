//! The trace file: round trips, every single-byte damage, random bytes.

use super::*;

fn records(seed: u64, count: usize) -> Vec<Record> {
    let mut random = fastrand::Rng::with_seed(seed);
    let ops = [Op::Write, Op::Trim, Op::Flush, Op::Mark];
    (0..count)
        .map(|_| Record {
            time_us: random.u64(..),
            sector: random.u64(..) >> 1,
            sectors: random.u32(1..),
            op: ops[random.usize(..ops.len())],
            origin: Origin::ALL[random.usize(..Origin::ALL.len())],
        })
        .collect()
}

fn encode(records: &[Record]) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new()).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
    assert_eq!(writer.records(), records.len() as u64);
    writer.finish().unwrap()
}

fn decode(bytes: &[u8]) -> std::result::Result<Vec<Record>, TraceError> {
    TraceReader::new(bytes)?.collect()
}

#[test]
fn what_is_written_is_read() {
    for seed in 0..20 {
        let written = records(seed, 100);
        assert_eq!(decode(&encode(&written)).unwrap(), written);
    }
    assert_eq!(decode(&encode(&[])).unwrap(), []);
}

#[test]
fn the_layout_is_the_documented_one() {
    let record = Record {
        time_us: 0x0102_0304_0506_0708,
        sector: 0x1112_1314_1516_1718,
        sectors: 0x2122_2324,
        op: Op::Trim,
        origin: Origin::DataHot,
    };
    let bytes = encode(&[record]);
    assert_eq!(&bytes[..16], b"RDTRACE1\x18\0\0\0\0\0\0\0");
    assert_eq!(
        &bytes[16..],
        b"\x08\x07\x06\x05\x04\x03\x02\x01\x18\x17\x16\x15\x14\x13\x12\x11\x24\x23\x22\x21\x01\x06\0\0"
    );
}

#[test]
fn codes_of_origins_are_their_places() {
    for (code, origin) in Origin::ALL.into_iter().enumerate() {
        assert_eq!(origin as usize, code);
        assert_eq!(serde_json::to_value(origin).unwrap(), origin.name());
    }
}

#[test]
fn a_file_cut_anywhere_is_whole_records_or_an_error_with_its_offset() {
    let written = records(3, 4);
    let bytes = encode(&written);
    for len in 0..bytes.len() {
        let result = decode(&bytes[..len]);
        if len < HEADER_LEN_BYTES {
            assert!(matches!(result, Err(TraceError::Header { .. })), "{len}");
        } else if (len - HEADER_LEN_BYTES).is_multiple_of(RECORD_LEN_BYTES) {
            let count = (len - HEADER_LEN_BYTES) / RECORD_LEN_BYTES;
            assert_eq!(result.unwrap(), written[..count]);
        } else {
            let Err(TraceError::Truncated { index, offset_bytes }) = result else {
                panic!("{len}: {result:?}")
            };
            assert_eq!(offset_bytes, 16 + 24 * index);
            assert!(offset_bytes < len as u64 && (len as u64) < offset_bytes + 24);
        }
    }
}

#[test]
fn what_is_read_from_damaged_bytes_is_what_they_say() {
    let bytes = encode(&records(5, 3));
    let mut refused = 0;
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1 << bit;
            match decode(&damaged) {
                Ok(read) => assert_eq!(encode(&read), damaged),
                Err(TraceError::Header { .. }) => {
                    assert!(position < HEADER_LEN_BYTES);
                    refused += 1;
                }
                Err(TraceError::Record { index, offset_bytes, .. }) => {
                    assert_eq!(offset_bytes, 16 + 24 * index);
                    assert_eq!((position as u64 - 16) / 24, index);
                    refused += 1;
                }
                Err(other) => panic!("{position}: {other}"),
            }
        }
    }
    // Every bit of the header, at least the zero bytes and most bits of the codes of each record.
    assert!(refused >= 16 * 8 + 3 * (16 + 6 + 5), "{refused}");
}

#[test]
fn random_bytes_are_refused_or_read_back_to_themselves() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut bytes = [0; RECORD_LEN_BYTES];
        random.fill(&mut bytes);
        // Mostly plausible codes, or nothing would ever pass them.
        bytes[20] %= 6;
        bytes[21] %= 9;
        if random.bool() {
            bytes[22..].fill(0);
        }
        if let Ok(record) = Record::decode(&bytes) {
            assert_eq!(record.encode(), bytes);
            accepted += 1;
        }
    }
    assert!((1_000..15_000).contains(&accepted), "{accepted}");
}

#[test]
fn a_write_of_nothing_or_past_the_end_is_refused_on_both_sides() {
    let good = Record { time_us: 0, sector: 8, sectors: 8, op: Op::Write, origin: Origin::Data };
    for bad in [
        Record { sectors: 0, ..good },
        Record { sectors: 0, op: Op::Trim, ..good },
        Record { sector: u64::MAX - 3, ..good },
    ] {
        assert!(matches!(
            TraceWriter::new(Vec::new()).unwrap().write(&bad),
            Err(TraceError::Record { offset_bytes: 16, .. })
        ));
        assert!(Record::decode(&bad.encode()).is_err());
    }
    for fine in [Record { sectors: 0, op: Op::Flush, ..good }, Record { sectors: 0, op: Op::Mark, ..good }] {
        assert_eq!(Record::decode(&fine.encode()), Ok(fine));
    }
}

#[test]
fn a_reader_ends_after_an_error() {
    let mut bytes = encode(&records(7, 2));
    bytes[16 + 20] = 99;
    let mut reader = TraceReader::new(bytes.as_slice()).unwrap();
    assert!(matches!(reader.next(), Some(Err(TraceError::Record { index: 0, .. }))));
    assert!(reader.next().is_none());
}

#[test]
fn files_and_descriptions_lie_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stock.trace");
    let written = records(9, 10);
    let mut writer = TraceWriter::create(&path).unwrap();
    written.iter().for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap();
    let read: Vec<_> = TraceReader::open(&path).unwrap().map(|record| record.unwrap()).collect();
    assert_eq!(read, written);

    let info = TraceInfo {
        label: "stock".into(),
        device_sectors: 1 << 21,
        transactions: 12,
        seconds: 1.5,
        page_len_bytes: 16384,
        row: Some("Stock, doublewrite".into()),
        streams: vec!["one".into(), "doublewrite".into()],
        journal_mb: Some(128),
        description: [("server".to_owned(), "10.11".to_owned())].into(),
        ..TraceInfo::default()
    };
    info.save(&path).unwrap();
    assert!(dir.path().join("stock.json").exists());
    assert_eq!(TraceInfo::load(&path).unwrap(), info);

    fs::write(dir.path().join("stock.json"), "{\"label\": \"x\"}").unwrap();
    let message = TraceInfo::load(&path).unwrap_err().to_string();
    assert!(message.contains("stock.json") && message.contains("device_sectors"), "{message}");
    let message = TraceReader::open(&dir.path().join("none.trace")).unwrap_err().to_string();
    assert!(message.contains("none.trace"), "{message}");
}
