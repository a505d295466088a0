use super::*;

const LEN: u32 = 4096;

/// Pages 0 to 3 of two objects; the later an origin, the lower the object.
fn pending() -> Pending {
    let mut pending = Pending::default();
    for (object, origin) in [(2, 10), (1, 20)] {
        for page_no in 0..4 {
            let image = ImageLocation { at: 0, len: LEN, crc: 0 };
            pending.insert(ObjectId(object), page_no, image, origin);
        }
    }
    pending
}

fn oldest(pending: &Pending, end: u64, most_bytes: u64) -> Vec<(u32, u32)> {
    let pages = pending.oldest(end, most_bytes);
    pages.into_iter().map(|(object, page_no, _)| (object.0, page_no)).collect()
}

#[test]
fn oldest_pages_are_taken_up_to_the_limit_of_bytes() {
    let (pending, len) = (pending(), u64::from(LEN));
    assert_eq!(oldest(&pending, 21, 2 * len), [(2, 0), (2, 1)]);
    assert_eq!(oldest(&pending, 21, 3 * len - 1), [(2, 0), (2, 1)]);
    assert_eq!(oldest(&pending, 21, 0), [(2, 0)], "one page at least");
    assert_eq!(oldest(&pending, 21, 5 * len), [(1, 0), (2, 0), (2, 1), (2, 2), (2, 3)]);
    assert_eq!(oldest(&pending, 20, 100 * len).len(), 4);
    assert_eq!(oldest(&pending, 10, 100 * len), []);
}

#[test]
fn oldest_origin_follows_the_pages() {
    let mut pending = pending();
    assert_eq!(pending.oldest_origin(), Some(10));
    (0..3).for_each(|page_no| pending.remove(ObjectId(2), page_no));
    assert_eq!(pending.oldest_origin(), Some(10));
    pending.remove(ObjectId(2), 3);
    assert_eq!(pending.oldest_origin(), Some(20));
    pending.remove_object(ObjectId(1));
    assert_eq!((pending.oldest_origin(), pending.len()), (None, 0));
}
