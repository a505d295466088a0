//! IMPORT TABLESPACE of a large table beside other sessions: they go on, and the table crosses the network once.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redoubt_harness::battery;
use redoubt_harness::command::PATIENCE;
use redoubt_harness::node::Node;
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::process::poll_until;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;

const VOLUME: &str = "import";
/// Four rows fill a page: about 310 MB.
const ROWS: u64 = 70_000;
const TABLE: &str =
    "CREATE TABLE d.t (id INT PRIMARY KEY, k INT, b VARCHAR(4000), KEY by_k (k)) ENGINE=InnoDB";
const SUM: &str = "CHECKSUM TABLE d.t EXTENDED";
/// Parts of the imported bytes. Other sessions work in each of them.
const PARTS: u64 = 5;

/// A stock server whose table can be copied as long as the connection is open.
fn donor() -> Server {
    let mut config = ServerConfig::new(Launcher::Stock);
    config.innodb_args = battery::config(Launcher::Stock).innodb_args;
    config.server_args.push("--innodb-flush-log-at-trx-commit=0".into());
    let donor = Server::create(config).unwrap();
    let mut conn = donor.connect().unwrap();
    execute(&mut conn, "CREATE DATABASE d").unwrap();
    execute(&mut conn, "USE d").unwrap();
    execute(&mut conn, TABLE).unwrap();
    let rows = format!("INSERT INTO d.t SELECT seq, seq % 1000, REPEAT(MD5(seq), 115) FROM seq_1_to_{ROWS}");
    execute(&mut conn, &rows).unwrap();
    donor
}

/// Does this again and again until told to stop, and counts the statements.
fn repeat(server: &Server, stop: &AtomicBool, done: &AtomicU64, statements: impl Fn(u64) -> Vec<String>) {
    let mut conn = server.connect().unwrap();
    for round in 0.. {
        for statement in statements(round) {
            execute(&mut conn, &statement).unwrap();
            done.fetch_add(1, Ordering::AcqRel);
        }
        if stop.load(Ordering::Acquire) {
            return;
        }
    }
}

/// Ends the sessions, also after a failure beside them.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Does something beside a session that commits and one that defines tables, which both are at work.
fn beside_sessions<T>(server: &Server, does: impl FnOnce(&[AtomicU64; 2]) -> T) -> T {
    let (stop, done) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    std::thread::scope(|scope| {
        scope.spawn(|| repeat(server, &stop, &done[0], |_| vec!["INSERT INTO d.c (a) VALUES (1)".into()]));
        scope.spawn(|| {
            repeat(server, &stop, &done[1], |round| {
                vec![
                    format!("CREATE TABLE d.n{round} (id INT PRIMARY KEY) ENGINE=Aria"),
                    format!("DROP TABLE d.n{round}"),
                    "FLUSH BINARY LOGS".into(),
                ]
            });
        });
        let _end = End(&stop);
        poll_until("sessions at work", PATIENCE, || {
            Ok(done.iter().all(|count| count.load(Ordering::Acquire) > 0).then_some(()))
        })
        .unwrap();
        does(&done)
    })
}

/// Length of the volume's durable stream, and statements of both sessions so far.
#[derive(Debug)]
struct Sample {
    durable_bytes: u64,
    done: [u64; 2],
}

impl Sample {
    fn take(node: &Node, done: &[AtomicU64; 2]) -> Self {
        let status = node.status(VOLUME).unwrap();
        let durable_bytes = status["volumes"][0]["d_seq"].as_u64().unwrap();
        Self { durable_bytes, done: done.each_ref().map(|count| count.load(Ordering::Acquire)) }
    }
}

/// Imports the table. Samples from before it to after it.
fn import(server: &Server, node: &Node, done: &[AtomicU64; 2]) -> Vec<Sample> {
    let mut samples = vec![Sample::take(node, done)];
    std::thread::scope(|scope| {
        let importing = scope.spawn(|| {
            execute(&mut server.connect().unwrap(), "ALTER TABLE d.t IMPORT TABLESPACE").unwrap();
        });
        poll_until("the end of the import", PATIENCE, || {
            let is_over = importing.is_finished();
            samples.push(Sample::take(node, done));
            Ok(is_over.then_some(()))
        })
        .unwrap();
        importing.join().unwrap();
    });
    samples
}

/// Each session has ended a statement in each part of the bytes that an import sent. Sessions that wait for most of an import
/// have not, however fast the machine is.
fn require_progress(samples: &[Sample], imported_bytes: u64) {
    let (start, end) = (samples[0].durable_bytes, samples[samples.len() - 1].durable_bytes);
    assert!(end - start > imported_bytes / 2, "{start}..{end} for {imported_bytes} bytes");
    assert!(samples.len() as u64 > PARTS, "{samples:?}");
    let bound = |part: u64| start + (end - start) * part / PARTS;
    for part in 0..PARTS {
        let before = samples.iter().rfind(|sample| sample.durable_bytes <= bound(part)).unwrap();
        let after = samples.iter().find(|sample| sample.durable_bytes >= bound(part + 1)).unwrap();
        println!("part {part}: {before:?}, {after:?}");
        for (before, after) in before.done.into_iter().zip(after.done) {
            assert!(after > before, "a session did nothing in part {part} of {PARTS}: {samples:?}");
        }
    }
}

