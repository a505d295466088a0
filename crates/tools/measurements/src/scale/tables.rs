//! Many tables in one volume.
//!
//! The server on the volume makes the tables and changes a row of each, so that there is redo for all of them.

use std::time::Instant;

use mysql::Conn;
use redoubt_harness::node::Node;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::server::Server;
use redoubt_workload::sql::execute;

use super::{Note, attach_from_empty, config, export, millis, restart_after_kill, start_killed_node};

const VOLUME: &str = "scale";
/// A database is a directory; one with all tables would measure the file system.
const TABLES_OF_A_DATABASE: u32 = 5_000;
const CLIENTS: u32 = 4;
/// After so many, all that was created is settled.
const CHECKPOINTS: u32 = 2;

/// See [`super`].
///
/// # Errors
/// The first that fails.
pub fn measure(tables: u32, note: Note<'_>) -> Result<()> {
    let mut node = Node::create(&find_redoubt()?, &["--apply-interval", "1"])?;
    node.create_volume(VOLUME)?;
    let mut server = Server::create(config(node.launcher(VOLUME, Verify::Off)))?;
    note("one CREATE TABLE and one INSERT, ms", create_tables(&server, tables)?);
    // Their creation may not be committed, for all that the redo since the server's checkpoints tells: it is recovered.
    note("attach after a kill, tables just made, ms", restart_after_kill(&mut server)?);
    for _ in 0..CHECKPOINTS {
        server.shutdown()?;
        server.start()?;
    }
    restart_after_kill(&mut server)?;
    note("attach after a kill, ms", restart_after_kill(&mut server)?);
    change_all(&server, tables)?;
    note("the same, much redo, ms", restart_after_kill(&mut server)?);

    change_all(&server, tables)?;
    server.kill9()?;
    start_killed_node(&mut node, &[VOLUME], note)?;
    attach_from_empty(&node, VOLUME, note)?;
    let mut stock = Server::new(config(Launcher::Stock))?;
    export(&node, VOLUME, &stock.datadir(), note)?;
    let began = Instant::now();
    stock.start()?;
    note("a stock server on the export, ms", millis(began));
    stock.shutdown()
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
