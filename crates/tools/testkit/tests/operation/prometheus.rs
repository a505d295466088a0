//! A real Prometheus that scrapes a node at work: it takes the metrics, its linter finds nothing, and every
//! expression of the Grafana dashboard and of the documented alerts gives what it is there for.
//!
//! `prometheus` and `promtool` are those in the directory `REDOUBT_PROMETHEUS`, or in `PATH`; without them nothing is
//! tested.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::http;
use redoubt_harness::node::Node;
use redoubt_test_support::port::with_port;
use redoubt_test_support::setting_os;
use redoubt_test_support::wait::until_some;
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;

const VOLUME: &str = "shop";
const PATIENCE: Duration = Duration::from_secs(120);
/// The status of Prometheus between listening and being ready.
const SERVICE_UNAVAILABLE: u16 = 503;

fn programs() -> Option<[PathBuf; 2]> {
    let path = setting_os("REDOUBT_PROMETHEUS").or_else(|| std::env::var_os("PATH"))?;
    let directory = std::env::split_paths(&path)
        .find(|directory| ["prometheus", "promtool"].iter().all(|name| directory.join(name).is_file()))?;
    Some([directory.join("prometheus"), directory.join("promtool")])
}

struct Prometheus {
    child: Child,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

/// Whether this process has a socket that listens at this port of 127.0.0.1.
fn listens(child: &Child, port: u16) -> bool {
    let end = format!(":{port:04X}");
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let listener = tables.iter().flat_map(|table| table.lines()).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.len() > 9 && words[3] == "0A" && words[1].ends_with(&end))
            .then(|| format!("socket:[{}]", words[9]))
    });
    let Some(listener) = listener else { return false };
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten();
    descriptors
        .flatten()
        .any(|entry| std::fs::read_link(entry.path()).is_ok_and(|path| path.to_string_lossy() == listener))
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn start(program: &Path, target: SocketAddr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("prometheus.yml");
        let text = format!(
            "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: redoubt\n    static_configs:\n      \
             - targets: [\"{target}\"]\n"
        );
        std::fs::write(&config, text).unwrap();
        let data = directory.path().join("data");
        // It does not report which port it got, so port 0 is no use.
        let (child, address) = with_port(|port| {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let mut child = Command::new(program)
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.tsdb.path={}", data.display()))
                .arg(format!("--web.listen-address={address}"))
                .arg("--log.level=warn")
                .stdin(Stdio::null())
                .spawn()
                .unwrap();
            // It ends if the port was taken meanwhile. The listener has to be its own, not that of another process.
            until_some("Prometheus listens or ends", || match child.try_wait().unwrap() {
                Some(_) => Some(false),
                None => listens(&child, port).then_some(true),
            })
            .then_some((child, address))
        });
        Self { child, address, _directory: directory }
    }

    /// Series and scalars of an expression now; `None` while there is no answer, or while Prometheus still starts.
    fn query(&self, expression: &str) -> Option<Vec<serde_json::Value>> {
        let escaped: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let request = format!("GET /api/v1/query?query={escaped} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address);
        let answer = http::exchange(self.address, request.as_bytes()).ok()?;
        if answer.status == SERVICE_UNAVAILABLE {
            return None;
        }
        let body = answer.json();
        assert_eq!(body["status"], "success", "{expression}: {body}");
        match &body["data"]["result"] {
            serde_json::Value::Array(series) => Some(series.clone()),
            other => panic!("{expression}: {other}"),
        }
    }

    fn wait_for(&self, expression: &str) -> Vec<serde_json::Value> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(series) = self.query(expression).filter(|series| !series.is_empty()) {
                return series;
            }
            assert!(Instant::now() < until, "{expression} gives nothing");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// All `expr` in the dashboard, with the variables as Grafana would set them.
fn dashboard() -> Vec<String> {
    fn collect(value: &serde_json::Value, out: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                if let Some(expression) = fields.get("expr").and_then(|field| field.as_str()) {
                    out.push(expression.to_owned());
                }
                fields.values().for_each(|field| collect(field, out));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, out)),
            _ => {}
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../packaging/grafana/redoubt-dashboard.json");
    let dashboard = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut expressions = Vec::new();
    collect(&dashboard, &mut expressions);
    assert!(expressions.len() > 20, "{expressions:?}");
    let set = |expression: String| {
        let set =
            expression.replace("$volume", ".*").replace("$instance", ".*").replace("$__rate_interval", "10s");
        assert!(!set.contains('$'), "a variable that is not known: {expression}");
        set
    };
    expressions.into_iter().map(set).collect()
}

