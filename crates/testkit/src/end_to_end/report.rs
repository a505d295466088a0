//! Figures of a comparison, as JSON and as a table.

use serde::Serialize;

use super::candidate::{Candidate, LogCounters};
use super::{Figures, Load};

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct Round {
    /// Transactions per second.
    pub transactions_per_second: f64,
    /// Divided by that of the first candidate in the same round.
    pub ratio: f64,
    /// 95th percentile of the latency of a transaction, in milliseconds.
    pub latency_p95_ms: f64,
    /// Share of the clients' time in COMMIT, as they see it; TPC-C-like only.
    pub commit_share: Option<f64>,
    /// Time spent waiting for the log per client time. With a node: in durability waits; they may be those of
    /// background threads, too. Else: in calls on the redo files, by whichever thread.
    pub log_share: f64,
    /// Mean length of such a wait or call in microseconds.
    pub wait_mean_us: f64,
    /// Redo bytes per transaction.
    pub redo_bytes_per_transaction: f64,
    /// Bytes the node's log device wrote per byte appended to it.
    pub device_written_per_byte: Option<f64>,
    /// The same per redo byte of the server: what is appended has frame headers and other frames in it.
    pub device_written_per_redo_byte: Option<f64>,
    /// Wake-ups per durability wait.
    pub wakeups_per_wait: Option<f64>,
}

/// One candidate under one load with some clients.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// What is compared: `node`, or how the local server is set up.
    pub group: String,
    /// Version of the server.
    pub server: String,
    /// The candidate.
    pub log: &'static str,
    /// What its storage really is.
    pub label: &'static str,
    /// The load.
    pub load: &'static str,
    /// Clients.
    pub clients: u32,
    /// Median over the rounds.
    pub transactions_per_second: f64,
    /// Median over the rounds.
    pub ratio: f64,
    /// Each round.
    pub rounds: Vec<Round>,
}

fn per(amount: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| amount as f64 / count as f64)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.len().is_multiple_of(2), values.get(middle.wrapping_sub(1)), values.get(middle)) {
        (true, Some(low), Some(high)) => f64::midpoint(*low, *high),
        (_, _, value) => value.copied().unwrap_or(0.0),
    }
}

impl Cell {
    pub(super) fn new(candidate: &Candidate, load: Load, clients: u32, group: &str) -> Self {
        let label = match candidate.name {
            "file" | "block" | "disk" => "disk",
            _ => "DRAM (tmpfs), an upper bound",
        };
        Self {
            group: group.to_owned(),
            server: candidate.version.clone(),
            log: candidate.name,
            label,
            load: load.name(),
            clients,
            transactions_per_second: 0.0,
            ratio: 0.0,
            rounds: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, figures: &Figures, log: LogCounters) {
        let client_micros = figures.seconds * 1e6 * f64::from(self.clients);
        self.rounds.push(Round {
            transactions_per_second: figures.per_second,
            ratio: 1.0,
            latency_p95_ms: figures.latency_p95_ms,
            commit_share: figures.commit_share,
            log_share: log.wait_micros as f64 / client_micros,
            wait_mean_us: per(log.wait_micros, log.waits).unwrap_or(0.0),
            redo_bytes_per_transaction: per(log.redo_bytes, figures.transactions).unwrap_or(0.0),
            device_written_per_byte: per(log.device_written_bytes, log.device_appended_bytes),
            device_written_per_redo_byte: (log.device_written_bytes > 0)
                .then(|| per(log.device_written_bytes, log.redo_bytes))
                .flatten(),
            wakeups_per_wait: (log.wakeups > 0).then(|| per(log.wakeups, log.waits)).flatten(),
        });
    }

    fn median(&self, figure: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(figure))
    }

    fn optional(&self, figure: impl Fn(&Round) -> Option<f64>) -> Option<f64> {
        let values: Vec<_> = self.rounds.iter().filter_map(figure).collect();
        (!values.is_empty()).then(|| median(values.into_iter()))
    }
}

/// Fills in ratios and medians. The cells are those of all candidates of one comparison.
pub(super) fn finish(cells: &mut [Cell]) {
    let base: Vec<_> = cells.first().map_or_else(Vec::new, |cell| {
        cell.rounds.iter().map(|round| round.transactions_per_second).collect()
    });
    for cell in cells {
        for (round, base) in cell.rounds.iter_mut().zip(&base) {
            round.ratio = round.transactions_per_second / base;
        }
        cell.transactions_per_second = cell.median(|round| round.transactions_per_second);
        cell.ratio = cell.median(|round| round.ratio);
    }
}

/// A Markdown table of the medians.
pub fn table(cells: &[Cell]) -> String {
    let mut text = String::from(
        "| group | load | clients | log | tx/s | ratio (range) | p95 ms | COMMIT share | log share | wait us | \
         redo/tx | written/byte | written/redo byte | wake-ups/wait |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for cell in cells {
        let ratios = || cell.rounds.iter().map(|round| round.ratio);
        let (low, high) = (ratios().fold(f64::INFINITY, f64::min), ratios().fold(0.0, f64::max));
        let optional = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let percent = |value: f64| format!("{:.0} %", value * 100.0);
        let commit = cell.optional(|round| round.commit_share);
        let row = [
            cell.group.clone(),
            cell.load.to_owned(),
            cell.clients.to_string(),
            cell.log.to_owned(),
            format!("{:.0}", cell.transactions_per_second),
            format!("{:.2} ({low:.2}..{high:.2})", cell.ratio),
            format!("{:.1}", cell.median(|round| round.latency_p95_ms)),
            commit.map_or_else(|| "-".to_owned(), percent),
            percent(cell.median(|round| round.log_share)),
            format!("{:.0}", cell.median(|round| round.wait_mean_us)),
            format!("{:.0}", cell.median(|round| round.redo_bytes_per_transaction)),
            optional(cell.optional(|round| round.device_written_per_byte), 3),
            optional(cell.optional(|round| round.device_written_per_redo_byte), 3),
            optional(cell.optional(|round| round.wakeups_per_wait), 2),
        ];
        text.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    text
}

#[cfg(test)]
mod tests;
