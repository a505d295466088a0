use super::*;
use fastrand::Rng;
use redoubt_page::layout;
use redoubt_redo::{IndexLoad, RunContent, SpaceFlagsChange};
use std::collections::BTreeMap;
use std::time::Instant;

#[test]
fn it_is_what_a_plain_map_of_all_pages_is() {
    /// No page has this LSN.
    const FREED: u64 = u64::MAX;
    for seed in 0..100 {
        let mut random = Rng::with_seed(seed);
        let dirty = DirtyPages::new(Family::MariaDb);
        let mut model: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        let page_count = random.u32(1..400);
        for lsn in 1..2000 {
            let (space, page_no) = (random.u32(..4), random.u32(..page_count));
            let page = PageId::new(space, page_no);
            match random.u8(..100) {
                0..40 => {
                    dirty.change(page, Lsn(lsn));
                    model.insert((space, page_no), lsn);
                }
                40..60 => {
                    dirty.free(page, Lsn(lsn));
                    model.insert((space, page_no), FREED);
                }
                60..97 => {
                    // Its newest version, or any other.
                    let newest = model.get(&(space, page_no)).copied().unwrap_or(lsn);
                    let written = if random.u8(..4) > 0 { newest } else { random.u64(..lsn) };
                    let is_explained = written != FREED && model.get(&(space, page_no)) == Some(&written);
                    assert_eq!(
                        dirty.take_if_explained(page, Lsn(written), &[], None),
                        is_explained,
                        "seed {seed}, {lsn}"
                    );
                    if is_explained {
                        model.remove(&(space, page_no));
                    }
                }
                97 => {
                    dirty.forget_from(SpaceId(space), page.page_no);
                    model.retain(|(other, other_no), _| *other != space || *other_no < page_no);
                }
                _ => {
                    dirty.forget(SpaceId(space));
                    model.retain(|(other, _), _| *other != space);
                }
            }
            let (space, page_no) = (random.u32(..4), random.u32(..page_count));
            let is_known = model.contains_key(&(space, page_no));
            assert_eq!(dirty.contains(PageId::new(space, page_no)), is_known, "seed {seed}, {lsn}");
        }
        let changed = model.values().filter(|lsn| **lsn != FREED).count();
        assert_eq!(dirty.sizes().0, changed, "seed {seed}");
        (0..4).for_each(|space| dirty.forget(SpaceId(space)));
        assert!(dirty.shards.iter().all(|shard| lock(shard).spaces.is_empty()), "seed {seed}");
    }
}

#[test]
fn free_pages_take_a_word_for_64_neighbours_and_none_when_they_are_used_again() {
    let dirty = DirtyPages::new(Family::MariaDb);
    let pages = || (0..1 << 18).map(|page_no| PageId::new(7, page_no));
    pages().for_each(|page| dirty.change(page, Lsn(1)));
    pages().for_each(|page| dirty.free(page, Lsn(5)));
    assert_eq!(dirty.sizes(), (0, 1 << 12));
    pages().for_each(|page| dirty.change(page, Lsn(2)));
    assert_eq!(dirty.sizes(), (1 << 18, 0));
    assert!(pages().all(|page| dirty.take_if_explained(page, Lsn(2), &[], None)));
    assert!(dirty.shards.iter().all(|shard| lock(shard).spaces.is_empty()));
}

