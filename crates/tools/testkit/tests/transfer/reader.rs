//! Other programs on a volume: `redoubt run --reader`. Real servers, real tools.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::node::Node;
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::process::poll_until;
use redoubt_workload::server::Server;
use redoubt_workload::sql::execute;

use crate::bank::{Load, config, fill, require_consistent, require_transfers};

fn node() -> Node {
    Node::create(&find_redoubt().unwrap(), &["--ring", "32MiB", "--batch", "1MiB", "--apply-interval", "1"])
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Arguments of a reader of the volume on this directory.
fn reader(node: &Node, directory: &Path, options: &[&str], program: &[&str]) -> Vec<String> {
    let address = node.address().to_string();
    let directory = directory.to_str().unwrap();
    let fixed = ["run", "--reader", "--node", &address, "--volume", "shop", "--datadir", directory];
    fixed.iter().chain(options).chain(&["--"]).chain(program).map(|part| (*part).to_owned()).collect()
}

fn read(node: &Node, directory: &Path, options: &[&str], program: &[&str]) -> Outcome {
    Outcome::of(node.redoubt_bin(), reader(node, directory, options, program), PATIENCE).unwrap()
}

fn shell(node: &Node, directory: &Path, options: &[&str], script: &str) -> Outcome {
    read(node, directory, options, &["sh", "-euc", script])
}

fn require_untouched(node: &Node, server: &Server) {
    node.require_verified("shop", 1).unwrap();
    require_not_taken(node, server);
}

fn require_not_taken(node: &Node, server: &Server) {
    let status = &node.status("shop").unwrap()["volumes"][0];
    assert_eq!(status["generation"].as_u64(), Some(2), "a reader took the volume over: {status}");
    require_consistent(server);
}

#[test]
fn a_backup_of_a_server_that_writes_is_prepared_and_opened_by_a_stock_server() {
    let node = node();
    node.create_volume("shop").unwrap();
    let mut server = Server::create(config(&node)).unwrap_or_else(|error| panic!("{error}"));
    fill(&server);
    let load = Load::start(&server);
    load.wait_for_more(1000);
    let before = load.transfers.load(Ordering::Relaxed);
    let target = server.directory().join("backup");
    let (socket, to) = (server.socket(), target.join("data"));
    std::fs::create_dir(&target).unwrap();
    // The view lies over the running server's own directory, where the tool looks for it.
    let program = [
        "mariadb-backup",
        "--no-defaults",
        "--backup",
        "--user=root",
        "--parallel=2",
        &format!("--socket={}", socket.display()),
        &format!("--target-dir={}", to.display()),
    ];
    let outcome = backup_of(&node, &server, &program, &to);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("completed OK"), "{}", outcome.stderr);
    load.wait_for_more(100);
    load.end();
    require_untouched(&node, &server);

    let prepare = ["--no-defaults", "--prepare", &format!("--target-dir={}", to.display())];
    let prepared = Outcome::of(Path::new("mariadb-backup"), prepare, PATIENCE).unwrap();
    assert_eq!(prepared.code, Some(0), "{}", prepared.stderr);
    become_a_volume(&node, &server, &to, before);
    let mut stock = server.config().clone();
    stock.launcher = Launcher::Stock;
    let mut opened = Server::in_directory(stock, &target).unwrap();
    opened.start().unwrap_or_else(|error| panic!("{error}"));
    require_consistent(&opened);
    require_transfers(&opened, before);
    opened.shutdown().unwrap();
    server.shutdown().unwrap();
}

/// Runs `mariadb-backup`, which gives up when a table is dropped between its look at a directory and its opening of the
/// file; of a stock server's directory under this load, too (1 of 62 backups). Then it is run again, as a DBA would.
/// Only for the tables that the load drops.
fn backup_of(node: &Node, server: &Server, program: &[&str], to: &Path) -> Outcome {
    for _ in 0..9 {
        let outcome = read(node, &server.datadir(), &[], program);
        let lost = ["Failed to validate first page of the file shop/", "Can't open datafile shop/"];
        let is_dropped = |line: &str| {
            lost.iter()
                .filter_map(|text| line.split_once(text))
                .any(|(_, table)| table.starts_with("new") || table.starts_with("renamed"))
        };
        if outcome.code == Some(0) || !outcome.stderr.lines().any(is_dropped) {
            return outcome;
        }
        // It wants a directory that is empty, or not there.
        std::fs::remove_dir_all(to).unwrap();
    }
    read(node, &server.datadir(), &[], program)
}

