//! Groups of three stock servers with a wsrep provider: what must be true of any provider, each a function of its own.
//!
//! Galera runs them first: a failure there is a fault of the check. Only a blackout is left out: started again as all
//! members are here, Galera's members report that they are in sync, and differ.
//!
//! Each check prints a line with its figures.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use mysql::Conn;
use redoubt_drill::group::hot;
use redoubt_drill::group::load::{Commits, Load};
use redoubt_drill::group::{Group, PATIENCE, Provider};
use redoubt_harness::command::Outcome;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::find_redoubt;
use redoubt_workload::process::{poll_until, timed};
use redoubt_workload::server::ServerConfig;
use redoubt_workload::sql::{execute, query_text};

const MEMBERS: usize = 3;
const ALL: [usize; MEMBERS] = [0, 1, 2];
/// The member that things happen to, and the others.
const VICTIM: usize = 2;
const OTHERS: [usize; MEMBERS - 1] = [0, 1];
/// Ledger clients of each member.
const CLIENTS: u32 = 4;
/// How long the others are watched after an event: longer than any of Galera's timeouts.
const WATCHED: Duration = Duration::from_secs(12);

mod galera {
    use super::Provider;

    fn provider() -> Provider {
        let library = redoubt_test_support::setting_os("REDOUBT_GALERA")
            .expect("REDOUBT_GALERA names Galera's library");
        Provider { scripts: super::scripts(), ..Provider::galera(library) }
    }

    macro_rules! tests {
        ($($check:ident),*) => {$(
            #[test]
            #[ignore = "needs galera-4: make group-anchor"]
            fn $check() {
                super::$check(&provider());
            }
        )*};
    }

    tests!(
        takes_load_on_all_members,
        takes_definitions_from_all_members_under_load,
        counts_exactly_in_one_row,
        goes_on_without_a_killed_member,
        goes_on_while_a_member_restarts,
        goes_on_without_a_stopped_member,
        leaves_when_its_data_differs
    );
}

/// The library of this tree: what is short enough for every run, and the rest with `make group`.
mod own {
    use super::Provider;
    use redoubt_workload::launcher::find_redoubt;
    use std::time::Duration;

    fn provider() -> Provider {
        let library = find_redoubt().unwrap().with_file_name("libredoubt_group.so");
        assert!(library.is_file(), "{} is missing: cargo build --release --workspace", library.display());
        Provider { library, scripts: super::scripts(), ..Provider::default() }
    }

    fn encrypted() -> Provider {
        Provider { is_encrypted: true, ..provider() }
    }

    #[test]
    fn counts_exactly_in_one_row() {
        super::counts_exactly_in_one_row(&provider());
    }

    #[test]
    fn goes_on_without_a_killed_member() {
        // Far below Galera's timeouts, and far above what it takes: this is no measurement. The longest gap of the same
        // load without a kill is the machine's.
        let (gap, before) = super::goes_on_without_a_killed_member(&provider());
        assert!(gap < Duration::from_secs(4) + 10 * before, "{gap:?}, and {before:?} without a kill");
    }

    #[test]
    fn ends_and_comes_back_in_order_under_load() {
        super::ends_and_comes_back_in_order_under_load(&provider());
    }

    #[test]
    fn ends_in_order_while_it_is_behind() {
        super::ends_in_order_while_it_is_behind(&provider());
    }

    #[test]
    fn leaves_and_comes_back_while_it_runs() {
        super::leaves_and_comes_back_while_it_runs(&provider());
    }

    #[test]
    fn the_last_one_goes_on_and_takes_the_others_back() {
        super::the_last_one_goes_on_and_takes_the_others_back(&provider());
    }

    #[test]
    fn goes_on_with_the_last_one() {
        super::goes_on_with_the_last_one(&provider());
    }

    #[test]
    fn says_that_it_has_no_majority() {
        super::says_that_it_has_no_majority(&provider());
    }

    #[test]
    fn lets_nobody_in_without_a_certificate() {
        super::lets_nobody_in_without_a_certificate(&encrypted());
    }

    #[test]
    fn leaves_when_its_data_differs() {
        super::leaves_when_its_data_differs(&provider());
    }

    #[test]
    #[ignore = "make group"]
    fn takes_load_on_all_members_with_certificates() {
        super::takes_load_on_all_members(&encrypted());
    }

    #[test]
    fn comes_back_though_all_were_told_to_get_their_state_anew() {
        super::comes_back_though_all_were_told_to_get_their_state_anew(&provider());
    }

