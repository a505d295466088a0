//! The parser against the redo log of a real MariaDB server: every mini-transaction from the first byte of a
//! new database on, and a small log that has wrapped around many times.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use redoubt_redo::mariadb::record::{Body, Extended};
use redoubt_redo::mariadb::{LogScan, PageRun, RecordReader, ScanEnd, ScanStop};
use redoubt_redo::{FileRecord, Lsn, Mtr};

const MISSING: &str = "is needed for this test; install the package mariadb-server-core (MariaDB 10.11)";

/// A new data directory made by the server's own tool.
fn install_db(datadir: &Path, extra: &[&str]) {
    let output = Command::new("mariadb-install-db")
        .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
        .arg("--user=root")
        .arg(format!("--datadir={}", datadir.display()))
        .arg(format!("--tmpdir={}", datadir.parent().unwrap().display()))
        .args(extra)
        .output()
        .unwrap_or_else(|error| panic!("mariadb-install-db {MISSING}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "mariadb-install-db failed: {text}");
}

/// Run `sql` in a server without network until the statements end. Returns the end of the log that the
/// server found at its start.
fn run_sql(datadir: &Path, extra: &[&str], sql: &str) -> Lsn {
    let mut server = Command::new("mariadbd")
        .args(["--no-defaults", "--bootstrap", "--user=root"])
        .args(["--innodb-use-native-aio=OFF", "--innodb-log-file-mmap=OFF"])
        .arg(format!("--datadir={}", datadir.display()))
        // At its start a server deletes other servers' temporary tables from a shared directory.
        .arg(format!("--tmpdir={}", datadir.parent().unwrap().display()))
        .args(extra)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("mariadbd {MISSING}: {error}"));
    server.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
    let output = server.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "mariadbd failed: {text}");
    let lsn = text
        .rsplit_once("End of log at LSN=")
        .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
    Lsn(lsn.unwrap_or_else(|| panic!("no end of the log in the server's output: {text}")))
}

/// Content of a log.
#[derive(Default)]
struct Found {
    mtrs: u64,
    records: u64,
    runs: u64,
    kinds: BTreeMap<&'static str, u64>,
    last_checkpoint: Option<u64>,
}

