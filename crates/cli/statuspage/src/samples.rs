//! The state of the node as of the last second, and its history of ten minutes.
//!
//! Invariants: a sample does not change; each form of it is rendered once, at its first request. The history holds
//! [`HISTORY`] points at most. The lock is a leaf, held for moments only.

use crate::exposition::CONTENT_TYPE;
use crate::health;
use crate::metrics;
use crate::server::{File, HTML, Health, JSON, SCRIPT, Site};
use hyper::body::Bytes;
use redoubt_locks::IgnorePoison;
use redoubt_wire::control::{NodeStatus, VolumeStatus};
use redoubt_wire::figures::Times;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Points kept.
pub const HISTORY: usize = 600;

/// Columns of a point of a volume, in this order. Counters are as they are; the page computes rates.
const COLUMNS: [&str; 25] = [
    "w_lsn",
    "d_lsn",
    "p_lsn",
    "a_lsn",
    "ring_used_bytes",
    "ring_len_bytes",
    "ring_wait_device_micros",
    "ring_wait_parser_micros",
    "ring_wait_apply_micros",
    "received_bytes",
    "redo_bytes",
    "avoided_bytes",
    "image_bytes",
    "page_reads",
    "page_bytes_sent",
    "read_p50_micros",
    "read_p99_micros",
    "log_write_p50_micros",
    "log_write_p99_micros",
    "commits",
    "commit_wait_micros",
    "pages_written_bytes",
    "index_runs",
    "pages_verified",
    "page_mismatches",
];

/// A volume at one moment: [`COLUMNS`] (NaN: no value), and the runs that each apply worker has applied.
#[derive(Clone, Debug, Serialize)]
struct Point(Vec<f64>, Vec<u64>);

#[derive(Clone, Debug, Serialize)]
struct Moment {
    at_unix_ms: u64,
    volumes: BTreeMap<String, Point>,
}

/// State of the node at one time, in all its forms.
pub struct Sample {
    status: NodeStatus,
    /// When the node reported it.
    taken: Instant,
    moment: Moment,
    status_json: OnceLock<Bytes>,
    live_json: OnceLock<Bytes>,
    history_json: OnceLock<Bytes>,
    metrics: OnceLock<Bytes>,
}

struct Recent {
    newest: Arc<Sample>,
    history: VecDeque<Moment>,
}

/// The newest sample, and the history.
pub struct Samples {
    state: Mutex<Recent>,
}

#[derive(Serialize)]
struct Live<'a> {
    node: &'a NodeStatus,
    moment: &'a Moment,
}

#[derive(Serialize)]
struct History<'a> {
    columns: &'a [&'a str],
    moments: &'a VecDeque<Moment>,
}

impl Samples {
    /// The first look.
    pub fn new(status: &NodeStatus) -> Self {
        let newest = Arc::new(Sample::new(status, None));
        let history = VecDeque::from([newest.moment.clone()]);
        Self { state: Mutex::new(Recent { newest, history }) }
    }

    /// A further look.
    pub fn add(&self, status: &NodeStatus) {
        let before = self.newest();
        let sample = Arc::new(Sample::new(status, Some(&before.status)));
        let mut state = self.state.lock().ignore_poison();
        while state.history.len() >= HISTORY {
            state.history.pop_front();
        }
        state.history.push_back(sample.moment.clone());
        state.newest = sample;
    }

    /// The newest sample.
    pub fn newest(&self) -> Arc<Sample> {
        Arc::clone(&self.state.lock().ignore_poison().newest)
    }

    /// The points up to the newest sample.
    pub fn history_json(&self) -> Bytes {
        let (newest, history) = {
            let state = self.state.lock().ignore_poison();
            if let Some(rendered) = state.newest.history_json.get() {
                return rendered.clone();
            }
            (Arc::clone(&state.newest), state.history.clone())
        };
        newest.history_json.get_or_init(|| json(&History { columns: &COLUMNS, moments: &history })).clone()
    }
}

impl Site for Samples {
    fn files(&self) -> &'static [File] {
        &[
            ("/", HTML, include_bytes!("../assets/index.html")),
            ("/page.js", SCRIPT, include_bytes!("../assets/page.js")),
        ]
    }

    fn find(&self, path: &str) -> Option<(&'static str, Bytes)> {
        Some(match path {
            "/status.json" => (JSON, self.newest().status_json()),
            "/live.json" => (JSON, self.newest().live_json()),
            "/history.json" => (JSON, self.history_json()),
            "/metrics" => (CONTENT_TYPE, self.newest().metrics()),
            _ => return None,
        })
    }

    fn check(&self, path: &str) -> Option<Health> {
        let newest = self.newest();
        match path {
            "/healthz" => Some(health::alive(newest.taken.elapsed())),
            "/readyz" => Some(health::ready(newest.taken.elapsed(), &newest.status)),
            _ => None,
        }
    }

    fn paths(&self) -> &'static str {
        "/, /status.json, /live.json, /history.json, /metrics, /healthz and /readyz"
    }

    fn name_option(&self) -> &'static str {
        "--status-host"
    }
}

