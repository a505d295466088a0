use super::*;
use crate::report::table;
use crate::statistics::{Latency, Slice};

fn run(backend: &str, pool_mib: u64, bandwidth_bps: Option<u64>, repetition: u32, tps: f64) -> RunReport {
    let latency = Latency { p50_ms: 10.0, p95_ms: 20.0, p99_ms: 40.0 };
    RunReport {
        backend: backend.to_owned(),
        workload: "tpcc".to_owned(),
        pool_bytes: pool_mib << 20,
        bandwidth_bps,
        clients: 8,
        repetition,
        tps,
        latency,
        sent_bytes_per_txn: Some(1024.0 * tps),
        received_bytes_per_txn: Some(2048.0),
        slices: vec![Slice { at_s: 0.0, tps, latency }, Slice { at_s: 1.0, tps: 0.0, latency }],
        ..RunReport::default()
    }
}

fn runs() -> Vec<RunReport> {
    let limit = Some(200_000_000);
    let mut runs = Vec::new();
    for repetition in 1..=3 {
        let more = f64::from(repetition);
        for pool in [128, 1024] {
            runs.push(run("local", pool, None, repetition, 500.0 + more));
            runs.push(run("remote-nbd", pool, limit, repetition, 40.0 + more));
            runs.push(run("redoubt-<b>", pool, limit, repetition, 250.0 + more));
        }
    }
    runs
}

#[test]
fn rows_have_medians_ranges_and_ratios() {
    let text = table(&runs());
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 7, "{text}");
    let remote = lines.iter().find(|line| line.starts_with("1G") && line.contains("remote-nbd")).unwrap();
    assert!(remote.contains("42.0 (41.0 to 43.0)"), "{remote}");
    assert!(remote.contains("0.084"), "42 of 502: {remote}");
    assert!(remote.contains("200mbit"));
}

#[test]
fn the_page_needs_nothing_else_and_escapes_what_it_shows() {
    let machine = Machine { facts: vec![("kernel", "6 <&>".to_owned())] };
    let page = html(&runs(), &machine, "bench --variant \"<b>=x\"").unwrap();
    for wanted in [
        "viewport",
        "prefers-color-scheme: dark",
        "6 &lt;&amp;&gt;",
        "&lt;b&gt;=x",
        "Repetition 2",
        "200mbit",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    // Three plots for the one limit, six runs in each of three repetitions.
    assert_eq!(page.matches("<svg ").count(), 3 + 18);
    assert!(!page.contains("<b>"));
    for outside in ["href=", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    // The only addresses are names of XML vocabularies.
    assert_eq!(page.matches("http").count(), page.matches("http://www.w3.org/2000/svg").count());
}

#[test]
fn a_page_of_one_run_is_drawn() {
    let page = html(&[run("local", 128, None, 1, 0.0)], &Machine::default(), "bench").unwrap();
    assert!(page.contains("<svg "));
}

/// Or a table that is made again from results would differ from the one that was shown.
#[test]
fn figures_that_are_read_again_are_those_that_were_printed() {
    let mut random = fastrand::Rng::with_seed(4);
    for _ in 0..20_000 {
        let first = run("local", 128, None, 1, f64::from(random.u32(1..)) / f64::from(random.u32(1..)));
        let again: RunReport = serde_json::from_str(&serde_json::to_string(&first).unwrap()).unwrap();
        assert_eq!(again.tps.to_bits(), first.tps.to_bits(), "{}", first.tps);
    }
}
