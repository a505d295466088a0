//! Servers that lack more than the memory of the others retains. A server that was away catches up from the log of the
//! others, and the backlog for a slow server is in memory up to a limit. Neither needs a state transfer, and all end up
//! equal.
//!
//! The limits are those of `wsrep_provider_options`, made small.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_drill::group::load::Load;
use redoubt_drill::group::{Group, PATIENCE, Provider};
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::find_redoubt;
use redoubt_workload::process::{poll_until, timed};
use redoubt_workload::server::ServerConfig;
use redoubt_workload::sql::execute;
use std::path::PathBuf;

const MEMBERS: usize = 3;
const ALL: [usize; MEMBERS] = [0, 1, 2];
const VICTIM: usize = 2;
const OTHERS: [usize; MEMBERS - 1] = [0, 1];
const CLIENTS: u32 = 3;
/// `redoubt.catch_up_memory` and `redoubt.apply_memory`.
const LIMIT_BYTES: u64 = 512 << 10;
/// Written while the victim does not take it in: far more than both.
const WRITTEN_BYTES: u64 = 12 << 20;

fn on_group<T>(check: impl FnOnce(&mut Group) -> Result<T>) -> T {
    let library = find_redoubt().unwrap().with_file_name("libredoubt_group.so");
    let scripts: PathBuf =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target/mariadb-server/usr/bin").into();
    let options = format!("redoubt.catch_up_memory={LIMIT_BYTES};redoubt.apply_memory={LIMIT_BYTES}");
    let provider = Provider { library, scripts: Some(scripts), options, ..Provider::default() };
    let small = |config: &mut ServerConfig| config.buffer_pool_bytes = 64 << 20;
    let mut group =
        Group::create(&provider, MEMBERS, small).unwrap_or_else(|error| panic!("no group: {error}"));
    check(&mut group).unwrap_or_else(|error| panic!("{error}\n{}", group.log_tails(40)))
}

/// Transactions of 100 kB, on a member.
fn write(group: &Group, member: usize) -> Result<()> {
    let mut conn = group.server(member)?.connect()?;
    execute(&mut conn, "CREATE DATABASE IF NOT EXISTS many")?;
    let table = "CREATE TABLE IF NOT EXISTS many.t (id BIGINT AUTO_INCREMENT PRIMARY KEY, value BLOB)";
    execute(&mut conn, table)?;
    let some =
        "INSERT INTO many.t (value) SELECT REPEAT(CHAR(65 + RAND() * 20), 10000) FROM many.seq_1_to_10";
    (0..WRITTEN_BYTES / 100_000).try_for_each(|_| execute(&mut conn, some))
}

fn number(group: &Group, member: usize, name: &str) -> Result<u64> {
    let text = group.status(member, name)?;
    text.parse().map_err(|_| Error::Violation(format!("{name} of member {member} is {text:?}")))
}

/// Bytes that a member has read from its log for others.
fn read_for_others(group: &Group, member: usize) -> Result<u64> {
    number(group, member, "wsrep_group_catch_up_log_bytes")
}

/// The victim starts, and is in sync without having got a state.
fn comes_back(group: &mut Group, what: &str) -> Result<()> {
    let before = group.server(VICTIM)?.error_log_tail(usize::MAX).len();
    let (_, elapsed) = timed(|| group.start(VICTIM))?;
    let said = group.server(VICTIM)?.error_log_tail(usize::MAX);
    let said = said.get(before..).unwrap_or(&said);
    for unwanted in [
        "for the state of its server",
        "the state of this server is not the group's",
        "keeps what this one lacks",
    ] {
        if said.contains(unwanted) {
            return Err(Error::Violation(format!("{what}: the server says: {unwanted}")));
        }
    }
    let read: u64 = OTHERS.iter().map(|member| read_for_others(group, *member)).sum::<Result<u64>>()?;
    println!("{what}: in sync after {elapsed:.1?}; the others have read {read} bytes of their logs");
    Ok(())
}

