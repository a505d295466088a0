//! Views: a volume as a data directory, for readers that take nothing over.

use super::client::ControlClient;
use super::export::{PAGE_BYTES, PAGES, filled, wait_until};
use super::protocol::Fixture;
use redoubt_redo::mariadb::log_file::CheckpointBlock;
use redoubt_wire::control::{Reply, Request, decode_data};
use redoubt_wire::stream::StreamFrame;
use redoubt_wire::view::{LIVE, ViewFile, ViewLog, ViewReply, ViewRequest};

fn about(about: ViewRequest) -> Request {
    Request::View { volume: "v".to_owned(), about }
}

fn begin(client: &mut ControlClient, moment: bool) -> u64 {
    match client.ask(&about(ViewRequest::Begin { moment })).unwrap() {
        Reply::View(ViewReply::Begun { number, .. }) => number,
        other => panic!("{other:?}"),
    }
}

fn stat(client: &mut ControlClient, view: u64, path: &str) -> Option<ViewFile> {
    match client.ask(&about(ViewRequest::Stat { view, path: path.to_owned() })).unwrap() {
        Reply::View(ViewReply::Stat { found }) => found,
        other => panic!("{other:?}"),
    }
}

/// The node's bytes near the start of a page of the table.
fn page_says(client: &mut ControlClient, view: u64, file: u32, page_no: u32) -> Vec<u8> {
    let offset = u64::from(page_no) * PAGE_BYTES as u64;
    let read = ViewRequest::Read { view, file, offset_bytes: offset, len_bytes: PAGE_BYTES as u32 };
    let Reply::FileFollows { .. } = client.ask(&about(read)).unwrap() else { panic!("no file") };
    let mut page = vec![0; PAGE_BYTES];
    for (at, bytes) in pieces(client) {
        page[(at - offset) as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    page[200..205].to_vec()
}

fn pieces(client: &mut ControlClient) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    loop {
        let (_, payload) = client.next().unwrap();
        let Some((offset, bytes)) = decode_data(&payload).unwrap() else { break };
        found.push((offset, bytes.to_vec()));
    }
    let reply = client.reply().unwrap();
    assert!(matches!(reply, Reply::Done), "{reply:?}");
    found
}

fn log(client: &mut ControlClient, from_lsn: Option<u64>) -> (ViewLog, Vec<u8>) {
    let log = match client.ask(&about(ViewRequest::Log { from_lsn })).unwrap() {
        Reply::View(ViewReply::Log(log)) => log,
        other => panic!("{other:?}"),
    };
    let mut redo = Vec::new();
    for (offset, bytes) in pieces(client) {
        assert_eq!(offset, redo.len() as u64);
        redo.extend(bytes);
    }
    assert_eq!(redo.len() as u64, log.end_lsn - log.start_lsn);
    (log, redo)
}

#[test]
fn a_moment_is_read_in_any_order_and_again_by_any_connection_until_it_ends() {
    let fixture = Fixture::new();
    let (mut client, mut stream) = filled(&fixture);
    let (mut keeper, mut other) = (fixture.control(), fixture.control());
    let view = begin(&mut keeper, true);
    let table = stat(&mut other, view, "d/t.ibd").unwrap().file;
    assert_eq!(page_says(&mut other, view, table, 20), b"first");
    let start = stream.seq;
    while stream.seq - start < 4 * super::running::SMALL.ring {
        for page_no in 3..3 + PAGES {
            client.send(&stream.change(page_no, &[0xee; 500])).unwrap();
        }
    }
    client
        .send(&stream.frame(&StreamFrame::Write { path: b"a.frm", offset_bytes: 0, data: b"newer" }))
        .unwrap();
    assert!(client.wait_durable(stream.seq));
    wait_until("everything is applied", || fixture.control().status().ring_used_bytes == 0);
    for round in 0..2 {
        for page_no in (3..3 + PAGES).rev() {
            assert_eq!(
                page_says(&mut other, view, table, page_no),
                b"first",
                "page {page_no}, round {round}"
            );
            assert_eq!(
                page_says(&mut other, LIVE, table, page_no),
                [0xee; 5],
                "page {page_no}, round {round}"
            );
        }
    }
    assert_eq!(stat(&mut other, view, "a.frm").unwrap().entry.len_bytes, 3);
    assert_eq!(stat(&mut other, LIVE, "a.frm").unwrap().entry.len_bytes, 5);
    // Only one can exist at a time, and it ends with the connection that began it.
    let second = fixture.control().ask(&about(ViewRequest::Begin { moment: true })).unwrap();
    assert!(matches!(&second, Reply::Failed { retry: true, .. }), "{second:?}");
    let block = CheckpointBlock { checkpoint_lsn: stream.lsn, end_lsn: stream.lsn }.build();
    client.send(&stream.frame(&StreamFrame::Checkpoint { slot: 0, block: &block })).unwrap();
    assert!(client.wait_durable(stream.seq));
    drop(keeper);
    let ended = ViewRequest::Stat { view, path: "a.frm".to_owned() };
    wait_until("the moment ends", || {
        matches!(other.ask(&about(ended.clone())).unwrap(), Reply::Failed { .. })
    });
    assert_ne!(begin(&mut other, true), view);
}

#[test]
fn a_file_that_is_gone_and_one_that_never_was_are_told_apart_from_a_fault() {
    let fixture = Fixture::new();
    let (mut client, mut stream) = filled(&fixture);
    let mut reader = fixture.control();
    assert_eq!(begin(&mut reader, false), LIVE);
    let file = stat(&mut reader, LIVE, "d/t.ibd").unwrap().file;
    assert_eq!(stat(&mut reader, LIVE, "d/nothing"), None);
    client.send(&stream.frame(&StreamFrame::Unlink { path: b"d/t.ibd" })).unwrap();
    assert!(client.wait_durable(stream.seq));
    assert_eq!(stat(&mut reader, LIVE, "d/t.ibd"), None);
    let read = ViewRequest::Read { view: LIVE, file, offset_bytes: 0, len_bytes: 1 };
    let gone = reader.ask(&about(read)).unwrap();
    assert!(matches!(gone, Reply::View(ViewReply::Gone)), "{gone:?}");
    let read = ViewRequest::Read { view: LIVE, file, offset_bytes: u64::MAX, len_bytes: 1 };
    let refused = reader.ask(&about(read)).unwrap();
    assert!(matches!(refused, Reply::Failed { .. }), "{refused:?}");
}

/// A follower gets every byte once, also redo that the node would have given up meanwhile.
#[test]
fn a_follower_gets_all_redo_in_order() {
    let fixture = Fixture::new();
    let (mut client, mut stream) = filled(&fixture);
    let (mut follower, mut late) = (fixture.control(), fixture.control());
    let (mut known, mut redo) = log(&mut follower, None);
    for _ in 0..3 {
        let start = stream.seq;
        while stream.seq - start < 2 * super::running::SMALL.ring {
            for page_no in 3..3 + PAGES {
                client.send(&stream.change(page_no, &[0xee; 500])).unwrap();
            }
        }
        // The server needs nothing before it: the node gives up everything that no follower needs.
        let block = CheckpointBlock { checkpoint_lsn: stream.lsn, end_lsn: stream.lsn }.build();
        client.send(&stream.frame(&StreamFrame::Checkpoint { slot: 0, block: &block })).unwrap();
        client.send(&stream.change(3, b"after the checkpoint")).unwrap();
        assert!(client.wait_durable(stream.seq));
        wait_until("everything is applied", || fixture.control().status().ring_used_bytes == 0);
        let (next, more) = log(&mut follower, Some(known.end_lsn));
        assert_eq!(next.start_lsn, known.end_lsn);
        assert!(more.len() as u64 > super::running::SMALL.ring / 2);
        redo.extend(more);
        known = next;
    }
    let (tail, again) = log(&mut late, None);
    assert_eq!(tail.end_lsn, known.end_lsn);
    assert!(!again.is_empty() && again.len() < 1000, "{} bytes since the checkpoint", again.len());
    assert!(redo.ends_with(&again));
    let jump = late.ask(&about(ViewRequest::Log { from_lsn: Some(known.end_lsn - 1) })).unwrap();
    assert!(matches!(&jump, Reply::Failed { message, .. } if message.contains("begin again")), "{jump:?}");
}
