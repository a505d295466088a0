//! MySQL 9.7 on a volume: all data are there after kills and takeovers, also pages that the server writes without redo.
//!
//! The node compares every page whose write was dropped with its own.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use mysql::Conn;
use redoubt_harness::battery::Restart;
use redoubt_harness::command::PATIENCE;
use redoubt_harness::fetched::find_or_skip;
use redoubt_harness::node::Node;
use redoubt_page::Format;
use redoubt_page::layout::{PAGE_LEVEL, TYPE_INDEX, get_u16, page_id, page_type};
use redoubt_redo::mysql::from_server_lsn;
use redoubt_redo::{Family, PageId};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::process::poll_until;
use redoubt_workload::product::{FetchedServer, Product};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{execute, query_text};
use std::collections::BTreeMap;
use std::path::Path;

mod clone;
mod difference;

const VOLUME: &str = "v";
const LOAD: &str = include_str!("volume/load.sql");

/// A node with a volume, and a server on it.
struct Fixture {
    node: Node,
    server: Server,
    product: Product,
}

impl Fixture {
    fn new(test: &str) -> Option<Self> {
        // Several times as much redo as the log holds.
        Self::with(test, |config| config.log_file_size_bytes = 8 << 20)
    }

    fn with(test: &str, set: impl FnOnce(&mut ServerConfig)) -> Option<Self> {
        let product = find_or_skip(FetchedServer::MySql97, test)?;
        // Small batches, so that many tables are applied while the test runs.
        let options = ["--ring", "64MiB", "--batch", "1MiB", "--apply-interval", "1"];
        let node = Node::create(&find_redoubt().unwrap(), &options).unwrap();
        node.create_volume(VOLUME).unwrap();
        let mut config =
            ServerConfig::new(node.launcher_with(VOLUME, Verify::All, &["--on-difference=stop"]))
                .product(product.clone());
        set(&mut config);
        let server = Server::create(config);
        let server = server.unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
        Some(Self { node, server, product })
    }

    fn connect(&self) -> Conn {
        self.server.connect().unwrap()
    }

    fn execute(&self, conn: &mut Conn, statement: &str) {
        execute(conn, statement)
            .unwrap_or_else(|error| panic!("{statement}: {error}\nnode: {}", self.node.log_tail(20)));
    }

    /// Position in the payload of the redo log's blocks that the server is at.
    fn position(&self, conn: &mut Conn) -> u64 {
        let query = "SELECT storage_engines->'$.InnoDB.LSN' FROM performance_schema.log_status";
        let rows = query_text(conn, query).unwrap();
        from_server_lsn(rows[0][0].parse().unwrap()).0
    }

    /// Inserts rows until the log ends at the position that `wanted` returns.
    fn end_log_at(&self, conn: &mut Conn, wanted: impl Fn(&mut Conn, u64) -> u64) {
        // Redo of an empty row. The server's own work in between makes it wrong sometimes.
        let mut row_bytes = 300;
        let ended = (0..6000).any(|_| {
            let before = self.position(conn);
            let end = wanted(conn, before);
            let len = (end - before).saturating_sub(row_bytes).min(2500);
            self.execute(conn, &format!("INSERT INTO e.t SELECT MAX(id) + 1, REPEAT('a', {len}) FROM e.t"));
            let after = self.position(conn);
            // Rows that only fill the log need less.
            if len < 2500 {
                row_bytes = (after - before - len).min(600);
            }
            after == end
        });
        assert!(ended, "no row made the log end there");
    }

    /// Restarts the server, and finds what was there.
    fn restart_with_same(&mut self, restart: Restart, conn: &mut Conn) {
        let expected = contents(conn);
        self.restart(restart);
        *conn = self.connect();
        assert_eq!(contents(conn), expected, "{restart:?}");
    }

    fn restart(&mut self, restart: Restart) {
        let started = restart.apply(&mut self.server);
        started.unwrap_or_else(|error| panic!("{restart:?}: {error}\nnode: {}", self.node.log_tail(20)));
    }
}

/// Requires that every table is sound; returns their checksums.
fn contents(conn: &mut Conn) -> BTreeMap<String, String> {
    let tables = "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables WHERE table_type = 'BASE TABLE' \
                  AND table_schema NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema')";
    let mut contents = BTreeMap::new();
    for table in query_text(conn, tables).unwrap().into_iter().flatten() {
        for row in query_text(conn, &format!("CHECK TABLE {table} EXTENDED")).unwrap() {
            assert_eq!(row.last().map(String::as_str), Some("OK"), "{row:?}");
        }
        let sum = query_text(conn, &format!("CHECKSUM TABLE {table}")).unwrap();
        contents.insert(table, sum.concat().concat());
    }
    contents
}

