//! `redoubt group` with real servers: what is written by `create` and `join` makes a group, `status` shows it, and a
//! `drill` runs to its end.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use redoubt_drill::group::ports::Port;
use redoubt_drill::group::programs;
use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_workload::launcher::{Launcher, find_redoubt};
use redoubt_workload::server::{Server, ServerConfig};
use serde_json::Value;

/// Where `scripts/setup.sh` unpacks the server's scripts for state transfers, where they are not installed.
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target/mariadb-server/usr/bin");

fn redoubt(arguments: &[&str]) -> Outcome {
    Outcome::of(&find_redoubt().unwrap(), arguments, PATIENCE).unwrap()
}

fn library() -> PathBuf {
    find_redoubt().unwrap().with_file_name("libredoubt_group.so")
}

/// The servers of a group, made of what the command has written.
struct Servers {
    directory: tempfile::TempDir,
    /// Held while the servers live.
    ports: Vec<Port>,
    named: usize,
    servers: Vec<Server>,
}

impl Servers {
    fn files(&self) -> PathBuf {
        self.directory.path().join("files")
    }

    /// `NAME=HOST:PORT` of a further one.
    fn next(&mut self) -> String {
        let port = Port::reserve().unwrap();
        self.named += 1;
        let member = format!("db{}=127.0.0.1:{port}", self.named);
        self.ports.push(port);
        member
    }

    /// Puts a part where its server reads it, and starts that: the first one as the beginning of the group.
    fn start(&mut self) {
        let number = self.servers.len() + 1;
        let home = self.directory.path().join(format!("server{number}"));
        let part = home.join("etc");
        let mut config = ServerConfig::new(Launcher::Stock);
        config.buffer_pool_bytes = 64 << 20;
        config.option_file = Some(part.join("group.cnf"));
        let path = programs::path(self.directory.path(), Some(Path::new(SCRIPTS))).unwrap();
        config.environment.push(("PATH".to_owned(), path));
        let receive = Port::reserve().unwrap();
        config.server_args = vec![format!("--wsrep-sst-receive-address=127.0.0.1:{receive}")];
        self.ports.push(receive);
        let mut server = Server::in_directory(config, &home).unwrap();
        server.install_db().unwrap();
        copy_part(&self.files().join(format!("member-shop-db{number}")), &part);
        let first: &[&str] = if number == 1 { &["--wsrep-new-cluster"] } else { &[] };
        server.start_with(first).unwrap_or_else(|error| panic!("{error}\n{}", server.error_log_tail(40)));
        self.servers.push(server);
    }

    /// `redoubt group status` with these options, of the first server that runs.
    fn status(&self, options: &[&str]) -> Outcome {
        let running = self.servers.iter().find(|server| server.process_id().is_some()).unwrap();
        let socket = running.socket();
        let mut arguments = vec!["group", "status", "--server", socket.to_str().unwrap()];
        arguments.extend(options);
        redoubt(&arguments)
    }
}

/// All servers of this host would have it in the same place.
fn copy_part(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    let configuration = to.join("group.cnf");
    let text = std::fs::read_to_string(&configuration).unwrap();
    assert!(text.contains("=/etc/mysql/redoubt\""), "{text}");
    std::fs::write(&configuration, text.replace("/etc/mysql/redoubt", to.to_str().unwrap())).unwrap();
}

