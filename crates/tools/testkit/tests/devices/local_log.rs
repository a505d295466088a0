//! Real servers without a storage node, their redo log in memory that is pretended to be persistent (tmpfs): no
//! acknowledged commit is lost by kills, and without the library a server starts on the same files.
//!
//! `REDOUBT_SOAK_ROUNDS` makes the crash tests longer, `REDOUBT_SEED` changes when servers are killed.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

mod refusals;

use std::path::{Path, PathBuf};
use std::time::Duration;

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::fetched::find_or_skip;
use redoubt_test_support::setting;
use redoubt_workload::check::check_all;
use redoubt_workload::launcher::{Launcher, find_redoubt};
use redoubt_workload::ledger::{self, Entries, Options, Run};
use redoubt_workload::process::poll_until;
use redoubt_workload::product::{FetchedServer, Product};
use redoubt_workload::server::{Server, ServerConfig};
use serde_json::Value;

/// Memory that is a file system.
const MEMORY: &str = "/dev/shm";

fn config(product: Product) -> ServerConfig {
    ServerConfig::new(Launcher::pretended_local_log().unwrap()).product(product)
}

/// Installed and started, with all of its files in memory.
fn server(config: ServerConfig) -> Server {
    let mut server = Server::new_below(config, Path::new(MEMORY)).unwrap();
    server.install_db().unwrap();
    start(&mut server);
    server
}

fn start(server: &mut Server) {
    let result = server.start();
    result.unwrap_or_else(|error| panic!("{error}\n{}", server.error_log_tail(30)));
}

/// The output of `redoubt status --local-log`.
fn status(datadir: &Path) -> Value {
    let datadir = datadir.to_str().unwrap();
    let args = ["status", "--local-log", "--json", "--datadir", datadir];
    let text = Outcome::of(&find_redoubt().unwrap(), args, PATIENCE).unwrap().require_success().unwrap();
    serde_json::from_str(&text).unwrap()
}

fn counter(status: &Value, name: &str) -> u64 {
    status["counters"][name].as_u64().unwrap_or_else(|| panic!("no counter {name} in {status}"))
}

/// The running server stores its redo into mapped files, and does not map them itself.
fn require_mapped(server: &Server) -> Value {
    let status = status(&server.datadir());
    assert_eq!(status["process_id"].as_u64(), server.process_id().map(u64::from), "{status}");
    assert_eq!(status["running"].as_bool(), Some(true), "{status}");
    assert!(status["persistence"].as_str().unwrap().starts_with("pretended"), "{status}");
    assert!(counter(&status, "mapped_writes") > 0 && counter(&status, "syncs_avoided") > 0, "{status}");
    assert_eq!(counter(&status, "failures"), 0, "{status}");
    let log = server.error_log_tail(500);
    // Of this start: without the library MariaDB does map it.
    let log = log.rsplit("--pretend-pmem").next().unwrap();
    assert!(!log.contains("(memory-mapped)"), "the server has mapped its log:\n{log}");
    status
}

fn require_sound(server: &Server, file: &Path) -> u64 {
    let entries = Entries::read(file).unwrap();
    let mut conn = server.connect().unwrap();
    let report = ledger::verify(&mut conn, &entries).unwrap().require_sound();
    let report = report.unwrap_or_else(|error| panic!("{error}\n{}", server.error_log_tail(30)));
    assert!(report.rows_found >= entries.acknowledged());
    check_all(&mut conn).unwrap();
    entries.acknowledged()
}

/// Kills the server again and again, and starts it with and without the library.
fn crash_rounds(config: ServerConfig, other_start: &Product) {
    let product = config.product.clone();
    let launcher = config.launcher.clone();
    let mut server = server(config);
    let mut random = fastrand::Rng::with_seed(setting("REDOUBT_SEED", 1));
    let file = server.directory().join("ledger");
    for round in 0..setting("REDOUBT_SOAK_ROUNDS", 4) {
        let with_library = round % 2 == 0;
        let run = Run::start(&server.socket(), &file, Options::default()).unwrap();
        run.wait_for_more(random.u64(50..600), PATIENCE).unwrap();
        if with_library {
            require_mapped(&server);
        }
        server.kill9().unwrap();
        // Without the library the server recovers from what its redo files hold, in its own format.
        server.config_mut().launcher = if with_library { Launcher::Stock } else { launcher.clone() };
        server.config_mut().product = if with_library { product.clone() } else { other_start.clone() };
        start(&mut server);
        run.wait_for_more(50, PATIENCE).unwrap();
        run.stop().unwrap();
        println!("round {round}: {} commits acknowledged so far", require_sound(&server, &file));
    }
    // An orderly end with the library, then a start without.
    server.shutdown().unwrap();
    server.config_mut().launcher = launcher;
    start(&mut server);
    require_sound(&server, &file);
    server.shutdown().unwrap();
    assert_eq!(status(&server.datadir())["running"].as_bool(), Some(false));
    server.config_mut().launcher = Launcher::Stock;
    start(&mut server);
    require_sound(&server, &file);
    server.shutdown().unwrap();
}

#[test]
fn mariadb_loses_no_acknowledged_commit_by_kills() {
    let mut config = config(Product::MariaDb);
    // Small, so that the log wraps around in the test.
    config.log_file_size_bytes = 8 << 20;
    crash_rounds(config, &Product::MariaDb);
}

