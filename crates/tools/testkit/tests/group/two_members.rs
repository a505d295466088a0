//! Groups of two servers of which each may continue without the other one (`pc.ignore_sb`). No acknowledged commit is
//! lost when one is killed or stopped, it comes back by itself, and two histories are never mixed.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_drill::group::load::Load;
use redoubt_drill::group::{Group, PATIENCE, Provider};
use redoubt_test_support::setting;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::find_redoubt;
use redoubt_workload::process::poll_until;
use redoubt_workload::server::ServerConfig;
use redoubt_workload::sql::execute;
use std::path::Path;
use std::time::Duration;

const ALL: [usize; 2] = [0, 1];
const CLIENTS: u32 = 2;
/// Message of each of two servers that have both continued alone.
const TWO_HISTORIES: &str = "each of the two servers continued alone";

fn provider() -> Provider {
    let library = find_redoubt().unwrap().with_file_name("libredoubt_group.so");
    assert!(library.is_file(), "{} is missing: cargo build --release --workspace", library.display());
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target/mariadb-server/usr/bin");
    let provider = Provider { library, scripts: Some(scripts.into()), ..Provider::default() };
    Provider { options: "pc.ignore_sb=yes".into(), ..provider }
}

fn small(config: &mut ServerConfig) {
    config.buffer_pool_bytes = 64 << 20;
}

fn run(mut group: Group, check: impl FnOnce(&mut Group) -> Result<()>) {
    let result = check(&mut group);
    result.unwrap_or_else(|error| panic!("{error}\n{}", group.log_tails(60)));
}

/// How often a server's error log contains a text.
fn says(group: &Group, member: usize, what: &str) -> Result<usize> {
    Ok(group.server(member)?.error_log_tail(usize::MAX).matches(what).count())
}

fn wait_says(group: &Group, member: usize, what: &str) -> Result<()> {
    let wanted = format!("member {member} to say {what:?}");
    poll_until(&wanted, PATIENCE, || Ok((says(group, member, what)? > 0).then_some(())))
}

fn wait_status(group: &Group, member: usize, name: &str, value: &str) -> Result<()> {
    let what = format!("{name} = {value} on member {member}");
    poll_until(&what, PATIENCE, || Ok((group.status(member, name)? == value).then_some(())))
}