    #[test]
    fn comes_back_from_a_blackout() {
        super::comes_back_from_a_blackout(&provider(), &[]);
    }

    /// The servers lose up to a second of what they have committed: their log is in their memory until then.
    #[test]
    fn comes_back_from_a_blackout_of_servers_that_do_not_sync() {
        super::comes_back_from_a_blackout(&provider(), &["--innodb-flush-log-at-trx-commit=0"]);
    }

    macro_rules! long_tests {
        ($($check:ident),*) => {$(
            #[test]
            #[ignore = "make group"]
            fn $check() {
                super::$check(&provider());
            }
        )*};
    }

    long_tests!(
        takes_two_in_at_the_same_time,
        goes_on_without_a_removed_member,
        takes_load_on_all_members,
        takes_definitions_from_all_members_under_load,
        goes_on_while_a_member_restarts,
        goes_on_without_a_stopped_member
    );
}

/// Where `scripts/setup.sh` unpacks the server's scripts for state transfers, where they are not installed.
#[expect(clippy::unnecessary_wraps, reason = "what a provider has")]
fn scripts() -> Option<PathBuf> {
    Some(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target/mariadb-server/usr/bin").into())
}

/// Runs a check on a new group; where it fails, the ends of the members' logs are shown.
fn on_group<T>(provider: &Provider, check: impl FnOnce(&mut Group) -> Result<T>) -> T {
    on_group_with(provider, &[], check)
}

fn on_group_with<T>(
    provider: &Provider,
    arguments: &[&str],
    check: impl FnOnce(&mut Group) -> Result<T>,
) -> T {
    let small = |config: &mut ServerConfig| {
        config.buffer_pool_bytes = 64 << 20;
        config.server_args.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    };
    let created = timed(|| Group::create(provider, MEMBERS, small));
    let (mut group, elapsed) = created.unwrap_or_else(|error| panic!("no group: {error}"));
    println!("created in {elapsed:.1?}: members in sync after {:.1?}", group.start_times());
    require_own_offsets(&group).unwrap_or_else(|error| panic!("{error}\n{}", group.log_tails(40)));
    check(&mut group).unwrap_or_else(|error| panic!("{error}\n{}", group.log_tails(40)))
}

/// Each member counts up numbers of its own: the server makes its offset of its place in the view, or of the table in
/// which it keeps that, so both have to have the same order.
fn require_own_offsets(group: &Group) -> Result<()> {
    let offset = |index: usize| group.server(index)?.query("SELECT @@GLOBAL.auto_increment_offset");
    let mut offsets: Vec<_> = ALL.into_iter().map(offset).collect::<Result<_>>()?;
    offsets.sort();
    match offsets == [[["1"]], [["2"]], [["3"]]] {
        true => Ok(()),
        false => Err(Error::Violation(format!("auto_increment_offset of the members: {offsets:?}"))),
    }
}

/// Ends a load; then all members must have the same, and all that was acknowledged.
fn end(group: &Group, load: Load) -> Result<()> {
    let summaries = load.stop()?;
    let tables = group.require_equal_checksums()?;
    let report = group.require_sound_ledger()?;
    println!(
        "{tables} tables are equal; commits acknowledged {}, found {}; by member {summaries:?}",
        report.rows_acknowledged, report.rows_found
    );
    Ok(())
}

/// The effect on the others of an event at `event`.
fn tell(what: &str, commits: &Commits, event: Instant, until: Instant) -> Duration {
    const BEFORE: Duration = Duration::from_secs(3);
    let gap = commits.longest_gap(event, until);
    println!(
        "{what}: {:.3?} without a commit of the others, from {:.3?} after it on; {:.3?} for one client; \
         {:.0} commits/s before, {:.0} after the gap",
        gap.length,
        gap.began.saturating_duration_since(event),
        commits.longest_gap_of_a_client(event, until).length,
        commits.per_second(event.checked_sub(BEFORE).unwrap(), event),
        commits.per_second(gap.began + gap.length, until),
    );
    gap.length
}

/// Lets the load run for so long that its rate is known.
fn warm_up(load: &Load) -> Result<()> {
    load.wait_for_more(&ALL, 50, PATIENCE)?;
    load.run_for(Duration::from_secs(3));
    Ok(())
}

fn takes_load_on_all_members(provider: &Provider) {
    on_group(provider, |group| {
        let load = Load::start(group, CLIENTS)?;
        load.wait_for_more(&ALL, 50, PATIENCE)?;
        let from = Instant::now();
        load.run_for(Duration::from_secs(10));
        let (commits, until) = (load.commits(&ALL)?, Instant::now());
        println!(
            "load on all: {:.0} commits/s with {CLIENTS} clients on each; longest gap {:.3?}",
            commits.per_second(from, until),
            commits.longest_gap(from, until).length
        );
        load.wait_for_more(&ALL, 20, PATIENCE)?;
        end(group, load)
    });
}

/// Statements of three threads, each with tables of its own, each statement on the next member. It must find the result
/// of the previous one there. Two of the tables that the load writes are changed under it.
fn takes_definitions_from_all_members_under_load(provider: &Provider) {
    const ROUNDS: usize = 4;
    on_group(provider, |group| {
        let load = Load::start(group, CLIENTS)?;
        load.wait_for_more(&ALL, 50, PATIENCE)?;
        let from = Instant::now();
        let shared: &Group = group;
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                ALL.into_iter().map(|part| scope.spawn(move || define(shared, part, ROUNDS))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap())
        })?;
        let (commits, until) = (load.commits(&ALL)?, Instant::now());
        load.wait_for_more(&ALL, 20, PATIENCE)?;
        println!(
            "definitions: {:.1?} for {ROUNDS} rounds of three threads; {:.0} commits/s beside; longest gap {:.3?}",
            until - from,
            commits.per_second(from, until),
            commits.longest_gap(from, until).length
        );
        end(group, load)?;
        require_same_users(group, ROUNDS)
    });
}

