//! By hand, and against a model that has no queue. `tests/sets.rs` compares it with the kernel's sets.

use super::*;
use std::collections::BTreeMap;

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;

fn asked(events: u32, data: u64) -> epoll_event {
    epoll_event { events, u64: data }
}

/// Reported members, by their data.
fn told(members: &mut Members<u64>, most: usize, ready: impl Fn(u64) -> u32) -> Vec<(u64, u32)> {
    let mut all = Vec::new();
    let count = members.tell(most, ready, |event| all.push((event.u64, event.events)));
    assert_eq!(count, all.len());
    all
}

#[test]
fn what_is_ready_is_told_for_as_long_as_it_is() {
    let mut members = Members::default();
    let place = members.add(1, asked(IN, 7), 0);
    assert_eq!((members.queued(), told(&mut members, 9, |_| IN)), (0, vec![]));
    members.note(place, OUT);
    assert_eq!(members.queued(), 0, "that was not asked for");
    members.note(place, IN);
    assert_eq!((members.queued(), members.news()), (1, 1));
    for _ in 0..3 {
        assert_eq!(told(&mut members, 9, |_| IN | OUT), [(7, IN)]);
        assert_eq!((members.queued(), members.news()), (1, 0));
    }
    assert_eq!(told(&mut members, 9, |_| OUT), []);
    assert_eq!(members.queued(), 0);
    members.note(place, libc::EPOLLHUP as u32);
    assert_eq!(told(&mut members, 9, |_| IN | libc::EPOLLHUP as u32), [(7, IN | libc::EPOLLHUP as u32)]);
}

#[test]
fn what_was_told_is_told_again_only_if_there_is_more() {
    let mut members = Members::default();
    let place = members.add(1, asked(IN | OUT | ON_CHANGE, 7), OUT);
    assert_eq!(told(&mut members, 9, |_| OUT), [(7, OUT)]);
    assert_eq!(told(&mut members, 9, |_| OUT), []);
    members.note(place, IN);
    members.note(place, IN);
    assert_eq!(members.news(), 1);
    assert_eq!(told(&mut members, 9, |_| IN | OUT), [(7, IN | OUT)]);
    assert_eq!(told(&mut members, 9, |_| IN | OUT), []);
    // The bytes were read before the event was reported.
    members.note(place, IN);
    assert_eq!(told(&mut members, 9, |_| 0), []);
    members.change(place, asked(IN | ON_CHANGE, 8), IN);
    assert_eq!(told(&mut members, 9, |_| IN), [(8, IN)]);
}

#[test]
fn what_is_asked_once_is_told_once() {
    let mut members = Members::default();
    let place = members.add(1, asked(IN | ONCE, 7), IN);
    assert_eq!(told(&mut members, 9, |_| IN), [(7, IN)]);
    members.note(place, IN);
    assert_eq!((members.queued(), told(&mut members, 9, |_| IN)), (0, vec![]));
    members.change(place, asked(IN | ONCE | ON_CHANGE, 8), IN);
    assert_eq!(told(&mut members, 9, |_| IN), [(8, IN)]);
    let (_, left) = members.remove(place).unwrap();
    assert_eq!(({ left.events }, { left.u64 }), (0, 8), "nothing is asked any more");
    assert!(members.remove(place).is_none());
}

#[test]
fn who_found_no_room_comes_first_the_next_time() {
    let mut members = Members::default();
    for data in 0..5 {
        members.add(data, asked(IN, data), IN);
    }
    let mut seen = BTreeMap::new();
    for _ in 0..5 {
        assert_eq!(members.queued(), 5);
        for (data, _) in told(&mut members, 2, |_| IN) {
            *seen.entry(data).or_insert(0) += 1;
        }
    }
    assert_eq!(seen, (0..5).map(|data| (data, 2)).collect());
    assert_eq!(members.news(), 0);
}

#[derive(Clone, Copy)]
struct Known {
    place: u32,
    asked: epoll_event,
    is_enabled: bool,
    is_news: bool,
}

/// Members that may be reported, in no order.
fn expected(known: &BTreeMap<u64, Known>, ready: &[u32]) -> BTreeMap<u64, u32> {
    let is_told = |(owner, known): (&u64, &Known)| {
        let events = ready[*owner as usize] & (known.asked.events | ALWAYS);
        let is_due = known.is_enabled && (known.asked.events & ON_CHANGE == 0 || known.is_news);
        (is_due && events != 0).then_some((known.asked.u64, events))
    };
    known.iter().filter_map(is_told).collect()
}

#[test]
fn it_tells_what_a_model_without_a_queue_does() {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut members = Members::default();
    let mut known: BTreeMap<u64, Known> = BTreeMap::new();
    let mut ready = [0u32; 8];
    for step in 0..200_000u64 {
        let owner = rng.u64(..8);
        let events =
            [IN, OUT, IN | OUT][rng.usize(..3)] | [0, ON_CHANGE][rng.usize(..2)] | [0, ONCE][rng.usize(..2)];
        let asked = asked(events, step);
        let is_so = ready[owner as usize];
        match (rng.u32(..8), known.get_mut(&owner)) {
            (0, None) => {
                let place = members.add(owner, asked, is_so);
                known.insert(
                    owner,
                    Known { place, asked, is_enabled: true, is_news: is_so & (events | ALWAYS) != 0 },
                );
            }
            (0, Some(one)) if rng.bool() => {
                members.remove(one.place).unwrap();
                known.remove(&owner);
            }
            (1, Some(one)) => {
                members.change(one.place, asked, is_so);
                let is_news = one.is_news && one.is_enabled || is_so & (events | ALWAYS) != 0;
                *one = Known { asked, is_enabled: true, is_news, ..*one };
            }
            (2 | 3, one) => {
                let new = [IN, OUT, libc::EPOLLHUP as u32][rng.usize(..3)];
                ready[owner as usize] |= new;
                if let Some(one) = one {
                    members.note(one.place, new);
                    one.is_news |= one.is_enabled && new & (one.asked.events | ALWAYS) != 0;
                }
            }
            (4, _) => ready[owner as usize] = 0,
            _ => {
                let expected = expected(&known, &ready);
                let most = rng.usize(1..10);
                let told = told(&mut members, most, |owner| ready[owner as usize]);
                assert_eq!(told.len(), expected.len().min(most), "step {step}");
                assert!(told.iter().all(|(data, events)| expected.get(data) == Some(events)), "step {step}");
                for one in known.values_mut() {
                    let is_told = told.iter().any(|(data, _)| *data == { one.asked.u64 });
                    one.is_enabled &= !is_told || one.asked.events & ONCE == 0;
                    // A member without room stays as it is, and a member that was not ready is reported when there are
                    // news.
                    one.is_news &= !is_told;
                }
            }
        }
    }
}