/// A prepared backup is imported, and has at least this many transfers.
fn become_a_volume(node: &Node, server: &Server, prepared: &Path, before: u64) {
    let (address, from) = (node.address().to_string(), prepared.to_str().unwrap());
    let import = ["volume", "import", "restored", "--node", &address, "--from", from];
    Outcome::of(node.redoubt_bin(), import, PATIENCE).unwrap().require_success().unwrap();
    let mut config = server.config().clone();
    config.launcher = node.launcher("restored", Verify::All);
    let directory = tempfile::tempdir().unwrap();
    let mut restored = Server::in_directory(config, directory.path()).unwrap();
    restored.start().unwrap_or_else(|error| panic!("{error}"));
    require_consistent(&restored);
    let transfers = &restored.query("SELECT COUNT(*) FROM shop.transfer").unwrap()[0][0];
    assert!(transfers.parse::<u64>().unwrap() >= before, "{transfers} of {before}");
    restored.query("CREATE TABLE shop.later AS SELECT * FROM shop.transfer").unwrap();
    restored.kill9().unwrap();
    restored.start().unwrap_or_else(|error| panic!("{error}"));
    require_consistent(&restored);
    let later = &restored.query("SELECT COUNT(*) FROM shop.later").unwrap()[0][0];
    assert_eq!(transfers, later);
    restored.shutdown().unwrap();
    let status = &node.status("restored").unwrap()["volumes"][0];
    assert_eq!(status["counters"]["page_mismatches"].as_u64(), Some(0), "{status}");
}

/// Every page of every file, live and of a moment, under writes; and what the tools copy of a moment is one state.
#[test]
fn files_are_whole_for_ordinary_tools() {
    let node = node();
    node.create_volume("shop").unwrap();
    let mut server = Server::create(config(&node)).unwrap_or_else(|error| panic!("{error}"));
    fill(&server);
    let view = server.directory().join("view");
    let check = format!(
        "cd {}; n=0; for f in $(find . -name '*.ibd') ibdata1; do innochecksum $f; n=$((n + 1)); done; echo $n files",
        view.display()
    );
    let load = Load::start(&server);
    load.wait_for_more(200);
    // A table may be dropped between `find` and the check of it; nothing else may go wrong.
    let tables = "account transfer packed";
    let live = format!("cd {}/shop; for t in {tables}; do innochecksum $t.ibd; done", view.display());
    for _ in 0..3 {
        shell(&node, &view, &[], &live).require_success().unwrap();
    }
    let said = shell(&node, &view, &["--at-once"], &check).require_success().unwrap();
    assert!(said.contains(" files") && !said.contains("\n0 files"), "{said}");
    // Two ways to read a snapshot, while the server continues.
    let target = server.directory().join("copies");
    let copy = format!(
        "mkdir -p {t}/tar; cp -r {v} {t}/data; tar cf - -C {v} . | tar xf - -C {t}/tar; cat {v}/shop/account.ibd | \
         cmp - {t}/data/shop/account.ibd; diff -r {t}/data {t}/tar",
        t = target.display(),
        v = view.display()
    );
    load.wait_for_more(100);
    shell(&node, &view, &["--at-once"], &copy).require_success().unwrap();
    load.wait_for_more(100);
    load.end();
    require_untouched(&node, &server);
    let mut stock = server.config().clone();
    stock.launcher = Launcher::Stock;
    let mut opened = Server::in_directory(stock, &target).unwrap();
    opened.start().unwrap_or_else(|error| panic!("{error}"));
    require_consistent(&opened);
    opened.shutdown().unwrap();
    // Quiet, live and moment are the same.
    server.shutdown().unwrap();
    let sums = format!("cd {}; find . -type f ! -name ib_logfile0 | sort | xargs cksum", view.display());
    let live = shell(&node, &view, &[], &sums).require_success().unwrap();
    let moment = shell(&node, &view, &["--at-once"], &sums).require_success().unwrap();
    assert!(live.lines().count() > 50, "{live}");
    assert_eq!(live, moment);
}

/// A second server on a moment of the volume, with options of its own.
fn second_server(node: &Node, directory: &Path, options: &[&str]) -> Server {
    let mut config = config(node);
    config.launcher = reading(config.launcher);
    config.server_args = options.iter().map(|option| (*option).to_owned()).collect();
    let mut server = Server::in_directory(config, directory).unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\n{}", server.error_log_tail(30)));
    server
}

/// The launcher without what does not go with `--reader`.
fn reading(launcher: Launcher) -> Launcher {
    match launcher {
        Launcher::Redoubt { node_addr, volume, redoubt_bin, .. } => {
            Launcher::Reader { node_addr, volume, redoubt_bin }
        }
        other => other,
    }
}

