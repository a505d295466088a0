//! Three members of a group on volumes of one node. They move there from ordinary data directories, one after the other
//! and under load. Then one is killed and started again, then all. All of them have the acknowledged commits, and all
//! are equal.
//!
//! No state transfer goes from a volume or to one: the servers' scripts do not support volumes. Both ends report it,
//! and nothing is written.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_drill::group::load::Load;
use redoubt_drill::group::{Group, PATIENCE, Provider};
use redoubt_harness::node::Node;
use redoubt_workload::error::Result;
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::process::timed;
use redoubt_workload::server::ServerConfig;
use std::path::{Path, PathBuf};
use std::time::Instant;

const MEMBERS: usize = 3;
const ALL: [usize; MEMBERS] = [0, 1, 2];
/// The member that is killed, and that is to get a state.
const VICTIM: usize = 1;
const OTHERS: [usize; MEMBERS - 1] = [0, 2];
const CLIENTS: u32 = 2;

fn provider() -> Provider {
    let library = find_redoubt().unwrap().with_file_name("libredoubt_group.so");
    assert!(library.is_file(), "{} is missing: cargo build --release --workspace", library.display());
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target/mariadb-server/usr/bin");
    Provider { library, scripts: Some(scripts.into()), ..Provider::default() }
}

/// Files that a member keeps on its own host.
fn own_files(datadir: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(datadir).unwrap().map(|entry| entry.unwrap().path());
    let is_own = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("redoubt_group.") || name == "grastate.dat"
    };
    paths.filter(is_own).collect()
}

/// As docs/group/how-to.md says it.
fn move_to_volume(group: &mut Group, node: &Node, index: usize) -> Result<()> {
    group.shutdown(index)?;
    let (volume, address) = (format!("m{index}"), node.address().to_string());
    let datadir = group.server(index)?.datadir();
    let before = datadir.with_extension("before");
    std::fs::rename(&datadir, &before).unwrap();
    node.redoubt(&["volume", "import", "--node", &address, &volume, "--from", before.to_str().unwrap()])?;
    std::fs::create_dir(&datadir).unwrap();
    let own = own_files(&before);
    assert!(own.len() > 1, "{own:?}");
    for file in own {
        std::fs::rename(&file, datadir.join(file.file_name().unwrap())).unwrap();
    }
    std::fs::remove_dir_all(&before).unwrap();
    group.server_mut(index)?.config_mut().launcher = node.launcher(&volume, Verify::OneIn(16));
    let (_, elapsed) = timed(|| group.start(index))?;
    println!("member {index} is on a volume, and in sync after {elapsed:.1?}");
    Ok(())
}

fn checked(group: &mut Group, node: &Node) -> Result<()> {
    let load = Load::start(group, CLIENTS)?;
    load.wait_for_more(&ALL, 50, PATIENCE)?;
    for index in ALL {
        move_to_volume(group, node, index)?;
        load.wait_for_more(&ALL, 50, PATIENCE)?;
    }

    group.kill9(VICTIM)?;
    load.wait_for_more(&OTHERS, 50, PATIENCE)?;
    let (_, elapsed) = timed(|| group.start(VICTIM))?;
    println!("one was killed; in sync {elapsed:.1?} after its start");
    load.wait_for_more(&ALL, 50, PATIENCE)?;

    group.kill9_all()?;
    let (_, elapsed) = timed(|| group.start_all_after_blackout())?;
    println!("all were killed; all were back after {elapsed:.1?}");
    load.wait_for_more(&ALL, 50, PATIENCE)?;

    load.stop()?;
    let tables = group.require_equal_checksums()?;
    let report = group.require_sound_ledger()?;
    println!(
        "{tables} tables are equal; commits acknowledged {}, found {}",
        report.rows_acknowledged, report.rows_found
    );

    gets_no_state(group)
}

/// A server that has lost its part of the group, on its volume; then another one in its place, on an ordinary disk.
fn gets_no_state(group: &mut Group) -> Result<()> {
    let (_, elapsed) = timed(|| group.shutdown(VICTIM))?;
    println!("one was shut down after {elapsed:.1?}");
    let datadir = group.server(VICTIM)?.datadir();
    own_files(&datadir).iter().for_each(|file| std::fs::remove_file(file).unwrap());
    require_end(group, "state transfer (SST) to volume m1 is not supported");

    std::fs::remove_dir_all(&datadir).unwrap();
    std::fs::create_dir(&datadir).unwrap();
    group.server_mut(VICTIM)?.config_mut().launcher = Launcher::Stock;
    group.server_mut(VICTIM)?.install_db()?;
    require_end(group, "where the server's scripts find files without content");
    OTHERS.iter().try_for_each(|index| group.wait_synced(*index, PATIENCE))
}

/// The victim does not start, and says why.
fn require_end(group: &mut Group, why: &str) {
    let before = Instant::now();
    let started = group.server_mut(VICTIM).unwrap().start();
    println!("it has ended {:.1?} after its start", before.elapsed());
    let log = group.server(VICTIM).unwrap().error_log_tail(60);
    assert!(started.is_err(), "it has started:\n{log}");
    assert!(log.contains(why), "it does not say {why:?}:\n{log}");
}

#[test]
fn members_on_volumes_come_back() {
    let node = Node::create(&find_redoubt().unwrap(), &[]).unwrap();
    let small = |config: &mut ServerConfig| config.buffer_pool_bytes = 64 << 20;
    let mut group = Group::create(&provider(), MEMBERS, small).unwrap();
    let done = checked(&mut group, &node);
    done.unwrap_or_else(|error| panic!("{error}\n{}\n{}", group.log_tails(60), node.log_tail(20)));
}
