//! The levels of innodb_force_recovery on a volume with damaged pages, beside a stock server on the same files.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::fs::File;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::node::Node;
use redoubt_page::{finalize, flags_of_page0};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::process::{poll_until, run_to_end};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;

const PAGE_LEN_BYTES: usize = 16384;

fn config(launcher: Launcher) -> ServerConfig {
    let mut config = ServerConfig::new(launcher).innodb_arg("--innodb-undo-tablespaces=2");
    config.log_file_size_bytes = 16 << 20;
    config.buffer_pool_bytes = 32 << 20;
    // A start that hangs on damage counts as none.
    config.ready_timeout = Duration::from_secs(30);
    config
}

fn redoubt(node: &Node, args: &[&str]) -> Outcome {
    let address = node.address().to_string();
    Outcome::of(node.redoubt_bin(), [args, &["--node", &address]].concat(), PATIENCE).unwrap()
}

fn copy(from: &Path, to: &Path) {
    run_to_end(Command::new("cp").arg("-a").arg(from).arg(to)).unwrap();
}

fn fill(server: &Server) {
    let mut conn = server.connect().unwrap();
    for statement in [
        "CREATE DATABASE shop",
        "USE shop",
        "CREATE TABLE good (id INT PRIMARY KEY, a INT, b VARCHAR(200), KEY (a)) ENGINE=InnoDB",
        "INSERT INTO good SELECT seq, seq % 97, REPEAT(MD5(seq), 4) FROM seq_1_to_5000",
        "CREATE TABLE bad (id INT PRIMARY KEY, b VARCHAR(200)) ENGINE=InnoDB STATS_PERSISTENT=0",
        "INSERT INTO bad SELECT seq, REPEAT(MD5(seq), 4) FROM seq_1_to_5000",
    ] {
        execute(&mut conn, statement).unwrap();
    }
}

/// A stopped server's directory with a transaction that was not rolled back, everything else in its pages.
fn with_an_open_transaction() -> Server {
    let mut server = Server::create(config(Launcher::Stock)).unwrap_or_else(|error| panic!("{error}"));
    fill(&server);
    let mut open = server.connect().unwrap();
    execute(&mut open, "BEGIN").unwrap();
    execute(&mut open, "UPDATE shop.bad SET b = 'open' WHERE id < 300").unwrap();
    // Makes it durable.
    execute(&mut server.connect().unwrap(), "CREATE TABLE shop.last (id INT PRIMARY KEY) ENGINE=InnoDB")
        .unwrap();
    server.kill9().unwrap();
    server.start_with(&["--innodb-force-recovery=3"]).unwrap();
    server.shutdown().unwrap();
    server
}

/// Overwrites what a page contains, after its header; its checksum is right.
fn damage(file: &Path, page_no: u64) {
    let file = File::options().read(true).write(true).open(file).unwrap();
    let mut page = vec![0; PAGE_LEN_BYTES];
    file.read_exact_at(&mut page, 0).unwrap();
    let flags = flags_of_page0(&page).unwrap();
    let offset = page_no * PAGE_LEN_BYTES as u64;
    file.read_exact_at(&mut page, offset).unwrap();
    page[120..PAGE_LEN_BYTES - 400].fill(0x5a);
    finalize(&mut page, flags).unwrap();
    file.write_all_at(&page, offset).unwrap();
}

/// A dump of the healthy table.
fn dump(server: &Server) -> Vec<Vec<String>> {
    let rows = server.query("SELECT * FROM shop.good ORDER BY id").unwrap();
    let by_index = server.query("SELECT a, COUNT(*) FROM shop.good FORCE INDEX (a) GROUP BY a").unwrap();
    [server.query("SHOW CREATE TABLE shop.good").unwrap(), rows, by_index].concat()
}

/// Starts it, reads the healthy table, and kills it; nothing if it does not start.
fn look(server: &mut Server, level: u8) -> Option<Vec<Vec<String>>> {
    let option = format!("--innodb-force-recovery={level}");
    let started = server.start_with(&[&option]);
    let read = started.is_ok().then(|| dump(server));
    match server.kill9() {
        // It has ended by itself.
        Err(_) if read.is_none() => {}
        other => other.unwrap(),
    }
    println!("level {level}: {}", started.map_or_else(|error| error.to_string(), |()| "started".to_owned()));
    read
}

/// The process of a view ends after the program that read it, and until then there is no export.
fn export(node: &Node, volume: &str, to: &Path) {
    poll_until("an export", PATIENCE, || {
        let outcome = redoubt(node, &["volume", "export", volume, "--to", to.to_str().unwrap()]);
        if outcome.stderr.contains("read as of a moment") {
            return Ok(None);
        }
        outcome.require_success().map(Some)
    })
    .unwrap();
}

