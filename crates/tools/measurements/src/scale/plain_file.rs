//! One large plain file, sparse: a MiB of data in each GiB.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use redoubt_harness::node::Node;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::server::Server;
use redoubt_workload::sql::execute;

use super::{
    Note, attach_from_empty, config, export, millis, redoubt, restart_after_kill, start_killed_node,
};

const VOLUME: &str = "large";

/// See [`super`].
///
/// # Errors
/// The first that fails.
pub fn measure(gib: u32, note: Note<'_>) -> Result<()> {
    let mut stock = Server::create(config(Launcher::Stock))?;
    execute(&mut stock.connect()?, "CREATE DATABASE files")?;
    stock.shutdown()?;
    let path = stock.datadir().join("files/large.csv");
    make(&path, gib).map_err(Error::io_at("write", &path))?;
    let mut node = Node::create(&find_redoubt()?, &["--apply-interval", "1"])?;
    let began = Instant::now();
    redoubt(&node, &["volume", "import", VOLUME, "--from", &stock.datadir().display().to_string()])?;
    note("import, ms", millis(began));
    let mut server = Server::new(config(node.launcher(VOLUME, Verify::Off)))?;
    let began = Instant::now();
    server.start()?;
    note("first attach, ms", millis(began));
    restart_after_kill(&mut server)?;
    note("attach after a kill, ms", restart_after_kill(&mut server)?);
    server.kill9()?;
    start_killed_node(&mut node, &[VOLUME], note)?;
    drop(server);
    attach_from_empty(&node, VOLUME, note)?;
    let target = Server::new(config(Launcher::Stock))?;
    export(&node, VOLUME, &target.datadir(), note)
}

fn make(path: &std::path::Path, gib: u32) -> std::io::Result<()> {
    let file = File::create(path)?;
    file.set_len(u64::from(gib) << 30)?;
    let data: Vec<u8> =
        (0..1 << 20).map(|at: u32| b'a' + (at.wrapping_mul(2_654_435_761) >> 28) as u8).collect();
    (0..u64::from(gib)).try_for_each(|number| file.write_all_at(&data, number << 30))
}
