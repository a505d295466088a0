use super::*;
use redoubt_wire::control::ScrubStatus;
use redoubt_wire::figures::{ApplyWorker, ChainClass};
use std::collections::BTreeSet;

#[path = "../../tests/support/strict.rs"]
mod strict;

/// A volume in which everything has a value.
fn volume(name: &str) -> VolumeStatus {
    let counters = |known: &[(&str, &str, &str)]| {
        known.iter().enumerate().map(|(at, (name, ..))| ((*name).to_owned(), at as u64 * 1_500_000)).collect()
    };
    VolumeStatus {
        name: name.to_owned(),
        volume_id: "a\"b\\c\nd".to_owned(),
        state: "attached".to_owned(),
        ring_waits_for: "apply".to_owned(),
        ring_wait_micros: [
            ("device".to_owned(), 1),
            ("parser".to_owned(), 2),
            ("apply".to_owned(), 2_500_000),
        ]
        .into(),
        server_certificate_expires_s: Some(1_750_000_000),
        scrub: Some(ScrubStatus {
            period_s: Some(604_800),
            age_s: 77,
            log_damage: Some("cut".to_owned()),
            unchecked: 3,
            ..ScrubStatus::default()
        }),
        w_lsn: 100,
        chain_lengths: vec![
            ChainClass { longest: Some(1), pages: 5 },
            ChainClass { longest: None, pages: 1 },
        ],
        page_read_times: Times { count: 7, sum_micros: 900, buckets: vec![(4, 3), (20, 3), (104, 1)] },
        apply_workers: vec![ApplyWorker { pages: 1, runs: 2, redo_bytes: 3, busy_micros: 4 }; 2],
        counters: counters(NODE_COUNTERS),
        server_counters: counters(SERVER_COUNTERS),
        ..VolumeStatus::default()
    }
}

fn node(volumes: Vec<VolumeStatus>) -> NodeStatus {
    NodeStatus {
        version: "1".to_owned(),
        listen: "127.0.0.1:7070".to_owned(),
        data_directory: "/data".to_owned(),
        uptime_seconds: 17,
        memory_used_bytes: 3 << 20,
        memory_limit_bytes: 1 << 30,
        room: vec![
            Room { directory: "/data".to_owned(), total_bytes: 1000, free_bytes: 250 },
            Room { directory: "/fast".to_owned(), total_bytes: 64, free_bytes: 0 },
        ],
        local_socket: None,
        certificate_expires_s: Some(1_800_000_000),
        status_page: None,
        volumes,
    }
}

