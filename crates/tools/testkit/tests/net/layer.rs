//! Real servers with the network library: clients of every kind get the same answers as without it, and each end of a
//! wait comes at the same time.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use mysql::prelude::Queryable;
use mysql::{Conn, LocalInfileHandler};
use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::connections::{
    certificates, require_idle_timeout, require_kills, require_login_timeout, statements,
};
use redoubt_harness::fetched::find_or_skip;
use redoubt_harness::node::Node;
use redoubt_harness::tcp_server::create_with_tcp;
use redoubt_suites::net_layer::{Layer, Watch};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::process::find_program;
use redoubt_workload::product::{FetchedServer, Product};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

mod bypass;

/// Statements after which a connection is collapsed for certain.
const HABIT: usize = 16;

fn config(collapser: &str) -> ServerConfig {
    let options = vec!["--collapser".to_owned(), collapser.to_owned()];
    ServerConfig::new(Launcher::Net { redoubt_bin: find_redoubt().unwrap(), options })
}

fn redoubt(arguments: &[&str]) -> Outcome {
    Outcome::of(&find_redoubt().unwrap(), arguments, PATIENCE).unwrap()
}

/// The output of `redoubt net status` for a server.
fn status(server: &Server) -> serde_json::Value {
    let datadir = server.datadir();
    let outcome = redoubt(&["net", "status", "--json", "--datadir", datadir.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let all: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(all[0]["process_id"].as_u64(), server.process_id().map(u64::from));
    all[0].clone()
}

fn counter(server: &Server, name: &str) -> u64 {
    status(server)["counters"][name].as_u64().unwrap()
}

/// Runs a script with the command line client, and returns what it prints.
fn client(options: &[&str], script: &str) -> String {
    let program = find_program("mariadb", "mariadb-client").unwrap();
    let mut child = std::process::Command::new(program)
        .args(["--no-defaults", "-N", "--max-allowed-packet=64M"])
        .args(options)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let script = script.to_owned();
    let writer = std::thread::spawn(move || input.write_all(script.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Many statements, one of which is large.
fn script() -> (String, String) {
    let (mut script, mut expected) = (String::new(), String::new());
    for number in 0..200 {
        script.push_str(&format!("SELECT {number}, LENGTH('{}');\n", "y".repeat(number * 37)));
        expected.push_str(&format!("{number}\t{}\n", number * 37));
    }
    script.push_str(&format!("SELECT LENGTH('{}');\n", "z".repeat(20 << 20)));
    expected.push_str(&format!("{}\n", 20 << 20));
    (script, expected)
}

#[test]
fn what_servers_that_were_killed_did_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let mut watch = Watch::new(directory.path().canonicalize().unwrap());
    let mut server = Server::new_below(config("on"), directory.path()).unwrap();
    server.install_db().unwrap();
    server.start().unwrap();
    let mut conn = server.connect().unwrap();
    watch.look().unwrap();
    statements(&mut conn, 2 * HABIT).unwrap();
    let requests = counter(&server, "requests");
    server.kill9().unwrap();
    server.start().unwrap();
    // Of two servers one after another neither is lost, nor is one counted twice.
    watch.look().unwrap();
    watch.look().unwrap();
    let mut other = Server::create(config("on")).unwrap();
    let sums = watch.finish().unwrap();
    assert_eq!(sums.servers, 2, "{sums:?}");
    assert!(sums.counters["requests"] >= requests && requests > 0, "{requests}: {sums:?}");
    sums.verdict(Layer::Collapser).unwrap();
    assert!(sums.verdict(Layer::Bypass).is_err());
    other.shutdown().unwrap();
    server.shutdown().unwrap();
}

#[test]
fn clients_of_every_kind_get_what_they_ask_for() {
    let directory = tempfile::tempdir().unwrap();
    for collapser in ["on", "read-ahead"] {
        let mut config = config(collapser).server_arg("--max-allowed-packet=64M");
        if collapser == "on" {
            config.server_args.extend(certificates(directory.path(), "127.0.0.1").unwrap());
        }
        let (mut server, port) = create_with_tcp(config).unwrap();
        let mut conn = server.connect().unwrap();
        execute(&mut conn, "CREATE USER ''@'127.0.0.1'").unwrap();
        execute(&mut conn, "GRANT ALL ON *.* TO ''@'127.0.0.1'").unwrap();
        let socket = format!("--socket={}", server.socket().display());
        let port = format!("--port={port}");
        let tcp = ["--host=127.0.0.1", &port, "--user=x", "--ssl=0"];
        let mut ways = vec![
            vec![socket.as_str(), "--user=root", "--ssl=0"],
            tcp.to_vec(),
            [&tcp[..], &["--compress"]].concat(),
        ];
        if collapser == "on" {
            let tls = [&tcp[..3], &["--ssl", "--ssl-verify-server-cert=0"]].concat();
            ways.push([&tls[..], &["--compress"]].concat());
            assert_ne!(client(&tls, "SHOW STATUS LIKE 'Ssl_cipher'").trim(), "Ssl_cipher");
            ways.push(tls);
        }
        let (script, expected) = script();
        for way in ways {
            let before = status(&server);
            assert!(client(&way, &script) == expected, "{way:?}");
            let after = status(&server);
            let grown = |name: &str| {
                after["counters"][name].as_u64().unwrap() - before["counters"][name].as_u64().unwrap()
            };
            println!(
                "{collapser} {way:?}: {} calls, {} system calls, {} requests",
                grown("calls"),
                grown("system_calls"),
                grown("requests")
            );
            assert!(grown("collapsed") >= 1, "{way:?}: {after}");
        }
        server.shutdown().unwrap();
    }
}

#[test]
fn statements_of_every_kind_work() {
    let mut server = Server::create(config("on").server_arg("--local-infile=1")).unwrap();
    let mut conn = server.connect().unwrap();
    statements(&mut conn, HABIT).unwrap();
    execute(&mut conn, "CREATE DATABASE d").unwrap();
    execute(&mut conn, "CREATE TABLE d.t (id INT PRIMARY KEY, v LONGBLOB)").unwrap();
    for id in 0..300 {
        conn.exec_drop("INSERT INTO d.t VALUES (?, ?)", (id, vec![id as u8; id * 100])).unwrap();
    }
    let sum: Option<u64> = conn.query_first("SELECT SUM(LENGTH(v)) FROM d.t").unwrap();
    assert_eq!(sum, Some((0..300).map(|id| id * 100).sum()));
    // Long data, in pieces that have no answer.
    let large = vec![5u8; 3 << 20];
    conn.exec_drop("REPLACE INTO d.t VALUES (?, ?)", (1, &large)).unwrap();
    let got: Option<Vec<u8>> = conn.exec_first("SELECT v FROM d.t WHERE id = ?", (1,)).unwrap();
    assert!(got == Some(large));
    let results = conn.query_iter("SELECT 1; SELECT 2; DO 3; SELECT 4").map(|_| ());
    assert!(results.is_ok());
    // The server asks for a file in the course of a statement.
    let rows: String = (1000..60_000).map(|id| format!("{id}\tvalue {id}\n")).collect();
    conn.set_local_infile_handler(Some(LocalInfileHandler::new(move |_, writer| {
        rows.as_bytes().chunks(7001).try_for_each(|piece| writer.write_all(piece))
    })));
    execute(&mut conn, "LOAD DATA LOCAL INFILE 'x' INTO TABLE d.t").unwrap();
    let count: Option<u64> = conn.query_first("SELECT COUNT(*) FROM d.t WHERE id >= 1000").unwrap();
    assert_eq!(count, Some(59_000));
    statements(&mut conn, HABIT).unwrap();
    conn.reset().unwrap();
    assert!(conn.ping().is_ok());
    statements(&mut conn, HABIT).unwrap();
    assert!(status(&server)["saved_system_calls"].as_u64().unwrap() > 100);
    server.shutdown().unwrap();
}

/// Ends although clients are connected and say nothing, which they may do for hours.
fn shutdown_with_clients(server: &mut Server) {
    let clients: Vec<Conn> = (0..20)
        .map(|_| {
            let mut conn = server.connect().unwrap();
            statements(&mut conn, HABIT).unwrap();
            conn
        })
        .collect();
    server.shutdown().unwrap();
    drop(clients);
}

#[test]
fn what_ends_a_wait_ends_it() {
    for collapser in ["on", "read-ahead"] {
        let mut server = Server::create(config(collapser)).unwrap();
        require_kills(&|| server.connect(), HABIT).unwrap();
        require_idle_timeout(&|| server.connect(), HABIT).unwrap();
        assert!(counter(&server, "collapsed") >= 1);
        shutdown_with_clients(&mut server);
    }
}

#[test]
fn a_login_that_stops_is_ended_after_connect_timeout() {
    let (server, port) = create_with_tcp(config("on").server_arg("--connect-timeout=2")).unwrap();
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    require_login_timeout(&mut server.connect().unwrap(), 2, &connect).unwrap();
    assert!(counter(&server, "connections") >= 1);
}

#[test]
fn the_pool_of_threads_has_its_connections_left_to_the_kernel() {
    let server = Server::create(config("on").server_arg("--thread-handling=pool-of-threads")).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| statements(&mut server.connect().unwrap(), 100).unwrap());
        }
    });
    require_kills(&|| server.connect(), HABIT).unwrap();
    require_idle_timeout(&|| server.connect(), HABIT).unwrap();
    assert!(counter(&server, "left_alone") >= 40);
    assert_eq!(counter(&server, "collapsed"), 0);
}