#[test]
fn mysql_keeps_all_kinds_of_tables_over_kills_and_takeovers() {
    let Some(mut fixture) = Fixture::new("mysql_keeps_all_kinds_of_tables_over_kills_and_takeovers") else {
        return;
    };
    let mut conn = fixture.connect();
    for statement in LOAD.lines().filter(|line| !line.starts_with("--")) {
        fixture.execute(&mut conn, statement);
    }
    let expected = contents(&mut conn);
    assert_eq!(expected.len(), 9, "{expected:?}");
    // Not committed, and half of it may be in the pages.
    fixture.execute(&mut conn, "BEGIN");
    fixture.execute(&mut conn, "UPDATE w.a SET v = CONCAT('lost', LEFT(v, 90)) WHERE id % 2 = 0");
    for restart in [Restart::Kill, Restart::KillAndAttach, Restart::Clean] {
        fixture.restart(restart);
        assert_eq!(contents(&mut fixture.connect()), expected, "{restart:?}");
        let orphans = fixture.server.datadir().join(".redoubt-orphans");
        assert!(!orphans.exists(), "{:?}", std::fs::read_dir(&orphans).unwrap().collect::<Vec<_>>());
    }
    let verified = fixture.node.require_verified(VOLUME, 1000).unwrap();
    println!("{verified} pages verified");
    fixture.node.crash_and_restart().unwrap();
    assert_eq!(contents(&mut fixture.connect()), expected);
    // A counter that the server keeps in its redo, and in no page, until a checkpoint.
    let mut conn = fixture.connect();
    fixture.execute(&mut conn, "CREATE TABLE w.counter (id INT AUTO_INCREMENT PRIMARY KEY)");
    fixture.execute(&mut conn, "INSERT INTO w.counter VALUES (1000)");
    fixture.execute(&mut conn, "DELETE FROM w.counter");
    fixture.restart(Restart::KillAndAttach);
    let mut conn = fixture.connect();
    fixture.execute(&mut conn, "INSERT INTO w.counter VALUES ()");
    assert_eq!(query_text(&mut conn, "SELECT id FROM w.counter").unwrap(), [["1001"]]);
    let expected = contents(&mut conn);
    drop(conn);
    fixture.server.shutdown().unwrap();
    fixture.node.require_verified(VOLUME, 1).unwrap();
    require_export(&fixture, &expected);
}

/// The volume, exported, holds the same for a stock server.
fn require_export(fixture: &Fixture, expected: &BTreeMap<String, String>) {
    let exported = tempfile::Builder::new().prefix("rdtx-").tempdir().unwrap();
    let to = exported.path().join("data");
    let address = fixture.node.address().to_string();
    let arguments = ["volume", "export", VOLUME, "--to", to.to_str().unwrap(), "--node", &address];
    fixture.node.redoubt(&arguments).unwrap();
    let mut config = ServerConfig::new(Launcher::Stock).product(fixture.product.clone());
    config.log_file_size_bytes = 8 << 20;
    let mut stock = Server::in_directory(config, exported.path()).unwrap();
    stock.start().unwrap();
    assert_eq!(contents(&mut stock.connect().unwrap()), *expected);
    stock.shutdown().unwrap();
    // A volume belongs to one family.
    let empty = exported.path().join("empty");
    let empty = empty.to_str().unwrap();
    let run = [
        "run",
        "--node",
        &address,
        "--volume",
        VOLUME,
        "--datadir",
        empty,
        "--",
        "mariadbd",
        "--no-defaults",
    ];
    let said = fixture.node.redoubt(&run).unwrap_err().to_string();
    assert!(said.contains("MySQL") && said.contains("MariaDB"), "{said}");
}

