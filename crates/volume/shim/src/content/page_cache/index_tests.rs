use super::*;
use std::collections::HashMap;

fn key(page_no: u32) -> CacheKey {
    CacheKey { file: 1, page_no }
}

#[test]
fn a_page_is_where_it_was_put_and_no_two_share_a_slot() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut index = Index::new(random.usize(1..40));
        let mut bytes: HashMap<u32, CacheKey> = HashMap::new();
        let mut put: HashMap<CacheKey, u32> = HashMap::new();
        for _ in 0..2000 {
            let key = CacheKey { file: random.u64(..3), page_no: random.u32(..60) };
            match random.u8(..100) {
                0..45 => {
                    let len_bytes = 1 << random.u32(10..15);
                    let (at, _) = index.place(key, len_bytes, false).unwrap();
                    bytes.insert(at, key);
                    put.insert(key, len_bytes);
                }
                45..85 => {
                    let len_bytes = put.get(&key).copied().unwrap_or(1);
                    if let Some((at, _)) = index.find(key, len_bytes) {
                        assert_eq!(bytes[&at], key, "seed {seed}");
                        assert!(index.find(key, len_bytes + 1).is_none());
                    }
                }
                85..97 => index.remove(key),
                _ => drop(index.remove_file(key.file, key.page_no)),
            }
            assert!(index.len() <= index.capacity && index.slots.len() <= index.capacity);
            let used = index.slots.iter().flatten().count();
            assert_eq!((used, index.free.len()), (index.len(), index.slots.len() - used), "seed {seed}");
        }
    }
}

#[test]
fn pages_that_are_read_outlive_those_that_are_not() {
    let mut index = Index::new(100);
    for page_no in 0..100 {
        index.place(key(page_no), 16384, false);
    }
    for page_no in 0..50 {
        index.find(key(page_no), 16384).unwrap();
    }
    for page_no in 100..150 {
        assert!(index.place(key(page_no), 16384, false).unwrap().1);
    }
    assert!((0..50).all(|page_no| index.contains(key(page_no))));
    assert!((50..100).all(|page_no| !index.contains(key(page_no))));
}

#[test]
fn without_room_nothing_is_placed() {
    assert_eq!(Index::new(0).place(key(1), 16384, false), None);
}

#[test]
fn the_end_of_a_file_goes_and_nothing_else() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut index = Index::new(random.usize(1..60));
        let keys = |index: &Index| -> Vec<CacheKey> {
            let all = (0..4).flat_map(|file| (0..80).map(move |page_no| CacheKey { file, page_no }));
            all.filter(|key| index.contains(*key)).collect()
        };
        for _ in 0..100 {
            for _ in 0..random.u32(..20) {
                let key = CacheKey { file: random.u64(..4), page_no: random.u32(..80) };
                index.place(key, 16384, false).unwrap();
            }
            let (file, first) = (random.u64(..4), random.u32(..90));
            let is_gone = |key: &CacheKey| key.file == file && key.page_no >= first;
            let (gone, stays): (Vec<_>, Vec<_>) = keys(&index).into_iter().partition(is_gone);
            assert_eq!(index.remove_file(file, first), gone.len(), "seed {seed}");
            assert_eq!(keys(&index), stays, "seed {seed}");
            assert!(index.files.values().all(|pages| !pages.is_empty()), "seed {seed}");
        }
    }
}
