//! Replays the redo of a real MySQL server onto copies of its data directory, and compares every page with the server's
//! own files.
//!
//! A server is started on a copy, put under a load over all row formats, and stopped; its files then are compared with
//! the copy and its redo. There are three runs:
//! - with unlogged changes: indexes built in place, whose pages are named by INDEX_LOAD and left out;
//! - without unlogged changes;
//! - with a server that is killed under way, where each page is compared as of the LSN that it has in the file.
//!
//! Pages of ROW_FORMAT=COMPRESSED tables are only counted.
//!
//! Needs the server that `scripts/fetch-server` puts into `target/mysql-9.7`; without it the tests are skipped, with a message.

#![allow(clippy::unwrap_used)] // A test fails by panicking.

mod load;
mod log;
mod replay;
mod server;

use redoubt_locks::IgnorePoison;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use load::Options;
use redoubt_page::mysql::Flags;
use replay::{Replay, Report};
use server::Server;

/// Records that each part of a load has many of.
const COMMON: [&str; 14] = [
    "nBYTES",
    "WRITE_STRING",
    "INIT_FILE_PAGE2",
    "UNDO_INIT",
    "UNDO_INSERT",
    "UNDO_ERASE_END",
    "UNDO_HDR_CREATE",
    "PAGE_CREATE",
    "REC_INSERT",
    "REC_DELETE",
    "REC_CLUST_DELETE_MARK",
    "REC_SEC_DELETE_MARK",
    "REC_UPDATE_IN_PLACE",
    "LIST_END_DELETE",
];

fn compare(what: &str, base: &Path, end: &Path, as_written: bool) -> (Replay, Report) {
    let replay = Replay::new(base, end);
    let report = replay.compare(end, as_written);
    println!("{what}: {report:#?}");
    assert_eq!(report.differing, 0);
    assert!(report.changed >= 500, "{}", report.changed);
    for kind in COMMON {
        assert!(report.kinds.get(kind).is_some_and(|count| *count > 10), "no {kind} in the load");
    }
    (replay, report)
}

/// The server may be used, by this test alone: each makes gigabytes of log files, and takes all cores.
fn wait_for_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    assert!(server::is_there(), "there is no server in target/mysql-9.7: scripts/fetch-server mysql-9.7");
    TURN.lock().ignore_poison()
}

fn replay_and_compare(options: &Options) {
    let _turn = wait_for_turn();
    let mut server = Server::initialize(options);
    server.start();
    server.sql(&load::before(options));
    server.shut_down();
    let base = server.copy_data("base");

    server.start();
    server.sql_at_once(&load::first(options));
    server.shut_down();
    let first = server.copy_data("first");
    let (_, report) = compare("first part", &base, &first, false);
    assert!(report.without_redo > 10);
    for kind in [
        "LIST_START_DELETE",
        "LIST_END_COPY_CREATED",
        "PAGE_REORGANIZE",
        "IBUF_BITMAP_INIT",
        "UNDO_HDR_REUSE",
    ] {
        assert!(report.kinds.contains_key(kind), "no {kind} in the load");
    }
    std::fs::remove_dir_all(base).unwrap();

    server.start();
    server.sql_at_once(&load::second(options));
    server.shut_down();
    let second = server.copy_data("second");
    let (replay, report) = compare("second part", &first, &second, false);
    assert_eq!(report.without_redo, 0);
    std::fs::remove_dir_all(first).unwrap();
    if let Some(directory) =
        redoubt_test_support::setting_os("REDOUBT_FUZZ_SEEDS").filter(|_| options.page_size_bytes == 4096)
    {
        replay::write_seeds(&replay, Path::new(&directory), 0, Flags(0x40e1));
    }
    serve_replayed(&mut server, &replay, options);
}

fn kill_and_compare(options: &Options) {
    let _turn = wait_for_turn();
    let mut server = Server::initialize(options);
    server.start();
    server.sql(&load::before(options));
    server.shut_down();
    let base = server.copy_data("base");
    server.start();
    kill_under_load(&mut server, options);
    let killed = server.copy_data("killed");
    let (_, report) = compare("killed", &base, &killed, true);
    assert_eq!(report.without_redo, 0);
}

/// A stock server on the replayed pages finds its tables sound, and the same in them.
fn serve_replayed(server: &mut Server, replay: &Replay, options: &Options) {
    let copy = server.copy_data("replayed");
    let written = replay::write_back(replay, &copy);
    println!("{written} replayed pages given to a server");
    assert!(written > 500);
    let sums: Vec<String> = [server, &mut Server::on_copy(&copy, options)]
        .into_iter()
        .map(|server| {
            server.start();
            let statements = server.sql(load::TABLES).replace("\\n", "\n");
            let sums = server.sql(&statements) + &server.sql(load::DOCUMENTS);
            server.shut_down();
            sums
        })
        .collect();
    assert!(sums[0].lines().count() > 50, "{}", sums[0]);
    for line in sums[0].lines().filter(|line| line.contains("\tcheck\t")) {
        assert!(line.ends_with("\tOK"), "{line}");
    }
    assert_eq!(sums[0], sums[1]);
}

/// Kill the server while it works, when it has been writing pages for a while.
fn kill_under_load(server: &mut Server, options: &Options) {
    let scripts = load::endless(options);
    std::thread::scope(|scope| {
        let shared = &*server;
        for script in &scripts {
            scope.spawn(|| shared.try_sql(script));
        }
        std::thread::sleep(Duration::from_secs(40));
        server::kill_of(shared);
    });
    server.kill();
}

const PAGES_16K: Options = Options { page_size_bytes: 16384, rows: 2500 };
const PAGES_4K: Options = Options { page_size_bytes: 4096, rows: 1200 };
const PAGES_64K: Options = Options { page_size_bytes: 65536, rows: 1800 };

#[test]
#[ignore = "make batteries"]
fn page_size_16k() {
    replay_and_compare(&PAGES_16K);
}

#[test]
#[ignore = "make batteries"]
fn page_size_16k_killed() {
    kill_and_compare(&PAGES_16K);
}

#[test]
#[ignore = "make batteries"]
fn page_size_4k() {
    replay_and_compare(&PAGES_4K);
}

#[test]
#[ignore = "make batteries"]
fn page_size_4k_killed() {
    kill_and_compare(&PAGES_4K);
}

#[test]
#[ignore = "make batteries"]
fn page_size_64k() {
    replay_and_compare(&PAGES_64K);
}

#[test]
#[ignore = "make batteries"]
fn page_size_64k_killed() {
    kill_and_compare(&PAGES_64K);
}
