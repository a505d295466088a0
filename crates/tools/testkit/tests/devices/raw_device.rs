//! A node with log, page journal and pages on a raw block device, here a loop device: nothing acknowledged is lost by
//! kills, and the device is empty when the volume is deleted. Needs root; says SKIP elsewhere.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use redoubt_harness::node::Node;
use redoubt_test_support::{LoopDevice, skip};
use redoubt_workload::check::check_all;
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::ledger::{self, Entries, Options, Run};
use redoubt_workload::server::{Server, ServerConfig};

const VOLUME: &str = "raw";
const PATIENCE: Duration = Duration::from_secs(120);
const DEVICE_LEN_BYTES: u64 = 2 << 30;

fn redoubt(args: &[&str]) -> (bool, String) {
    let output = Command::new(find_redoubt().unwrap()).args(args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

fn used_bytes(device: &Path) -> u64 {
    let (shown, text) = redoubt(&["device", "show", "--json", device.to_str().unwrap()]);
    assert!(shown, "{text}");
    serde_json::from_str::<serde_json::Value>(&text).unwrap()["used_bytes"].as_u64().unwrap()
}

#[test]
fn a_volume_on_a_raw_device_survives_kills_and_leaves_nothing_behind() {
    let device = match LoopDevice::create(DEVICE_LEN_BYTES) {
        Ok(device) => device,
        Err(reason) => return skip("a raw device", reason),
    };
    let path = device.path().to_str().unwrap();
    let (formatted, text) = redoubt(&["device", "format", path]);
    assert!(!formatted && text.contains("--yes"), "{text}");
    let (shown, text) = redoubt(&["device", "show", path]);
    assert!(!shown && text.contains("not formatted"), "{text}");
    let (formatted, text) = redoubt(&["device", "format", "--yes", path]);
    assert!(formatted, "{text}");

    let args = ["--ring", "32MiB", "--batch", "1MiB", "--apply-interval", "1", "--journal", "8MiB"];
    let places = ["--log-path", path, "--journal-path", path, "--pages-path", path];
    let mut node = Node::create(&find_redoubt().unwrap(), &[&args[..], &places[..]].concat()).unwrap();
    node.create_volume(VOLUME).unwrap();
    let (shown, text) = redoubt(&["device", "show", path]);
    assert!(!shown && text.contains("in use"), "{text}");
    let mut config = ServerConfig::new(node.launcher(VOLUME, Verify::All));
    config.log_file_size_bytes = 16 << 20;
    config.buffer_pool_bytes = 32 << 20;
    let mut server = Server::create(config).unwrap_or_else(|error| panic!("{error}\n{}", node.log_tail(20)));
    let file = server.directory().join("ledger");
    for round in 0..3 {
        let run = Run::start(&server.socket(), &file, Options::default()).unwrap();
        run.wait_for_more(150, PATIENCE).unwrap();
        node.kill9().unwrap();
        if round > 0 {
            server.kill9().unwrap();
        }
        node.start().unwrap();
        if round > 0 {
            server.start().unwrap_or_else(|error| panic!("{error}\n{}", node.log_tail(20)));
        }
        run.wait_for_more(50, PATIENCE).unwrap_or_else(|error| panic!("{error}\n{}", node.log_tail(20)));
        run.stop().unwrap();
        let mut conn = server.connect().unwrap();
        let entries = Entries::read(&file).unwrap();
        ledger::verify(&mut conn, &entries).unwrap().require_sound().unwrap();
        check_all(&mut conn).unwrap();
    }
    let status = node.status(VOLUME).unwrap();
    let volume = &status["volumes"][0];
    for place in
        [&volume["log_device"]["directory"], &volume["page_store"]["pages"], &volume["page_store"]["journal"]]
    {
        assert!(place.as_str().unwrap().starts_with(path), "{place}");
    }
    server.shutdown().unwrap();
    node.require_verified(VOLUME, 1).unwrap();
    let address = node.address().to_string();
    node.redoubt(&["volume", "delete", "--node", &address, "--yes", VOLUME]).unwrap();
    node.stop().unwrap();
    assert_eq!(used_bytes(device.path()), 0);
}
