//! `redoubt trace`: where the time of commits and page reads goes, stage by stage.

use crate::args::TraceArguments;
use crate::error::Result;
use crate::show::{Table, print_json};
use redoubt_client::control::Client;
use redoubt_wire::control::{Reply, Request};
use redoubt_wire::trace::{Sample, Stage, Traced};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Interval at which samples are fetched.
const FETCH_INTERVAL: Duration = Duration::from_secs(1);
/// The server sends its part four times per second; the last samples arrive after the end of the trace.
const LAST_WORDS: Duration = Duration::from_millis(2500);
/// Samples kept of each kind, so that a long trace does not take all memory. Later ones are counted only.
const KEPT: usize = 200_000;

#[derive(Serialize)]
struct Report {
    volume: String,
    one_in: u32,
    seconds: u64,
    /// Number of samples with a missing half, or dropped because too many came.
    lost: u64,
    commits: Part,
    page_reads: Part,
}

#[derive(Serialize)]
struct Part {
    samples: u64,
    total: Quantiles,
    stages: Vec<StageReport>,
    slowest: Vec<Sample>,
}

#[derive(Serialize)]
struct StageReport {
    stage: Stage,
    /// Share of the time of all samples.
    share: f64,
    #[serde(flatten)]
    times: Quantiles,
}

#[derive(Serialize, Default, Clone, Copy, Debug, PartialEq)]
struct Quantiles {
    mean_micros: f64,
    p50_micros: f64,
    p90_micros: f64,
    p99_micros: f64,
    max_micros: f64,
}

/// Traces a volume for a while and prints what was found.
///
/// # Errors
/// Errors of the node.
pub fn run(arguments: &TraceArguments) -> Result<()> {
    let connector = arguments.address.connector()?;
    crate::tls::check_volume(&connector, &arguments.volume)?;
    let mut client = Client::connect(&connector)?;
    let (volume, one_in) = (arguments.volume.clone(), arguments.one_in);
    let begin = Request::TraceBegin { volume: volume.clone(), one_in };
    match client.call(&begin)? {
        Reply::Done => {}
        other => return Err(client.unexpected(&other).into()),
    }
    if !arguments.json {
        complain!(
            "tracing 1 of {one_in} commits and page reads of volume {volume} for {} s",
            arguments.seconds
        );
    }
    let until = Instant::now() + Duration::from_secs(arguments.seconds) + LAST_WORDS;
    let (mut commits, mut reads) = (Vec::new(), Vec::new());
    let mut lost: u64;
    let mut too_many = 0;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        std::thread::sleep(FETCH_INTERVAL.min(left));
        match client.call(&Request::TraceTake { volume: volume.clone() })? {
            Reply::Trace { samples, lost: so_far } => {
                lost = so_far;
                for sample in samples {
                    let of =
                        if matches!(sample.what, Traced::Commit { .. }) { &mut commits } else { &mut reads };
                    if of.len() < KEPT { of.push(sample) } else { too_many += 1 }
                }
            }
            other => return Err(client.unexpected(&other).into()),
        }
        if left.is_zero() {
            break;
        }
    }
    let report = Report {
        volume,
        one_in,
        seconds: arguments.seconds,
        lost: lost + too_many,
        commits: part(commits, &Stage::COMMIT, arguments.slowest),
        page_reads: part(reads, &Stage::READ, arguments.slowest),
    };
    if arguments.json {
        return print_json(&report);
    }
    print("commits", &report.commits, one_in);
    say!();
    print("page reads", &report.page_reads, one_in);
    if report.lost > 0 {
        say!("\n{} samples were lost: sample fewer with a higher --one-in", report.lost);
    }
    Ok(())
}

fn part(mut samples: Vec<Sample>, stages: &[Stage], slowest: usize) -> Part {
    let nanos_of = |sample: &Sample, stage: Stage| sample.stages.get(&stage).copied().unwrap_or(0);
    let all: u64 = samples.iter().map(|sample| sample.total_nanos).sum();
    let report = |stage: Stage| {
        let times: Vec<_> = samples.iter().map(|sample| nanos_of(sample, stage)).collect();
        let sum: u64 = times.iter().sum();
        StageReport { stage, share: sum as f64 / all.max(1) as f64, times: quantiles(times) }
    };
    let stages = stages.iter().map(|stage| report(*stage)).collect();
    let total = quantiles(samples.iter().map(|sample| sample.total_nanos).collect());
    let count = samples.len() as u64;
    samples.sort_unstable_by_key(|sample| std::cmp::Reverse(sample.total_nanos));
    samples.truncate(slowest);
    Part { samples: count, total, stages, slowest: samples }
}

