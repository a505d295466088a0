//! Transactions that a group sends in parts (`wsrep_trx_fragment_size`), on three stock servers. They are committed or
//! rolled back everywhere, also if a server is killed or cut off, or if another transaction conflicts. They leave
//! nothing in `mysql.wsrep_streaming_log`.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use mysql::Conn;
use redoubt_drill::group::load::Load;
use redoubt_drill::group::{Group, PATIENCE, Provider};
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::find_redoubt;
use redoubt_workload::process::poll_until;
use redoubt_workload::server::ServerConfig;
use redoubt_workload::sql::{execute, query_text};

const MEMBERS: usize = 3;
const ALL: [usize; MEMBERS] = [0, 1, 2];
/// The member that things happen to, and the others.
const VICTIM: usize = 2;
const OTHERS: [usize; MEMBERS - 1] = [0, 1];
/// Rows of the table at the beginning.
const ROWS: usize = 20;

fn provider() -> Provider {
    let library = find_redoubt().unwrap().with_file_name("libredoubt_group.so");
    assert!(library.is_file(), "{} is missing: cargo build --release --workspace", library.display());
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target/mariadb-server/usr/bin");
    Provider { library, scripts: Some(scripts.into()), ..Provider::default() }
}

/// Runs a check on a new group with a table `d.t`; where it fails, the ends of the members' logs are shown.
fn on_group(arguments: &[&str], check: impl FnOnce(&mut Group) -> Result<()>) {
    let small = |config: &mut ServerConfig| {
        config.buffer_pool_bytes = 64 << 20;
        config.server_args.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    };
    let mut group =
        Group::create(&provider(), MEMBERS, small).unwrap_or_else(|error| panic!("no group: {error}"));
    let result = (|| {
        let mut conn = group.server(0)?.connect()?;
        execute(&mut conn, "CREATE DATABASE d")?;
        execute(&mut conn, "CREATE TABLE d.t (a INT PRIMARY KEY, b INT NOT NULL, c LONGBLOB)")?;
        let rows: Vec<_> = (1..=ROWS).map(|row| format!("({row}, 0, '')")).collect();
        execute(&mut conn, &format!("INSERT INTO d.t VALUES {}", rows.join(", ")))?;
        check(&mut group)
    })();
    result.unwrap_or_else(|error| panic!("{error}\n{}", group.log_tails(40)));
}

/// A client whose open transaction has set `b` of these rows, each sent as a part of its own.
fn open(group: &Group, member: usize, value: usize, rows: &[usize]) -> Result<Conn> {
    let mut conn = group.causal_connection(member)?;
    execute(&mut conn, "SET wsrep_trx_fragment_unit = 'statements', wsrep_trx_fragment_size = 1")?;
    execute(&mut conn, "BEGIN")?;
    set(&mut conn, value, rows)?;
    Ok(conn)
}

fn set(conn: &mut Conn, value: usize, rows: &[usize]) -> Result<()> {
    rows.iter().try_for_each(|row| execute(conn, &format!("UPDATE d.t SET b = {value} WHERE a = {row}")))
}

/// Parts that a member has stored.
fn stored(group: &Group, member: usize) -> Result<usize> {
    let found =
        query_text(&mut group.causal_connection(member)?, "SELECT COUNT(*) FROM mysql.wsrep_streaming_log")?;
    Ok(found[0][0].parse().unwrap())
}

fn wait_stored(group: &Group, members: &[usize], count: usize) -> Result<()> {
    for &member in members {
        let what = format!("{count} stored parts on member {member}");
        poll_until(&what, PATIENCE, || Ok((stored(group, member)? == count).then_some(())))?;
    }
    Ok(())
}

/// Requires this value of a row's `b` on all members.
fn require(group: &Group, row: usize, value: usize) -> Result<()> {
    for member in group.running() {
        let mut conn = group.causal_connection(member)?;
        let found = query_text(&mut conn, &format!("SELECT b FROM d.t WHERE a = {row}"))?;
        if found != [[value.to_string()]] {
            return Err(Error::Violation(format!("member {member}, row {row}: {found:?}, not {value}")));
        }
    }
    Ok(())
}

fn require_given_up(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.to_string().contains("1213") => Ok(()),
        other => Err(Error::Violation(format!("expected error 1213, got {other:?}"))),
    }
}

