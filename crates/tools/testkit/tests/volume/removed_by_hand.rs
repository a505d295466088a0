//! Files that an administrator removes in the data directory by hand, as forums advise: the volume follows where the
//! directory shows that it was meant. Files that are put there are sent when the server writes them. Real servers.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::node::Node;
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::process::poll_until;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;
use std::path::Path;

const VOLUME: &str = "v";

fn node() -> Node {
    let node = Node::create(&find_redoubt().unwrap(), &[]).unwrap();
    node.create_volume(VOLUME).unwrap();
    node
}

fn server(node: &Node) -> Server {
    Server::create(ServerConfig::new(node.launcher(VOLUME, Verify::All)).server_arg("--log-bin=s-bin"))
        .unwrap()
}

fn sql(server: &Server, statements: &[&str]) {
    let mut conn = server.connect().unwrap();
    for statement in statements {
        execute(&mut conn, statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

/// Names of files in the volume.
fn exported(node: &Node, below: &str) -> Vec<String> {
    let (directory, address) = (tempfile::tempdir().unwrap(), node.address().to_string());
    let data = directory.path().join("data");
    let args = ["volume", "export", VOLUME, "--to", data.to_str().unwrap(), "--node", &address];
    Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap().require_success().unwrap();
    names(&data.join(below))
}

fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn database_with_a_stray_file_stays_dropped() {
    let node = node();
    let mut server = server(&node);
    let stray = server.datadir().join("d/out.csv");
    sql(
        &server,
        &["CREATE DATABASE d", "CREATE TABLE d.t (a INT) ENGINE=MyISAM", "INSERT INTO d.t VALUES (1)"],
    );
    sql(&server, &[&format!("SELECT a FROM d.t INTO OUTFILE '{}'", stray.display())]);
    // The stray file keeps the directory.
    assert!(execute(&mut server.connect().unwrap(), "DROP DATABASE d").is_err());
    std::fs::remove_file(&stray).unwrap();
    sql(
        &server,
        &["DROP DATABASE d", "CREATE DATABASE e", "CREATE TABLE e.t (a INT PRIMARY KEY) ENGINE=InnoDB"],
    );
    sql(&server, &["INSERT INTO e.t VALUES (1), (2)"]);
    server.kill9().unwrap();
    server.empty_data_directory().unwrap();
    server.start().unwrap();
    let databases = server.query("SHOW DATABASES").unwrap();
    assert!(!databases.iter().any(|row| row[0] == "d"), "{databases:?}");
    assert_eq!(server.query("SELECT COUNT(*) FROM e.t").unwrap(), [["2"]]);
    sql(&server, &["CREATE DATABASE d", "CREATE TABLE d.t (a INT) ENGINE=MyISAM", "DROP DATABASE d"]);
    server.shutdown().unwrap();
    assert!(names(&server.datadir().join("d")).is_empty() && exported(&node, "d").is_empty());
}

/// The text of the launcher is in the server's log.
fn start(server: &mut Server) -> String {
    server.start().unwrap_or_else(|error| panic!("{error}: {}", server.error_log_tail(40)));
    std::fs::read_to_string(server.error_log_path()).unwrap()
}

#[test]
fn binary_logs_removed_with_their_entries_stay_away() {
    let node = node();
    let mut server = server(&node);
    sql(&server, &["FLUSH BINARY LOGS", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS"]);
    let logs = server.query("SHOW BINARY LOGS").unwrap();
    assert!(logs.len() >= 5, "{logs:?}");
    let [first, second, third] = [0, 1, 2].map(|at: usize| logs[at][0].clone());
    for name in [&first, &second] {
        std::fs::remove_file(server.datadir().join(name)).unwrap();
    }
    // The file is missing; the server removes its line of the index all the same.
    // It keeps those that its own recovery still needs.
    poll_until("a purge of the index", PATIENCE, || {
        sql(&server, &[&format!("PURGE BINARY LOGS TO '{third}'")]);
        Ok((server.query("SHOW BINARY LOGS")?[0][0] == third).then_some(()))
    })
    .unwrap();
    // Without its line, the file counts as lost: it comes back.
    let last = logs[logs.len() - 2][0].clone();
    server.shutdown().unwrap();
    std::fs::remove_file(server.datadir().join(&last)).unwrap();

    let log = start(&mut server);
    assert!(log.contains("removed here by hand") && log.contains(&first) && log.contains(&second), "{log}");
    let here = names(&server.datadir());
    assert!(!here.contains(&first) && !here.contains(&second) && here.contains(&last), "{here:?}");
    sql(&server, &["CREATE DATABASE d"]);
    server.shutdown().unwrap();
    let there = exported(&node, "");
    assert!(!there.contains(&first) && !there.contains(&second) && there.contains(&last), "{there:?}");

    // Not for a directory that never had them.
    server.empty_data_directory().unwrap();
    start(&mut server);
    assert_eq!(server.query("SHOW BINARY LOGS").unwrap()[0][0], third);
    server.shutdown().unwrap();
}

#[test]
fn binary_logs_removed_with_their_index_let_the_server_start() {
    let node = node();
    let mut server = server(&node);
    sql(&server, &["FLUSH BINARY LOGS", "FLUSH BINARY LOGS"]);
    server.shutdown().unwrap();
    for name in names(&server.datadir()).iter().filter(|name| name.starts_with("s-bin.")) {
        std::fs::remove_file(server.datadir().join(name)).unwrap();
    }
    start(&mut server);
    sql(&server, &["CREATE DATABASE d"]);
    assert!(server.query("SHOW BINARY LOGS").unwrap().len() >= 4, "nothing shows that they were to go");
    server.shutdown().unwrap();
}

#[test]
fn file_put_in_by_hand_is_sent_when_the_server_writes_it() {
    let node = node();
    let mut server = server(&node);
    let table = "CREATE TABLE d.t (a INT PRIMARY KEY) ENGINE=MyISAM";
    sql(&server, &["CREATE DATABASE d", table, "INSERT INTO d.t VALUES (1), (2)", "FLUSH TABLES d.t"]);
    let database = server.datadir().join("d");
    let of = |table: &str, extension: &str| database.join(format!("{table}.{extension}"));
    for extension in ["frm", "MYD", "MYI"] {
        std::fs::copy(of("t", extension), of("u", extension)).unwrap();
    }
    sql(&server, &["INSERT INTO d.u VALUES (3)", "FLUSH TABLES d.u"]);
    let log = poll_until("the messages about both files", PATIENCE, || {
        let log = std::fs::read_to_string(server.error_log_path()).unwrap();
        let names = |extension: &str| log.contains(&format!("[redoubt] d/u.{extension} was put into"));
        Ok((names("MYD") && names("MYI")).then_some(log))
    })
    .unwrap();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("was put into")).collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.contains("[ERROR]")), "{lines:#?}");
    poll_until("the end of the list in the status", PATIENCE, || {
        let volume = node.status(VOLUME).unwrap()["volumes"][0].clone();
        Ok(volume.get("unknown_files").is_none().then_some(()))
    })
    .unwrap();
    sql(&server, &["INSERT INTO d.u VALUES (4)"]);
    server.shutdown().unwrap();
    let local = ["MYD", "MYI"].map(|extension| std::fs::read(of("u", extension)).unwrap());
    let (directory, address) = (tempfile::tempdir().unwrap(), node.address().to_string());
    let data = directory.path().join("data");
    let args = ["volume", "export", VOLUME, "--to", data.to_str().unwrap(), "--node", &address];
    Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap().require_success().unwrap();
    for (extension, local) in ["MYD", "MYI"].into_iter().zip(local) {
        assert!(std::fs::read(data.join(format!("d/u.{extension}"))).unwrap() == local, "{extension}");
    }
    // The server only reads the definition, so the volume does not have it: the next start takes the table away.
    start(&mut server);
    assert!(!of("u", "frm").exists() && of("u", "MYD").exists());
    assert!(server.query("SELECT COUNT(*) FROM d.u").is_err());
    assert_eq!(server.query("SELECT COUNT(*) FROM d.t").unwrap(), [["2"]]);
    server.shutdown().unwrap();
}
