//! Groups on networks that are ill in part: pairs of servers that do not reach each other while all others do, and
//! servers that come back from being cut off. Needs root, for networks of their own.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use mysql::Conn;
use redoubt_drill::group::load::Load;
use redoubt_drill::group::{Group, PATIENCE, Provider};
use redoubt_workload::error::Result;
use redoubt_workload::launcher::find_redoubt;
use redoubt_workload::process::poll_until;
use redoubt_workload::server::ServerConfig;
use redoubt_workload::sql::execute;

const MEMBERS: usize = 3;
const ALL: [usize; MEMBERS] = [0, 1, 2];
/// A member that is silent for so long counts as departed.
const DEPARTURE_MS: u64 = 3000;

fn on_networks(what: &str, check: impl FnOnce(&mut Group) -> Result<()>) {
    if !rustix::process::geteuid().is_root() {
        return redoubt_test_support::skip(what, "network namespaces need root");
    }
    let library = find_redoubt().unwrap().with_file_name("libredoubt_group.so");
    assert!(library.is_file(), "{} is missing: cargo build --release --workspace", library.display());
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target/mariadb-server/usr/bin");
    let provider = Provider { library, scripts: Some(scripts.into()), ..Provider::default() };
    let small = |config: &mut ServerConfig| config.buffer_pool_bytes = 64 << 20;
    let mut group = Group::create_apart(&provider, MEMBERS, small).unwrap();
    let result = (|| {
        let mut conn = group.server(0)?.connect()?;
        execute(&mut conn, "CREATE DATABASE d")?;
        execute(&mut conn, "CREATE TABLE d.t (a INT PRIMARY KEY, b INT NOT NULL)")?;
        execute(&mut conn, "INSERT INTO d.t VALUES (1, 0), (2, 0), (3, 0), (11, 0), (12, 0)")?;
        check(&mut group)
    })();
    result.unwrap_or_else(|error| panic!("{error}\n{}", group.log_tails(40)));
}

/// A client whose open transaction has set `b` of a row, sent as a part of its own.
fn open(group: &Group, member: usize, row: usize) -> Result<Conn> {
    let mut conn = group.causal_connection(member)?;
    execute(&mut conn, "SET wsrep_trx_fragment_unit = 'statements', wsrep_trx_fragment_size = 1")?;
    execute(&mut conn, "BEGIN")?;
    set(&mut conn, row)?;
    Ok(conn)
}

fn set(conn: &mut Conn, row: usize) -> Result<()> {
    execute(conn, &format!("UPDATE d.t SET b = 1 WHERE a = {row}"))
}

#[test]
fn two_that_do_not_reach_each_other_stay_members_while_a_third_one_reaches_both() {
    on_networks("a pair that does not reach each other", |group| {
        let mut kept = open(group, 0, 1)?;
        let mut kept_too = open(group, 2, 11)?;
        let view = group.status(1, "wsrep_cluster_conf_id")?;
        let load = Load::start(group, 2)?;
        load.wait_for_more(&ALL, 50, PATIENCE)?;
        group.part([0, 2], true)?;
        let unheard = || {
            let members = group.status(0, "wsrep_group_member_3")?;
            let (_, rest) = members.split_once("\"heard_ms\":").unwrap_or_default();
            let heard_ms = rest.split(',').next().and_then(|number| number.parse().ok());
            Ok(heard_ms.filter(|heard_ms: &u64| *heard_ms > 3 * DEPARTURE_MS))
        };
        poll_until("the first not to hear the third for long", PATIENCE, unheard)?;
        load.wait_for_more(&ALL, 50, PATIENCE)?;
        group.part([0, 2], false)?;
        load.wait_for_more(&ALL, 50, PATIENCE)?;
        assert_eq!(group.status(1, "wsrep_cluster_conf_id")?, view, "nobody was taken for gone");
        set(&mut kept_too, 12)?;
        execute(&mut kept_too, "COMMIT")?;
        set(&mut kept, 2)?;
        execute(&mut kept, "COMMIT")?;
        load.stop()?;
        group.require_equal_checksums().map(drop)
    });
}

#[test]
fn one_whose_address_is_taken_away_comes_back_with_it() {
    on_networks("an address that is taken away", |group| {
        let load = Load::start(group, 2)?;
        load.wait_for_more(&ALL, 50, PATIENCE)?;
        group.set_addressed(2, false)?;
        let says = |member: usize, name: &'static str, value: &'static str| {
            let what = format!("member {member} to say {value} of {name}");
            poll_until(&what, PATIENCE, || Ok((group.status(member, name)? == value).then_some(())))
        };
        says(0, "wsrep_cluster_size", "2")?;
        says(2, "wsrep_cluster_status", "non-Primary")?;
        load.wait_for_more(&[0, 1], 50, PATIENCE)?;
        group.set_addressed(2, true)?;
        says(0, "wsrep_cluster_size", "3")?;
        group.wait_synced(2, PATIENCE)?;
        load.wait_for_more(&ALL, 50, PATIENCE)?;
        load.stop()?;
        group.require_equal_checksums().map(drop)
    });
}
