use super::*;

const PAGE: usize = 4096;

fn key(page_no: u32) -> CacheKey {
    CacheKey { file: 7, page_no }
}

fn caches(capacity_bytes: u64) -> Vec<PageCache> {
    let directory = std::env::temp_dir();
    let directory = std::os::unix::ffi::OsStrExt::as_bytes(directory.as_os_str());
    vec![
        PageCache::new(capacity_bytes, PAGE as u32, None).unwrap(),
        PageCache::new(capacity_bytes, PAGE as u32, Some(directory)).unwrap(),
    ]
}

fn page(fill: u8) -> Vec<u8> {
    vec![fill; PAGE]
}

#[test]
fn what_was_put_comes_back_until_it_is_taken_out() {
    for cache in caches(64 << 20) {
        let mut out = page(0);
        assert!(!cache.get(key(1), &mut out));
        cache.put(key(1), &page(1));
        cache.put(key(2), &page(2)[..1024]);
        assert!(cache.get(key(1), &mut out) && out == page(1));
        assert!(!cache.get(key(2), &mut out), "another length");
        assert!(cache.get(key(2), &mut out[..1024]) && out[..1024] == page(2)[..1024]);
        cache.put(key(1), &page(3));
        assert!(cache.get(key(1), &mut out) && out == page(3));
        cache.remove(key(1));
        assert!(!cache.get(key(1), &mut out) && cache.page_count() == 1);
        cache.put(key(1), &[0; PAGE + 1]);
        assert!(!cache.get(key(1), &mut out), "longer than a slot");
        cache.remove_file(7, 2);
        assert_eq!(cache.page_count(), 0);
    }
}

#[test]
fn an_answer_that_the_server_overtook_is_not_kept() {
    for cache in caches(64 << 20) {
        let mut out = page(0);
        let asked = cache.ticket(key(1));
        cache.put(key(1), &page(2));
        cache.put_answer(key(1), &page(1), asked);
        assert!(cache.get(key(1), &mut out) && out == page(2));
        // Also if what overtook it is out again.
        let asked = cache.ticket(key(1));
        cache.remove(key(1));
        cache.put_answer(key(1), &page(1), asked);
        assert!(!cache.get(key(1), &mut out));
        let asked = cache.ticket(key(1));
        cache.put_answer(key(1), &page(1), asked);
        assert!(cache.get(key(1), &mut out) && out == page(1));
    }
}

#[test]
fn it_never_holds_more_than_it_may() {
    for cache in caches(SHARDS as u64 * 2 * PAGE as u64) {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..20_000 {
            let page_no = random.u32(..5000);
            let mut out = page(0);
            if cache.get(key(page_no), &mut out) {
                assert_eq!(out, page(page_no as u8));
            } else {
                cache.put(key(page_no), &page(page_no as u8));
            }
        }
        assert_eq!(cache.page_count(), SHARDS as u64 * 2);
        assert!(cache.evictions() > 10_000);
    }
}

#[test]
fn a_directory_that_cannot_be_used_is_an_error() {
    assert_eq!(PageCache::new(1 << 20, 4096, Some(b"/no/such/directory")).err(), Some(Errno(libc::ENOENT)));
}

#[test]
fn a_cache_for_read_ahead_keeps_a_page_until_its_first_read() {
    let cache = PageCache::for_read_ahead(64 << 20, PAGE as u32).unwrap();
    let mut out = page(0);
    let asked = cache.ticket(key(1));
    cache.put_answer(key(1), &page(1), asked);
    assert!(!cache.contains(key(1)), "the server has it already");
    cache.put_ahead(key(1), &page(1), asked);
    assert!(cache.contains(key(1)) && cache.get(key(1), &mut out) && out == page(1));
    assert!(!cache.get(key(1), &mut out), "once");
    cache.put_ahead(key(2), &page(2), cache.ticket(key(2)));
    let asked = cache.ticket(key(2));
    cache.put(key(2), &page(3));
    assert!(!cache.contains(key(2)), "what the server wrote since is newer");
    cache.put_ahead(key(2), &page(2), asked);
    assert!(!cache.contains(key(2)));
    assert_eq!(cache.ahead_used(), 1);
}

#[test]
fn pages_read_ahead_into_the_whole_cache_stay_and_count_once() {
    for cache in caches(64 << 20) {
        let mut out = page(0);
        cache.put_ahead(key(1), &page(1), cache.ticket(key(1)));
        cache.put(key(2), &page(2));
        for page_no in [1, 2, 1, 2] {
            assert!(cache.get(key(page_no), &mut out) && out == page(page_no as u8));
        }
        assert_eq!(cache.ahead_used(), 1);
    }
}

#[test]
fn cutting_a_file_voids_its_own_answers_and_no_others() {
    for cache in caches(64 << 20) {
        let other = CacheKey { file: 8, page_no: 3 };
        cache.put(key(1), &page(1));
        cache.put(key(5), &page(5));
        let (late, untouched) = (cache.ticket(key(7)), cache.ticket(other));
        assert_eq!(cache.remove_file(7, 4), 1, "page 5");
        cache.put_answer(key(7), &page(7), late);
        cache.put_answer(other, &page(3), untouched);
        assert!(!cache.contains(key(7)) && cache.contains(other) && cache.contains(key(1)));
        cache.put_answer(key(7), &page(7), cache.ticket(key(7)));
        assert!(cache.contains(key(7)));
    }
}

/// An answer whose file is cut while it is put in is not left behind, whichever comes first.
#[test]
fn no_answer_stays_behind_a_cut() {
    let cache = PageCache::new(64 << 20, PAGE as u32, None).unwrap();
    let (asked, cut) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    let mut left = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3000 {
                let tickets: Vec<_> = (0..8).map(|page_no| cache.ticket(key(page_no))).collect();
                asked.wait();
                for (page_no, ticket) in (0..8).zip(tickets) {
                    cache.put_answer(key(page_no), &page(1), ticket);
                }
                cut.wait();
            }
        });
        for _ in 0..3000 {
            asked.wait();
            cache.remove_file(7, 0);
            cut.wait();
            // The next answers wait for this thread.
            left += (0..8).filter(|page_no| cache.contains(key(*page_no))).count();
        }
    });
    assert_eq!(left, 0);
}

/// The medians of many tries are far from both the limit and what looking at every page would take.
#[test]
fn cutting_a_file_takes_no_longer_with_many_pages_of_others() {
    const SHORT: u32 = 512;
    let median_ns = |others: u32| {
        let cache = PageCache::new(256 << 20, SHORT, None).unwrap();
        (0..others).for_each(|page_no| cache.put(CacheKey { file: 8, page_no }, &[1; SHORT as usize]));
        let mut times: Vec<_> = (0..101)
            .map(|_| {
                cache.put(key(1), &[2; SHORT as usize]);
                let start = std::time::Instant::now();
                assert_eq!(cache.remove_file(7, 1), 1);
                start.elapsed().as_nanos()
            })
            .collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    let (few, many) = (median_ns(100), median_ns(300_000));
    println!("cutting a file beside 100 pages: {few} ns, beside 300000: {many} ns");
    assert!(many < few * 10 + 50_000, "{few} ns, then {many} ns");
}