impl Sample {
    fn new(status: &NodeStatus, before: Option<&NodeStatus>) -> Self {
        let earlier = |name: &str| before?.volumes.iter().find(|volume| volume.name == name);
        let volumes =
            status.volumes.iter().map(|volume| (volume.name.clone(), point(volume, earlier(&volume.name))));
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let moment = Moment { at_unix_ms: since_epoch.as_millis() as u64, volumes: volumes.collect() };
        Self {
            status: status.clone(),
            taken: Instant::now(),
            moment,
            status_json: OnceLock::new(),
            live_json: OnceLock::new(),
            history_json: OnceLock::new(),
            metrics: OnceLock::new(),
        }
    }

    /// Output of `redoubt status --json`.
    pub fn status_json(&self) -> Bytes {
        self.status_json.get_or_init(|| json(&self.status)).clone()
    }

    /// The state that the page requests once per second.
    pub fn live_json(&self) -> Bytes {
        self.live_json.get_or_init(|| json(&Live { node: &self.status, moment: &self.moment })).clone()
    }

    /// Prometheus metrics.
    pub fn metrics(&self) -> Bytes {
        let render = || Bytes::from(metrics::render(&self.status, self.moment.at_unix_ms));
        self.metrics.get_or_init(render).clone()
    }
}

fn json<T: Serialize>(value: &T) -> Bytes {
    // Numbers, texts and maps with text keys can always be written.
    Bytes::from(serde_json::to_vec(value).unwrap_or_default())
}

/// Bytes of page writes of the server that were neither stored nor sent.
pub fn avoided_bytes(volume: &VolumeStatus) -> u64 {
    let counter = |name| volume.server_counters.get(name).copied().unwrap_or(0);
    counter("page_bytes_dropped") + counter("doublewrite_bytes_dropped")
}

fn point(volume: &VolumeStatus, before: Option<&VolumeStatus>) -> Point {
    let counter = |name: &str| volume.counters.get(name).copied().unwrap_or(0);
    let server = |name: &str| volume.server_counters.get(name).copied().unwrap_or(0);
    let ring_wait = |stage| volume.ring_wait_micros.get(stage).copied().unwrap_or(0);
    let quantile = |times: &Times, earlier: Option<&Times>, share| {
        let recent = earlier.map(|earlier| times.since(earlier));
        recent.and_then(|recent| recent.quantile_micros(share)).map_or(f64::NAN, |micros| micros as f64)
    };
    let (reads, reads_before) = (&volume.page_read_times, before.map(|before| &before.page_read_times));
    let (writes, writes_before) = (&volume.log_write_times, before.map(|before| &before.log_write_times));
    let of = |column: &str| match column {
        "w_lsn" => volume.w_lsn as f64,
        "d_lsn" => volume.d_lsn as f64,
        "p_lsn" => volume.p_lsn as f64,
        "a_lsn" => volume.a_lsn as f64,
        "ring_used_bytes" => volume.ring_used_bytes as f64,
        "ring_len_bytes" => volume.ring_len_bytes as f64,
        "ring_wait_device_micros" => ring_wait("device") as f64,
        "ring_wait_parser_micros" => ring_wait("parser") as f64,
        "ring_wait_apply_micros" => ring_wait("apply") as f64,
        "avoided_bytes" => avoided_bytes(volume) as f64,
        "image_bytes" => server("image_bytes") as f64,
        "read_p50_micros" => quantile(reads, reads_before, 0.5),
        "read_p99_micros" => quantile(reads, reads_before, 0.99),
        "log_write_p50_micros" => quantile(writes, writes_before, 0.5),
        "log_write_p99_micros" => quantile(writes, writes_before, 0.99),
        "commits" => server("durability_waits") as f64,
        "commit_wait_micros" => server("durability_wait_micros") as f64,
        "pages_written_bytes" => {
            (counter("page_home_written_bytes") + counter("page_journal_written_bytes")) as f64
        }
        "index_runs" => volume.index_runs as f64,
        other => counter(other) as f64,
    };
    Point(
        COLUMNS.iter().map(|column| of(column)).collect(),
        volume.apply_workers.iter().map(|worker| worker.runs).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(reads: u64) -> NodeStatus {
        let mut volume = VolumeStatus { name: "v".to_owned(), w_lsn: 7, ..VolumeStatus::default() };
        volume.counters.insert("page_reads".to_owned(), reads);
        volume.page_read_times = Times { count: reads, sum_micros: reads, buckets: vec![(1, reads)] };
        NodeStatus {
            version: "0".to_owned(),
            memory_used_bytes: 3 << 20,
            memory_limit_bytes: 1 << 30,
            volumes: vec![volume],
            ..NodeStatus::default()
        }
    }

    #[test]
    fn the_history_is_bounded_and_ends_with_the_newest() {
        let samples = Samples::new(&node(0));
        for reads in 1..=(HISTORY as u64 + 5) {
            samples.add(&node(reads));
        }
        let history: serde_json::Value = serde_json::from_slice(&samples.history_json()).unwrap();
        let moments = history["moments"].as_array().unwrap();
        assert_eq!(moments.len(), HISTORY);
        let at = COLUMNS.iter().position(|column| *column == "page_reads").unwrap();
        assert_eq!(moments.last().unwrap()["volumes"]["v"][0][at], 605.0);
        let p50 = COLUMNS.iter().position(|column| *column == "read_p50_micros").unwrap();
        assert_eq!(
            moments.last().unwrap()["volumes"]["v"][0][p50],
            2.0,
            "the one read since the sample before"
        );
        assert!(samples.newest().live_json().len() > samples.newest().status_json().len());
    }
}
