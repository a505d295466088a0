//! Servers whose settings put files outside the data directory: on a volume, imported, exported, read. Real servers.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::node::Node;
use redoubt_workload::check::{Snapshot, check_all, finish_purge};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::ledger::{self, Entries, Options, Run};
use redoubt_workload::process::poll_until;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{execute, query_text};

/// Directory settings and the binary log, with the name of a directory for each.
const PLACES: [(&str, &str); 5] = [
    ("innodb-undo-directory", "undo"),
    ("innodb-log-group-home-dir", "log"),
    ("innodb-data-home-dir", "ibdata"),
    ("aria-log-dir-path", "aria"),
    ("log-bin", "binlog/mysql-bin"),
];

fn node() -> Node {
    Node::create(&find_redoubt().unwrap(), &["--ring", "64MiB", "--batch", "1MiB", "--apply-interval", "1"])
        .unwrap_or_else(|error| panic!("{error}"))
}

fn redoubt(node: &Node, args: &[&str]) -> Outcome {
    let address = node.address().to_string();
    Outcome::of(node.redoubt_bin(), [args, &["--node", &address]].concat(), PATIENCE).unwrap()
}

/// Undo tablespaces of their own, and a small pool, so that pages go out.
fn config(launcher: Launcher) -> ServerConfig {
    let mut config =
        ServerConfig::new(launcher).innodb_arg("--innodb-undo-tablespaces=3").innodb_arg("--server-id=7");
    config.log_file_size_bytes = 32 << 20;
    config.buffer_pool_bytes = 16 << 20;
    config
}

/// The settings of these names, each with its directory after `before`.
fn settings(names: &[&str], before: &str) -> Vec<String> {
    let chosen = PLACES.iter().filter(|(name, _)| names.contains(name));
    chosen.map(|(name, place)| format!("--{name}={before}{place}")).collect()
}

fn all() -> Vec<&'static str> {
    PLACES.iter().map(|(name, _)| *name).collect()
}

fn fill(server: &Server, database: &str) {
    let mut conn = server.connect().unwrap();
    for statement in [
        format!("CREATE DATABASE {database}"),
        format!("USE {database}"),
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(200), KEY (a)) ENGINE=InnoDB".to_owned(),
        "INSERT INTO t SELECT seq, seq % 97, REPEAT(MD5(seq), 5) FROM seq_1_to_20000".to_owned(),
        "UPDATE t SET b = REPEAT(MD5(a), 4) WHERE id % 3 = 0".to_owned(),
        "DELETE FROM t WHERE id % 7 = 0".to_owned(),
        "CREATE TABLE aria (id INT PRIMARY KEY, b TEXT) ENGINE=Aria TRANSACTIONAL=1".to_owned(),
        "INSERT INTO aria SELECT seq, REPEAT(MD5(seq), 3) FROM seq_1_to_2000".to_owned(),
    ] {
        execute(&mut conn, &statement).unwrap();
    }
}

fn contents(server: &Server) -> Snapshot {
    let mut conn = server.connect().unwrap();
    finish_purge(&mut conn).unwrap();
    check_all(&mut conn).unwrap_or_else(|error| panic!("{error}\n{}", server.error_log_tail(20)));
    Snapshot::take(&mut conn, None, &[]).unwrap()
}

/// Names of the binary logs, and the events in the first of them.
fn binary_logs(server: &Server) -> (Vec<String>, Vec<Vec<String>>) {
    let mut conn = server.connect().unwrap();
    let logs = query_text(&mut conn, "SHOW BINARY LOGS").unwrap();
    let names: Vec<_> = logs.into_iter().map(|row| row[0].clone()).collect();
    let events = query_text(&mut conn, &format!("SHOW BINLOG EVENTS IN '{}'", names[0])).unwrap();
    (names, events)
}

