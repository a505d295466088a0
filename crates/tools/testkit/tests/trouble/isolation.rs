//! Isolation under kills and a bad network: no anomaly that the stock server does not show; see
//! `redoubt_chaos::isolation`.
//!
//! And where the anomalies of kills come from, on the stock server, step by step.
//!
//! `REDOUBT_ISOLATION_TRANSACTIONS` sets the transactions per level and server, `REDOUBT_SEED` the seed.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::time::Duration;

use mysql::prelude::Queryable;
use redoubt_chaos::faults::Injector;
use redoubt_chaos::isolation::check::Anomaly;
use redoubt_chaos::isolation::compare::{Options, run};
use redoubt_chaos::isolation::workload::Level;
use redoubt_chaos::isolation::{History, Operation, Status, Transaction, check};
use redoubt_test_support::setting;
use redoubt_workload::launcher::Launcher;
use redoubt_workload::process::poll_until;
use redoubt_workload::server::{Server, ServerConfig};

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

const LIST: &str = "SELECT list FROM test.register WHERE id = 1";

fn list(conn: &mut mysql::Conn) -> Vec<u64> {
    let text: Option<String> = conn.query_first(LIST).unwrap();
    text.iter().flat_map(|text| text.split(',')).map(|word| word.parse().unwrap()).collect()
}

/// The lists that three sessions read around a kill: the writer reads its own append, another session reads the same,
/// and a third one reads afterwards. The write of the log is held up, so the writer's COMMIT is visible and not
/// durable.
fn lists_around_a_kill(server: &mut Server, faults: &Injector, level: Level) -> [Vec<u64>; 3] {
    let [mut writer, mut reader] = [(); 2].map(|()| server.connect().unwrap());
    for conn in [&mut writer, &mut reader] {
        conn.query_drop(format!("SET SESSION TRANSACTION ISOLATION LEVEL {}", level.name())).unwrap();
    }
    writer.query_drop("REPLACE INTO test.register VALUES (1, '7')").unwrap();
    writer.query_drop("START TRANSACTION").unwrap();
    writer.query_drop("UPDATE test.register SET list = CONCAT(list, ',1') WHERE id = 1").unwrap();
    let own = list(&mut writer);
    faults.set(1, "write delay path=*ib_logfile0 us=5000000..5000000\n").unwrap();
    let committing = std::thread::spawn(move || writer.query_drop("COMMIT"));
    let early = poll_until("the commit to be seen", Duration::from_secs(30), || {
        // At SERIALIZABLE the read waits for the writer's lock; a snapshot does not move, so each look has its own.
        reader.query_drop("START TRANSACTION").unwrap();
        let seen = list(&mut reader);
        Ok(seen.contains(&1).then_some(seen))
    })
    .unwrap();
    server.kill9().unwrap();
    // An answer means that the kill came too late; the caller sees it in the last list.
    let _ = committing.join().unwrap();
    faults.clear().unwrap();
    server.start().unwrap();
    let mut next = server.connect().unwrap();
    next.query_drop("UPDATE test.register SET list = CONCAT(list, ',2') WHERE id = 1").unwrap();
    [own, early, list(&mut next)]
}

#[test]
fn the_stock_server_shows_commits_that_a_kill_takes_back() {
    let control = tempfile::tempdir().unwrap();
    let faults = Injector::new(control.path(), "mariadbd").unwrap();
    let mut config = ServerConfig::new(Launcher::Stock).server_arg("--skip-log-bin");
    config.environment = faults.environment();
    let mut server = Server::create(config).unwrap();
    let mut conn = server.connect().unwrap();
    conn.query_drop("CREATE DATABASE IF NOT EXISTS test").unwrap();
    conn.query_drop("CREATE TABLE test.register (id INT PRIMARY KEY, list TEXT NOT NULL) ENGINE=InnoDB")
        .unwrap();

    for level in Level::ALL {
        // The kill has five seconds. Where the machine stood still for longer, it is done again.
        let tries = (0..5).map(|_| lists_around_a_kill(&mut server, &faults, level));
        let [own, early, last] = tries.into_iter().find(|[_, _, last]| !last.contains(&1)).unwrap();
        assert_eq!((&own[..], &early[..], &last[..]), (&[7, 1][..], &[7, 1][..], &[7, 2][..]));

        // The checker's view: the session that saw the commit ended with the server.
        let read = |list: &[u64]| Operation::Read(1, list.to_vec());
        let steps = [
            (Status::Committed, vec![Operation::Append(1, 7)]),
            (Status::Unknown, vec![Operation::Append(1, 1), read(&own)]),
            (Status::Aborted, vec![read(&early)]),
            (Status::Committed, vec![Operation::Append(1, 2)]),
            (Status::Committed, vec![read(&last)]),
        ];
        let transactions = steps.into_iter().zip(0u64..).map(|((status, operations), number)| Transaction {
            operations,
            status,
            began: 10 * number,
            ended: 10 * number + 5,
        });
        let findings = check(&History { transactions: transactions.collect() });
        let classes: Vec<_> = findings.anomalies.keys().copied().collect();
        assert_eq!(classes, [Anomaly::EarlyRead], "{}: {findings:?}", level.name());
    }
    assert!(faults.counts().unwrap().contains_key("write delay"));
}
