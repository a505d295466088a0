//! A full disk under the node: it waits, reports why, and continues by itself when there is room; nothing is lost.

use super::client::{ControlClient, LogClient, PATIENCE, PageClient};
use super::encoder::MtrWriter;
use super::protocol::{Stream, changed};
use super::running::{LocalNode, Sizes, options};
use redoubt_pagestore::PageProtection;
use redoubt_redo::mariadb::CheckpointBlock;
use redoubt_test_support::{Mount, skip};
use redoubt_wire::control::{Reply, Request};
use redoubt_wire::notice::Notice;
use redoubt_wire::stream::StreamFrame;
use std::time::Instant;

/// Pages written in each round.
const PAGES: u32 = 250;

/// Of the file system.
const DISK_LEN_BYTES: u64 = 40 << 20;

#[test]
#[expect(clippy::too_many_lines, reason = "one history, told in order")]
fn the_node_waits_for_room_says_so_and_loses_nothing() {
    let disk = match Mount::small_disk(DISK_LEN_BYTES) {
        Ok(disk) => disk,
        Err(reason) => {
            skip("a small disk", reason);
            return;
        }
    };
    let data = disk.path().join("node");
    let sizes = Sizes { ring: 1 << 20, batch: 64 << 10, interval_ms: 50 };
    let mut node = LocalNode::open(&options(&data, sizes));
    let mut control = ControlClient::connect(node.address).unwrap();
    control.create("v");
    let generation = control.attach("v").generation;
    let mut client = LogClient::connect(node.address, "v", generation, 1, 0).unwrap();
    let mut stream = Stream::new();
    client.send(&stream.begin(0)).unwrap();
    assert!(client.wait_durable(stream.seq));

    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..3u32 {
        if round == 2 {
            // From here on the server's checkpoint keeps the log, which then needs new segments.
            let lsn = stream.lsn;
            let block = CheckpointBlock { checkpoint_lsn: lsn, end_lsn: lsn }.build();
            client.send(&stream.frame(&StreamFrame::Checkpoint { slot: 0, block: &block })).unwrap();
            assert!(client.wait_durable(stream.seq));
        }
        let filler = disk.fill().unwrap();
        // New pages, so that the page store must grow, and more redo than the ring and the spare segments take.
        let first = 3 + round * PAGES;
        let mut contents = vec![Vec::new(); PAGES as usize];
        let (waited, sent) = std::thread::scope(|scope| {
            let mut writer = client.stream.try_clone().unwrap();
            let stream = &mut stream;
            let contents = &mut contents;
            let random = &mut random;
            let sender = scope.spawn(move || {
                use std::io::Write;
                for page in 0..PAGES {
                    let mut mtr = MtrWriter::new();
                    mtr.init((5, first + page));
                    writer.write_all(&stream.redo(&mtr)).unwrap();
                }
                for _ in 0..6 {
                    for page in 0..PAGES {
                        let data: Vec<u8> = (0..random.usize(800..1600)).map(|_| random.u8(..)).collect();
                        writer.write_all(&stream.change(first + page, &data)).unwrap();
                        contents[page as usize] = data;
                    }
                }
                stream.seq
            });
            let waited =
                client.wait(|notice, _| matches!(notice, Notice::Waiting { reason } if !reason.is_empty()));
            // One thread of the node may just have found a little room while another still waits.
            let deadline = Instant::now() + PATIENCE;
            while control.status().state != "waiting" {
                assert!(Instant::now() < deadline, "round {round}: {:?}", control.status());
            }
            std::fs::remove_file(&filler).unwrap();
            (waited, sender.join().unwrap())
        });
        let Some(Notice::Waiting { reason }) = waited else { panic!("{waited:?}") };
        println!("round {round}: {reason}");
        assert!(reason.contains("space"), "{reason}");
        assert!(client.wait_durable(sent), "round {round}");
        let mut pages = PageClient::connect(node.address, "v", generation).unwrap();
        for (page, data) in (0u32..).zip(&contents) {
            assert_eq!(
                changed(&mut pages, sent, first + page, data.len()),
                *data,
                "page {page} in round {round}"
            );
        }
        drop((pages, client, control));
        node.stop();
        node = LocalNode::open(&options(&data, sizes));
        control = ControlClient::connect(node.address).unwrap();
        client = LogClient::connect(node.address, "v", generation, 1, sent).unwrap();
        assert_eq!(client.welcome.next_seq.0, sent);
    }
    drop((client, control));
    node.stop();
}

