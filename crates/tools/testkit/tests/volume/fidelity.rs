//! The node's copy of a data directory is the server's. After a busy workload every plain file and directory on the
//! node equals the local one byte for byte, and no stub of an InnoDB file ever got blocks. After a restart from an
//! empty directory every page that the server reads is right.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redoubt_harness::node::Node;
use redoubt_harness::plain_files;
use redoubt_workload::check::{check_all, checksums};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{execute, query_text};

const VOLUME: &str = "fidelity";

fn require_same_files(node: &Node, server: &Server, folder: &Path) {
    let compared = plain_files::require_same(node, VOLUME, server, folder).unwrap();
    println!("{compared:?}");
}

fn launcher(node: &Node) -> Launcher {
    node.create_volume(VOLUME).unwrap();
    node.launcher(VOLUME, Verify::All)
}

fn node() -> Node {
    Node::create(&find_redoubt().unwrap(), &["--ring", "32MiB", "--batch", "1MiB", "--apply-interval", "1"])
        .unwrap()
}

/// Everything in a server that writes a file of the data directory, a few times over.
#[expect(clippy::too_many_lines, reason = "one list of statements, in order")]
fn busy(server: &Server, round: u32) {
    let mut conn = server.connect().unwrap();
    let datadir = server.datadir();
    let out = |name: &str| datadir.join(name).display().to_string();
    let (outfile, binary) = (out(&format!("out-{round}.txt")), out(&format!("dump-{round}.bin")));
    let statements = [
        "CREATE OR REPLACE DATABASE work CHARACTER SET utf8mb4".to_owned(),
        // Names that mean something at the top of a data directory must mean nothing as a database.
        "CREATE OR REPLACE DATABASE core".to_owned(),
        "CREATE OR REPLACE DATABASE ibtmp9".to_owned(),
        "CREATE OR REPLACE DATABASE `ümläut`".to_owned(),
        "USE work".to_owned(),
        "CREATE TABLE core.ibtmp1 (a INT PRIMARY KEY) ENGINE=InnoDB".to_owned(),
        "CREATE TABLE core.`ib_buffer_pool` (a INT PRIMARY KEY) ENGINE=Aria".to_owned(),
        "INSERT INTO core.ib_buffer_pool SELECT seq FROM seq_1_to_1000".to_owned(),
                "CREATE TABLE i (a INT AUTO_INCREMENT PRIMARY KEY, b VARCHAR(200), c BLOB, KEY(b), FULLTEXT(b))".to_owned(),
        "CREATE TABLE z (a INT PRIMARY KEY, b TEXT) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4".to_owned(),
        "CREATE TABLE aria (a INT AUTO_INCREMENT PRIMARY KEY, b VARCHAR(200), c BLOB, KEY(b)) ENGINE=Aria TRANSACTIONAL=1"
            .to_owned(),
        "CREATE TABLE myisam (a INT AUTO_INCREMENT PRIMARY KEY, b VARCHAR(200), c BLOB, KEY(b)) ENGINE=MyISAM".to_owned(),
        "CREATE TABLE csv (a INT NOT NULL, b VARCHAR(200) NOT NULL) ENGINE=CSV".to_owned(),
        "CREATE TABLE parts (a INT PRIMARY KEY, b INT) PARTITION BY HASH(a) PARTITIONS 3".to_owned(),
        "INSERT INTO i (b, c) SELECT CONCAT('word ', seq), REPEAT('x', seq % 5000) FROM seq_1_to_3000".to_owned(),
        "INSERT INTO z SELECT seq, REPEAT(MD5(seq), 20) FROM seq_1_to_2000".to_owned(),
        "INSERT INTO aria SELECT * FROM i".to_owned(),
        "INSERT INTO myisam SELECT * FROM i".to_owned(),
        "INSERT INTO csv SELECT seq, MD5(seq) FROM seq_1_to_500".to_owned(),
        "INSERT INTO parts SELECT seq, seq FROM seq_1_to_300".to_owned(),
        "CREATE SEQUENCE s CACHE 10".to_owned(),
        "SELECT NEXTVAL(s), NEXTVAL(s)".to_owned(),
        "CREATE VIEW v AS SELECT a, b FROM i WHERE a < 100".to_owned(),
        "CREATE TRIGGER t BEFORE INSERT ON i FOR EACH ROW SET NEW.b = CONCAT(NEW.b, '!')".to_owned(),
        "CREATE EVENT e ON SCHEDULE EVERY 1 SECOND DO INSERT INTO work.aria (b) VALUES ('event')".to_owned(),
        "CREATE PROCEDURE p() INSERT INTO i (b) VALUES ('p')".to_owned(),
        "CALL p()".to_owned(),
        format!("CREATE OR REPLACE USER u{round} IDENTIFIED BY 'secret'"),
        format!("GRANT SELECT, INSERT ON work.* TO u{round}"),
        "CREATE TEMPORARY TABLE temporary AS SELECT * FROM i".to_owned(),
        "CREATE TEMPORARY TABLE temporary2 (a INT) ENGINE=Aria AS SELECT a FROM i".to_owned(),
        format!("SELECT a, b FROM i INTO OUTFILE '{outfile}'"),
        format!("SELECT c FROM i WHERE a = 3000 INTO DUMPFILE '{binary}'"),
        "CREATE TABLE loaded (a INT PRIMARY KEY, b VARCHAR(201)) ENGINE=Aria".to_owned(),
        format!("LOAD DATA INFILE '{outfile}' INTO TABLE loaded"),
        "OPTIMIZE TABLE aria, myisam, i".to_owned(),
        "ALTER TABLE i ADD COLUMN d INT DEFAULT 7".to_owned(),
        "ALTER TABLE i DROP KEY b, ADD KEY bd (b, d)".to_owned(),
        "ALTER TABLE aria ADD COLUMN d INT DEFAULT 7".to_owned(),
        "ALTER TABLE myisam ENGINE=InnoDB".to_owned(),
        "ALTER TABLE parts ADD PARTITION PARTITIONS 2".to_owned(),
        "DELETE FROM aria WHERE a % 3 = 0".to_owned(),
        "UPDATE csv SET b = 'shorter' WHERE a < 100".to_owned(),
        "REPAIR TABLE aria".to_owned(),
        "RENAME TABLE loaded TO core.moved, parts TO parts2".to_owned(),
        "TRUNCATE TABLE z".to_owned(),
        "TRUNCATE TABLE core.moved".to_owned(),
        "INSERT INTO core.moved SELECT seq, seq FROM seq_1_to_50".to_owned(),
        "FLUSH LOGS".to_owned(),
        "FLUSH TABLES i FOR EXPORT".to_owned(),
        "UNLOCK TABLES".to_owned(),
        // An exported table's file has content until its next page is written; a new file has none.
        "ALTER TABLE i FORCE".to_owned(),
        "SET GLOBAL slow_query_log_file = 'slow.txt', GLOBAL general_log_file = 'general.txt'".to_owned(),
        "SET GLOBAL general_log = 1, GLOBAL slow_query_log = 1, long_query_time = 0".to_owned(),
        "SELECT COUNT(*) FROM i, csv WHERE i.a = csv.a".to_owned(),
        "SET GLOBAL log_output = 'TABLE,FILE'".to_owned(),
        "SELECT COUNT(*) FROM i".to_owned(),
        "FLUSH LOGS".to_owned(),
        "SET GLOBAL general_log = 0, GLOBAL slow_query_log = 0, GLOBAL log_output = 'FILE'".to_owned(),
        "PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 HOUR".to_owned(),
        "DROP DATABASE `ümläut`".to_owned(),
        "DROP EVENT e".to_owned(),
        "DROP VIEW v".to_owned(),
    ];
    for statement in &statements {
        execute(&mut conn, statement)
            .unwrap_or_else(|error| panic!("{error}\n{}", server.error_log_tail(20)));
    }
}