fn files_of(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Made, written, killed, and started on another host.
fn lives_on_a_volume(node: &Node, volume: &str, settings: &[String], elsewhere: &Path) -> Server {
    node.create_volume(volume).unwrap();
    let mut config = config(node.launcher(volume, Verify::All));
    config.innodb_args.extend_from_slice(settings);
    let has_binary_log = settings.iter().any(|setting| setting.starts_with("--log-bin"));
    let mut server = Server::create(config).unwrap_or_else(|error| panic!("{settings:?}: {error}"));
    fill(&server, "first");
    let mut open = server.connect().unwrap();
    execute(&mut open, "BEGIN").unwrap();
    execute(&mut open, "UPDATE first.t SET b = 'open' WHERE id < 5000").unwrap();
    fill(&server, "second");
    let logs = has_binary_log.then(|| binary_logs(&server));
    server.kill9().unwrap();
    server.start().unwrap_or_else(|error| panic!("{settings:?}, after a kill: {error}"));
    let before = contents(&server);
    server.kill9().unwrap();
    server.empty_data_directory().unwrap();
    server.start().unwrap_or_else(|error| panic!("{settings:?}, on another host: {error}"));
    before.require_same(&contents(&server), &format!("{settings:?}")).unwrap();
    if let Some((names, events)) = logs {
        let (now, first) = binary_logs(&server);
        assert_eq!(now[..names.len()], names, "{settings:?}");
        assert_eq!(now.len(), names.len() + 2, "each start has a log of its own: {now:?}");
        assert_eq!(first[..events.len()], events, "{settings:?}");
    }
    for path in [elsewhere, &server.datadir().parent().unwrap().join("undo")] {
        assert!(!path.exists(), "{settings:?}: {}", path.display());
    }
    let log = std::fs::read_to_string(server.error_log_path()).unwrap();
    for setting in settings {
        let said = setting.trim_start_matches("--").split_once('=').unwrap();
        let said = format!("{}={} is ignored", said.0.replace('-', "_"), said.1);
        assert!(log.contains(&said), "{said}: {log}");
    }
    server
}

#[test]
fn each_setting_that_puts_files_elsewhere_is_taken_into_the_volume() {
    let (node, directory) = (node(), tempfile::tempdir().unwrap());
    let elsewhere = directory.path().join("elsewhere");
    let before = format!("{}/", elsewhere.display());
    for (at, (name, _)) in PLACES.iter().enumerate() {
        let volume = format!("absolute{at}");
        let mut server = lives_on_a_volume(&node, &volume, &settings(&[name], &before), &elsewhere);
        server.shutdown().unwrap();
        node.require_verified(&volume, 1).unwrap();
    }
}

#[test]
fn all_of_them_at_once_absolute_and_relative() {
    let (node, directory) = (node(), tempfile::tempdir().unwrap());
    let elsewhere = directory.path().join("elsewhere");
    let absolute = format!("{}/", elsewhere.display());
    for (volume, before) in [("absolute", absolute.as_str()), ("outside", "../"), ("inside", "./")] {
        let mut server = lives_on_a_volume(&node, volume, &settings(&all(), before), &elsewhere);
        let names = files_of(&server.datadir());
        for name in ["undo001", "undo003", "ib_logfile0", "ibdata1", "aria_log_control", "mysql-bin.000001"] {
            assert!(names.iter().any(|found| found == name), "{volume}: {name} is not in {names:?}");
        }
        server.shutdown().unwrap();
        node.require_verified(volume, 1).unwrap();
    }
}

fn grow_undo(server: &Server) {
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "USE first").unwrap();
    execute(
        &mut conn,
        "CREATE TABLE IF NOT EXISTS first.big (id INT PRIMARY KEY, b VARCHAR(800)) ENGINE=InnoDB",
    )
    .unwrap();
    execute(&mut conn, "REPLACE INTO first.big SELECT seq, REPEAT(MD5(seq), 20) FROM seq_1_to_20000")
        .unwrap();
    for round in 0..3 {
        execute(&mut conn, &format!("UPDATE first.big SET b = REPEAT(MD5(id + {round}), 24)")).unwrap();
    }
}