/// The medians of many tries are far from both the limit and what looking at every entry would take.
#[test]
fn forgetting_a_tablespace_takes_no_longer_with_a_million_other_pages() {
    let median_ns = |others: u32| {
        let dirty = DirtyPages::new(Family::MariaDb);
        (0..others).for_each(|page_no| dirty.change(PageId::new(1, page_no), Lsn(1)));
        let mut times: Vec<_> = (0..201)
            .map(|_| {
                dirty.change(PageId::new(2, 1), Lsn(1));
                let start = Instant::now();
                dirty.forget(SpaceId(2));
                start.elapsed().as_nanos()
            })
            .collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    let (few, many) = (median_ns(100), median_ns(1_000_000));
    println!("forgetting a tablespace beside 100 pages: {few} ns, beside 1000000: {many} ns");
    assert!(many < few * 20 + 50_000, "{few} ns, then {many} ns");
}

/// Of MySQL: a page that another index had before, while an index is built on it and after.
#[test]
fn what_mysql_fills_without_redo_is_not_explained_by_the_redo_of_before() {
    const ROOT: PageId = PageId::new(5, 4);
    const PAGE: PageId = PageId::new(5, 9);
    let dirty = DirtyPages::new(Family::MySql);
    let observe = |end_lsn, run, index_loads: &[IndexLoad]| observe(&dirty, end_lsn, run, index_loads);
    let mut header = vec![0; 16384];
    layout::put(&mut header, NEWEST_INDEX_ID, &99_u64.to_be_bytes());
    dirty.note_read(MYSQL_DICTIONARY_HEADER, &header, None);
    let image = |id: u64| {
        let mut image = vec![0; 16384];
        layout::put(&mut image, layout::FIL_PAGE_TYPE, &layout::TYPE_INDEX.to_be_bytes());
        layout::put(&mut image, layout::PAGE_N_RECS, &7_u16.to_be_bytes());
        layout::put(&mut image, 66, &id.to_be_bytes());
        image
    };
    let insert = RunContent { is_changed: true, records: Some(1), ..RunContent::default() };
    let root = RunContent { is_created: true, has_segments: true, index_id: Some(100), ..insert };
    observe(30, Some((PAGE, insert)), &[]);
    // Before and after the redo of the new index.
    assert!(!dirty.take_if_explained(PAGE, Lsn(30), &image(100), None));
    observe(40, Some((ROOT, RunContent { records: Some(0), ..root })), &[]);
    assert!(!dirty.take_if_explained(PAGE, Lsn(30), &image(100), None));
    assert!(!dirty.take_if_explained(ROOT, Lsn(40), &image(100), None), "filled without redo");
    dirty.sent(ROOT, Lsn(40), None);
    // The page was freed again, and its LSN raised; it was not written yet.
    observe(50, None, &[IndexLoad { root: ROOT, index_id: 100 }]);
    observe(60, None, &[]);
    assert!(!dirty.take_if_explained(PAGE, Lsn(55), &image(100), None));
    observe(70, Some((PAGE, insert)), &[]);
    assert!(!dirty.take_if_explained(PAGE, Lsn(69), &image(100), None), "older than its redo");
    assert!(!dirty.take_if_explained(PAGE, Lsn(71), &image(100), None), "its redo has not come");
    observe(80, None, &[]);
    assert!(dirty.take_if_explained(PAGE, Lsn(71), &image(100), None), "raised without a change");
    assert!(!dirty.take_if_explained(PAGE, Lsn(71), &image(100), None), "once only");
    dirty.forget(SpaceId(5));
    assert!(dirty.shards.iter().all(|shard| lock(shard).spaces.is_empty()));
}

fn observe(dirty: &DirtyPages, end_lsn: u64, run: Option<(PageId, RunContent)>, index_loads: &[IndexLoad]) {
    let runs: Vec<_> = run.map(|(page, content)| run_of(page, &content)).into_iter().collect();
    let contents: Vec<_> = run.map(|(_, content)| content).into_iter().collect();
    dirty.observe(&Mtr {
        start_lsn: Lsn(end_lsn - 1),
        end_lsn: Lsn(end_lsn),
        bytes: &[],
        records: &[],
        offset_in_bytes: 0,
        runs: &runs,
        contents: &contents,
        files: &[],
        index_loads,
    });
}

fn run_of(page: PageId, content: &RunContent) -> RunRef {
    RunRef {
        page,
        offset_in_bytes: 0,
        len_bytes: 1,
        last_init_offset: content.is_created.then_some(0),
        contains_free: false,
        ends_with_free: false,
        trim_pages: None,
        space_flags: SpaceFlagsChange::Unchanged,
    }
}

/// A kept image is sent only while it is the page: redo sent after it would otherwise be lost.
#[test]
fn last_write_is_unchanged_until_redo_a_write_or_a_cut() {
    let dirty = DirtyPages::new(Family::MySql);
    let changed = RunContent { is_changed: true, ..RunContent::default() };
    let page = PageId::new(5, 9);
    let observe = |end_lsn| observe(&dirty, end_lsn, Some((page, changed)), &[]);
    let (first, second) = (ContentHash(1), ContentHash(2));
    let take = |lsn: u64, hash| dirty.take_if_explained(page, Lsn(lsn), &[0; 16384], Some(hash));
    observe(10);
    assert!(!dirty.is_unchanged(page, first), "never written");
    assert!(take(10, first));
    assert!(dirty.is_unchanged(page, first) && !dirty.is_unchanged(page, second));
    assert!(!dirty.is_unchanged(PageId::new(6, 9), first), "of another tablespace");
    observe(20);
    assert!(!dirty.is_unchanged(page, first), "redo has come");
    assert!(take(20, second));
    assert!(!dirty.is_unchanged(page, first) && dirty.is_unchanged(page, second), "written again");
    dirty.note_read(page, &[], Some((first, dirty.ticket(page))));
    assert!(!dirty.is_unchanged(page, second), "read as something else");
    dirty.sent(page, Lsn(30), Some(second));
    assert!(dirty.is_unchanged(page, second));
    dirty.free(page, Lsn(40));
    assert!(!dirty.is_unchanged(page, second), "freed");
    for forget in [DirtyPages::forget, DirtyPages::forget_content] {
        observe(50);
        assert!(take(50, first) && dirty.is_unchanged(page, first));
        forget(&dirty, SpaceId(5));
        assert!(!dirty.is_unchanged(page, first), "its tablespace is gone, or cut");
    }
}

#[test]
fn a_page_without_redo_is_explained_if_it_is_as_it_was() {
    let dirty = DirtyPages::new(Family::MySql);
    let changed = RunContent { is_changed: true, ..RunContent::default() };
    let observe = |page, end_lsn| observe(&dirty, end_lsn, Some((page, changed)), &[]);
    let (page, other) = (PageId::new(5, 9), PageId::new(6, 9));
    let (old, new) = (Some(ContentHash(1)), Some(ContentHash(2)));
    let take = |lsn: u64, hash| dirty.take_if_explained(page, Lsn(lsn), &[0; 16384], hash);
    let read = |hash: Option<ContentHash>| dirty.note_read(page, &[], hash.zip(Some(dirty.ticket(page))));
    read(old);
    assert!(!take(10, old), "before any redo");
    observe(other, 10);
    assert!(take(10, old), "as it was read");
    assert!(take(11, old), "and once more");
    assert!(!take(10, new), "changed without redo");
    assert!(!take(10, None));
    observe(page, 20);
    assert!(!take(10, old), "older than its redo");
    read(old);
    assert!(take(20, new), "explained by redo");
    assert!(!take(20, old));
    assert!(take(25, new), "its LSN was raised since");
    // As it is; an older one does not count, and makes what was known before doubtful.
    dirty.sent(page, Lsn(25), old);
    assert!(take(30, old));
    observe(page, 40);
    dirty.sent(page, Lsn(39), new);
    assert!(take(40, old));
    assert!(take(40, old));
    dirty.free(page, Lsn(50));
    assert!(!take(50, old), "free");
    // A read that began before a later change of the page does not count.
    let ticket = dirty.ticket(page);
    dirty.sent(page, Lsn(55), new);
    dirty.note_read(page, &[], old.zip(Some(ticket)));
    assert!(take(56, new) && !take(56, old), "read before it was written");
    let ticket = dirty.ticket(page);
    dirty.forget_content(SpaceId(5));
    dirty.note_read(page, &[], old.zip(Some(ticket)));
    assert!(!take(56, old), "read before the file was cut");
    for forget in [DirtyPages::forget, DirtyPages::forget_content, |dirty: &DirtyPages, space| {
        dirty.forget_from(space, PageNo(8));
    }] {
        dirty.sent(page, Lsn(60), old);
        assert!(take(60, old));
        forget(&dirty, SpaceId(5));
        assert!(!take(60, old), "its tablespace is gone, or cut");
    }
}
