//! Servers of later series on a volume: MariaDB 11.4 and 11.8, new volumes and such that 10.11 has made.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_harness::battery::{self, Schedule};
use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::features;
use redoubt_harness::fetched::find_or_skip;
use redoubt_harness::node::Node;
use redoubt_workload::check::{check_all, checksums};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::product::{FetchedServer, Product};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{execute, query_text};
use std::collections::BTreeMap;
use std::path::PathBuf;

const VOLUME: &str = "v";
/// Length of a system tablespace that holds next to nothing, in bytes: its first file as it is made.
const SYSTEM_BYTES: u64 = 12 << 20;

fn node() -> Node {
    // Small batches, so that many tables are applied while the test runs.
    Node::create(&find_redoubt().unwrap(), &["--ring", "64MiB", "--batch", "1MiB", "--apply-interval", "1"])
        .unwrap()
}

fn log_of<T>(result: redoubt_workload::error::Result<T>, node: &Node) -> T {
    result.unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)))
}

fn run_battery(server: FetchedServer, page_size_bytes: u32) {
    let Some(product) = find_or_skip(server, &format!("the features of {} on a volume", server.name()))
    else {
        return;
    };
    let node = node();
    node.create_volume(VOLUME).unwrap();
    let mut config = battery::config(node.launcher(VOLUME, Verify::All)).product(product);
    config.page_size_bytes = page_size_bytes;
    let mut server = log_of(Server::create(config), &node);
    let features = features::for_page_size(page_size_bytes);
    let schedule = Schedule::AtEnd(&[battery::Restart::KillAndAttach, battery::Restart::Clean]);
    let report = log_of(battery::run(&mut server, &features, schedule), &node);
    log_of(server.shutdown(), &node);
    let verified = node.require_verified(VOLUME, 500).unwrap();
    println!("{page_size_bytes} byte pages: {verified} pages verified, {report:#?}");
    assert_eq!(report.steps.len(), features.len());
}

#[test]
fn features_of_mariadb_11_8() {
    run_battery(FetchedServer::MariaDb118, 16384);
}

#[test]
fn features_of_mariadb_11_4() {
    run_battery(FetchedServer::MariaDb114, 16384);
}

#[test]
#[ignore = "make batteries"]
fn features_of_mariadb_11_8_with_4k_pages() {
    run_battery(FetchedServer::MariaDb118, 4096);
}

#[test]
#[ignore = "make batteries"]
fn features_of_mariadb_11_8_with_64k_pages() {
    run_battery(FetchedServer::MariaDb118, 65536);
}

/// A volume, and servers of two series in turn on it.
struct Upgrade {
    node: Node,
    server: Server,
    new: Product,
}

impl Upgrade {
    fn begin(server: FetchedServer, test: &str) -> Option<Self> {
        let new = find_or_skip(server, test)?;
        let node = node();
        node.create_volume(VOLUME).unwrap();
        let mut config = ServerConfig::new(node.launcher(VOLUME, Verify::All));
        config.log_file_size_bytes = 32 << 20;
        let server = log_of(Server::create(config), &node);
        Some(Self { node, server, new })
    }

