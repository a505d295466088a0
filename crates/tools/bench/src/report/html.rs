//! The report: one HTML page that needs nothing else, readable on a phone, light or dark as the reader has it.

use std::fmt::Write;

use redoubt_workload::error::Result;

use super::plot::{Line, Plot, Point, draw};
use super::table::{HEADING, cells, rows};
use super::{RunReport, bandwidth_text, pool_text};
use crate::args::Options;
use crate::processors::Processors;
use crate::server::version;

/// The machine of the runs.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// Name and value.
    facts: Vec<(&'static str, String)>,
}

impl Machine {
    /// Asks the machine.
    ///
    /// # Errors
    /// [`redoubt_workload::Error::Command`].
    pub fn examine(options: &Options, data_bytes: u64) -> Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |path: &str, name: &str| {
            let text = read(path);
            let line =
                text.lines().find(|line| line.starts_with(name)).map(str::to_owned).unwrap_or_default();
            line.split_once(':').map_or("unknown".to_owned(), |(_, value)| value.trim().to_owned())
        };
        let cores = read("/proc/cpuinfo").lines().filter(|line| line.starts_with("processor")).count();
        Ok(Self {
            facts: vec![
                ("processor", format!("{cores} cores, {}", field("/proc/cpuinfo", "model name"))),
                ("memory", field("/proc/meminfo", "MemTotal")),
                ("kernel", read("/proc/sys/kernel/osrelease").trim().to_owned()),
                ("load average at the end", read("/proc/loadavg").trim().to_owned()),
                ("server", version(options)?),
                ("redo log", format!("{} MiB", options.log_size >> 20)),
                ("redoubt", env!("CARGO_PKG_VERSION").to_owned()),
                ("data directory", format!("{} MiB", data_bytes >> 20)),
            ],
        })
    }
}

