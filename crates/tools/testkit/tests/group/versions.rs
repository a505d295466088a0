//! Groups of later MariaDB series, and a group that is upgraded to one, member by member and under load. A member is
//! killed, all are, and one gets a state transfer from the server's own script.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_drill::group::load::Load;
use redoubt_drill::group::{Group, PATIENCE, Provider};
use redoubt_harness::command::Outcome;
use redoubt_harness::fetched::find_or_skip;
use redoubt_workload::error::Result;
use redoubt_workload::launcher::find_redoubt;
use redoubt_workload::product::{FetchedServer, Product};
use redoubt_workload::server::ServerConfig;
use redoubt_workload::sql::execute;
use std::path::Path;

const MEMBERS: usize = 3;
const ALL: [usize; MEMBERS] = [0, 1, 2];
const CLIENTS: u32 = 2;
/// Commits of each member's clients from one step to the next.
const COMMITS: u64 = 100;

fn on_group(product: &Product, check: impl FnOnce(&mut Group) -> Result<()>) {
    let library = find_redoubt().unwrap().with_file_name("libredoubt_group.so");
    assert!(library.is_file(), "{} is missing: cargo build --release --workspace", library.display());
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target/mariadb-server/usr/bin");
    let provider = Provider { library, scripts: Some(scripts.into()), ..Provider::default() };
    let tweak = |config: &mut ServerConfig| {
        config.product = product.clone();
        config.buffer_pool_bytes = 64 << 20;
        if let Product::Fetched { folder, .. } = product {
            leave_path(config, folder);
        }
    };
    let mut group =
        Group::create(&provider, MEMBERS, tweak).unwrap_or_else(|error| panic!("no group: {error}"));
    check(&mut group).unwrap_or_else(|error| panic!("{error}\n{}", group.log_tails(40)));
}

/// A server puts its own programs in front of `PATH` unless they are somewhere in it, spelt as it does. Beside a fetched
/// one lie those of another system, which do not run with this one's libraries.
fn leave_path(config: &mut ServerConfig, folder: &Path) {
    let path = config.environment.iter_mut().find(|(name, _)| name == "PATH").unwrap();
    path.1.push(format!(":{}//bin", folder.join("root/usr").display()));
}

/// Nothing is lost, and all are equal.
fn require_equal(group: &Group, load: Load) -> Result<()> {
    load.wait_for_more(&ALL, COMMITS, PATIENCE)?;
    load.stop()?;
    group.wait_applied(PATIENCE)?;
    group.require_sound_ledger()?;
    group.require_equal_checksums().map(drop)
}

fn is_broken_and_whole_again(group: &mut Group) -> Result<()> {
    let load = Load::start(group, CLIENTS)?;
    load.wait_for_more(&ALL, COMMITS, PATIENCE)?;
    group.kill9(1)?;
    load.wait_for_more(&[0, 2], COMMITS, PATIENCE)?;
    group.start(1)?;
    load.wait_for_more(&ALL, COMMITS, PATIENCE)?;
    group.kill9_all()?;
    group.start_all_after_blackout()?;
    load.wait_for_more(&ALL, COMMITS, PATIENCE)?;
    group.shutdown(2)?;
    std::fs::remove_file(group.server(2)?.datadir().join("grastate.dat")).unwrap();
    let before = group.server(2)?.error_log_tail(usize::MAX).len();
    group.start(2)?;
    let said = group.server(2)?.error_log_tail(usize::MAX);
    let said = &said[before..];
    assert!(
        said.contains("grastate.dat was removed: a state transfer")
            && said.contains("for the state of its server"),
        "{said}"
    );
    require_equal(group, load)
}

#[test]
fn group_of_mariadb_11_4_survives_kills_and_transfers() {
    let Some(product) = find_or_skip(FetchedServer::MariaDb114, "a group of MariaDB 11.4") else { return };
    on_group(&product, is_broken_and_whole_again);
}

#[test]
fn group_of_mariadb_11_8_survives_kills_and_transfers() {
    let Some(product) = find_or_skip(FetchedServer::MariaDb118, "a group of MariaDB 11.8") else { return };
    on_group(&product, is_broken_and_whole_again);
}

/// As docs/group/how-to.md says it.
fn upgrade(group: &mut Group, index: usize, to: &Product) -> Result<()> {
    group.shutdown(index)?;
    group.server_mut(index)?.config_mut().product = to.clone();
    group.start(index)?;
    let Product::Fetched { folder, .. } = to else { unreachable!("the new server is a fetched one") };
    let socket = group.server(index)?.socket();
    let arguments = ["--no-defaults", "--skip-ssl", "--user=root", "--socket", socket.to_str().unwrap()];
    Outcome::of(&folder.join("bin/mariadb-upgrade"), arguments, PATIENCE)?.require_success().map(drop)
}

#[test]
fn a_group_of_10_11_is_upgraded_to_11_8_under_load() {
    let Some(newest) = find_or_skip(FetchedServer::MariaDb118, "an upgrade of a group to MariaDB 11.8")
    else {
        return;
    };
    on_group(&Product::MariaDb, |group| {
        let load = Load::start(group, CLIENTS)?;
        for index in [2, 1, 0] {
            load.wait_for_more(&ALL, COMMITS, PATIENCE)?;
            upgrade(group, index, &newest)?;
        }
        let mut conn = group.server(0)?.connect()?;
        execute(&mut conn, "CREATE DATABASE after_it")?;
        execute(&mut conn, "CREATE TABLE after_it.t (a INT PRIMARY KEY, b UUID, KEY (b) IGNORED)")?;
        execute(&mut conn, "INSERT INTO after_it.t VALUES (1, UUID())")?;
        require_equal(group, load)
    });
}
