use super::*;
use crate::encoder::MtrWriter;
use crate::mark::Point;
use redoubt_wire::Seq;

const LONG: Duration = Duration::from_secs(7 * 24 * 3600);

#[test]
fn rate_completes_a_pass_within_its_period() {
    assert_eq!(scheduled_rate(1 << 20, LONG, 32 << 20), RATE_MIN_BYTES_PER_SECOND, "small");
    let total_bytes = 4 << 40;
    let rate = scheduled_rate(total_bytes, LONG, 32 << 20);
    assert!(rate > RATE_MIN_BYTES_PER_SECOND && total_bytes / rate < LONG.as_secs(), "{rate}");
    assert_eq!(scheduled_rate(total_bytes, LONG, 2 << 20), 2 << 20, "limited");
    assert_eq!(scheduled_rate(1 << 20, LONG, 0), 1);
}

#[test]
fn busy_server_gets_most_of_the_drive() {
    let took = Duration::from_millis(10);
    assert_eq!(due(1 << 20, took, 1 << 20, false), Duration::from_millis(990));
    assert_eq!(due(16 << 10, took, 32 << 20, false), Duration::ZERO);
    assert_eq!(due(16 << 10, took, 32 << 20, true), took * REST_FACTOR);
    assert_eq!(due(16 << 10, Duration::from_secs(60), 32 << 20, true), REST_MAX);
}

fn chunk(mtr: &MtrWriter, lsn: u64) -> Chunk {
    let bytes = mtr.finish(1);
    let (start, end) = (Lsn(lsn), Lsn(lsn + bytes.len() as u64));
    Chunk {
        kind: 1,
        logged: true,
        start: Point { seq: Seq(lsn), lsn: start },
        end: Point { seq: Seq(end.0), lsn: end },
        wire: Vec::new(),
        raw: Some(bytes),
    }
}

#[test]
fn newest_change_of_a_page_is_remembered_until_it_is_void() {
    let mut newest = NewestChanges::default();
    let mut add = |lsn: u64, make: &dyn Fn(&mut MtrWriter)| {
        let mut mtr = MtrWriter::new();
        make(&mut mtr);
        newest.frame(Family::MariaDb, &chunk(&mtr, lsn)).unwrap();
        [(5, 4), (5, 6), (6, 4)]
            .map(|(space, page_no)| newest.of(PageId::new(space, page_no)).map(|lsn| lsn.0))
    };
    let write = |page: (u32, u32)| {
        move |mtr: &mut MtrWriter| {
            mtr.write_absolute(page, 200, b"data");
        }
    };
    assert_eq!(add(1000, &write((5, 4))), [Some(1000), None, None]);
    assert_eq!(add(2000, &write((5, 4))), [Some(2000), None, None]);
    assert_eq!(add(3000, &write((5, 6))), [Some(2000), Some(3000), None]);
    assert_eq!(add(4000, &write((6, 4))), [Some(2000), Some(3000), Some(4000)]);
    assert_eq!(
        add(5000, &|mtr| {
            mtr.free((5, 4));
        }),
        [None, Some(3000), Some(4000)]
    );
    // The file is another one from now on.
    assert_eq!(
        add(6000, &|mtr| {
            mtr.file(0x90, 5, b"./d/t.ibd");
        }),
        [None, None, Some(4000)]
    );
    assert_eq!(newest.pages, 1);
    let budget = Arc::clone(&newest.budget);
    assert_eq!(budget.changed_pages.load(Ordering::Relaxed), 1);
    drop(newest);
    assert_eq!(budget.changed_pages.load(Ordering::Relaxed), 0);
}

#[test]
fn full_memory_remembers_no_further_page() {
    let budget = Arc::new(ScrubBudget::default());
    budget.changed_pages.store(CHANGED_PAGES_MAX - 1, Ordering::Relaxed);
    let mut newest = NewestChanges::new(&budget);
    for page_no in 0..3 {
        newest.changed(5, page_no, Lsn(7));
    }
    newest.changed(5, 0, Lsn(9));
    let known = [0, 1, 2].map(|page_no| newest.of(PageId::new(5, page_no)));
    assert_eq!(known, [Some(Lsn(9)), None, None]);
}

#[test]
fn passes_share_their_rate() {
    let budget = ScrubBudget::default();
    let first = budget.pay(1 << 20, 1 << 20);
    let second = budget.pay(1 << 20, 1 << 20);
    assert!(first <= Duration::from_secs(1) && second > first, "{first:?}, {second:?}");
}
