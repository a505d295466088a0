//! `redoubt run --no-takeover` after attaches that failed half-way: the volume is still this directory's.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::node::Node;
use redoubt_workload::launcher::find_redoubt;
use redoubt_workload::process::poll_until;

use super::{node, text};

/// Another server has the volume.
const TAKEN_OVER: i32 = 3;

/// Fate of a request to attach in a proxy.
#[derive(Clone)]
enum Attach {
    /// The node gets it, and the client gets no byte more.
    WithoutAnswer,
    /// Both connections end before the node gets it.
    Lost,
    /// The node gets it after this.
    After(Arc<dyn Fn() + Send + Sync>),
}

/// Passes connections on to a node, up to a request to attach.
fn proxy(node: SocketAddr, attach: Attach) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(node).unwrap();
            let (from_node, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            let of_client = attach.clone();
            std::thread::spawn(move || pass(client, server, Some(of_client)));
            std::thread::spawn(move || pass(from_node, to_client, None));
        }
    });
    address
}

/// Passes bytes on until the end, or until a request to attach.
fn pass(mut from: TcpStream, mut to: TcpStream, mut attach: Option<Attach>) {
    let (mut seen, mut bytes) = (Vec::new(), vec![0; 1 << 16]);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        seen.extend_from_slice(&bytes[..count]);
        if seen.windows(8).any(|window| window == b"\"attach\"") {
            match attach.take() {
                Some(Attach::WithoutAnswer) => {
                    let _ = from.shutdown(Shutdown::Write);
                }
                Some(Attach::Lost) => {
                    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                    return;
                }
                Some(Attach::After(first)) => first(),
                None => {}
            }
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
}

fn arguments<'a>(node: &'a str, datadir: &'a Path) -> Vec<&'a str> {
    let mut arguments = vec!["run", "--node", node, "--volume", "v", "--datadir", text(datadir)];
    arguments.extend(["--no-takeover", "--", "mariadbd", "--no-defaults", "--bootstrap", "--user=root"]);
    arguments
}

fn generation(node: &Node) -> u64 {
    node.status("v").unwrap()["volumes"][0]["generation"].as_u64().unwrap()
}

/// A node with a volume, and two data directories for it.
struct Setup {
    node: Node,
    redoubt: PathBuf,
    address: String,
    own: PathBuf,
    other: PathBuf,
    /// Holds both.
    _directory: tempfile::TempDir,
}

fn setup() -> Setup {
    let node = node();
    node.create_volume("v").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (own, other) = (directory.path().join("own"), directory.path().join("other"));
    let (redoubt, address) = (find_redoubt().unwrap(), node.address().to_string());
    Setup { node, redoubt, address, own, other, _directory: directory }
}

#[test]
fn failed_attaches_do_not_lock_their_directory_out() {
    let Setup { node, redoubt, address, own, other, .. } = &setup();
    let run = |datadir: &Path| Outcome::of(redoubt, arguments(address, datadir), PATIENCE).unwrap();
    run(own).require_success().unwrap();
    assert_eq!(generation(node), 1);

    let cut = proxy(node.address(), Attach::WithoutAnswer).to_string();
    let mut half = Command::new(redoubt);
    half.args(arguments(&cut, own)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut half = half.spawn().unwrap();
    poll_until("the attach without answer", PATIENCE, || Ok((generation(node) == 2).then_some(()))).unwrap();
    half.kill().unwrap();
    half.wait().unwrap();

    // The next one fails before it reaches the node.
    let lost = proxy(node.address(), Attach::Lost).to_string();
    let failed = Outcome::of(redoubt, arguments(&lost, own), PATIENCE).unwrap();
    failed.require_failure(super::FAILED, &["connection"]).unwrap();
    assert_eq!(generation(node), 2);

    run(own).require_success().unwrap();
    assert_eq!(generation(node), 3);
    // Another directory takes the volume; then the first is refused, whatever it had begun before.
    let taking: Vec<_> =
        arguments(address, other).into_iter().filter(|word| *word != "--no-takeover").collect();
    Outcome::of(redoubt, taking, PATIENCE).unwrap().require_success().unwrap();
    run(own).require_failure(TAKEN_OVER, &["--no-takeover", "attached by"]).unwrap();
}

#[test]
fn attach_is_refused_if_another_one_came_before_it() {
    let Setup { node, redoubt, address, own, other, .. } = &setup();
    let after_other = {
        let (redoubt, address, other) = (redoubt.clone(), address.clone(), other.clone());
        Attach::After(Arc::new(move || {
            let outcome = Outcome::of(&redoubt, arguments(&address, &other), PATIENCE).unwrap();
            outcome.require_success().unwrap();
        }))
    };
    let late = proxy(node.address(), after_other).to_string();
    let taking: Vec<_> = arguments(&late, own).into_iter().filter(|word| *word != "--no-takeover").collect();
    let refused = Outcome::of(redoubt, taking, PATIENCE).unwrap();
    refused
        .require_failure(super::FAILED, &["other", "since this command read", "No server was fenced"])
        .unwrap();
    assert_eq!(generation(node), 1);
}
