//! Records of every kind, against the format description, and invalid records.

use super::*;
use crate::mariadb::test_encoder::{MtrWriter, record, varint};

const PAGE: (u32, u32) = (7, 40);

fn read(records: &[u8]) -> Result<Vec<Record<'_>>, RedoError> {
    RecordReader::new(records).collect()
}

fn bodies(writer: &MtrWriter) -> Vec<Body<'_>> {
    read(&writer.records).unwrap().into_iter().map(|record| record.body).collect()
}

/// An EXTENDED payload: subtype, numbers, literal bytes.
fn payload(subtype: u8, numbers: &[u32], rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![subtype];
    for &number in numbers {
        varint(number, &mut bytes);
    }
    bytes.extend_from_slice(rest);
    bytes
}

#[test]
fn first_records_of_a_new_database() {
    let bytes = [0x12, 0, 0, 0xb2, 0x01, 0x08, 0xb5, 0x14, 0, 0, 0x03, 0, 0xc3, 0x08, 0x04, 0xff];
    let records = read(&bytes).unwrap();
    assert_eq!(
        records,
        [
            Record { page: Some(PageId::new(0, 0)), body: Body::InitPage },
            Record { page: None, body: Body::Write { distance: 1, data: &[8] } },
            Record { page: None, body: Body::Write { distance: 20, data: &[0, 0, 3, 0] } },
            Record { page: None, body: Body::Memset { distance: 8, len_bytes: 4, pattern: &[0xff] } },
        ]
    );
}

#[test]
fn checkpoint_record_of_a_new_database() {
    let bytes = [0xfa, 0, 0, 0, 0, 0, 0, 0, 0, 0x30, 0];
    let expected = Body::File(FileRecord::Checkpoint { lsn: Some(12_288) });
    assert_eq!(read(&bytes).unwrap(), [Record { page: Some(PageId::new(0, 0)), body: expected }]);
}

#[test]
fn page_records_of_every_kind() {
    let mut writer = MtrWriter::new();
    writer.init(PAGE).write(PAGE, 300, &[1; 400]).memset(PAGE, 2, 6, &[1, 2]);
    writer.memmove(PAGE, 20_000, 5, -7).memmove(PAGE, 1, 5, 7).option(PAGE).free((7, 41));
    assert_eq!(
        bodies(&writer),
        [
            Body::InitPage,
            Body::Write { distance: 300, data: &[1; 400] },
            Body::Memset { distance: 2, len_bytes: 6, pattern: &[1, 2] },
            Body::Memmove { distance: 20_000, len_bytes: 5, source_offset: -7 },
            Body::Memmove { distance: 1, len_bytes: 5, source_offset: 7 },
            Body::Option { payload: &[0, 1, 2, 3, 4] },
            Body::FreePage,
        ]
    );
}

#[test]
fn extended_records_of_every_subtype() {
    let insert = |comp, reuse_shift, rest| {
        Extended::Insert(Insert { comp, reuse_shift, prev: 300, enc: 9, hdr_c: 2, data_c: 3, rest })
    };
    let cases = [
        (payload(0, &[], &[]), Extended::InitRowFormatRedundant),
        (payload(1, &[], &[]), Extended::InitRowFormatDynamic),
        (payload(2, &[], &[]), Extended::UndoInit),
        (payload(3, &[], &[9; 20]), Extended::UndoAppend { data: &[9; 20] }),
        (payload(4, &[300, 9, 2, 3], &[5]), insert(false, None, &[5])),
        (payload(5, &[300, 9, 2, 3], &[]), insert(false, Some(0), &[])),
        (payload(6, &[300, 9, 2, 3], &[5; 40]), insert(true, None, &[5; 40])),
        (payload(7, &[300, 17, 9, 2, 3], &[5]), insert(true, Some(17), &[5])),
        (payload(8, &[400], &[]), Extended::DeleteRedundant { prev: 400 }),
        (payload(9, &[400, 6, 70], &[]), Extended::DeleteDynamic { prev: 400, hdr_size: 6, data_size: 70 }),
    ];
    for (bytes, expected) in cases {
        let mut writer = MtrWriter::new();
        writer.extended(PAGE, &bytes);
        assert_eq!(bodies(&writer), [Body::Extended(expected)]);
    }
    let mut writer = MtrWriter::new();
    writer.trim((3, 640));
    let expected = Body::Extended(Extended::TrimPages);
    assert_eq!(read(&writer.records).unwrap(), [Record { page: Some(PageId::new(3, 640)), body: expected }]);
}

#[test]
fn file_records_of_every_kind_before_page_records() {
    let mut writer = MtrWriter::new();
    writer.file(0xb0, 5, b"./test/t1.ibd").file(0x80, 5, b"./test/a_rather_long_table_name.ibd");
    writer.file(0x90, 5, b"./test/t1.ibd").file(0xa0, 5, b"./a/b.ibd\0./c/d.ibd").init((5, 0));
    assert_eq!(
        bodies(&writer),
        [
            Body::File(FileRecord::Modify { path: b"./test/t1.ibd" }),
            Body::File(FileRecord::Create { path: b"./test/a_rather_long_table_name.ibd" }),
            Body::File(FileRecord::Delete { path: b"./test/t1.ibd" }),
            Body::File(FileRecord::Rename { old_path: b"./a/b.ibd", new_path: b"./c/d.ibd" }),
            Body::InitPage,
        ]
    );
}

