//! Data directories of stock servers killed under load become volumes; see `redoubt_testkit::killed_imports`.
//!
//! `REDOUBT_SEED` is the first seed and `REDOUBT_KILLED_IMPORTS` the number of rounds; `make import-killed` does more.

use redoubt_test_support::setting;
use redoubt_testkit::killed_imports::{Options, run};

/// With a node that took FREE_PAGE for no change, seeds 6 and 8 failed in the first run of each.
#[test]
fn a_server_killed_under_load_moves_in_as_its_own_recovery_has_it() {
    let failures = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let options = Options {
        seed: setting("REDOUBT_SEED", 6),
        rounds: setting("REDOUBT_KILLED_IMPORTS", 2) as u32,
        server: None,
        failures: failures.path().to_owned(),
        go_on: false,
        stock: false,
    };
    let summary = run(&options, |line| println!("{line}")).unwrap_or_else(|error| panic!("{error}"));
    println!("{summary:#?}");
    assert_eq!((summary.sound, summary.failures.len()), (options.rounds, 0));
    assert!(summary.statements > 100 && summary.tables_compared > 0, "hardly a load: {summary:?}");
    assert!(summary.pages_verified > 100, "hardly a page was compared: {summary:?}");
}