#[test]
fn what_is_switched_off_is_not_counted() {
    let server = Server::create(config("off")).unwrap();
    let mut conn = server.connect().unwrap();
    statements(&mut conn, HABIT).unwrap();
    assert_eq!(counter(&server, "collapsed"), 0);
    let datadir = server.datadir();
    let outcome = redoubt(&["net", "set", "collapser", "on", "--datadir", datadir.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    statements(&mut conn, HABIT).unwrap();
    assert_eq!(counter(&server, "collapsed"), 1);
}

#[test]
fn a_thousand_connections_are_served() {
    let server = Server::create(config("on").server_arg("--max-connections=1100")).unwrap();
    let mut clients: Vec<Conn> = (0..1000).map(|_| server.connect().unwrap()).collect();
    for _ in 0..2 {
        for conn in &mut clients {
            statements(conn, HABIT).unwrap();
        }
    }
    let found = status(&server);
    assert!(found["open_connections"].as_u64().unwrap() >= 1000, "{found}");
    assert!(found["counters"]["collapsed"].as_u64().unwrap() >= 1000, "{found}");
    clients.truncate(100);
    for conn in &mut clients {
        statements(conn, HABIT).unwrap();
    }
}

#[test]
fn layers_are_switched_under_load() {
    let mut server = Server::create(config("auto")).unwrap();
    let datadir = server.datadir();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut conn = server.connect().unwrap();
                while !ended.load(Ordering::Acquire) {
                    statements(&mut conn, 50).unwrap();
                }
            });
        }
        for round in 0..30 {
            let mode = ["off", "on", "read-ahead", "auto"][round % 4];
            let outcome = redoubt(&["net", "set", "collapser", mode, "--datadir", datadir.to_str().unwrap()]);
            assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
            assert_eq!(status(&server)["collapser"], mode);
        }
        ended.store(true, Ordering::Release);
    });
    let pid = server.process_id().unwrap().to_string();
    let text = redoubt(&["net", "status", "--pid", &pid]).stdout;
    for word in ["collapser", "connections", "requests", "saved", &pid] {
        assert!(text.contains(word), "{text}");
    }
    server.shutdown().unwrap();
}

