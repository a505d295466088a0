//! What grows with the number of tables, and how much: each cost at a tenth of the size and at the full size.
//!
//! The server on the volume makes the tables and changes a row of each, so that there is redo for all of them. Then:
//!
//! | line | what is timed |
//! |---|---|
//! | create | one CREATE TABLE and one INSERT, of the last hundredth |
//! | attach after a kill | `redoubt run` until the server accepts, in the directory of a server that was killed |
//! | attach, much redo | the same, with the redo of a change of every table since the server's checkpoint |
//! | attach from empty | the same in an empty directory, as on another host |
//! | stock | a stock server on the exported directory, until it accepts |
//! | node start | a node that was killed: until it listens, and until the volume is ready |
//! | export | `redoubt volume export` |

use std::time::{Duration, Instant};

use mysql::Conn;

use crate::command::{Outcome, PATIENCE};
use crate::error::{Error, Result};
use crate::launcher::{Launcher, Verify, find_redoubt};
use crate::node::Node;
use crate::process::poll_until;
use crate::server::{Server, ServerConfig, execute};

const VOLUME: &str = "scale";
/// A database is a directory; one with all tables would measure the file system.
const TABLES_OF_A_DATABASE: u32 = 5_000;
const CLIENTS: u32 = 4;

/// What to run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Tables at the full size
    #[arg(long, default_value_t = 100_000)]
    pub tables: u32,
}

/// Costs of one size.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Costs {
    /// Tables.
    pub tables: u32,
    /// Each cost by its name, in milliseconds unless the name says otherwise.
    pub costs: Vec<(&'static str, f64)>,
}

/// Measures a tenth and the whole; `progress` gets a line per cost.
///
/// # Errors
/// The first that fails.
pub fn run(options: &Options, mut progress: impl FnMut(&str)) -> Result<[Costs; 2]> {
    let mut measure = |tables: u32| {
        let mut costs = Costs { tables, costs: Vec::new() };
        let mut note = |name: &'static str, value: f64| {
            progress(&format!("{tables} tables: {name}: {value:.2}"));
            costs.costs.push((name, value));
        };
        one_size(tables, &mut note)?;
        Ok(costs)
    };
    Ok([measure(options.tables / 10)?, measure(options.tables)?])
}

/// Both sizes as a table for people.
pub fn table(sizes: &[Costs; 2]) -> String {
    let [small, large] = sizes;
    let mut text =
        format!("| cost | {} tables | {} tables | ratio |\n|---|---|---|---|\n", small.tables, large.tables);
    for ((name, small), (_, large)) in small.costs.iter().zip(&large.costs) {
        text.push_str(&format!("| {name} | {small:.2} | {large:.2} | {:.1} |\n", large / small));
    }
    text
}

fn one_size(tables: u32, note: &mut impl FnMut(&'static str, f64)) -> Result<()> {
    let mut node = Node::create(&find_redoubt()?, &["--apply-interval", "1"])?;
    node.create_volume(VOLUME)?;
    let mut server = Server::create(config(node.launcher(VOLUME, Verify::Off)))?;
    note("create, ms", create_tables(&server, tables)?);
    restart_after_kill(&mut server)?;
    note("attach after a kill, ms", restart_after_kill(&mut server)?);
    change_all(&server, tables)?;
    note("attach, much redo, ms", restart_after_kill(&mut server)?);

    change_all(&server, tables)?;
    server.kill9()?;
    node.kill9()?;
    let began = Instant::now();
    node.start()?;
    note("node start until it listens, ms", millis(began));
    poll_until("a volume that is ready", PATIENCE, || {
        let status = node.status(VOLUME)?;
        Ok((status["volumes"][0]["state"] == "ready").then_some(()))
    })?;
    note("node start until the volume is ready, ms", millis(began));
    let mut elsewhere = Server::new(config(node.launcher(VOLUME, Verify::Off)))?;
    let began = Instant::now();
    elsewhere.start()?;
    note("attach from empty, ms", millis(began));
    elsewhere.shutdown()?;

    let mut stock = Server::new(config(Launcher::Stock))?;
    let target = stock.datadir();
    std::fs::remove_dir(&target).map_err(Error::io_at("remove", &target))?;
    let (address, to) = (node.address().to_string(), target.display().to_string());
    let began = Instant::now();
    let args = ["volume", "export", VOLUME, "--to", &to, "--node", &address];
    Outcome::of(node.redoubt_bin(), args, Duration::from_secs(3600))?.require_success()?;
    note("export, ms", millis(began));
    let began = Instant::now();
    stock.start()?;
    note("stock server on the export, ms", millis(began));
    stock.shutdown()
}

fn config(launcher: Launcher) -> ServerConfig {
    let mut config = ServerConfig::new(launcher);
    config.log_file_size_mib = 2048;
    config.ready_timeout = Duration::from_secs(600);
    config.server_args.extend(
        [
            "--innodb-flush-log-at-trx-commit=0",
            "--sync-frm=0",
            "--skip-log-bin",
            "--innodb-stats-auto-recalc=0",
        ]
        .map(Into::into),
    );
    config
}

fn millis(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1000.0
}

fn name(table: u32) -> String {
    format!("d{}.t{table}", table / TABLES_OF_A_DATABASE)
}

/// Milliseconds of the last statements, each.
fn create_tables(server: &Server, tables: u32) -> Result<f64> {
    let mut conn = server.connect()?;
    for database in 0..=tables / TABLES_OF_A_DATABASE {
        execute(&mut conn, &format!("CREATE DATABASE d{database}"))?;
    }
    let create = |conn: &mut Conn, table: u32| {
        let name = name(table);
        execute(conn, &format!("CREATE TABLE {name} (id INT PRIMARY KEY, k INT, KEY k (k)) ENGINE=InnoDB"))?;
        execute(conn, &format!("INSERT INTO {name} VALUES (1, 1)"))
    };
    let last = tables - (tables / 100).max(1);
    on_all(server, last, create)?;
    let began = Instant::now();
    for table in last..tables {
        create(&mut conn, table)?;
    }
    Ok(millis(began) / f64::from(tables - last))
}

fn change_all(server: &Server, tables: u32) -> Result<()> {
    on_all(server, tables, |conn, table| execute(conn, &format!("UPDATE {} SET k = k + 1", name(table))))
}

/// Runs `each` for all tables, by several clients.
fn on_all(server: &Server, tables: u32, each: impl Fn(&mut Conn, u32) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let client = |first: u32| {
            let each = &each;
            scope.spawn(move || {
                let mut conn = server.connect()?;
                (first..tables).step_by(CLIENTS as usize).try_for_each(|table| each(&mut conn, table))
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        let join = |client: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            client.join().map_err(|_| Error::State("a client panicked".into()))?
        };
        clients.into_iter().try_for_each(join)
    })
}

fn restart_after_kill(server: &mut Server) -> Result<f64> {
    server.kill9()?;
    let began = Instant::now();
    server.start()?;
    Ok(millis(began))
}