fn beside_a_stock_server(levels: RangeInclusive<u8>, damage: impl Fn(&Path)) {
    let source = with_an_open_transaction();
    let directory = tempfile::tempdir().unwrap();
    damage(&source.datadir());
    let node = Node::create(&find_redoubt().unwrap(), &["--apply-interval", "1"]).unwrap();
    let path = |name: String| -> PathBuf { directory.path().join(name) };
    for level in levels {
        let volume = format!("v{level}");
        let from = source.datadir();
        redoubt(&node, &["volume", "import", &volume, "--from", from.to_str().unwrap()])
            .require_success()
            .unwrap();
        let beside = path(format!("stock{level}"));
        std::fs::create_dir(&beside).unwrap();
        copy(&source.datadir(), &beside.join("data"));
        let mut stock = Server::in_directory(config(Launcher::Stock), &beside).unwrap();
        let expected = look(&mut stock, level);
        println!(
            "level {level}: a stock server {}",
            if expected.is_some() { "starts" } else { "does not start" }
        );

        let (before, after) = (path(format!("before{level}")), path(format!("after{level}")));
        export(&node, &volume, &before);
        let mut server = Server::new(config(node.launcher(&volume, Verify::All))).unwrap();
        let found = look(&mut server, level);
        assert_eq!(found.is_some(), expected.is_some(), "level {level}: {}", server.error_log_tail(30));
        assert_eq!(found, expected, "level {level}: the healthy table");
        let attached = node.status(&volume).unwrap()["volumes"][0]["generation"].as_u64();
        if level < 4 {
            assert_eq!(attached, Some(1), "level {level}");
            continue;
        }
        assert!(expected.is_some(), "level {level}: {}", stock.error_log_tail(30));
        assert_eq!(attached, Some(0), "level {level} took the volume over");
        export(&node, &volume, &after);
        let same = Outcome::of(
            Path::new("diff"),
            ["-r", before.to_str().unwrap(), after.to_str().unwrap()],
            PATIENCE,
        );
        same.unwrap()
            .require_success()
            .unwrap_or_else(|error| panic!("level {level} changed the volume: {error}"));
        for used in [beside, before, after] {
            std::fs::remove_dir_all(used).unwrap();
        }
    }
}

/// The rows that a rollback at the start would have to change are no rows any more.
#[test]
fn damaged_index_page_is_recovered_as_by_a_stock_server() {
    beside_a_stock_server(1..=6, |datadir| {
        for page_no in 4..8 {
            damage(&datadir.join("shop/bad.ibd"), page_no);
        }
    });
}

/// A start reads these pages to find the open transactions: a stock server hangs over them up to level 4.
#[test]
fn damaged_undo_pages_are_recovered_as_by_a_stock_server() {
    beside_a_stock_server(5..=6, |datadir| {
        for name in ["undo001", "undo002"] {
            let file = datadir.join(name);
            let undo_log_pages = pages_of_type(&file, 2);
            assert!(!undo_log_pages.is_empty(), "{name} has no undo log pages");
            undo_log_pages.into_iter().for_each(|page_no| damage(&file, page_no));
        }
    });
}

/// Numbers of the pages that say they are of this type.
fn pages_of_type(file: &Path, wanted: u16) -> Vec<u64> {
    let bytes = std::fs::read(file).unwrap();
    let pages = bytes.chunks_exact(PAGE_LEN_BYTES).zip(0u64..);
    pages.filter(|(page, _)| page[24..26] == wanted.to_be_bytes()).map(|(_, page_no)| page_no).collect()
}

/// A copy of what was there is made first, and a second start with the same directory is refused before anything else.
#[test]
fn a_copy_is_kept_of_what_was_there() {
    let node = Node::create(&find_redoubt().unwrap(), &["--apply-interval", "1"]).unwrap();
    node.create_volume("v").unwrap();
    let mut server = Server::create(config(node.launcher("v", Verify::All))).unwrap();
    fill(&server);
    let expected = dump(&server);
    server.kill9().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("data");
    let options = ["--export-first", copy.to_str().unwrap()];
    server.config_mut().launcher = node.launcher_with("v", Verify::All, &options);
    server.start_with(&["--innodb-force-recovery=3"]).unwrap();
    execute(&mut server.connect().unwrap(), "DROP TABLE shop.good").unwrap();
    server.kill9().unwrap();
    let generation = node.status("v").unwrap()["volumes"][0]["generation"].clone();
    assert!(server.start_with(&["--innodb-force-recovery=3"]).is_err());
    let log = server.error_log_tail(5);
    assert!(log.contains("is not empty; export into a new or empty directory"), "{log}");
    assert_eq!(node.status("v").unwrap()["volumes"][0]["generation"], generation);
    let mut stock = Server::in_directory(config(Launcher::Stock), directory.path()).unwrap();
    stock.start().unwrap();
    assert_eq!(dump(&stock), expected);
}
