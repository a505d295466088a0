//! Replays the redo of a real MySQL server onto copies of its data directory and compares every page with the server's
//! own files.

#![allow(clippy::unwrap_used)] // A test fails by panicking.

mod load;
mod log;
mod replay;
mod server;

use load::Options;
use server::Server;

#[test]
fn make_fixture() {
    let options = Options { page_size_bytes: 16384 };
    let mut server = Server::initialize(&options);
    server.start();
    server.sql(&load::before(&options));
    server.shut_down();
    server.copy_data("base1");
    server.start();
    server.sql_at_once(&load::first(&options));
    server.shut_down();
    server.copy_data("base2");
    server.start();
    server.sql_at_once(&load::second(&options));
    server.shut_down();
    server.copy_data("final2");
    println!("{}", server.data_dir().display());
    std::mem::forget(server);
}

#[test]
fn compare_fixture() {
    let dir = std::path::PathBuf::from(std::env::var("FIXTURE").unwrap());
    for (base, end) in [("base1", "base2"), ("base2", "final2")] {
        let replay = replay::Replay::new(&dir.join(base), &dir.join(end));
        let report = replay.compare(&dir.join(end), false);
        println!("{base}: {report:#?}");
    }
}
