//! A server on its node's host reaches it over the node's local socket, and over TCP where that cannot be had.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_harness::node::Node;
use redoubt_test_support::child;
use redoubt_workload::check::check_all;
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::ledger::{self, Entries, Options, Run};
use redoubt_workload::process::poll_until;
use redoubt_workload::server::{Server, ServerConfig};
use std::io::Read;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const VOLUME: &str = "shop";
const PATIENCE: Duration = Duration::from_secs(120);
const NODE_ARGS: [&str; 6] = ["--ring", "32MiB", "--batch", "1MiB", "--apply-interval", "1"];
const NOTE: &str = "reached over its local socket";

fn config(node: &Node, options: &[&str]) -> ServerConfig {
    let mut config = ServerConfig::new(node.launcher_with(VOLUME, Verify::All, options));
    config.log_file_size_bytes = 16 << 20;
    // Less than what the tables have, so that pages are read.
    config.buffer_pool_bytes = 6 << 20;
    config
}

fn create(node: &Node, options: &[&str]) -> Server {
    node.create_volume(VOLUME).unwrap();
    Server::create(config(node, options))
        .unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)))
}

/// Connections of the server, and how many of them are over the local socket.
fn connections(node: &Node) -> (u64, u64) {
    let status = node.status(VOLUME).unwrap();
    let number = |name: &str| status["volumes"][0][name].as_u64().unwrap_or_else(|| panic!("{status}"));
    (number("connections"), number("local_connections"))
}

/// Waits until the server has its log connection, its notices and one for pages at least, all of the kind wanted.
fn require_all(node: &Node, local: bool) {
    let mut last = (0, 0);
    let wanted = poll_until("connections of one kind", PATIENCE, || {
        last = connections(node);
        Ok((last.0 >= 3 && last.1 == if local { last.0 } else { 0 }).then_some(()))
    });
    wanted.unwrap_or_else(|error| panic!("{error}: {last:?}\nnode: {}", node.log_tail(20)));
}

/// The server works: commits, and reads of pages that its pool has no room for.
fn require_works(node: &Node, server: &Server, run: &Run) {
    run.wait_for_more(50, PATIENCE).unwrap_or_else(|error| {
        panic!("{error}\nserver: {}\nnode: {}", server.error_log_tail(20), node.log_tail(20))
    });
}

/// Every acknowledged commit is there, and every compared page was equal.
fn require_sound(node: &Node, server: &Server, run: Run) {
    run.stop().unwrap();
    let entries = Entries::read(&server.directory().join("ledger")).unwrap();
    let mut conn = server.connect().unwrap();
    let report = ledger::verify(&mut conn, &entries).unwrap().require_sound().unwrap();
    assert!(report.rows_found >= entries.acknowledged());
    check_all(&mut conn).unwrap();
    // A node that was just started may have compared none yet.
    node.require_verified(VOLUME, 0).unwrap();
}

fn start_ledger(server: &Server) -> Run {
    Run::start(&server.socket(), &server.directory().join("ledger"), Options::default()).unwrap()
}

fn local_name(address: SocketAddr) -> String {
    format!("redoubt-node/{address}")
}

fn live_over_the_local_socket(mut node: Node) {
    let mut server = create(&node, &[]);
    let run = start_ledger(&server);
    require_works(&node, &server, &run);
    require_all(&node, true);
    assert!(server.error_log_tail(200).contains(NOTE), "{}", server.error_log_tail(200));
    let address = node.address().to_string();
    let shown = node.redoubt(&["status", "--node", &address]).unwrap();
    let name = local_name(node.address());
    assert!(shown.contains(&format!("@{name}")) && shown.contains("over the local socket"), "{shown}");
    // No name of a node that was killed is left behind.
    for _ in 0..3 {
        node.kill9().unwrap();
        UnixListener::bind_addr(&UnixAddress::from_abstract_name(&name).unwrap()).unwrap();
        node.start().unwrap();
        require_works(&node, &server, &run);
        require_all(&node, true);
    }
    server.kill9().unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    require_works(&node, &server, &run);
    require_all(&node, true);
    require_sound(&node, &server, run);
    server.shutdown().unwrap();
    // The end writes all pages.
    node.require_verified(VOLUME, 1).unwrap();
}

#[test]
fn kills_of_node_and_server_over_the_local_socket_lose_nothing() {
    live_over_the_local_socket(Node::create(&find_redoubt().unwrap(), &NODE_ARGS).unwrap());
}

#[test]
fn the_same_with_tls_which_is_demanded_there_too() {
    live_over_the_local_socket(
        Node::create_with_tls(&find_redoubt().unwrap(), &[VOLUME], &NODE_ARGS).unwrap(),
    );
}

