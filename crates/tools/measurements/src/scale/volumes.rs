//! Many volumes of one node, each with a little data and redo that is not applied.

use redoubt_harness::node::Node;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::server::Server;
use redoubt_workload::sql::execute;

use super::{Note, attach_from_empty, config, restart_after_kill, start_killed_node};

/// See [`super`].
///
/// # Errors
/// The first that fails.
pub fn measure(volumes: u32, note: Note<'_>) -> Result<()> {
    let mut node = Node::create(&find_redoubt()?, &["--apply-interval", "1"])?;
    let names: Vec<_> = (0..volumes).map(|number| format!("volume{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut last = None;
    for name in &names {
        node.create_volume(name)?;
        let mut server = Server::create(config(node.launcher(name, Verify::Off)))?;
        let mut conn = server.connect()?;
        execute(&mut conn, "CREATE DATABASE d")?;
        execute(&mut conn, "USE d")?;
        execute(&mut conn, "CREATE TABLE d.t (id INT PRIMARY KEY, c CHAR(200)) ENGINE=InnoDB")?;
        execute(&mut conn, "INSERT INTO d.t SELECT seq, MD5(seq) FROM seq_1_to_50000")?;
        drop(conn);
        server.kill9()?;
        last = Some((server, *name));
    }
    let Some((mut server, name)) = last else { return Ok(()) };
    server.start()?;
    note("attach after a kill, ms", restart_after_kill(&mut server)?);
    server.kill9()?;
    note("memory of the node, MiB", memory_mib(&node)?);
    start_killed_node(&mut node, &names, note)?;
    note("memory of the node after its start, MiB", memory_mib(&node)?);
    attach_from_empty(&node, name, note)
}

fn memory_mib(node: &Node) -> Result<f64> {
    let process = node.process_id().ok_or_else(|| Error::State("the node does not run".into()))?;
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).map_err(Error::io_at("read", path.as_ref()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0).ok_or_else(|| Error::State(format!("no VmRSS in {path}")))
}
