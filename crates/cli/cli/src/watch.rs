//! `redoubt status --watch`, `redoubt group status --watch`: the state at regular intervals, with rates.
//!
//! On a terminal it is drawn in place; elsewhere there are lines for each interval, and with `--json` one object per
//! line. It waits for a server or node that goes away.

use crate::error::{CliError, Result};
use crate::show::bytes;
use redoubt_wire::control::{NodeStatus, VolumeStatus};
use redoubt_wire::figures::Times;
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Cursor home.
const HOME: &str = "\x1b[H";
/// Clear to the end of the line, and of the screen.
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_REST: &str = "\x1b[J";

/// Renders a state: a screen of a terminal, or lines. The second argument is the previous state, and its age.
pub type Show<T> = fn(&T, Option<(Duration, &T)>) -> String;

/// Interval, number and format of the output.
pub struct Watch {
    /// Interval between two samples.
    pub interval: Duration,
    /// Number of samples; `None`: until standard output is closed.
    pub limit: Option<u32>,
    /// Output as JSON, for programs.
    pub json: bool,
}

/// Shows the states of a node.
///
/// # Errors
/// As for [`show`].
pub fn run(fetch: impl FnMut() -> Result<NodeStatus>, watch: &Watch) -> Result<()> {
    show(fetch, watch, screen, lines)
}

/// Shows what `fetch` gives again and again, until standard output is gone.
///
/// # Errors
/// Errors of the system if standard output fails; the error of the first `fetch`, when an address may be wrong.
pub fn show<T: Serialize>(
    mut fetch: impl FnMut() -> Result<T>,
    watch: &Watch,
    screen: Show<T>,
    lines: Show<T>,
) -> Result<()> {
    let &Watch { interval, limit, json } = watch;
    let is_terminal = std::io::stdout().is_terminal() && !json;
    let mut before: Option<(Instant, T)> = None;
    let mut next = Instant::now();
    for turn in 0u32.. {
        if limit.is_some_and(|limit| turn >= limit) {
            break;
        }
        let text = match fetch() {
            Ok(state) => {
                let now = Instant::now();
                let text = if json {
                    one_object(&state)?
                } else {
                    let earlier = before.as_ref().map(|(at, state)| (now - *at, state));
                    if is_terminal { screen(&state, earlier) } else { lines(&state, earlier) }
                };
                before = Some((now, state));
                text
            }
            Err(error) if before.is_none() => return Err(error),
            Err(error) => format!("{error}\n"),
        };
        let text = if is_terminal { in_place(&text) } else { text };
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => {}
            // The reader has closed the pipe.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
            Err(error) => return Err(CliError::io("write to", "standard output", error)),
        }
        drop(out);
        next = (next + interval).max(Instant::now());
        if limit.is_none_or(|limit| turn + 1 < limit) {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
    Ok(())
}

fn one_object<T: Serialize>(state: &T) -> Result<String> {
    let text = serde_json::to_string(state).map_err(|error| CliError::io("write", "JSON", error.into()))?;
    Ok(text + "\n")
}

fn in_place(text: &str) -> String {
    let lines: String = text.lines().map(|line| format!("{line}{CLEAR_LINE}\n")).collect();
    format!("{HOME}{lines}{CLEAR_REST}")
}

type Earlier<'a> = Option<(Duration, &'a NodeStatus)>;

/// Rates between two samples of a volume. Without an earlier one, everything is 0.
struct Rates {
    received: f64,
    avoided: f64,
    commits: f64,
    commit_wait: Option<f64>,
    reads: f64,
    read_times: Times,
    log_times: Times,
    runs: f64,
    /// Share of the time that each worker was at work.
    busy: Vec<f64>,
    /// Share of the time that the server was held back, by stage.
    held: Vec<(String, f64)>,
}

