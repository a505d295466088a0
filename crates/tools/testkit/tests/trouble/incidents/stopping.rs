//! SIGTERM ends a node whatever has become of its network or its disk.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use redoubt_chaos::faults::Injector;
use redoubt_harness::node::Node;
use redoubt_workload::error::Error;
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::process::{Process, poll_until, run_to_end};

use super::{NODE_ARGS, PATIENCE, Setup, VOLUME};

const ADDRESS: &str = "10.78.0.1";

/// A network namespace with an interface that has [`ADDRESS`]; removed when dropped.
struct Namespace(String);

impl Namespace {
    fn create() -> Self {
        let namespace = Self(format!("redoubt-stopping-{}", std::process::id()));
        let name = namespace.0.as_str();
        ip(&["netns", "add", name]);
        ip(&["-n", name, "link", "set", "lo", "up"]);
        ip(&["-n", name, "link", "add", "veth0", "type", "veth", "peer", "name", "veth1"]);
        ip(&["-n", name, "address", "add", &format!("{ADDRESS}/24"), "dev", "veth0"]);
        ip(&["-n", name, "link", "set", "veth0", "up"]);
        namespace
    }

    /// Takes all of its network away.
    fn cut(&self) {
        ip(&["-n", &self.0, "link", "del", "veth0"]);
        ip(&["-n", &self.0, "link", "set", "lo", "down"]);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // When the test has failed already, this must not hide why.
        let _ = run_to_end(Command::new("ip").args(["netns", "del", &self.0]));
    }
}

fn ip(arguments: &[&str]) {
    run_to_end(Command::new("ip").args(arguments)).unwrap();
}

#[test]
fn a_node_whose_network_is_gone_ends_on_sigterm() {
    // SAFETY: geteuid takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return redoubt_test_support::skip("a node whose network is gone", "network namespaces need root");
    }
    let namespace = Namespace::create();
    let directory = tempfile::tempdir().unwrap();
    let log_path = directory.path().join("node.log");
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", &namespace.0])
        .arg(find_redoubt().unwrap())
        .arg("node")
        .arg("--data")
        .arg(directory.path().join("node"))
        .args(["--listen", &format!("{ADDRESS}:0"), "--allow-plain-text", "--status-listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log_path).unwrap());
    let mut node = Process::spawn("redoubt node", &mut command).unwrap();
    let mut lines = BufReader::new(node.child_mut().stdout.take().unwrap()).lines();
    let log = || std::fs::read_to_string(&log_path).unwrap();
    let address = lines
        .by_ref()
        .map(Result::unwrap)
        .find_map(|line| line.strip_prefix("listening on ").map(str::to_owned))
        .unwrap_or_else(|| panic!("it does not listen: {}", log()));
    // With a volume and its threads, and with a connection that stays silent for good.
    let redoubt = |arguments: &[&str]| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace.0]).arg(find_redoubt().unwrap()).args(arguments);
        run_to_end(&mut command).unwrap()
    };
    redoubt(&["volume", "create", "--node", &address, VOLUME]);
    namespace.cut();
    // With success, so not by `--stop-timeout`.
    let status = node.terminate(PATIENCE).unwrap_or_else(|error| panic!("{error}\n{}", log()));
    assert!(status.success() && !log().contains("stopping took longer"), "{status}\n{}", log());
}

#[test]
fn a_node_whose_disk_does_not_answer_says_what_it_waits_for_and_ends() {
    let directory = tempfile::Builder::new().prefix("rdtn-").tempdir().unwrap();
    let node = Node::in_directory(&find_redoubt().unwrap(), directory.path(), &NODE_ARGS).unwrap();
    let mut setup = Setup::on(node, Verify::All, &[]);
    setup.sql(&["CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=InnoDB"]);
    let injector = Injector::new(directory.path(), "redoubt").unwrap();
    setup.node.set_environment(injector.environment());
    setup.node.set_further_args(&["--stop-timeout", "1"]);
    setup.node.crash_and_restart().unwrap();
    // The checkpoint comes after pages were applied, from a thread of the volume.
    injector.set(1, "sync delay kind=file path=*/checkpoint* us=3600000000..3600000000").unwrap();
    setup.sql(&["INSERT INTO d.t VALUES (1)"]);
    poll_until("a sync that does not end", PATIENCE, || {
        Ok((!injector.counts().unwrap().is_empty()).then_some(()))
    })
    .unwrap();
    // The disk would answer after an hour: the node does not wait for it, but ends by itself.
    let refused = setup.node.stop().unwrap_err();
    assert!(matches!(refused, Error::Exited { .. }), "{refused}");
    let log = setup.node.log_tail(10);
    for part in ["stopping took longer than 1 s", "volume trouble", "apply-trouble"] {
        assert!(log.contains(part), "{part:?}: {log}");
    }

    // Nothing is lost by it.
    injector.clear().unwrap();
    setup.node.start().unwrap();
    assert_eq!(setup.server.query("SELECT COUNT(*) FROM d.t").unwrap(), [["1"]]);
    setup.server.shutdown().unwrap();
    setup.node.stop().unwrap();
}
