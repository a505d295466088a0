//! Decisions for all orders of votes, departures of voters, and members that start from a state.

use super::*;

const ERROR: Code = Code(7);
const OTHER_ERROR: Code = Code(9);
const AT: Seqno = Seqno(5);

fn members(count: u64) -> Vec<MemberId> {
    (1..=count).map(MemberId).collect()
}

/// The decision after all these votes, which must be the same in any order; the first vote has an error.
fn decision(votes: &[Code]) -> Code {
    let members = members(votes.len() as u64);
    let mut found = Vec::new();
    let count = votes.len();
    for first in (0..count).filter(|first| votes[*first] != Code::DONE) {
        for step in 1..count.max(2) {
            let mut ballots = Ballots::default();
            let mut order: Vec<usize> = (0..count).map(|at| (first + at * step) % count).collect();
            order.dedup();
            order.extend(0..count);
            let mut news = Vec::new();
            for at in order {
                news.extend(ballots.vote(members[at], AT, votes[at], members.clone()));
            }
            assert_eq!(news[0], News::Opened(AT));
            let [News::Decided(AT, code)] = news[1..] else { panic!("{news:?}") };
            found.push(code);
        }
    }
    assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{votes:?}: {found:?}");
    found[0]
}

#[test]
fn most_members_are_right_and_of_two_the_one_that_could() {
    assert_eq!(decision(&[ERROR, Code::DONE, Code::DONE]), Code::DONE);
    assert_eq!(decision(&[ERROR, ERROR, Code::DONE]), ERROR);
    assert_eq!(decision(&[ERROR, ERROR, ERROR]), ERROR);
    assert_eq!(decision(&[ERROR, Code::DONE]), Code::DONE);
    assert_eq!(decision(&[ERROR]), ERROR);
    assert_eq!(decision(&[ERROR, OTHER_ERROR]), ERROR);
    assert_eq!(decision(&[ERROR, OTHER_ERROR, Code::DONE]), Code::DONE);
    assert_eq!(decision(&[ERROR, ERROR, Code::DONE, Code::DONE]), Code::DONE);
}

#[test]
fn success_alone_opens_nothing_and_a_late_vote_changes_nothing() {
    let mut ballots = Ballots::default();
    assert_eq!(ballots.vote(MemberId(1), AT, Code::DONE, members(3)), []);
    assert_eq!(ballots.vote(MemberId(1), AT, ERROR, members(3)), [News::Opened(AT)]);
    assert_eq!(ballots.vote(MemberId(1), AT, Code::DONE, members(3)), [], "a member votes once");
    assert_eq!(ballots.vote(MemberId(9), AT, Code::DONE, members(3)), [], "one that was not there");
    assert_eq!(ballots.vote(MemberId(2), AT, Code::DONE, members(3)), []);
    assert_eq!(ballots.vote(MemberId(3), AT, Code::DONE, members(3)), [News::Decided(AT, Code::DONE)]);
    assert_eq!(ballots.vote(MemberId(2), AT, ERROR, members(3)), []);
}

#[test]
fn who_goes_is_not_waited_for() {
    let mut ballots = Ballots::default();
    ballots.vote(MemberId(1), AT, ERROR, members(3));
    ballots.vote(MemberId(2), AT, Code::DONE, members(3));
    assert_eq!(ballots.gone(MemberId(3)), [News::Decided(AT, Code::DONE)]);
    ballots.vote(MemberId(1), Seqno(6), ERROR, members(2));
    assert_eq!(ballots.gone(MemberId(2)), [News::Decided(Seqno(6), ERROR)], "alone it is right");
    ballots.vote(MemberId(1), Seqno(8), ERROR, members(2));
    assert_eq!(ballots.gone(MemberId(1)), [], "the other one has still to say");
    assert_eq!(ballots.gone(MemberId(2)), []);
    assert_eq!(ballots.open.len(), 0);
}

#[test]
fn a_state_in_bytes_goes_on_the_same_way() {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut first = Ballots::default();
    for _ in 0..2000 {
        let present = members(rng.u64(1..6));
        let (member, seqno) = (MemberId(rng.u64(1..6)), Seqno(rng.i64(1..900)));
        let code = *rng.choice([Code::DONE, ERROR, OTHER_ERROR].iter()).unwrap();
        let mut out = Vec::new();
        first.encode(&mut out);
        let mut reader = Reader::new(&out);
        let mut second = Ballots::decode(&mut reader).unwrap();
        assert!(reader.rest().is_empty());
        let news = |ballots: &mut Ballots| match seqno.0 % 50 {
            0 => ballots.gone(member),
            _ => ballots.vote(member, seqno, code, present.clone()),
        };
        assert_eq!(news(&mut first), news(&mut second));
        assert_eq!(first, second);
        for _ in 0..3 {
            let cut = rng.usize(0..out.len());
            let mut reader = Reader::new(&out[..cut]);
            assert!(Ballots::decode(&mut reader).is_err(), "{cut} of {} bytes", out.len());
        }
    }
}

#[test]
fn decided_ones_do_not_grow_for_ever() {
    let mut ballots = Ballots::default();
    for seqno in 0..3 * MAX_DECIDED as i64 {
        ballots.vote(MemberId(1), Seqno(seqno), ERROR, members(1));
    }
    assert_eq!((ballots.open.len(), ballots.decided.len()), (0, MAX_DECIDED));
}

#[test]
fn codes_are_those_of_the_words() {
    assert_eq!(Code::of(b""), Code::DONE);
    assert_ne!(Code::of(b"no such row"), Code::DONE);
    assert_eq!(Code::of(b"no such row"), Code::of(b"no such row"));
    assert_ne!(Code::of(b"no such row"), Code::of(b"no such table"));
}
