//! In and out: a stock server's data directory becomes a volume, and a volume becomes a stock data directory, with
//! the same contents each time.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use redoubt_harness::battery::{self, Schedule};
use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::features::{self, Feature};
use redoubt_harness::node::Node;
use redoubt_workload::check::{Snapshot, check_all, finish_purge};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::ledger::{self, Entries, Options, Run};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{execute, query_text};

/// The layout of the battery's servers; see `features::INNODB_ARGS`.
const TWO_FILES: &str = "ibdata1:12M;ibdata2:4M:autoextend";

/// Features whose pages are stored differently, or elsewhere.
const FEATURES: [&str; 11] = [
    "redundant",
    "compressed_1k",
    "compressed_8k",
    "page_compressed",
    "off_page",
    "system_tablespace",
    "fulltext",
    "spatial",
    "generated",
    "partitions",
    "versioned",
];

fn some_features() -> Vec<Feature> {
    let chosen: Vec<_> =
        features::all().into_iter().filter(|feature| FEATURES.contains(&feature.name)).collect();
    assert_eq!(chosen.len(), FEATURES.len());
    chosen
}

fn node() -> Node {
    Node::create(&find_redoubt().unwrap(), &["--ring", "64MiB", "--batch", "1MiB", "--apply-interval", "1"])
        .unwrap_or_else(|error| panic!("{error}"))
}

fn redoubt(node: &Node, args: &[&str]) -> String {
    let address = node.address().to_string();
    let args = [args, &["--node", &address]].concat();
    let outcome = Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap();
    let said =
        outcome.require_success().unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    println!("{}", said.trim_end());
    said
}

fn import(node: &Node, volume: &str, from: &Path, data_file_path: Option<&str>) {
    let mut args = vec!["volume", "import", volume, "--from", from.to_str().unwrap()];
    if let Some(spec) = data_file_path {
        args.extend(["--innodb-data-file-path", spec]);
    }
    redoubt(node, &args);
}

fn export(node: &Node, volume: &str, directory: &tempfile::TempDir, name: &str) -> PathBuf {
    let target = directory.path().join(name);
    std::fs::create_dir(&target).unwrap();
    let data = target.join("data");
    redoubt(node, &["volume", "export", volume, "--to", data.to_str().unwrap()]);
    target
}

/// A server with the arguments of `like`, on a volume.
fn attach(node: &Node, volume: &str, like: &Server) -> Server {
    let mut config = like.config().clone();
    config.launcher = node.launcher(volume, Verify::All);
    let mut server = Server::new(config).unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    server
}

/// Contents of all tables, users and grants, of a sound server.
fn contents(server: &Server) -> Snapshot {
    let mut conn = server.connect().unwrap();
    finish_purge(&mut conn).unwrap();
    check_all(&mut conn).unwrap_or_else(|error| panic!("{error}\n{}", server.error_log_tail(20)));
    let mut snapshot = Snapshot::take(&mut conn, None, &[]).unwrap();
    let accounts = "SELECT * FROM mysql.global_priv ORDER BY User, Host";
    snapshot.probes.insert("accounts".into(), query_text(&mut conn, accounts).unwrap());
    let aria = "CHECK TABLE plain.aria, plain.myisam EXTENDED";
    if snapshot.checksums.keys().any(|table| table.starts_with("plain.")) {
        snapshot.probes.insert("plain tables".into(), query_text(&mut conn, aria).unwrap());
    }
    snapshot
}

/// A stock server opens the exported directory and shows `expected`; nothing in its error log complains.
fn require_stock_opens(like: &Server, directory: &Path, expected: &Snapshot) {
    let mut config = like.config().clone();
    config.launcher = Launcher::Stock;
    let mut server = Server::in_directory(config, directory).unwrap();
    server.start().unwrap_or_else(|error| panic!("stock server on the export: {error}"));
    expected.require_same(&contents(&server), "in the export").unwrap();
    let log = server.error_log_tail(1000);
    let faults: Vec<_> =
        log.lines().filter(|line| line.contains("[ERROR]") || line.contains("orrupt")).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    server.shutdown().unwrap();
}

