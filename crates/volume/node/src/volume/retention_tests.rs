use super::*;
use redoubt_wire::Seq;

fn point(seq: u64, lsn: u64) -> Point {
    Point { seq: Seq(seq), lsn: Lsn(lsn) }
}

fn with_redo(bytes: u64) -> Arc<Retention> {
    let retention = Arc::<Retention>::default();
    for from in (0..bytes).step_by(POSITION_GAP_BYTES as usize / 2) {
        let to = from + POSITION_GAP_BYTES / 2;
        retention.note(point(from * 2, from), point(to * 2, to));
    }
    retention
}

#[test]
fn a_position_is_at_or_before_its_lsn_and_not_far_before() {
    let retention = with_redo(10 * POSITION_GAP_BYTES);
    for lsn in [0, 1, POSITION_GAP_BYTES, 5 * POSITION_GAP_BYTES + 17] {
        let found = retention.position(Lsn(lsn)).unwrap();
        assert!(found.lsn.0 <= lsn && lsn - found.lsn.0 <= 2 * POSITION_GAP_BYTES, "{lsn}: {found:?}");
    }
}

#[test]
fn a_pin_keeps_what_the_checkpoint_no_longer_needs() {
    let retention = with_redo(10 * POSITION_GAP_BYTES);
    let old = point(2 * POSITION_GAP_BYTES, POSITION_GAP_BYTES);
    let new = point(16 * POSITION_GAP_BYTES, 8 * POSITION_GAP_BYTES);
    let first = retention.pin(|| old);
    let second = retention.pin(|| point(6 * POSITION_GAP_BYTES, 3 * POSITION_GAP_BYTES));
    assert_eq!(retention.give_up_before(new), old);
    assert!(retention.position(old.lsn).unwrap().lsn <= old.lsn);
    drop(first);
    assert_eq!(retention.give_up_before(new).lsn, Lsn(3 * POSITION_GAP_BYTES));
    drop(second);
    assert_eq!(retention.give_up_before(new), new);
    assert_eq!(retention.position(old.lsn), None, "what was given up is forgotten");
    assert!(retention.position(new.lsn).is_some());
}

#[test]
fn a_pin_for_so_much_redo_keeps_no_more() {
    let retention = with_redo(10 * POSITION_GAP_BYTES);
    let old = point(2 * POSITION_GAP_BYTES, POSITION_GAP_BYTES);
    let new = point(16 * POSITION_GAP_BYTES, 8 * POSITION_GAP_BYTES);
    let newest = 9 * POSITION_GAP_BYTES;
    let enough = retention.pin_at_most(old, newest - old.lsn.0);
    assert_eq!(retention.give_up_before(new), old);
    assert!(enough.is_kept());
    let short = retention.pin_at_most(old, newest - old.lsn.0 - 1);
    drop(enough);
    assert!(short.is_kept(), "nothing was given up yet");
    assert_eq!(retention.give_up_before(new), new);
    assert!(!short.is_kept());
}

#[test]
fn a_frame_without_redo_is_no_position() {
    let retention = Retention::default();
    retention.note(point(14, 7), point(100, 7));
    assert_eq!(retention.position(Lsn(7)), None);
}

#[test]
fn of_a_log_that_was_left_only_the_beginning_is_known_until_more_is_noted() {
    let retention = Arc::<Retention>::default();
    let (beginning, applied) = (point(1000, 50), point(1_000_000, 900_000));
    retention.begin(beginning);
    for lsn in [50, 51, 899_999, 2_000_000] {
        assert_eq!(retention.position(Lsn(lsn)), Some(beginning));
    }
    assert_eq!(retention.position(Lsn(49)), None, "it was given up");
    retention.note(applied, point(1_000_200, 900_100));
    assert_eq!(retention.position(Lsn(899_999)), Some(beginning));
    assert_eq!(retention.position(Lsn(900_000)), Some(applied));
    assert_eq!(retention.give_up_before(beginning), beginning);
    assert_eq!(retention.position(Lsn(50)), Some(beginning));
    assert_eq!(retention.give_up_before(applied), applied);
    assert_eq!(retention.position(Lsn(50)), None);
}