/// The expressions of the table of alerts in a text like docs/volume/how-to/monitoring.md.
fn alerts(text: &str) -> Vec<String> {
    let (_, rest) = text.split_once("Worth an alert").unwrap();
    let table =
        rest.lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with("| `"));
    let alerts: Vec<_> = table.map(|line| line.split('`').nth(1).unwrap().replace("\\|", "|")).collect();
    assert!(alerts.len() > 4, "{alerts:?}");
    alerts
}

/// The series that an alert reads, one per alternative of a label. Each must exist, or the alert never fires.
fn watched(alert: &str) -> Vec<String> {
    let parts = [" == ", " > "].iter().filter_map(|operator| alert.rsplit_once(operator));
    let (left, limit) =
        parts.min_by_key(|(left, _)| left.len()).unwrap_or_else(|| panic!("what is {alert}?"));
    assert!(limit.parse::<f64>().is_ok(), "the limit is no number: {alert}");
    assert!(![" == ", " > ", " < ", " and ", " or ", "!="].iter().any(|word| left.contains(word)), "{alert}");
    let Some((before, rest)) = left.split_once("=~\"") else { return vec![left.to_owned()] };
    let (alternatives, after) = rest.split_once('"').unwrap();
    assert!(!after.contains("=~"), "only one label may have alternatives: {alert}");
    assert!(!alternatives.contains(['*', '+', '.', '?', '(', '[']), "alternatives in words only: {alert}");
    alternatives.split('|').map(|one| format!("{before}=\"{one}\"{after}")).collect()
}

/// The values of `key: ` in the rules file, in its order.
fn rules(key: &str) -> Vec<&'static str> {
    let text = include_str!("../../../../../packaging/prometheus/redoubt.rules.yml");
    let found: Vec<_> = text.lines().filter_map(|line| line.trim_start().strip_prefix(key)).collect();
    assert!(found.len() > 4, "{key}: {found:?}");
    found
}

#[test]
fn the_rules_are_the_documented_alerts_and_each_has_its_runbook() {
    let sorted = |mut expressions: Vec<String>| {
        expressions.sort_unstable();
        expressions
    };
    let shipped = rules("expr: ").into_iter().map(str::to_owned).collect();
    assert_eq!(
        sorted(shipped),
        sorted(alerts(include_str!("../../../../../docs/volume/how-to/monitoring.md")))
    );
    let text = include_str!("../../../../../docs/volume/runbooks.md");
    let headings = text.lines().filter_map(|line| line.strip_prefix("## "));
    let anchors: Vec<_> = headings
        .map(|heading| {
            format!(
                "docs/volume/runbooks.md#{}",
                heading.to_lowercase().replace(' ', "-").replace([',', '\''], "")
            )
        })
        .collect();
    let named = rules("runbook: ");
    assert_eq!(named.len(), rules("expr: ").len());
    assert!(named.iter().all(|name| anchors.iter().any(|anchor| anchor == name)), "{named:?} {anchors:?}");
    // No runbook that no alert leads to.
    assert!(anchors.iter().all(|anchor| named.contains(&anchor.as_str())), "{named:?} {anchors:?}");
}

#[test]
fn each_alternative_of_an_alert_is_looked_at() {
    assert_eq!(
        watched("v{state=~\"stopped|unusable\",x=\"1\"} == 1"),
        ["v{state=\"stopped\",x=\"1\"}", "v{state=\"unusable\",x=\"1\"}"]
    );
    assert_eq!(watched("increase(m_total[1h]) > 0"), ["increase(m_total[1h])"]);
    assert_eq!(watched("time() - t_seconds > 15"), ["time() - t_seconds"]);
}

/// An alert that `watched` cannot split completely must fail the test, so that no part is left out.
#[test]
fn an_alert_of_which_a_part_would_not_be_looked_at_is_refused() {
    for alert in [
        "v{state=~\"a|b\",kind=~\"c|d\"} == 1",
        "v{state=~\"stop.*\"} == 1",
        "v{state!=\"attached\"} == 1",
        "a > 0 and b > 0",
        "a > b",
        "a",
        "a < 1",
    ] {
        assert!(std::panic::catch_unwind(|| watched(alert)).is_err(), "{alert}");
    }
}

