//! MySQL's clone plugin: a server on a volume gives whole clones, whatever is written meanwhile, and is not replaced by
//! one of another.

use super::{Fixture, VOLUME, contents};
use redoubt_harness::battery::Restart;
use redoubt_harness::tcp_server::{create_with_tcp, start_with_tcp};
use redoubt_workload::launcher::Launcher;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{Conn, execute, query_text};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PLUGIN: &str = "--plugin-load-add=mysql_clone.so";

/// A stock server, with the plugin.
fn stock(like: &Fixture) -> Server {
    let mut config = ServerConfig::new(Launcher::Stock).product(like.product.clone());
    config.server_args.push(PLUGIN.to_owned());
    Server::create(config).unwrap()
}

/// Has `recipient` clone the server at the port; `to`: into another directory than its own.
fn clone(recipient: &mut Conn, port: u16, to: Option<&Path>) -> Result<(), String> {
    let to = to.map(|to| format!(" DATA DIRECTORY '{}'", to.display())).unwrap_or_default();
    let statement = format!("CLONE INSTANCE FROM 'c'@'127.0.0.1':{port} IDENTIFIED BY 'p'{to}");
    execute(recipient, &format!("SET GLOBAL clone_valid_donor_list = '127.0.0.1:{port}'")).unwrap();
    execute(recipient, &statement).map_err(|error| error.to_string())
}

/// Accounts between which money moves, and the history of that; and a user who may clone.
fn prepare(fixture: &Fixture) {
    let mut conn = fixture.connect();
    let accounts: Vec<_> = (0..500).map(|id| format!("({id}, 1000, REPEAT('z', 500))")).collect();
    for statement in [
        "CREATE DATABASE bank",
        "CREATE TABLE bank.a (id INT PRIMARY KEY, v INT, f VARCHAR(2500))",
        "CREATE TABLE bank.h (id INT PRIMARY KEY AUTO_INCREMENT, f INT, s VARCHAR(1000), KEY (f))",
        &format!("INSERT INTO bank.a VALUES {}", accounts.join(", ")),
        "CREATE USER 'c'@'127.0.0.1' IDENTIFIED BY 'p'",
        "GRANT BACKUP_ADMIN ON *.* TO 'c'@'127.0.0.1'",
    ] {
        fixture.execute(&mut conn, statement);
    }
}

fn move_money(server: &Server, seed: u64, ended: &AtomicBool, moves: &AtomicU64) {
    let mut conn = server.connect().unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    while !ended.load(Ordering::Relaxed) {
        // In the order of their ids: no deadlocks.
        let from = random.u32(..499);
        let (to, sum) = (random.u32(from + 1..500), random.u32(..100));
        for statement in [
            "BEGIN",
            &format!("UPDATE bank.a SET v = v - {sum}, f = REPEAT('f', {}) WHERE id = {from}", sum * 20),
            &format!("UPDATE bank.a SET v = v + {sum} WHERE id = {to}"),
            &format!("INSERT INTO bank.h (f, s) VALUES ({from}, REPEAT('s', {}))", sum * 9),
            "COMMIT",
        ] {
            execute(&mut conn, statement).unwrap();
        }
        moves.fetch_add(1, Ordering::Relaxed);
    }
}

