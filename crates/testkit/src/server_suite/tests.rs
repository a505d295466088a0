use super::causes::{Causes, Kind};
use super::compare::{Comparison, Verdict};
use super::log::{Case, Log, Outcome};
use super::table;

/// Recorded from `mariadb-test-run` 10.11, shortened.
const PLAIN: &str = include_str!("recorded/plain.log");
const REDOUBT: &str = include_str!("recorded/redoubt.log");

fn log(text: &str) -> Log {
    let mut log = Log::default();
    log.add(text);
    log
}

fn case(test: &str, combination: &str) -> Case {
    Case { test: test.to_owned(), combination: combination.to_owned() }
}

#[test]
fn the_recorded_log_is_read_whole() {
    let log = log(PLAIN);
    assert_eq!(log.outcomes.len(), 9, "{:?}", log.outcomes.keys());
    assert_eq!(log.outcomes[&case("innodb.truncate", "")], Outcome::Passed { again: false });
    assert_eq!(log.outcomes[&case("innodb.undo_truncate", "32k")], Outcome::Passed { again: true });
    assert_eq!(
        log.outcomes[&case("innodb.alter_copy", "")],
        Outcome::Skipped { reason: "Requires debug build".to_owned() }
    );
    assert_eq!(
        log.outcomes[&case("innodb.innodb_bug", "")],
        Outcome::Skipped { reason: "disabled: MDEV-1 waits".to_owned() }
    );
    assert!(matches!(log.outcomes[&case("main.slow", "")], Outcome::Failed { .. }));
}

#[test]
fn output_of_tests_is_no_result() {
    for line in [
        "SELECT 1.5 [ pass ]",
        " - saving [ fail ]",
        "a.b [ strange ]  x",
        "2026-11-22 [ERROR] innodb.truncate failed",
        "worker[01] mysql-test-run: WARNING: running this script as _root_",
        "",
    ] {
        assert!(log(line).outcomes.is_empty(), "{line}");
    }
}

#[test]
fn the_last_outcome_counts_and_a_failure_before_it_is_remembered() {
    let run = log("a.b [ fail ]\na.b [ retry-fail ]\n");
    assert!(matches!(run.outcomes[&case("a.b", "")], Outcome::Failed { .. }));
    let run = log("a.b [ fail ]\na.b [ pass ]   3\na.b w2 [ pass ]   4\n");
    assert_eq!(run.outcomes[&case("a.b", "")], Outcome::Passed { again: true });
    let run = log("a.b [ pass ]\na.b [ fail ]  timeout after 900 seconds\n");
    assert_eq!(
        run.outcomes[&case("a.b", "")],
        Outcome::Failed { comment: "timeout after 900 seconds".to_owned() }
    );
}

#[test]
fn only_what_both_ran_is_compared() {
    let comparison = Comparison::new(&log(PLAIN), &log(REDOUBT));
    let verdict = |test: &str, combination: &str| comparison.verdicts[&case(test, combination)];
    assert_eq!(verdict("innodb.truncate", ""), Verdict::Both);
    assert_eq!(verdict("innodb.undo_truncate", "32k"), Verdict::Both);
    assert_eq!(verdict("innodb.undo_truncate", "64k"), Verdict::OnlyRedoubtFailed);
    assert_eq!(verdict("innodb.alter_copy", ""), Verdict::Skipped);
    assert_eq!(verdict("main.slow", ""), Verdict::OnlyPlainFailed);
    assert_eq!(verdict("main.both_wrong", ""), Verdict::BothFailed);
    assert_eq!(verdict("main.not_on_redoubt", ""), Verdict::NotCompared);
    assert_eq!(verdict("main.skipped_there", ""), Verdict::SkippedOnOne);
}

#[test]
fn the_table_counts_every_case_once() {
    let comparison = Comparison::new(&log(PLAIN), &log(REDOUBT));
    let text = table::markdown(&comparison, &Causes::default());
    assert!(text.contains("| innodb | 3 | 2 | 1 | 0 | 0 | 2 | 0 | 0 |"), "{text}");
    assert!(text.contains("| main | 2 | 0 | 0 | 1 | 1 | 0 | 1 | 1 |"), "{text}");
    assert!(text.contains("| all | 5 | 2 | 1 | 1 | 1 | 2 | 1 | 1 |"), "{text}");
    assert!(text.contains("| open | not looked into yet | 1 | `innodb.undo_truncate` |"), "{text}");
    assert!(text.contains("| innodb | Requires debug build | 1 |"), "{text}");
}

#[test]
fn a_known_cause_is_named() {
    let causes = Causes::parse("# note\n\ninnodb.undo_* | files | it changes ibdata1 | by hand\n").unwrap();
    let found = causes.of(&case("innodb.undo_truncate", "64k")).unwrap();
    assert_eq!((found.kind, found.reason.as_str()), (Kind::Files, "it changes ibdata1 | by hand"));
    assert!(causes.of(&case("innodb.undo", "")).is_none());
    let comparison = Comparison::new(&log(PLAIN), &log(REDOUBT));
    let text = table::markdown(&comparison, &causes);
    assert!(text.contains("| files | it changes ibdata1 | by hand | 1 |"), "{text}");
}

#[test]
fn a_broken_file_of_causes_names_the_line() {
    for (text, part) in [
        ("a.b | files", "line 1: not TEST | KIND | REASON"),
        ("\na.b | laziness | x", "line 2: the kind"),
        ("a.b | files |", "line 1: a field is empty"),
    ] {
        let error = Causes::parse(text).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}