fn change(server: &Server, round: u32) {
    let mut conn = server.connect().unwrap();
    for statement in [
        "CREATE DATABASE IF NOT EXISTS moved".to_owned(),
        "USE moved".to_owned(),
        format!("CREATE TABLE t{round} (id INT PRIMARY KEY, b VARCHAR(200), KEY (b)) ENGINE=InnoDB"),
        format!("INSERT INTO t{round} SELECT seq, REPEAT(MD5(seq), 4) FROM seq_1_to_5000"),
        "UPDATE f_redundant.t SET a = a + 1 WHERE id % 5 = 0".to_owned(),
        "UPDATE f_compressed_8k.t SET a = a + 1 WHERE id % 5 = 0".to_owned(),
        "UPDATE f_page_compressed.t SET a = a + 1 WHERE id % 5 = 0".to_owned(),
        format!("INSERT INTO plain.aria SELECT seq + {round}0000, MD5(seq) FROM seq_1_to_500"),
        format!("CREATE USER user{round}@localhost IDENTIFIED BY 'secret'"),
        "FLUSH TABLES".to_owned(),
    ] {
        execute(&mut conn, &statement).unwrap();
    }
}

fn fill_plain(server: &Server) {
    let mut conn = server.connect().unwrap();
    for statement in [
        "CREATE DATABASE plain",
        "USE plain",
        "CREATE TABLE aria (id INT PRIMARY KEY, b TEXT) ENGINE=Aria TRANSACTIONAL=1",
        "INSERT INTO aria SELECT seq, REPEAT(MD5(seq), 3) FROM seq_1_to_3000",
        "CREATE TABLE myisam (id INT PRIMARY KEY, b TEXT) ENGINE=MyISAM",
        "INSERT INTO myisam SELECT seq, REPEAT(MD5(seq), 3) FROM seq_1_to_3000",
        "CREATE USER shop@'%' IDENTIFIED BY 'secret'",
        "GRANT SELECT, INSERT ON plain.* TO shop@'%'",
    ] {
        execute(&mut conn, statement).unwrap();
    }
}

#[test]
fn a_stopped_server_moves_in_and_out() {
    let mut stock = Server::create(battery::config(Launcher::Stock)).unwrap();
    battery::run(&mut stock, &some_features(), Schedule::AtEnd(&[])).unwrap();
    fill_plain(&stock);
    let original = contents(&stock);
    stock.shutdown().unwrap();

    let (node, directory) = (node(), tempfile::tempdir().unwrap());
    import(&node, "moved", &stock.datadir(), Some(TWO_FILES));
    let volume = &node.status("moved").unwrap()["volumes"][0];
    let of = |name: &str| volume[name].as_u64().unwrap();
    assert!(of("w_lsn") - of("a_lsn") <= of("ring_used_bytes"), "{volume}");
    let mut server = attach(&node, "moved", &stock);
    original.require_same(&contents(&server), "after the import").unwrap();

    change(&server, 1);
    let first = contents(&server);
    // The server runs, but nothing writes.
    let while_running = export(&node, "moved", &directory, "running");
    change(&server, 2);
    let second = contents(&server);
    server.shutdown().unwrap();
    let after_shutdown = export(&node, "moved", &directory, "shutdown");

    import(&node, "again", &after_shutdown.join("data"), Some(TWO_FILES));
    let mut again = attach(&node, "again", &stock);
    second.require_same(&contents(&again), "after export and import").unwrap();
    change(&again, 3);
    again.shutdown().unwrap();

    require_stock_opens(&stock, &while_running, &first);
    require_stock_opens(&stock, &after_shutdown, &second);
    for volume in ["moved", "again"] {
        node.require_verified(volume, 1).unwrap();
    }
}

/// Its pages would get among those of the original.
#[test]
fn a_copy_of_a_tablespace_in_the_data_directory_is_refused() {
    let mut stock = Server::create(ServerConfig::new(Launcher::Stock)).unwrap();
    stock.query("CREATE DATABASE shop").unwrap();
    stock.query("CREATE TABLE shop.a (id INT PRIMARY KEY) ENGINE=InnoDB").unwrap();
    stock.query("INSERT INTO shop.a VALUES (1), (2), (3)").unwrap();
    stock.shutdown().unwrap();
    let (datadir, node) = (stock.datadir(), node());
    let copy = datadir.join("shop/older.ibd");
    std::fs::copy(datadir.join("shop/a.ibd"), &copy).unwrap();
    let address = node.address().to_string();
    let args = ["volume", "import", "shop", "--from", datadir.to_str().unwrap(), "--node", &address];
    let refused = Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap();
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.stderr.contains("shop/a.ibd and shop/older.ibd are the same tablespace"),
        "{}",
        refused.stderr
    );
    std::fs::remove_file(copy).unwrap();
    import(&node, "shop", &datadir, None);
}

