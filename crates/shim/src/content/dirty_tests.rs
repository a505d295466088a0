use super::*;
use fastrand::Rng;
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
                        dirty.take_if_explained(page, Lsn(written), &[]),
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
        assert!(dirty.shards.iter().all(|shard| lock(shard).is_empty()), "seed {seed}");
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
    assert!(pages().all(|page| dirty.take_if_explained(page, Lsn(2), &[])));
    assert!(dirty.shards.iter().all(|shard| lock(shard).is_empty()));
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