#[test]
fn under_load_and_kills_with_settings_that_change_nothing_is_lost_and_undo_is_truncated() {
    let (node, directory) = (node(), tempfile::tempdir().unwrap());
    node.create_volume("busy").unwrap();
    let config = config(node.launcher("busy", Verify::All))
        .innodb_arg("--innodb-undo-log-truncate=ON")
        .innodb_arg("--innodb-max-undo-log-size=10485760")
        .innodb_arg("--innodb-purge-rseg-truncate-frequency=1");
    let fixed = config.innodb_args.clone();
    let mut server = Server::new(config.clone()).unwrap();
    let file = server.directory().join("ledger");
    let settings_below = |place: &str| settings(&all(), &format!("{}/{place}/", directory.path().display()));
    server.config_mut().innodb_args.extend(settings_below("one"));
    server.install_db().unwrap();
    server.start().unwrap();
    fill(&server, "first");
    let run = Run::start(&server.socket(), &file, Options::default()).unwrap();
    for place in ["two", "three"] {
        grow_undo(&server);
        run.wait_for_more(300, PATIENCE).unwrap();
        server.kill9().unwrap();
        // Another host has other disks.
        server.config_mut().innodb_args = [fixed.clone(), settings_below(place)].concat();
        server.empty_data_directory().unwrap();
        server.start().unwrap_or_else(|error| panic!("{place}: {error}"));
    }
    run.wait_for_more(300, PATIENCE).unwrap();
    run.stop().unwrap();
    wait_for_truncation(&server);
    server.kill9().unwrap();
    server.empty_data_directory().unwrap();
    server.start().unwrap();
    ledger::verify(&mut server.connect().unwrap(), &Entries::read(&file).unwrap())
        .unwrap()
        .require_sound()
        .unwrap();
    let expected = contents(&server);
    server.shutdown().unwrap();
    node.require_verified("busy", 1).unwrap();
    assert_eq!(files_of(directory.path()), Vec::<String>::new(), "something was made outside");

    // A stock server opens the export with these settings left out.
    let target = directory.path().join("export");
    std::fs::create_dir(&target).unwrap();
    redoubt(&node, &["volume", "export", "busy", "--to", target.join("data").to_str().unwrap()])
        .require_success()
        .unwrap();
    let mut stock = config.clone();
    stock.launcher = Launcher::Stock;
    stock.innodb_args = [fixed, vec!["--log-bin=mysql-bin".to_owned()]].concat();
    let mut opened = Server::in_directory(stock, &target).unwrap();
    opened.start().unwrap_or_else(|error| panic!("stock server on the export: {error}"));
    expected.require_same(&contents(&opened), "in the export").unwrap();
    assert_eq!(binary_logs(&opened).0[0], "mysql-bin.000001");
    opened.shutdown().unwrap();
}

fn wait_for_truncation(server: &Server) {
    poll_until("an undo tablespace to be truncated", PATIENCE, || {
        let rows = server.query("SHOW GLOBAL STATUS LIKE 'Innodb_undo_truncations'")?;
        if rows[0][1] != "0" {
            return Ok(Some(()));
        }
        grow_undo(server);
        Ok(None)
    })
    .unwrap();
}

/// Placeholder for the data directory in the prefix of a directory's name.
const DATADIR: &str = "DATADIR";

/// A stock server with everything elsewhere, and its settings in an option file.
struct Source {
    server: Server,
    directory: tempfile::TempDir,
    option_file: PathBuf,
    settings: Vec<String>,
}

