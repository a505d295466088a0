//! Parked volumes: their scrub, and how they are opened again.

use super::client::{ControlClient, PATIENCE};
use super::descriptors::wait_for;
use super::opening::hold;
use super::running::{LocalNode, SMALL, options};
use redoubt_node::{NodeOptions, ScrubOptions};
use redoubt_wire::control::{Request, ScrubStatus, VolumeStatus};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(1_000_000);

/// A node that parks every idle volume. No open volume begins a pass by itself.
fn node(directory: &Path, period: Option<Duration>) -> LocalNode {
    let scrub = ScrubOptions { period, first_delay: LONG, ..ScrubOptions::default() };
    LocalNode::open(&NodeOptions { scrub, idle_volumes: 0, ..options(directory, SMALL) })
}

fn is_parked(volume: &VolumeStatus) -> bool {
    volume.reason.starts_with("parked")
}

fn create(node: &LocalNode, names: &[&str]) -> ControlClient {
    let mut control = ControlClient::connect(node.address).unwrap();
    names.iter().for_each(|name| control.create(name));
    control
}

fn scrub_of(node: &LocalNode) -> Vec<(bool, ScrubStatus)> {
    let volumes = node.node.status().volumes;
    volumes.iter().map(|of| (is_parked(of), of.scrub.clone().unwrap_or_default())).collect()
}

#[test]
fn parked_volumes_are_scrubbed_in_turn() {
    let directory = tempfile::tempdir().unwrap();
    let node = node(directory.path(), Some(LONG));
    let _control = create(&node, &["a", "b", "c"]);
    let is_done = |all: &Vec<(bool, ScrubStatus)>| all.iter().all(|(parked, of)| *parked && of.has_completed);
    let found = wait_for(|| scrub_of(&node), is_done);
    assert!(found.len() == 3 && is_done(&found), "{found:?}");
}

#[test]
fn scrub_of_a_parked_volume_is_due_again() {
    let directory = tempfile::tempdir().unwrap();
    let node = node(directory.path(), Some(Duration::from_secs(2)));
    let _control = create(&node, &["a"]);
    let mut ages = vec![0];
    // The age falls when a pass is complete.
    let falls = |ages: &Vec<u64>| ages.windows(2).filter(|pair| pair[1] < pair[0]).count() >= 2;
    let mut note = || {
        ages.extend(scrub_of(&node).first().filter(|(parked, _)| *parked).map(|(_, of)| of.age_s));
        ages.dedup();
        ages.clone()
    };
    let ages = wait_for(&mut note, falls);
    assert!(falls(&ages), "{ages:?}");
}

#[test]
fn time_of_a_parked_volume_counts_for_its_scrub() {
    let directory = tempfile::tempdir().unwrap();
    let running = node(directory.path(), Some(LONG));
    let mut control = create(&running, &["a"]);
    let of = |node: &LocalNode| scrub_of(node).remove(0);
    let is_older = |age_s: u64| {
        move |(parked, of): &(bool, ScrubStatus)| *parked && of.has_completed && of.age_s >= age_s
    };
    let (parked, scrub) = wait_for(|| of(&running), is_older(2));
    assert!(parked && scrub.age_s >= 2, "{scrub:?}");
    // It is opened, and parked again.
    control.ask(&Request::List { volume: "a".to_owned() }).unwrap();
    let (_, opened) = of(&running);
    assert!(opened.age_s >= scrub.age_s || opened == ScrubStatus::default(), "{opened:?}");
    let (_, again) = wait_for(|| of(&running), is_older(scrub.age_s));
    assert!(again.age_s >= scrub.age_s, "{again:?}");
    drop(control);
    running.stop();
    let running = node(directory.path(), Some(LONG));
    let (_, restarted) = wait_for(|| of(&running), is_older(scrub.age_s));
    assert!(restarted.age_s >= scrub.age_s, "{restarted:?}");
}

#[test]
fn request_for_a_parked_volume_does_not_wait_for_its_disk() {
    let directory = tempfile::tempdir().unwrap();
    let node = node(directory.path(), None);
    let mut control = create(&node, &["v"]);
    let status = wait_for(|| node.node.status().volumes, |all| all.iter().all(is_parked));
    assert!(status.iter().all(is_parked), "{status:?}");
    let held = hold(directory.path());
    let (answered, answer) = mpsc::channel();
    let of = std::sync::Arc::clone(&node.node);
    let reading = std::thread::spawn(move || answered.send(of.reader("v", false).err()));
    let answer = answer.recv_timeout(PATIENCE);
    drop(held);
    reading.join().unwrap().unwrap();
    let error = answer.expect("the request waits for the disk").unwrap();
    assert!(error.to_string().contains("still being opened"), "{error}");
    assert_eq!(control.attach("v").generation, 1);
}
