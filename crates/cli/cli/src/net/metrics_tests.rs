use super::*;
use redoubt_test_support::listed::{check_alerts, metric_rows, rows};
use std::collections::BTreeSet;

fn server(datadir: &str, limit: Option<u32>) -> NetStatus {
    let link = super::super::LinkStatus {
        interface: "eth0".to_owned(),
        mode: "native",
        connections: 3,
        opened: 5,
        frames_received: 7,
        frames_sent: 8,
        frames_dropped: 0,
        segments_retransmitted: 1,
        resets_received: 0,
        timed_out: 0,
        bad_checksums: 2,
    };
    NetStatus {
        process_id: 17,
        datadir: Some(datadir.to_owned()),
        started_at_seconds: 1,
        collapser: "off",
        collapser_in_force: None,
        bypass: false,
        open_connections: 4,
        saved_system_calls: 0,
        admission: super::super::AdmissionStatus {
            limit,
            lease_seconds: 10.0,
            longest_wait_seconds: 30.0,
            inside: 2,
            waiting: 1,
            longest_ended_wait_seconds: 0.25,
            waiters: Vec::new(),
        },
        user_tcp: super::super::UserTcpStatus { is_on: true, interfaces: vec![link] },
        counters: Counter::ALL.iter().map(|counter| (counter.name(), *counter as u64)).collect(),
    }
}

#[test]
fn every_counter_has_a_metric_of_its_own() {
    let names: BTreeSet<&str> = Counter::ALL.iter().map(|counter| described(*counter).0).collect();
    assert_eq!(names.len(), Counter::ALL.len());
    let text = render(&[server("/data", Some(16))], 0);
    for counter in Counter::ALL {
        let name = described(counter).0;
        assert!(name.ends_with("_total"), "{name}");
        let line = format!("{name}{{pid=\"17\",datadir=\"/data\"}} {}\n", counter as u64);
        assert!(text.contains(&line), "{line} in {text}");
    }
}

#[test]
fn reference_page_and_alerts_match_the_metrics_of_the_library() {
    let wanted = metric_rows(&render(&[server("/data", Some(16))], 0));
    let listed = rows(include_str!("../../../../../docs/reference/metrics.md"), "Network library");
    assert!(listed == wanted, "the table of docs/reference/metrics.md is to be:\n{}", wanted.join("\n"));
    check_alerts(
        include_str!("../../../../../packaging/prometheus/redoubt-net.rules.yml"),
        &wanted,
        "docs/net/runbooks.md",
        include_str!("../../../../../docs/net/runbooks.md"),
    );
}

#[test]
fn admission_that_is_off_has_no_limit_sample() {
    let text = render(&[server("/a", None), server("/b", Some(16))], 0);
    assert!(!text.contains("redoubt_net_admission_limit{pid=\"17\",datadir=\"/a\"}"), "{text}");
    assert!(text.contains("redoubt_net_admission_limit{pid=\"17\",datadir=\"/b\"} 16\n"), "{text}");
}

#[test]
fn hostile_datadir_stays_inside_its_label() {
    let text = render(&[server("/x\"} 1\nevil 2", None)], 0);
    assert!(!text.contains("\nevil"), "{text}");
    assert!(text.contains("datadir=\"/x\\\"} 1\\nevil 2\""), "{text}");
}

#[test]
fn no_server_still_gives_every_metric_a_head() {
    let text = render(&[], 3);
    assert!(text.contains("redoubt_net_unreadable_servers 3\n"), "{text}");
    assert!(text.contains("redoubt_net_servers 0\n"), "{text}");
    let heads = text.lines().filter(|line| line.starts_with("# TYPE ")).count();
    let unique: BTreeSet<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    assert_eq!((heads, heads), (unique.len(), 3 + Counter::ALL.len() + 5 + 9));
}
