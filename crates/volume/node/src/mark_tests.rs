use super::*;
use std::thread;
use std::time::Duration;

fn point(seq: u64, lsn: u64) -> Point {
    Point { seq: Seq(seq), lsn: Lsn(lsn) }
}

#[test]
fn it_never_goes_back() {
    let mark = Mark::at(point(5, 50));
    mark.advance(point(4, 99));
    assert_eq!(mark.get(), point(5, 50));
    mark.advance(point(5, 60));
    assert_eq!(mark.get(), point(5, 60));
    assert_eq!(mark.wait_for(Seq(5), None), WaitEnd::Reached);
    assert_eq!(mark.wait_for(Seq(6), Some(Instant::now())), WaitEnd::TimedOut);
}

#[test]
fn a_point_before_the_first_redo_is_not_shown_further_behind_than_it_is() {
    let end = point(1_000, 5_000_000);
    assert_eq!(point(800, 4_999_900).lsn_seen_from(end), Lsn(4_999_900));
    assert_eq!(point(300, 0).lsn_seen_from(end), Lsn(4_999_300));
    assert_eq!(point(1_000, 0).lsn_seen_from(end), Lsn(5_000_000));
    assert_eq!(point(0, 0).lsn_seen_from(point(500, 0)), Lsn(0));
}

#[test]
fn a_waiter_sees_the_point_it_waited_for() {
    let mark = Mark::default();
    thread::scope(|scope| {
        let waiters: Vec<_> = (1..50)
            .map(|seq| {
                let mark = &mark;
                scope.spawn(move || (mark.wait_for(Seq(seq), None), mark.get().seq >= Seq(seq)))
            })
            .collect();
        let far = scope.spawn(|| mark.wait_for(Seq(1000), Some(Instant::now() + Duration::from_secs(600))));
        for seq in 1..50 {
            mark.advance(point(seq, seq * 10));
        }
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), (WaitEnd::Reached, true));
        }
        mark.close();
        assert_eq!(far.join().unwrap(), WaitEnd::Closed);
    });
    assert_eq!(mark.wait_for(Seq(49), None), WaitEnd::Reached);
    assert_eq!(mark.wait_for(Seq(50), None), WaitEnd::Closed);
}