fn rates(volume: &VolumeStatus, earlier: Earlier<'_>) -> Rates {
    let before = earlier.and_then(|(time, node)| {
        let found = node.volumes.iter().find(|other| other.name == volume.name)?;
        Some((time.as_secs_f64().max(1e-3), found))
    });
    let seconds = before.map_or(1.0, |(seconds, _)| seconds);
    let old = before.map_or(volume, |(_, volume)| volume);
    // A node or server that was started again counts from 0.
    let rate = |now: u64, then: u64| (now.checked_sub(then).unwrap_or(now)) as f64 / seconds;
    let server = |of: &VolumeStatus, name: &str| of.server_counters.get(name).copied().unwrap_or(0);
    let node = |name: &str| {
        let of = |of: &VolumeStatus| of.counters.get(name).copied().unwrap_or(0);
        rate(of(volume), of(old))
    };
    let avoided =
        |of: &VolumeStatus| server(of, "page_bytes_dropped") + server(of, "doublewrite_bytes_dropped");
    let by_server = |name: &str| rate(server(volume, name), server(old, name));
    let commits = by_server("durability_waits");
    let workers = volume.apply_workers.iter().enumerate();
    let earlier_worker = |at: usize| old.apply_workers.get(at).cloned().unwrap_or_default();
    Rates {
        received: node("received_bytes"),
        avoided: rate(avoided(volume), avoided(old)),
        commits,
        commit_wait: (commits > 0.0).then(|| by_server("durability_wait_micros") / commits),
        reads: node("page_reads"),
        read_times: volume.page_read_times.since(&old.page_read_times),
        log_times: volume.log_write_times.since(&old.log_write_times),
        runs: workers.clone().map(|(at, worker)| rate(worker.runs, earlier_worker(at).runs)).sum(),
        busy: workers
            .map(|(at, worker)| rate(worker.busy_micros, earlier_worker(at).busy_micros) / 1e6)
            .collect(),
        held: volume
            .ring_wait_micros
            .iter()
            .map(|(stage, now)| {
                let then = old.ring_wait_micros.get(stage).copied().unwrap_or(0);
                (stage.clone(), rate(*now, then) / 1e6)
            })
            .filter(|(_, share)| *share >= 0.001)
            .collect(),
    }
}

fn per_second(count: f64) -> String {
    format!("{}/s", bytes(count as u64))
}

/// `1.2 ms`.
pub fn micros(count: f64) -> String {
    if count < 1000.0 {
        format!("{count:.0} us")
    } else if count < 1e6 {
        format!("{:.1} ms", count / 1e3)
    } else {
        format!("{:.1} s", count / 1e6)
    }
}