#[test]
fn a_killed_server_moves_in_with_every_acknowledged_commit() {
    let mut config = ServerConfig::new(Launcher::Stock).innodb_arg("--innodb-doublewrite=1");
    config.log_file_size_bytes = 16 << 20;
    config.buffer_pool_bytes = 32 << 20;
    let mut stock = Server::create(config).unwrap();
    let file = stock.directory().join("ledger");
    let run = Run::start(&stock.socket(), &file, Options::default()).unwrap();
    run.wait_for_more(1500, PATIENCE).unwrap();
    let mut prepared = stock.connect().unwrap();
    for statement in [
        "CREATE TABLE redoubt_ledger.more (id INT PRIMARY KEY) ENGINE=InnoDB",
        "XA START 'half'",
        "INSERT INTO redoubt_ledger.more VALUES (0)",
        "XA END 'half'",
        "XA PREPARE 'half'",
    ] {
        execute(&mut prepared, statement).unwrap();
    }
    run.wait_for_more(100, PATIENCE).unwrap();
    stock.kill9().unwrap();
    // The clients look for a server that does not come back here.
    drop(run);
    let entries = Entries::read(&file).unwrap();
    assert!(entries.acknowledged() >= 1500);

    let (node, directory) = (node(), tempfile::tempdir().unwrap());
    import(&node, "killed", &stock.datadir(), None);
    let mut server = attach(&node, "killed", &stock);
    // Purge does not end before the prepared transaction does.
    server.query("XA COMMIT 'half'").unwrap();
    let sound = |server: &Server| {
        let mut conn = server.connect().unwrap();
        finish_purge(&mut conn).unwrap();
        ledger::verify(&mut conn, &entries).unwrap().require_sound().unwrap();
        check_all(&mut conn).unwrap();
    };
    sound(&server);
    // Exported after a kill as well: the export has a log to recover from.
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "USE redoubt_ledger").unwrap();
    execute(&mut conn, "INSERT INTO redoubt_ledger.more SELECT seq FROM seq_1_to_2000").unwrap();
    server.kill9().unwrap();
    let exported = export(&node, "killed", &directory, "killed");
    let mut config = stock.config().clone();
    config.launcher = Launcher::Stock;
    let mut opened = Server::in_directory(config, &exported).unwrap();
    opened.start().unwrap_or_else(|error| panic!("stock server on the export: {error}"));
    sound(&opened);
    assert_eq!(opened.query("SELECT COUNT(*) FROM redoubt_ledger.more").unwrap(), [["2001"]]);
    opened.shutdown().unwrap();
}

/// As `innodb_checksum_algorithm=innodb` computed it, which servers before MariaDB 10.2 and MySQL 5.7 did by default.
fn fold(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0u32, |fold, byte| {
        let shifted = ((fold ^ u32::from(*byte) ^ 1_653_893_711) << 8).wrapping_add(fold);
        (shifted ^ 1_463_735_687).wrapping_add(u32::from(*byte))
    })
}

/// From a start of 0, unlike zlib's.
fn adler<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    let (low, high) = bytes.fold((0, 0), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    high << 16 | low
}