impl Source {
    fn new(before: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let before = before.replace(DATADIR, &directory.path().join("data").display().to_string());
        let settings = settings(&all(), &before);
        let mut config = config(Launcher::Stock);
        config.innodb_args.extend(settings.clone());
        let mut server = Server::in_directory(config, directory.path()).unwrap();
        for (_, place) in PLACES {
            let path = server.datadir().join(&before).join(place);
            let folder = if place.contains('/') { path.parent().unwrap() } else { &path };
            std::fs::create_dir_all(folder).unwrap();
        }
        server.install_db().unwrap();
        server.start().unwrap_or_else(|error| panic!("{error}"));
        let option_file = directory.path().join("my.cnf");
        let lines: Vec<_> = settings.iter().map(|setting| setting.trim_start_matches("--")).collect();
        std::fs::write(&option_file, format!("[mariadbd]\n{}\n", lines.join("\n"))).unwrap();
        Self { server, directory, option_file, settings }
    }

    fn import(&self, node: &Node, volume: &str, options: &[&str]) -> Outcome {
        let from = self.server.datadir();
        redoubt(node, &[&["volume", "import", volume, "--from", from.to_str().unwrap()], options].concat())
    }

    /// A server with the same settings, on a volume.
    fn attach(&self, node: &Node, volume: &str) -> Server {
        let mut config = self.server.config().clone();
        config.launcher = node.launcher(volume, Verify::All);
        let mut server = Server::new(config).unwrap();
        server.start().unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
        server
    }
}

/// Stopped, and killed with a transaction open; told of the places by an option file, or one by one.
#[test]
fn a_stock_server_with_files_elsewhere_is_imported() {
    let node = node();
    let absolute = tempfile::tempdir().unwrap();
    let before = format!("{}/", absolute.path().display());
    for (volume, before) in
        [("absolute", before.as_str()), ("outside", "../else/"), ("inside", "./"), ("below", "DATADIR/")]
    {
        let mut source = Source::new(before);
        fill(&source.server, "first");
        source.server.shutdown().unwrap();
        source.server.start().unwrap();
        fill(&source.server, "second");
        let (names, events) = binary_logs(&source.server);
        let mut open = source.server.connect().unwrap();
        execute(&mut open, "BEGIN").unwrap();
        execute(&mut open, "UPDATE first.t SET b = 'open' WHERE id < 5000").unwrap();
        execute(
            &mut source.server.connect().unwrap(),
            "CREATE TABLE first.last (id INT PRIMARY KEY) ENGINE=InnoDB",
        )
        .unwrap();
        source.server.kill9().unwrap();

        let file = source.option_file.to_str().unwrap().to_owned();
        let singly: Vec<_> = source.settings.iter().flat_map(|setting| setting.split('=')).collect();
        let killed = format!("{volume}-killed");
        source.import(&node, &killed, &["--defaults-file", &file]).require_success().unwrap();
        let on_volume = contents(&source.attach(&node, &killed));
        source.server.start().unwrap();
        let expected = contents(&source.server);
        source.server.shutdown().unwrap();
        expected.require_same(&on_volume, &killed).unwrap();

        let stopped = format!("{volume}-stopped");
        source.import(&node, &stopped, &singly).require_success().unwrap();
        let mut server = source.attach(&node, &stopped);
        expected.require_same(&contents(&server), &stopped).unwrap();
        let (now, first) = binary_logs(&server);
        assert_eq!(now[..names.len()], names, "{volume}");
        assert_eq!(first[..events.len()], events, "{volume}");
        execute(&mut server.connect().unwrap(), "PURGE BINARY LOGS TO 'mysql-bin.000002'").unwrap();
        let databases = server.query("SHOW DATABASES").unwrap().concat();
        // Logs that lie inside by a relative path stay where they are.
        let gone = ["undo", "log", "ibdata", "aria", "binlog"];
        for place in &gone[..if volume == "inside" { 3 } else { 5 }] {
            assert!(!databases.iter().any(|name| name == *place), "{volume}: {databases:?}");
        }
        server.shutdown().unwrap();
        // None differed. Their servers wrote little, and pages are compared when they are applied, which may be later.
        for volume in [killed, stopped] {
            node.require_verified(&volume, 0).unwrap();
        }
        // The imported directory is unchanged.
        source.server.start().unwrap();
        expected.require_same(&contents(&source.server), "the source").unwrap();
    }
}