fn require_read(group: &Group, before: u64) -> Result<u64> {
    let read: u64 = OTHERS.iter().map(|member| read_for_others(group, *member)).sum::<Result<u64>>()?;
    match read - before > WRITTEN_BYTES / 2 {
        true => Ok(read),
        false => Err(Error::Violation(format!("only {} bytes were read from logs", read - before))),
    }
}

fn end(group: &Group, load: Load) -> Result<()> {
    load.wait_for_more(&ALL, 20, PATIENCE)?;
    load.stop()?;
    group.require_equal_checksums()?;
    group.require_sound_ledger().map(drop)
}

#[test]
fn one_that_was_away_is_caught_up_from_the_log_of_the_others() {
    on_group(|group| {
        let load = Load::start(group, CLIENTS)?;
        load.wait_for_more(&ALL, 20, PATIENCE)?;
        group.shutdown(VICTIM)?;
        write(group, OTHERS[0])?;
        comes_back(group, "shut down")?;
        let read = require_read(group, 0)?;
        group.kill9(VICTIM)?;
        write(group, OTHERS[1])?;
        comes_back(group, "killed")?;
        require_read(group, read)?;
        end(group, load)
    });
}

/// The donors were restarted meanwhile: they find the missing write sets in their logs.
#[test]
fn what_it_lacks_is_found_by_servers_that_were_started_again() {
    on_group(|group| {
        let load = Load::start(group, CLIENTS)?;
        load.wait_for_more(&ALL, 20, PATIENCE)?;
        group.kill9(VICTIM)?;
        write(group, OTHERS[0])?;
        for other in OTHERS {
            group.kill9(other)?;
            group.start(other)?;
        }
        comes_back(group, "all were started again")?;
        require_read(group, 0)?;
        end(group, load)
    });
}

/// The server takes nothing in for a while: it is paused, then its commits are blocked.
#[test]
fn what_waits_for_one_that_is_behind_is_in_memory_up_to_a_limit() {
    // The bytes read at a time are added to it.
    const MOST_BYTES: u64 = 2 * LIMIT_BYTES + (3 << 20);
    on_group(|group| {
        let load = Load::start(group, CLIENTS)?;
        load.wait_for_more(&ALL, 20, PATIENCE)?;
        for (begin, end) in [
            (&["FLUSH TABLES WITH READ LOCK"][..], "UNLOCK TABLES"),
            (&["BACKUP STAGE START", "BACKUP STAGE BLOCK_COMMIT"][..], "BACKUP STAGE END"),
        ] {
            let mut conn = group.server(VICTIM)?.connect()?;
            begin.iter().try_for_each(|statement| execute(&mut conn, statement))?;
            write(group, OTHERS[0])?;
            let waits = || {
                let in_log = number(group, VICTIM, "wsrep_group_queue_in_log")?;
                let len_bytes = number(group, VICTIM, "wsrep_group_queue_bytes")?;
                Ok::<_, Error>((in_log, len_bytes))
            };
            let (in_log, len_bytes) = waits()?;
            println!("{begin:?}: {in_log} write sets wait in the log alone, {len_bytes} bytes in memory");
            if in_log < 50 || len_bytes > MOST_BYTES {
                return Err(Error::Violation(format!("{in_log} in the log, {len_bytes} bytes in memory")));
            }
            execute(&mut conn, end)?;
            let mut most_bytes = 0;
            poll_until("all that waits", PATIENCE, || {
                let (in_log, len_bytes) = waits()?;
                most_bytes = most_bytes.max(len_bytes);
                Ok((in_log == 0).then_some(()))
            })?;
            println!("then {most_bytes} bytes in memory at most");
            if most_bytes > MOST_BYTES {
                return Err(Error::Violation(format!("{most_bytes} bytes in memory")));
            }
        }
        end(group, load)
    });
}
