use super::causes::{Causes, Kind};
use super::compare::{Comparison, Verdict};
use super::log::{Case, Log, Outcome};
use super::open::Open;
use super::{Options, report, table};

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

/// As `mysql-test-run` 9.7 says it.
#[test]
fn the_share_of_tests_that_are_done_is_passed_over() {
    let log = log("[  2%] innodb.create_tablespace                  [ pass ]   5945\n\
                   [100%] innodb.debug                             [ skipped ]  Test needs debug binaries.\n\
                   [ 50%] innodb.charset 'latin1'                  [ retry-fail ]\n[100%] shutdown_report [ pass ]\n");
    assert_eq!(log.outcomes.len(), 3, "{:?}", log.outcomes);
    assert_eq!(log.outcomes[&case("innodb.create_tablespace", "")], Outcome::Passed { again: false });
    assert!(matches!(log.outcomes[&case("innodb.charset", "latin1")], Outcome::Failed { .. }));
}

/// Suites of groups name tests after what they were reported as.
#[test]
fn a_name_may_have_the_sign_of_a_number() {
    let log = log("galera.galera-features#117               w2 [ pass ]   1945\n\
                   galera.galera#505                        w1 [ fail ]  timeout after 60 seconds\n");
    assert_eq!(log.outcomes[&case("galera.galera-features#117", "")], Outcome::Passed { again: false });
    assert!(matches!(log.outcomes[&case("galera.galera#505", "")], Outcome::Failed { .. }));
    let causes = Causes::parse("galera.galera#505 | limit | it waits\n").unwrap();
    assert!(causes.of(&case("galera.galera#505", "")).is_some());
}

#[test]
fn the_other_side_has_its_name() {
    let comparison = Comparison::new(&log(PLAIN), &log(REDOUBT));
    let text = table::markdown(&comparison, &Causes::default(), "Galera");
    assert!(
        text.contains("| failed only on Galera |") && text.contains("## Failed only on Galera"),
        "{text}"
    );
    assert!(!text.contains("the plain server") && !text.contains("BESIDE"), "{text}");
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
    assert_eq!(verdict("main.skipped_there", ""), Verdict::SkippedOnRedoubt);
}

#[test]
fn the_table_counts_every_case_once() {
    let comparison = Comparison::new(&log(PLAIN), &log(REDOUBT));
    let text = table::markdown(&comparison, &Causes::default(), "the plain server");
    assert!(text.contains("| innodb | 3 | 2 | 1 | 0 | 0 | 2 | 0 | 0 | 0 |"), "{text}");
    assert!(text.contains("| main | 2 | 0 | 0 | 1 | 1 | 0 | 1 | 0 | 1 |"), "{text}");
    assert!(text.contains("| all | 5 | 2 | 1 | 1 | 1 | 2 | 1 | 0 | 1 |"), "{text}");
    assert!(text.contains("| open | not looked into yet | 1 | `innodb.undo_truncate` |"), "{text}");
    assert!(text.contains("| innodb | Requires debug build | 1 |"), "{text}");
}

#[test]
fn a_known_cause_is_named() {
    let causes = Causes::parse(
        "# note\n\ninnodb.undo_truncate | files | it changes ibdata1 | by hand\n\
         innodb.undo_truncate '32k' | limit | small pages\n",
    )
    .unwrap();
    let found = causes.of(&case("innodb.undo_truncate", "64k")).unwrap();
    assert_eq!((found.kind, found.reason.as_str()), (Kind::Files, "it changes ibdata1 | by hand"));
    assert_eq!(causes.of(&case("innodb.undo_truncate", "32k")).unwrap().kind, Kind::Limit);
    for other in ["innodb.undo", "innodb.undo_truncate2", "xinnodb.undo_truncate"] {
        assert!(causes.of(&case(other, "")).is_none(), "{other}");
    }
    let comparison = Comparison::new(&log(PLAIN), &log(REDOUBT));
    let text = table::markdown(&comparison, &causes, "the plain server");
    assert!(text.contains("| files | it changes ibdata1 | by hand | 1 |"), "{text}");
}

#[test]
fn a_cause_for_one_combination_excuses_no_other() {
    let causes = Causes::parse("innodb.undo_truncate '32k' | files | x").unwrap();
    assert!(causes.of(&case("innodb.undo_truncate", "64k")).is_none());
    assert!(causes.of(&case("innodb.undo_truncate", "")).is_none());
}