#[test]
fn mariadb_11_8_loses_no_acknowledged_commit_by_kills() {
    let test = "mariadb_11_8_loses_no_acknowledged_commit_by_kills";
    let Some(server) = find_or_skip(FetchedServer::MariaDb118, test) else { return };
    let mut config = config(server.clone());
    config.log_file_size_bytes = 4 << 20;
    crash_rounds(config, &server.by_loader().unwrap());
}

#[test]
fn mysql_loses_no_acknowledged_commit_by_kills() {
    let Some(mysql) = find_or_skip(FetchedServer::MySql97, "mysql_loses_no_acknowledged_commit_by_kills")
    else {
        return;
    };
    let mut config = config(mysql.clone());
    // 32 files of 256 KiB: the server goes from one to the next all the time.
    config.log_file_size_bytes = 8 << 20;
    crash_rounds(config, &mysql.by_loader().unwrap());
}

/// Changes the size of the log under load and kills the server at once, and after the change.
fn resize(product: Product, variable: &str, sizes_mib: [u64; 3]) {
    let mut config = config(product);
    config.log_file_size_bytes = sizes_mib[0] << 20;
    let mut server = server(config);
    let file = server.directory().join("ledger");
    for (size_mib, wait) in [(sizes_mib[1], false), (sizes_mib[2], true)] {
        let run = Run::start(&server.socket(), &file, Options::default()).unwrap();
        run.wait_for_more(100, PATIENCE).unwrap();
        server.query(&format!("SET GLOBAL {variable} = {}", size_mib << 20)).unwrap();
        if wait {
            let want = (size_mib << 20).to_string();
            poll_until("the new size of the log", PATIENCE, || {
                let now = server.query(&format!("SELECT @@{variable}"))?;
                Ok((now == [[want.clone()]]).then_some(()))
            })
            .unwrap();
            run.wait_for_more(200, PATIENCE).unwrap();
        }
        require_mapped(&server);
        server.kill9().unwrap();
        run.stop().unwrap();
        start(&mut server);
        require_sound(&server, &file);
    }
    server.shutdown().unwrap();
    server.config_mut().launcher = Launcher::Stock;
    start(&mut server);
    require_sound(&server, &file);
    server.shutdown().unwrap();
}

#[test]
fn mariadb_resizes_its_log() {
    resize(Product::MariaDb, "innodb_log_file_size", [16, 24, 16]);
}

#[test]
fn mysql_resizes_its_log() {
    let Some(mysql) = find_or_skip(FetchedServer::MySql97, "mysql_resizes_its_log") else { return };
    resize(mysql, "innodb_redo_log_capacity", [16, 32, 8]);
}

#[test]
fn the_log_is_found_wherever_the_options_say() {
    let elsewhere = tempfile::tempdir_in(MEMORY).unwrap();
    let log = format!("--innodb-log-group-home-dir={}", elsewhere.path().display());
    // The data directory is on the disk, or wherever temporary files are; only the log is in memory.
    let mut server = Server::new(config(Product::MariaDb).innodb_arg(log)).unwrap();
    server.install_db().unwrap();
    start(&mut server);
    let file = server.directory().join("ledger");
    let run = Run::start(&server.socket(), &file, Options::default()).unwrap();
    run.wait_for_more(200, PATIENCE).unwrap();
    let status = require_mapped(&server);
    // It would have mapped the file itself: it takes this file system for persistent memory.
    assert!(counter(&status, "maps_refused") > 0, "{status}");
    server.kill9().unwrap();
    run.stop().unwrap();
    start(&mut server);
    require_sound(&server, &file);
    server.shutdown().unwrap();
}

/// Cuts the redo files under a running server: the mapped pages are gone, as those of a failed memory module are.
fn fail_under_the_server(product: Product, directory: &str) {
    let mut server = server(config(product));
    let file = server.directory().join("ledger");
    let run = Run::start(&server.socket(), &file, Options::default()).unwrap();
    run.wait_for_more(100, PATIENCE).unwrap();
    for path in redo_files(&server.datadir().join(directory)) {
        std::fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    }
    assert!(!server.wait_exit(Duration::from_secs(60)).unwrap(), "the server ended as if all was well");
    drop(run);
    let text = server.error_log_tail(400);
    assert_eq!(text.matches("[redoubt] redo file").count(), 1, "{text}");
    assert!(text.contains("persistent memory failed"), "{text}");
    assert_eq!(counter(&status(&server.datadir()), "failures"), 1);
}

/// The redo files that are in use.
fn redo_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = entries
        .filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name == "ib_logfile0" || name.starts_with("#ib_redo") && !name.ends_with("_tmp")
        })
        .collect();
    assert!(!files.is_empty());
    files
}

#[test]
fn mariadb_ends_when_its_log_fails() {
    fail_under_the_server(Product::MariaDb, ".");
}

#[test]
fn mysql_ends_when_its_log_fails() {
    let Some(mysql) = find_or_skip(FetchedServer::MySql97, "mysql_ends_when_its_log_fails") else { return };
    fail_under_the_server(mysql, "#innodb_redo");
}
