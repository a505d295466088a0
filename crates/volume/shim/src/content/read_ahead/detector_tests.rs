use super::*;
use std::collections::HashSet;

const WINDOW_MAX: u32 = 32;

/// Feeds the reads; returns how many of them had been asked for before, and how many pages were asked for in all.
fn read_all(detector: &mut Detector, reads: impl IntoIterator<Item = u32>) -> (usize, usize) {
    let mut asked = HashSet::new();
    let (mut hits, mut pages) = (0, 0);
    for page_no in reads {
        hits += usize::from(asked.contains(&page_no));
        if let Some(range) = detector.on_read(page_no, WINDOW_MAX) {
            assert!(range.start > page_no && range.len() <= WINDOW_MAX as usize, "{page_no}: {range:?}");
            pages += range.len();
            asked.extend(range);
        }
    }
    (hits, pages)
}

#[test]
fn a_scan_is_asked_for_from_its_ninth_page_on_and_nothing_twice() {
    let (hits, pages) = read_all(&mut Detector::default(), 64..5000);
    assert_eq!(hits, 4936 - 8);
    assert!(pages - hits <= 2 * WINDOW_MAX as usize, "{pages} asked for");
}

#[test]
fn four_scans_at_once_are_told_apart() {
    let reads = (0..1000).flat_map(|step| [step, 20_000 + step, 40_000 + step, 60_000 + step]);
    let (hits, pages) = read_all(&mut Detector::default(), reads);
    assert_eq!(hits, 4 * (1000 - 8));
    assert!(pages <= 4 * (1000 + 2 * WINDOW_MAX as usize));
}

#[test]
fn order_may_be_a_little_mixed_up() {
    for seed in 0..100 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut reads: Vec<u32> = (500..4000).collect();
        for four in reads.chunks_mut(4) {
            random.shuffle(four);
        }
        let (hits, pages) = read_all(&mut Detector::default(), reads);
        assert!(hits > 3400, "seed {seed}: {hits} of 3500");
        assert!(pages < 3700, "seed {seed}: {pages} asked for");
    }
}

#[test]
fn random_reads_ask_for_next_to_nothing() {
    for seed in 0..100 {
        let mut random = fastrand::Rng::with_seed(seed);
        let reads: Vec<u32> = (0..20_000).map(|_| random.u32(1..60_000)).collect();
        let (_, pages) = read_all(&mut Detector::default(), reads);
        assert!(pages < 400, "seed {seed}: {pages} pages for 20000 reads");
    }
}

/// In a table that is mostly in the buffer pool, only some pages are read: most pages read ahead are then wasted.
#[test]
fn a_scan_with_many_holes_is_given_up() {
    for seed in 0..50 {
        let mut random = fastrand::Rng::with_seed(seed);
        let sparse: Vec<u32> = (1..20_000).filter(|_| random.u32(..10) < 2).collect();
        let (hits, pages) = read_all(&mut Detector::default(), sparse.iter().copied());
        assert!(pages < 5 * sparse.len() / 4, "seed {seed}: {pages} for {} reads, {hits} hits", sparse.len());
        let dense: Vec<u32> = (1..20_000).filter(|_| random.u32(..10) < 9).collect();
        let (hits, pages) = read_all(&mut Detector::default(), dense.iter().copied());
        assert!(hits * 100 > 95 * dense.len() && pages < 20_200, "seed {seed}: {hits} of {}", dense.len());
    }
}

#[test]
fn the_ends_of_page_numbers_do_no_harm() {
    let mut detector = Detector::default();
    for page_no in (u32::MAX - 40)..=u32::MAX {
        if let Some(range) = detector.on_read(page_no, WINDOW_MAX) {
            assert!(range.start > page_no);
        }
    }
    for page_no in 0..40 {
        detector.on_read(page_no, 0);
        detector.on_read(page_no, u32::MAX);
    }
}