#[test]
fn plain_files_on_the_node_are_those_of_the_server() {
    let node = node();
    let mut config = ServerConfig::new(launcher(&node));
    config.buffer_pool_bytes = 16 << 20;
    for option in
        ["--log-bin", "--event-scheduler=ON", "--innodb-undo-tablespaces=2", "--max-binlog-size=65536"]
    {
        config.server_args.push(option.to_owned());
    }
    let mut server = Server::create(config).unwrap();
    let folder = tempfile::tempdir().unwrap();
    busy(&server, 0);
    require_same_files(&node, &server, &folder.path().join("0"));
    busy(&server, 1);
    execute(&mut server.connect().unwrap(), "RESET MASTER").unwrap();
    busy(&server, 2);
    require_same_files(&node, &server, &folder.path().join("2"));

    let before = checksums(&mut server.connect().unwrap()).unwrap();
    server.kill9().unwrap();
    server.empty_data_directory().unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    let mut conn = server.connect().unwrap();
    let after = checksums(&mut conn).unwrap();
    let differing: Vec<_> =
        before.iter().filter(|(table, sum)| after.get(*table) != Some(sum)).map(|(table, _)| table).collect();
    assert!(differing.is_empty(), "differ after the restart: {differing:?}");
    check_all(&mut conn).unwrap();
    require_same_files(&node, &server, &folder.path().join("3"));
    server.shutdown().unwrap();
    node.require_verified(VOLUME, 500).unwrap();
}

