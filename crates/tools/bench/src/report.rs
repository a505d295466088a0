//! Results of a run: one JSON object, a line of a table, a report with plots.

mod html;
pub mod plot;
mod table;

use std::collections::BTreeMap;

use redoubt_workload::load::{Sample, Window};
use serde::{Deserialize, Serialize};

use crate::measure::Snapshot;
use crate::statistics::{Latency, Slice, slices};
pub use html::{Machine, html};
pub use table::table;

/// Slices of a run in its report.
const SLICES: usize = 60;

/// One run. Bytes, times and counters are of its window.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunReport {
    /// Measured system: `local`, `remote-PEER`, `redoubt` or `redoubt-VARIANT`.
    pub backend: String,
    /// Workload of the clients.
    pub workload: String,
    /// Size of the buffer pool.
    pub pool_bytes: u64,
    /// Limit of the link each way; `null`: none.
    pub bandwidth_bps: Option<u64>,
    /// Delay that the link adds each way, in milliseconds.
    pub delay_ms: f64,
    /// Clients.
    pub clients: u32,
    /// `shared` by all, or `separate`: server and clients on one half, storage on the other.
    #[serde(default)]
    pub processors: String,
    /// Which repetition, from 1.
    pub repetition: u32,
    /// Length of the warm-up.
    pub warm_up_s: f64,
    /// Transactions before the window.
    pub warm_up_transactions: u64,
    /// Length of the window.
    pub window_s: f64,
    /// Transactions that ended in the window.
    pub transactions: u64,
    /// The same per second.
    pub tps: f64,
    /// Latency percentiles.
    #[serde(flatten)]
    pub latency: Latency,
    /// Bytes from the server's side to the storage side, with all headers, for each transaction; `null`: not counted.
    pub sent_bytes_per_txn: Option<f64>,
    /// Bytes in the other direction.
    pub received_bytes_per_txn: Option<f64>,
    /// CPU time of server, mounts and storage for each transaction.
    pub cpu_ms_per_txn: f64,
    /// The server's part, with what is preloaded into it.
    pub cpu_server_ms_per_txn: f64,
    /// The part of what runs beside the server for its storage.
    pub cpu_mount_ms_per_txn: f64,
    /// The storage side's part.
    pub cpu_storage_ms_per_txn: f64,
    /// CPU time of the clients, which is in none of the above.
    pub cpu_client_ms_per_txn: f64,
    /// The server's redo.
    pub redo_bytes_per_txn: f64,
    /// Pages the server read into its pool.
    pub pages_read_per_txn: f64,
    /// Pages it wrote, or believes it wrote.
    pub pages_written_per_txn: f64,
    /// Pages in the pool that were newer than in storage when the window opened.
    pub dirty_pages_before: u64,
    /// And when it closed.
    pub dirty_pages_after: u64,
    /// Redo that a storage node had not applied to its pages when the window opened; `null` without a node.
    pub unapplied_redo_bytes_before: Option<u64>,
    /// And when it closed.
    pub unapplied_redo_bytes_after: Option<u64>,
    /// Transactions by kind.
    pub by_kind: BTreeMap<String, u64>,
    /// Median, 95th and 99th percentile by kind.
    pub latency_by_kind: BTreeMap<String, Latency>,
    /// Transactions rolled back because the benchmark wants it (they count as done), over warm-up and window.
    pub rolled_back: u64,
    /// Transactions tried again after a deadlock or lock wait timeout, over warm-up and window.
    pub retries: u64,
    /// Consistency conditions that hold after the run; a run where one does not hold has no result.
    pub consistency: u32,
    /// How long it took to look at them.
    pub consistency_s: f64,
    /// Lines in the server's error log that say `[ERROR]`.
    pub server_errors: Vec<String>,
    /// Counters of a storage node and its library.
    pub redoubt: BTreeMap<String, u64>,
    /// The window in slices.
    pub slices: Vec<Slice>,
}

impl RunReport {
    /// Whether there was a link: local servers have none.
    fn has_link(&self) -> bool {
        !matches!(self.backend.as_str(), "local" | "memory-log" | "local-log")
    }

    /// Fills in all that a window gives; `kinds` are the names of its transactions.
    pub fn measure(&mut self, window: &Window<Snapshot>, kinds: &[&str]) {
        let [before, after] = &window.probes;
        let samples = &window.samples;
        let transactions = samples.len() as f64;
        let per_txn = |before: u64, after: u64| after.saturating_sub(before) as f64 / transactions.max(1.0);
        self.warm_up_s = window.warm_up.as_secs_f64();
        self.window_s = window.elapsed.as_secs_f64();
        self.transactions = samples.len() as u64;
        self.tps = transactions / self.window_s.max(1e-9);
        self.latency = Latency::of(samples);
        if let (Some(before), Some(after)) = (before.traffic, after.traffic) {
            self.sent_bytes_per_txn = Some(per_txn(before.sent_bytes, after.sent_bytes));
            self.received_bytes_per_txn = Some(per_txn(before.received_bytes, after.received_bytes));
        }
        self.cpu_server_ms_per_txn = per_txn(before.cpu.server_ms, after.cpu.server_ms);
        self.cpu_mount_ms_per_txn = per_txn(before.cpu.mount_ms, after.cpu.mount_ms);
        self.cpu_storage_ms_per_txn = per_txn(before.cpu.storage_ms, after.cpu.storage_ms);
        self.cpu_client_ms_per_txn = per_txn(before.cpu.client_ms, after.cpu.client_ms);
        self.cpu_ms_per_txn =
            self.cpu_server_ms_per_txn + self.cpu_mount_ms_per_txn + self.cpu_storage_ms_per_txn;
        self.redo_bytes_per_txn = per_txn(before.server.redo_bytes, after.server.redo_bytes);
        self.pages_read_per_txn = per_txn(before.server.pages_read, after.server.pages_read);
        self.pages_written_per_txn = per_txn(before.server.pages_written, after.server.pages_written);
        (self.dirty_pages_before, self.dirty_pages_after) =
            (before.server.dirty_pages, after.server.dirty_pages);
        let unapplied =
            |node: &BTreeMap<String, u64>| Some(node.get("w_lsn")?.saturating_sub(*node.get("a_lsn")?));
        self.unapplied_redo_bytes_before = unapplied(&before.node);
        self.unapplied_redo_bytes_after = unapplied(&after.node);
        for (kind, name) in kinds.iter().enumerate() {
            let of_kind: Vec<Sample> =
                samples.iter().filter(|sample| usize::from(sample.kind) == kind).copied().collect();
            self.by_kind.insert((*name).to_owned(), of_kind.len() as u64);
            self.latency_by_kind.insert((*name).to_owned(), Latency::of(&of_kind));
        }
        let growth = |(name, value): (&String, &u64)| {
            let grown = value.saturating_sub(before.node.get(name).copied().unwrap_or(0));
            (grown > 0).then(|| (name.clone(), grown))
        };
        self.redoubt = after.node.iter().filter_map(growth).collect();
        self.slices = slices(samples, self.window_s, SLICES);
    }
}

/// A limit as people write it.
fn bandwidth_text(bits_per_second: Option<u64>) -> String {
    crate::args::Bandwidth(bits_per_second).to_string()
}

/// `128M`, `1G`.
fn pool_text(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 30) { format!("{}G", bytes >> 30) } else { format!("{}M", bytes >> 20) }
}
