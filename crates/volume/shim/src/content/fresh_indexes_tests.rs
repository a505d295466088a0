use super::*;
use redoubt_page::layout::{TYPE_INDEX, put};

fn image(kind: u16, id: u64, records: u16) -> Vec<u8> {
    let mut page = vec![0; 16384];
    put(&mut page, 24, &kind.to_be_bytes());
    put(&mut page, PAGE_INDEX_ID, &id.to_be_bytes());
    put(&mut page, PAGE_N_RECS, &records.to_be_bytes());
    page
}

/// Before INDEX_LOAD.
const CHANGED: Lsn = Lsn(40);
const ROOT: PageId = PageId::new(7, 4);
const OTHER: PageId = PageId::new(7, 9);

#[test]
fn no_page_of_an_index_that_may_be_filled_is_explained_but_its_empty_root() {
    let fresh = FreshIndexes::default();
    fresh.start_from(99);
    fresh.created(ROOT, 100);
    assert!(fresh.allow(ROOT, &image(TYPE_INDEX, 100, 0), true, CHANGED));
    assert!(!fresh.allow(ROOT, &image(TYPE_INDEX, 100, 3), true, CHANGED));
    // A page that another index had before.
    assert!(!fresh.allow(OTHER, &image(TYPE_INDEX, 100, 0), false, CHANGED));
    assert!(fresh.allow(OTHER, &image(TYPE_INDEX, 99, 3), false, CHANGED), "of an older index");
    assert!(
        fresh.allow(PageId::new(8, 9), &image(TYPE_INDEX, 100, 3), false, CHANGED),
        "of another tablespace"
    );
    // A part of a large value, and an undo page.
    assert!(
        !fresh.allow(OTHER, &image(24, 0, 0), false, CHANGED)
            && fresh.allow(OTHER, &image(24, 0, 0), true, CHANGED)
    );
    assert!(fresh.allow(OTHER, &image(2, 0, 0), false, CHANGED));
    fresh.loaded(SpaceId(8), 100, Lsn(50));
    assert!(!fresh.allow(OTHER, &image(TYPE_INDEX, 100, 3), false, CHANGED));
    fresh.loaded(SpaceId(7), 100, Lsn(50));
    // The build has freed it again, and it is written only now.
    assert!(!fresh.allow(OTHER, &image(TYPE_INDEX, 100, 3), false, CHANGED));
    assert!(!fresh.allow(OTHER, &image(TYPE_INDEX, 100, 3), false, Lsn(50)));
    assert!(fresh.allow(OTHER, &image(TYPE_INDEX, 100, 3), false, Lsn(51)));
    assert!(fresh.allow(ROOT, &image(TYPE_INDEX, 100, 3), false, Lsn(51)));
    fresh.used(ROOT);
    assert!(!fresh.allow(OTHER, &image(TYPE_INDEX, 100, 3), false, CHANGED));
}

#[test]
fn a_checkpoint_after_index_load_makes_an_index_one_like_others() {
    let fresh = FreshIndexes::default();
    fresh.start_from(99);
    fresh.created(ROOT, 100);
    fresh.created(OTHER, 101);
    let elsewhere = PageId::new(8, 4);
    fresh.created(elsewhere, 102);
    fresh.loaded(SpaceId(7), 100, Lsn(50));
    fresh.loaded(SpaceId(8), 102, Lsn(60));
    let allowed = |page, id| fresh.allow(page, &image(TYPE_INDEX, id, 3), false, CHANGED);
    fresh.checkpointed(Lsn(49));
    assert_eq!([allowed(ROOT, 100), allowed(ROOT, 101), allowed(elsewhere, 102)], [false, false, false]);
    fresh.checkpointed(Lsn(50));
    assert_eq!([allowed(ROOT, 100), allowed(ROOT, 101), allowed(elsewhere, 102)], [true, false, false]);
    fresh.checkpointed(Lsn(1000));
    assert_eq!([allowed(ROOT, 100), allowed(ROOT, 101), allowed(elsewhere, 102)], [true, false, true]);
    assert!(!fresh.is_empty(), "one is being filled");
    fresh.used(OTHER);
    assert!(fresh.is_empty());
}

#[test]
fn an_index_is_no_longer_fresh_with_its_first_record_or_without_its_tablespace() {
    let fresh = FreshIndexes::default();
    fresh.start_from(99);
    fresh.created(ROOT, 100);
    fresh.created(OTHER, 101);
    fresh.used(ROOT);
    assert!(fresh.allow(OTHER, &image(TYPE_INDEX, 100, 3), false, CHANGED));
    assert!(!fresh.allow(ROOT, &image(TYPE_INDEX, 101, 3), false, CHANGED));
    // The page is the root of another index now.
    fresh.created(OTHER, 102);
    assert!(fresh.allow(ROOT, &image(TYPE_INDEX, 101, 3), false, CHANGED));
    fresh.forget(SpaceId(7));
    assert!(fresh.is_empty() && fresh.allow(ROOT, &image(TYPE_INDEX, 102, 3), false, CHANGED));
}

#[test]
fn an_index_that_was_not_heard_of_is_not_explained() {
    let fresh = FreshIndexes::default();
    assert!(!fresh.allow(OTHER, &image(TYPE_INDEX, 5, 3), false, CHANGED), "nothing is known");
    fresh.created(ROOT, 7);
    assert!(
        !fresh.allow(OTHER, &image(TYPE_INDEX, 5, 3), false, CHANGED),
        "what was there before is not known"
    );
    fresh.start_from(99);
    assert!(fresh.allow(OTHER, &image(TYPE_INDEX, 99, 3), false, CHANGED));
    assert!(!fresh.allow(OTHER, &image(TYPE_INDEX, 100, 3), false, CHANGED));
    fresh.created(ROOT, 100);
    fresh.used(ROOT);
    assert!(fresh.allow(OTHER, &image(TYPE_INDEX, 100, 3), false, CHANGED));
    for special in [u64::MAX, FIRST_SPECIAL_ID] {
        fresh.created(OTHER, special);
        fresh.used(OTHER);
        assert!(fresh.allow(OTHER, &image(TYPE_INDEX, special, 3), false, CHANGED));
    }
    assert!(!fresh.allow(OTHER, &image(TYPE_INDEX, 101, 3), false, CHANGED));
}
