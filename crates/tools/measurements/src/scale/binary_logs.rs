//! A binary log of many files.

use redoubt_harness::node::Node;
use redoubt_workload::error::Result;
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::server::Server;
use redoubt_workload::sql::execute;

use super::{Note, attach_from_empty, export, restart_after_kill, start_killed_node, with_binary_log};

const VOLUME: &str = "logs";
const FILE_BYTES: usize = 100 << 10;

/// See [`super`].
///
/// # Errors
/// The first that fails.
pub fn measure(files: u32, note: Note<'_>) -> Result<()> {
    let mut node = Node::create(&find_redoubt()?, &["--apply-interval", "1"])?;
    node.create_volume(VOLUME)?;
    let mut config = with_binary_log(node.launcher(VOLUME, Verify::Off));
    // Statement format, so that the logged bytes are as many as those of the statement.
    config.server_args.extend(["--log-bin=binlog", "--binlog-format=STATEMENT"].map(Into::into));
    let mut server = Server::create(config)?;
    let mut conn = server.connect()?;
    execute(&mut conn, "CREATE DATABASE logged")?;
    execute(&mut conn, "CREATE TABLE logged.t (id INT PRIMARY KEY, b LONGTEXT) ENGINE=InnoDB")?;
    let text = "x".repeat(FILE_BYTES);
    for _ in 0..files {
        execute(&mut conn, &format!("REPLACE INTO logged.t VALUES (1, '{text}')"))?;
        execute(&mut conn, "FLUSH BINARY LOGS")?;
    }
    drop(conn);
    restart_after_kill(&mut server)?;
    note("attach after a kill, ms", restart_after_kill(&mut server)?);
    server.kill9()?;
    start_killed_node(&mut node, &[VOLUME], note)?;
    attach_from_empty(&node, VOLUME, note)?;
    let stock = Server::new(with_binary_log(Launcher::Stock))?;
    export(&node, VOLUME, &stock.datadir(), note)
}