/// The documented step in the data directory of the server that is to get a state transfer.
fn forget_group(datadir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(datadir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("redoubt_group.") && name.ends_with(".log") {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Each is killed in turn, under load on both. The other one continues, and the killed one gets the missing write sets
/// from its log, not a state transfer.
#[test]
fn one_of_two_goes_on_when_the_other_one_is_killed() {
    run(Group::create(&provider(), ALL.len(), small).unwrap(), |group| {
        let load = Load::start(group, CLIENTS)?;
        let transfers = |group: &Group| says(group, 0, "State transfer to").map(|sent| sent + 1);
        let before = transfers(group)?;
        for victim in [1, 0, 1] {
            load.wait_for_more(&ALL, 50, PATIENCE)?;
            group.kill9(victim)?;
            load.wait_for_more(&[1 - victim], 100, PATIENCE)?;
            group.start(victim)?;
            load.wait_for_more(&ALL, 50, PATIENCE)?;
        }
        assert_eq!((transfers(group)?, says(group, 1, "State transfer to")?), (before, 0));
        load.stop()?;
        group.require_sound_ledger()?;
        group.require_equal_checksums().map(drop)
    });
}

/// A server that was only stopped has not continued alone. It comes back in the same incarnation, and the pending
/// commits of its clients complete or are rolled back.
#[test]
fn one_of_two_that_was_stopped_comes_back() {
    run(Group::create(&provider(), ALL.len(), small).unwrap(), |group| {
        let load = Load::start(group, CLIENTS)?;
        for victim in [1, 0] {
            load.wait_for_more(&ALL, 50, PATIENCE)?;
            group.stop_process(victim)?;
            load.wait_for_more(&[1 - victim], 100, PATIENCE)?;
            group.cont(victim)?;
            group.wait_synced(victim, PATIENCE)?;
            load.wait_for_more(&ALL, 50, PATIENCE)?;
        }
        load.stop()?;
        group.require_sound_ledger()?;
        group.require_equal_checksums().map(drop)
    });
}

/// In each round one of two has trouble, under load. The time may or may not be enough for the other one to continue
/// alone, which may then be killed and started again itself.
#[test]
#[ignore = "make group-rounds"]
fn nothing_is_lost_in_rounds_of_random_trouble_of_two() {
    let (rounds, seed) = (setting("REDOUBT_GROUP_ROUNDS", 20), setting("REDOUBT_GROUP_SEED", 1));
    run(Group::create(&provider(), ALL.len(), small).unwrap(), |group| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let load = Load::start(group, CLIENTS)?;
        for round in 1..=rounds {
            load.wait_for_more(&ALL, 20, PATIENCE)?;
            let (victim, how) = (rng.usize(..2), rng.u8(..3));
            // A server that resumes after a stop, and cannot reach the other one, would continue alone: a second
            // history.
            let kills_other = rng.u8(..3) == 0 && how != 1;
            let time = Duration::from_millis(rng.u64(..6000));
            println!(
                "round {round}: {how} to {victim} for {time:?}, and a kill of the other one: {kills_other}"
            );
            match how {
                0 => group.kill9(victim)?,
                1 => group.stop_process(victim)?,
                _ => group.shutdown(victim)?,
            }
            load.run_for(time);
            // A server that has continued alone does so again when it is started; any other waits for the other one.
            if kills_other {
                group.kill9(1 - victim)?;
                group.server_mut(1 - victim)?.spawn(&[])?;
            }
            match how {
                1 => group.cont(victim)?,
                _ => group.server_mut(victim)?.spawn(&[])?,
            }
            for member in ALL {
                group.server_mut(member)?.wait_ready()?;
                group.wait_synced(member, PATIENCE)?;
            }
        }
        load.wait_for_more(&ALL, 20, PATIENCE)?;
        load.stop()?;
        let report = group.require_sound_ledger()?;
        println!("{report:?}");
        group.require_equal_checksums().map(drop)
    });
}

/// A server that is started without the other one waits for it, since that one may have continued alone. A server that
/// has continued alone continues so.
#[test]
fn who_was_just_started_does_not_go_on_alone() {
    run(Group::create(&provider(), ALL.len(), small).unwrap(), |group| {
        execute(&mut group.server(0)?.connect()?, "CREATE DATABASE d")?;
        execute(&mut group.server(0)?.connect()?, "CREATE TABLE d.t (a INT PRIMARY KEY)")?;
        group.kill9(1)?;
        execute(&mut group.server(0)?.connect()?, "INSERT INTO d.t VALUES (1)")?;
        group.kill9(0)?;
        group.server_mut(1)?.spawn(&[])?;
        wait_says(group, 1, "commits wait: 1 of 2 members are here")?;
        assert_eq!(says(group, 1, "continues alone (pc.ignore_sb)")?, 0);
        group.kill9(1)?;
        group.start(0)?;
        execute(&mut group.server(0)?.connect()?, "INSERT INTO d.t VALUES (2)")?;
        group.start(1)?;
        // That it is there is in the order, too, and comes after what it starts from.
        wait_status(group, 0, "wsrep_cluster_size", "2")?;
        group.require_equal_checksums()?;
        let found = group.causal_connection(1).and_then(|mut conn| {
            redoubt_workload::sql::query_text(&mut conn, "SELECT GROUP_CONCAT(a ORDER BY a) FROM d.t")
        })?;
        assert_eq!(found, [["1,2"]]);
        Ok(())
    });
}

/// The network between two parts, and both go on alone: neither takes anything of the other one afterwards, also when it
/// is started again, and both say what to do. That done, they are a group again.
#[test]
fn two_that_have_both_gone_on_alone_do_not_mix() {
    if !rustix::process::geteuid().is_root() {
        return redoubt_test_support::skip("both of two servers go on alone", "network namespaces need root");
    }
    run(Group::create_apart(&provider(), ALL.len(), small).unwrap(), |group| {
        let insert = |group: &Group, member: usize, value: u32| -> Result<()> {
            let statement = format!("INSERT INTO d.t VALUES ({value})");
            execute(&mut group.server(member)?.connect()?, &statement)
        };
        let has = |group: &Group, member: usize, values: &str| -> Result<()> {
            let found = group.server(member)?.query("SELECT GROUP_CONCAT(a ORDER BY a) FROM d.t")?;
            match found == [[values]] {
                true => Ok(()),
                false => Err(Error::Violation(format!("member {member} has {found:?}, not {values}"))),
            }
        };
        execute(&mut group.server(0)?.connect()?, "CREATE DATABASE d")?;
        execute(&mut group.server(0)?.connect()?, "CREATE TABLE d.t (a INT PRIMARY KEY)")?;
        insert(group, 0, 1)?;
        group.cut(1)?;
        for member in ALL {
            wait_says(group, member, "continues alone (pc.ignore_sb)")?;
            wait_status(group, member, "wsrep_cluster_size", "1")?;
            wait_status(group, member, "wsrep_cluster_status", "Primary")?;
        }
        insert(group, 0, 10)?;
        insert(group, 1, 20)?;
        group.rejoin(1)?;
        for member in ALL {
            wait_says(group, member, TWO_HISTORIES)?;
        }
        insert(group, 0, 11)?;
        group.kill9(1)?;
        group.server_mut(1)?.start()?;
        wait_status(group, 1, "wsrep_local_state_comment", "Synced")?;
        insert(group, 1, 21)?;
        has(group, 0, "1,10,11")?;
        has(group, 1, "1,20,21")?;

        group.kill9(1)?;
        forget_group(&group.server(1)?.datadir()).unwrap();
        group.start(1)?;
        has(group, 1, "1,10,11")?;
        insert(group, 1, 22)?;
        group.require_equal_checksums().map(drop)
    });
}
