//! One crafted history per class of anomaly, and histories that are fine.

use super::*;

/// Steps as text: `r1:1,2` reads register 1 as [1, 2], `a1:3` appends 3 to it.
fn transaction(status: Status, began: u64, ended: u64, steps: &str) -> Transaction {
    let operations = steps.split_whitespace().map(|step| {
        let (kind, rest) = step.split_at(1);
        let (key, values) = rest.split_once(':').unwrap();
        let key = key.parse().unwrap();
        let mut values =
            values.split(',').filter(|value| !value.is_empty()).map(|value| value.parse().unwrap());
        match kind {
            "r" => Operation::Read(key, values.collect()),
            _ => Operation::Append(key, values.next().unwrap()),
        }
    });
    Transaction { operations: operations.collect(), status, began, ended }
}

/// Committed transactions that all overlap.
fn committed(steps: &[&str]) -> History {
    History {
        transactions: steps.iter().map(|steps| transaction(Status::Committed, 0, 1000, steps)).collect(),
    }
}

fn classes(history: &History) -> Vec<Anomaly> {
    check(history).anomalies.into_keys().collect()
}

#[test]
fn a_serial_history_is_fine() {
    let mut history = committed(&["a1:1 a2:2", "r1:1 a1:3 r1:1,3", "r2:2 a2:4", "r1:1,3 r2:2,4"]);
    for (index, transaction) in history.transactions.iter_mut().enumerate() {
        (transaction.began, transaction.ended) = (10 * index as u64, 10 * index as u64 + 5);
    }
    let findings = check(&history);
    assert!(findings.anomalies.is_empty(), "{findings:?}");
    assert_eq!(findings.committed, 4);
}

#[test]
fn dirty_write() {
    // 0 before 1 on register 1, 1 before 0 on register 2.
    assert_eq!(classes(&committed(&["a1:1 a2:4", "a1:2 a2:3", "r1:1,2 r2:3,4"])), [Anomaly::G0]);
}

#[test]
fn aborted_read() {
    let mut history = committed(&["r1:1"]);
    history.transactions.push(transaction(Status::Aborted, 0, 9, "a1:1"));
    assert_eq!(classes(&history), [Anomaly::G1a]);
    // Built upon: the aborted value lies between committed ones.
    let mut history = committed(&["a1:2", "r1:1,2"]);
    history.transactions.push(transaction(Status::Aborted, 0, 9, "a1:1"));
    assert_eq!(classes(&history), [Anomaly::G1a]);
}

#[test]
fn intermediate_read() {
    // The reader sees 1, and the writer had advanced to 2; it comes before and after the writer as well.
    let classes = classes(&committed(&["a1:1 a1:2", "r1:1", "r1:1,2"]));
    assert_eq!(classes, [Anomaly::G1b, Anomaly::GSingle]);
}

#[test]
fn circular_information_flow() {
    assert_eq!(classes(&committed(&["a1:1 r2:2", "a2:2 r1:1"])), [Anomaly::G1c]);
}

#[test]
fn read_skew() {
    // The reader has register 1 from before, and register 2 from after the writer.
    assert_eq!(classes(&committed(&["a1:1 a2:2", "r1: r2:2", "r1:1 r2:2"])), [Anomaly::GSingle]);
}

#[test]
fn lost_update_shows_as_a_single_anti_dependency() {
    assert_eq!(classes(&committed(&["r1: a1:1", "r1: a1:2", "r1:1,2"])), [Anomaly::GSingle]);
}

#[test]
fn write_skew() {
    assert_eq!(classes(&committed(&["r1: a2:2", "r2: a1:1", "r1:1 r2:2"])), [Anomaly::G2Item]);
}

#[test]
fn own_reads_that_disagree() {
    assert_eq!(classes(&committed(&["a1:1 r1:"])), [Anomaly::Internal]);
    // The second read has another's append that the first had not.
    let found = classes(&committed(&["a1:1", "r1: r1:1"]));
    assert!(found.contains(&Anomaly::Internal), "{found:?}");
    assert_eq!(classes(&committed(&["a1:1", "r1:1 a1:2 r1:1,2"])), []);
}

#[test]
fn lists_that_do_not_fit() {
    assert!(classes(&committed(&["a1:1", "a1:2", "r1:1,2", "r1:2"])).contains(&Anomaly::IncompatibleOrder));
    assert!(classes(&committed(&["a1:1", "r1:1,1"])).contains(&Anomaly::Duplicate));
    assert!(classes(&committed(&["a1:1", "r1:1,7"])).contains(&Anomaly::Duplicate));
    assert!(classes(&committed(&["a2:1", "r1:1"])).contains(&Anomaly::Duplicate));
}