fn define(group: &Group, part: usize, rounds: usize) -> Result<()> {
    let mut connections = ALL.map(|index| group.causal_connection(index).unwrap());
    let mut turn = part;
    let mut on_next = |statement: String| {
        turn = (turn + 1) % MEMBERS;
        retried(&mut connections[turn], &statement)
    };
    on_next(format!("CREATE DATABASE definitions{part}"))?;
    for round in 0..rounds {
        let table = format!("definitions{part}.t{round}");
        let fill = format!("INSERT INTO {table} (value) SELECT seq FROM definitions{part}.seq_1_to_300");
        for statement in [
            format!("CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY, value INT) ENGINE=InnoDB"),
            fill.clone(),
            format!("ALTER TABLE {table} ADD COLUMN instant INT NOT NULL DEFAULT 7"),
            format!("ALTER TABLE {table} MODIFY value BIGINT, ALGORITHM=COPY"),
            format!("CREATE INDEX by_value ON {table} (value)"),
            fill.clone(),
            format!("TRUNCATE TABLE {table}"),
            fill,
            format!("RENAME TABLE {table} TO {table}_renamed"),
            format!("CREATE TABLE {table} LIKE {table}_renamed"),
            format!("DROP TABLE {table}"),
            format!("CREATE USER 'u{part}_{round}'@'localhost' IDENTIFIED BY 'secret'"),
            format!("GRANT SELECT ON definitions{part}.* TO 'u{part}_{round}'@'localhost'"),
        ] {
            on_next(statement)?;
        }
        if round % 2 == 1 {
            on_next(format!("DROP TABLE {table}_renamed"))?;
        }
        // No two threads change the same table.
        match part {
            0 => on_next(format!("ALTER TABLE redoubt_ledger.entry ADD COLUMN more{round} INT DEFAULT 3"))?,
            1 => on_next(format!("CREATE INDEX more{round} ON redoubt_ledger.detail (part, checksum)"))?,
            _ => {}
        }
    }
    Ok(())
}

/// Statements may be refused as a conflict with others, and may then be tried again.
fn retried(conn: &mut Conn, statement: &str) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        // Of no table, but after everything acknowledged before: what the statement needs is there.
        query_text(conn, "SELECT 1")?;
        match execute(conn, statement) {
            Err(error) if error.is_retryable() && Instant::now() < until => {}
            other => return other,
        }
    }
}

/// The grants of the user that was made last, and the number of users, are the same everywhere.
fn require_same_users(group: &Group, rounds: usize) -> Result<()> {
    for part in ALL {
        let user = format!("'u{part}_{}'@'localhost'", rounds - 1);
        let grants: Vec<_> = ALL
            .iter()
            .map(|index| group.server(*index)?.query(&format!("SHOW GRANTS FOR {user}")))
            .collect::<Result<_>>()?;
        if grants[0].len() != 2 || grants.iter().any(|other| *other != grants[0]) {
            return Err(Error::Violation(format!("grants of {user}, by member: {grants:?}")));
        }
    }
    let count = "SELECT COUNT(*) FROM mysql.global_priv WHERE User LIKE 'u%\\_%'";
    for index in ALL {
        let found = group.server(index)?.query(count)?;
        if found != [[(MEMBERS * rounds).to_string()]] {
            return Err(Error::Violation(format!("member {index} has {found:?} of the users")));
        }
    }
    Ok(())
}

