//! Bytes written per byte of redo: a page that many records of a batch touch is written once.

use super::client::{ControlClient, LogClient};
use super::protocol::Stream;
use super::running::{LocalNode, Sizes, options};
use std::collections::BTreeMap;

fn applied(control: &mut ControlClient, lsn: u64) -> BTreeMap<String, u64> {
    control.wait_applied(lsn).counters
}

#[test]
fn a_page_touched_by_a_thousand_records_of_a_batch_is_written_once() {
    let directory = tempfile::tempdir().unwrap();
    // One batch holds them all; it is closed by its age, which is longer than it takes to send them.
    let sizes = Sizes { ring: 64 << 20, batch: 32 << 20, interval_ms: 3000 };
    let node = LocalNode::open(&options(directory.path(), sizes));
    let mut control = ControlClient::connect(node.address).unwrap();
    control.create("v");
    let generation = control.attach("v").generation;
    let mut log = LogClient::connect(node.address, "v", generation, 1, 0).unwrap();
    let mut stream = Stream::new();
    log.send(&stream.begin(4)).unwrap();
    let before = applied(&mut control, stream.lsn.0);
    let mut frames = Vec::new();
    for n in 0..1000_u32 {
        frames.extend(stream.change(4, &n.to_be_bytes()));
    }
    let start_lsn = control.status().a_lsn;
    log.send(&frames).unwrap();
    let after = applied(&mut control, stream.lsn.0);
    let grown = |name: &str| after[name] - before[name];
    let tables = grown("tables_applied");
    assert!((1..=2).contains(&tables), "{tables} batches");
    // One batch unless the machine stood still between two of its frames.
    assert_eq!(grown("pages_applied"), tables);
    assert_eq!(grown("page_applied_bytes"), tables * 16_384);
    assert_eq!(grown("redo_bytes_applied"), stream.lsn.0 - start_lsn);
    drop((log, control));
    node.stop();
}

/// A node applies the backlog in its log at once, with one write for a page that is in all of its tables. It does not
/// wait for the last table to become old.
#[test]
fn a_backlog_is_written_once_however_many_tables_it_has() {
    const HOUR_MS: u64 = 3_600_000;
    let directory = tempfile::tempdir().unwrap();
    let nothing_applied = Sizes { ring: 64 << 20, batch: 64 << 20, interval_ms: HOUR_MS };
    let node = LocalNode::open(&options(directory.path(), nothing_applied));
    let mut control = ControlClient::connect(node.address).unwrap();
    control.create("v");
    let generation = control.attach("v").generation;
    let mut log = LogClient::connect(node.address, "v", generation, 1, 0).unwrap();
    let mut stream = Stream::new();
    log.send(&stream.begin(4)).unwrap();
    for n in 0..4000_u32 {
        log.send(&stream.change(3 + n % 4, &n.to_be_bytes().repeat(50))).unwrap();
    }
    assert!(log.wait_durable(stream.seq));
    assert!(control.status().a_lsn < stream.lsn.0);
    drop((log, control));
    node.stop();

    // Both less and more than a ring.
    for ring in [8 << 20, 256 << 10] {
        let copy = tempfile::tempdir().unwrap();
        copy_directory(directory.path(), copy.path());
        let sizes = Sizes { ring, batch: 32 << 10, interval_ms: HOUR_MS };
        let node = LocalNode::open(&options(copy.path(), sizes));
        let mut control = ControlClient::connect(node.address).unwrap();
        let counters = applied(&mut control, stream.lsn.0);
        assert!(counters["tables_applied"] > 20, "{counters:?}");
        // Page 0 and the four.
        assert_eq!(counters["pages_applied"], 5, "{counters:?}");
        drop(control);
        node.stop();
    }
}

fn copy_directory(from: &std::path::Path, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}