/// A clone is files, then pages that were changed meanwhile, then the redo of all that time. The donor reads the redo
/// from its own log files while it writes to them: from its last checkpoint on, which is before the plugin was there.
#[test]
fn clones_of_a_server_under_load_are_whole() {
    let Some(mut fixture) = Fixture::with("clones_of_a_server_under_load_are_whole", |config| {
        config.log_file_size_bytes = 8 << 20;
        // Pages are written while they are cloned.
        config.buffer_pool_bytes = 8 << 20;
    }) else {
        return;
    };
    fixture.server.shutdown().unwrap();
    let port = start_with_tcp(&mut fixture.server).unwrap();
    prepare(&fixture);
    let recipient = stock(&fixture);
    let directory = tempfile::Builder::new().prefix("rdtc-").tempdir().unwrap();
    let clones: Vec<_> = (1..=4).map(|number| directory.path().join(format!("clone{number}/data"))).collect();
    let (ended, moves) = (AtomicBool::new(false), AtomicU64::new(0));
    let since_clone: Vec<_> = std::thread::scope(|scope| {
        for seed in 1..=4 {
            let (server, ended, moves) = (&fixture.server, &ended, &moves);
            scope.spawn(move || move_money(server, seed, ended, moves));
        }
        fixture.execute(&mut fixture.connect(), "INSTALL PLUGIN clone SONAME 'mysql_clone.so'");
        let made = clones.iter().map(|to| {
            std::fs::create_dir(to.parent().unwrap()).unwrap();
            let before = moves.load(Ordering::Relaxed);
            clone(&mut recipient.connect().unwrap(), port, Some(to))
                .map(|()| (before, moves.load(Ordering::Relaxed)))
        });
        let made = made.collect();
        ended.store(true, Ordering::Relaxed);
        made
    });
    for (data, moved) in clones.iter().zip(since_clone) {
        let (before, after) =
            moved.unwrap_or_else(|error| panic!("{error}\n{}", fixture.server.error_log_tail(20)));
        assert!(after > before, "nothing was written meanwhile");
        require_whole(&fixture, data, before..=after + 4);
    }
    fixture.restart(Restart::KillAndAttach);
    let sum = query_text(&mut fixture.connect(), "SELECT SUM(v) FROM bank.a").unwrap();
    assert_eq!(sum, [["500000"]]);
    fixture.node.require_verified(VOLUME, 1).unwrap();
}

/// A stock server starts on the clone without a complaint and finds all tables sound, and as many moves as were made.
fn require_whole(fixture: &Fixture, data: &Path, moves: std::ops::RangeInclusive<u64>) {
    let config = ServerConfig::new(Launcher::Stock).product(fixture.product.clone());
    let mut server = Server::in_directory(config, data.parent().unwrap()).unwrap();
    server.start().unwrap_or_else(|error| panic!("{}: {error}", data.display()));
    assert_eq!(server.error_lines(), Vec::<String>::new());
    let mut conn = server.connect().unwrap();
    contents(&mut conn);
    assert_eq!(query_text(&mut conn, "SELECT SUM(v) FROM bank.a").unwrap(), [["500000"]]);
    let found: u64 = query_text(&mut conn, "SELECT COUNT(*) FROM bank.h").unwrap()[0][0].parse().unwrap();
    assert!(moves.contains(&found), "{found} moves of {moves:?}");
    server.shutdown().unwrap();
}

/// A clone in the place of the server's own files would change its redo log for another one, behind the library's back.
/// It is refused before the server has dropped anything of its own.
#[test]
fn a_server_on_a_volume_is_not_replaced_by_a_clone() {
    let Some(mut fixture) = Fixture::with("a_server_on_a_volume_is_not_replaced_by_a_clone", |config| {
        config.log_file_size_bytes = 8 << 20;
        config.server_args.push(PLUGIN.to_owned());
    }) else {
        return;
    };
    prepare(&fixture);
    let mut config = ServerConfig::new(Launcher::Stock).product(fixture.product.clone());
    config.server_args.push(PLUGIN.to_owned());
    let (donor, port) = create_with_tcp(config).unwrap();
    let mut there = donor.connect().unwrap();
    execute(&mut there, "CREATE USER 'c'@'127.0.0.1' IDENTIFIED BY 'p'").unwrap();
    execute(&mut there, "GRANT BACKUP_ADMIN ON *.* TO 'c'@'127.0.0.1'").unwrap();
    let mut conn = fixture.connect();
    let expected = contents(&mut conn);
    let elsewhere = tempfile::tempdir().unwrap();
    for to in [None, Some(elsewhere.path().join("clone"))] {
        let said = clone(&mut conn, port, to.as_deref()).unwrap_err();
        println!("{said}");
        assert_eq!(contents(&mut conn), expected, "{to:?}");
    }
    fixture.restart_with_same(Restart::KillAndAttach, &mut conn);
    fixture.restart_with_same(Restart::Clean, &mut conn);
    let log = std::fs::read_to_string(fixture.server.error_log_path()).unwrap();
    let refusals: Vec<_> =
        log.lines().filter(|line| line.contains("a clone of a server cannot be made")).collect();
    assert_eq!(refusals.len(), 2, "{log}");
}