/// That of a server that was killed in the middle of a transaction, and of the same one after it was shut down.
#[test]
fn a_data_directory_of_mysql_is_imported() {
    let Some(product) = find_or_skip(FetchedServer::MySql97, "a_data_directory_of_mysql_is_imported") else {
        return;
    };
    let node = Node::create(&find_redoubt().unwrap(), &["--ring", "64MiB", "--apply-interval", "1"]).unwrap();
    let mut config = ServerConfig::new(Launcher::Stock).product(product.clone());
    config.log_file_size_bytes = 64 << 20;
    let mut stock = Server::create(config).unwrap();
    let mut conn = stock.connect().unwrap();
    for statement in LOAD.lines().filter(|line| !line.starts_with("--")) {
        execute(&mut conn, statement).unwrap();
    }
    let expected = contents(&mut conn);
    execute(&mut conn, "BEGIN").unwrap();
    execute(&mut conn, "UPDATE w.a SET v = CONCAT('lost', LEFT(v, 90)) WHERE id % 2 = 0").unwrap();
    let (address, from) = (node.address().to_string(), stock.datadir());
    let import = |volume| {
        let arguments = ["volume", "import", volume, "--from", from.to_str().unwrap(), "--node", &address];
        node.redoubt(&arguments)
    };
    let said = import("early").unwrap_err().to_string();
    assert!(said.contains("in use by process"), "{said}");
    stock.kill9().unwrap();
    println!("{}", import("killed").unwrap());
    stock.start().unwrap();
    stock.shutdown().unwrap();
    println!("{}", import("clean").unwrap());
    for volume in ["killed", "clean"] {
        let config = ServerConfig::new(node.launcher_with(volume, Verify::All, &["--on-difference=stop"]))
            .product(product.clone());
        let mut server = Server::new(config).unwrap();
        server.start().unwrap_or_else(|error| panic!("{volume}: {error}\nnode: {}", node.log_tail(20)));
        let mut conn = server.connect().unwrap();
        assert_eq!(contents(&mut conn), expected, "{volume}");
        for statement in [
            "UPDATE w.a SET v = LEFT(v, 50) WHERE id % 3 = 0",
            "ALTER TABLE w.a ADD KEY later (v(20))",
            "DELETE FROM w.a WHERE id % 7 = 0",
        ] {
            execute(&mut conn, statement).unwrap();
        }
        let changed = contents(&mut conn);
        Restart::KillAndAttach.apply(&mut server).unwrap();
        assert_eq!(contents(&mut server.connect().unwrap()), changed, "{volume}");
        server.shutdown().unwrap();
        node.require_verified(volume, 1).unwrap();
    }
}

/// A table of some hundred pages.
fn fill(conn: &mut Conn) {
    for statement in [
        "CREATE DATABASE w",
        "CREATE TABLE w.a (id INT PRIMARY KEY, v VARCHAR(200), KEY v (v))",
        "SET SESSION cte_max_recursion_depth = 20000",
        "INSERT INTO w.a WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) \
         SELECT i, REPEAT(LEFT(SHA2(i, 256), 20), 5) FROM n",
    ] {
        execute(conn, statement).unwrap();
    }
}

/// A page was written to a doublewrite file, but no longer to its own. Its content is older than the checkpoint, as for
/// pages of an index under construction, so no redo restores it. (The stock server takes it from there if it recovers,
/// which it does not here: its redo ends at the checkpoint.)
#[test]
fn a_page_that_only_a_doublewrite_file_has_is_imported() {
    let test = "a_page_that_only_a_doublewrite_file_has_is_imported";
    let Some(product) = find_or_skip(FetchedServer::MySql97, test) else { return };
    let mut config = ServerConfig::new(Launcher::Stock).product(product.clone());
    config.server_args.push("--innodb-max-dirty-pages-pct=0".to_owned());
    let mut stock = Server::create(config.clone()).unwrap();
    let mut conn = stock.connect().unwrap();
    fill(&mut conn);
    let expected = contents(&mut conn);
    let status = |conn: &mut Conn, name: &str| -> u64 {
        let rows = query_text(conn, &format!("SHOW GLOBAL STATUS LIKE '{name}'")).unwrap();
        rows[0][1].parse().unwrap()
    };
    poll_until("all redo to be before the checkpoint", PATIENCE, || {
        let written = status(&mut conn, "Innodb_redo_log_current_lsn");
        Ok((status(&mut conn, "Innodb_redo_log_checkpoint_lsn") == written).then_some(()))
    })
    .unwrap();
    stock.kill9().unwrap();
    let lost = lose_a_page(&stock.datadir());
    println!("{lost} is only in a doublewrite file");

    let node = Node::create(&find_redoubt().unwrap(), &["--ring", "64MiB", "--apply-interval", "1"]).unwrap();
    let (address, from) = (node.address().to_string(), stock.datadir());
    let arguments = ["volume", "import", VOLUME, "--from", from.to_str().unwrap(), "--node", &address];
    let said = node.redoubt(&arguments).unwrap();
    assert!(said.contains("1 pages taken from doublewrite files"), "{said}");
    config.launcher = node.launcher_with(VOLUME, Verify::All, &["--on-difference=stop"]);
    let mut server = Server::new(config).unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    assert_eq!(contents(&mut server.connect().unwrap()), expected);
    server.shutdown().unwrap();
    node.require_verified(VOLUME, 0).unwrap();
}

