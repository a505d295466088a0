//! What a node keeps in memory stays within its bound, whatever the redo looks like.

use super::client::{ControlClient, LogClient, PATIENCE};
use super::encoder::MtrWriter;
use super::protocol::Stream;
use super::running::{NodeProcess, Sizes};
use std::time::Instant;

/// The ring would hold all of the redo, and the index of it would take ten times as much.
const SIZES: Sizes = Sizes { ring: 64 << 20, batch: 16 << 20, interval_ms: 600_000 };
/// What frames and index may take.
const MEMORY_BYTES: u64 = 64 << 20;
/// What a node takes besides: mostly the pages that are being applied.
const BESIDES_BYTES: u64 = 200 << 20;
const PAGES: u32 = 4000;

/// The most that the process had in memory so far.
fn peak_bytes(process_id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process_id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

#[test]
fn short_changes_of_many_pages_take_no_more_than_the_bound() {
    let directory = tempfile::tempdir().unwrap();
    let node = NodeProcess::start_with_memory(directory.path(), SIZES, MEMORY_BYTES);
    let mut control = ControlClient::connect(node.address).unwrap();
    control.create("v");
    let generation = control.attach("v").generation;
    let mut client = LogClient::connect(node.address, "v", generation, 1, 0).unwrap();
    let mut stream = Stream::new();
    client.send(&stream.begin(0)).unwrap();
    // What the index takes for a change is many times the change.
    let mut change_count = 0;
    while stream.seq < SIZES.ring {
        let mut wire = Vec::new();
        for _ in 0..100 {
            let mut mtr = MtrWriter::new();
            for _ in 0..200 {
                mtr.write((5, 3 + change_count % PAGES), 200, b"x");
                change_count += 1;
            }
            wire.extend(stream.redo(&mtr));
        }
        client.send(&wire).unwrap();
    }
    assert!(client.wait_durable(stream.seq));
    let deadline = Instant::now() + PATIENCE;
    let waits = loop {
        let waits = control.status().counters["ring_full_waits"];
        if waits > 0 || Instant::now() > deadline {
            break waits;
        }
    };
    assert!(waits > 0, "the bound was never met");
    let peak_bytes = peak_bytes(node.id());
    println!("{change_count} changes, {} MiB in memory at most", peak_bytes >> 20);
    assert!(peak_bytes < MEMORY_BYTES + BESIDES_BYTES, "{} MiB in memory", peak_bytes >> 20);
}