fn counts_exactly_in_one_row(provider: &Provider) {
    on_group(provider, |group| {
        let counted = hot::count(group, CLIENTS as usize, Duration::from_secs(5))?;
        println!(
            "one row: {:.0} increments/s, exact; {} of {} tries were conflicts",
            counted.acknowledged as f64 / counted.elapsed.as_secs_f64(),
            counted.conflicts,
            counted.conflicts + counted.acknowledged
        );
        group.require_equal_checksums().map(drop)
    });
}

/// Returns how long no client of the others had a commit acknowledged, and how long before anything happened.
fn goes_on_without_a_killed_member(provider: &Provider) -> (Duration, Duration) {
    on_group(provider, |group| {
        let load = Load::start(group, CLIENTS)?;
        warm_up(&load)?;
        let calm = Instant::now();
        load.run_for(Duration::from_secs(3));
        let event = Instant::now();
        let before = load.commits(&OTHERS)?.longest_gap(calm, event).length;
        group.kill9(VICTIM)?;
        load.run_for(WATCHED);
        let until = Instant::now();
        load.wait_for_more(&OTHERS, 50, PATIENCE)?;
        let gap = tell("kill -9", &load.commits(&OTHERS)?, event, until);
        comes_back(group, &load, "start after kill -9", Group::start)?;
        end(group, load)?;
        Ok((gap, before))
    })
}

/// Lets the victim come back as `how` says, under load: then its clients go on, and it is in sync.
fn comes_back(
    group: &mut Group,
    load: &Load,
    what: &str,
    how: impl FnOnce(&mut Group, usize) -> Result<()>,
) -> Result<Duration> {
    let event = Instant::now();
    how(group, VICTIM)?;
    load.wait_for_more(&[VICTIM], 20, PATIENCE)?;
    // A member that was stopped may have reported it before it noticed its absence.
    for index in ALL {
        group.wait_synced(index, PATIENCE)?;
    }
    let until = Instant::now();
    println!("{what}: all in sync after {:.1?}", until - event);
    Ok(tell(what, &load.commits(&OTHERS)?, event, until))
}

/// Returns how long no client of the others had a commit acknowledged while the member went, and while it came.
fn goes_on_while_a_member_restarts(provider: &Provider) -> (Duration, Duration) {
    on_group(provider, |group| {
        let load = Load::start(group, CLIENTS)?;
        warm_up(&load)?;
        let event = Instant::now();
        let (_, elapsed) = timed(|| group.shutdown(VICTIM))?;
        println!("shutdown took {elapsed:.1?}");
        load.run_for(Duration::from_secs(5));
        let until = Instant::now();
        load.wait_for_more(&OTHERS, 50, PATIENCE)?;
        let gone = tell("shutdown", &load.commits(&OTHERS)?, event, until);
        let came = comes_back(group, &load, "start after shutdown", Group::start)?;
        end(group, load)?;
        Ok((gone, came))
    })
}

/// Returns how long no client of the others had a commit acknowledged.
fn goes_on_without_a_stopped_member(provider: &Provider) -> Duration {
    on_group(provider, |group| {
        let load = Load::start(group, CLIENTS)?;
        warm_up(&load)?;
        let event = Instant::now();
        group.stop_process(VICTIM)?;
        load.run_for(WATCHED);
        let until = Instant::now();
        load.wait_for_more(&OTHERS, 50, PATIENCE)?;
        let gap = tell("SIGSTOP", &load.commits(&OTHERS)?, event, until);
        comes_back(group, &load, "SIGCONT", |group, victim| {
            group.cont(victim)?;
            group.wait_synced(victim, PATIENCE)
        })?;
        end(group, load)?;
        Ok(gap)
    })
}