fn json(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

#[test]
fn what_is_written_makes_a_group_that_others_join() {
    let directory = tempfile::Builder::new().prefix("rdg-").tempdir().unwrap();
    let mut servers = Servers { directory, ports: Vec::new(), named: 0, servers: Vec::new() };
    let (files, library) = (servers.files(), library());
    let (files, library) = (files.to_str().unwrap(), library.to_str().unwrap());
    let members = [servers.next(), servers.next()];
    let made = redoubt(&[
        "group",
        "create",
        "shop",
        "--directory",
        files,
        "--provider",
        library,
        "--member",
        &members[0],
        "--member",
        &members[1],
    ]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.stdout.contains("add a third one"), "{}", made.stdout);
    servers.start();
    servers.start();
    let joined = redoubt(&["group", "join", "--directory", files, "--member", &servers.next()]);
    assert_eq!(joined.code, Some(0), "{joined:?}");
    servers.start();

    let status = servers.status(&["--wait", "60", "--json"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    let look = json(&status);
    assert_eq!((&look["group"], &look["present"], &look["needed"]), (&"shop".into(), &3.into(), &2.into()));
    let names: Vec<_> = look["members"].as_array().unwrap().iter().map(|member| &member["name"]).collect();
    assert_eq!(names, ["db1", "db2", "db3"]);
    assert!(look["members"].as_array().unwrap().iter().all(|member| member["votes"] == true), "{look}");

    // With a password, as an account without a privilege.
    let mut connection = redoubt_workload::sql::connect(&servers.servers[0].socket()).unwrap();
    let create = "CREATE USER watcher IDENTIFIED BY 'a secret'";
    redoubt_workload::sql::execute(&mut connection, create).unwrap();
    let password = servers.directory.path().join("password");
    let as_watcher = ["--user", "watcher", "--password-file", password.to_str().unwrap(), "--check"];
    std::fs::write(&password, "a secret\n").unwrap();
    let allowed = servers.status(&as_watcher);
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
    std::fs::write(&password, "another").unwrap();
    let denied = servers.status(&as_watcher);
    assert!(
        denied.code == Some(1) && denied.stderr.contains("ERROR 1045 (28000): Access denied"),
        "{denied:?}"
    );

    // The status reports a killed member as missing, and the loss of the majority.
    servers.servers[0].kill9().unwrap();
    let until_seen = |words: &str| {
        redoubt_workload::process::poll_until(words, Duration::from_secs(60), || {
            let status = servers.status(&["--check"]);
            Ok((status.code == Some(1) && status.stdout.contains(words)).then_some(status))
        })
    };
    until_seen("db1 last answered").unwrap();
    servers.servers[1].kill9().unwrap();
    let alone =
        redoubt_workload::process::poll_until("a majority is missed", Duration::from_secs(60), || {
            let status = servers.status(&["--check"]);
            Ok(status.stdout.contains("commits wait").then_some(status))
        });
    assert_eq!(alone.unwrap().code, Some(1));
}

#[test]
fn a_drill_runs_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let plot = directory.path().join("plot.svg");
    let outcome = redoubt(&[
        "group",
        "drill",
        "--seconds",
        "1",
        "--clients",
        "2",
        "--certificates",
        "--scripts",
        SCRIPTS,
        "--json",
        "--plot",
        plot.to_str().unwrap(),
    ]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let last: Value = serde_json::from_str(outcome.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["members"], &last["checksums_equal"]), (&3.into(), &true.into()));
    let (acknowledged, found) = (&last["commits_acknowledged"], &last["commits_found"]);
    assert!(acknowledged.as_u64().unwrap() > 100 && acknowledged == found, "{last}");
    assert!(last["kill_gap_seconds"].as_f64().unwrap() > 0.0, "{last}");
    assert!(outcome.stdout.contains("a one killed"), "{}", outcome.stdout);
    assert!(std::fs::read_to_string(plot).unwrap().contains("</svg>"));
}

#[test]
fn who_cannot_drill_is_told_why() {
    for (options, words) in [
        (vec!["--members", "2"], "2 is not in 3..=9"),
        (
            vec!["--provider", "/nowhere.so"],
            "libredoubt_group.so is not at /nowhere.so; say where it is with --provider",
        ),
        (vec!["--plot", "/nowhere/plot.svg"], "cannot write /nowhere/plot.svg"),
    ] {
        let mut arguments = vec!["group", "drill"];
        arguments.extend(options);
        let outcome = redoubt(&arguments);
        assert!(outcome.code != Some(0) && outcome.stderr.contains(words), "{outcome:?}");
    }
}