#[test]
fn checkpoint_padding_of_any_length() {
    let padding = [Body::File(FileRecord::Checkpoint { lsn: None })];
    for bytes in [vec![0xf1, 0], vec![0xf2, 0, 0], vec![0xf5, 0, 0, 0, 0, 0], vec![0xfa; 1]] {
        let bytes = if bytes == [0xfa] { [vec![0xfa], vec![0; 10]].concat() } else { bytes };
        let found: Vec<_> = read(&bytes).unwrap().into_iter().map(|record| record.body).collect();
        assert_eq!(found, padding, "{bytes:x?}");
    }
}

/// Each input, and the byte its error must name.
#[test]
fn illegal_records_are_refused_at_the_right_byte() {
    let page = |kind: u8, rest: &[u8]| {
        let mut bytes = Vec::new();
        record(kind, &[&[7, 40], rest].concat(), &mut bytes);
        bytes
    };
    let cases: Vec<(&str, Vec<u8>, usize)> = vec![
        ("reserved type", page(0x60, &[1]), 0),
        ("reserved type, same page", [page(0x30, &[9, 1]), vec![0xe1, 1]].concat(), 5),
        ("same page after FREE_PAGE", [page(0x00, &[]), vec![0xb2, 9, 1]].concat(), 3),
        ("same page after TRIM_PAGES", [page(0x20, &[10]), vec![0xb2, 9, 1]].concat(), 4),
        ("same-page FREE_PAGE", [page(0x30, &[9, 1]), vec![0x81, 0]].concat(), 5),
        ("same-page INIT_PAGE", [page(0x30, &[9, 1]), vec![0x91, 0]].concat(), 5),
        ("payload in INIT_PAGE", page(0x10, &[0]), 3),
        ("WRITE without data", page(0x30, &[9]), 4),
        ("WRITE without distance", page(0x30, &[]), 3),
        ("distance beyond a page", page(0x30, &[0xc1, 0, 0, 1]), 3),
        ("MEMSET without pattern", page(0x40, &[9, 4]), 5),
        ("MEMSET pattern longer than the range", page(0x40, &[9, 1, 1, 2]), 4),
        ("bytes after MEMMOVE", page(0x50, &[9, 4, 3, 0]), 6),
        ("unknown EXTENDED subtype", page(0x20, &[11]), 3),
        ("EXTENDED without subtype", page(0x20, &[]), 3),
        ("EXTENDED on page 2", vec![0x23, 7, 2, 1], 3),
        ("short UNDO_APPEND", page(0x20, &[3, 1, 2]), 6),
        ("bytes after UNDO_INIT", page(0x20, &[2, 1]), 4),
        ("INSERT without data_c", page(0x20, &[6, 1, 1, 1]), 7),
        ("bytes after DELETE", page(0x20, &[8, 1, 1]), 5),
        ("first record same-page WRITE is FILE_MODIFY", vec![0xb2, 9, 1], 1),
        ("unknown FILE_ type", vec![0xc4, 5, 0, 1, 1], 0),
        ("path without .ibd", vec![0xb5, 5, 0, b'a', b'b', b'c'], 5),
        ("path with NUL", vec![0xb8, 5, 0, 0, b'a', b'.', b'i', b'b', b'd'], 3),
        ("FILE_ record of tablespace 0", vec![0xb6, 0, 0, b'.', b'i', b'b', b'd'], 1),
        ("FILE_RENAME with one path", vec![0xa6, 5, 0, b'.', b'i', b'b', b'd'], 7),
        ("record after FILE_CHECKPOINT", vec![0xf2, 0, 0, 0x12, 1, 1], 3),
        ("checkpoint with stray byte", vec![0xf3, 0, 0, 1], 3),
        ("no tablespace id", vec![0x31, 0xf8], 1),
        ("record longer than the bytes", vec![0x3f, 7, 40, 9, 1], 5),
        ("end byte inside records", vec![0x12, 7, 40, 0x01], 3),
    ];
    for (name, bytes, at) in cases {
        let error = read(&bytes).expect_err(name);
        let found = match error {
            RedoError::BadByte { offset, byte, .. } => {
                assert_eq!(bytes[offset], byte, "{name}");
                offset
            }
            RedoError::Truncated { offset, .. } | RedoError::BadNumber { offset, .. } => offset,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(found, at, "{name}: {error}");
    }
}

#[test]
fn reader_ends_after_an_error() {
    let mut reader = RecordReader::new(&[0x61, 1, 0x12, 1, 1]);
    assert!(reader.next().unwrap().is_err());
    assert!(reader.next().is_none());
}

#[test]
fn page_run_reads_one_page_only() {
    let mut writer = MtrWriter::new();
    writer.write(PAGE, 100, &[1]).write(PAGE, 1, &[2]).write_absolute(PAGE, 90, &[3]);
    let run = PageRun::new(&writer.records).unwrap();
    assert_eq!(run.page(), PageId::new(PAGE.0, PAGE.1));
    let pages: Vec<_> = run.map(|record| record.unwrap().page.is_some()).collect();
    assert_eq!(pages, [true, false, true]);

    writer.write((7, 41), 100, &[1]);
    assert!(PageRun::new(&writer.records).unwrap().any(|record| record.is_err()));
    assert!(PageRun::new(&[]).is_err());
    assert!(PageRun::new(&[0xb2, 9, 1]).is_err());
}