/// Clears a leaf page of a table that a doublewrite file holds as it is in its own.
fn lose_a_page(datadir: &Path) -> PageId {
    let read = |path: &Path| std::fs::read(path).unwrap();
    let files = |directory: &Path, extension: &str| {
        let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect::<Vec<_>>()
    };
    let copies: Vec<u8> = files(datadir, "dblwr").iter().flat_map(|path| read(path)).collect();
    for path in files(&datadir.join("w"), "ibd") {
        let mut bytes = read(&path);
        let format = Format::of_page0(Family::MySql, &bytes).unwrap();
        let size = format.physical_page_size_bytes();
        let is_leaf =
            |page: &[u8]| page_type(page) == Some(TYPE_INDEX) && get_u16(page, PAGE_LEVEL) == Some(0);
        let found = copies.chunks_exact(16384).find(|copy| {
            let at = page_id(copy).map_or(0, |id| id.page_no.0 as usize * size);
            format.is_replayed() && is_leaf(copy) && bytes.get(at..at + size) == Some(*copy)
        });
        if let Some(id) = found.and_then(page_id) {
            let at = id.page_no.0 as usize * size;
            bytes[at..at + size].fill(0);
            std::fs::write(&path, bytes).unwrap();
            return id;
        }
    }
    panic!("no page of a table is in a doublewrite file of {}", datadir.display());
}

/// ADD INDEX sorts, and fills pages without redo. Those of an index that was just dropped are still in the buffer pool
/// with the LSN of their last redo, which would explain what is written then.
#[test]
fn indexes_that_mysql_builds_on_pages_of_dropped_ones_are_on_the_node() {
    let test = "indexes_that_mysql_builds_on_pages_of_dropped_ones_are_on_the_node";
    let Some(mut fixture) = Fixture::new(test) else { return };
    let mut conn = fixture.connect();
    for statement in [
        "CREATE DATABASE q",
        "USE q",
        "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT, b VARCHAR(100), c VARCHAR(200))",
        "INSERT INTO t (a, b, c) WITH RECURSIVE s (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM s WHERE x < 1000) \
         SELECT x * 7919 % 10007, LEFT(SHA2(x, 256), 60), REPEAT('c', 150) FROM s",
        "INSERT INTO t (a, b, c) SELECT a + 1, b, c FROM t",
        "INSERT INTO t (a, b, c) SELECT a + 2, b, c FROM t",
    ] {
        fixture.execute(&mut conn, statement);
    }
    for round in 0..8 {
        for statement in [
            "ALTER TABLE t ADD KEY ka (a), ADD KEY kb (b, c)".to_owned(),
            "INSERT INTO t (a, b, c) SELECT a + 5, REVERSE(b), c FROM t LIMIT 3000".to_owned(),
            format!("DELETE FROM t WHERE id % 3 = {}", round % 3),
            "UPDATE t SET a = a + 1 WHERE id % 5 = 0".to_owned(),
        ] {
            fixture.execute(&mut conn, &statement);
        }
        if round % 4 == 3 {
            let expected = contents(&mut conn);
            fixture.restart(Restart::KillAndAttach);
            conn = fixture.connect();
            assert_eq!(contents(&mut conn), expected, "round {round}");
            fixture.execute(&mut conn, "USE q");
        }
        fixture.execute(&mut conn, "ALTER TABLE t DROP KEY ka, DROP KEY kb");
    }
    drop(conn);
    fixture.server.shutdown().unwrap();
    let verified = fixture.node.require_verified(VOLUME, 1000).unwrap();
    println!("{verified} pages verified");
}