/// A change hits a row that one member does not have, or a definition has another result there. Once the change is made
/// at the member that differs alone, and once all others have the other data. That member does not continue with data
/// that differ from most of the group's, and has the group's data after its next start.
fn leaves_when_its_data_differs(provider: &Provider) {
    // Else the server passes over the errors of definitions and says nothing of them.
    on_group_with(provider, &["--wsrep-ignore-apply-errors=0"], |group| {
        let mut conn = group.server(OTHERS[0])?.connect()?;
        execute(&mut conn, "CREATE DATABASE apart")?;
        let (victim, others) = (&[VICTIM][..], &OTHERS[..]);
        for (who, difference, at, statement) in [
            (victim, "DROP TABLE apart.t", OTHERS[0], "INSERT INTO apart.t VALUES (3, 3)"),
            (victim, "UPDATE apart.t SET value = 1", OTHERS[0], "ALTER TABLE apart.t ADD UNIQUE (value)"),
            (
                victim,
                "CREATE TABLE apart.more (id INT PRIMARY KEY)",
                VICTIM,
                "CREATE TABLE apart.more (value INT)",
            ),
            (others, "DELETE FROM apart.t WHERE id = 2", VICTIM, "UPDATE apart.t SET value = 7 WHERE id = 2"),
        ] {
            execute(&mut conn, "DROP TABLE IF EXISTS apart.t")?;
            execute(&mut conn, "CREATE TABLE apart.t (id INT PRIMARY KEY, value INT) ENGINE=InnoDB")?;
            execute(&mut conn, "INSERT INTO apart.t VALUES (1, 1), (2, 2)")?;
            group.require_equal_checksums()?;
            for index in who {
                let mut alone = group.server(*index)?.connect()?;
                execute(&mut alone, "SET SESSION wsrep_on = 0")?;
                execute(&mut alone, difference)?;
            }
            let went = execute(&mut group.server(at)?.connect()?, statement);
            println!("{statement}: {went:?}");
            let is_out = || Ok((group.status(VICTIM, "wsrep_ready")? == "OFF").then_some(()));
            poll_until("the end of its membership", PATIENCE, is_out)?;
            for index in OTHERS {
                assert_eq!(group.status(index, "wsrep_ready")?, "ON", "member {index} after {statement}");
            }
            group.shutdown(VICTIM)?;
            group.start(VICTIM)?;
            group.wait_synced(VICTIM, PATIENCE)?;
        }
        // A definition that fails everywhere in the same way is no difference.
        for index in ALL {
            let create = "CREATE TABLE apart.t (id INT)";
            execute(&mut group.server(index)?.connect()?, create).expect_err("it is there");
        }
        group.require_equal_checksums().map(drop)
    });
}

/// Of two changes of the members one has to wait for the other.
fn takes_two_in_at_the_same_time(provider: &Provider) {
    let group = Group::create_at_once(provider, MEMBERS, |config| config.buffer_pool_bytes = 64 << 20);
    let group = group.unwrap_or_else(|error| panic!("no group: {error}"));
    for index in ALL {
        assert_eq!(group.status(index, "wsrep_group_voters").unwrap(), MEMBERS.to_string());
    }
    group.require_equal_checksums().unwrap();
}

/// A present member cannot be removed. An absent one can: it no longer counts. When it comes back with its old log, it
/// is informed of its removal and joins as a new member without that log.
fn goes_on_without_a_removed_member(provider: &Provider) {
    on_group(provider, |group| {
        let load = Load::start(group, CLIENTS)?;
        load.wait_for_more(&ALL, 20, PATIENCE)?;
        let remove = format!("SET GLOBAL wsrep_provider_options = 'redoubt.remove=m{VICTIM}'");
        let mut conn = group.server(OTHERS[0])?.connect()?;
        execute(&mut conn, &remove).expect_err("it is here");
        group.kill9(VICTIM)?;
        let others = OTHERS.len().to_string();
        let is_status = |name: &'static str| {
            let (group, others) = (&*group, &others);
            move || Ok((group.status(OTHERS[0], name)? == *others).then_some(()))
        };
        poll_until("a view without it", PATIENCE, is_status("wsrep_cluster_size"))?;
        poll_until("its removal", PATIENCE, || match execute(&mut conn, &remove) {
            Ok(()) => Ok(Some(())),
            Err(_) => Ok(None),
        })?;
        poll_until("members without it", PATIENCE, is_status("wsrep_group_voters"))?;
        load.wait_for_more(&OTHERS, 50, PATIENCE)?;
        group.server_mut(VICTIM)?.spawn(&[])?;
        let is_told = || {
            let said = group.server(VICTIM)?.error_log_tail(100);
            Ok(said.contains("it does not know this member any more").then_some(()))
        };
        poll_until("what it is told", PATIENCE, is_told)?;
        group.kill9(VICTIM)?;
        for entry in std::fs::read_dir(group.server(VICTIM)?.datadir()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with("redoubt_group.") && name.ends_with(".log") {
                std::fs::remove_file(path).unwrap();
            }
        }
        group.start(VICTIM)?;
        load.wait_for_more(&ALL, 20, PATIENCE)?;
        assert_eq!(group.status(OTHERS[0], "wsrep_group_voters")?, MEMBERS.to_string());
        end(group, load)
    });
}

