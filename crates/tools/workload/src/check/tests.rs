use super::*;

fn rows(rows: &[[&str; 2]]) -> Vec<Vec<String>> {
    rows.iter().map(|[kind, text]| ["d.t", "check", kind, text].map(str::to_owned).to_vec()).collect()
}

const DELETE_MARKED: &str = "InnoDB: Clustered index record not found for index `v` of table `d`.`t`: \
                             COMPACT RECORD(info_bits=32, 2 fields): {[4]    (0x80000000)}";

const UNPURGED: &str =
    "InnoDB: Unpurged clustered index record in table `d`.`t`: COMPACT RECORD(info_bits=32, 5 fields): {}";

const STALE: &str = "InnoDB: Clustered index record with stale history in table `d`.`t`: \
                     COMPACT RECORD(info_bits=0, 5 fields): {[4]    (0x80000001)}";

#[test]
fn a_history_that_purge_left_is_no_damage_but_does_not_hide_any() {
    assert_eq!(judge(&rows(&[["Warning", STALE], ["status", "OK"]])), Verdict::Sound);
    assert_eq!(judge(&rows(&[["Warning", STALE], ["error", "Corrupt"]])), Verdict::Damaged);
    let mixed = rows(&[["Warning", STALE], ["Warning", DELETE_MARKED], ["status", "OK"]]);
    assert_eq!(judge(&mixed), Verdict::OnlyDeleteMarked);
}

#[test]
fn only_ok_is_sound_and_delete_marked_records_are_told_from_damage() {
    assert_eq!(judge(&rows(&[["status", "OK"]])), Verdict::Sound);
    assert_eq!(judge(&rows(&[["Warning", DELETE_MARKED], ["status", "OK"]])), Verdict::OnlyDeleteMarked);
    assert_eq!(judge(&rows(&[["Warning", UNPURGED], ["status", "OK"]])), Verdict::Unpurged);
    let both = [["Warning", DELETE_MARKED], ["Warning", UNPURGED], ["status", "OK"]];
    assert_eq!(judge(&rows(&both)), Verdict::Unpurged);
    for text in [DELETE_MARKED, UNPURGED] {
        let live = text.replace("info_bits=32", "info_bits=0");
        assert_eq!(judge(&rows(&[["Warning", &live], ["status", "OK"]])), Verdict::Damaged);
        assert_eq!(
            judge(&rows(&[["Warning", &live], ["Warning", text], ["status", "OK"]])),
            Verdict::Damaged
        );
    }
    assert_eq!(judge(&rows(&[["Warning", DELETE_MARKED], ["error", "Corrupt"]])), Verdict::Damaged);
    assert_eq!(judge(&rows(&[["error", "Corrupt"]])), Verdict::Damaged);
    assert_eq!(judge(&[]), Verdict::Damaged);
}

#[test]
fn every_difference_is_named() {
    let mut before = Snapshot::default();
    before.checksums.extend([("d.a".to_owned(), 1), ("d.b".to_owned(), 2)]);
    let mut after = before.clone();
    before.require_same(&after, "now").unwrap();
    after.checksums.remove("d.a");
    after.checksums.insert("d.b".into(), 3);
    after.probes.insert("d: SELECT 1".into(), Vec::new());
    let text = before.require_same(&after, "now").unwrap_err().to_string();
    for part in ["d.a is gone", "d.b was 2 and is 3", "d: SELECT 1 is new"] {
        assert!(text.contains(part), "{text}");
    }
}