fn quantiles(times: &Times) -> String {
    let of = |share| times.quantile_micros(share).map_or("-".to_owned(), |value| micros(value as f64));
    format!("p50 {} p99 {}", of(0.5), of(0.99))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn held_back(rates: &Rates) -> String {
    if rates.held.is_empty() {
        return "never".to_owned();
    }
    let stages = rates.held.iter().map(|(stage, share)| format!("{} by {stage}", percent(*share)));
    stages.collect::<Vec<_>>().join(", ")
}

fn screen(node: &NodeStatus, earlier: Earlier<'_>) -> String {
    let mut out = format!("node {} (version {}), up {} s\n", node.listen, node.version, node.uptime_seconds);
    if let Some(page) = &node.status_page {
        out += &format!("status page http://{page}/\n");
    }
    for volume in &node.volumes {
        let rates = rates(volume, earlier);
        let behind = |lsn: u64| bytes(volume.w_lsn.saturating_sub(lsn));
        let reason = if volume.reason.is_empty() { String::new() } else { format!(": {}", volume.reason) };
        let commit_wait = rates.commit_wait.map_or("-".to_owned(), micros);
        let counter = |name: &str| volume.counters.get(name).copied().unwrap_or(0);
        let busy: Vec<_> = rates.busy.iter().map(|share| percent(*share)).collect();
        let ring = volume.ring_used_bytes as f64 / volume.ring_len_bytes.max(1) as f64;
        out += &format!("\nvolume {}  {}{reason}\n", volume.name, volume.state);
        out += &format!(
            "  W {}  behind it: D {}, P {}, A {}\n",
            volume.w_lsn,
            behind(volume.d_lsn),
            behind(volume.p_lsn),
            behind(volume.a_lsn)
        );
        out += &format!(
            "  in          {:<14} page bytes avoided {}\n",
            per_second(rates.received),
            per_second(rates.avoided)
        );
        out += &format!("  commits     {:<14} mean wait {commit_wait}\n", format!("{:.0}/s", rates.commits));
        out += &format!("  log writes  {}\n", quantiles(&rates.log_times));
        out += &format!(
            "  page reads  {:<14} {}\n",
            format!("{:.0}/s", rates.reads),
            quantiles(&rates.read_times)
        );
        out += &format!(
            "  apply       {:<14} workers {}\n",
            format!("{:.0} runs/s", rates.runs),
            busy.join(", ")
        );
        out += &format!("  log buffer  {:<14} server held back: {}\n", percent(ring), held_back(&rates));
        out += &format!(
            "  verified    {:<14} differed {}, healed {}\n",
            counter("pages_verified"),
            counter("page_mismatches"),
            counter("pages_healed")
        );
    }
    out
}

fn lines(node: &NodeStatus, earlier: Earlier<'_>) -> String {
    let one = |volume: &VolumeStatus| {
        let rates = rates(volume, earlier);
        let behind = |lsn: u64| volume.w_lsn.saturating_sub(lsn);
        let p99 = rates.read_times.quantile_micros(0.99).map_or("-".to_owned(), |value| micros(value as f64));
        format!(
            "{} s  {} {}  W {} D -{} P -{} A -{}  in {}  avoided {}  commits {:.0}/s {}  reads {:.0}/s p99 {p99}  \
             apply {:.0} runs/s  buffer {}  held back {}\n",
            node.uptime_seconds,
            volume.name,
            volume.state,
            volume.w_lsn,
            behind(volume.d_lsn),
            behind(volume.p_lsn),
            behind(volume.a_lsn),
            per_second(rates.received),
            per_second(rates.avoided),
            rates.commits,
            rates.commit_wait.map_or("-".to_owned(), micros),
            rates.reads,
            rates.runs,
            percent(volume.ring_used_bytes as f64 / volume.ring_len_bytes.max(1) as f64),
            held_back(&rates),
        )
    };
    node.volumes.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(reads: u64, commits: u64) -> NodeStatus {
        let mut volume =
            VolumeStatus { name: "v".to_owned(), state: "attached".to_owned(), ..VolumeStatus::default() };
        volume.counters.insert("page_reads".to_owned(), reads);
        volume.server_counters.insert("durability_waits".to_owned(), commits);
        volume.server_counters.insert("durability_wait_micros".to_owned(), commits * 700);
        volume.ring_wait_micros.insert("apply".to_owned(), reads * 1000);
        NodeStatus {
            version: "1".to_owned(),
            listen: "x".to_owned(),
            uptime_seconds: 9,
            memory_used_bytes: 3 << 20,
            memory_limit_bytes: 1 << 30,
            volumes: vec![volume],
            ..NodeStatus::default()
        }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let (early, late) = (node(100, 40), node(300, 60));
        let line = lines(&late, Some((Duration::from_secs(2), &early)));
        for part in ["reads 100/s", "commits 10/s 700 us", "held back 10 % by apply", "9 s  v attached"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(screen(&late, Some((Duration::from_secs(2), &early))).contains("10 % by apply"));
        let first = lines(&late, None);
        assert!(first.contains("reads 0/s") && first.contains("held back never"), "{first}");
        let again = lines(&early, Some((Duration::from_secs(1), &late)));
        assert!(again.contains("reads 100/s"), "a node that was started again: {again}");
    }

    #[test]
    fn drawing_in_place_clears_what_was_there() {
        let text = in_place("a\nb\n");
        assert_eq!(text, "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