#[test]
fn lost_append_and_stale_read() {
    let writer = |ended| transaction(Status::Committed, 0, ended, "a1:1");
    let reader = |began| transaction(Status::Committed, began, began + 1, "r1:");
    assert_eq!(classes(&History { transactions: vec![writer(5), reader(6)] }), [Anomaly::LostAppend]);
    // It began before the answer: nothing is wrong.
    assert_eq!(classes(&History { transactions: vec![writer(5), reader(4)] }), []);
    let full = transaction(Status::Committed, 9, 10, "r1:1");
    let stale = History { transactions: vec![writer(5), reader(6), full.clone()] };
    assert_eq!(classes(&stale), [Anomaly::StaleRead]);
    assert_eq!(classes(&History { transactions: vec![writer(5), reader(3), full] }), []);
}

#[test]
fn without_an_answer_both_ends_are_fine_and_halves_are_not() {
    let unknown = |steps| transaction(Status::Unknown, 0, 0, steps);
    let reader = |steps| transaction(Status::Committed, 9, 10, steps);
    assert_eq!(classes(&History { transactions: vec![unknown("a1:1"), reader("r1:")] }), []);
    let history = History { transactions: vec![unknown("a1:1"), reader("r1:1")] };
    assert_eq!((classes(&history), check(&history).recovered), (vec![], 1));
    let later = transaction(Status::Committed, 20, 21, "r1:1 r2:");
    let half = History { transactions: vec![unknown("a1:1 a2:2"), reader("r1:1"), later] };
    assert_eq!(classes(&half), [Anomaly::LostAppend]);
}

#[test]
fn what_a_kill_takes_back_was_seen_early_and_what_was_answered_is_lost() {
    let at = |status, began, steps| transaction(status, began, began + 1, steps);
    let history = |status| {
        let writer = at(status, 0, "a1:1 a2:9");
        let (early, next) = (at(Status::Committed, 5, "r1:1"), at(Status::Committed, 20, "a1:2"));
        let last = at(Status::Committed, 30, "r1:2 r2:");
        History { transactions: vec![writer, early, next, last] }
    };
    let findings = check(&history(Status::Unknown));
    assert_eq!(findings.anomalies.keys().copied().collect::<Vec<_>>(), [Anomaly::EarlyRead], "{findings:?}");
    assert_eq!((findings.recovered, findings.aborted), (0, 1));
    assert_eq!(classes(&history(Status::Committed)), [Anomaly::LostAppend]);
    // One of its values has stayed: then the other is lost.
    let mut half = history(Status::Unknown);
    half.transactions.push(at(Status::Committed, 40, "r1:2 r2:9"));
    assert_eq!(classes(&half), [Anomaly::LostAppend]);
}

#[test]
fn what_was_seen_early_by_a_transaction_that_the_kill_ended_was_never_committed() {
    let at = |status, began, steps| transaction(status, began, began + 1, steps);
    for end_of_the_reader in [Status::Aborted, Status::Unknown, Status::Committed] {
        // Its writer has read it, too: were the writer taken for committed, its list would fit no other.
        let writer = at(Status::Unknown, 0, "a1:1 r1:1");
        let early = at(end_of_the_reader, 5, "r1:1");
        let (next, last) = (at(Status::Committed, 20, "a1:2"), at(Status::Committed, 30, "r1:2"));
        let history = History { transactions: vec![writer, early, next, last] };
        assert_eq!(classes(&history), [Anomaly::EarlyRead], "{end_of_the_reader:?}");
    }
    // Only the transaction itself has seen it: there is no finding.
    let (alone, last) = (at(Status::Unknown, 0, "a1:1 r1:1"), at(Status::Committed, 30, "r1:"));
    assert_eq!(classes(&History { transactions: vec![alone, last] }), []);
}

#[test]
fn long_histories_are_checked_in_reasonable_time() {
    let mut transactions = Vec::new();
    let mut lists: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
    for value in 0..5000u64 {
        let key = (value % 50) as Key;
        let read = Operation::Read(key, lists.entry(key).or_default().clone());
        lists.entry(key).or_default().push(value);
        let operations = vec![read, Operation::Append(key, value)];
        transactions.push(Transaction {
            operations,
            status: Status::Committed,
            began: 2 * value,
            ended: 2 * value + 1,
        });
    }
    let findings = check(&History { transactions });
    assert!(findings.anomalies.is_empty(), "{findings:?}");
}
