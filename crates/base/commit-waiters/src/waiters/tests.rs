//! The order of waiters, without threads. Threads are in `tests/waiters.rs` and `tests/waiters_loom.rs`.

use super::{NONE, Queue};

#[test]
fn reached_waiters_come_out_lowest_first_and_the_others_stay() {
    let mut queue = Queue::new();
    for (position, name) in [(30, "c"), (10, "a"), (20, "b1"), (40, "d"), (20, "b2")] {
        queue.insert(position, name);
    }
    assert_eq!(queue.first(), 10);
    assert!(queue.take_reached(9).is_empty());
    assert_eq!(queue.take_reached(20), ["a", "b1", "b2"]);
    assert_eq!(queue.first(), 30);
    assert!(queue.take_reached(20).is_empty());
    assert_eq!(queue.take_reached(u64::MAX), ["c", "d"]);
    assert_eq!(queue.first(), NONE);
}

#[test]
fn a_waiter_leaves_the_queue_once() {
    let mut queue = Queue::new();
    let (early, late) = (queue.insert(10, 'e'), queue.insert(20, 'l'));
    assert_eq!(queue.take_reached(10), ['e']);
    assert!(!queue.remove(early));
    assert!(queue.remove(late));
    assert!(!queue.remove(late));
    assert!(queue.take_all().is_empty());
}

/// Comparison with a simple model: a filtered list.
#[test]
fn random_waiters_come_out_as_from_a_list() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut queue, mut list) = (Queue::new(), Vec::<(u64, u64, super::QueueKey)>::new());
        for id in 0..200_u64 {
            match random.u8(0..4) {
                0 | 1 => {
                    let position = random.u64(0..50);
                    list.push((position, id, queue.insert(position, id)));
                }
                2 => {
                    let durable = random.u64(0..50);
                    let mut reached: Vec<_> = list.iter().filter(|waiter| waiter.0 <= durable).collect();
                    reached.sort_by_key(|waiter| (waiter.0, waiter.1));
                    let reached: Vec<_> = reached.into_iter().map(|waiter| waiter.1).collect();
                    assert_eq!(queue.take_reached(durable), reached, "seed {seed}");
                    list.retain(|waiter| waiter.0 > durable);
                }
                _ if list.is_empty() => {}
                _ => assert!(queue.remove(list.swap_remove(random.usize(0..list.len())).2), "seed {seed}"),
            }
            assert_eq!(
                queue.first(),
                list.iter().map(|waiter| waiter.0).min().unwrap_or(NONE),
                "seed {seed}"
            );
        }
    }
}
