//! Connections with TLS and with compression, by the command line clients: they are followed, and so they wait and end
//! as others do.

use super::{NEVER, SOON, await_empty, await_waiting, config, counter, inside, prepare, status};
use redoubt_harness::connections::certificates;
use redoubt_harness::fetched::find_or_skip;
use redoubt_workload::process::{find_program, poll_until};
use redoubt_workload::product::{FetchedServer, Product};
use redoubt_workload::server::Server;
use redoubt_workload::sql::{execute, query_text};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

/// A client of a kind of its own.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    options: &'static [&'static str],
}

const TLS: Way = Way { name: "TLS", options: &["--ssl", "--ssl-verify-server-cert=0"] };
const COMPRESSED: Way = Way { name: "zlib", options: &["--ssl=0", "--compress"] };
const COMPRESSED_TLS: Way =
    Way { name: "zlib in TLS", options: &["--ssl", "--ssl-verify-server-cert=0", "--compress"] };
const MYSQL_ZLIB: Way = Way {
    name: "zlib of MySQL",
    options: &["--ssl-mode=DISABLED", "--get-server-public-key", "--compression-algorithms=zlib"],
};
const MYSQL_ZSTD: Way =
    Way { name: "zstd of MySQL in TLS", options: &["--ssl-mode=REQUIRED", "--compression-algorithms=zstd"] };
const MYSQL_TLS: Way = Way { name: "TLS of MySQL", options: &["--ssl-mode=REQUIRED"] };

/// The command line client of a server.
fn program(product: &Product) -> PathBuf {
    if !product.is_mysql() {
        return find_program("mariadb", "mariadb-client").unwrap();
    }
    product.program().unwrap().with_file_name("mysql")
}

/// A server with a limit and with certificates.
fn server(product: Product, options: &[&str], directory: &Path) -> Server {
    let options = [&["--admission-lease", NEVER, "--admission-longest-wait", NEVER], options].concat();
    let mut config = config(&options).product(product);
    config.server_args.extend(certificates(directory, "127.0.0.1").unwrap());
    if !config.product.is_mysql() {
        // Newer ones end transactions of a kind with an error of its own.
        config.server_args.push("--loose-innodb-snapshot-isolation=0".to_owned());
    }
    let server = Server::create(config).unwrap();
    prepare(&server);
    server
}

/// A client that gets its statements one by one.
struct Client {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Client {
    fn start(server: &Server, way: Way) -> Self {
        let mut child = Command::new(program(&server.config().product))
            .args(["--no-defaults", "-N", "--batch", "--unbuffered", "--user=app", "--database=d"])
            .arg(format!("--socket={}", server.socket().display()))
            .args(way.options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, input, lines }
    }

    /// Sends this, and does not wait.
    fn send(&mut self, statement: &str) {
        // The client may have ended.
        let _ = self.input.write_all(format!("{statement};\n").as_bytes());
    }

    /// The next row.
    fn row(&mut self) -> String {
        self.lines.recv_timeout(SOON).unwrap()
    }

    /// The row of a statement that has one.
    fn ask(&mut self, statement: &str) -> String {
        self.send(statement);
        self.row()
    }

    /// It ends soon, having got nothing more.
    fn ends(mut self, what: &str) {
        poll_until(what, SOON, || Ok(self.child.try_wait().unwrap().map(drop))).unwrap();
        assert_eq!(self.lines.recv_timeout(SOON).ok(), None, "{what}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Many at the same time, each with transactions of many kinds; the server never shows more than there may be.
fn the_limit_holds(server: &Server, way: Way, limit: u64) {
    const CLIENTS: u64 = 12;
    const ROUNDS: u64 = 25;
    execute(&mut server.connect().unwrap(), "UPDATE d.t SET v = 0").unwrap();
    let ended = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let (mut root, mut most) = (server.connect().unwrap(), 0);
            let text = "SELECT COUNT(*) FROM information_schema.innodb_trx
                        WHERE trx_mysql_thread_id NOT IN (0, CONNECTION_ID())";
            while !ended.load(Ordering::Acquire) {
                execute(&mut root, "DO SLEEP(0.12)").unwrap();
                most = most.max(query_text(&mut root, text).unwrap()[0][0].parse().unwrap());
            }
            most
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                scope.spawn(move || {
                    let mut client = Client::start(server, way);
                    for round in 0..ROUNDS {
                        let (row, other) = ((number + round) % 9, (number + round) % 9 + 1);
                        client.send(&format!(
                            "BEGIN; UPDATE t SET v = v + 1 WHERE id = {row};
                             SELECT COUNT(*), REPEAT('x', {}) FROM t; UPDATE t SET v = v + 1 WHERE id = {other};
                             DO SLEEP(0.01); COMMIT; SELECT '{}', {round}",
                            number * round * 7,
                            "y".repeat((round * 13) as usize),
                        ));
                        assert_eq!(client.row().len() as u64, 3 + number * round * 7);
                        assert!(client.row().ends_with(&round.to_string()));
                    }
                })
            })
            .collect();
        let all: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        ended.store(true, Ordering::Release);
        assert!(all.iter().all(Result::is_ok), "{way:?}: {}", status(server));
        watcher.join().unwrap()
    });
    await_empty(server);
    let found = status(server);
    println!("{}: {most} at once; {found}", way.name);
    assert!((1..=limit).contains(&most), "{most}: {found}");
    let sum = query_text(&mut server.connect().unwrap(), "SELECT SUM(v) FROM d.t").unwrap();
    assert_eq!(sum, [[(CLIENTS * ROUNDS * 2).to_string()]]);
    assert_eq!(found["counters"]["not_understood"], 0, "{found}");
}