/// The log ends with a block that is full, in the middle of a file or at its end: the next one has nothing in it yet.
#[test]
fn a_log_that_ends_where_a_block_or_a_file_does_is_taken_over() {
    let Some(mut fixture) = Fixture::new("a_log_that_ends_where_a_block_or_a_file_does_is_taken_over") else {
        return;
    };
    let mut conn = fixture.connect();
    fixture.execute(&mut conn, "CREATE DATABASE e");
    fixture.execute(&mut conn, "CREATE TABLE e.t (id INT PRIMARY KEY, a VARCHAR(3000)) CHARSET latin1");
    fixture.execute(&mut conn, "INSERT INTO e.t VALUES (1, '')");
    let end_of_block = |_: &mut Conn, position: u64| (position / 496 + 2) * 496;
    let end_of_file = |conn: &mut Conn, position: u64| {
        let files = "SELECT end_lsn FROM performance_schema.innodb_redo_log_files ORDER BY end_lsn";
        let ends = query_text(conn, files).unwrap().concat();
        let ends = ends.iter().map(|end| from_server_lsn(end.parse().unwrap()).0);
        // The next file is made when it is needed.
        ends.filter(|end| *end > position).min().unwrap_or(u64::MAX)
    };
    for restart in [Restart::Kill, Restart::KillAndAttach] {
        fixture.end_log_at(&mut conn, end_of_block);
        fixture.restart_with_same(restart, &mut conn);
        fixture.end_log_at(&mut conn, end_of_file);
        fixture.restart_with_same(restart, &mut conn);
    }
}

/// The node does not replay redo of compressed pages: the server's recovery does. With more redo than its buffer pool
/// has room for, it takes it in batches, and writes pages between them that are not yet what the redo leads to.
#[test]
fn compressed_pages_that_are_recovered_in_batches_miss_nothing() {
    let test = "compressed_pages_that_are_recovered_in_batches_miss_nothing";
    let set = |config: &mut ServerConfig| {
        config.log_file_size_bytes = 128 << 20;
        config.buffer_pool_bytes = 64 << 20;
        let few_writes =
            ["--innodb-io-capacity=100", "--innodb-max-dirty-pages-pct=90", "--innodb-adaptive-flushing=OFF"];
        config.server_args.extend(few_writes.map(str::to_owned));
    };
    let Some(mut fixture) = Fixture::with(test, set) else { return };
    let mut conn = fixture.connect();
    for statement in [
        "CREATE DATABASE z",
        "USE z",
        "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, n INT, v VARCHAR(2000), KEY (n)) CHARSET latin1 \
         ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8",
        "INSERT INTO t (n, v) WITH RECURSIVE s (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM s WHERE x < 1000) \
         SELECT x * 7919 % 10007, REPEAT(LEFT(SHA2(x, 256), 40), 20) FROM s",
        "INSERT INTO t (n, v) SELECT n + 1, v FROM t",
        "INSERT INTO t (n, v) SELECT n + 2, REVERSE(v) FROM t",
        "INSERT INTO t (n, v) SELECT n + 3, v FROM t",
    ] {
        fixture.execute(&mut conn, statement);
    }
    fixture.server.config_mut().buffer_pool_bytes = 8 << 20;
    for round in 0..3 {
        for k in 0..5 {
            let set = format!(
                "n = n + 1, v = CONCAT(REPEAT(LEFT(SHA2(id + {round}, 256), 40), {k}), LEFT(v, 800))"
            );
            fixture.execute(&mut conn, &format!("UPDATE z.t SET {set} WHERE id % 5 = {k}"));
        }
        fixture.restart_with_same(Restart::KillAndAttach, &mut conn);
    }
}