/// Bytes that the library sent and received so far, once two looks agree.
fn crossed(node: &Node) -> (u64, u64) {
    let look = || {
        let status = node.status(VOLUME).unwrap();
        let of = |name: &str| status["volumes"][0]["server_counters"][name].as_u64().unwrap();
        (of("sent_bytes"), of("received_bytes"), of("image_bytes"))
    };
    // The library counts in its own time. Images are what an import sends; a server at rest writes little else.
    let deadline = Instant::now() + PATIENCE;
    let mut before = look();
    loop {
        std::thread::sleep(Duration::from_millis(600));
        let now = look();
        if now.2 == before.2 && now.0 - before.0 < 1 << 20 {
            return (now.0, now.1);
        }
        assert!(Instant::now() < deadline, "the server does not come to rest: {now:?}");
        before = now;
    }
}

#[test]
fn other_sessions_go_on_while_a_large_table_is_imported_and_it_crosses_the_network_once() {
    let donor = donor();
    let mut donor_conn = donor.connect().unwrap();
    let expected = donor.query(SUM).unwrap();
    execute(&mut donor_conn, "FLUSH TABLES d.t FOR EXPORT").unwrap();

    let node = Node::create(&find_redoubt().unwrap(), &["--ring", "64MiB", "--batch", "16MiB"]).unwrap();
    node.create_volume(VOLUME).unwrap();
    let mut config = battery::config(node.launcher(VOLUME, Verify::OneIn(50)));
    config.server_args.push("--log-bin=changes".into());
    let mut server = Server::create(config).unwrap();
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "CREATE DATABASE d").unwrap();
    execute(&mut conn, TABLE).unwrap();
    execute(&mut conn, "CREATE TABLE d.c (id INT PRIMARY KEY AUTO_INCREMENT, a INT) ENGINE=InnoDB").unwrap();
    execute(&mut conn, "ALTER TABLE d.t DISCARD TABLESPACE").unwrap();
    let mut table_bytes = 0;
    for extension in ["ibd", "cfg"] {
        let name = format!("d/t.{extension}");
        let len = std::fs::copy(donor.datadir().join(&name), server.datadir().join(&name)).unwrap();
        table_bytes += len;
    }
    assert!(table_bytes > 200 << 20, "{table_bytes}");

    let before = crossed(&node);
    let samples = beside_sessions(&server, |done| import(&server, &node, done));
    let after = crossed(&node);
    let (sent, received) = (after.0 - before.0, after.1 - before.1);
    let per_byte = |bytes: u64| bytes as f64 / table_bytes as f64;
    println!(
        "table {table_bytes} bytes; per byte of the table {:.2} sent, {:.2} received",
        per_byte(sent),
        per_byte(received)
    );

    assert_eq!(server.query(SUM).unwrap(), expected);
    assert!(per_byte(sent + received) < 1.3, "sent {sent}, received {received} for {table_bytes}");
    require_progress(&samples, table_bytes);

    // And it is durable: pages of the volume alone make it up after a crash.
    execute(&mut conn, "UPDATE d.t SET k = k + 1 WHERE id % 1000 = 0").unwrap();
    let changed = server.query(SUM).unwrap();
    assert_ne!(changed, expected);
    server.kill9().unwrap();
    server.empty_data_directory().unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    assert_eq!(server.query(SUM).unwrap(), changed);
    server.shutdown().unwrap();
}

/// Sets the flags of page 0. The server reads them before it verifies any checksum.
fn set_flags(path: &std::path::Path, flags: u32) {
    const FLAGS_OFFSET: usize = 54;
    let mut file = std::fs::read(path).unwrap();
    file[FLAGS_OFFSET..FLAGS_OFFSET + 4].copy_from_slice(&flags.to_be_bytes());
    std::fs::write(path, file).unwrap();
}