/// Dark pages replace the colours of text and axes, and those of lines that would be too dark.
const STYLE: &str = "
:root { color-scheme: light dark; --fore: #1b1f24; --back: #ffffff; --soft: #f2f4f7; --line: #d0d7de; }
@media (prefers-color-scheme: dark) {
  :root { --fore: #e6edf3; --back: #0d1117; --soft: #161b22; --line: #3d444d; }
  svg [stroke='#0072B2'] { stroke: #4aa8e8; } svg [fill='#0072B2'] { fill: #4aa8e8; }
  svg [stroke='#D55E00'] { stroke: #ff8a3d; } svg [fill='#D55E00'] { fill: #ff8a3d; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 75rem; font: 1rem/1.5 system-ui, sans-serif; color: var(--fore); background: var(--back); }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
code { overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .875rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
th { background: var(--soft); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1rem; }
figure { margin: 0; padding: .5rem; background: var(--soft); border-radius: .5rem; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--fore); } svg [stroke='#000000'] { stroke: var(--fore); }
summary { cursor: pointer; padding: .5rem 0; }
";

/// Text that is not markup.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The page.
///
/// # Errors
/// [`redoubt_workload::Error::State`].
pub fn html(runs: &[RunReport], machine: &Machine, command: &str) -> Result<String> {
    let workload = runs.first().map_or("", |run| run.workload.as_str());
    let clients = runs.first().map_or(0, |run| run.clients);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>redoubt bench: {workload}</title><style>{STYLE}</style></head><body>\n\
         <h1>{workload} with {clients} clients</h1>\n<p><code>redoubt {}</code></p>\n",
        escape(command)
    );
    write_table(&mut page, runs);
    if runs.first().is_some_and(|run| run.processors == Processors::Separate.name()) {
        page.push_str(
            "<p>Server and clients used one half of the processors, storage the other, as if on a machine of its own; \
             the local server had that one half.</p>\n",
        );
    }
    page.push_str("<h2>By size of the buffer pool</h2><div class=\"plots\">\n");
    for plot in by_pool(runs) {
        figure(&mut page, &plot)?;
    }
    page.push_str("</div>\n<h2>Latency over time</h2>\n");
    over_time(&mut page, runs)?;
    if machine.facts.is_empty() {
        page.push_str("</body></html>\n");
        return Ok(page);
    }
    page.push_str("<h2>Machine</h2><div class=\"wide\"><table>\n");
    for (name, value) in &machine.facts {
        // Writing to a string does not fail.
        let _ = writeln!(page, "<tr><th>{name}</th><td>{}</td></tr>", escape(value));
    }
    page.push_str("</table></div></body></html>\n");
    Ok(page)
}

fn figure(page: &mut String, plot: &Plot) -> Result<()> {
    let _ = writeln!(page, "<figure>{}</figure>", draw(plot)?);
    Ok(())
}

fn write_table(page: &mut String, runs: &[RunReport]) {
    let line = |cells: &[String], tag: &str| -> String {
        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
    };
    let heading = HEADING.map(str::to_owned);
    let _ = writeln!(page, "<div class=\"wide\"><table><tr>{}</tr>", line(&heading, "th"));
    for row in rows(runs) {
        let _ = writeln!(page, "<tr>{}</tr>", line(&row, "td"));
    }
    page.push_str(
        "</table></div>\n<p>Medians, in parentheses the extremes of the repetitions. <i>out</i> and <i>in</i> are bytes at the \
         server's end of the link with all headers; <i>CPU</i> is that of server and storage, without the clients; <i>dirty pages</i> \
         are those at the begin and end of the part that counts; <i>checks</i> are the consistency conditions that held afterwards.</p>\n",
    );
}

/// Names of all backends, in the order in which they first came: the place is the style.
fn backends(runs: &[RunReport]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        if !names.contains(&run.backend.as_str()) {
            names.push(&run.backend);
        }
    }
    names
}

/// Throughput and bytes against the size of the pool, for each limit.
fn by_pool(runs: &[RunReport]) -> Vec<Plot> {
    let mut pools: Vec<u64> = runs.iter().map(|run| run.pool_bytes).collect();
    pools.sort_unstable();
    pools.dedup();
    let mut limits: Vec<Option<u64>> =
        runs.iter().filter(|run| run.has_link()).map(|run| run.bandwidth_bps).collect();
    limits.sort_unstable_by_key(|limit| limit.unwrap_or(u64::MAX));
    limits.dedup();
    if limits.is_empty() {
        limits.push(None);
    }
    let lines = |limit: Option<u64>, of: &dyn Fn(&RunReport) -> Option<f64>| -> Vec<Line> {
        let cells = cells(runs);
        let line = |(style, name): (usize, &str)| {
            let mine = cells.iter().filter(|cell| {
                cell.first()
                    .is_some_and(|run| run.backend == name && (run.bandwidth_bps == limit || !run.has_link()))
            });
            let mut points: Vec<Point> = mine
                .filter_map(|cell| {
                    let pool_bytes = cell.first()?.pool_bytes;
                    let x = pools.iter().position(|pool| *pool == pool_bytes)? as f64;
                    let (y, (low, high)) = cell.figure(of)?;
                    Some(Point { x, y, low, high })
                })
                .collect();
            points.sort_by(|one, other| one.x.total_cmp(&other.x));
            (!points.is_empty()).then(|| Line { label: name.to_owned(), style, points })
        };
        backends(runs).into_iter().enumerate().filter_map(line).collect()
    };
    let mut plots = Vec::new();
    for limit in limits {
        let link = limit.map_or("no limit".to_owned(), |_| bandwidth_text(limit));
        let mut add = |what: &str, logarithmic: bool, lines: Vec<Line>| {
            if !lines.is_empty() {
                plots.push(Plot {
                    title: format!("{what} ({link})"),
                    y_axis: String::new(),
                    x_axis: "buffer pool".to_owned(),
                    x_names: pools.iter().map(|pool| pool_text(*pool)).collect(),
                    logarithmic,
                    lines,
                    ..Plot::default()
                });
            }
        };
        let kib = |bytes: Option<f64>| bytes.map(|bytes| bytes / 1024.0);
        add("Transactions per second", false, lines(limit, &|run| Some(run.tps)));
        // The local server sends nothing, which has no place on an axis of powers.
        let remote = |run: &RunReport| run.has_link();
        let sent = |run: &RunReport| kib(run.sent_bytes_per_txn.filter(|_| remote(run)));
        let received = |run: &RunReport| kib(run.received_bytes_per_txn.filter(|_| remote(run)));
        add("KiB sent to storage per transaction", true, lines(limit, &sent));
        add("KiB read from storage per transaction", false, lines(limit, &received));
    }
    plots
}

/// Percentiles of each run's slices: the last repetition openly, all others behind a line to open.
fn over_time(page: &mut String, runs: &[RunReport]) -> Result<()> {
    let last = runs.iter().map(|run| run.repetition).max().unwrap_or(0);
    page.push_str("<div class=\"plots\">\n");
    for run in runs.iter().filter(|run| run.repetition == last) {
        figure(page, &latency_plot(run))?;
    }
    page.push_str("</div>\n");
    for repetition in 1..last {
        let _ = writeln!(page, "<details><summary>Repetition {repetition}</summary><div class=\"plots\">");
        for run in runs.iter().filter(|run| run.repetition == repetition) {
            figure(page, &latency_plot(run))?;
        }
        page.push_str("</div></details>\n");
    }
    Ok(())
}

fn latency_plot(run: &RunReport) -> Plot {
    let line = |label: &str, style: usize, of: &dyn Fn(&crate::statistics::Latency) -> f64| {
        // A slice without transactions has no latency.
        let slices = run.slices.iter().filter(|slice| slice.tps > 0.0);
        let point = |slice: &crate::statistics::Slice| {
            let y = of(&slice.latency).max(1e-3);
            Point { x: slice.at_s, y, low: y, high: y }
        };
        Line { label: label.to_owned(), style, points: slices.map(point).collect() }
    };
    let link =
        if !run.has_link() { String::new() } else { format!(", {}", bandwidth_text(run.bandwidth_bps)) };
    Plot {
        title: format!("{}, {}{link}", run.backend, pool_text(run.pool_bytes)),
        y_axis: "ms".to_owned(),
        x_axis: "seconds".to_owned(),
        logarithmic: true,
        lines: vec![
            line("99th percentile", 1, &|latency| latency.p99_ms),
            line("95th percentile", 4, &|latency| latency.p95_ms),
            line("median", 0, &|latency| latency.p50_ms),
        ],
        ..Plot::default()
    }
}

#[cfg(test)]
#[path = "html_tests.rs"]
mod tests;
