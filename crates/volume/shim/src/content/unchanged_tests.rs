use super::*;
use fastrand::Rng;
use std::collections::BTreeMap;

#[test]
fn what_it_says_of_a_page_is_what_was_noted_last() {
    let mut found = 0;
    for seed in 0..50 {
        let mut random = Rng::with_seed(seed);
        let generations = Generations::default();
        let mut unchanged = Unchanged::default();
        let mut model: BTreeMap<PageId, u64> = BTreeMap::new();
        let page_count = random.u32(1..6000);
        for _ in 0..5000 {
            let page = PageId::new(random.u32(..3) * 0x1000_0001, random.u32(..page_count));
            match random.u8(..100) {
                0..60 => {
                    let hash = random.u64(..3);
                    unchanged.note(page, ContentHash(hash), &generations);
                    model.insert(page, hash);
                }
                60..97 => {
                    unchanged.remove(page);
                    model.remove(&page);
                }
                _ => {
                    generations.forget(page.space);
                    model.retain(|other, _| other.space != page.space);
                }
            }
            let page = PageId::new(page.space.0, random.u32(..page_count));
            for hash in 0..3 {
                if unchanged.is(page, ContentHash(hash), &generations) {
                    assert_eq!(model.get(&page), Some(&hash), "seed {seed}");
                    found += 1;
                }
            }
        }
    }
    assert!(found > 1000, "{found}");
}

#[test]
fn neighbours_have_places_of_their_own() {
    let generations = Generations::default();
    let mut unchanged = Unchanged::default();
    let pages = || (0..64).map(|page_no| PageId::new(7, 640 + page_no));
    pages().for_each(|page| unchanged.note(page, ContentHash(u64::from(page.page_no.0)), &generations));
    assert!(pages().all(|page| unchanged.is(page, ContentHash(u64::from(page.page_no.0)), &generations)));
    generations.forget(SpaceId(7));
    assert!(pages().all(|page| !unchanged.is(page, ContentHash(u64::from(page.page_no.0)), &generations)));
}

#[test]
fn a_shard_takes_the_64th_part_of_what_the_documentation_says() {
    let of_a_place = size_of::<Option<Entry>>() + size_of::<u32>();
    assert_eq!(64 * ENTRIES * of_a_place, 9 << 20);
}
