//! The skip rule, on runs encoded by hand.

use super::*;
use crate::layout;

const FLAGS: SpaceFlags = SpaceFlags(0x15);
const ID: PageId = PageId::new(5, 6);
/// INIT_PAGE 5:6.
const INIT: [u8; 3] = [0x12, 5, 6];
/// FREE_PAGE 5:6.
const FREE: [u8; 3] = [0x02, 5, 6];

/// WRITE of one byte at offset `offset` (below 128) of 5:6.
const fn write(offset: u8, byte: u8) -> [u8; 5] {
    [0x34, 5, 6, offset, byte]
}

fn change(start: u64, end: u64, run: &[u8]) -> Change<'_> {
    Change { start_lsn: Lsn(start), end_lsn: Lsn(end), run }
}

fn apply(page: &mut [u8], valid: bool, changes: &[Change<'_>]) -> Result<ApplyOutcome, ApplyError> {
    apply_changes(page, ID, FLAGS, valid, changes.iter().copied())
}

fn page_at(lsn: u64) -> Vec<u8> {
    let mut page = vec![0; 16384];
    assert!(set_page_lsn(&mut page, Lsn(lsn)));
    page
}

#[test]
fn changes_before_the_page_lsn_are_skipped() {
    let mut page = page_at(200);
    let (a, b) = (write(60, 1), write(61, 2));
    let outcome = apply(&mut page, true, &[change(100, 200, &a), change(200, 300, &b)]).unwrap();
    assert_eq!(outcome, ApplyOutcome { applied: 1, skipped: 1, freed: false });
    assert_eq!(page[60..62], [0, 2]);
    assert_eq!(layout::page_lsn(&page), Some(Lsn(300)));
}

#[test]
fn all_runs_of_one_mini_transaction_are_applied() {
    let mut page = page_at(100);
    let (a, b, c) = (write(60, 1), write(61, 2), write(62, 3));
    let changes = [change(100, 200, &a), change(100, 200, &b), change(100, 200, &c)];
    let outcome = apply(&mut page, true, &changes).unwrap();
    assert_eq!(outcome.applied, 3);
    assert_eq!(page[60..63], [1, 2, 3]);
}

#[test]
fn the_last_init_page_is_the_beginning_whatever_the_base() {
    let mut page = vec![0xee; 16384];
    let (a, b, c) = (write(60, 1), write(61, 2), write(62, 3));
    let changes = [
        change(100, 200, &INIT),
        change(200, 300, &a),
        change(300, 400, &FREE),
        change(400, 500, &INIT),
        change(400, 500, &b),
        change(500, 600, &c),
    ];
    for valid in [false, true] {
        page.fill(0xee);
        let outcome = apply(&mut page, valid, &changes).unwrap();
        assert_eq!(outcome, ApplyOutcome { applied: 3, skipped: 3, freed: false });
        assert_eq!(page[59..64], [0, 0, 2, 3, 0]);
        assert_eq!(layout::page_lsn(&page), Some(Lsn(600)));
    }
}

#[test]
fn records_before_init_page_in_the_same_run_are_void() {
    // The WRITE would end outside the page, but INIT_PAGE makes it void.
    let mut run = vec![0x36, 5, 6, 0xff, 0xff, 1, 2];
    run[3..5].copy_from_slice(&[0xbf, 0x80]);
    run.extend_from_slice(&INIT);
    run.extend_from_slice(&[0xb2, 36, 9]);
    let mut page = vec![0xee; 16384];
    apply(&mut page, false, &[change(100, 200, &run)]).unwrap();
    assert_eq!(page[59..62], [0, 9, 0]);
}

#[test]
fn no_base_and_no_init_page_is_an_error() {
    let mut page = vec![0; 16384];
    let a = write(60, 1);
    assert!(matches!(apply(&mut page, false, &[change(100, 200, &a)]), Err(ApplyError::NoBase { .. })));
    let outcome = apply(&mut page, false, &[change(100, 200, &FREE)]).unwrap();
    assert!(outcome.freed);
}

#[test]
fn free_page_does_not_move_the_page_lsn() {
    let mut page = page_at(100);
    let outcome = apply(&mut page, true, &[change(100, 200, &FREE)]).unwrap();
    assert!(outcome.freed);
    assert_eq!(layout::page_lsn(&page), Some(Lsn(100)));
}

#[test]
fn free_page_keeps_what_was_there() {
    let mut page = page_at(100);
    let a = write(60, 1);
    let outcome = apply(&mut page, true, &[change(100, 200, &a), change(200, 300, &FREE)]).unwrap();
    assert_eq!(outcome, ApplyOutcome { applied: 2, skipped: 0, freed: true });
    assert_eq!((page[60], layout::page_lsn(&page)), (1, Some(Lsn(200))));
}

#[test]
fn a_run_without_records_is_an_error() {
    let error = apply(&mut page_at(100), true, &[change(100, 200, &[])]).unwrap_err();
    assert!(matches!(error, ApplyError::EmptyRun { .. }), "{error}");
}

#[test]
fn a_change_of_a_free_page_is_an_error() {
    let mut page = page_at(100);
    let a = write(60, 1);
    let error = apply(&mut page, true, &[change(100, 200, &FREE), change(200, 300, &a)]).unwrap_err();
    assert!(matches!(error, ApplyError::ChangeOfFreePage { .. }), "{error}");
    assert!(error.to_string().contains("WRITE changes page 5:6 after FREE_PAGE"), "{error}");
}

#[test]
fn changes_of_which_is_known_that_they_reset_nothing_give_the_same_page() {
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..1000 {
        let starts_anew = random.bool();
        let lsns: Vec<u64> = (0..random.u64(1..30)).map(|at| 100 + at * 10).collect();
        let mut runs: Vec<_> =
            lsns.iter().map(|_| write(random.u8(60..100), random.u8(..)).to_vec()).collect();
        if starts_anew {
            runs[0].splice(0..0, INIT);
        }
        let changes: Vec<_> = lsns.iter().zip(&runs).map(|(lsn, run)| change(*lsn, lsn + 10, run)).collect();
        let base = page_at(random.u64(90..420));
        let (mut one, mut other) = (base.clone(), base);
        let outcome = apply(&mut one, true, &changes).unwrap();
        let same = apply_known_changes(&mut other, ID, FLAGS, starts_anew, changes.iter().copied()).unwrap();
        assert!(outcome == same && one == other, "round {round}");
    }
    let empty = apply_known_changes(&mut page_at(0), ID, FLAGS, false, [change(1, 2, &[])]);
    assert!(matches!(empty, Err(ApplyError::EmptyRun { .. })));
}