fn kind(body: &Body<'_>) -> &'static str {
    match body {
        Body::FreePage => "FREE_PAGE",
        Body::InitPage => "INIT_PAGE",
        Body::Write { .. } => "WRITE",
        Body::Memset { .. } => "MEMSET",
        Body::Memmove { .. } => "MEMMOVE",
        Body::Extended(Extended::Insert(_)) => "INSERT",
        Body::Extended(Extended::UndoAppend { .. }) => "UNDO_APPEND",
        Body::Extended(_) => "other EXTENDED",
        Body::Option { .. } => "OPTION",
        Body::File(_) => "FILE",
    }
}

impl Found {
    fn add(&mut self, mtr: &Mtr<'_, '_>) {
        self.mtrs += 1;
        self.runs += mtr.runs.len() as u64;
        let mut in_records = 0;
        for record in RecordReader::new(mtr.records) {
            let body = record.unwrap().body;
            *self.kinds.entry(kind(&body)).or_default() += 1;
            in_records += 1;
            if let Body::File(FileRecord::Checkpoint { lsn }) = body {
                self.last_checkpoint = lsn;
            }
        }
        // The runs and the notes about files give each record once.
        let mut in_runs = mtr.files.len() as u64;
        for run in mtr.runs {
            for record in PageRun::new(mtr.run_bytes(run)).unwrap() {
                record.unwrap();
                in_runs += 1;
            }
        }
        assert_eq!(in_runs, in_records, "mini-transaction at LSN {}", mtr.start_lsn);
        self.records += in_records;
    }
}

/// Scan the log file from `start` (or its checkpoint) to the end.
fn scan(datadir: &Path, start: Option<Lsn>) -> (Found, ScanEnd, Lsn) {
    let image = std::fs::read(datadir.join("ib_logfile0")).unwrap();
    let scan = LogScan::open(image.as_slice()).unwrap();
    assert!(scan.header().creator.starts_with(b"MariaDB 10.11"), "{:?}", scan.header());
    let checkpoint_lsn = scan.checkpoint().checkpoint_lsn;
    let mut found = Found::default();
    let visitor = &mut |mtr: &Mtr<'_, '_>| found.add(mtr);
    let end = scan.walk(start.unwrap_or(checkpoint_lsn), visitor).unwrap();
    (found, end, checkpoint_lsn)
}

/// Statements, one a line, as the bootstrap server reads them. The table doubles `doublings` times.
fn load(doublings: u32) -> String {
    let mut sql = String::from(
        "CREATE DATABASE redo_test;\nUSE redo_test;\n\
         CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, n INT, v VARCHAR(200), KEY (n)) ENGINE=InnoDB;\n\
         CREATE TABLE b (id INT PRIMARY KEY, v BLOB) ENGINE=InnoDB ROW_FORMAT=REDUNDANT;\n\
         CREATE TABLE c (id INT PRIMARY KEY, v TEXT) ENGINE=InnoDB ROW_FORMAT=COMPRESSED;\n\
         INSERT INTO a (n, v) VALUES (1, 'one'), (2, REPEAT('two', 60));\n",
    );
    for _ in 0..doublings {
        sql.push_str("INSERT INTO a (n, v) SELECT id * 7, CONCAT(v, id) FROM a WHERE LENGTH(v) < 190;\n");
        sql.push_str("INSERT INTO a (n, v) SELECT n, 'x' FROM a;\n");
        sql.push_str("UPDATE a SET n = n + 3, v = CONCAT('u', id) WHERE id % 5 = 0;\n");
        sql.push_str("DELETE FROM a WHERE id % 11 = 0;\n");
    }
    sql.push_str("INSERT INTO b SELECT id, REPEAT(v, 90) FROM a LIMIT 500;\n");
    sql.push_str("INSERT INTO c SELECT id, REPEAT(v, 90) FROM a LIMIT 500;\n");
    sql.push_str("ALTER TABLE a ADD INDEX (v);\nRENAME TABLE b TO d;\nTRUNCATE c;\nDROP TABLE d;\n");
    sql
}

#[test]
fn everything_since_the_first_byte_of_a_new_database() {
    let dir = tempfile::tempdir().unwrap();
    let datadir = dir.path().join("data");
    install_db(&datadir, &[]);
    run_sql(&datadir, &[], &load(8));
    let (found, end, checkpoint_lsn) = scan(&datadir, Some(Lsn(12_288)));
    let server_end = run_sql(&datadir, &[], "");
    println!(
        "{} bytes, {} mini-transactions, {} records, {} runs: {:?}",
        end.end_lsn.0 - 12_288,
        found.mtrs,
        found.records,
        found.runs,
        found.kinds
    );
    assert_eq!(end, ScanEnd { end_lsn: server_end, stop: ScanStop::EndOfLog });
    // After a clean shutdown only FILE_CHECKPOINT (16 bytes) follows the checkpoint.
    assert_eq!(checkpoint_lsn.advance(16), end.end_lsn);
    assert_eq!(found.last_checkpoint, Some(checkpoint_lsn.0));
    for kind in ["FREE_PAGE", "INIT_PAGE", "WRITE", "MEMSET", "MEMMOVE", "INSERT", "UNDO_APPEND", "FILE"] {
        assert!(found.kinds.contains_key(kind), "no {kind} in {:?}", found.kinds);
    }
    assert!(found.records > 50_000, "{}", found.records);
}

#[test]
fn a_small_log_that_wrapped() {
    let dir = tempfile::tempdir().unwrap();
    let datadir = dir.path().join("data");
    install_db(&datadir, &[]);
    // No flush at shutdown, so that records remain after the checkpoint.
    let size = 4 * 1024 * 1024;
    let options = [
        &*format!("--innodb-log-file-size={size}"),
        "--innodb-log-buffer-size=2M",
        "--innodb-fast-shutdown=2",
    ];
    let start = run_sql(&datadir, &options[..2], "SELECT 1;\n");
    run_sql(&datadir, &options, &load(8));
    assert_eq!(std::fs::metadata(datadir.join("ib_logfile0")).unwrap().len(), size);
    let (found, end, checkpoint_lsn) = scan(&datadir, None);
    let server_end = run_sql(&datadir, &options, "");
    assert!(server_end.0 - start.0 > 2 * size, "the log wrapped: {start} to {server_end}");
    println!("{} bytes, {} mini-transactions", end.end_lsn.0 - checkpoint_lsn.0, found.mtrs);
    assert_eq!(end.end_lsn, server_end, "{end:?}");
    assert!(found.mtrs > 100, "{} mini-transactions from {checkpoint_lsn}", found.mtrs);
}
