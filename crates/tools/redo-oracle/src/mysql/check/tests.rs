#![allow(clippy::unwrap_used)] // A test fails by panicking.

use std::path::PathBuf;

use redoubt_page::layout::{FIL_PAGE_TYPE, TYPE_INDEX};
use redoubt_redo::Family;

use super::*;

const PAGE: usize = 16384;
/// Flags of a DYNAMIC table with a dictionary copy.
const FLAGS: u32 = 0x4021;

/// Three pages of tablespace 7; the last is of this type.
fn tablespace(page_type: u16) -> Tablespace {
    let mut bytes = vec![0; 3 * PAGE];
    for (page_no, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
        page[4..8].copy_from_slice(&(page_no as u32).to_be_bytes());
        page[34..38].copy_from_slice(&7u32.to_be_bytes());
        page[FIL_PAGE_TYPE..FIL_PAGE_TYPE + 2].copy_from_slice(&page_type.to_be_bytes());
        page[100..200].fill(page_no as u8 + 1);
    }
    bytes[54..58].copy_from_slice(&FLAGS.to_be_bytes());
    let format = Format::of_page0(Family::MySql, &bytes).unwrap();
    Tablespace { path: PathBuf::from("d/t.ibd"), format, bytes }
}

fn differences(ours: &Tablespace, theirs: &Tablespace, since: &[PageId]) -> (Vec<String>, Checked) {
    let (touched, since) = (HashSet::new(), since.iter().copied().collect());
    let mut checked = Checked::default();
    let mut comparison =
        Comparison { touched: &touched, since: &since, checked: &mut checked, differences: Vec::new() };
    comparison.space(SpaceId(7), ours, theirs);
    let found = comparison.differences;
    (found, checked)
}

#[test]
fn a_byte_that_differs_is_found_unless_the_server_changed_the_page_since() {
    let theirs = tablespace(TYPE_INDEX);
    let (found, checked) = differences(&tablespace(TYPE_INDEX), &theirs, &[]);
    assert_eq!((found.len(), checked.untouched), (0, 3));
    let mut ours = tablespace(TYPE_INDEX);
    ours.bytes[2 * PAGE + 150] ^= 1;
    let (found, _) = differences(&ours, &theirs, &[]);
    assert!(found.len() == 1 && found[0].contains("page 7:2"), "{found:?}");
    let (found, checked) = differences(&ours, &theirs, &[PageId::new(7, 2)]);
    assert_eq!((found.len(), checked.untouched, checked.changed_since), (0, 2, 1));
}

#[test]
fn a_page_that_one_has_and_the_other_has_not_is_found() {
    let theirs = tablespace(TYPE_INDEX);
    let mut ours = tablespace(TYPE_INDEX);
    ours.bytes[2 * PAGE..].fill(0);
    assert_eq!(differences(&ours, &theirs, &[]).0.len(), 1);
    ours.bytes.truncate(2 * PAGE);
    assert_eq!(differences(&ours, &theirs, &[]).0.len(), 1);
    assert_eq!(differences(&theirs, &ours, &[]).0.len(), 1);
}

#[test]
fn only_the_direction_of_inserts_may_differ_and_only_of_an_r_tree() {
    for (page_type, offset, expected) in
        [(TYPE_RTREE, 51, 0), (TYPE_RTREE, 53, 0), (TYPE_RTREE, 54, 1), (TYPE_INDEX, 51, 1)]
    {
        let mut ours = tablespace(page_type);
        ours.bytes[2 * PAGE + offset] ^= 1;
        let found = differences(&ours, &tablespace(page_type), &[]).0;
        assert_eq!(found.len(), expected, "type {page_type}, byte {offset}: {found:?}");
    }
}

#[test]
fn another_name_or_other_flags_are_found() {
    let theirs = tablespace(TYPE_INDEX);
    let other_name = Tablespace { path: PathBuf::from("d/u.ibd"), ..tablespace(TYPE_INDEX) };
    assert_eq!(differences(&other_name, &theirs, &[]).0.len(), 1);
    let mut other_flags = tablespace(TYPE_INDEX);
    other_flags.format.flags = 0x21;
    assert_eq!(differences(&other_flags, &theirs, &[]).0.len(), 1);
}
