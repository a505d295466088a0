//! Indexes as the server describes them.

use super::*;
use crate::mysql::test_encoder::{clustered_index, compact_index};

fn decode(bytes: &[u8]) -> Result<IndexInfo<'_>, RedoError> {
    let mut cursor = Cursor::new(bytes, 0);
    let index = IndexInfo::decode(&mut cursor)?;
    assert_eq!(cursor.at, bytes.len());
    Ok(index)
}

/// A versioned compact index: codes, then (logical, physical, added, dropped).
fn versioned(fields: &[u16], versions: &[(u16, u16, Option<u8>, Option<u8>)]) -> Vec<u8> {
    let mut out = compact_index(1, fields);
    out[1] = 3;
    out.extend((versions.len() as u16).to_be_bytes());
    for &(logical, physical, added, dropped) in versions {
        out.extend(logical.to_be_bytes());
        let flags = (u16::from(added.is_some()) << 15) | (u16::from(dropped.is_some()) << 14);
        out.extend((physical | flags).to_be_bytes());
        out.extend(added);
        out.extend(dropped);
    }
    out
}

const FIELDS: [u16; 7] = [0x8004, 0x8006, 0x8007, 4, 4, 0, 0x7fff];

fn positions(bytes: &[u8]) -> Vec<u16> {
    let mut columns = Vec::new();
    decode(bytes).unwrap().columns(&mut columns).unwrap();
    columns.iter().map(|column| column.physical_position).collect()
}

#[test]
fn a_compact_index_has_fields() {
    let bytes = clustered_index();
    let index = decode(&bytes).unwrap();
    assert!(
        index.is_compact() && index.is_clustered() && !index.has_row_versions() && !index.has_old_instant()
    );
    assert_eq!((index.n_fields(), index.n_unique()), (7, 1));
    assert_eq!((index.trx_id_position(), index.roll_pointer_position()), (Some(1), Some(2)));
    assert_eq!(index.bytes(), bytes);
    let fields: Vec<_> = index.fields().collect();
    assert_eq!(fields.len(), 7);
    assert_eq!(fields[0], Field { fixed_len_bytes: Some(4), is_nullable: false, is_big: false });
    assert_eq!(fields[3], Field { fixed_len_bytes: None, is_nullable: true, is_big: false });
    assert_eq!(fields[4], Field { fixed_len_bytes: None, is_nullable: true, is_big: true });
    assert_eq!(fields[6], Field { fixed_len_bytes: Some(32), is_nullable: false, is_big: false });
    assert_eq!(
        (0..8).map(|at| index.field(at)).collect::<Vec<_>>()[..7],
        fields.into_iter().map(Some).collect::<Vec<_>>()
    );
    assert_eq!(index.field(7), None);
    assert_eq!(positions(&bytes), [0, 1, 2, 3, 4, 5, 6]);
    let secondary = compact_index(2, &[0x8004, 0]);
    let index = decode(&secondary).unwrap();
    assert!(!index.is_clustered() && index.trx_id_position().is_none());
}

#[test]
fn a_redundant_index_is_two_bytes() {
    let index = decode(&[1, 0]).unwrap();
    assert!(!index.is_compact() && !index.is_clustered());
    assert_eq!((index.n_fields(), index.field(0), index.fields().len()), (1, None, 0));
    assert_eq!(positions(&[1, 0]), [0]);
    let bytes = [1, 2, 0, 5, 0, 1, 0, 4, 0x80, 4, 1];
    let index = decode(&bytes).unwrap();
    assert!(index.is_clustered() && index.has_row_versions());
    assert_eq!((index.n_fields(), index.trx_id_position()), (5, None));
    assert_eq!(positions(&bytes), [0, 1, 2, 3, 4]);
    assert_eq!(index.current_row_version(), 1);
}

#[test]
fn old_instant_columns_have_a_count() {
    let mut bytes = clustered_index();
    bytes[1] = 5;
    bytes.splice(4..4, [0, 5]);
    let index = decode(&bytes).unwrap();
    assert!(index.has_old_instant() && index.is_clustered());
    assert_eq!((index.n_before_instant(), index.n_unique()), (Some(5), 1));
    assert_eq!(index.fields().len(), 7);
    assert_eq!(index.field(6).unwrap().fixed_len_bytes, Some(32));
    bytes[5] = 8;
    assert!(decode(&bytes).is_err());
}

#[test]
fn fields_that_are_not_listed_take_what_is_free() {
    // Added at the end: no field moves.
    let bytes = versioned(&FIELDS, &[(6, 6, Some(1), None)]);
    assert_eq!(positions(&bytes), [0, 1, 2, 3, 4, 5, 6]);
    // Added before the others: they are one further in the index than in the record.
    let bytes = versioned(&FIELDS, &[(3, 6, Some(1), None)]);
    assert_eq!(positions(&bytes), [0, 1, 2, 6, 3, 4, 5]);
    // Dropped: it stays where it was, and does not shift the others.
    let bytes = versioned(&FIELDS, &[(6, 3, None, Some(1))]);
    assert_eq!(positions(&bytes), [0, 1, 2, 4, 5, 6, 3]);
    // Added, then dropped: no shift either.
    let bytes = versioned(&FIELDS, &[(6, 6, Some(1), Some(2))]);
    assert_eq!(positions(&bytes), [0, 1, 2, 3, 4, 5, 6]);
    // One of each.
    let bytes = versioned(&FIELDS, &[(3, 6, Some(2), None), (6, 4, None, Some(1))]);
    assert_eq!(positions(&bytes), [0, 1, 2, 6, 3, 5, 4]);
    let index = decode(&bytes).unwrap();
    assert_eq!(index.current_row_version(), 2);
    assert_eq!(index.versioned_fields().count(), 2);
    let mut columns = Vec::new();
    index.columns(&mut columns).unwrap();
    assert_eq!((columns[3].version_added, columns[3].version_dropped), (Some(2), None));
    assert_eq!((columns[6].version_added, columns[6].version_dropped), (None, Some(1)));
}

#[test]
fn what_is_inconsistent_is_refused() {
    let bad: &[Vec<u8>] = &[
        vec![0, 1],
        vec![1, 8],
        compact_index(1, &[]),
        compact_index(1, &[0x8004, 0x8006]),
        compact_index(1, &[0x8004, 0x8006, 0x8008]),
        compact_index(3, &[0x8004, 0x8006]),
        compact_index(2, &[0; 1024]),
        versioned(&FIELDS, &[]),
        versioned(&FIELDS, &[(7, 3, Some(1), None)]),
        versioned(&FIELDS, &[(3, 7, Some(1), None)]),
        versioned(&FIELDS, &[(3, 3, Some(1), None), (3, 4, Some(1), None)]),
        versioned(&FIELDS, &[(3, 3, Some(1), None), (4, 3, Some(1), None)]),
    ];
    for bytes in bad {
        assert!(!matches!(decode(bytes), Ok(_) | Err(RedoError::Truncated { .. })), "{bytes:x?}");
    }
    // No place is left for the last field.
    let bytes = versioned(&FIELDS, &[(0, 6, None, None), (1, 0, None, None)]);
    assert!(decode(&bytes).unwrap().columns(&mut Vec::new()).is_err());
}

#[test]
fn a_secondary_index_with_row_versions_is_none() {
    let mut bytes = versioned(&FIELDS, &[(3, 3, Some(1), None)]);
    bytes[5] = 7;
    assert!(matches!(decode(&bytes), Err(RedoError::BadNumber { .. })));
}
