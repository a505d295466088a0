//! Costs that grow with the size of a volume or a node: each at a tenth of the size and at the full size.
//!
//! | part | its size | timed operations |
//! |---|---|---|
//! | [`tables`] | tables of a volume | making one, attach, start of the node, export |
//! | [`binary_logs`] | files of 100 KiB; by default one an hour for a year | attach, start of the node, export |
//! | [`plain_file`] | GiB of one sparse plain file | import, attach, export |
//! | [`volumes`] | volumes of a node | attach, start of the node, its memory |
//! | [`data`] | GiB of one volume's tables | attach, start of the node, reading all of it |
//!
//! *Attach after a kill* is `redoubt run` until the server accepts, in the directory of a server that was killed; *from
//! empty* is the same in an empty directory, as on another host.

use std::path::Path;
use std::time::{Duration, Instant};

use redoubt_harness::command::Outcome;
use redoubt_harness::node::Node;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::{Launcher, Verify};
use redoubt_workload::server::{Server, ServerConfig};

mod binary_logs;
mod data;
mod plain_file;
mod tables;
mod volumes;

/// Exports and imports of everything.
const LONG: Duration = Duration::from_secs(4 * 3600);

/// What to run. A size of 0 leaves its part out.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Tables at the full size
    #[arg(long, default_value_t = 100_000)]
    pub tables: u32,
    /// Files of a binary log
    #[arg(long, default_value_t = 8_760)]
    pub binary_logs: u32,
    /// GiB of a sparse plain file
    #[arg(long, default_value_t = 50)]
    pub plain_file: u32,
    /// Volumes of a node
    #[arg(long, default_value_t = 20)]
    pub volumes: u32,
    /// GiB of a volume's tables; needs twice that of disk
    #[arg(long, default_value_t = 0)]
    pub data: u32,
}

/// Costs of one size.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Costs {
    /// The counted unit.
    pub unit: &'static str,
    /// So many.
    pub size: u32,
    /// Each cost by its name, which ends in its unit.
    pub costs: Vec<(&'static str, f64)>,
}

/// Takes a cost.
type Note<'n> = &'n mut dyn FnMut(&'static str, f64);
type Part = fn(u32, Note<'_>) -> Result<()>;

/// Measures each part at a tenth and whole; `progress` gets a line per cost.
///
/// # Errors
/// The first that fails.
pub fn run(options: &Options, mut progress: impl FnMut(&str)) -> Result<Vec<[Costs; 2]>> {
    let parts: [(&'static str, u32, Part); 5] = [
        ("tables", options.tables, tables::measure),
        ("binary logs", options.binary_logs, binary_logs::measure),
        ("GiB in one plain file", options.plain_file, plain_file::measure),
        ("volumes", options.volumes, volumes::measure),
        ("GiB of tables", options.data, data::measure),
    ];
    let mut measure = |unit, size: u32, part: Part| {
        let mut costs = Costs { unit, size, costs: Vec::new() };
        let mut note = |name: &'static str, value: f64| {
            progress(&format!("{size} {unit}: {name}: {value:.2}"));
            costs.costs.push((name, value));
        };
        part(size, &mut note)?;
        Ok(costs)
    };
    let of_part = |(unit, size, part): (&'static str, u32, Part)| {
        Ok([measure(unit, (size / 10).max(1), part)?, measure(unit, size, part)?])
    };
    parts.into_iter().filter(|(_, size, _)| *size > 0).map(of_part).collect()
}

/// Both sizes of a part as a table for people.
pub fn table(sizes: &[Costs; 2]) -> String {
    let [small, large] = sizes;
    let (unit, a, b) = (small.unit, small.size, large.size);
    let mut text = format!("| cost | {a} {unit} | {b} {unit} | ratio |\n|---|---|---|---|\n");
    for ((name, small), (_, large)) in small.costs.iter().zip(&large.costs) {
        text.push_str(&format!("| {name} | {small:.2} | {large:.2} | {:.1} |\n", large / small));
    }
    text
}

fn config(launcher: Launcher) -> ServerConfig {
    let mut config = with_binary_log(launcher);
    config.server_args.push("--skip-log-bin".into());
    config
}

fn with_binary_log(launcher: Launcher) -> ServerConfig {
    let mut config = ServerConfig::new(launcher);
    config.log_file_size_bytes = 2048 << 20;
    config.ready_timeout = LONG;
    let args = ["--innodb-flush-log-at-trx-commit=0", "--sync-frm=0", "--innodb-stats-auto-recalc=0"];
    config.server_args.extend(args.map(Into::into));
    config
}

fn millis(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1000.0
}

fn restart_after_kill(server: &mut Server) -> Result<f64> {
    server.kill9()?;
    let began = Instant::now();
    server.start()?;
    Ok(millis(began))
}

/// Kills the node and starts it, until `volumes` are ready.
fn start_killed_node(node: &mut Node, volumes: &[&str], note: Note<'_>) -> Result<()> {
    node.kill9()?;
    let began = Instant::now();
    node.start_at_once()?;
    note("start of a killed node until it listens, ms", millis(began));
    for volume in volumes {
        node.require_state(volume, "ready")?;
    }
    note("the same, until all is ready, ms", millis(began));
    Ok(())
}

fn attach_from_empty(node: &Node, volume: &str, note: Note<'_>) -> Result<()> {
    let mut elsewhere = Server::new(config(node.launcher(volume, Verify::Off)))?;
    let began = Instant::now();
    elsewhere.start()?;
    note("attach from empty, ms", millis(began));
    elsewhere.shutdown()
}

/// Exports to `target`, an empty directory.
fn export(node: &Node, volume: &str, target: &Path, note: Note<'_>) -> Result<()> {
    std::fs::remove_dir(target).map_err(Error::io_at("remove", target))?;
    let began = Instant::now();
    redoubt(node, &["volume", "export", volume, "--to", &target.display().to_string()])?;
    note("export, ms", millis(began));
    Ok(())
}

/// Runs the command for as long as it takes.
fn redoubt(node: &Node, args: &[&str]) -> Result<()> {
    let address = node.address().to_string();
    let args = args.iter().copied().chain(["--node", &address]);
    Outcome::of(node.redoubt_bin(), args, LONG)?.require_success()?;
    Ok(())
}