/// A waiting connection ends by every cause that ends connections, and others pass.
fn waits_end(server: &Server, way: Way) {
    let mut root = server.connect().unwrap();
    let (mut killed, mut timed, mut free, mut last) = (
        Client::start(server, way),
        Client::start(server, way),
        Client::start(server, way),
        Client::start(server, way),
    );
    let killed_id = killed.ask("SELECT CONNECTION_ID()");
    assert_eq!(timed.ask("SET SESSION wait_timeout = 3; SELECT 'set'"), "set");
    for client in [&mut free, &mut last] {
        assert_eq!(client.ask("SELECT 'here'"), "here");
    }
    let mut holder = Client::start(server, way);
    assert_eq!(holder.ask("BEGIN; SELECT v < 0 FROM t WHERE id = 0 FOR UPDATE"), "0");

    killed.send("UPDATE t SET v = -100 WHERE id = 1");
    await_waiting(server, 1);
    execute(&mut root, &format!("KILL {killed_id}")).unwrap();
    killed.ends("the end of a killed connection");
    await_waiting(server, 0);

    timed.send("UPDATE t SET v = -100 WHERE id = 1");
    await_waiting(server, 1);
    timed.ends("the end after wait_timeout");
    await_waiting(server, 0);

    last.send("UPDATE t SET v = -5 WHERE id = 2; SELECT v FROM t WHERE id = 2");
    await_waiting(server, 1);
    assert!(free.ask("SHOW VARIABLES LIKE 'autocommit'").starts_with("autocommit"));
    let long = format!("SHOW /* {} */ VARIABLES LIKE 'autocommit'", "long and dull ".repeat(20));
    assert!(free.ask(&long).starts_with("autocommit"));
    assert_eq!(status(server)["admission"]["waiting"], 1);
    holder.send("COMMIT");
    assert_eq!(last.row(), "-5");
    // A client that dies in the queue, and one inside that does.
    assert_eq!(holder.ask("BEGIN; SELECT v < 0 FROM t WHERE id = 0 FOR UPDATE"), "0");
    let mut dead = Client::start(server, way);
    dead.send("UPDATE t SET v = -7 WHERE id = 3");
    await_waiting(server, 1);
    drop(dead);
    drop(holder);
    await_empty(server);
    let seen = query_text(&mut root, "SELECT MIN(v) FROM d.t WHERE id = 1").unwrap();
    assert_ne!(seen, [["-100"]]);
}

/// All of it, on a server of this kind.
fn check(product: &Product, ways: &[Way]) {
    for collapser in ["off", "on"] {
        for way in ways {
            let directory = tempfile::tempdir().unwrap();
            let options = ["--admission", "3", "--collapser", collapser];
            let mut server = server(product.clone(), &options, directory.path());
            the_limit_holds(&server, *way, 3);
            assert!(counter(&server, "waited") > 50);
            super::set(&server, "admission", "off");
            super::set(&server, "admission", "1");
            waits_end(&server, *way);
            // With others, without TLS, who wait as well, it ends.
            let plain = inside(&server);
            let mut waiter = Client::start(&server, *way);
            waiter.send("UPDATE t SET v = 1 WHERE id = 3");
            await_waiting(&server, 1);
            server.shutdown().unwrap();
            waiter.ends("a client of a server that has ended");
            drop(plain);
        }
    }
}

#[test]
fn connections_with_tls_wait_as_others_do() {
    check(&Product::MariaDb, &[TLS]);
}

#[test]
fn compressed_connections_wait_as_others_do() {
    check(&Product::MariaDb, &[COMPRESSED, COMPRESSED_TLS]);
}

#[test]
fn admission_follows_compressed_mysql_connections() {
    let Some(product) =
        find_or_skip(FetchedServer::MySql97, "admission_follows_compressed_mysql_connections")
    else {
        return;
    };
    check(&product, &[MYSQL_ZLIB, MYSQL_ZSTD]);
}

#[test]
fn connections_with_tls_are_followed_from_the_moment_a_limit_is_set() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(Product::MariaDb, &["--admission", "off"], directory.path());
    let mut first = Client::start(&server, TLS);
    let mut second = Client::start(&server, TLS);
    for client in [&mut first, &mut second] {
        assert_eq!(client.ask("SELECT 'here'"), "here");
    }
    super::set(&server, "admission", "1");
    // The packet boundary is known after one answer, and the state of the transaction after another.
    for client in [&mut first, &mut second] {
        assert_eq!(client.ask("SELECT 'here'"), "here");
        assert_eq!(client.ask("SELECT 'there'"), "there");
    }
    assert_eq!(first.ask("BEGIN; SELECT v FROM t WHERE id = 0 FOR UPDATE"), "0");
    second.send("SELECT 'again' FROM t WHERE id = 1");
    await_waiting(&server, 1);
    first.send("ROLLBACK");
    assert_eq!(second.row(), "again");
    assert_eq!(counter(&server, "not_understood"), 0);
}

#[test]
fn admission_follows_tls_of_mysql() {
    let Some(product) = find_or_skip(FetchedServer::MySql97, "admission_follows_tls_of_mysql") else {
        return;
    };
    check(&product, &[MYSQL_TLS]);
}

#[test]
fn admission_follows_tls_of_newer_mariadb() {
    for version in [FetchedServer::MariaDb114, FetchedServer::MariaDb118] {
        let Some(product) = find_or_skip(version, "admission_follows_tls_of_newer_mariadb") else { continue };
        check(&product, &[TLS]);
    }
}