#[test]
fn servers_run_on_a_moment_and_change_nothing() {
    let node = node();
    node.create_volume("shop").unwrap();
    let mut server = Server::create(config(&node)).unwrap_or_else(|error| panic!("{error}"));
    fill(&server);
    let load = Load::start(&server);
    let elsewhere = tempfile::tempdir().unwrap();
    for (name, options) in [("read-only", &["--innodb-read-only"][..]), ("scratch", &[])] {
        load.wait_for_more(300);
        let mut second = second_server(&node, &elsewhere.path().join(name), options);
        require_consistent(&second);
        load.wait_for_more(100);
        let first = second.query("SELECT COUNT(*), MAX(id) FROM shop.transfer").unwrap();
        load.wait_for_more(200);
        assert_eq!(second.query("SELECT COUNT(*), MAX(id) FROM shop.transfer").unwrap(), first);
        let mut conn = second.connect().unwrap();
        let changed = execute(&mut conn, "UPDATE shop.account SET balance = 0");
        assert_eq!(changed.is_ok(), options.is_empty(), "{changed:?}");
        if options.is_empty() {
            execute(&mut conn, "CREATE TABLE shop.mine AS SELECT * FROM shop.transfer").unwrap();
            assert_eq!(second.query("SELECT SUM(balance) FROM shop.account").unwrap(), [["0"]]);
        }
        drop(conn);
        second.shutdown().unwrap();
        let left: Vec<_> = std::fs::read_dir(second.datadir()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
    load.end();
    require_untouched(&node, &server);
    assert_eq!(server.query("SHOW TABLES IN shop LIKE 'mine'").unwrap(), Vec::<Vec<String>>::new());
    server.shutdown().unwrap();
}

#[test]
fn nothing_is_written_to_a_volume_and_what_is_wrong_is_said() {
    let node = node();
    node.create_volume("shop").unwrap();
    let mut server = Server::create(config(&node)).unwrap_or_else(|error| panic!("{error}"));
    fill(&server);
    let view = server.directory().join("view");
    let path = |name: &str| view.join(name).display().to_string();
    for script in [
        format!("touch {}", path("new")),
        format!("echo x >> {}", path("shop/db.opt")),
        format!("rm {}", path("shop/account.ibd")),
        format!("mv {} {}", path("shop/account.ibd"), path("shop/b.ibd")),
        format!("mkdir {}", path("d")),
        format!("chmod 777 {}", path("ibdata1")),
    ] {
        let outcome = shell(&node, &view, &[], &script);
        assert_ne!(outcome.code, Some(0), "{script}");
        assert!(outcome.stderr.contains("Read-only file system"), "{script}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains("is refused: this is a view of a volume"),
            "{script}: {}",
            outcome.stderr
        );
    }
    // Exit status, output and signals are the program's.
    let outcome = shell(&node, &view, &[], "echo said; exit 7");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(7), "said\n"), "{}", outcome.stderr);
    assert_eq!(shell(&node, &view, &[], "kill -TERM $$").code, None);
    // The calling process may ignore the ends of its children, as some service managers do.
    let mut ignoring = vec!["-e", "$SIG{CHLD} = 'IGNORE'; exec @ARGV or die", "--"];
    let command = node.redoubt_bin().display().to_string();
    let args = reader(&node, &view, &[], &["sh", "-c", "echo said"]);
    ignoring.push(&command);
    ignoring.extend(args.iter().map(String::as_str));
    let outcome = Outcome::of(Path::new("perl"), ignoring, PATIENCE).unwrap();
    assert_eq!(outcome.require_success().unwrap(), "said\n");
    // Missing files, and directories that cannot hold a view.
    shell(&node, &view, &[], &format!("! test -e {}", path("nothing"))).require_success().unwrap();
    let tmp = server.directory().to_owned();
    read(&node, &tmp, &[], &["true"])
        .require_failure(1, &["is not empty", "needs an empty directory"])
        .unwrap();
    node.create_volume("other").unwrap();
    let address = node.address().to_string();
    let of = |volume: &str, directory: &Path| {
        let directory = directory.display().to_string();
        let args = [
            "run",
            "--reader",
            "--node",
            &address,
            "--volume",
            volume,
            "--datadir",
            &directory,
            "--",
            "true",
        ];
        Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap()
    };
    of("other", &view).require_failure(1, &["is empty: no server has written to it"]).unwrap();
    of("nowhere", &view).require_failure(1, &["node has no volume"]).unwrap();
    require_untouched(&node, &server);
    server.shutdown().unwrap();
}

/// A view that is read while its node is killed and started again continues; a snapshot's view ends with an error.
#[test]
fn a_view_lives_through_a_restart_of_the_node() {
    let mut node = node();
    node.create_volume("shop").unwrap();
    let mut server = Server::create(config(&node)).unwrap_or_else(|error| panic!("{error}"));
    fill(&server);
    let (view, go, done) =
        (server.directory().join("view"), server.directory().join("go"), server.directory().join("done"));
    let script = format!(
        "cat {v}/shop/packed.ibd > {d}; cmp {v}/shop/packed.ibd {d}; touch {d}.ready; while [ ! -e {g} ]; do sleep 0.05; done; \
         cmp {v}/shop/packed.ibd {d}",
        v = view.display(),
        g = go.display(),
        d = done.display()
    );
    let mut command = Command::new(node.redoubt_bin());
    command.args(reader(&node, &view, &[], &["sh", "-euc", &script])).stdin(Stdio::null());
    let mut live = redoubt_workload::process::Process::spawn("a reader", &mut command).unwrap();
    let ready = PathBuf::from(format!("{}.ready", done.display()));
    poll_until("the first half", PATIENCE, || Ok(ready.exists().then_some(()))).unwrap();
    // A node counts from its start, and an idle server may have no page left to write.
    node.require_verified("shop", 1).unwrap();
    node.crash_and_restart().unwrap();
    std::fs::write(&go, "").unwrap();
    assert!(live.wait(Duration::from_secs(120)).unwrap().success());
    require_not_taken(&node, &server);
    server.shutdown().unwrap();
    node.require_verified("shop", 0).unwrap();
}
