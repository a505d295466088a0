//! Commits that a server answers before the node has them: with `sync_binlog=0`, the default with a binary log, or
//! with `innodb_flush_log_at_trx_commit=2`. On a local disk they are in the page cache, which a killed process does
//! not take with it; here they are in `.redoubt-unsent`.
//!
//! `REDOUBT_SOAK_ROUNDS` sets the number of rounds of kills (default: a handful), `REDOUBT_SEED` the seed.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use redoubt_harness::node::Node;
use redoubt_test_support::Mount;
use redoubt_test_support::setting;
use redoubt_workload::check::check_all;
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::ledger::{self, Entries, Options, Run};
use redoubt_workload::process::{Process, poll_until};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{connect, connect_for, connect_within, execute, query_text};

const VOLUME: &str = "early";
const PATIENCE: Duration = Duration::from_secs(120);
const FILE: &str = ".redoubt-unsent";
const EARLY: [&str; 3] = ["--log-bin", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2"];

struct Setup {
    // Dropped first.
    server: Server,
    node: Node,
}

/// A server that answers commits before they are durable, with a table.
fn setup() -> Setup {
    let node = Node::create(&find_redoubt().unwrap(), &[]).unwrap();
    node.create_volume(VOLUME).unwrap();
    let mut config = ServerConfig::new(node.launcher(VOLUME, Verify::All));
    config.server_args.extend(EARLY.map(str::to_owned));
    let server =
        Server::create(config).unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    server.query("CREATE DATABASE early").unwrap();
    server.query("CREATE TABLE early.answered (id INT PRIMARY KEY, a CHAR(8)) ENGINE=InnoDB").unwrap();
    insert(&server.socket(), 0..10);
    Setup { server, node }
}

fn insert(socket: &Path, ids: std::ops::Range<u32>) {
    let mut conn = connect(socket).unwrap();
    for id in ids {
        execute(&mut conn, &format!("INSERT INTO early.answered VALUES ({id}, 'answered')")).unwrap();
    }
}

/// Inserts rows until one is not answered, because it needs a page that the server has not read: the ids of those that
/// were.
fn insert_while_answered(socket: &Path, ids: std::ops::Range<u32>) -> std::ops::Range<u32> {
    let mut conn = connect_for(socket, Duration::from_secs(5)).unwrap();
    let insert = |id: &u32| {
        execute(&mut conn, &format!("INSERT INTO early.answered VALUES ({id}, 'answered')")).is_ok()
    };
    let end = ids.start + u32::try_from(ids.clone().take_while(insert).count()).unwrap();
    assert!(end > ids.start + 10, "{} rows of {ids:?} were answered", end - ids.start);
    ids.start..end
}

fn count(server: &Server) -> u32 {
    let found = server.query("SELECT COUNT(*) FROM early.answered WHERE a = 'answered'").unwrap();
    found[0][0].parse().unwrap()
}

/// Files in the data directory whose names begin as those of what is kept.
fn kept(server: &Server) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(server.datadir()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(FILE)).collect()
}

#[test]
fn what_was_answered_while_the_node_was_away_survives_a_kill_of_the_server() {
    let Setup { mut server, mut node } = setup();
    let mut answered = Vec::new();
    for round in 1..=3 {
        // A server that takes over has nothing to recover, so it has read hardly a page; and while the node is away it
        // can read none. So the pages that transactions need, of each of the 128 rollback segments, are read first.
        insert(&server.socket(), round * 1000..round * 1000 + 300);
        match round {
            1 => node.kill9().unwrap(),
            2 => node.stop().unwrap(),
            _ => node.halt().unwrap(),
        }
        answered.push(insert_while_answered(&server.socket(), round * 1000 + 300..round * 1000 + 400));
        server.kill9().unwrap();
        if round == 3 {
            // The bytes that its kernel has accepted for it are lost, too.
            node.kill9().unwrap();
        }
        node.start().unwrap();
        server.start().unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
        for ids in &answered {
            let filter = format!("id >= {} AND id < {}", ids.start, ids.end);
            let found = server.query(&format!("SELECT COUNT(*) FROM early.answered WHERE {filter}")).unwrap();
            assert_eq!(found, [[ids.len().to_string()]], "answered commits are lost: {filter}");
        }
    }
    check_all(&mut server.connect().unwrap()).unwrap();
    // A server that was shut down cleanly has left nothing: there is no message at the next start.
    server.shutdown().unwrap();
    let said =
        |server: &Server| server.error_log_tail(10_000).matches("the previous server here left").count();
    assert_eq!(said(&server), 3, "{}", server.error_log_tail(10_000));
    server.start().unwrap();
    assert_eq!(said(&server), 3);
    assert_eq!(kept(&server), [server.datadir().join(FILE)]);
}