/// The server's errors for tablespace files with unknown flags; the right file is accepted.
fn foreign_files(server: &Server) -> Vec<String> {
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "CREATE DATABASE f").unwrap();
    execute(&mut conn, "CREATE TABLE f.t (id INT PRIMARY KEY) ENGINE=InnoDB").unwrap();
    execute(&mut conn, "INSERT INTO f.t VALUES (1), (2)").unwrap();
    let (file, kept) = (server.datadir().join("f/t.ibd"), server.directory().join("t.ibd"));
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        std::fs::copy(from, to).unwrap();
    };
    execute(&mut conn, "FLUSH TABLES f.t FOR EXPORT").unwrap();
    copy(&file, &kept);
    execute(&mut conn, "UNLOCK TABLES").unwrap();
    execute(&mut conn, "ALTER TABLE f.t DISCARD TABLESPACE").unwrap();
    let mut said = Vec::new();
    // Of MySQL 8, and with unassigned bits.
    for flags in [0x4021, 0x0004_0000] {
        copy(&kept, &file);
        set_flags(&file, flags);
        let import = execute(&mut conn, "ALTER TABLE f.t IMPORT TABLESPACE").unwrap_err();
        said.push(import.to_string());
        assert!(server.query("SELECT COUNT(*) FROM f.t").is_err(), "it has no tablespace");
    }
    copy(&kept, &file);
    execute(&mut conn, "ALTER TABLE f.t IMPORT TABLESPACE").unwrap();
    assert_eq!(server.query("SELECT COUNT(*) FROM f.t").unwrap(), [["2"]]);
    said
}

#[test]
fn of_a_tablespace_file_that_is_not_known_here_the_server_itself_says_what_is_wrong() {
    let stock = Server::create(ServerConfig::new(Launcher::Stock)).unwrap();
    let node = Node::create(&find_redoubt().unwrap(), &[]).unwrap();
    node.create_volume(VOLUME).unwrap();
    let mut server = Server::create(ServerConfig::new(node.launcher(VOLUME, Verify::All))).unwrap();
    let (expected, said) = (foreign_files(&stock), foreign_files(&server));
    println!("{said:#?}");
    assert_eq!(said, expected);
    let all = server.query("SELECT * FROM f.t").unwrap();
    server.kill9().unwrap();
    server.empty_data_directory().unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    assert_eq!(server.query("SELECT * FROM f.t").unwrap(), all);
    server.shutdown().unwrap();
}

/// A byte of a page that only a look at its checksum shows.
fn damage(path: &std::path::Path, page_no: usize, page_len_bytes: usize) {
    let mut file = std::fs::read(path).unwrap();
    file[page_no * page_len_bytes + 3000] ^= 0x5a;
    std::fs::write(path, file).unwrap();
}

/// Imports of a file with a damaged page fail, as often as they are tried; that of the whole file does not.
fn damaged_files(server: &Server) {
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "CREATE DATABASE d").unwrap();
    execute(&mut conn, "USE d").unwrap();
    for (format, page_len_bytes) in [("COMPRESSED", 8192), ("DYNAMIC", 16384)] {
        let create = format!("CREATE TABLE t (id INT PRIMARY KEY, b TEXT) ENGINE=InnoDB ROW_FORMAT={format}");
        execute(&mut conn, &create).unwrap();
        execute(&mut conn, "INSERT INTO t SELECT seq, REPEAT(MD5(seq), 3) FROM seq_1_to_20000").unwrap();
        let (file, kept) = (server.datadir().join("d/t.ibd"), server.directory().join("t.ibd"));
        execute(&mut conn, "FLUSH TABLES t FOR EXPORT").unwrap();
        std::fs::copy(&file, &kept).unwrap();
        execute(&mut conn, "UNLOCK TABLES").unwrap();
        execute(&mut conn, "ALTER TABLE t DISCARD TABLESPACE").unwrap();
        for page_no in [20, 0, 3] {
            std::fs::copy(&kept, &file).unwrap();
            damage(&file, page_no, page_len_bytes);
            for attempt in 0..2 {
                let import = execute(&mut conn, "ALTER TABLE t IMPORT TABLESPACE");
                println!("{format}, page {page_no}, {attempt}: {import:?}");
                assert!(import.is_err(), "{format}, {page_no}, {attempt}: {}", server.error_log_tail(20));
                assert!(server.query("SELECT COUNT(*) FROM d.t").is_err(), "it has no tablespace");
            }
            std::fs::remove_file(&file).unwrap();
        }
        std::fs::copy(&kept, &file).unwrap();
        execute(&mut conn, "ALTER TABLE t IMPORT TABLESPACE").unwrap();
        let sum = server.query("SELECT COUNT(*), SUM(LENGTH(b)) FROM d.t").unwrap();
        assert_eq!(sum, [["20000", "1920000"]], "{format}");
        execute(&mut conn, "DROP TABLE t").unwrap();
    }
}

#[test]
fn a_damaged_page_of_a_file_that_was_copied_in_is_noticed() {
    damaged_files(&Server::create(ServerConfig::new(Launcher::Stock)).unwrap());
    let node = Node::create(&find_redoubt().unwrap(), &[]).unwrap();
    node.create_volume(VOLUME).unwrap();
    let mut server = Server::create(ServerConfig::new(node.launcher(VOLUME, Verify::All))).unwrap();
    damaged_files(&server);
    server.shutdown().unwrap();
}