#[test]
fn the_library_works_beside_that_of_volumes() {
    let node = Node::create(&find_redoubt().unwrap(), &["--ring", "64MiB"]).unwrap();
    node.create_volume("v").unwrap();
    let library = find_redoubt().unwrap().with_file_name("libredoubt_net.so");
    let mut config = ServerConfig::new(node.launcher("v", Verify::All));
    config.environment.push(("LD_PRELOAD".to_owned(), library.into_os_string()));
    config.environment.push(("REDOUBT_NET".to_owned(), "on".into()));
    let mut server = Server::create(config).unwrap();
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "CREATE DATABASE d").unwrap();
    execute(&mut conn, "CREATE TABLE d.t (id INT PRIMARY KEY, v VARBINARY(1000))").unwrap();
    for id in 0..500 {
        conn.exec_drop("INSERT INTO d.t VALUES (?, ?)", (id, vec![7u8; id])).unwrap();
    }
    assert!(counter(&server, "collapsed") >= 1);
    require_kills(&|| server.connect(), HABIT).unwrap();
    server.kill9().unwrap();
    server.start().unwrap();
    let count: Option<u64> = server.connect().unwrap().query_first("SELECT COUNT(*) FROM d.t").unwrap();
    assert_eq!(count, Some(500));
    server.shutdown().unwrap();
}