#[test]
fn as_long_as_it_cannot_be_sent_nothing_is_attached_or_thrown_away() {
    let Setup { mut server, mut node } = setup();
    node.kill9().unwrap();
    insert(&server.socket(), 100..200);
    server.kill9().unwrap();
    let before = std::fs::read(server.datadir().join(FILE)).unwrap();
    let error = server.start().unwrap_err().to_string();
    assert!(error.contains("the previous server here left") && error.contains("cannot reach"), "{error}");
    assert!(std::fs::read(server.datadir().join(FILE)).unwrap() == before);

    // Nor with a file that is not understood: it may hold commits.
    node.start().unwrap();
    let generation = || node.status(VOLUME).unwrap()["volumes"][0]["generation"].as_u64();
    let attached = generation();
    let mut damaged = before.clone();
    damaged[50] ^= 1;
    std::fs::write(server.datadir().join(FILE), &damaged).unwrap();
    let error = server.start().unwrap_err().to_string();
    assert!(error.contains(FILE) && error.contains("damaged") && error.contains("move it out"), "{error}");
    assert_eq!(generation(), attached);
    std::fs::write(server.datadir().join(FILE), &before).unwrap();
    server.start().unwrap();
    assert_eq!(count(&server), 110);
}

#[test]
fn what_another_host_has_made_impossible_is_said_and_kept() {
    let Setup { mut server, mut node } = setup();
    node.kill9().unwrap();
    insert(&server.socket(), 100..200);
    server.kill9().unwrap();
    node.start().unwrap();
    let mut second = Server::new(server.config().clone()).unwrap();
    second.start().unwrap();
    let rows = count(&second);
    assert!(rows < 110, "nothing was lost, so nothing is tested");
    second.shutdown().unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    let log = server.error_log_tail(10_000);
    for part in ["may be lost", "was attached by", "Kept as"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let mut files = kept(&server);
    files.sort();
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(files[1].to_str().unwrap().contains("-generation-"), "{files:?}");
    // The message appears once only. The volume has the other server's data.
    assert_eq!(count(&server), rows);
    server.shutdown().unwrap();
    server.start().unwrap();
    assert_eq!(server.error_log_tail(10_000).matches("may be lost").count(), 1);
    assert_eq!(kept(&server).len(), 2);
}

/// `mariadbd-safe` starts a killed server again, under the `redoubt run` that started it: no attach in between.
#[test]
fn a_server_that_a_script_starts_again_sends_what_the_killed_one_left() {
    let Setup { mut server, mut node } = setup();
    server.shutdown().unwrap();
    let directory = server.directory().to_owned();
    let script = directory.join("mariadbd-safe");
    let text = "#!/bin/sh\nfor start in 1 2; do\n\
         shift_dir=$(dirname \"$0\")\n\
         mariadbd \"$@\" &\n\
         echo $! > \"$shift_dir/server.$start\"\n\
         wait\n\
         while [ ! -e \"$shift_dir/again\" ]; do sleep 0.05; done\n\
         done\n";
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let log = std::fs::File::options().append(true).open(server.error_log_path()).unwrap();
    let mut command = server.config().launcher.command(&script, &server.datadir());
    command
        .args(["--no-defaults", "--user=root", "--skip-networking"])
        .arg(format!("--datadir={}", server.datadir().display()))
        .arg(format!("--socket={}", server.socket().display()))
        .arg(format!("--tmpdir={}", directory.join("tmp").display()))
        .args(["--innodb-log-file-size=64M"])
        .args(EARLY)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    let mut process = Process::spawn("a script", &mut command).unwrap();
    let pid = |start: u32| {
        poll_until("the server's process", PATIENCE, || {
            let text = std::fs::read_to_string(directory.join(format!("server.{start}"))).unwrap_or_default();
            Ok(text.trim().parse::<i32>().ok())
        })
        .unwrap()
    };
    drop(connect_within(&server.socket(), PATIENCE).unwrap());
    let generation = node.status(VOLUME).unwrap()["volumes"][0]["generation"].as_u64();
    node.kill9().unwrap();
    insert(&server.socket(), 100..200);
    redoubt_workload::process::kill9(pid(1)).unwrap();
    node.start().unwrap();
    std::fs::remove_file(server.socket()).unwrap();
    std::fs::write(directory.join("again"), "").unwrap();
    let mut conn = connect_within(&server.socket(), PATIENCE)
        .unwrap_or_else(|error| panic!("{error}: {}", server.error_log_tail(30)));
    let rows = query_text(&mut conn, "SELECT COUNT(*) FROM early.answered").unwrap();
    assert_eq!(rows, [["110"]], "{}", server.error_log_tail(30));
    check_all(&mut conn).unwrap();
    assert_eq!(node.status(VOLUME).unwrap()["volumes"][0]["generation"].as_u64(), generation);
    let log = server.error_log_tail(200);
    assert!(log.contains("that an earlier process of this server had left"), "{log}");
    redoubt_workload::process::kill9(pid(2)).unwrap();
    process.wait(PATIENCE).unwrap();
}

#[test]
fn a_full_disk_is_said_before_anything_is_attached() {
    let node = Node::create(&find_redoubt().unwrap(), &[]).unwrap();
    node.create_volume(VOLUME).unwrap();
    let disk = match Mount::small_disk(32 << 20) {
        Ok(disk) => disk,
        Err(reason) => return redoubt_test_support::skip("a small disk", reason),
    };
    let mut server =
        Server::new_below(ServerConfig::new(node.launcher(VOLUME, Verify::All)), disk.path()).unwrap();
    let error = server.install_db().unwrap_err().to_string();
    assert!(error.contains(FILE) && error.contains("No space left"), "{error}");
    assert_eq!(node.status(VOLUME).unwrap()["volumes"][0]["generation"].as_u64(), Some(0));
    let left: Vec<_> = kept(&server);
    assert!(left.is_empty(), "{left:?}");
}

/// Server and node are killed at random moments; the node is away, hangs, or is just back when the server goes.
#[test]
fn no_commit_that_was_answered_early_is_lost_by_kills() {
    let rounds = setting("REDOUBT_SOAK_ROUNDS", 6);
    let mut random = fastrand::Rng::with_seed(setting("REDOUBT_SEED", 1));
    let node_args = ["--ring", "32MiB", "--batch", "1MiB", "--apply-interval", "1"];
    let mut node = Node::create(&find_redoubt().unwrap(), &node_args).unwrap();
    node.create_volume(VOLUME).unwrap();
    let mut config = ServerConfig::new(node.launcher(VOLUME, Verify::All));
    config.server_args.extend(["--log-bin", "--sync-binlog=0", "--max-binlog-size=8M"].map(str::to_owned));
    config.log_file_size_bytes = 16 << 20;
    config.buffer_pool_bytes = 32 << 20;
    let mut server = Server::create(config).unwrap();
    let file = server.directory().join("ledger");
    for round in 0..rounds {
        let options = Options { clients: 8, ..Options::default() };
        let run = Run::start(&server.socket(), &file, options).unwrap();
        run.wait_for_more(random.u64(30..3000), PATIENCE).unwrap();
        let shortly = |random: &mut fastrand::Rng| Duration::from_micros(random.u64(0..20_000));
        match round % 5 {
            0 => server.kill9().unwrap(),
            1 => {
                node.kill9().unwrap();
                run.run_for(shortly(&mut random));
                server.kill9().unwrap();
            }
            2 => {
                node.halt().unwrap();
                run.run_for(shortly(&mut random));
                server.kill9().unwrap();
                node.kill9().unwrap();
            }
            3 => {
                node.kill9().unwrap();
                node.start().unwrap();
                run.run_for(shortly(&mut random) * 20);
                server.kill9().unwrap();
            }
            _ => {
                server.kill9().unwrap();
                node.kill9().unwrap();
            }
        }
        if node.process_id().is_none() {
            node.start().unwrap();
        }
        server.start().unwrap_or_else(|error| {
            panic!(
                "round {round}: {error}\nserver: {}\nnode: {}",
                server.error_log_tail(20),
                node.log_tail(20)
            )
        });
        run.wait_for_more(20, PATIENCE).unwrap();
        run.stop().unwrap();
        let entries = Entries::read(&file).unwrap();
        let mut conn = server.connect().unwrap();
        ledger::verify(&mut conn, &entries)
            .unwrap()
            .require_sound()
            .unwrap_or_else(|error| panic!("round {round}, kind {}: {error}", round % 5));
        println!("round {round}: {} commits answered so far", entries.acknowledged());
    }
    check_all(&mut server.connect().unwrap()).unwrap();
    server.shutdown().unwrap();
    node.require_verified(VOLUME, 1).unwrap();
}
