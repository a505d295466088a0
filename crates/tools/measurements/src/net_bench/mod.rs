//! Comparison of the network library's layers on this machine: `redoubt-testkit net-bench`.
//!
//! | part | compared |
//! |---|---|
//! | [`same_host`] | TCP, the bypass and the unix socket, each with the collapser off and on, on a server with the library; and a plain server |
//! | [`elsewhere`] | TCP in user space, the kernel's beneath the same XDP program, and a plain server; clients in another network namespace |
//! | [`admission`] | TPC-C with hundreds and thousands of connections: without a limit, with limits, with the server's own pool |
//!
//! The first two run every way in turn, in an order that changes from round to round, and compare within a round: the
//! machine may be noisy, but is so for all ways alike. A figure is the median of the rounds' ratios.

use std::process::Command;

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::{Launcher, find_redoubt};
use redoubt_workload::oltp::{DATABASE, Mix};
use redoubt_workload::process::{find_program, processor_ms, run_to_end};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;
use redoubt_workload::sysbench::{Sysbench, parse_report};

mod admission;
mod elsewhere;
mod same_host;
#[cfg(test)]
mod tests;

/// What to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Parts, separated by commas
    #[arg(long = "part", value_enum, value_delimiter = ',', default_values = ["same-host", "elsewhere", "admission"])]
    pub parts: Vec<Part>,
    /// Rounds of the first two parts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Seconds of one way in a round; of one measurement of admission five times as many
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Connections of the first two parts, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        default_values = ["1", "8", "64"],
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub connections: Vec<u32>,
    /// Servers of the first two parts use their pool of threads
    #[arg(long)]
    pub pool_of_threads: bool,
    /// Connections of admission, from few, at which the server is at its best, to many; separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        default_values = ["8", "32", "128", "1000", "2000", "4000"],
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub many: Vec<u32>,
    /// Limits of admission, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        default_values = ["8", "16", "32"],
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub limits: Vec<u32>,
    /// Warehouses of TPC-C, of 300 customers a district and 2,000 items
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub warehouses: u32,
    /// Folder of another server for admission, made by scripts/fetch-server
    #[arg(long)]
    pub server: Option<std::path::PathBuf>,
}

/// A part; see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Clients on the server's host
    SameHost,
    /// Clients elsewhere
    Elsewhere,
    /// Many connections
    Admission,
}

/// Measures; `progress` gets a line for each measurement. Returns tables for people.
///
/// # Errors
/// The first of a server, of sysbench or of TPC-C; [`Error::Unavailable`] without root.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<String> {
    let mut text = String::new();
    for part in &options.parts {
        text.push_str(&match part {
            Part::SameHost => same_host::measure(options, progress)?,
            Part::Elsewhere => elsewhere::measure(options, progress)?,
            Part::Admission => admission::measure(options, progress)?,
        });
        text.push('\n');
    }
    Ok(text)
}

/// One way from a client to a server.
struct Way<'s> {
    name: &'static str,
    server: &'s Server,
    /// Arguments of `redoubt net set` before the measurement.
    settings: Vec<[&'static str; 2]>,
    /// sysbench up to its options, as a client that goes this way.
    client: Command,
    /// Where sysbench finds the server.
    address: Vec<String>,
}

/// Result of one way in one round.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    queries_per_s: f64,
    processor_us: f64,
}

/// The middle of several ratios, and their quartiles.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    median: f64,
    low: f64,
    high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |part: f64| -> f64 {
            let place = part * values.len().saturating_sub(1) as f64;
            let value = |at: f64| values.get(at as usize).copied().unwrap_or(f64::NAN);
            value(place.floor()) + (value(place.ceil()) - value(place.floor())) * place.fract()
        };
        Self { median: at(0.5), low: at(0.25), high: at(0.75) }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:.2} ({:.2} to {:.2})", self.median, self.low, self.high)
    }
}

/// Tables of sysbench for the first two parts.
const TABLES: u32 = 4;
const ROWS: u32 = 20_000;