#[test]
fn an_import_that_would_miss_or_mix_files_is_refused() {
    let node = node();
    let mut source = Source::new("../else/");
    fill(&source.server, "first");
    source.server.shutdown().unwrap();
    let (datadir, elsewhere) = (source.server.datadir(), source.directory.path().join("else"));
    let place = |name: &str| elsewhere.join(name).display().to_string();
    let told = |names: &[&str]| {
        let chosen = settings(names, "../else/");
        let parts =
            chosen.iter().flat_map(|setting| setting.split('=').map(str::to_owned).collect::<Vec<_>>());
        parts.collect::<Vec<_>>()
    };
    let refused = |options: &[String], parts: &[&str]| {
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        source.import(&node, "v", &options).require_failure(1, parts).unwrap();
    };
    refused(&[], &["no ibdata1", "--innodb-data-home-dir"]);
    refused(&told(&["innodb-data-home-dir"]), &["no redo log", "--innodb-log-group-home-dir"]);
    let most = ["innodb-data-home-dir", "innodb-log-group-home-dir"];
    refused(&told(&most), &["3 undo tablespaces", "0 were found", "--innodb-undo-directory"]);
    refused(&["--defaults-file".to_owned(), "/no/such.cnf".to_owned()], &["/no/such.cnf", "not a file"]);
    let wrong = [
        told(&["innodb-data-home-dir", "innodb-log-group-home-dir"]),
        vec!["--innodb-undo-directory=/no/such".to_owned()],
    ];
    refused(&wrong.concat(), &["innodb_undo_directory=/no/such"]);

    let all = told(&all());
    for (stale, parts) in [
        ("undo004", &["undo004", "not used", "innodb_undo_directory"][..]),
        ("aria_log.00000009", &["aria_log.00000009", "not used", "aria_log_dir_path"]),
        ("ibdata1", &["ibdata1", "would both be", &place("ibdata")]),
        ("mysql-bin.000001", &["mysql-bin.000001", "would both be", &place("binlog")]),
    ] {
        let path = datadir.join(stale);
        std::fs::write(&path, "stale").unwrap();
        refused(&all, parts);
        std::fs::remove_file(&path).unwrap();
    }
    let log = elsewhere.join("binlog/mysql-bin.000001");
    let aside = elsewhere.join("aside");
    std::fs::rename(&log, &aside).unwrap();
    refused(&all, &["mysql-bin.index lists", "mysql-bin.000001", "neither there"]);
    std::fs::rename(&aside, &log).unwrap();
    source.import(&node, "v", &all.iter().map(String::as_str).collect::<Vec<_>>()).require_success().unwrap();
}

