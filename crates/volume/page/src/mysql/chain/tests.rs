use super::*;
use crate::layout::get_u16;

const ID: PageId = PageId::new(7, 4);
const FLAGS: Flags = Flags(0);

fn change(start_lsn: u64, end_lsn: u64, run: &[u8]) -> Change<'_> {
    Change { start_lsn: Lsn(start_lsn), end_lsn: Lsn(end_lsn), run }
}

/// Writes a byte.
fn write(offset: u8, value: u8) -> [u8; 6] {
    [1, 7, 4, 0, offset, value]
}

fn apply(page: &mut [u8], base_is_valid: bool, changes: &[Change<'_>]) -> Result<ApplyOutcome, ApplyError> {
    let changes = changes.iter().copied();
    match apply_changes(page, ID, FLAGS, base_is_valid, changes, &mut Scratch::default())? {
        Applied::UpToDate(outcome) => Ok(outcome),
        Applied::NeedsImage { kind } => panic!("{kind}"),
    }
}

#[test]
fn a_page_lsn_is_the_servers() {
    let mut page = vec![0; 16384];
    // Ends where a block of the server's log ends: the LSN is that of the next block's first byte.
    apply(&mut page, true, &[change(400, 496, &write(60, 1))]).unwrap();
    assert_eq!(get_u64(&page, FIL_PAGE_LSN), Some(512 + 12));
    assert_eq!(page_lsn(&page), Some(Lsn(496)));
    let outcome = apply(&mut page, true, &[change(496, 500, &write(61, 2))]).unwrap();
    assert_eq!((outcome.applied, outcome.skipped), (1, 0));
    assert_eq!(page_lsn(&page), Some(Lsn(500)));
    assert_eq!(page[60..62], [1, 2]);
}

#[test]
fn what_is_in_the_image_is_skipped_and_all_runs_of_one_mini_transaction_are_not() {
    let mut page = vec![0; 16384];
    set_page_lsn(&mut page, Lsn(1000));
    let runs = [write(60, 1), write(61, 2), write(62, 3), write(63, 4)];
    let changes = [
        change(900, 1000, &runs[0]),
        change(1000, 1100, &runs[1]),
        change(1000, 1100, &runs[2]),
        change(1100, 1200, &runs[3]),
    ];
    let outcome = apply(&mut page, true, &changes).unwrap();
    assert_eq!((outcome.applied, outcome.skipped), (3, 1));
    assert_eq!(page[60..64], [0, 2, 3, 4]);
    assert_eq!(page_lsn(&page), Some(Lsn(1200)));
}

#[test]
fn the_last_init_counts_unless_the_image_is_newer() {
    let init = [&write(60, 9)[..], &[59, 7, 4], &write(61, 1)].concat();
    let after = write(62, 2);
    let broken = [1, 7, 4, 0xff, 0xff, 0];
    let changes = [change(10, 20, &broken), change(20, 30, &init), change(30, 40, &after)];
    for base_is_valid in [false, true] {
        let mut page = vec![0; 16384];
        page[100] = 5;
        let outcome = apply(&mut page, base_is_valid, &changes).unwrap();
        assert_eq!((outcome.applied, outcome.skipped), (2, 1));
        assert_eq!(page[60..63], [0, 1, 2]);
        assert_eq!((page[100], page[7], page[37]), (0, 4, 7));
    }
    // An image from after that is kept, with what is in no record.
    let mut page = vec![0; 16384];
    page[100] = 5;
    set_page_lsn(&mut page, Lsn(30));
    let outcome = apply(&mut page, true, &changes).unwrap();
    assert_eq!((outcome.applied, outcome.skipped), (1, 2));
    assert_eq!((page[61], page[62], page[100]), (0, 2, 5));
    // Unless it does not count.
    let mut page = vec![0xee; 16384];
    apply(&mut page, false, &changes).unwrap();
    assert_eq!((page[61], page[62], page[100]), (1, 2, 0));
}

#[test]
fn nothing_to_start_from_is_an_error() {
    let mut page = vec![0xee; 16384];
    let change = change(10, 20, &[1, 7, 4, 0, 60, 9]);
    assert!(matches!(apply(&mut page, false, &[change]), Err(ApplyError::NoBase { .. })));
    assert_eq!(apply(&mut page, false, &[]).unwrap(), ApplyOutcome::default());
    let empty = Change { run: &[], ..change };
    assert!(matches!(apply(&mut vec![0; 16384], true, &[empty]), Err(ApplyError::EmptyRun { .. })));
    assert!(matches!(apply(&mut vec![0; 4096], true, &[change]), Err(ApplyError::PageSize { .. })));
}

#[test]
fn known_changes_give_the_same() {
    let init = [&[59, 7, 4][..], &[37, 7, 4]].concat();
    let runs = [init, write(70, 7).to_vec()];
    let changes = [change(10, 20, &runs[0]), change(20, 30, &runs[1])];
    let (mut one, mut other) = (vec![0xee; 16384], vec![0xdd; 16384]);
    apply(&mut one, false, &changes).unwrap();
    let applied = apply_known_changes(&mut other, ID, FLAGS, true, changes, &mut Scratch::default()).unwrap();
    assert!(matches!(applied, Applied::UpToDate(outcome) if outcome.applied == 2));
    assert_eq!(one, other);
    assert_eq!(get_u16(&one, 24), Some(17855));
}

#[test]
fn an_index_load_changes_nothing() {
    let mut page = vec![0; 16384];
    let outcome = apply(&mut page, true, &[change(10, 20, &[61, 7, 4, 0, 0, 0, 0, 0, 0, 0, 9])]).unwrap();
    assert_eq!(outcome.applied, 1);
    assert!(page.iter().all(|byte| *byte == 0));
}
