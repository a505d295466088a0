//! New servers. One finds members of two groups at its addresses: a member of an abandoned group without a majority,
//! and one of the group that replaced it. Another takes the place of a member that was killed.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_drill::group::{Group, PATIENCE, Provider};
use redoubt_workload::error::Result;
use redoubt_workload::launcher::find_redoubt;
use redoubt_workload::process::poll_until;
use redoubt_workload::server::ServerConfig;
use redoubt_workload::sql::execute;

const MEMBERS: usize = 3;
/// It keeps running after the others have lost all their data.
const LEFT_OVER: usize = 2;

fn begin_anew(group: &mut Group, member: usize) -> Result<()> {
    group.kill9(member)?;
    let server = group.server_mut(member)?;
    std::fs::remove_dir_all(server.datadir()).unwrap();
    std::fs::create_dir(server.datadir()).unwrap();
    server.install_db()
}

fn said(group: &Group, member: usize) -> Result<String> {
    Ok(group.server(member)?.error_log_tail(usize::MAX))
}

fn is_in_sync(group: &Group, member: usize, size: &str) -> Result<()> {
    let what = format!("member {member} to be in sync as one of {size}");
    poll_until(&what, PATIENCE, || {
        let is_synced = group.status(member, "wsrep_local_state_comment")? == "Synced";
        Ok((is_synced && group.status(member, "wsrep_cluster_size")? == size).then_some(()))
    })
}

fn joins_the_one_that_can_take_it_in(group: &mut Group) -> Result<()> {
    begin_anew(group, 0)?;
    begin_anew(group, 1)?;
    group.server_mut(0)?.start_with(&["--wsrep-new-cluster"])?;
    is_in_sync(group, 0, "1")?;
    let mut conn = group.server(0)?.connect()?;
    execute(&mut conn, "CREATE DATABASE d")?;
    execute(&mut conn, "CREATE TABLE d.t (a INT PRIMARY KEY)")?;
    // At first only the server that is left over answers.
    group.stop_process(0)?;
    group.server_mut(1)?.spawn(&[])?;
    poll_until("the left over one to let the new one wait", PATIENCE, || {
        Ok(said(group, LEFT_OVER)?.contains("asks to be a member: it has to wait").then_some(()))
    })?;
    group.cont(0)?;
    group.server_mut(1)?.wait_ready()?;
    is_in_sync(group, 1, "2")?;
    let mut conn = group.causal_connection(1)?;
    execute(&mut conn, "INSERT INTO d.t VALUES (1)")?;
    is_in_sync(group, 0, "2")?;
    group.kill9(LEFT_OVER)?;
    group.require_equal_checksums().map(drop)
}

/// Its data is gone, and it is back before the others can tell that it went: it counts once.
fn takes_its_place_at_once(group: &mut Group) -> Result<()> {
    begin_anew(group, LEFT_OVER)?;
    group.server_mut(LEFT_OVER)?.spawn(&[])?;
    poll_until("the new one to ask for the state", PATIENCE, || {
        Ok(said(group, LEFT_OVER)?.contains("for the state of its server").then_some(()))
    })?;
    assert_eq!(group.status(0, "wsrep_group_voters")?, "3");
    group.server_mut(LEFT_OVER)?.wait_ready()?;
    group.wait_synced(LEFT_OVER, PATIENCE)?;
    assert_eq!(group.status(0, "wsrep_group_voters")?, "3");
    group.require_equal_checksums().map(drop)
}

fn on_group(check: impl FnOnce(&mut Group) -> Result<()>) {
    let library = find_redoubt().unwrap().with_file_name("libredoubt_group.so");
    assert!(library.is_file(), "{} is missing: cargo build --release --workspace", library.display());
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target/mariadb-server/usr/bin");
    let provider = Provider { library, scripts: Some(scripts.into()), ..Provider::default() };
    let small = |config: &mut ServerConfig| config.buffer_pool_bytes = 64 << 20;
    let mut group =
        Group::create(&provider, MEMBERS, small).unwrap_or_else(|error| panic!("no group: {error}"));
    check(&mut group).unwrap_or_else(|error| panic!("{error}\n{}", group.log_tails(40)));
}

#[test]
fn a_new_server_joins_a_group_that_can_take_it_in_and_no_other() {
    on_group(joins_the_one_that_can_take_it_in);
}

#[test]
fn a_member_that_has_lost_its_data_counts_once() {
    on_group(takes_its_place_at_once);
}
