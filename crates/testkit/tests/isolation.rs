//! Isolation under kills and a bad network: no anomaly that the stock server does not show; see
//! `redoubt_testkit::isolation`.
//!
//! `REDOUBT_ISOLATION_TRANSACTIONS` sets the transactions per level and server, `REDOUBT_SEED` the seed.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_testkit::isolation::check::Anomaly;
use redoubt_testkit::isolation::compare::{Options, run};
use redoubt_testkit::isolation::workload::Level;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn redoubt_shows_no_anomaly_that_the_stock_server_does_not() {
    let transactions = setting("REDOUBT_ISOLATION_TRANSACTIONS", 1200) as usize;
    let options = Options { seed: setting("REDOUBT_SEED", 1), runs: 1, transactions, kills: 2, clients: 6 };
    let comparison = run(&options, |line| println!("{line}")).unwrap();
    println!("{}", comparison.table());
    comparison.require_no_new().unwrap();
    for (level, outcome) in &comparison.redoubt {
        assert!(outcome.findings.committed as usize > transactions / 4, "{level:?}: hardly a commit");
    }
    // The history can show anomalies at all: the stock server has them where they are expected.
    let read_committed = &comparison.stock[&Level::ReadCommitted].findings;
    assert!(
        read_committed.count(Anomaly::GSingle) + read_committed.count(Anomaly::G2Item) > 0,
        "{read_committed:?}"
    );
}