#[test]
fn collapser_serves_mysql_clients() {
    let Some(product) = find_or_skip(FetchedServer::MySql97, "collapser_serves_mysql_clients") else {
        return;
    };
    check_mysql(product);
}

fn check_mysql(product: Product) {
    let mut server = Server::create(config("on").product(product)).unwrap();
    let mut conn = server.connect().unwrap();
    statements(&mut conn, 200).unwrap();
    require_kills(&|| server.connect(), HABIT).unwrap();
    require_idle_timeout(&|| server.connect(), HABIT).unwrap();
    let found = status(&server);
    println!("{found}");
    assert!(found["counters"]["collapsed"].as_u64().unwrap() >= 1, "{found}");
    shutdown_with_clients(&mut server);
}

#[test]
fn wrong_use_is_explained() {
    let told = |arguments: &[&str], code: i32, words: &[&str]| {
        let outcome = redoubt(arguments);
        assert_eq!(outcome.code, Some(code), "{outcome:?}");
        for word in words {
            assert!(outcome.stderr.contains(word), "{arguments:?}: {}", outcome.stderr);
        }
    };
    told(&["net", "run", "--collapser", "fast", "--", "mariadbd"], 2, &["read-ahead", "fast"]);
    told(&["net", "run"], 2, &["COMMAND"]);
    told(&["net", "run", "--", "no-such-server"], 1, &["no-such-server", "PATH"]);
    told(&["net", "run", "--library", "/nowhere.so", "--", "mariadbd"], 1, &["/nowhere.so", "--library"]);
    told(&["net", "set", "collapser", "perhaps"], 2, &["perhaps", "auto"]);
    told(&["net", "set", "admission", "on"], 2, &["on", "number", "off"]);
    told(&["net", "set", "speed", "on"], 2, &["speed"]);
    told(&["net", "run", "--admission", "0", "--", "mariadbd"], 2, &["0", "off"]);
    told(&["net", "run", "--admission-lease", "0", "--", "mariadbd"], 2, &["0"]);
    told(&["net", "run", "--admission-administrator", "a,b", "--", "mariadbd"], 2, &["a,b", "comma"]);
    told(&["net", "status", "--pid", "1"], 1, &["process id 1", "redoubt net run"]);
    told(&["net", "status", "--datadir", "/nowhere"], 1, &["/nowhere"]);
    told(&["net", "status", "--pid", "1", "--datadir", "/"], 2, &["cannot be used with"]);
}