fn wait_size(group: &Group, member: usize, size: usize) -> Result<()> {
    let what = format!("{size} members as member {member} sees it");
    let size = size.to_string();
    poll_until(&what, PATIENCE, || Ok((group.status(member, "wsrep_cluster_size")? == size).then_some(())))
}

/// Nothing is left of any part, and all have the same.
fn end(group: &Group) -> Result<()> {
    wait_stored(group, &group.running(), 0)?;
    group.require_equal_checksums().map(|_| ())
}

#[test]
fn parts_are_committed_given_up_and_in_each_others_way() {
    on_group(&["--innodb-lock-wait-timeout=1"], |group| {
        let mut first = open(group, 0, 1, &[1, 2, 3])?;
        let mut second = open(group, 1, 1, &[11, 12])?;
        wait_stored(group, &ALL, 5)?;
        // Its rows are held everywhere.
        let mut other = group.causal_connection(VICTIM)?;
        let refused = execute(&mut other, "UPDATE d.t SET b = 9 WHERE a = 2").expect_err("the row is held");
        assert!(refused.to_string().contains("1205"), "{refused}");
        execute(&mut other, "UPDATE d.t SET b = 9 WHERE a = 20")?;
        execute(&mut first, "COMMIT")?;
        execute(&mut second, "ROLLBACK")?;
        require(group, 1, 1)?;
        require(group, 11, 0)?;
        wait_stored(group, &ALL, 0)?;

        // A row of it that was not sent yet, and is wanted by what is ordered before it is.
        let mut conn = open(group, 0, 2, &[1])?;
        wait_stored(group, &ALL, 1)?;
        execute(&mut conn, "SET wsrep_trx_fragment_size = 100")?;
        set(&mut conn, 2, &[5])?;
        execute(&mut other, "UPDATE d.t SET b = 7 WHERE a = 5")?;
        require(group, 5, 7)?;
        require_given_up(execute(&mut conn, "UPDATE d.t SET b = 2 WHERE a = 6"))?;
        require(group, 1, 1)?;
        wait_stored(group, &ALL, 0)?;

        // A definition comes first, and takes the rest with it.
        let mut conn = open(group, 0, 3, &[1])?;
        wait_stored(group, &ALL, 1)?;
        execute(&mut other, "ALTER TABLE d.t ADD COLUMN e INT")?;
        require_given_up(execute(&mut conn, "COMMIT"))?;
        require(group, 1, 1)?;
        end(group)
    });
}

/// The largest whole transaction is 32 MiB.
#[test]
fn a_transaction_of_any_size_goes_through_in_parts() {
    on_group(&["--max-allowed-packet=64M"], |group| {
        let mut conn = group.causal_connection(0)?;
        let insert =
            "INSERT INTO d.t SELECT a + 100, 0, REPEAT(CHAR(65 + a), 4000000) FROM d.t WHERE a <= 12";
        let refused = execute(&mut conn, insert).expect_err("48 MB are too large for one");
        assert!(refused.to_string().contains("Maximum writeset size exceeded"), "{refused}");
        execute(&mut conn, "SET wsrep_trx_fragment_unit = 'bytes', wsrep_trx_fragment_size = 1000000")?;
        execute(&mut conn, insert)?;
        let found = query_text(
            &mut group.causal_connection(1)?,
            "SELECT COUNT(*), SUM(LENGTH(c)) FROM d.t WHERE a > 100",
        )?;
        assert_eq!(found, [["12", "48000000"]]);
        end(group)
    });
}

#[test]
fn parts_outlive_the_servers_that_have_them_but_not_the_one_that_sends_them() {
    on_group(&["--innodb-flush-log-at-trx-commit=0"], |group| {
        // Another server is killed and comes back in the middle of it.
        let mut kept = open(group, 0, 1, &[1, 2])?;
        wait_stored(group, &ALL, 2)?;
        group.kill9(VICTIM)?;
        set(&mut kept, 1, &[3])?;
        wait_size(group, 0, 2)?;
        set(&mut kept, 1, &[4])?;
        group.start(VICTIM)?;
        set(&mut kept, 1, &[5])?;
        wait_stored(group, &ALL, 5)?;
        execute(&mut kept, "COMMIT")?;
        (1..=5).try_for_each(|row| require(group, row, 1))?;

        // The one that sends them is killed: the others give up what they have of it, and so does that one.
        let mut kept = open(group, 0, 2, &[1])?;
        let _lost = open(group, VICTIM, 2, &[11, 12])?;
        wait_stored(group, &ALL, 3)?;
        group.kill9(VICTIM)?;
        wait_stored(group, &OTHERS, 1)?;
        let mut other = group.causal_connection(1)?;
        execute(&mut other, "UPDATE d.t SET b = 5 WHERE a = 11")?;
        group.start(VICTIM)?;
        wait_stored(group, &ALL, 1)?;
        require(group, 11, 5)?;
        require(group, 12, 0)?;

        // All are.
        wait_stored(group, &ALL, 1)?;
        group.kill9_all()?;
        group.start_all_after_blackout()?;
        require_lost(execute(&mut kept, "COMMIT"))?;
        require(group, 1, 1)?;
        end(group)
    });
}

