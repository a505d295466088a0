//! `redoubt run`: what it refuses before it takes a volume over.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use redoubt_harness::node::Node;
use redoubt_test_support::Mount;
use redoubt_workload::check::check_all;
use redoubt_workload::launcher::{Launcher, Verify};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;

use super::{FAILED, node, redoubt, refused, text};

/// A node with a volume, and room for data directories.
struct Setup {
    node: Node,
    address: String,
    directory: tempfile::TempDir,
}

impl Setup {
    fn new() -> Self {
        let node = node();
        node.create_volume("v").unwrap();
        let address = node.address().to_string();
        Self { node, address, directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `redoubt run` is refused, and the volume was not taken over.
    fn refused(&self, datadir: &Path, options: &[&str], command: &[&str], parts: &[&str]) {
        let head = ["run", "--node", &self.address, "--volume", "v", "--datadir", text(datadir)];
        refused(&[&head[..], options, &["--"], command].concat(), FAILED, parts);
        self.require_untouched();
    }

    fn require_untouched(&self) {
        let status = self.node.status("v").unwrap();
        assert_eq!(
            status["volumes"][0]["generation"].as_u64(),
            Some(0),
            "the volume was taken over: {status}"
        );
    }

    /// An executable file.
    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

#[test]
fn the_server_program_must_be_a_supported_server() {
    let setup = Setup::new();
    let datadir = setup.path("data");
    setup.refused(&datadir, &[], &["/no/such/mariadbd"], &["/no/such/mariadbd", "check the path"]);
    setup.refused(&datadir, &[], &["no-such-server"], &["no-such-server in PATH", "install"]);
    setup.refused(&datadir, &[], &["/bin/true"], &["/bin/true", "not a server command", "mariadbd"]);

    let other = setup.script("mariadbd", "#!/bin/sh\necho \"$0  Ver 12.3.1-MariaDB for Linux\"\n");
    setup.refused(
        &datadir,
        &[],
        &[text(&other)],
        &["12.3.1", "not a supported server", "MariaDB 11.8 or MySQL 9.7", "volume export"],
    );
    let renamed = setup.path("database-server");
    symlink("/usr/sbin/mariadbd", &renamed).unwrap();
    setup.refused(&datadir, &[], &[text(&renamed)], &[text(&renamed), "not a server command"]);

    let library = setup.path("lib.so");
    setup.refused(&datadir, &["--library", text(&library)], &["mariadbd"], &[text(&library), "--library"]);
    let left: Vec<_> = std::fs::read_dir(&datadir).map_or_else(|_| Vec::new(), |entries| entries.collect());
    assert!(left.is_empty(), "refused starts left {left:?}");
}

#[test]
fn settings_a_node_cannot_follow_are_refused() {
    let setup = Setup::new();
    let (datadir, elsewhere) = (setup.path("data"), setup.path("elsewhere"));
    std::fs::create_dir(&elsewhere).unwrap();
    let outside = elsewhere.display();
    let cases: [(&str, &[&str]); 7] = [
        ("--innodb-encrypt-log=1", &["innodb_encrypt_log", "OFF"]),
        ("--innodb-encrypt-tables=ON", &["innodb_encrypt_tables", "OFF"]),
        ("--innodb-encrypt-tables=FORCE", &["innodb_encrypt_tables", "OFF"]),
        ("--plugin-load-add=file_key_management", &["file_key_management", "Remove it", "--clear-pages"]),
        ("--innodb-data-file-path=/dev/sdb:3Gnewraw", &["raw partitions"]),
        ("--innodb-data-file-path=../ibdata1:12M:autoextend", &["outside the data directory"]),
        (&format!("--log-bin={outside}/"), &["--log-bin", text(&elsewhere), "is a directory name"]),
    ];
    for (option, parts) in cases {
        setup.refused(&datadir, &[], &["mariadbd", "--no-defaults", option], parts);
    }
    // An option file counts like the command line.
    let file = setup.path("my.cnf");
    std::fs::write(&file, "[mariadbd]\ninnodb_encrypt_log=ON\n").unwrap();
    let option = format!("--defaults-file={}", file.display());
    setup.refused(&datadir, &[], &["mariadbd", &option], &["innodb_encrypt_log"]);
}

/// Going on after a damaged page, no background threads, no rollback at the start: all of it goes through redo as ever.
#[test]
fn a_server_works_with_the_levels_of_forced_recovery_that_write_redo() {
    let setup = Setup::new();
    let mut server = Server::create(ServerConfig::new(setup.node.launcher("v", Verify::All))).unwrap();
    let run = |server: &Server, statement: &str| server.query(statement).unwrap();
    run(&server, "CREATE DATABASE forced");
    run(&server, "CREATE TABLE forced.t (id INT PRIMARY KEY, a TEXT, KEY (a(20))) ENGINE=InnoDB");
    for level in 1..=3 {
        // A transaction that recovery finds open; 3 leaves it open.
        let mut open = server.connect().unwrap();
        execute(&mut open, "BEGIN").unwrap();
        execute(&mut open, &format!("INSERT INTO forced.t VALUES (-{level}, 'open')")).unwrap();
        // Makes durable what came before.
        run(&server, &format!("CREATE TABLE forced.after{level} (id INT PRIMARY KEY) ENGINE=InnoDB"));
        server.kill9().unwrap();
        server
            .start_with(&[&format!("--innodb-force-recovery={level}")])
            .unwrap_or_else(|error| panic!("level {level}: {error}"));
        let values: Vec<_> =
            (0..2000).map(|id| format!("({}, REPEAT('x', 500))", level * 10_000 + id)).collect();
        run(&server, &format!("INSERT INTO forced.t VALUES {}", values.join(",")));
        run(&server, &format!("DELETE FROM forced.t WHERE id % 3 = 0 AND id > {}", level * 10_000));
        server.kill9().unwrap();
        server.empty_data_directory().unwrap();
        server.start().unwrap_or_else(|error| panic!("after level {level}: {error}"));
        let rows = run(&server, "SELECT SUM(id > 0), SUM(id < 0) FROM forced.t");
        let expected: i32 = (1..=level).map(|level| 2000 - multiples_of_3_after(level * 10_000)).sum();
        assert_eq!(rows, [[expected.to_string(), "0".to_owned()]], "level {level}");
    }
    check_all(&mut server.connect().unwrap()).unwrap();
    server.shutdown().unwrap();
    setup.node.require_verified("v", 1).unwrap();
}

/// Among the 2000 ids from `first` on, those that a level's test deletes.
fn multiples_of_3_after(first: i32) -> i32 {
    (first + 1..first + 2000).filter(|id| id % 3 == 0).count() as i32
}

#[test]
fn the_data_directory_must_be_free_or_this_volumes() {
    let setup = Setup::new();
    let command = ["mariadbd", "--no-defaults"];
    let full = setup.path("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("ibdata1"), "x").unwrap();
    setup.refused(&full, &[], &command, &[text(&full), "did not put there", "redoubt volume import"]);
    assert_eq!(std::fs::read_dir(&full).unwrap().count(), 1);

    let file = setup.path("file");
    std::fs::write(&file, "x").unwrap();
    setup.refused(&file, &[], &command, &[text(&file), "not a directory"]);

    let damaged = setup.path("damaged");
    std::fs::create_dir(&damaged).unwrap();
    std::fs::write(damaged.join(".redoubt"), "{nonsense").unwrap();
    setup.refused(&damaged, &[], &command, &[text(&damaged), "remove"]);

    let none = setup.path("none");
    let head =
        ["run", "--node", &setup.address, "--volume", "gone", "--datadir", text(&none), "--", "mariadbd"];
    refused(&head, FAILED, &["no volume \"gone\"", "redoubt volume list"]);

    match Mount::read_only(setup.directory.path()) {
        Ok(mount) => {
            let datadir = mount.path().join("data");
            setup.refused(&datadir, &[], &command, &[text(&datadir), "mounted read-only"]);
            let there = mount.path().join("none");
            setup.refused(&there, &[], &command, &[text(&there), "mounted read-only"]);
        }
        Err(reason) => redoubt_test_support::skip("a read-only file system", reason),
    }
}

#[test]
fn a_data_directory_belongs_to_one_volume_and_one_server() {
    let setup = Setup::new();
    setup.node.create_volume("used").unwrap();
    let mut server = Server::create(ServerConfig::new(setup.node.launcher("used", Verify::All))).unwrap();
    let datadir = server.datadir();
    let command = ["mariadbd", "--no-defaults"];
    setup.refused(&datadir, &[], &command, &[text(&datadir), "in use by another server"]);
    let export = ["volume", "export", "used", "--node", &setup.address, "--to", text(&datadir)];
    refused(&export, FAILED, &[text(&datadir), "is not empty", "new or empty"]);
    let import = ["volume", "import", "w", "--node", &setup.address, "--from", text(&datadir)];
    refused(&import, FAILED, &[text(&datadir), "local directory of a volume", "redoubt volume export"]);
    let delete = ["volume", "delete", "used", "--yes", "--node", &setup.address];
    refused(&delete, FAILED, &["used is in use", "--force"]);
    server.shutdown().unwrap();
    setup.refused(
        &datadir,
        &[],
        &command,
        &[text(&datadir), "belongs to volume used", "use another directory"],
    );
    redoubt(&delete).require_success().unwrap();
}

#[test]
fn exit_codes_are_the_servers_own() {
    let node = node();
    node.create_volume("v").unwrap();
    let code_of = |launcher: Launcher| {
        let mut server = Server::new(ServerConfig::new(launcher)).unwrap();
        server.install_db().unwrap();
        server.spawn(&["--tmpdir=/no/such/directory"]).unwrap();
        let code = server.wait_exit_code(super::PATIENCE).unwrap();
        (code, server)
    };
    let (expected, _) = code_of(Launcher::Stock);
    let (code, mut server) = code_of(node.launcher("v", Verify::All));
    assert!(expected.is_some_and(|code| code != 0), "the stock server starts without a tmpdir: {expected:?}");
    assert_eq!(code, expected, "{}", server.error_log_tail(10));
    // SIGTERM goes to the process that `redoubt run` became, and its orderly end is exit code 0.
    server.start().unwrap_or_else(|error| panic!("{error}"));
    server.shutdown().unwrap_or_else(|error| panic!("{error}"));
}