/// A server on a view, and `mariadb-backup`, with an option file that leads elsewhere.
#[test]
fn readers_find_the_files_in_the_volume() {
    let (node, directory) = (node(), tempfile::tempdir().unwrap());
    let elsewhere = directory.path().join("elsewhere");
    let set = settings(&all(), &format!("{}/", elsewhere.display()));
    let mut server = lives_on_a_volume(&node, "shop", &set, &elsewhere);
    let expected = contents(&server);
    let generation = node.status("shop").unwrap()["volumes"][0]["generation"].clone();

    let mut config = server.config().clone();
    let Launcher::Redoubt { node_addr, volume, redoubt_bin, .. } = config.launcher else {
        panic!("a volume")
    };
    config.launcher = Launcher::Reader { node_addr, volume, redoubt_bin };
    config.server_args = vec!["--innodb-read-only".to_owned(), "--skip-log-bin".to_owned()];
    let mut reader = Server::new(config).unwrap();
    reader.start().unwrap_or_else(|error| panic!("{error}"));
    let mut conn = reader.connect().unwrap();
    let seen = Snapshot::take(&mut conn, None, &[]).unwrap();
    assert_eq!(seen.checksums, expected.checksums);
    drop(conn);
    reader.shutdown().unwrap();

    let file = directory.path().join("my.cnf");
    let lines: Vec<_> = set.iter().map(|setting| setting.trim_start_matches("--")).collect();
    std::fs::write(&file, format!("[mysqld]\n{}\n", lines.join("\n"))).unwrap();
    let target = server.directory().join("backup");
    std::fs::create_dir(&target).unwrap();
    let (datadir, to) = (server.datadir(), target.join("data"));
    let backup = [
        "run",
        "--reader",
        "--volume",
        "shop",
        "--datadir",
        datadir.to_str().unwrap(),
        "--node",
        &node.address().to_string(),
        "--",
        "mariadb-backup",
        &format!("--defaults-file={}", file.display()),
        "--backup",
        "--user=root",
        &format!("--socket={}", server.socket().display()),
        &format!("--target-dir={}", to.display()),
    ]
    .map(str::to_owned);
    let outcome = Outcome::of(node.redoubt_bin(), backup, PATIENCE).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let prepare = ["--no-defaults", "--prepare", &format!("--target-dir={}", to.display())];
    Outcome::of(Path::new("mariadb-backup"), prepare, PATIENCE).unwrap().require_success().unwrap();
    let mut stock = server.config().clone();
    stock.launcher = Launcher::Stock;
    stock.innodb_args.retain(|argument| !set.contains(argument));
    let mut opened = Server::in_directory(stock, &target).unwrap();
    opened.start().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(contents(&opened).checksums, expected.checksums);
    opened.shutdown().unwrap();
    server.shutdown().unwrap();
    assert_eq!(node.status("shop").unwrap()["volumes"][0]["generation"], generation);
    assert!(!elsewhere.exists());
}

/// As root, the files that the command makes for the server belong to the user that the server changes to, whether the
/// command line or an option file names that user.
#[test]
fn files_belong_to_the_user_that_the_server_changes_to() {
    if !rustix::process::geteuid().is_root() {
        return redoubt_test_support::skip("a server that changes its user", "needs root");
    }
    let node = node();
    let directory = tempfile::Builder::new().prefix("rdt-").tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let option_file = directory.path().join("my.cnf");
    std::fs::write(&option_file, "[mysqld]\nuser=nobody\n").unwrap();
    let in_file = format!("--defaults-file={}", option_file.display());
    for (volume, options) in [("given", &["--no-defaults", "--user=nobody"][..]), ("said", &[&in_file])] {
        redoubt(&node, &["volume", "create", volume]).require_success().unwrap();
        let datadir = directory.path().join(volume);
        let address = node.address().to_string();
        let run = ["run", "--node", &address, "--volume", volume, "--datadir", datadir.to_str().unwrap()];
        let install = [&["--", "mariadb-install-db"], options, &["--skip-test-db"]].concat();
        let outcome = Outcome::of(node.redoubt_bin(), [&run[..], &install].concat(), PATIENCE).unwrap();
        outcome.require_success().unwrap();
        for name in [".redoubt-unsent", "ibdata1", "mysql"] {
            let owner = std::fs::metadata(datadir.join(name)).unwrap().uid();
            assert_ne!(owner, 0, "{volume}: {name}");
        }
    }
}