/// A server that is shut down while others write has to end, by itself and not by a signal. It must have the group's
/// data without a state transfer.
fn ends_and_comes_back_in_order_under_load(provider: &Provider) {
    const ROUNDS: usize = 4;
    on_group(provider, |group| {
        let load = Load::start(group, CLIENTS)?;
        for _ in 0..ROUNDS {
            load.wait_for_more(&ALL, 50, PATIENCE)?;
            group.shutdown(VICTIM)?;
            group.start(VICTIM)?;
        }
        let said = group.server(VICTIM)?.error_log_tail(usize::MAX);
        for unwanted in ["Failed to apply write set", "the state of this server is not the group's"] {
            if said.contains(unwanted) {
                return Err(Error::Violation(format!("the server that was shut down says: {unwanted}")));
            }
        }
        end(group, load)
    });
}

/// A server that is shut down while it is far behind has to finish the ordered commits of its own clients. A
/// transaction that was aborted for another one is replayed in its slot.
fn ends_in_order_while_it_is_behind(provider: &Provider) {
    const ROUNDS: usize = 5;
    on_group(provider, |group| {
        let load = Load::start(group, CLIENTS)?;
        for _ in 0..ROUNDS {
            load.wait_for_more(&ALL, 50, PATIENCE)?;
            group.stop_process(VICTIM)?;
            load.wait_for_more(&OTHERS, 1000, PATIENCE)?;
            group.cont(VICTIM)?;
            let number = |name| Ok::<u64, Error>(group.status(VICTIM, name)?.parse().unwrap_or(0));
            let before = number("wsrep_replicated")?;
            // Its clients wait for their places, with all that it lacks before them.
            poll_until("commits that wait", PATIENCE, || {
                Ok((number("wsrep_replicated")? >= before + u64::from(CLIENTS) - 1).then_some(()))
            })?;
            println!("lacks {}", number("wsrep_local_recv_queue")?);
            group.shutdown(VICTIM)?;
            group.start(VICTIM)?;
        }
        end(group, load)
    });
}

/// A server that gets another cluster address leaves the group and joins it again with the data and the log that it
/// has.
fn leaves_and_comes_back_while_it_runs(provider: &Provider) {
    const ROUNDS: usize = 3;
    on_group(provider, |group| {
        let load = Load::start(group, CLIENTS)?;
        let mut conn = group.server(VICTIM)?.connect()?;
        execute(&mut conn, "SET SESSION wsrep_sync_wait = 0")?;
        let address = group.server(VICTIM)?.query("SELECT @@GLOBAL.wsrep_cluster_address")?;
        let transfers = |group: &Group| -> Result<usize> {
            let said = group.server(VICTIM)?.error_log_tail(usize::MAX);
            Ok(said.matches("for the state of its server").count())
        };
        let before = transfers(group)?;
        assert_eq!(before, 1, "that of its first start");
        for _ in 0..ROUNDS {
            load.wait_for_more(&ALL, 50, PATIENCE)?;
            // Ends the other connections to this server.
            execute(&mut conn, "SET GLOBAL wsrep_cluster_address = ''")?;
            load.wait_for_more(&OTHERS, 50, PATIENCE)?;
            execute(&mut conn, &format!("SET GLOBAL wsrep_cluster_address = '{}'", address[0][0]))?;
            group.wait_synced(VICTIM, PATIENCE)?;
        }
        assert_eq!(transfers(group)?, before, "it has all that it had");
        load.wait_for_more(&ALL, 50, PATIENCE)?;
        end(group, load)
    });
}

