//! Costs of a batch with many files, and the time to open a volume. Prints; judges nothing.
//!
//! `TABLES=100000 REDO_MIB=300 PLACE=/var/tmp cargo test --release -p redoubt-node --test stream figures -- --ignored
//! --nocapture`; `KEEP` names a directory that is to get a copy of the node's.

use super::client::ControlClient;
use super::encoder::MtrWriter;
use super::protocol::{Fixture, Stream};
use super::running::{LocalNode, Sizes, options};
use redoubt_redo::mariadb::log_file::CheckpointBlock;
use redoubt_wire::stream::{FileKind, StreamFrame};
use std::path::Path;
use std::time::{Duration, Instant};

/// Each frame is a batch.
const TINY: Sizes = Sizes { ring: 128 << 20, batch: 1, interval_ms: 600_000 };
const LARGE: Sizes = Sizes { batch: 16 << 20, ..TINY };
/// Everything is applied soon.
const QUICK: Sizes = Sizes { interval_ms: 200, ..LARGE };
const BATCHES: u32 = 90;

fn number(name: &str, or: u32) -> u32 {
    std::env::var(name).map_or(or, |value| value.parse().unwrap())
}

fn path(table: u32, ending: &str) -> String {
    format!("shop/a_table_with_a_name_of_some_length_{table:06}.{ending}")
}

/// Tables as a server makes them: pages, definition, FILE_CREATE.
fn tables(stream: &mut Stream, count: u32, mut send: impl FnMut(&[u8])) {
    let mut wire = stream.begin(3);
    wire.extend(stream.frame(&StreamFrame::Mkdir { path: b"shop", mode: 0o700 }));
    for table in 0..count {
        for (path, kind) in
            [(path(table, "ibd"), FileKind::Tablespace), (path(table, "frm"), FileKind::Plain)]
        {
            wire.extend(stream.frame(&StreamFrame::Create { path: path.as_bytes(), kind, mode: 0o660 }));
        }
        let mut mtr = MtrWriter::new();
        mtr.file(0x80, table + 100, format!("./{}", path(table, "ibd")).as_bytes());
        wire.extend(stream.redo(&mtr));
        if wire.len() > 1 << 20 {
            send(&std::mem::take(&mut wire));
        }
    }
    send(&wire);
}

fn wait_applied(fixture: &Fixture, stream: &Stream) {
    let mut control = fixture.control();
    let since = Instant::now();
    // Without a pause: the time is compared.
    while control.status().a_lsn < stream.lsn.0 {
        assert!(since.elapsed() < redoubt_test_support::wait::GUARD, "the changes are not applied");
        std::thread::yield_now();
    }
}

/// Time for batches of the frequent changes of a server.
fn batches(fixture: &Fixture, stream: &mut Stream) -> Duration {
    let mut log = fixture.log(2, 0);
    log.send(&stream.change(3, b"x")).unwrap();
    wait_applied(fixture, stream);
    let since = Instant::now();
    for batch in 0..BATCHES / 3 {
        let block = CheckpointBlock { checkpoint_lsn: stream.lsn, end_lsn: stream.lsn }.build();
        let mut wire = stream.frame(&StreamFrame::Checkpoint { slot: (batch % 2) as u8, block: &block });
        let (path, len_bytes) = (path(batch, "ibd"), u64::from(batch) << 14);
        wire.extend(stream.frame(&StreamFrame::SetLen { path: path.as_bytes(), len_bytes }));
        wire.extend(stream.change(3, b"y"));
        log.send(&wire).unwrap();
        wait_applied(fixture, stream);
    }
    since.elapsed() / BATCHES
}

fn write_redo(fixture: &Fixture, stream: &mut Stream, len_bytes: u64) {
    let mut log = fixture.log(3, 0);
    let end = stream.lsn.0 + len_bytes;
    let block = CheckpointBlock { checkpoint_lsn: stream.lsn, end_lsn: stream.lsn }.build();
    log.send(&stream.frame(&StreamFrame::Checkpoint { slot: 0, block: &block })).unwrap();
    while stream.lsn.0 < end {
        let mut mtr = MtrWriter::new();
        for page in 3..6 {
            mtr.write((5, page), 300, &[7; 4000]);
        }
        let wire: Vec<u8> = (0..40).flat_map(|_| stream.redo(&mtr)).collect();
        log.send(&wire).unwrap();
    }
    assert!(log.wait_durable(stream.seq));
}

fn open(directory: &Path, sizes: Sizes) -> LocalNode {
    let since = Instant::now();
    let node = LocalNode::open(&options(directory, sizes));
    let opened = since.elapsed();
    ControlClient::connect(node.address).unwrap().attach("v");
    println!("open after {opened:.2?}, attached after {:.2?}", since.elapsed());
    node
}

#[test]
#[ignore = "prints figures"]
fn figures() {
    let (count, redo_mib) = (number("TABLES", 12_000), number("REDO_MIB", 0));
    let parent = std::env::var("PLACE").unwrap_or_else(|_| "/dev/shm".to_owned());
    let mut fixture = Fixture::within(Path::new(&parent), QUICK);
    let mut stream = Stream::new();
    let mut log = fixture.log(1, 0);
    tables(&mut stream, count, |wire| log.send(wire).unwrap());
    assert!(log.wait_durable(stream.seq));
    drop(log);
    wait_applied(&fixture, &stream);
    fixture.node.take().unwrap().stop();
    fixture.node = Some(open(fixture.directory.path(), TINY));
    fixture.generation += 1;
    println!("{count} tables: {:.2?} a batch", batches(&fixture, &mut stream));
    fixture.node.take().unwrap().stop();
    fixture.node = Some(LocalNode::open(&options(fixture.directory.path(), LARGE)));
    write_redo(&fixture, &mut stream, u64::from(redo_mib) << 20);
    fixture.node.take().unwrap().stop();
    println!("{redo_mib} MiB of redo since the server's checkpoint:");
    for _ in 0..3 {
        open(fixture.directory.path(), LARGE).stop();
    }
    if let Ok(keep) = std::env::var("KEEP") {
        let copy =
            std::process::Command::new("cp").arg("-a").arg(fixture.directory.path()).arg(keep).status();
        assert!(copy.unwrap().success());
    }
}
