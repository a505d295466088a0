//! A table for people: medians and ranges over the repetitions.

use super::{RunReport, bandwidth_text, pool_text};
use crate::statistics::{median, range};

/// Runs of the same thing.
pub struct Cell<'a> {
    /// All repetitions.
    pub runs: Vec<&'a RunReport>,
}

impl Cell<'_> {
    /// The first run, for what all have in common.
    pub fn first(&self) -> Option<&RunReport> {
        self.runs.first().copied()
    }

    /// Median and range of a figure; `None` if a run does not have it.
    pub fn figure(&self, of: impl Fn(&RunReport) -> Option<f64>) -> Option<(f64, (f64, f64))> {
        let values: Option<Vec<f64>> = self.runs.iter().map(|run| of(run)).collect();
        values.filter(|values| !values.is_empty()).map(|values| (median(&values), range(&values)))
    }
}

/// Groups runs of the same thing: by pool, then the local server, then by limit, then in the order in which they
/// first came.
pub fn cells(runs: &[RunReport]) -> Vec<Cell<'_>> {
    let mut cells: Vec<Cell<'_>> = Vec::new();
    for run in runs {
        let same = |cell: &&mut Cell<'_>| cell.first().is_some_and(|first| key(first) == key(run));
        match cells.iter_mut().find(same) {
            Some(cell) => cell.runs.push(run),
            None => cells.push(Cell { runs: vec![run] }),
        }
    }
    // No limit is the highest.
    let place = |run: &RunReport| (run.pool_bytes, run.has_link(), run.bandwidth_bps.unwrap_or(u64::MAX));
    cells.sort_by_key(|cell| cell.first().map(place));
    cells
}

fn key(run: &RunReport) -> (&str, u64, Option<u64>) {
    (&run.backend, run.pool_bytes, run.bandwidth_bps)
}

/// Throughput of the local server with the same pool, which ratios refer to.
pub fn local_tps(cells: &[Cell<'_>], pool_bytes: u64) -> Option<f64> {
    let local = cells.iter().find(|cell| {
        cell.first().is_some_and(|run| run.backend == "local" && run.pool_bytes == pool_bytes)
    })?;
    local.figure(|run| Some(run.tps)).map(|(median, _)| median)
}

/// A number with as many digits as people read.
pub fn short(value: f64) -> String {
    match value.abs() {
        value_abs if value_abs >= 100.0 => format!("{value:.0}"),
        value_abs if value_abs >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn with_range(figure: Option<(f64, (f64, f64))>) -> String {
    match figure {
        None => "-".to_owned(),
        Some((median, (low, high))) if low == high => short(median),
        Some((median, (low, high))) => format!("{} ({} to {})", short(median), short(low), short(high)),
    }
}

/// Column names.
pub const HEADING: [&str; 15] = [
    "pool",
    "link",
    "backend",
    "runs",
    "tps",
    "of local",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "out KiB/txn",
    "in KiB/txn",
    "redo KiB/txn",
    "CPU ms/txn",
    "dirty pages",
    "checks",
];

/// Rows of the table.
pub fn rows(runs: &[RunReport]) -> Vec<Vec<String>> {
    let cells = cells(runs);
    let row = |cell: &Cell<'_>| {
        let first = cell.first()?;
        let tps = cell.figure(|run| Some(run.tps))?;
        let ratio = local_tps(&cells, first.pool_bytes)
            .map_or("-".to_owned(), |local| format!("{:.3}", tps.0 / local));
        let plain = |of: &dyn Fn(&RunReport) -> Option<f64>| {
            cell.figure(of).map_or("-".to_owned(), |(median, _)| short(median))
        };
        Some(vec![
            pool_text(first.pool_bytes),
            if first.has_link() { bandwidth_text(first.bandwidth_bps) } else { "-".to_owned() },
            first.backend.clone(),
            cell.runs.len().to_string(),
            with_range(Some(tps)),
            ratio,
            plain(&|run| Some(run.latency.p50_ms)),
            with_range(cell.figure(|run| Some(run.latency.p95_ms))),
            plain(&|run| Some(run.latency.p99_ms)),
            with_range(cell.figure(|run| run.sent_bytes_per_txn.map(|bytes| bytes / 1024.0))),
            with_range(cell.figure(|run| run.received_bytes_per_txn.map(|bytes| bytes / 1024.0))),
            plain(&|run| Some(run.redo_bytes_per_txn / 1024.0)),
            plain(&|run| Some(run.cpu_ms_per_txn)),
            format!(
                "{} to {}",
                plain(&|run| Some(run.dirty_pages_before as f64)),
                plain(&|run| Some(run.dirty_pages_after as f64))
            ),
            first.consistency.to_string(),
        ])
    };
    cells.iter().filter_map(row).collect()
}

/// The table as text.
pub fn table(runs: &[RunReport]) -> String {
    let mut rows = rows(runs);
    rows.insert(0, HEADING.iter().map(|&name| name.to_owned()).collect());
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..HEADING.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}