/// Two of three shut down cleanly: the last one continues. It leaves as well, and comes back by itself, without the
/// others and without an option that makes it the first one. The others come back with the data they have, and all are
/// equal.
fn the_last_one_goes_on_and_takes_the_others_back(provider: &Provider) {
    const LAST: usize = 0;
    on_group(provider, |group| {
        let load = Load::start(group, CLIENTS)?;
        load.wait_for_more(&ALL, 50, PATIENCE)?;
        group.shutdown(VICTIM)?;
        assert_eq!(group.status(LAST, "wsrep_group_voters")?, "3", "of two as many are needed as of three");
        load.wait_for_more(&OTHERS, 50, PATIENCE)?;
        let (_, elapsed) = timed(|| group.shutdown(1))?;
        let event = Instant::now();
        load.wait_for_more(&[LAST], 100, PATIENCE)?;
        println!("the second one left within {elapsed:.1?}, 100 commits more after {:.1?}", event.elapsed());
        assert_eq!(group.status(LAST, "wsrep_group_voters")?, "1");
        group.shutdown(LAST)?;
        group.start(LAST)?;
        load.wait_for_more(&[LAST], 100, PATIENCE)?;
        for member in [VICTIM, 1] {
            group.start(member)?;
            load.wait_for_more(&[LAST, member], 50, PATIENCE)?;
        }
        assert_eq!(group.status(LAST, "wsrep_group_voters")?, "3");
        for member in [VICTIM, 1] {
            let said = group.server(member)?.error_log_tail(usize::MAX);
            assert!(
                !said.contains("the state of this server is not the group's"),
                "member {member} has all that it had"
            );
        }
        end(group, load)
    });
}