#[test]
fn a_broken_file_of_causes_names_the_line() {
    for (text, part) in [
        ("a.b | files", "line 1: not TEST | KIND | REASON"),
        ("\na.b | laziness | x", "line 2: the kind"),
        ("a.b | files |", "line 1: a field is empty"),
        // These would excuse tests that were never investigated.
        ("mariabackup.* | limit | x", "line 1: not the whole name of one test"),
        ("innodb.undo* | limit | x", "line 1: not the whole name of one test"),
        ("* | limit | x", "line 1: not the whole name of one test"),
        ("mariabackup | limit | x", "line 1: not the whole name of one test"),
        ("mariabackup. | limit | x", "line 1: not the whole name of one test"),
        ("a.b 32k | limit | x", "line 1: no combination in single quotes after the test"),
        ("a.b '' | limit | x", "line 1: no combination in single quotes after the test"),
        ("a.b, a.c | limit | x", "line 1: no combination in single quotes after the test"),
        ("a.b | limit | x\na.b | files | y", "line 2: there is a cause for it already"),
    ] {
        let error = Causes::parse(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn the_causes_that_there_are_can_be_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scripts/server-suite/causes.txt");
    let causes = Causes::read(std::path::Path::new(path)).unwrap();
    assert!(causes.of(&case("mariabackup.huge_lsn", "strict_crc32")).is_some());
    assert!(causes.of(&case("mariabackup.a_test_to_come", "")).is_none());
}

/// The open points between two runs.
fn open(plain: &str, redoubt: &str, causes: &str) -> String {
    let (plain, redoubt) = (log(plain), log(redoubt));
    let causes = Causes::parse(causes).unwrap();
    Open::new(&Comparison::new(&plain, &redoubt), &causes, [&plain, &redoubt]).markdown()
}

#[test]
fn nothing_is_open_where_both_ran_everything() {
    let plain = "a.b [ pass ] 1\na.c [ fail ]\na.d [ skipped ]  no\na.e [ fail ]\na.f [ skipped ]  no\n";
    let redoubt = "a.b [ pass ] 1\na.c [ pass ] 1\na.d [ skipped ]  no\na.e [ fail ]\na.f [ pass ] 2\n";
    assert_eq!(open(plain, redoubt, ""), "");
    // Causes of tests that were not run are another matter, and of those that neither could run.
    assert_eq!(open(plain, redoubt, "z.z | limit | x"), "");
    assert_eq!(open(plain, redoubt, "a.d | limit | x"), "");
    let one_only = open("a.b [ pass ] 1\na.c [ pass ] 1\n", "a.b [ pass ] 1\n", "a.c | limit | x");
    assert!(one_only.contains("run on one") && !one_only.contains("nothing needs"), "{one_only}");
}

#[test]
fn what_is_not_shown_to_be_good_is_open() {
    let pass = "a.b [ pass ] 1\n";
    for (plain, redoubt, causes, part) in [
        (pass, "a.b [ fail ]\n", "", "without a cause: a.b"),
        (pass, "a.b [ skipped ]  no\n", "", "without a cause: a.b"),
        ("a.b [ skipped ]  no\n", "a.b [ fail ]\n", "", "without a cause: a.b"),
        // The driver of one side stopped before it, or was never started.
        ("a.b [ pass ] 1\na.c 'x' [ pass ] 1\n", pass, "", "run on one of the servers only: a.c 'x'"),
        (pass, "a.b [ pass ] 1\na.c [ pass ] 1\n", "", "run on one of the servers only: a.c"),
        (pass, "a.b [ pass ] 1\na.c [ fail ]\n", "a.c | limit | x", "run on one of the servers only: a.c"),
        (pass, "", "", "a run has no result at all"),
        ("", "", "", "a run has no result at all"),
        // It was fixed, or misspelt.
        (pass, pass, "a.b | limit | x", "a cause that nothing needs: a.b"),
        (
            "a.b '1' [ pass ] 1\na.b '2' [ pass ] 1\n",
            "a.b '1' [ fail ]\na.b '2' [ pass ] 1\n",
            "a.b '1' | limit | x\na.b '2' | limit | x",
            "a cause that nothing needs: a.b '2'",
        ),
    ] {
        let text = open(plain, redoubt, causes);
        assert!(text.contains(part), "{plain:?} {redoubt:?}: {text:?}");
    }
}

#[test]
fn a_driver_that_stopped_is_no_success() {
    let directory = tempfile::tempdir().unwrap();
    let [plain, redoubt] = ["plain", "redoubt"].map(|name| directory.path().join(name));
    for run in [&plain, &redoubt] {
        std::fs::create_dir(run).unwrap();
        std::fs::write(run.join("a-0000.log"), "a.b [ pass ] 1\n").unwrap();
    }
    let options =
        Options { plain, redoubt: redoubt.clone(), causes: None, beside: "the plain server".to_owned() };
    assert!(report(&options).unwrap().1);
    let part = redoubt.join("a-0040.part");
    std::fs::write(&part, "a.c [ pass ] 1\nmysql-test-run: *** ERROR: no space left\n").unwrap();
    let (text, is_well) = report(&options).unwrap();
    assert!(!is_well && text.contains(&format!("did not come to its end: {}", part.display())), "{text}");
    // When it was run again, its log has its name.
    std::fs::rename(&part, redoubt.join("a-0040.log")).unwrap();
    std::fs::write(options.plain.join("a-0040.log"), "a.c [ pass ] 1\n").unwrap();
    assert!(report(&options).unwrap().1);
}