/// The snapshot's server recovers and writes into its own view; the volume's server continues.
#[test]
fn a_second_mysql_runs_on_a_moment_and_changes_nothing() {
    let Some(fixture) = Fixture::new("a_second_mysql_runs_on_a_moment_and_changes_nothing") else { return };
    let mut conn = fixture.connect();
    for statement in LOAD.lines().filter(|line| !line.starts_with("--")) {
        fixture.execute(&mut conn, statement);
    }
    let expected = contents(&mut conn);
    fixture.execute(&mut conn, "BEGIN");
    fixture.execute(&mut conn, "UPDATE w.a SET v = 'not committed' WHERE id % 2 = 0");
    let elsewhere = tempfile::tempdir().unwrap();
    let mut config = fixture.server.config().clone();
    config.launcher = Launcher::Reader {
        node_addr: fixture.node.address(),
        volume: VOLUME.to_owned(),
        redoubt_bin: fixture.node.redoubt_bin().to_owned(),
    };
    let mut second = Server::in_directory(config, elsewhere.path()).unwrap();
    second.start().unwrap_or_else(|error| panic!("{error}\n{}", second.error_log_tail(30)));
    assert_eq!(second.error_lines(), Vec::<String>::new());
    fixture.execute(&mut conn, "COMMIT");
    fixture.execute(&mut conn, "CREATE TABLE w.later AS SELECT * FROM w.a");
    let mut on_moment = second.connect().unwrap();
    assert_eq!(contents(&mut on_moment), expected);
    execute(&mut on_moment, "UPDATE w.a SET v = 'mine'").unwrap();
    execute(&mut on_moment, "ALTER TABLE w.a ADD COLUMN mine INT, ADD INDEX mine (mine)").unwrap();
    drop(on_moment);
    second.shutdown().unwrap();
    let left: Vec<_> = std::fs::read_dir(second.datadir()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");

    let count =
        |conn: &mut Conn, what: &str| query_text(conn, &format!("SELECT COUNT(*) FROM {what}")).unwrap();
    assert_eq!(count(&mut conn, "w.a WHERE v = 'mine'"), [["0"]]);
    assert_eq!(count(&mut conn, "w.later"), count(&mut conn, "w.a"));
    let status = &fixture.node.status(VOLUME).unwrap()["volumes"][0];
    assert_eq!(status["generation"].as_u64(), Some(2), "the second took the volume over: {status}");
    fixture.node.require_verified(VOLUME, 1).unwrap();
    require_views(&fixture);
}

/// With a keyring one statement could make a volume useless: the server would go on with the encryption of a tablespace at
/// every start. Group replication is of the kind of plugin that has MariaDB's keys.
#[test]
fn a_keyring_is_refused_and_other_plugins_are_not() {
    let Some(mut fixture) = Fixture::new("a_keyring_is_refused_and_other_plugins_are_not") else { return };
    let mut conn = fixture.connect();
    fixture.execute(&mut conn, "CREATE DATABASE w");
    fixture.execute(&mut conn, "CREATE TABLE w.a (id INT PRIMARY KEY)");
    let refusal = |conn: &mut Conn, statement: &str| execute(conn, statement).unwrap_err().to_string();
    let said = refusal(&mut conn, "INSTALL COMPONENT 'file://component_keyring_file'");
    assert!(said.contains("component_keyring_file is refused"), "{said}");
    for statement in [
        "CREATE TABLE w.b (id INT) ENCRYPTION='Y'",
        "ALTER TABLE w.a ENCRYPTION='Y'",
        "ALTER TABLESPACE mysql ENCRYPTION='Y'",
    ] {
        let said = refusal(&mut conn, statement);
        assert!(said.contains("keyring"), "{statement}: {said}");
    }
    fixture.execute(&mut conn, "INSTALL COMPONENT 'file://component_validate_password'");
    fixture.execute(&mut conn, "UNINSTALL COMPONENT 'file://component_validate_password'");
    fixture.execute(&mut conn, "INSTALL PLUGIN group_replication SONAME 'group_replication.so'");
    fixture.execute(&mut conn, "INSERT INTO w.a VALUES (1)");
    fixture.restart(Restart::KillAndAttach);
    assert_eq!(query_text(&mut fixture.connect(), "SELECT id FROM w.a").unwrap(), [["1"]]);
    let log = std::fs::read_to_string(fixture.server.error_log_path()).unwrap();
    assert!(log.contains("[redoubt] the keyring component_keyring_file is refused"), "{log}");
}

/// Files that tools can read in a view, and files that they cannot.
fn require_views(fixture: &Fixture) {
    let address = fixture.node.address().to_string();
    let directory = tempfile::tempdir().unwrap();
    let view = |options: &[&str], script: &str| {
        let datadir = directory.path().to_str().unwrap();
        let run = ["run", "--reader", "--node", &address, "--volume", VOLUME, "--datadir", datadir];
        fixture.node.redoubt(&[&run[..], options, &["--", "sh", "-euc", script]].concat())
    };
    let whole =
        format!("cd {}; cat ibdata1 mysql.ibd w/a.ibd '#innodb_redo'/* | wc -c", directory.path().display());
    let bytes: u64 = view(&["--at-once"], &whole).unwrap().trim().parse().unwrap();
    assert!(bytes > 40 << 20, "{bytes}");
    let redo = format!("cd {}; cat '#innodb_redo'/* >/dev/null", directory.path().display());
    let said = view(&[], &redo).map(|_| panic!("the redo log of a live view was read")).unwrap_err();
    assert!(said.to_string().contains("--at-once"), "{said}");
    let pages = format!("cd {}; cat ibdata1 mysql.ibd w/a.ibd auto.cnf | wc -c", directory.path().display());
    let bytes: u64 = view(&[], &pages).unwrap().trim().parse().unwrap();
    assert!(bytes > 30 << 20, "{bytes}");
}