/// Two of three servers lose their disks. The third one waits for them until `redoubt group rescue` marks them as lost.
/// The command refuses while one of them answers. New servers take their places.
fn goes_on_with_the_last_one(provider: &Provider) {
    const LAST: usize = 0;
    on_group(provider, |group| {
        let load = Load::start(group, CLIENTS)?;
        load.wait_for_more(&ALL, 100, PATIENCE)?;
        load.stop()?;
        group.require_equal_checksums()?;
        let datadir = group.server(LAST)?.datadir().to_str().unwrap().to_owned();
        let rescue = |more: &[&str]| {
            let arguments = [&["group", "rescue", "--datadir", &datadir][..], more].concat();
            Outcome::of(&find_redoubt().unwrap(), arguments, PATIENCE).unwrap()
        };
        rescue(&["--yes"]).require_failure(1, &["in use by another server"])?;
        group.kill9(LAST)?;
        rescue(&["--yes"]).require_failure(1, &["answers, so it is not lost"])?;
        for lost in [1, VICTIM] {
            group.kill9(lost)?;
            let disk = group.server(lost)?.datadir();
            std::fs::remove_dir_all(&disk).and_then(|()| std::fs::create_dir(&disk)).unwrap();
            group.server_mut(lost)?.install_db()?;
        }
        let success = |more: &[&str]| rescue(more).require_success();
        let shown = success(&["--show"])?;
        for part in ["m0 (127.0.0.1:", ", this server", "m1 (", "m2 (", "higher epoch"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        rescue(&[]).require_failure(1, &["needs --yes"])?;
        let report: serde_json::Value = serde_json::from_str(&success(&["--yes", "--json"])?).unwrap();
        assert!(report["is_alone"] == true && report["voters"].as_array().unwrap().len() == 3, "{report}");
        assert!(success(&["--show"])?.contains("the only member already"));

        group.start(LAST)?;
        group.require_sound_ledger()?;
        execute(&mut group.server(LAST)?.connect()?, "CREATE DATABASE alone")?;
        for new in [1, VICTIM] {
            group.start(new)?;
        }
        assert_eq!(group.status(LAST, "wsrep_group_voters")?, "3");
        let load = Load::start(group, CLIENTS)?;
        load.wait_for_more(&ALL, 50, PATIENCE)?;
        end(group, load)
    });
}

/// A server without contact to the others reports this to load balancers and clients, as Galera does, and refuses their
/// statements. Commits sent before wait, and complete when the others are back.
fn says_that_it_has_no_majority(provider: &Provider) {
    on_group(provider, |group| {
        let load = Load::start(group, CLIENTS)?;
        load.wait_for_more(&ALL, 20, PATIENCE)?;
        let isolate = |is_on: u8| format!("SET GLOBAL wsrep_provider_options = 'gmcast.isolate={is_on}'");
        let status = |name: &'static str, wanted: &'static str| {
            let group = &*group;
            move || Ok((group.status(VICTIM, name)? == wanted).then_some(()))
        };
        let mut conn = group.server(VICTIM)?.connect()?;
        // As during a backup.
        execute(&mut conn, "SET GLOBAL wsrep_desync = ON")?;
        execute(&mut conn, &isolate(1))?;
        poll_until("what it says", PATIENCE, status("wsrep_cluster_status", "non-Primary"))?;
        assert_eq!(group.status(VICTIM, "wsrep_ready")?, "OFF");
        assert_eq!(group.status(VICTIM, "wsrep_cluster_size")?, "1");
        let read = "SELECT COUNT(*) FROM mysql.user";
        let refused = execute(&mut conn, read).expect_err("it is not ready").to_string();
        assert!(refused.contains("1047"), "{refused}");
        execute(&mut conn, "SET wsrep_dirty_reads = ON")?;
        execute(&mut conn, read)?;
        load.wait_for_more(&OTHERS, 50, PATIENCE)?;
        execute(&mut conn, &isolate(0))?;
        poll_until("what it says then", PATIENCE, status("wsrep_cluster_status", "Primary"))?;
        poll_until("all that the others have", PATIENCE, status("wsrep_local_state", "4"))?;
        poll_until("that it does something for clients", PATIENCE, status("wsrep_ready", "ON"))?;
        execute(&mut conn, "SET GLOBAL wsrep_desync = OFF")?;
        load.wait_for_more(&ALL, 50, PATIENCE)?;
        end(group, load)
    });
}

/// A member that does not show its certificate is refused while the others go on, and is a member again once it does.
fn lets_nobody_in_without_a_certificate(provider: &Provider) {
    on_group(provider, |group| {
        let load = Load::start(group, CLIENTS)?;
        load.wait_for_more(&ALL, 20, PATIENCE)?;
        group.shutdown(VICTIM)?;
        let arguments = group.server(VICTIM)?.config().server_args.clone();
        let is_options = |argument: &&mut String| argument.starts_with("--wsrep-provider-options=");
        let changed = &mut group.server_mut(VICTIM)?.config_mut().server_args;
        changed.iter_mut().find(is_options).unwrap().push_str(";socket.ssl=no");
        group.server_mut(VICTIM)?.spawn(&[])?;
        let is_refused = || {
            let said = group.server(OTHERS[0])?.error_log_tail(100);
            Ok(said.contains("does not encrypt").then_some(()))
        };
        poll_until("a line about the refusal", PATIENCE, is_refused)?;
        load.wait_for_more(&OTHERS, 50, PATIENCE)?;
        group.kill9(VICTIM)?;
        group.server_mut(VICTIM)?.config_mut().server_args = arguments;
        group.start(VICTIM)?;
        load.wait_for_more(&ALL, 20, PATIENCE)?;
        end(group, load)
    });
}

/// `grastate.dat` is removed from one server: it gets a state transfer. It is removed from all: no member has a state
/// for another, so one continues with its own. Each of the others does so, too, unless it sees that one first and gets
/// a state transfer from it.
fn comes_back_though_all_were_told_to_get_their_state_anew(provider: &Provider) {
    on_group(provider, |group| {
        let load = Load::start(group, CLIENTS)?;
        load.wait_for_more(&ALL, 20, PATIENCE)?;
        let remove = |group: &Group, member: usize| -> Result<()> {
            let path = group.server(member)?.datadir().join("grastate.dat");
            std::fs::remove_file(&path).map_err(|error| Error::State(format!("{}: {error}", path.display())))
        };
        let said = |group: &Group, what: &str| -> Result<usize> {
            let logs = ALL.map(|member| Ok(group.server(member)?.error_log_tail(usize::MAX)));
            let logs = logs.into_iter().collect::<Result<Vec<_>>>()?.concat();
            Ok(logs.matches(what).count())
        };
        let transfers = |group: &Group| said(group, "sends its state to member");
        let before = transfers(group)?;
        group.shutdown(VICTIM)?;
        remove(group, VICTIM)?;
        group.start(VICTIM)?;
        assert_eq!(transfers(group)?, before + 1, "one gets it from another one");
        load.wait_for_more(&ALL, 20, PATIENCE)?;
        group.kill9_all()?;
        ALL.into_iter().try_for_each(|member| remove(group, member))?;
        group.start_all_after_blackout()?;
        let own = said(group, "this server continues with its own state")?;
        assert!(own >= 1, "nobody has one, so somebody keeps its own");
        assert_eq!(transfers(group)? - before - 1, ALL.len() - own, "whoever does not gets one, once");
        load.wait_for_more(&ALL, 20, PATIENCE)?;
        end(group, load)
    });
}

/// Returns how long all members took to come back, by themselves.
fn comes_back_from_a_blackout(provider: &Provider, arguments: &[&str]) -> Duration {
    on_group_with(provider, arguments, |group| {
        let load = Load::start(group, CLIENTS)?;
        warm_up(&load)?;
        group.kill9_all()?;
        let (_, elapsed) = timed(|| group.start_all_after_blackout())?;
        println!("all were killed; all were back after {elapsed:.1?}");
        load.wait_for_more(&ALL, 50, PATIENCE)?;
        end(group, load)?;
        Ok(elapsed)
    })
}