#[test]
fn a_strict_reader_takes_it_and_finds_what_was_put_in() {
    let text = render(&node(vec![volume("one"), volume("two"), VolumeStatus::default()]), 1_700_000_000_500);
    let found = strict::parse(&text).unwrap();
    let one = ("volume", "one");
    assert_eq!(found.sum("redoubt_node_uptime_seconds", &[]), 17.0);
    assert_eq!(found.sum("redoubt_node_memory_used_bytes", &[]), f64::from(3 << 20));
    assert_eq!(found.sum("redoubt_node_memory_limit_bytes", &[]), f64::from(1 << 30));
    assert_eq!(found.sum("redoubt_node_sampled_timestamp_seconds", &[]), 1_700_000_000.5);
    assert_eq!(found.sum("redoubt_filesystem_size_bytes", &[("directory", "/data")]), 1000.0);
    assert_eq!(found.sum("redoubt_filesystem_free_bytes", &[("directory", "/data")]), 250.0);
    assert_eq!(found.sum("redoubt_filesystem_free_bytes", &[("directory", "/fast")]), 0.0);
    assert_eq!(found.sum("redoubt_node_certificate_expiry_timestamp_seconds", &[]), 1_800_000_000.0);
    assert_eq!(found.sum("redoubt_scrub_age_seconds", &[one]), 77.0);
    assert_eq!(found.sum("redoubt_scrub_period_seconds", &[one]), 604_800.0);
    assert_eq!(found.sum("redoubt_scrub_unchecked_places", &[one]), 3.0);
    assert_eq!(found.sum("redoubt_log_damaged", &[one]), 1.0);
    let expiry = "redoubt_server_certificate_expiry_timestamp_seconds";
    assert_eq!(found.sum(expiry, &[one]), 1_750_000_000.0);
    assert_eq!(found.sum("redoubt_volume_lsn", &[one, ("position", "received")]), 100.0);
    assert_eq!(found.sum("redoubt_volume_state", &[one]), 1.0);
    assert_eq!(found.sum("redoubt_volume_state", &[one, ("state", "attached")]), 1.0);
    assert_eq!(found.sum("redoubt_volume_info", &[("volume_id", "a\"b\\c\nd")]), 2.0);
    assert_eq!(found.sum("redoubt_log_buffer_wait_seconds_total", &[one, ("stage", "apply")]), 2.5);
    assert_eq!(found.sum("redoubt_log_buffer_full", &[one]), 1.0);
    assert_eq!(found.sum("redoubt_log_index_chain_pages", &[one, ("longest", "+Inf")]), 1.0);
    assert_eq!(found.sum("redoubt_apply_worker_runs_total", &[one]), 4.0);
    assert_eq!(found.sum("redoubt_page_read_duration_seconds_count", &[one]), 7.0);
    assert_eq!(found.sum("redoubt_page_read_duration_seconds_bucket", &[one, ("le", "0.000016")]), 3.0);
    assert_eq!(found.sum("redoubt_page_read_duration_seconds_bucket", &[one, ("le", "0.064")]), 0.0);
    assert_eq!(found.sum("redoubt_page_read_duration_seconds_sum", &[one]), 0.0009);
    let at = NODE_COUNTERS.iter().position(|(name, ..)| *name == "read_wait_micros").unwrap();
    assert_eq!(found.sum("redoubt_page_read_parse_wait_seconds_total", &[one]), at as f64 * 1.5);
}

#[test]
fn a_counter_that_no_table_knows_is_there_too() {
    let mut volume = volume("one");
    volume.counters.insert("new_things".to_owned(), 5);
    volume.server_counters.insert("new_wait_micros".to_owned(), 2_000_000);
    let found = strict::parse(&render(&node(vec![volume]), 0)).unwrap();
    assert_eq!(found.sum("redoubt_new_things_total", &[]), 5.0);
    assert_eq!(found.sum("redoubt_server_new_wait_seconds_total", &[]), 2.0);
}

#[test]
fn a_node_without_volumes_has_all_metrics_without_samples() {
    let found = strict::parse(&render(&node(Vec::new()), 0)).unwrap();
    assert!(found.metrics.contains_key("redoubt_received_bytes_total"));
    let sampled: Vec<_> =
        found.metrics.iter().filter(|(_, metric)| !metric.samples.is_empty()).map(|(name, _)| name).collect();
    assert_eq!(
        sampled,
        [
            "redoubt_filesystem_free_bytes",
            "redoubt_filesystem_size_bytes",
            "redoubt_node_certificate_expiry_timestamp_seconds",
            "redoubt_node_info",
            "redoubt_node_memory_limit_bytes",
            "redoubt_node_memory_used_bytes",
            "redoubt_node_sampled_timestamp_seconds",
            "redoubt_node_uptime_seconds",
        ]
    );
    assert!(found.metrics.values().all(|metric| metric.help.ends_with('.')));
}

#[test]
fn the_strict_reader_refuses_what_a_scraper_would() {
    let head = "# HELP a Help.\n# TYPE a counter\n";
    for text in [
        "a_total 1\n",
        "# HELP a_total H.\na_total 1\n",
        "# HELP a H.\n# TYPE a counter\na 1\n",
        "# HELP a_total H.\n# TYPE a_total counter\na_total 1",
        "# HELP a_total H.\n# TYPE a_total counter\na_total 1\na_total 2\n",
        "# HELP a_total H.\n# TYPE a_total counter\na_total{b=\"c} 1\n",
        "# HELP a_total H.\n# TYPE a_total counter\na_total{b=\"c\",b=\"d\"} 1\n",
        "# HELP a_total H.\n# TYPE a_total counter\nb_total 1\n",
        "# HELP a H.\n# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
        "# HELP a H.\n# TYPE a histogram\na_bucket{le=\"1\"} 1\na_sum 1\na_count 1\n",
    ] {
        assert!(strict::parse(text).is_err(), "{text}");
    }
    assert!(strict::parse(&head.replace(" a", " a_total")).is_ok());
}

