//! Volumes of releases, and of each kind of server and encryption, opened by today's node: read through an export and
//! through an attached server, killed, and read again.

use std::path::Path;

use redoubt_drill::group::ports::Port;
use redoubt_harness::fetched::find_or_skip;
use redoubt_harness::node::Node;
use redoubt_test_support::{Mount, skip};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::product::{FetchedServer, Product};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{execute, query_text};

use super::fixture::{self, NODE_ARGS};

/// A table of database `d`: name, rows, CHECKSUM TABLE.
type Table = (&'static str, u32, u32);

struct Release {
    /// Name of its archive.
    name: &'static str,
    tables: [Table; 5],
    /// Format of its file `volume`, once today's node has opened it. 0.1.0 opens format 1 only.
    format: u32,
}

const OF_0_1_0: [Table; 5] = [
    ("t", 360, 3_411_390_316),
    ("new_name", 60, 3_173_175_819),
    ("z", 100, 1_274_929_722),
    ("late", 11, 3_200_860_680),
    ("p", 2, 2_729_388_108),
];

/// A node on an unpacked archive. Dropped in this order.
struct Opened {
    node: Node,
    _disk: Option<Mount>,
    _directory: tempfile::TempDir,
}

impl Opened {
    /// The archive is the node's directory.
    fn plain(name: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("rdtu-").tempdir().unwrap();
        let data = directory.path().join("node");
        std::fs::create_dir(&data).unwrap();
        fixture::unpack(&fixture::packed(name), &data);
        let node = start(directory.path(), &[]);
        Self { node, _disk: None, _directory: directory }
    }

    /// The archive has a disk with the node's directory, and the directory of keys. `None` where
    /// the disk cannot be mounted; the test is then reported as skipped.
    fn encrypted(name: &str) -> Option<Self> {
        let directory = tempfile::Builder::new().prefix("rdtu-").tempdir().unwrap();
        fixture::unpack(&fixture::packed(name), directory.path());
        let disk = match Mount::of_image(&directory.path().join("disk")) {
            Ok(disk) => disk,
            Err(reason) => {
                skip("an encrypted volume of 0.1.0", reason);
                return None;
            }
        };
        let keys = directory.path().join("keys");
        let node = start(disk.path(), &["--volume-keys", keys.to_str().unwrap()]);
        Some(Self { node, _disk: Some(disk), _directory: directory })
    }
}

fn start(directory: &Path, more: &[&str]) -> Node {
    Node::in_directory(&find_redoubt().unwrap(), directory, &[&NODE_ARGS[..], more].concat()).unwrap()
}

fn config(product: &Product, launcher: Launcher) -> ServerConfig {
    let is_mysql = matches!(product, Product::Fetched { server: FetchedServer::MySql97, .. });
    let mut config = if is_mysql {
        let mut config = ServerConfig::new(launcher).server_arg("--skip-grant-tables");
        config.buffer_pool_bytes = 8 << 20;
        config.log_file_size_bytes = 8 << 20;
        config
    } else {
        fixture::config(launcher)
    };
    config.product = product.clone();
    config
}

/// All rows are as they were, and all indexes sound.
fn require_rows(server: &Server, release: &Release, what: &str) {
    let mut conn = server.connect().unwrap();
    for (table, count, checksum) in release.tables {
        let found = query_text(&mut conn, &format!("SELECT COUNT(*) FROM d.{table}")).unwrap();
        assert_eq!(found, [[count.to_string()]], "{what}: rows of {table}");
        let found = query_text(&mut conn, &format!("CHECKSUM TABLE d.{table}")).unwrap();
        assert_eq!(found[0][1], checksum.to_string(), "{what}: checksum of {table}");
        let found = query_text(&mut conn, &format!("CHECK TABLE d.{table} EXTENDED")).unwrap();
        assert_eq!(found.last().unwrap()[3], "OK", "{what}: {table}");
    }
}

fn require_format(node: &Node, release: &Release, expected: u32) {
    let identity = std::fs::read_to_string(node.data().join("volumes/v/volume")).unwrap();
    let expected = format!("\"format\":{expected},");
    assert!(identity.contains(&expected), "{}: {expected} is not in {identity}", release.name);
}

fn opens_serves_and_is_exported(release: &Release, product: &Product, mut opened: Opened) {
    let name = release.name;
    let address = opened.node.address().to_string();
    let shown = opened.node.redoubt(&["volume", "show", "--node", &address, "v"]).unwrap();
    assert!(shown.contains("state           ready"), "{name}: {shown}");
    require_format(&opened.node, release, release.format);

    let exported = tempfile::Builder::new().prefix("rdtx-").tempdir().unwrap();
    let data = exported.path().join("data");
    let to = data.to_str().unwrap();
    opened.node.redoubt(&["volume", "export", "--node", &address, "v", "--to", to]).unwrap();
    let mut stock = Server::in_directory(config(product, Launcher::Stock), exported.path()).unwrap();
    stock.start().unwrap_or_else(|error| panic!("{name}: stock server on the export: {error}"));
    require_rows(&stock, release, "stock server on the export");
    stock.shutdown().unwrap();

    let mut server = Server::new(config(product, opened.node.launcher("v", Verify::All))).unwrap();
    let log = |node: &Node| node.log_tail(20);
    server.start().unwrap_or_else(|error| panic!("{name}: {error}\nnode: {}", log(&opened.node)));
    require_rows(&server, release, "attached server");
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "CREATE TABLE d.newer (id INT PRIMARY KEY, x VARCHAR(60)) ENGINE=InnoDB").unwrap();
    execute(&mut conn, "INSERT INTO d.newer SELECT id, b FROM d.t WHERE id <= 50").unwrap();
    let newer = query_text(&mut conn, "CHECKSUM TABLE d.newer").unwrap();
    server.kill9().unwrap();
    opened.node.crash_and_restart().unwrap();
    server.start().unwrap_or_else(|error| panic!("{name}: {error}\nnode: {}", log(&opened.node)));
    require_rows(&server, release, "attached server after a kill");
    assert_eq!(query_text(&mut server.connect().unwrap(), "CHECKSUM TABLE d.newer").unwrap(), newer);
    require_format(&opened.node, release, if matches!(product, Product::MariaDb) { 1 } else { 2 });
    server.shutdown().unwrap();
}

