//! Ballots before and after an entry is finished; decisions before and after a thread waits.

use super::*;

#[test]
fn who_is_asked_first_answers_when_it_is_done() {
    let outcomes = Outcomes::default();
    assert_eq!(outcomes.done(Seqno(9), Seqno(0)), (vec![], None));
    outcomes.ask(Seqno(12));
    outcomes.ask(Seqno(11));
    assert_eq!(outcomes.done(Seqno(10), Seqno(0)), (vec![], None));
    assert_eq!(outcomes.done(Seqno(11), Seqno(0)), (vec![Seqno(11)], None));
    assert_eq!(outcomes.done(Seqno(30), Seqno(0)), (vec![Seqno(12)], None));
    assert_eq!(outcomes.done(Seqno(30), Seqno(0)), (vec![], None));
    assert!(!outcomes.is_asked.load(Ordering::SeqCst));
}

#[test]
fn who_could_do_what_most_could_not_is_told_once_it_is_done() {
    let outcomes = Outcomes::default();
    outcomes.decide(Seqno(5), Code(7));
    outcomes.decide(Seqno(6), Code::DONE);
    outcomes.decide(Seqno(2), Code(7));
    assert_eq!(outcomes.done(Seqno(4), Seqno(3)), (vec![], None), "its data came with the second one");
    assert_eq!(outcomes.done(Seqno(6), Seqno(3)), (vec![], Some(Seqno(5))));
}

#[test]
fn who_could_not_is_not_asked_and_waits() {
    let outcomes = Outcomes::default();
    outcomes.ask(Seqno(5));
    assert_eq!(outcomes.failed(Seqno(5)), None);
    outcomes.ask(Seqno(5));
    assert_eq!(outcomes.done(Seqno(4), Seqno(0)), (vec![], None));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| outcomes.wait(Seqno(5)));
        outcomes.decide(Seqno(5), Code(7));
        assert_eq!(waiter.join().unwrap(), Some(Code(7)));
    });
    assert_eq!(outcomes.done(Seqno(5), Seqno(0)), (vec![], None));
    // The decision comes first.
    outcomes.decide(Seqno(8), Code::DONE);
    assert_eq!(outcomes.failed(Seqno(8)), Some(Code::DONE));
    assert_eq!(outcomes.wait(Seqno(8)), Some(Code::DONE));
    outcomes.end();
    assert_eq!(outcomes.wait(Seqno(9)), None);
}
