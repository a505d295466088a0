//! A real server on a node that accepts no connection without a certificate.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_harness::battery;
use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::node::Node;
use redoubt_test_support::setting;
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::server::Server;
use redoubt_workload::sql::execute;
use std::time::UNIX_EPOCH;

fn insert(server: &Server, from: u32) {
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "USE shop").unwrap();
    let rows =
        format!("INSERT INTO shop.t SELECT seq, REPEAT(MD5(seq), 10) FROM seq_{from}_to_{}", from + 19_999);
    execute(&mut conn, &rows).unwrap();
}

fn state(server: &Server) -> Vec<Vec<String>> {
    server.query("SELECT COUNT(*), SUM(CRC32(b)), MIN(id), MAX(id) FROM shop.t").unwrap()
}

fn refused(node: &Node, bundle: Option<&str>, args: &[&str], parts: &[&str]) {
    let address = node.address().to_string();
    let bundle = bundle.map(|name| node.bundle(name).unwrap().display().to_string());
    let mut all = args.to_vec();
    all.extend(["--node", &address]);
    if let Some(bundle) = &bundle {
        all.extend(["--tls", bundle]);
    }
    Outcome::of(node.redoubt_bin(), all, PATIENCE)
        .unwrap()
        .require_failure(1, parts)
        .unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
}

#[test]
fn a_server_lives_on_a_node_that_lets_nobody_else_in() {
    let redoubt = find_redoubt().unwrap();
    let args = ["--ring", "64MiB", "--batch", "1MiB", "--apply-interval", "1"];
    let mut node = Node::create_with_tls(&redoubt, &["shop", "other"], &args).unwrap();
    node.create_volume("shop").unwrap();
    node.create_volume("other").unwrap();

    // Attach, load.
    let mut server = Server::create(battery::config(node.launcher("shop", Verify::All)))
        .unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "CREATE DATABASE shop").unwrap();
    execute(&mut conn, "CREATE TABLE shop.t (id INT PRIMARY KEY, b TEXT) ENGINE=InnoDB").unwrap();
    drop(conn);
    insert(&server, 1);

    let expiries = |node: &Node| {
        let status = node.status("shop").unwrap();
        [&status["certificate_expires_s"], &status["volumes"][0]["server_certificate_expires_s"]]
            .map(|expires_s| expires_s.as_i64().unwrap_or_else(|| panic!("{status}")))
    };
    let now_s = UNIX_EPOCH.elapsed().unwrap().as_secs() as f64;
    let in_days = |expires_s: i64| (expires_s as f64 - now_s) / 86_400.0;
    assert!(expiries(&node).iter().all(|expires_s| (364.0..=365.1).contains(&in_days(*expires_s))));

    // All other clients are refused.
    refused(&node, None, &["volume", "list"], &["speaks TLS only", "--tls DIR"]);
    let to = server.directory().join("stolen").display().to_string();
    refused(
        &node,
        Some("volume-other"),
        &["volume", "export", "shop", "--to", &to],
        &["volume other, not of shop"],
    );
    refused(&node, Some("volume-other"), &["volume", "create", "third"], &["administrator's certificate"]);
    assert!(!std::path::Path::new(&to).exists());

    // The node is killed under it; all certificates are renewed meanwhile, and both sides use the new ones.
    node.kill9().unwrap();
    let authority = node.bundle("").unwrap().display().to_string();
    node.redoubt(&["certificates", "add", &authority, "--renew", "--days", "30"]).unwrap();
    let key = std::fs::read_to_string(node.bundle("volume-shop").unwrap().join("key.pem")).unwrap();
    node.start().unwrap();
    insert(&server, 20_001);
    let before = state(&server);
    assert_eq!(before[0][0], "40000");

    // The server is killed, and started again elsewhere: an empty directory.
    server.kill9().unwrap();
    server.empty_data_directory().unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    let logs = format!("server: {}\nnode: {}", server.error_log_tail(60), node.log_tail(60));
    assert_eq!(state(&server), before, "{logs}");
    assert!(node.status("shop").unwrap()["volumes"][0]["state"] == "attached");
    assert!(expiries(&node).iter().all(|expires_s| (29.0..=30.1).contains(&in_days(*expires_s))));

    // Nothing of a key is where it could be seen.
    let process = server.process_id().unwrap();
    let secret = key.lines().nth(1).unwrap().to_owned();
    for file in ["environ", "cmdline"] {
        let shown = std::fs::read(format!("/proc/{process}/{file}")).unwrap();
        assert!(!String::from_utf8_lossy(&shown).contains(&secret));
    }
    assert!(!server.error_log_tail(100_000).contains(&secret) && !node.log_tail(100_000).contains(&secret));
    server.shutdown().unwrap();

    // Out again, with the volume's own certificate, to a stock server.
    let target = tempfile::tempdir().unwrap();
    let (data, address) = (target.path().join("data").display().to_string(), node.address().to_string());
    let own = node.bundle("volume-shop").unwrap().display().to_string();
    node.redoubt(&["volume", "export", "shop", "--to", &data, "--node", &address, "--tls", &own]).unwrap();
    let mut config = server.config().clone();
    config.launcher = Launcher::Stock;
    let mut stock = Server::in_directory(config, target.path()).unwrap();
    stock.start().unwrap_or_else(|error| panic!("stock server on the export: {error}"));
    assert_eq!(state(&stock), before);
    stock.shutdown().unwrap();
}