/// All loads over all ways; the first is what the others are compared with.
fn compare(
    title: &str,
    ways: &mut [Way<'_>],
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<String> {
    let mut text = format!(
        "{title}\n\n| load | connections | | queries per second | ratio | server's CPU per query, us | ratio |\n\
         |---|--:|---|--:|--:|--:|--:|\n"
    );
    for mix in [Mix::PointSelect, Mix::ReadWrite] {
        for &connections in &options.connections {
            let mut rounds = Vec::new();
            for round in 0..options.rounds {
                let samples = one_round(ways, round as usize, mix, connections, options.seconds)?;
                progress(&format!(
                    "{} {connections}, round {}: {}",
                    mix.name(),
                    round + 1,
                    shown(ways, &samples)
                ));
                rounds.push(samples);
            }
            for (at, way) in ways.iter().enumerate() {
                text.push_str(&line(mix, connections, way.name, &rounds, at));
            }
        }
    }
    Ok(text)
}

fn one_round(
    ways: &mut [Way<'_>],
    round: usize,
    mix: Mix,
    connections: u32,
    seconds: u32,
) -> Result<Vec<Sample>> {
    let count = ways.len();
    let mut samples = vec![None; count];
    for place in 0..count {
        // Each way comes at each place.
        let at = (place + round) % count;
        if let (Some(way), Some(sample)) = (ways.get_mut(at), samples.get_mut(at)) {
            *sample = Some(way.measure(mix, connections, seconds)?);
        }
    }
    Ok(samples.into_iter().flatten().collect())
}

fn shown(ways: &[Way<'_>], samples: &[Sample]) -> String {
    let one = |(way, sample): (&Way<'_>, &Sample)| {
        format!("{} {:.0}/s {:.1} us", way.name, sample.queries_per_s, sample.processor_us)
    };
    ways.iter().zip(samples).map(one).collect::<Vec<_>>().join(", ")
}

fn line(mix: Mix, connections: u32, name: &str, rounds: &[Vec<Sample>], at: usize) -> String {
    let of = |value: fn(&Sample) -> f64| {
        let pairs = rounds.iter().filter_map(|round| Some((value(round.get(at)?), value(round.first()?))));
        let (values, ratios): (Vec<f64>, Vec<f64>) = pairs.map(|(value, base)| (value, value / base)).unzip();
        (Spread::of(values).median, Spread::of(ratios))
    };
    let (queries, queries_ratio) = of(|sample| sample.queries_per_s);
    let (processor, processor_ratio) = of(|sample| sample.processor_us);
    let load = mix.name().trim_start_matches("oltp_");
    format!(
        "| {load} | {connections} | {name} | {queries:.0} | {queries_ratio} | {processor:.1} | {processor_ratio} |\n"
    )
}

impl Way<'_> {
    fn measure(&mut self, mix: Mix, connections: u32, seconds: u32) -> Result<Sample> {
        for setting in &self.settings {
            set(self.server, setting)?;
        }
        let mut command = Command::new(self.client.get_program());
        command.args(self.client.get_args()).args([
            mix.name(),
            "--db-driver=mysql",
            &format!("--mysql-db={DATABASE}"),
            &format!("--tables={TABLES}"),
            &format!("--table-size={ROWS}"),
            &format!("--threads={connections}"),
            &format!("--time={seconds}"),
            "--events=0",
            // Errors caused by other transactions are part of the load.
            "--mysql-ignore-errors=1213,1020,1205",
        ]);
        command.args(&self.address).arg("run");
        let before = processor_us(self.server)?;
        let report = parse_report(&run_to_end(&mut command)?)?;
        let used = processor_us(self.server)? - before;
        let queries = report.queries as f64;
        let elapsed_s = report.transactions as f64 / report.transactions_per_second;
        Ok(Sample { queries_per_s: queries / elapsed_s, processor_us: used / queries })
    }
}

/// CPU time of a server until now, in microseconds, with the kernel's time on its behalf.
fn processor_us(server: &Server) -> Result<f64> {
    let id = server.process_id().ok_or_else(|| Error::State("the server has ended".to_owned()))?;
    Ok(processor_ms(&id.to_string())? as f64 * 1000.0)
}

/// `redoubt net set` for one server.
fn set(server: &Server, setting: &[&str]) -> Result<()> {
    let datadir = server.datadir();
    let arguments = ["net", "set"].into_iter().chain(setting.iter().copied()).map(std::ffi::OsString::from);
    let arguments = arguments.chain(["--datadir".into(), datadir.into()]);
    Outcome::of(&find_redoubt()?, arguments, PATIENCE)?.require_success().map(drop)
}

/// A server through `redoubt net run` with these options.
fn with_library(options: &[&str]) -> Result<Launcher> {
    let options = options.iter().map(|&option| option.to_owned()).collect();
    Ok(Launcher::Net { redoubt_bin: find_redoubt()?, options })
}

/// All servers: nothing waits for a disk, everything is in memory.
fn config(launcher: Launcher) -> ServerConfig {
    let mut config = ServerConfig::new(launcher)
        .server_arg("--innodb-flush-log-at-trx-commit=0")
        .server_arg("--max-connections=5000")
        .server_arg("--max-prepared-stmt-count=1000000")
        .server_arg("--skip-log-bin");
    config.buffer_pool_bytes = 1 << 30;
    config.log_file_size_bytes = 1 << 30;
    config
}

/// The sysbench tables, and a user who may come from anywhere.
fn prepare(server: &Server) -> Result<()> {
    let threads = TABLES;
    Sysbench { socket: server.socket(), tables: TABLES, rows: ROWS, threads, seed: 1 }.prepare()?;
    let mut conn = server.connect()?;
    execute(&mut conn, "CREATE USER bench@'%'")?;
    execute(&mut conn, "GRANT ALL ON *.* TO bench@'%'")
}

fn sysbench() -> Result<Command> {
    Ok(Command::new(find_program("sysbench", "sysbench")?))
}