/// A node that does not answer has the same effect on the server as over TCP: it ends at its timeout.
#[test]
fn a_node_that_is_halted_ends_the_server() {
    let mut node = Node::create(&find_redoubt().unwrap(), &NODE_ARGS).unwrap();
    let mut server = create(&node, &["--timeout", "6"]);
    require_all(&node, true);
    let run = start_ledger(&server);
    require_works(&node, &server, &run);
    node.halt().unwrap();
    let code = server.wait_exit_code(PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(code, Some(1), "{}", server.error_log_tail(20));
    let _ = run.stop();
    node.kill9().unwrap();
    node.start().unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    require_all(&node, true);
    let run = start_ledger(&server);
    require_works(&node, &server, &run);
    require_sound(&node, &server, run);
    server.shutdown().unwrap();
}

#[test]
fn either_side_can_turn_it_off() {
    let mut node = Node::create(&find_redoubt().unwrap(), &NODE_ARGS).unwrap();
    let mut server = create(&node, &["--local-socket", "off"]);
    let run = start_ledger(&server);
    require_works(&node, &server, &run);
    require_all(&node, false);
    assert!(!server.error_log_tail(200).contains(NOTE));
    require_sound(&node, &server, run);
    server.shutdown().unwrap();
    *server.config_mut() = config(&node, &[]);
    server.start().unwrap();
    require_all(&node, true);
    // The server does not need the socket after a restart of the node.
    let run = start_ledger(&server);
    node.kill9().unwrap();
    node.set_further_args(&["--local-socket", "off"]);
    node.start().unwrap();
    require_works(&node, &server, &run);
    require_all(&node, false);
    assert!(node.status(VOLUME).unwrap()["local_socket"].is_null());
    node.set_further_args(&[]);
    node.crash_and_restart().unwrap();
    require_works(&node, &server, &run);
    require_all(&node, true);
    require_sound(&node, &server, run);
    server.shutdown().unwrap();
    // The end writes all pages.
    node.require_verified(VOLUME, 1).unwrap();
}

const STRANGER: u32 = 61_234;

redoubt_test_support::children!(squatter);

/// The child process of another user that has the name before the node.
fn squatter() {
    let name: String = child::argument(0);
    let listener = UnixListener::bind_addr(&UnixAddress::from_abstract_name(name).unwrap()).unwrap();
    println!("listens");
    for stream in listener.incoming() {
        let mut heard = Vec::new();
        // Until the client gives up.
        let _ = stream.unwrap().read_to_end(&mut heard);
        println!("visited, heard {} bytes", heard.len());
    }
}

struct Squatter(Child);

impl Drop for Squatter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_socket_of_another_user_gets_no_connection() {
    if !rustix::process::geteuid().is_root() {
        return redoubt_test_support::skip("a process of another user", "needs root");
    }
    let mut node = Node::create(&find_redoubt().unwrap(), &NODE_ARGS).unwrap();
    let name = local_name(node.address());
    node.kill9().unwrap();
    // Where another user may execute it.
    let copy = std::env::temp_dir().join(format!("redoubt-test-squatter-{}", std::process::id()));
    child::copy_program(&copy);
    let mut child = Command::new(&copy)
        .args([child::MARK, "squatter", &name])
        .uid(STRANGER)
        .current_dir("/")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut squatter = Squatter(child);
    let mut line = String::new();
    while !line.contains("listens") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut said, &mut line).unwrap() > 0, "it did not start");
    }
    node.start().unwrap();
    assert!(node.log_tail(50).contains("cannot listen on the local socket"), "{}", node.log_tail(50));
    let mut server = create(&node, &[]);
    let run = start_ledger(&server);
    require_works(&node, &server, &run);
    require_all(&node, false);
    require_sound(&node, &server, run);
    server.shutdown().unwrap();
    squatter.0.kill().unwrap();
    std::fs::remove_file(copy).unwrap();
    let mut visits = String::new();
    said.read_to_string(&mut visits).unwrap();
    let visits: Vec<_> = visits.lines().filter(|line| line.contains("visited")).collect();
    assert!(visits.len() >= 3 && visits.iter().all(|visit| visit.ends_with("heard 0 bytes")), "{visits:?}");
    // Once it is gone the node has it again.
    node.crash_and_restart().unwrap();
    server.start().unwrap();
    require_all(&node, true);
    server.shutdown().unwrap();
}

/// Number of the user of this name.
fn uid_of(name: &str) -> Option<u32> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd.lines().find(|line| line.starts_with(&format!("{name}:")))?;
    line.split(':').nth(2)?.parse().ok()
}

#[test]
fn a_server_of_another_user_is_let_in_if_the_operator_says_so() {
    let Some(uid) = uid_of("daemon").filter(|_| rustix::process::geteuid().is_root()) else {
        return redoubt_test_support::skip("a server of the user daemon", "needs root and that user");
    };
    let mut node = Node::create(&find_redoubt().unwrap(), &NODE_ARGS).unwrap();
    node.create_volume(VOLUME).unwrap();
    let mut server = Server::new(config(&node, &[]).innodb_arg("--user=daemon")).unwrap();
    std::fs::set_permissions(server.directory(), std::fs::Permissions::from_mode(0o755)).unwrap();
    for path in [server.directory().to_owned(), server.directory().join("tmp")] {
        chown(path, Some(uid), None).unwrap();
    }
    server.install_db().unwrap();
    let mut ledger = None;
    for (users, is_let_in) in [("daemon,nosuchuser", true), ("", false), ("daemon", true), ("nobody", false)]
    {
        let users = if users.is_empty() { vec![] } else { vec!["--local-users", users] };
        node.set_further_args(&users);
        node.crash_and_restart().unwrap();
        if ledger.is_none() {
            server.start().unwrap_or_else(|error| panic!("{error}\n{}", server.error_log_tail(30)));
            let status = format!("/proc/{}/status", server.process_id().unwrap());
            let status = std::fs::read_to_string(status).unwrap();
            assert!(status.contains(&format!("Uid:\t{uid}\t{uid}")), "{status}");
            ledger = Some(start_ledger(&server));
        }
        require_works(&node, &server, ledger.as_ref().unwrap());
        require_all(&node, is_let_in);
    }
    require_sound(&node, &server, ledger.unwrap());
    server.shutdown().unwrap();
}
