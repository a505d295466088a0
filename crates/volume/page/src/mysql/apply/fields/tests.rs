use super::*;
use redoubt_redo::mysql::{Body, RecordReader};

/// The description of an index, by way of a record that carries it.
fn with_index<T>(info: &[u8], test: impl FnOnce(IndexInfo<'_>) -> T) -> T {
    let record = [&[72, 7, 4][..], info].concat();
    match RecordReader::new(&record).next().unwrap().unwrap().body {
        Body::PageReorganize { index } => test(index),
        body => panic!("{body:?}"),
    }
}

/// INT NOT NULL, DB_TRX_ID, DB_ROLL_PTR, a big nullable string, a small NOT NULL one.
const INDEX: [u8; 16] = [1, 1, 0, 5, 0, 1, 0x80, 4, 0x80, 6, 0x80, 7, 0x7f, 0xff, 0x80, 0];

#[test]
fn lengths_of_one_and_two_bytes_and_nulls() {
    with_index(&INDEX, |index| {
        let mut instant = InstantIndex::default();
        let layout = RecordLayout::new(index, &mut instant).unwrap();
        for (lens, data_bytes) in [
            (&[3u8, 5, 0, 0, 0, 0, 0, 0][..], 17 + 5 + 3),
            (&[3, 0x2c, 0x81, 0, 0, 0, 0, 0, 0], 17 + 300 + 3),
            (&[3, 0x2c, 0xc1, 0, 0, 0, 0, 0, 0], 17 + 300 + 3),
            (&[3, 1, 0, 0, 0, 0, 0], 17 + 3),
        ] {
            let mut bytes = lens.to_vec();
            let origin = bytes.len();
            bytes.resize(origin + data_bytes, 0);
            let size = layout.size(&bytes, origin).unwrap();
            assert_eq!(size, RecordSize { extra_bytes: origin, data_bytes });
            let last = layout.field(&bytes, origin, 4).unwrap();
            assert_eq!((last.offset, last.len_bytes), (origin + data_bytes - 3, 3));
            let string = layout.field(&bytes, origin, 3).unwrap();
            assert_eq!(string.is_null, data_bytes == 20);
            assert!(layout.field(&bytes, origin, 5).is_err());
            for cut in 0..bytes.len() {
                assert!(layout.size(&bytes[..cut], origin).is_err());
            }
        }
        // A node pointer, and the supremum.
        let node = [0, 0, 0, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let size = layout.size(&node, 6).unwrap();
        assert_eq!(size, RecordSize { extra_bytes: 6, data_bytes: 8 });
        let supremum = [1, 0, 11, 0, 0, b's', b'u', b'p', b'r', b'e', b'm', b'u', b'm'];
        assert_eq!(layout.size(&supremum, 5).unwrap(), RecordSize { extra_bytes: 5, data_bytes: 8 });
        assert!(layout.size(&[0, 0, 4, 0, 0, 0], 5).is_err());
    });
}

#[test]
fn fields_of_a_version() {
    // The string is dropped in version 2; a fixed nullable one, before it in the index, came with version 1.
    let mut info = INDEX.to_vec();
    (info[1], info[3]) = (3, 6);
    info.splice(12..12, [0, 2]);
    info.extend([0, 2, 0, 3, 0x80, 5, 1, 0, 4, 0x40, 3, 2]);
    with_index(&info, |index| {
        let mut instant = InstantIndex::default();
        let layout = RecordLayout::new(index, &mut instant).unwrap();
        // Version 0 has no version byte; lengths: 3 of the last, 5 of the string.
        let v0 = [&[3u8, 5, 0, 0, 0, 0, 0, 0][..], &[0; 25]].concat();
        assert_eq!(layout.size(&v0, 8).unwrap(), RecordSize { extra_bytes: 8, data_bytes: 25 });
        assert!(layout.field(&v0, 8, 3).is_err());
        assert_eq!(layout.field(&v0, 8, 4).unwrap().offset, 8 + 17);
        let v1 = [&[3u8, 5, 0, 1, 0x40, 0, 0, 0, 0][..], &[0; 27]].concat();
        assert_eq!(layout.size(&v1, 9).unwrap(), RecordSize { extra_bytes: 9, data_bytes: 27 });
        assert_eq!(layout.field(&v1, 9, 3).unwrap().offset, 9 + 25);
        let v2 = [&[3u8, 0, 2, 0x40, 0, 0, 0, 0][..], &[0; 22]].concat();
        assert_eq!(layout.size(&v2, 8).unwrap(), RecordSize { extra_bytes: 8, data_bytes: 22 });
        assert!(layout.field(&v2, 8, 4).is_err());
        assert_eq!(layout.field(&v2, 8, 5).unwrap().offset, 8 + 17);
        let null = [&[3u8, 1, 2, 0x40, 0, 0, 0, 0][..], &[0; 20]].concat();
        assert_eq!(layout.size(&null, 8).unwrap().data_bytes, 20);
        assert!(layout.field(&null, 8, 3).unwrap().is_null);
        // Both kinds of instant change in one record.
        let both = [&[3u8, 0, 2, 0xc0, 0, 0, 0, 0][..], &[0; 22]].concat();
        assert!(layout.size(&both, 8).is_err());
    });
}

#[test]
fn what_is_derived_is_kept_for_the_same_index_only() {
    let mut versions = INDEX.to_vec();
    versions[1] = 3;
    versions.extend([0, 1, 0, 3, 0x40, 3, 1]);
    let mut other = versions.clone();
    *other.last_mut().unwrap() = 2;
    let mut instant = InstantIndex::default();
    let record = [&[3u8, 1, 0x40, 0, 0, 0, 0][..], &[0; 60]].concat();
    for (info, data_bytes) in
        [(&versions, Some(20)), (&versions, Some(20)), (&other, None), (&versions, Some(20))]
    {
        with_index(info, |index| {
            let layout = RecordLayout::new(index, &mut instant).unwrap();
            let size = layout.size(&record, 7);
            match data_bytes {
                Some(data_bytes) => assert_eq!(size.unwrap().data_bytes, data_bytes),
                None => assert!(size.is_err()),
            }
        });
    }
}

/// A REDUNDANT table to which a server before 8.0.29 added columns: the description has nothing but that.
#[test]
fn redundant_records_of_old_instant_tables_describe_themselves() {
    with_index(&[1, 4], |index| {
        let mut instant = InstantIndex::default();
        let layout = RecordLayout::new(index, &mut instant).unwrap();
        // Four fields that end after 6, 12, 19 and 24 bytes.
        let record = [&[24u8, 19, 12, 6, 0, 0, 0, 9, 0, 0][..], &[0; 24]].concat();
        assert_eq!(layout.size(&record, 10).unwrap(), RecordSize { extra_bytes: 10, data_bytes: 24 });
        let last = layout.field(&record, 10, 3).unwrap();
        assert_eq!((last.offset, last.len_bytes), (10 + 19, 5));
        // Added after the record was written.
        assert!(layout.field(&record, 10, 4).is_err());
    });
}