/// Gives the pages of a file the checksums of an old server.
fn make_old(file: &Path, page_size: usize, is_row_format_compressed: bool) {
    let mut bytes = std::fs::read(file).unwrap();
    for page in bytes.chunks_exact_mut(page_size).filter(|page| page.iter().any(|byte| *byte != 0)) {
        if is_row_format_compressed {
            let sum = adler(page[4..16].iter().chain(&page[24..26]).chain(&page[34..]));
            page[..4].copy_from_slice(&sum.to_be_bytes());
            continue;
        }
        let trailer = page_size - 8;
        let sum = fold(&page[4..26]).wrapping_add(fold(&page[38..trailer]));
        page[..4].copy_from_slice(&sum.to_be_bytes());
        let old = fold(&page[..26]).to_be_bytes();
        page[trailer..trailer + 4].copy_from_slice(&old);
    }
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn pages_with_the_checksums_of_old_servers_move_in() {
    let algorithm = "--innodb-checksum-algorithm=crc32";
    let mut stock = Server::create(ServerConfig::new(Launcher::Stock).innodb_arg(algorithm)).unwrap();
    let mut conn = stock.connect().unwrap();
    for statement in [
        "CREATE DATABASE d",
        "USE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, b VARCHAR(200), KEY (b)) ENGINE=InnoDB",
        "INSERT INTO d.t SELECT seq, REPEAT(MD5(seq), 4) FROM seq_1_to_5000",
        "CREATE TABLE d.z (id INT PRIMARY KEY, b TEXT) ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8",
        "INSERT INTO d.z SELECT seq, REPEAT(MD5(seq), 40) FROM seq_1_to_5000",
    ] {
        execute(&mut conn, statement).unwrap();
    }
    drop(conn);
    let expected = contents(&stock);
    stock.shutdown().unwrap();
    let datadir = stock.datadir();
    make_old(&datadir.join("ibdata1"), 16384, false);
    make_old(&datadir.join("d/t.ibd"), 16384, false);
    make_old(&datadir.join("d/z.ibd"), 8192, true);

    let (node, directory) = (node(), tempfile::tempdir().unwrap());
    import(&node, "old", &datadir, None);
    let mut server = attach(&node, "old", &stock);
    expected.require_same(&contents(&server), "on the volume").unwrap();
    server.shutdown().unwrap();
    // They are what an old server wrote: today's stock server reads them.
    let exported = export(&node, "old", &directory, "old");
    require_stock_opens(&stock, &exported, &expected);
    stock.start().unwrap();
    expected.require_same(&contents(&stock), "on the plain server").unwrap();
    stock.shutdown().unwrap();
}

/// The redo ends the tablespace, and then its file is put there again: it is not the redo's.
#[test]
fn a_file_put_in_the_place_of_a_discarded_tablespace_moves_in_as_it_is() {
    let mut source = Server::create(ServerConfig::new(Launcher::Stock)).unwrap();
    let mut conn = source.connect().unwrap();
    for statement in [
        "CREATE DATABASE d",
        "USE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, b VARCHAR(200)) ENGINE=InnoDB",
        "INSERT INTO d.t SELECT seq, REPEAT(MD5(seq), 4) FROM seq_1_to_5000",
        "FLUSH TABLES d.t FOR EXPORT",
    ] {
        execute(&mut conn, statement).unwrap();
    }
    let directory = source.datadir().join("d");
    let kept = tempfile::tempdir().unwrap();
    let files = ["t.ibd", "t.cfg"];
    for name in files {
        std::fs::copy(directory.join(name), kept.path().join(name)).unwrap();
    }
    execute(&mut conn, "UNLOCK TABLES").unwrap();
    execute(&mut conn, "ALTER TABLE d.t DISCARD TABLESPACE").unwrap();
    for name in files {
        std::fs::copy(kept.path().join(name), directory.join(name)).unwrap();
    }
    source.kill9().unwrap();

    let node = node();
    // A torn page of it is not one that redo initialises.
    let file = directory.join("t.ibd");
    let whole = std::fs::read(&file).unwrap();
    let mut torn = whole.clone();
    torn[5 * 16384 + 8000] ^= 1;
    std::fs::write(&file, torn).unwrap();
    let (datadir, address) = (source.datadir(), node.address().to_string());
    let args = ["volume", "import", "discarded", "--from", datadir.to_str().unwrap(), "--node", &address];
    let refused = Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap();
    assert!(refused.code != Some(0) && refused.stderr.contains("d/t.ibd: page 5:"), "{refused:?}");
    std::fs::write(&file, whole).unwrap();

    import(&node, "discarded", &datadir, None);
    let mut server = attach(&node, "discarded", &source);
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "ALTER TABLE d.t IMPORT TABLESPACE").unwrap();
    check_all(&mut conn).unwrap();
    let sum = query_text(&mut conn, "SELECT COUNT(*), SUM(LENGTH(b)) FROM d.t").unwrap();
    assert_eq!(sum, [["5000", "640000"]]);
    drop(conn);
    server.shutdown().unwrap();
}