fn require_lost(result: Result<()>) -> Result<()> {
    result.map_or(Ok(()), |()| Err(Error::Violation("a server that was killed goes on".into())))
}

/// The others have rolled back the open transactions of a server that was cut off, and the server does so, too, when it
/// is back. The open transactions of the others continue there without a gap.
#[test]
fn a_server_that_was_cut_off_gives_up_what_it_had_begun_and_nothing_else() {
    on_group(&[], |group| {
        let isolate = |group: &Group, is_on: u8| -> Result<()> {
            let statement = format!("SET GLOBAL wsrep_provider_options = 'gmcast.isolate={is_on}'");
            execute(&mut group.server(VICTIM)?.connect()?, &statement)
        };
        let mut kept = open(group, 0, 1, &[1])?;
        let mut lost = open(group, VICTIM, 2, &[11])?;
        let _idle = open(group, VICTIM, 3, &[12])?;
        wait_stored(group, &ALL, 3)?;
        isolate(group, 1)?;
        wait_size(group, 0, 2)?;
        wait_stored(group, &OTHERS, 1)?;
        let mut other = group.causal_connection(1)?;
        execute(&mut other, "UPDATE d.t SET b = 5 WHERE a IN (11, 12)")?;
        set(&mut kept, 1, &[2])?;
        // Before that it shows the members, and itself in step, as they were.
        let is_alone = || {
            let status = group.status(VICTIM, "wsrep_cluster_status")?;
            Ok((status == "non-Primary").then_some(()))
        };
        poll_until("the one that is cut off to notice", PATIENCE, is_alone)?;
        isolate(group, 0)?;
        wait_size(group, VICTIM, 3)?;
        group.wait_synced(VICTIM, PATIENCE)?;
        require_given_up(execute(&mut lost, "COMMIT"))?;
        require(group, 11, 5)?;
        require(group, 12, 5)?;
        set(&mut kept, 1, &[3])?;
        wait_stored(group, &ALL, 3)?;
        execute(&mut kept, "COMMIT")?;
        (1..=3).try_for_each(|row| require(group, row, 1))?;
        end(group)
    });
}

/// Every transaction of a load comes in parts, and conflicts with others.
#[test]
fn a_load_in_parts_loses_nothing_when_servers_end() {
    const STREAMED: [&str; 4] = [
        "--wsrep-trx-fragment-unit=rows",
        "--wsrep-trx-fragment-size=1",
        "--innodb-lock-wait-timeout=1",
        "--innodb-flush-log-at-trx-commit=0",
    ];
    on_group(&STREAMED, |group| {
        let load = Load::start(group, 4)?;
        load.wait_for_more(&ALL, 50, PATIENCE)?;
        for _ in 0..2 {
            group.shutdown(VICTIM)?;
            load.wait_for_more(&OTHERS, 50, PATIENCE)?;
            group.start(VICTIM)?;
            load.wait_for_more(&ALL, 50, PATIENCE)?;
        }
        group.kill9(VICTIM)?;
        load.wait_for_more(&OTHERS, 50, PATIENCE)?;
        group.start(VICTIM)?;
        load.wait_for_more(&ALL, 50, PATIENCE)?;
        group.kill9_all()?;
        group.start_all_after_blackout()?;
        load.wait_for_more(&ALL, 50, PATIENCE)?;
        load.stop()?;
        let report = group.require_sound_ledger()?;
        println!("acknowledged {}, found {}", report.rows_acknowledged, report.rows_found);
        end(group)
    });
}
