//! One volume with much data, in tables of 1 GiB.

use std::time::Instant;

use redoubt_harness::node::Node;
use redoubt_workload::error::Result;
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::server::Server;
use redoubt_workload::sql::execute;

use super::{Note, attach_from_empty, config, millis, restart_after_kill, start_killed_node};

const VOLUME: &str = "data";
/// With the server's overhead per row, a table of a little more than 1 GiB.
const ROWS: u32 = 4 << 20;
const ROW_BYTES: u32 = 250;
/// So that a transaction is not longer than the redo log.
const ROWS_AT_ONCE: u32 = ROWS / 16;

/// See [`super`].
///
/// # Errors
/// The first that fails.
pub fn measure(gib: u32, note: Note<'_>) -> Result<()> {
    let mut node = Node::create(&find_redoubt()?, &[])?;
    node.create_volume(VOLUME)?;
    let mut server = Server::create(config(node.launcher(VOLUME, Verify::Off)))?;
    let mut conn = server.connect()?;
    execute(&mut conn, "CREATE DATABASE d")?;
    execute(&mut conn, "USE d")?;
    let began = Instant::now();
    for table in 0..gib {
        let columns = format!("id INT PRIMARY KEY, c CHAR({ROW_BYTES}) CHARACTER SET latin1");
        execute(&mut conn, &format!("CREATE TABLE d.t{table} ({columns}) ENGINE=InnoDB"))?;
        for first in (0..ROWS).step_by(ROWS_AT_ONCE as usize) {
            execute(
                &mut conn,
                &format!(
                    "INSERT INTO d.t{table} SELECT seq, LEFT(REPEAT(MD5(seq), 8), {ROW_BYTES}) FROM seq_{}_to_{}",
                    first + 1,
                    first + ROWS_AT_ONCE
                ),
            )?;
        }
    }
    note("insert, ms per GiB", millis(began) / f64::from(gib));
    drop(conn);
    restart_after_kill(&mut server)?;
    note("attach after a kill, ms", restart_after_kill(&mut server)?);
    server.kill9()?;
    start_killed_node(&mut node, &[VOLUME], note)?;
    attach_from_empty(&node, VOLUME, note)?;
    server.start()?;
    let mut conn = server.connect()?;
    let began = Instant::now();
    for table in 0..gib {
        execute(&mut conn, &format!("SELECT COUNT(c) FROM d.t{table}"))?;
    }
    note("read all, ms per GiB", millis(began) / f64::from(gib));
    drop(conn);
    server.shutdown()
}