/// Directories that the administrator or the file system made in the data directory stay, and nothing in them is sent.
#[test]
fn directories_of_the_host_in_the_data_directory_stay() {
    let node = node();
    node.create_volume("admin").unwrap();
    let mut config = config(node.launcher("admin", Verify::All));
    config.server_args.push("--ignore-db-dirs=lost+found,dumps".to_owned());
    let mut server = Server::new(config).unwrap();
    let datadir = server.datadir();
    for name in ["lost+found", "tmp", "dumps", "forgotten"] {
        std::fs::create_dir_all(datadir.join(name)).unwrap();
        if name == "lost+found" {
            server.install_db().unwrap();
        }
    }
    std::fs::write(datadir.join("dumps/all.sql"), "SELECT 1").unwrap();
    let temporary = ["--innodb-temp-data-file-path=private:12M:autoextend".to_owned()];
    server.config_mut().innodb_args.extend(temporary);
    let tmpdir = format!("--tmpdir={}", datadir.join("tmp").display());
    server.config_mut().server_args.push(tmpdir);
    for round in 0..3 {
        server.start().unwrap_or_else(|error| panic!("{round}: {error}"));
        let mut conn = server.connect().unwrap();
        execute(&mut conn, "CREATE DATABASE IF NOT EXISTS d").unwrap();
        execute(&mut conn, "CREATE TEMPORARY TABLE d.x (a CHAR(255)) ENGINE=InnoDB").unwrap();
        execute(&mut conn, "INSERT INTO d.x SELECT REPEAT('x', 255) FROM d.seq_1_to_20000").unwrap();
        execute(&mut conn, "CREATE TEMPORARY TABLE d.y ENGINE=MyISAM SELECT * FROM d.x").unwrap();
        if round == 1 {
            server.kill9().unwrap()
        } else {
            server.shutdown().unwrap()
        }
        for path in ["lost+found", "tmp", "dumps/all.sql"] {
            assert!(datadir.join(path).exists(), "{round}: {path} is gone");
        }
    }
    // This one looks like a database that was dropped. It is named.
    assert!(!datadir.join("forgotten").exists());
    let log = std::fs::read_to_string(server.error_log_path()).unwrap();
    assert!(log.contains("directory forgotten is not in the volume; removed"), "{log}");
    // Nothing of this came to the volume.
    server.empty_data_directory().unwrap();
    let export = server.directory().join("export");
    redoubt(&node, &["volume", "export", "admin", "--to", export.to_str().unwrap()])
        .require_success()
        .unwrap();
    let found = files_of(&export);
    assert!(found.iter().any(|file| file == "d"), "{found:?}");
    for name in ["lost+found", "tmp", "dumps", "private", "forgotten"] {
        assert!(!found.iter().any(|file| file == name), "{name} of {found:?}");
    }
    // A new host has the directory for temporary files again, and no other.
    server.start().unwrap_or_else(|error| panic!("on another host: {error}"));
    assert!(datadir.join("tmp").is_dir() && !datadir.join("dumps").exists());
    server.shutdown().unwrap();
}

/// Changes through a mapping are not seen when a server is killed: MyISAM writes without one.
#[test]
fn rows_of_myisam_with_mappings_survive_a_kill() {
    let node = node();
    node.create_volume("mapped").unwrap();
    let mut config = config(node.launcher("mapped", Verify::All));
    config.server_args.extend(["--myisam-use-mmap=1", "--myisam-recover-options=OFF"].map(str::to_owned));
    let mut server = Server::create(config).unwrap();
    for statement in [
        "CREATE DATABASE d",
        "CREATE TABLE d.m (a INT PRIMARY KEY, b CHAR(100)) ENGINE=MyISAM",
        "INSERT INTO d.m SELECT seq, 'old' FROM d.seq_1_to_2000",
        "FLUSH TABLES",
        "SELECT COUNT(*) FROM d.m",
        "UPDATE d.m SET b = 'new' WHERE a <= 500",
        "INSERT INTO d.m SELECT seq, 'added' FROM d.seq_3001_to_3100",
    ] {
        server.query(statement).unwrap();
    }
    server.kill9().unwrap();
    server.start().unwrap();
    server.query("REPAIR TABLE d.m").unwrap();
    let found = server.query("SELECT COUNT(*), SUM(b = 'new'), SUM(b = 'added') FROM d.m").unwrap();
    assert_eq!(found, [["2100", "500", "100"]]);
    let log = std::fs::read_to_string(server.error_log_path()).unwrap();
    assert!(log.contains("d/m.MYD may not be written through a mapping"), "{log}");
}
