//! Memory of a node stays within its bound, whatever the redo looks like.

use super::client::{ControlClient, LogClient, PATIENCE};
use super::encoder::MtrWriter;
use super::protocol::Stream;
use super::running::{NodeProcess, Sizes};
use redoubt_wire::control::{Reply, Request};
use redoubt_wire::stream::{FileKind, StreamFrame};
use std::time::Instant;

/// The ring would hold all of the redo, and its index would take ten times as much.
const SIZES: Sizes = Sizes { ring: 64 << 20, batch: 16 << 20, interval_ms: 600_000 };
/// Bound for frames and index.
const MEMORY_BYTES: u64 = 64 << 20;
/// Other memory of a node: mostly the pages that are being applied.
const BESIDES_BYTES: u64 = 300 << 20;
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
    // The index takes many times the memory of a change.
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

/// Length of the plain file, and the address space of the node's process.
const LARGE_LEN_BYTES: u64 = 4 << 30;
const ADDRESS_SPACE_BYTES: u64 = 2 << 30;
/// Most bytes that a list reads if it does not read the file again.
const SMALL_READ_BYTES: u64 = 64 << 20;

fn limit_address_space(process_id: u32) {
    let limits =
        rustix::process::Rlimit { current: Some(ADDRESS_SPACE_BYTES), maximum: Some(ADDRESS_SPACE_BYTES) };
    let process = rustix::process::Pid::from_raw(process_id as i32);
    rustix::process::prlimit(process, rustix::process::Resource::As, limits).unwrap();
}

/// Bytes that the process has read with system calls.
fn read_bytes(process_id: u32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{process_id}/io")).unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// The large file's checksum, and how much was read for it.
fn list(node: &NodeProcess) -> (u32, u64) {
    let before = read_bytes(node.id());
    let mut control = ControlClient::connect(node.address).unwrap();
    let reply = control.ask(&Request::List { volume: "v".to_owned() }).unwrap();
    let Reply::Attached(list) = reply else { panic!("{reply:?}") };
    let entry = list.entries.iter().find(|entry| entry.path == "large.MYD").unwrap();
    assert_eq!(entry.len_bytes, LARGE_LEN_BYTES + 4);
    (entry.checksum.unwrap(), read_bytes(node.id()) - before)
}

/// Earlier nodes read each plain file into memory, at each start of a server.
#[test]
fn a_plain_file_longer_than_the_memory_is_read_once_and_in_pieces() {
    let directory = tempfile::tempdir().unwrap();
    let sizes = super::running::SMALL;
    let node = NodeProcess::start(directory.path(), sizes);
    limit_address_space(node.id());
    let mut control = ControlClient::connect(node.address).unwrap();
    control.create("v");
    let generation = control.attach("v").generation;
    let mut client = LogClient::connect(node.address, "v", generation, 1, 0).unwrap();
    let mut stream = Stream::new();
    client.send(&stream.begin(0)).unwrap();
    let path = b"large.MYD";
    for frame in [
        StreamFrame::Create { path, kind: FileKind::Plain, mode: 0o660 },
        StreamFrame::SetLen { path, len_bytes: LARGE_LEN_BYTES },
        StreamFrame::Write { path, offset_bytes: LARGE_LEN_BYTES, data: b"tail" },
    ] {
        client.send(&stream.frame(&frame)).unwrap();
    }
    assert!(client.wait_durable(stream.seq));
    let (checksum, first_read_bytes) = list(&node);
    assert!(first_read_bytes > LARGE_LEN_BYTES, "{first_read_bytes}");
    let again = list(&node);
    assert!(again.0 == checksum && again.1 < SMALL_READ_BYTES, "{again:?}");
    control.attach("v");
    // A tail has no more than the appended bytes.
    let request = Request::FetchTail {
        volume: "v".to_owned(),
        path: "large.MYD".to_owned(),
        from_bytes: LARGE_LEN_BYTES,
    };
    assert_eq!(control.file(&request).unwrap()[LARGE_LEN_BYTES as usize..], *b"tail");
    let peak_bytes = peak_bytes(node.id());
    assert!(peak_bytes < BESIDES_BYTES, "{} MiB in memory", peak_bytes >> 20);
    node.kill();
    let node = NodeProcess::start(directory.path(), sizes);
    let restarted = list(&node);
    assert!(restarted.0 == checksum && restarted.1 < SMALL_READ_BYTES, "{restarted:?}");
}
