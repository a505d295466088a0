use super::*;
use redoubt_page::SpaceFlags;
use redoubt_pagestore::ObjectId;

fn pages(redo_bytes: &[u64]) -> Vec<LostPage> {
    let page = |(page_no, redo_bytes): (u32, &u64)| LostPage {
        image: DamagedImage {
            key: PageKey::new(ObjectId(1), page_no),
            page_id: PageId::new(5, page_no),
            format: Format::of_mariadb(SpaceFlags(0x15)),
            fault: String::new(),
        },
        redo_bytes: *redo_bytes,
        is_missing: false,
    };
    (0..).zip(redo_bytes).map(page).collect()
}

#[test]
fn one_pass_rebuilds_pages_up_to_both_limits() {
    for (count, expected) in [(1, 1), (PAGES_TOGETHER, PAGES_TOGETHER), (PAGES_TOGETHER + 1, PAGES_TOGETHER)]
    {
        assert_eq!(count_together(&pages(&vec![1; count])), expected);
    }
    let half = REDO_TOGETHER_BYTES / 2;
    assert_eq!(count_together(&pages(&[half, half, 1])), 2);
    assert_eq!(count_together(&pages(&[half, half + 1])), 1);
    assert_eq!(count_together(&pages(&[2 * REDO_TOGETHER_BYTES, 1])), 1, "a single page may have more");
}
