//! Ledger rounds under faults of the C library, of the network, and kills; see `redoubt_chaos::fault_rounds`.
//!
//! `REDOUBT_FAULT_ROUNDS` sets the number of rounds (default: one of each kind), `REDOUBT_SEED` the seed.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_chaos::fault_rounds::{Options, kinds::Kind, lie, run};
use redoubt_test_support::setting;

#[test]
fn nothing_acknowledged_is_lost_under_faults() {
    let options = Options {
        seed: setting("REDOUBT_SEED", 1),
        rounds: setting("REDOUBT_FAULT_ROUNDS", Kind::ALL.len() as u64) as u32,
        seconds: None,
        kinds: Vec::new(),
        commits: 200,
        server: None,
        keep: None,
    };
    let summary = run(&options, |line| println!("{line}")).unwrap_or_else(|error| panic!("{error}"));
    println!("{summary:#?}");
    assert!(summary.faults.values().sum::<u64>() > 100, "hardly a fault: {summary:?}");
    // Each round had a fault, and each failure of the log has stopped the volume, or `run` had failed.
    assert_eq!(summary.rounds.values().sum::<u64>(), u64::from(options.rounds));
    let log_failed = summary.rounds.get("NodeLogError").copied().unwrap_or_default();
    let stops_and_ends = summary.volume_stopped.min(summary.server_ended);
    assert!(stops_and_ends >= log_failed, "{summary:?}");
    assert!(log_failed > 0 || (options.rounds as usize) < Kind::ALL.len(), "{summary:?}");
    assert!(summary.pages_verified > 0, "no page was compared: {summary:?}");
}

#[test]
fn a_node_that_only_says_it_has_written_its_log_is_found_out() {
    // The ledger is what is tested: where the node is first, once more.
    let seed = setting("REDOUBT_SEED", 1);
    let told = (seed..seed + 5).find_map(|seed| lie::run(seed).unwrap());
    let (report, faults) = told.expect("node or server was first five times");
    println!("{report:#?} {faults:?}");
    assert!(faults["write swallow"] > 0);
    assert!(
        report.faults.iter().any(|fault| fault.contains("was acknowledged and is missing")),
        "the ledger did not notice: {report:?}"
    );
}