/// A full log buffer is the normal state of a node without room, for as long as that takes.
#[test]
fn a_full_log_buffer_keeps_nobody_from_connecting_and_fences_nobody() {
    let disk = match Mount::small_disk(DISK_LEN_BYTES) {
        Ok(disk) => disk,
        Err(reason) => {
            skip("a small disk", reason);
            return;
        }
    };
    let sizes = Sizes { ring: 1 << 20, batch: 64 << 10, interval_ms: 50 };
    let data = tempfile::tempdir().unwrap();
    let mut settings = options(data.path(), sizes);
    // The log has room enough.
    settings.pages.pages_place = Some(disk.path().to_owned());
    let node = LocalNode::open(&settings);
    let mut control = ControlClient::connect(node.address).unwrap();
    control.create("v");
    let generation = control.attach("v").generation;
    let mut client = LogClient::connect(node.address, "v", generation, 1, 0).unwrap();
    let mut stream = Stream::new();
    client.send(&stream.begin(0)).unwrap();
    assert!(client.wait_durable(stream.seq));

    let filler = disk.fill().unwrap();
    let (start, first_page) = (stream.seq, 3);
    let mut wire = Vec::new();
    for page in first_page..first_page + PAGES {
        let mut mtr = MtrWriter::new();
        mtr.init((5, page));
        wire.extend(stream.redo(&mtr));
    }
    while stream.seq - start < 4 << 20 {
        wire.extend(stream.change(first_page + (stream.seq % u64::from(PAGES)) as u32, &[7; 1200]));
    }
    // The first connection is left in the middle of a frame that finds no room.
    let mut writer = client.stream.try_clone().unwrap();
    let blocked = std::thread::spawn({
        let wire = wire.clone();
        move || {
            use std::io::Write;
            let _ = writer.write_all(&wire);
        }
    });
    let is_full = |reason: &str| reason.contains("log buffer is full");
    let full = client.wait(|notice, _| matches!(notice, Notice::Waiting { reason } if is_full(reason)));
    assert!(full.is_some(), "a server that finds no room is told so");
    // There is no room until the filler is removed, below: a node that waited for room would not answer here.
    let refused = control
        .ask(&Request::Attach {
            volume: "v".to_owned(),
            who: "another".to_owned(),
            server: None,
            seen_generation: None,
        })
        .unwrap();
    let Reply::Failed { message, retry: true } = refused else { panic!("{refused:?}") };
    assert!(message.contains("no server was fenced") && message.contains("space"), "{message}");
    assert_eq!(control.status().generation, generation);
    let mut again = LogClient::connect(node.address, "v", generation, 1, start).unwrap();
    assert!(filler.exists());
    blocked.join().unwrap();
    drop(client);
    let next = again.welcome.next_seq.0;
    assert!(next > start && next < stream.seq, "{next}");

    std::fs::remove_file(&filler).unwrap();
    again.send(&wire[(next - start) as usize..]).unwrap();
    assert!(again.wait_durable(stream.seq));
    let mut pages = PageClient::connect(node.address, "v", generation).unwrap();
    assert_eq!(changed(&mut pages, stream.seq, first_page, 1200), vec![7; 1200]);
    drop((pages, again, control));
    node.stop();
}

/// Pages are written to the journal only, so the log is kept for it until its own disk is full.
#[test]
fn log_that_is_kept_for_the_page_journal_makes_way_for_commits() {
    const LOG_DISK_BYTES: u64 = 4 << 20;
    let disk = match Mount::small_disk(LOG_DISK_BYTES) {
        Ok(disk) => disk,
        Err(reason) => {
            skip("a small disk", reason);
            return;
        }
    };
    let data = tempfile::tempdir().unwrap();
    let sizes = Sizes { ring: 1 << 20, batch: 64 << 10, interval_ms: 50 };
    let mut options = options(data.path(), sizes);
    options.log.place = Some(disk.path().to_owned());
    options.pages.protection = Some(PageProtection::Journal);
    options.pages.journal_len_bytes = 4 * LOG_DISK_BYTES;
    let node = LocalNode::open(&options);
    let mut control = ControlClient::connect(node.address).unwrap();
    control.create("v");
    let generation = control.attach("v").generation;
    let mut client = LogClient::connect(node.address, "v", generation, 1, 0).unwrap();
    let mut stream = Stream::new();
    client.send(&stream.begin(4)).unwrap();
    let mut newest = Vec::new();
    while stream.seq < 3 * LOG_DISK_BYTES {
        newest = vec![(stream.seq >> 12) as u8; 12_000];
        client.send(&stream.change(3, &newest)).unwrap();
        let block = CheckpointBlock { checkpoint_lsn: stream.lsn, end_lsn: stream.lsn }.build();
        client.send(&stream.frame(&StreamFrame::Checkpoint { slot: 0, block: &block })).unwrap();
        assert!(client.wait_durable(stream.seq), "at {} of a log of {LOG_DISK_BYTES}", stream.seq);
    }
    drop((client, control));
    node.stop();
    let node = LocalNode::open(&options);
    let mut control = ControlClient::connect(node.address).unwrap();
    let generation = control.attach("v").generation;
    let mut pages = PageClient::connect(node.address, "v", generation).unwrap();
    assert_eq!(changed(&mut pages, stream.seq, 3, newest.len()), newest);
    drop((pages, control));
    node.stop();
}
