use super::*;
use redoubt_pagestore::ObjectId;

const KEY: PageKey = PageKey::new(ObjectId(3), 7);
const SOON: Duration = Duration::from_secs(1);
const LATE: Duration = IMAGE_TIMEOUT;

#[test]
fn time_for_an_image_begins_when_the_server_is_asked() {
    let (mut healing, found_at) = (Healing::default(), Instant::now());
    assert!(!healing.is_awaited(KEY, LastWait::None, found_at));
    healing.found(KEY);
    assert!(healing.is_to_be_set_aside(KEY) && healing.has_to_set_aside());
    // The disk is full for long.
    let asked_at = found_at + 100 * LATE;
    assert!(healing.is_awaited(KEY, LastWait::None, asked_at));
    healing.asked(KEY, asked_at);
    assert!(!healing.is_to_be_set_aside(KEY) && !healing.has_to_set_aside());
    assert!(healing.is_awaited(KEY, LastWait::None, asked_at + SOON));
    assert!(!healing.is_awaited(KEY, LastWait::None, asked_at + LATE));
    // It was healed, and differs again at the same LSN.
    healing.found(KEY);
    healing.asked(KEY, asked_at + LATE);
    assert!(healing.is_awaited(KEY, LastWait::None, asked_at + LATE + SOON));
}

#[test]
fn wait_of_the_volume_does_not_count() {
    let (mut healing, asked_at) = (Healing::default(), Instant::now());
    healing.asked(KEY, asked_at);
    let end = asked_at + 100 * LATE;
    assert!(healing.is_awaited(KEY, LastWait::Lasts, end));
    assert!(healing.is_awaited(KEY, LastWait::Ended(end), end + SOON));
    assert!(!healing.is_awaited(KEY, LastWait::Ended(end), end + LATE));
    // One from before the request has no effect.
    healing.asked(KEY, end + LATE);
    assert!(!healing.is_awaited(KEY, LastWait::Ended(end), end + 2 * LATE));
}

#[test]
fn volume_that_waits_repeatedly_does_not_hold_reads_for_ever() {
    let (mut healing, mut now) = (Healing::default(), Instant::now());
    healing.asked(KEY, now);
    for _ in 0..WAITS_MAX {
        now += LATE;
        assert!(healing.is_awaited(KEY, LastWait::Ended(now), now));
    }
    now += LATE;
    assert!(!healing.is_awaited(KEY, LastWait::Ended(now), now));
}

#[test]
fn healed_page_is_forgotten_unless_it_differs_again() {
    let (mut healing, now) = (Healing::default(), Instant::now());
    let other = PageKey::new(ObjectId(3), 8);
    healing.asked(KEY, now);
    healing.found(other);
    healing.retain(|_| false);
    assert!(!healing.is_awaited(KEY, LastWait::Lasts, now));
    assert!(healing.is_to_be_set_aside(other));
}