fn quantiles(mut nanos: Vec<u64>) -> Quantiles {
    nanos.sort_unstable();
    let Some(last) = nanos.len().checked_sub(1) else { return Quantiles::default() };
    // The smallest value that at least this share of all does not exceed.
    let at = |share: f64| {
        let rank = (nanos.len() as f64 * share).ceil() as usize;
        nanos.get(rank.saturating_sub(1).min(last)).map_or(0.0, |value| *value as f64 / 1e3)
    };
    Quantiles {
        mean_micros: nanos.iter().sum::<u64>() as f64 / nanos.len() as f64 / 1e3,
        p50_micros: at(0.5),
        p90_micros: at(0.9),
        p99_micros: at(0.99),
        max_micros: at(1.0),
    }
}

fn time(micros: f64) -> String {
    if micros < 10.0 { format!("{micros:.1} us") } else { crate::watch::micros(micros) }
}

fn print(title: &str, part: &Part, one_in: u32) {
    if part.samples == 0 {
        say!("{title}: no samples (1 of {one_in} is sampled)");
        return;
    }
    say!("{title}: {} samples", part.samples);
    let mut table = Table::new(&["  stage", "share", "mean", "p50", "p90", "p99", "max"]);
    let mut row = |name: &str, share: f64, times: &Quantiles| {
        let Quantiles { mean_micros, p50_micros, p90_micros, p99_micros, max_micros } = *times;
        let times = [mean_micros, p50_micros, p90_micros, p99_micros, max_micros].map(time);
        let cells: Vec<_> =
            [format!("  {name}"), format!("{:.0} %", share * 100.0)].into_iter().chain(times).collect();
        table.row(&cells);
    };
    for stage in &part.stages {
        row(stage.stage.name(), stage.share, &stage.times);
    }
    row("total", 1.0, &part.total);
    table.print();
    say!("  slowest:");
    for sample in &part.slowest {
        let what = match &sample.what {
            Traced::Commit { position } => format!("position {position}"),
            Traced::Read { path, offset_bytes } => format!("{path} at {offset_bytes}"),
        };
        let stages = sample
            .stages
            .iter()
            .map(|(stage, nanos)| format!("{} {}", stage.name(), time(*nanos as f64 / 1e3)));
        say!(
            "    {}  {what}: {}",
            time(sample.total_nanos as f64 / 1e3),
            stages.collect::<Vec<_>>().join(", ")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(wire: u64, device: u64) -> Sample {
        Sample {
            what: Traced::Commit { position: wire },
            total_nanos: wire + device,
            stages: [(Stage::Wire, wire), (Stage::Device, device)].into(),
        }
    }

    #[test]
    fn shares_quantiles_and_the_slowest() {
        let samples: Vec<_> = (1..=100).map(|n| sample(n * 1000, 3 * n * 1000)).collect();
        let part = part(samples, &Stage::COMMIT, 2);
        assert_eq!(part.samples, 100);
        let of = |stage| part.stages.iter().find(|report| report.stage == stage).unwrap();
        assert!((of(Stage::Wire).share - 0.25).abs() < 1e-9 && (of(Stage::Device).share - 0.75).abs() < 1e-9);
        let expected = Quantiles {
            mean_micros: 50.5,
            p50_micros: 50.0,
            p90_micros: 90.0,
            p99_micros: 99.0,
            max_micros: 100.0,
        };
        assert_eq!(of(Stage::Wire).times, expected);
        assert_eq!(of(Stage::WakeUp).times, Quantiles::default());
        let slowest: Vec<_> = part.slowest.iter().map(|sample| sample.total_nanos).collect();
        assert_eq!(slowest, [400_000, 396_000]);
        assert_eq!(super::part(Vec::new(), &Stage::READ, 2).total, Quantiles::default());
    }
}