#[test]
fn volume_of_0_1_0_opens_serves_and_is_exported() {
    let release = Release { name: "0.1.0", tables: OF_0_1_0, format: 1 };
    opens_serves_and_is_exported(&release, &Product::MariaDb, Opened::plain(release.name));
}

/// And can be upgraded to the series that came after it.
#[test]
fn volume_of_0_1_0_is_upgraded_to_mariadb_11_8() {
    let Some(product) = find_or_skip(FetchedServer::MariaDb118, "a volume of 0.1.0 with MariaDB 11.8") else {
        return;
    };
    let release = Release { name: "0.1.0", tables: OF_0_1_0, format: 1 };
    opens_serves_and_is_exported(&release, &product, Opened::plain(release.name));
}

#[test]
fn encrypted_volume_of_0_1_0_opens_serves_and_is_exported() {
    let tables = [
        ("t", 54, 2_890_435_610),
        ("new_name", 4, 2_583_593_833),
        ("z", 10, 1_428_975_071),
        ("late", 11, 3_200_860_680),
        ("p", 2, 2_729_388_108),
    ];
    let release = Release { name: "0.1.0-encrypted", tables, format: 1 };
    if let Some(opened) = Opened::encrypted(release.name) {
        opens_serves_and_is_exported(&release, &Product::MariaDb, opened);
    }
}

#[test]
fn volume_of_mariadb_11_8_opens_serves_and_is_exported() {
    let Some(product) = find_or_skip(FetchedServer::MariaDb118, "a volume of MariaDB 11.8") else { return };
    let release = Release { name: "mariadb-11.8", tables: OF_0_1_0, format: 2 };
    opens_serves_and_is_exported(&release, &product, Opened::plain(release.name));
}

#[test]
fn volume_of_mysql_9_7_opens_serves_and_is_exported() {
    let Some(product) = find_or_skip(FetchedServer::MySql97, "a volume of MySQL 9.7") else { return };
    let tables = [
        ("t", 360, 957_817_686),
        ("new_name", 60, 793_133_545),
        ("z", 100, 1_446_685_520),
        ("late", 11, 1_278_632_179),
        ("p", 2, 2_729_388_108),
    ];
    let release = Release { name: "mysql-9.7", tables, format: 2 };
    opens_serves_and_is_exported(&release, &product, Opened::plain(release.name));
}

/// Rows that the server had when it was killed, without the last commits, which are in the log of the group only.
const ROWS_WITHOUT_LOG: &str = "271";
const ROWS_WITH_LOG: &str = "275";

#[test]
fn log_of_a_group_member_brings_back_its_commits() {
    let directory = tempfile::Builder::new().prefix("rdtu-").tempdir().unwrap();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    fixture::unpack(&fixture::packed("group-member"), &data);
    let library = find_redoubt().unwrap().with_file_name("libredoubt_group.so");
    assert!(library.is_file(), "{} is missing: cargo build --release --workspace", library.display());
    let port = Port::reserve().unwrap();
    let options = [
        "--binlog-format=ROW".to_owned(),
        "--innodb-autoinc-lock-mode=2".to_owned(),
        "--skip-grant-tables".to_owned(),
        "--wsrep-on=ON".to_owned(),
        format!("--wsrep-provider={}", library.display()),
        format!("--wsrep-provider-options=base_port={port}"),
        "--wsrep-cluster-name=fixture".to_owned(),
        format!("--wsrep-cluster-address=gcomm://127.0.0.1:{port}"),
        "--wsrep-node-name=one".to_owned(),
        "--wsrep-node-address=127.0.0.1".to_owned(),
    ];
    let mut config =
        ServerConfig::new(Launcher::Stock).innodb_arg("--innodb-data-file-path=ibdata1:10M:autoextend");
    config.log_file_size_bytes = 4 << 20;
    let config = options.into_iter().fold(config, ServerConfig::server_arg);
    let mut server = Server::in_directory(config, directory.path()).unwrap();
    server.start().unwrap();
    assert_eq!(server.query("SELECT COUNT(*) FROM d.t").unwrap(), [[ROWS_WITH_LOG]]);
    let checksum = server.query("CHECKSUM TABLE d.t").unwrap();
    assert_eq!(checksum[0][1], "3969815892");
    server.shutdown().unwrap();
}

/// So that the test above tests something.
#[test]
fn group_member_without_its_log_lacks_the_last_commits() {
    let directory = tempfile::Builder::new().prefix("rdtu-").tempdir().unwrap();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    fixture::unpack(&fixture::packed("group-member"), &data);
    let mut config = ServerConfig::new(Launcher::Stock)
        .innodb_arg("--innodb-data-file-path=ibdata1:10M:autoextend")
        .server_arg("--skip-grant-tables");
    config.log_file_size_bytes = 4 << 20;
    let mut server = Server::in_directory(config, directory.path()).unwrap();
    server.start().unwrap();
    assert_eq!(server.query("SELECT COUNT(*) FROM d.t").unwrap(), [[ROWS_WITHOUT_LOG]]);
    server.shutdown().unwrap();
}