    fn execute(&self, statements: &[&str]) {
        let mut conn = self.server.connect().unwrap();
        for statement in statements {
            execute(&mut conn, statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
    }

    /// Undo of long transactions in the system tablespace, where 10.11 keeps it.
    fn fill(&self) {
        self.execute(&[
            "CREATE DATABASE d",
            "USE d",
            "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(250), b INT, KEY (b)) ENGINE=InnoDB",
            "INSERT INTO t SELECT seq, REPEAT(MD5(seq), 7), seq FROM seq_1_to_60000",
            "BEGIN",
            "UPDATE t SET a = REPEAT(MD5(id + 1), 7), b = b + 1",
            "UPDATE t SET a = REPEAT(MD5(id + 2), 7)",
            "COMMIT",
        ]);
        assert!(self.system_bytes() > 2 * SYSTEM_BYTES, "ibdata1 has {} bytes", self.system_bytes());
    }

    fn upgrade_tables(&self) {
        let socket = self.server.socket();
        let arguments = ["--no-defaults", "--skip-ssl", "--user=root", "--socket", socket.to_str().unwrap()];
        let upgraded = Outcome::of(&self.client("mariadb-upgrade"), arguments, PATIENCE).unwrap();
        upgraded.require_success().unwrap();
    }

    fn start_new(&mut self) {
        self.server.config_mut().product = self.new.clone();
        let started = self.server.start();
        log_of(started, &self.node);
    }

    /// The slow shutdown, which makes the system tablespace shorter.
    fn shut_down_slowly(&mut self) {
        self.execute(&["SET GLOBAL innodb_fast_shutdown = 0"]);
        let ended = self.server.shutdown();
        log_of(ended, &self.node);
    }

    fn system_bytes(&self) -> u64 {
        std::fs::metadata(self.server.datadir().join("ibdata1")).unwrap().len()
    }

    fn checksums(&self) -> BTreeMap<String, u64> {
        let mut conn = self.server.connect().unwrap();
        check_all(&mut conn).unwrap();
        checksums(&mut conn).unwrap()
    }

    fn client(&self, name: &str) -> PathBuf {
        match &self.new {
            Product::Fetched { folder, .. } => folder.join("bin").join(name),
            Product::MariaDb => unreachable!("the new server is a fetched one"),
        }
    }

    /// A server of the old series is refused by command and node, before anybody is fenced.
    fn require_old_refused(&mut self, series: &str) {
        let generation = || self.node.status(VOLUME).unwrap()["volumes"][0]["generation"].clone();
        let before = generation();
        self.server.config_mut().product = Product::MariaDb;
        let refused = self.server.start().unwrap_err().to_string();
        let [newest, way_out] = [format!("MariaDB {series}."), format!("MariaDB {series} or later")];
        let expected = [newest.as_str(), "MariaDB 10.11.", "cannot start from it", way_out.as_str()];
        expected.iter().for_each(|part| assert!(refused.contains(part), "{part}: {refused}"));
        assert_eq!(generation(), before);
    }

    fn stored_system_bytes(&self) -> u64 {
        let pages = self.node.data().join("volumes").join(VOLUME).join("pages");
        let files = std::fs::read_dir(pages).unwrap().map(|file| file.unwrap());
        let of_objects = files.filter(|file| file.path().extension().is_some_and(|name| name == "pages"));
        let lengths = of_objects.map(|file| file.metadata().unwrap().len());
        lengths.max().unwrap()
    }

    /// The volume, exported, holds the same for a stock server of the new series.
    fn require_export(&self, expected: &BTreeMap<String, u64>) {
        let exported = tempfile::Builder::new().prefix("rdtx-").tempdir().unwrap();
        let to = exported.path().join("data");
        let address = self.node.address().to_string();
        let arguments = ["volume", "export", VOLUME, "--to", to.to_str().unwrap(), "--node", &address];
        Outcome::of(self.node.redoubt_bin(), arguments, PATIENCE).unwrap().require_success().unwrap();
        assert_eq!(std::fs::metadata(to.join("ibdata1")).unwrap().len(), self.system_bytes());
        let config = ServerConfig::new(Launcher::Stock).product(self.new.clone());
        let mut stock = Server::in_directory(config, exported.path()).unwrap();
        stock.start().unwrap();
        let mut conn = stock.connect().unwrap();
        check_all(&mut conn).unwrap();
        assert_eq!(&checksums(&mut conn).unwrap(), expected);
        stock.shutdown().unwrap();
    }
}

#[test]
fn a_volume_is_upgraded_from_10_11_to_11_8() {
    drop(upgrade_to(FetchedServer::MariaDb118, "11.8"));
}

#[test]
fn a_volume_is_upgraded_from_10_11_to_11_4_and_on_to_11_8() {
    let Some(mut upgrade) = upgrade_to(FetchedServer::MariaDb114, "11.4") else { return };
    let Some(newest) = find_or_skip(FetchedServer::MariaDb118, "an upgrade from MariaDB 11.4 to 11.8") else {
        return;
    };
    let tables = |upgrade: &Upgrade| -> BTreeMap<_, _> {
        upgrade.checksums().into_iter().filter(|(table, _)| table.starts_with("d.")).collect()
    };
    upgrade.start_new();
    let before = tables(&upgrade);
    upgrade.shut_down_slowly();
    upgrade.new = newest;
    upgrade.start_new();
    upgrade.upgrade_tables();
    assert_eq!(tables(&upgrade), before);
    // Without a change the older one could still start.
    upgrade.execute(&["CREATE TABLE d.newer (id INT PRIMARY KEY) ENGINE=InnoDB"]);
    upgrade.server.shutdown().unwrap();
    upgrade.require_old_refused("11.8");
}

fn upgrade_to(server: FetchedServer, series: &str) -> Option<Upgrade> {
    let test = format!("an upgrade from MariaDB 10.11 to {series}");
    let mut upgrade = Upgrade::begin(server, &test)?;
    upgrade.fill();
    let before = upgrade.checksums();
    upgrade.shut_down_slowly();
    let long_bytes = upgrade.system_bytes();

    // No undo is left, so the new server makes undo tablespaces of its own.
    upgrade.start_new();
    upgrade.upgrade_tables();
    let tables = upgrade.checksums();
    before.iter().filter(|(table, _)| table.starts_with("d.")).for_each(|(table, sum)| {
        assert_eq!(tables.get(table), Some(sum), "{table}");
    });
    assert_eq!(upgrade.system_bytes(), long_bytes);
    upgrade.shut_down_slowly();
    assert!(upgrade.system_bytes() < long_bytes / 2, "{long_bytes} bytes became {}", upgrade.system_bytes());
    upgrade.require_old_refused(series);

    // From an empty directory, after the node was killed: what was cut off is nowhere.
    upgrade.node.crash_and_restart().unwrap();
    upgrade.server.empty_data_directory().unwrap();
    upgrade.start_new();
    assert_eq!(upgrade.checksums(), tables);
    upgrade.require_export(&tables);

    // The system tablespace grows again, over pages that the node once had with other content.
    upgrade.server.shutdown().unwrap();
    upgrade.server.config_mut().innodb_args.push("--innodb-file-per-table=0".to_owned());
    upgrade.start_new();
    upgrade.execute(&[
        "USE d",
        "CREATE TABLE d.again ENGINE=InnoDB SELECT seq, REPEAT(MD5(seq), 5) x FROM seq_1_to_100000",
        "ALTER TABLE d.again ADD KEY (x)",
        "FLUSH TABLES",
    ]);
    let again = upgrade.checksums();
    assert!(upgrade.system_bytes() > 2 * SYSTEM_BYTES);
    upgrade.server.kill9().unwrap();
    upgrade.server.empty_data_directory().unwrap();
    upgrade.start_new();
    assert_eq!(upgrade.checksums(), again);
    upgrade.require_export(&again);
    upgrade.server.shutdown().unwrap();
    upgrade.node.require_verified(VOLUME, 500).unwrap();
    upgrade.require_old_refused(series);
    Some(upgrade)
}

#[test]
fn a_table_that_is_imported_without_being_there_before_is_on_the_node() {
    let Some(product) =
        find_or_skip(FetchedServer::MariaDb118, "an import of MariaDB 11.8 without CREATE TABLE")
    else {
        return;
    };
    let node = node();
    node.create_volume(VOLUME).unwrap();
    let config = ServerConfig::new(node.launcher(VOLUME, Verify::All)).product(product);
    let mut server = log_of(Server::create(config), &node);
    let mut conn = server.connect().unwrap();
    let run = |conn: &mut _, statements: &[&str]| {
        statements.iter().for_each(|statement| execute(conn, statement).unwrap());
    };
    run(
        &mut conn,
        &[
            "CREATE DATABASE d",
            "CREATE DATABASE e",
            "USE d",
            "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(200), KEY by_a (a)) ENGINE=InnoDB",
            "INSERT INTO t SELECT seq, SHA1(seq) FROM seq_1_to_20000",
            "FLUSH TABLES t FOR EXPORT",
        ],
    );
    for extension in ["frm", "cfg", "ibd"] {
        let file = |database: &str| server.datadir().join(database).join(format!("t.{extension}"));
        std::fs::copy(file("d"), file("e")).unwrap();
    }
    run(&mut conn, &["UNLOCK TABLES", "ALTER TABLE e.t IMPORT TABLESPACE"]);
    let sums = query_text(&mut conn, "CHECKSUM TABLE d.t, e.t EXTENDED").unwrap();
    assert_eq!(sums[0][1], sums[1][1], "{sums:?}");
    server.kill9().unwrap();
    server.empty_data_directory().unwrap();
    log_of(server.start(), &node);
    assert_eq!(server.query("CHECKSUM TABLE d.t, e.t EXTENDED").unwrap(), sums);
    run(
        &mut server.connect().unwrap(),
        &["UPDATE e.t SET a = REVERSE(a)", "DROP TABLE d.t", "DROP TABLE e.t"],
    );
    server.shutdown().unwrap();
}

#[test]
fn a_system_tablespace_that_is_cut_is_cut_on_the_node_too() {
    let Some(mut upgrade) =
        Upgrade::begin(FetchedServer::MariaDb118, "a system tablespace that MariaDB 11.8 cuts")
    else {
        return;
    };
    upgrade.fill();
    upgrade.shut_down_slowly();
    upgrade.start_new();
    let tables = upgrade.checksums();
    let stored_bytes = upgrade.stored_system_bytes();
    upgrade.shut_down_slowly();
    let end_lsn = upgrade.node.status(VOLUME).unwrap()["volumes"][0]["w_lsn"].clone();
    redoubt_workload::process::poll_until("the cut on the node", PATIENCE, || {
        let status = upgrade.node.status(VOLUME)?;
        let is_applied = status["volumes"][0]["a_lsn"] == end_lsn;
        Ok((is_applied && upgrade.stored_system_bytes() <= upgrade.system_bytes().max(SYSTEM_BYTES))
            .then_some(()))
    })
    .unwrap_or_else(|error| {
        panic!("{error}; {stored_bytes} bytes before\nnode: {}", upgrade.node.log_tail(20))
    });
    upgrade.node.crash_and_restart().unwrap();
    upgrade.start_new();
    assert_eq!(upgrade.checksums(), tables);
    let mut conn = upgrade.server.connect().unwrap();
    let version = query_text(&mut conn, "SELECT VERSION()").unwrap();
    assert!(version[0][0].starts_with("11.8."), "{version:?}");
    upgrade.server.shutdown().unwrap();
}

/// A server without syncs drops pages before their redo is durable on the node, and with a small pool reads them again
/// at once. The pages that it reads must not be older.
#[test]
fn a_server_that_does_not_sync_reads_no_old_pages() {
    let Some(product) = find_or_skip(FetchedServer::MariaDb118, "MariaDB 11.8 without syncs") else { return };
    let node = node();
    node.create_volume(VOLUME).unwrap();
    let mut config = ServerConfig::new(node.launcher(VOLUME, Verify::All)).product(product);
    (config.buffer_pool_bytes, config.log_file_size_bytes) = (8 << 20, 10 << 20);
    let config = config.server_arg("--debug-no-sync").server_arg("--innodb-log-buffer-size=2M");
    let mut server = log_of(Server::create(config), &node);
    let mut conn = server.connect().unwrap();
    let make = [
        "CREATE DATABASE d",
        "USE d",
        "CREATE TABLE t (a CHAR(200), b INT NOT NULL) ENGINE=InnoDB",
        "INSERT INTO t SELECT REPEAT('b', 200), seq FROM seq_1_to_65536",
        "ALTER TABLE t ALGORITHM=COPY, ADD INDEX (b)",
    ];
    for statement in make.into_iter().chain(["ALTER TABLE t ALGORITHM=COPY, FORCE"; 5]) {
        log_of(execute(&mut conn, statement), &node);
    }
    let checked = query_text(&mut conn, "CHECK TABLE t EXTENDED").unwrap();
    assert_eq!(checked[0].last().unwrap(), "OK", "{checked:?}");
    drop(conn);
    log_of(server.shutdown(), &node);
    node.require_verified(VOLUME, 500).unwrap();
}