#[test]
fn a_server_with_a_wrong_certificate_does_not_start() {
    let node = Node::create_with_tls(&find_redoubt().unwrap(), &["shop"], &[]).unwrap();
    node.create_volume("shop").unwrap();
    let other = Node::create_with_tls(&find_redoubt().unwrap(), &["shop"], &[]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data").display().to_string();
    let bundle = |node: &Node, name: &str| node.bundle(name).unwrap().display().to_string();
    let address = node.address().to_string();
    let strangers = bundle(&other, "volume-shop");
    let ours = bundle(&node, "volume-shop");
    let run = |bundle: &str, parts: &[&str]| {
        let args = [
            "run",
            "--node",
            &address,
            "--volume",
            "shop",
            "--datadir",
            &data,
            "--tls",
            bundle,
            "--",
            "mariadbd",
        ];
        Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap().require_failure(1, parts).unwrap();
    };
    run(&strangers, &["TLS authentication", "another authority"]);
    let key = std::path::Path::new(&ours).join("key.pem");
    let mode =
        |mode| std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    mode(0o644);
    run(&ours, &["chmod 600", "0644"]);
    mode(0o600);
    std::fs::remove_file(&key).unwrap();
    run(&ours, &["cannot open", "key.pem"]);
    assert_eq!(node.status("shop").unwrap()["volumes"][0]["generation"], 0);
}

/// With `sync_binlog=0`, the default, a commit is answered when its binary log is written, not synced. On a local
/// disk a killed server leaves it in the page cache; here in the send queue of its socket, which must reach the node
/// after its death.
fn kill_right_after_large_transactions(node: &Node, run_options: &[&str]) {
    node.create_volume("shop").unwrap();
    let launcher = node.launcher_with("shop", Verify::Off, run_options);
    let mut server = Server::create(battery::config(launcher)).unwrap();
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "CREATE DATABASE shop").unwrap();
    execute(&mut conn, "CREATE TABLE shop.t (id INT PRIMARY KEY, b TEXT) ENGINE=InnoDB").unwrap();
    drop(conn);
    let rounds = setting("REDOUBT_SOAK_ROUNDS", 4);
    for round in 0..rounds {
        insert(&server, 1 + round as u32 * 20_000);
        let before = state(&server);
        server.kill9().unwrap();
        server.empty_data_directory().unwrap();
        server.start().unwrap();
        let logs = format!("server: {}\nnode: {}", server.error_log_tail(40), node.log_tail(20));
        assert_eq!(state(&server), before, "round {round}; {logs}");
    }
}

#[test]
fn a_server_killed_right_after_a_large_transaction_keeps_it() {
    kill_right_after_large_transactions(&Node::create(&find_redoubt().unwrap(), &[]).unwrap(), &[]);
}

#[test]
fn a_server_killed_right_after_a_large_transaction_keeps_it_with_tls_and_compression() {
    kill_right_after_large_transactions(
        &Node::create_with_tls(&find_redoubt().unwrap(), &["shop"], &[]).unwrap(),
        &["--compress"],
    );
}
