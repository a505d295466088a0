//! Which histories fit, and that encoding preserves them.

use super::*;

fn history(marks: &[(u64, u64)]) -> History {
    let mut history = History::default();
    for (member, round) in marks {
        history.add(Alone { member: MemberId(*member), round: *round });
    }
    history
}

fn fit(one: &History, other: &History) -> bool {
    assert_eq!(one.fits(other), other.fits(one), "{one:?} {other:?}");
    one.fits(other)
}

#[test]
fn one_that_is_the_beginning_of_the_other_fits() {
    let none = History::default();
    assert!(fit(&none, &none));
    assert!(fit(&none, &history(&[(1, 5)])));
    assert!(fit(&history(&[(1, 5)]), &history(&[(1, 5), (2, 7)])));
    assert!(!fit(&history(&[(1, 5)]), &history(&[(2, 5)])), "each has gone on without the other");
    assert!(!fit(&history(&[(1, 5)]), &history(&[(1, 6)])));
    assert!(!fit(&history(&[(1, 5), (2, 7)]), &history(&[(1, 5), (1, 7), (2, 9)])));
}

#[test]
fn of_many_the_last_are_kept_and_what_cannot_be_told_does_not_fit() {
    let marks: Vec<_> = (1..=200).map(|round| (1 + round % 2, round)).collect();
    let all = history(&marks);
    assert_eq!((all.count, all.kept.len()), (200, MAX_KEPT));
    assert!(fit(&all, &history(&marks[..180])));
    assert!(fit(&all, &history(&marks[..137])), "one mark is in both");
    assert!(!fit(&all, &history(&marks[..136])), "it has none that the other one still knows");
    assert!(fit(&all, &History::default()));
    let mut other = marks;
    other[190].0 += 7;
    assert!(!fit(&all, &history(&other)));
}

#[test]
fn a_mark_counts_once() {
    let mut twice = history(&[(1, 5), (2, 7)]);
    twice.add(Alone { member: MemberId(2), round: 7 });
    assert_eq!(twice, history(&[(1, 5), (2, 7)]));
}

#[test]
fn it_comes_back_from_bytes_and_what_is_none_is_refused() {
    for count in [0, 1, 5, 64, 65, 100] {
        let marks: Vec<_> = (1..=count).map(|round| (3, round)).collect();
        let history = history(&marks);
        let mut bytes = Vec::new();
        history.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(History::decode(&mut reader).unwrap(), history);
        reader.end().unwrap();
        for len in 0..bytes.len() {
            assert!(History::decode(&mut Reader::new(&bytes[..len])).is_err());
        }
        bytes[0] ^= 1;
        let changed = History::decode(&mut Reader::new(&bytes));
        assert_eq!(changed.is_ok(), [64, 65, 100].contains(&count), "a count that does not fit what follows");
    }
    let mut twice = Vec::from(2_u64.to_le_bytes());
    twice.extend_from_slice(&2_u32.to_le_bytes());
    twice.extend([[1_u64, 5], [1, 5]].concat().iter().flat_map(|number| number.to_le_bytes()));
    assert!(History::decode(&mut Reader::new(&twice)).is_err());
}