/// A load that makes all counters move: commits, page writes, page reads, pages compared.
fn work(server: &Server, done: &AtomicBool) {
    let mut connection = server.connect().unwrap();
    let mut run = |statement: &str| execute(&mut connection, statement).unwrap();
    run("CREATE DATABASE d");
    run("CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, k INT, b VARCHAR(400), KEY(k)) ENGINE=InnoDB");
    run("INSERT INTO d.t (k, b) SELECT seq * 7919 % 100003, REPEAT(MD5(seq), 12) FROM d.seq_1_to_20000");
    while !done.load(Ordering::Relaxed) {
        run("INSERT INTO d.t (k, b) VALUES (1, 'x')");
        run("UPDATE d.t SET b = REPEAT(MD5(RAND()), 12) WHERE k BETWEEN 100 AND 400");
        run("SELECT COUNT(*) FROM d.t WHERE b <> ''");
    }
}

fn lint(promtool: &Path, metrics: &str) {
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let outcome = child.wait_with_output().unwrap();
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
}

fn lint_rules(promtool: &Path) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/prometheus");
    for name in ["redoubt.rules.yml", "redoubt-group.rules.yml", "redoubt-net.rules.yml"] {
        let outcome =
            Command::new(promtool).args(["check", "rules"]).arg(folder.join(name)).output().unwrap();
        assert!(outcome.status.success(), "{name}: {}", String::from_utf8_lossy(&outcome.stderr));
    }
}

#[test]
fn prometheus_takes_the_metrics_and_the_dashboard_shows_them() {
    let Some([prometheus, promtool]) = programs() else {
        redoubt_test_support::skip("the dashboard on a real Prometheus", "there is none here");
        return;
    };
    lint_rules(&promtool);
    let options = ["--ring", "16MiB", "--batch", "1MiB", "--apply-interval", "1"];
    let page = ["--status-listen", "127.0.0.1:0"];
    // With certificates, so that there is an end of their validity to watch.
    let arguments = [&options[..], &page[..]].concat();
    let node = Node::create_with_tls(&find_redoubt().unwrap(), &[VOLUME], &arguments).unwrap();
    node.create_volume(VOLUME).unwrap();
    let address = node.status(VOLUME).unwrap()["status_page"].as_str().unwrap().parse().unwrap();
    let mut config = ServerConfig::new(node.launcher(VOLUME, Verify::All));
    config.buffer_pool_bytes = 8 << 20;
    let server = Server::create(config).unwrap();
    let prometheus = Prometheus::start(&prometheus, address);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| work(&server, &done));
        // A panic here must end the load too, or the scope would wait for it for ever.
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            prometheus.wait_for("up == 1");
            prometheus.wait_for("rate(redoubt_server_durability_waits_total[10s]) > 0");
            prometheus.wait_for("rate(redoubt_page_read_duration_seconds_count[10s]) > 0");
            for expression in dashboard() {
                let series = prometheus.wait_for(&expression);
                let volumes = series.iter().filter_map(|one| one["metric"]["volume"].as_str());
                assert!(volumes.clone().all(|volume| volume == VOLUME), "{expression}: {series:?}");
            }
            for expression in alerts(include_str!("../../../../../docs/volume/how-to/monitoring.md")) {
                for left in watched(&expression) {
                    prometheus.wait_for(&left);
                }
                let firing = prometheus.query(&expression).unwrap();
                // The load on this small machine may well hold the server back, and its disk be nearly full.
                let may_fire =
                    ["log_buffer_wait", "filesystem_free"].iter().any(|part| expression.contains(part));
                assert!(firing.is_empty() || may_fire, "{expression} fires: {firing:?}");
            }
            // A wait for a series does not accept a misspelt name as a silent one.
            let misspelt = format!("redoubt_volume_state{{state=\"stoped\",volume=\"{VOLUME}\"}}");
            assert_eq!(prometheus.query(&misspelt).unwrap().len(), 0);
            lint(&promtool, &http::get(address, "/metrics").text());
        }));
        done.store(true, Ordering::Relaxed);
        load.join().unwrap();
        if let Err(panic) = checked {
            std::panic::resume_unwind(panic);
        }
    });
}