/// Metric names in a query, and the labels that its selectors and groupings use.
fn used_in(query: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = query.split(|character| !is_word(character));
    let names = words.filter(|word| word.starts_with("redoubt_")).map(str::to_owned).collect();
    let mut labels = BTreeSet::new();
    for (open, close) in [("{", '}'), ("by (", ')')] {
        for after in query.split(open).skip(1) {
            let inside = after.split(close).next().unwrap_or("");
            let parts = inside.split(',').map(|part| part.split(['=', '!', '~']).next().unwrap_or("").trim());
            labels.extend(parts.filter(|part| !part.is_empty()).map(str::to_owned));
        }
    }
    (names, labels)
}

fn queries(value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    serde_json::Value::String(text)
                        if matches!(name.as_str(), "expr" | "query" | "definition") =>
                    {
                        found.push(text.clone());
                    }
                    other => queries(other, found),
                }
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_for_metrics_and_labels_that_exist() {
    let text = include_str!("../../../../../packaging/grafana/redoubt-dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_str(text).unwrap();
    let names = strict::parse(&render(&node(vec![volume("one")]), 0)).unwrap().names();
    let mut asked = Vec::new();
    queries(&dashboard, &mut asked);
    assert!(asked.iter().filter(|query| query.contains("redoubt_")).count() > 20, "{asked:?}");
    for query in asked {
        let (used, labels) = used_in(&query);
        let known: BTreeSet<_> = used
            .iter()
            .flat_map(|name| {
                names.get(name).unwrap_or_else(|| panic!("no metric {name}: {query}")).iter().cloned()
            })
            .chain(["instance".to_owned(), "job".to_owned()])
            .collect();
        for label in labels {
            assert!(used.is_empty() || known.contains(&label), "no label {label}: {query}");
        }
    }
}

#[test]
fn the_chart_library_is_the_one_that_is_recorded() {
    // Sums are compared by the tool that everybody has; see the file they are in.
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/vendor/uplot");
    let record = std::fs::read_to_string(format!("{directory}/README.md")).unwrap();
    for file in ["uPlot.iife.min.js", "uPlot.min.css", "LICENSE"] {
        let output =
            std::process::Command::new("sha256sum").arg(format!("{directory}/{file}")).output().unwrap();
        let sum = String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned();
        let row = record.lines().find(|line| line.starts_with(&format!("| `{file}`"))).unwrap();
        assert!(sum.len() == 64 && row.contains(&sum), "{file} has {sum}");
    }
}

/// The metrics, as rows of the reference page.
fn reference_rows() -> Vec<String> {
    let found = strict::parse(&render(&node(vec![volume("one")]), 0)).unwrap();
    let row = |(name, metric): (&String, &strict::Metric)| {
        let labels: BTreeSet<_> = metric.samples.iter().flat_map(|(_, labels, _)| labels.keys()).collect();
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{name}` | {} | {} | {} |", metric.kind, labels.join(", "), metric.help)
    };
    found.metrics.iter().map(row).collect()
}

#[test]
fn reference_page_lists_every_metric_of_a_node() {
    let page = include_str!("../../../../../docs/volume/reference/metrics.md");
    let listed = redoubt_test_support::listed::rows(page, "Metrics");
    let wanted = reference_rows();
    assert!(
        listed == wanted,
        "the table of docs/volume/reference/metrics.md is to be:\n{}",
        wanted.join("\n")
    );
}

#[test]
fn reference_page_lists_every_counter_with_a_metric() {
    let page = include_str!("../../../../../docs/volume/reference/status.md");
    for (heading, known) in
        [("Counters of the node", NODE_COUNTERS), ("Counters of the server", SERVER_COUNTERS)]
    {
        let known: BTreeSet<_> = known.iter().map(|(counter, ..)| (*counter).to_owned()).collect();
        assert_eq!(redoubt_test_support::listed::names(page, heading), known, "{heading}");
    }
}