/// The server would send it to the node, which has only UTF-8 names and would have to stop.
#[test]
fn file_name_that_is_not_utf8_is_refused() {
    let node = node();
    let mut server = Server::create(ServerConfig::new(launcher(&node))).unwrap();
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "CREATE TABLE mysql.kept (a INT PRIMARY KEY) ENGINE=InnoDB").unwrap();
    execute(&mut conn, "SET NAMES latin1").unwrap();
    let statement = format!(
        "EXECUTE IMMEDIATE CONCAT('SELECT 1 INTO OUTFILE \"{}/caf', _latin1 X'E9', '.txt\"')",
        server.datadir().display()
    );
    let error = execute(&mut conn, &statement).unwrap_err().to_string();
    assert!(error.contains("84") || error.contains("nvalid or incomplete"), "{error}");
    execute(&mut conn, "INSERT INTO mysql.kept VALUES (1)").unwrap();
    assert!(server.error_log_tail(50).contains("is not UTF-8"));
    server.shutdown().unwrap();
}

/// A program called mariadbd that starts the server again when it ends: the second process must see all that the
/// first committed.
#[test]
fn second_server_process_of_one_attachment_has_every_commit() {
    let node = node();
    let mut server = Server::create(ServerConfig::new(launcher(&node))).unwrap();
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "CREATE TABLE mysql.kept (a INT PRIMARY KEY, b VARCHAR(1000)) ENGINE=InnoDB").unwrap();
    drop(conn);
    server.shutdown().unwrap();

    let script = server.directory().join("again").join("mariadbd");
    std::fs::create_dir(script.parent().unwrap()).unwrap();
    let started = server.directory().join("started");
    std::fs::write(
        &script,
        format!(
            "#!/bin/sh\nPATH=$PATH:/usr/sbin\ncase \"$*\" in *--help*) exec mariadbd \"$@\";; esac\n\
             for round in 1 2 3; do\n  mariadbd \"$@\" &\n  echo $! > {}\n  wait $!\ndone\n",
            started.display()
        ),
    )
    .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut wrapper = Wrapper::start(&node, &server, &script);
    for round in 0..3 {
        let mut conn = redoubt_workload::sql::connect_within(&wrapper.socket, Duration::from_secs(60))
            .unwrap_or_else(|error| panic!("{error}\n{}", wrapper.log()));
        execute(&mut conn, "USE mysql").unwrap();
        let count = query_text(&mut conn, "SELECT COUNT(*) FROM kept").unwrap();
        assert_eq!(count, [[(round * 2000).to_string()]], "{}", wrapper.log());
        for block in 0..2 {
            let first = round * 2000 + block * 1000;
            let insert = format!(
                "INSERT INTO kept SELECT seq, REPEAT('x', 1000) FROM seq_{}_to_{}",
                first + 1,
                first + 1000
            );
            execute(&mut conn, &insert).unwrap();
        }
        let process: i32 = std::fs::read_to_string(&started).unwrap().trim().parse().unwrap();
        let kill = std::process::Command::new("kill").arg("-9").arg(process.to_string()).status().unwrap();
        assert!(kill.success());
        while conn.ping().is_ok() {}
    }
    wrapper.process.wait().unwrap();
    server.start().unwrap();
    let count = query_text(&mut server.connect().unwrap(), "SELECT COUNT(*) FROM mysql.kept").unwrap();
    assert_eq!(count, [["6000"]]);
    check_all(&mut server.connect().unwrap()).unwrap();
    server.shutdown().unwrap();
}

/// A script that starts servers, under `redoubt run`.
struct Wrapper {
    process: std::process::Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Wrapper {
    fn start(node: &Node, server: &Server, script: &Path) -> Self {
        let (socket, log) = (server.socket(), server.directory().join("wrapper.log"));
        let _ = std::fs::remove_file(&socket);
        let output = std::fs::File::create(&log).unwrap();
        let mut command = node.launcher(VOLUME, Verify::All).command(script, &server.datadir());
        let process = command
            .arg("--no-defaults")
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", server.directory().join("w.pid").display()))
            .args(["--skip-networking", "--user=root", "--innodb-log-file-size=96M"])
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        Self { process, socket, log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Wrapper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
