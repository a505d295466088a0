//! Every type as the server writes it, cut off anywhere, and changed anywhere.

use super::*;
use crate::mysql::test_encoder::{self as encoder, TYPES, c32, clustered_index, group, record, record_of};
use crate::types::{PageNo, SpaceId};

fn one(bytes: &[u8]) -> Record<'_> {
    let mut reader = RecordReader::new(bytes);
    let record = reader.next().unwrap().unwrap();
    assert_eq!(reader.offset_in_bytes(), bytes.len());
    assert!(reader.next().is_none());
    record
}

/// Tests are short-lived.
fn leak(bytes: Vec<u8>) -> &'static [u8] {
    bytes.leak()
}

fn error(bytes: &[u8]) -> RedoError {
    RecordReader::new(bytes).next().unwrap().unwrap_err()
}

#[test]
fn every_type_is_read_whole_and_not_when_it_is_cut() {
    let mut rng = fastrand::Rng::with_seed(11);
    for &kind in TYPES {
        for _ in 0..200 {
            let bytes = record_of(kind, rng.u32(1..400), rng.u32(1..70_000), &mut rng);
            one(&bytes);
            let cut = rng.usize(1..bytes.len());
            // INIT_FILE_PAGE and the like end with the page ids, and a cut number is no other number.
            assert!(
                matches!(error(&bytes[..cut]), RedoError::Truncated { offset, .. } if offset == cut),
                "{kind}"
            );
            let single = group(&[bytes]);
            one(&single);
        }
    }
}

#[test]
fn changed_bytes_never_panic() {
    let mut rng = fastrand::Rng::with_seed(12);
    for _ in 0..60_000 {
        let kind = TYPES[rng.usize(0..TYPES.len())];
        let mut bytes = record_of(kind, rng.u32(..), rng.u32(..), &mut rng);
        for _ in 0..rng.u8(1..4) {
            let at = rng.usize(0..bytes.len());
            bytes[at] = rng.u8(..);
        }
        for record in RecordReader::new(&bytes) {
            let Ok(record) = record else { break };
            touch(&record);
        }
        let noise: Vec<u8> = (0..rng.usize(0..60)).map(|_| rng.u8(..)).collect();
        RecordReader::new(&noise).for_each(drop);
    }
}

fn touch(record: &Record<'_>) {
    match record.body {
        Body::UpdateInPlace { fields, index, .. } => {
            assert_eq!(fields.count(), usize::from(fields.count));
            let _ = index.columns(&mut Vec::new());
        }
        Body::ListEndCopyCreated { inserts, index } => {
            inserts.for_each(drop);
            let _ = index.columns(&mut Vec::new());
        }
        Body::Insert { index, .. } | Body::Delete { index, .. } => {
            let _ = index.columns(&mut Vec::new());
        }
        _ => {}
    }
}

#[test]
fn numbers_fit_their_bytes() {
    assert_eq!(
        one(leak(record(2, 5, 300, &[0x00, 0x36, 0x81, 0x02]))),
        Record { page: PageId::new(5, 300), body: Body::Number { offset: 54, len_bytes: 2, value: 258 } }
    );
    assert!(matches!(error(&record(1, 5, 3, &[0, 54, 0x81, 0x02])), RedoError::BadNumber { value: 258, .. }));
    assert!(matches!(error(&record(2, 5, 3, &[0, 54, 0xc1, 0, 0])), RedoError::BadNumber { .. }));
    let large = one(leak(record(4, 0xffff_ffef, 3, &[0, 54, 0xfb, 0xff])));
    assert_eq!(large.page.space, SpaceId(0xffff_ffef));
    assert_eq!(large.body, Body::Number { offset: 54, len_bytes: 4, value: 0xffff_ffff });
    let body = one(leak(record(8, 1, 2, &[0, 54, 1, 0, 0, 0, 7]))).body;
    assert_eq!(body, Body::Number { offset: 54, len_bytes: 8, value: (1 << 32) + 7 });
}

#[test]
fn an_insert_is_short_or_has_a_shape() {
    let index = clustered_index();
    let short = [&index[..], &[0, 99, 6, 1, 2, 3]].concat();
    let Body::Insert { predecessor_offset: 99, body, .. } = one(leak(record(67, 1, 4, &short))).body else {
        panic!()
    };
    assert_eq!(body, InsertBody { header: None, tail: &[1, 2, 3] });
    let long = [&index[..], &[0, 99, 7, 0x20, 8, 12, 1, 2, 3]].concat();
    let Body::Insert { body, .. } = one(leak(record(67, 1, 4, &long))).body else { panic!() };
    let header = InsertHeader { info_and_status_bits: 0x20, origin_offset: 8, mismatch_offset: 12 };
    assert_eq!(body, InsertBody { header: Some(header), tail: &[1, 2, 3] });
}

#[test]
fn system_columns_stay_with_the_flag() {
    let system = [1, 0xa1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 9, 9];
    for (flags, expected) in [
        (0, Some(SystemColumns { trx_id_position: 1, trx_id: 0x909, roll_pointer: 0xa1_0203_0405_0607 })),
        (KEEP_SYSTEM_COLUMNS, None),
    ] {
        let rest = [&clustered_index()[..], &[flags, 1], &system, &[1, 0]].concat();
        let Body::ClusteredDeleteMark { is_deleted: true, system, offset: 256, .. } =
            one(leak(record(68, 1, 4, &rest))).body
        else {
            panic!()
        };
        assert_eq!(system, expected);
    }
}