#[test]
fn a_system_tablespace_of_several_files() {
    let node = node();
    node.create_volume("files").unwrap();
    let mut config = ServerConfig::new(node.launcher("files", Verify::All))
        .innodb_arg("--innodb-data-file-path=ibdata1:12M;ibdata2:12M;ibdata3:4M:autoextend")
        .innodb_arg("--innodb-file-per-table=0");
    config.log_file_size_bytes = 16 << 20;
    config.buffer_pool_bytes = 16 << 20;
    let mut server = Server::create(config).unwrap_or_else(|error| panic!("{error}\n{}", node.log_tail(20)));
    let mut conn = server.connect().unwrap();
    for statement in [
        "CREATE DATABASE shop",
        "USE shop",
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(500), KEY by_b (b(100))) ENGINE=InnoDB",
        "INSERT INTO t SELECT seq, seq % 97, REPEAT(MD5(seq), 12) FROM seq_1_to_50000",
    ] {
        execute(&mut conn, statement).unwrap();
    }
    let grown = std::fs::metadata(server.datadir().join("ibdata3")).unwrap().len();
    assert!(grown > 4 << 20, "ibdata3 has not grown: {grown} bytes");
    execute(&mut conn, "UPDATE t SET a = a + 1, b = REVERSE(b) WHERE id % 3 = 0").unwrap();
    let before = contents(&server);
    server.kill9().unwrap();
    server.empty_data_directory().unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    before.require_same(&contents(&server), "after the attach from an empty directory").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let running = export(&node, "files", &directory, "running");
    server.shutdown().unwrap();
    let spec = "ibdata1:12M;ibdata2:12M;ibdata3:4M:autoextend";
    import(&node, "again", &running.join("data"), Some(spec));
    let mut again = attach(&node, "again", &server);
    before.require_same(&contents(&again), "after export and import").unwrap();
    again.shutdown().unwrap();
    require_stock_opens(&server, &running, &before);
}

/// An export holds the volume's state at one moment while the server continues.
#[test]
fn an_export_under_load_is_one_moment() {
    let node = node();
    node.create_volume("busy").unwrap();
    let mut config = ServerConfig::new(node.launcher("busy", Verify::All));
    config.log_file_size_bytes = 16 << 20;
    config.buffer_pool_bytes = 32 << 20;
    let mut server = Server::create(config).unwrap_or_else(|error| panic!("{error}\n{}", node.log_tail(20)));
    let file = server.directory().join("ledger");
    let run = Run::start(&server.socket(), &file, Options::default()).unwrap();
    run.wait_for_more(500, PATIENCE).unwrap();
    let before = Entries::read(&file).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let exported = export(&node, "busy", &directory, "busy");
    run.wait_for_more(100, Duration::from_secs(60)).unwrap();
    run.stop().unwrap();
    server.shutdown().unwrap();

    let mut config = server.config().clone();
    config.launcher = Launcher::Stock;
    let mut opened = Server::in_directory(config, &exported).unwrap();
    opened.start().unwrap_or_else(|error| panic!("stock server on the export: {error}"));
    let mut conn = opened.connect().unwrap();
    finish_purge(&mut conn).unwrap();
    check_all(&mut conn).unwrap();
    // The export contains all commits that were acknowledged before it began. Later ones may be in it.
    let rows = query_text(&mut conn, "SELECT client, sequence FROM redoubt_ledger.entry").unwrap();
    let found: std::collections::BTreeSet<(u32, u64)> =
        rows.iter().map(|row| (row[0].parse().unwrap(), row[1].parse().unwrap())).collect();
    let lost: Vec<_> = before
        .fates
        .iter()
        .filter(|(_, fate)| **fate == ledger::Fate::Acknowledged)
        .filter(|((client, sequence), _)| !found.contains(&(client.0, sequence.0)))
        .collect();
    assert!(lost.is_empty(), "not in the export: {lost:?}");
    // A transaction is in it as a whole: each has two detail rows, and the counters agree.
    let partial = "SELECT e.client, e.sequence FROM redoubt_ledger.entry e LEFT JOIN redoubt_ledger.detail d \
                   USING (client, sequence) GROUP BY 1, 2 HAVING COUNT(d.part) <> 2";
    assert_eq!(query_text(&mut conn, partial).unwrap(), Vec::<Vec<String>>::new());
    let counted =
        "SELECT SUM(transactions) = (SELECT COUNT(*) FROM redoubt_ledger.entry) FROM redoubt_ledger.counter";
    assert_eq!(query_text(&mut conn, counted).unwrap(), [["1"]]);
    opened.shutdown().unwrap();
}
