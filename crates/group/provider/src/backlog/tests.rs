//! References are returned in their original order.

use super::*;

fn named(slot: u64, seqno: i64, depends_on: i64) -> Named {
    Named { slot: Slot(slot), seqno: Seqno(seqno), depends_on: Seqno(depends_on) }
}

#[test]
fn names_come_back_in_their_order_and_take_some_bytes() {
    let mut run = Run::default();
    let all: Vec<_> = (0..1000_i64)
        .map(|at| named(1 << 40 | (at * 3) as u64, (1 << 41) + 2 * at, (1 << 41) + 2 * at - at % 300))
        .collect();
    all.iter().for_each(|named| run.push(*named));
    assert_eq!((run.len(), run.first()), (1000, Some(all[0])));
    assert!(run.bytes.len() < 5 * 1000, "{}", run.bytes.len());
    let half: Vec<_> = std::iter::from_fn(|| run.pop()).take(500).collect();
    assert_eq!(half, all[..500]);
    // References may be added meanwhile.
    let last = named(1 << 50, 1 << 42, 0);
    run.push(last);
    let rest: Vec<_> = std::iter::from_fn(|| run.pop()).collect();
    assert_eq!(rest[..501], all[500..].iter().copied().chain([last]).collect::<Vec<_>>()[..501]);
    assert!(run.is_empty() && run.bytes.is_empty());
    run.push(named(3, 2, 1));
    assert_eq!(run.pop(), Some(named(3, 2, 1)));
}