#[test]
fn an_update_has_null_and_virtual_fields() {
    let mut rest =
        [&clustered_index()[..], &[0], &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9], &[1, 0, 0x20, 3]].concat();
    rest.extend([3, 2, 0xaa, 0xbb]);
    rest.push(4);
    c32(u32::MAX, &mut rest);
    c32(u32::from(super::super::record::FIRST_VIRTUAL_FIELD) + 2, &mut rest);
    rest.push(0);
    let bytes = record(70, 1, 4, &rest);
    let Body::UpdateInPlace { info_bits: 0x20, fields, .. } = one(&bytes).body else { panic!() };
    assert_eq!(fields.len(), 3);
    let fields: Vec<_> = fields.collect();
    assert_eq!(fields[0], FieldUpdate { field: 3, data: Some(&[0xaa, 0xbb]) });
    assert_eq!(fields[1], FieldUpdate { field: 4, data: None });
    assert_eq!(fields[2], FieldUpdate { field: 1025, data: Some(&[]) });
}

#[test]
fn copied_records_end_where_their_length_says() {
    let index = clustered_index();
    let good = [&index[..], &[0, 0, 0, 7], &[7, 0, 5, 0, 1, 2, 3]].concat();
    let Body::ListEndCopyCreated { inserts, .. } = one(leak(record(71, 1, 4, &good))).body else { panic!() };
    assert_eq!(inserts.count(), 1);
    let bad = [&index[..], &[0, 0, 0, 6], &[7, 0, 5, 0, 1, 2, 3]].concat();
    assert!(matches!(error(&record(71, 1, 4, &bad)), RedoError::BadNumber { .. }));
    let huge = [&index[..], &[0, 5, 0, 0], &[7, 0, 5, 0, 1, 2, 3]].concat();
    assert!(matches!(error(&record(71, 1, 4, &huge)), RedoError::BadNumber { .. }));
}

#[test]
fn paths_are_checked() {
    let undo = record(33, 0xffff_ffef, 0, b"\0\0\x40\x15\0\x0b./undo_001\0");
    assert_eq!(one(&undo).body, Body::FileCreate { path: b"./undo_001", flags: 0x4015 });
    assert!(matches!(
        error(&record(33, 7, 0, b"\0\0\x40\x15\0\x0b./undo_001\0")),
        RedoError::BadNumber { .. }
    ));
    let delete = record(35, 7, 0, b"\0\x0a./a/b.ibd\0"[..].split_at(12).0);
    assert_eq!(one(&delete).body, Body::File(FileRecord::Delete { path: b"./a/b.ibd" }));
    for bad in [&b"\0\x0a./a\0b.ibd\0"[..], b"\0\x0a./a/b.ibdx", b"\0\x04.ib\0"] {
        assert!(matches!(error(&record(35, 7, 0, bad)), RedoError::BadNumber { .. }));
    }
    // The system tablespace is extended, never created.
    assert!(matches!(error(&record(35, 0, 0, b"\0\x0a./a/b.ibd\0")), RedoError::BadNumber { .. }));
    assert!(matches!(error(&record(35, 7, 1, b"\0\x0a./a/b.ibd\0")), RedoError::BadNumber { .. }));
    let extend = record(65, 0, 0, &[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0]);
    let expected = FileRecord::Extend { offset_bytes: 65_536, len_bytes: 16_384 };
    assert_eq!(one(&extend), Record { page: PageId::new(0, 0), body: Body::File(expected) });
}

#[test]
fn types_that_are_not_read_say_why() {
    for (kind, reason) in [
        (9, "8.0.30"),
        (38, "8.0.30"),
        (66, "release build"),
        (28, "release build"),
        (31, "end"),
        (77, "newer"),
        (0, "newer"),
    ] {
        let error = error(&record(kind, 1, 2, &[0; 40]));
        assert!(error.to_string().contains(reason), "{kind}: {error}");
    }
    assert!(matches!(error(&[0x80 | 32]), RedoError::BadByte { .. }));
    assert_eq!(one(&[32]).body, Body::Dummy);
}

#[test]
fn metadata_has_no_page() {
    let bytes = [62, 0x84, 0x2a, 5, 2, 0xff, 1, 7];
    let record = one(&bytes);
    assert_eq!(record.page, Record::NO_PAGE);
    let change = MetadataChange::AutoIncrement((1 << 32) + 7);
    assert_eq!(record.body, Body::DynamicMetadata(DynamicMetadata { table_id: 1066, version: 5, change }));
    assert_eq!(record.page.page_no, PageNo(u32::MAX));
    let mut rng = fastrand::Rng::with_seed(1);
    let corrupt = [&[62, 1, 1, 1, 2][..], &[7; 24]].concat();
    let Body::DynamicMetadata(DynamicMetadata { change: MetadataChange::CorruptIndexes(indexes), .. }) =
        one(&corrupt).body
    else {
        panic!()
    };
    assert_eq!(indexes, [[7; 12]; 2]);
    encoder::random_group(&mut rng);
}
