use super::*;
use redoubt_page::layout::put;

fn image(kind: u16, records: u16) -> Vec<u8> {
    let mut page = vec![0; 16384];
    put(&mut page, 24, &kind.to_be_bytes());
    put(&mut page, PAGE_N_RECS, &records.to_be_bytes());
    page
}

const ALLOCATED: RunContent = RunContent {
    is_created: false,
    is_changed: false,
    records: Some(0),
    has_segments: false,
    index_id: None,
};
const CHANGED: RunContent = RunContent { is_changed: true, ..ALLOCATED };

fn created(records: Option<i32>) -> RunContent {
    RunContent { is_created: true, records, ..CHANGED }
}

fn inserted(records: i32) -> RunContent {
    RunContent { records: Some(records), ..CHANGED }
}

#[test]
fn a_page_that_was_only_allocated_must_be_empty() {
    let page = NewPage::after(None, &ALLOCATED, true).unwrap();
    assert!(page.agrees(&image(0, 0)));
    // Filled by a sort or a bulk load: an index page, and a page of a large value.
    assert!(!page.agrees(&image(TYPE_INDEX, 7)));
    assert!(!page.agrees(&image(24, 7)));
    let page = NewPage::after(Some(page), &CHANGED, false).unwrap();
    assert!(page.agrees(&image(24, 7)));
    assert!(!page.agrees(&image(TYPE_INDEX, 7)), "no record has made it a page of an index");
}

#[test]
fn a_page_of_an_index_must_have_the_records_that_the_redo_has_put_there() {
    let root = NewPage::after(None, &created(Some(0)), true).unwrap();
    assert!(root.is_empty_index() && root.agrees(&image(TYPE_INDEX, 0)));
    assert!(!root.agrees(&image(TYPE_INDEX, 3)), "filled without redo");
    let page = NewPage::after(Some(root), &inserted(5), false).unwrap();
    let page = NewPage::after(Some(page), &inserted(-2), false).unwrap();
    assert!(
        !page.is_empty_index() && page.agrees(&image(TYPE_RTREE, 3)) && !page.agrees(&image(TYPE_INDEX, 5))
    );
    let list_was_cut = RunContent { records: None, ..CHANGED };
    let page = NewPage::after(Some(page), &list_was_cut, false).unwrap();
    assert!(page.agrees(&image(TYPE_SDI, 1)) && !page.agrees(&image(2, 1)));
    assert_eq!(NewPage::after(Some(page), &inserted(1), false), Some(page));
    // Made empty once more.
    assert_eq!(
        NewPage::after(Some(page), &created(Some(4)), false),
        Some(NewPage::Index { records: Some(4), is_root: false })
    );
}

#[test]
fn nothing_is_known_of_a_page_that_was_there() {
    assert_eq!(NewPage::after(None, &inserted(5), false), None);
}

#[test]
fn a_root_gets_its_segments_before_it_is_made_a_page_of_an_index() {
    let segments = RunContent { has_segments: true, ..CHANGED };
    let page = NewPage::after(None, &ALLOCATED, true);
    let page = NewPage::after(page, &segments, false);
    let root = NewPage::after(page, &created(Some(0)), false).unwrap();
    assert!(root.is_empty_root());
    assert!(!NewPage::after(Some(root), &inserted(1), false).unwrap().is_empty_root());
    // Segments and creation in one run; and a page of a split, which has no segments.
    let whole = RunContent { has_segments: true, ..created(Some(0)) };
    assert!(NewPage::after(None, &whole, true).unwrap().is_empty_root());
    let page = NewPage::after(None, &ALLOCATED, true);
    assert!(!NewPage::after(page, &created(Some(0)), false).unwrap().is_empty_root());
    // The root of an older index that is emptied to grow by a level.
    assert!(!NewPage::after(None, &created(Some(0)), false).unwrap().is_empty_root());
}
