//! Exports: one moment of the volume, read while the volume continues.

use super::client::{ControlClient, PATIENCE, PageClient};
use super::protocol::{Fixture, Stream};
use redoubt_wire::control::{Reply, Request};
use redoubt_wire::stream::{FileKind, StreamFrame};
use std::time::Instant;

pub const PAGE_BYTES: usize = 16_384;
pub const PAGES: u32 = 40;

fn begin_export(fixture: &Fixture) -> ControlClient {
    let mut export = fixture.control();
    let reply = export.ask(&Request::ExportBegin { volume: "v".to_owned() }).unwrap();
    assert!(matches!(reply, Reply::Attached(_)), "{reply:?}");
    export
}

fn exported(export: &mut ControlClient, path: &str) -> Vec<u8> {
    export
        .file(&Request::ExportFile { volume: "v".to_owned(), path: path.to_owned(), with_damaged: false })
        .unwrap()
}

fn fetched(fixture: &Fixture, path: &str) -> Vec<u8> {
    fixture.control().file(&Request::Fetch { volume: "v".to_owned(), path: path.to_owned() }).unwrap()
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
    }
}

/// Two plain files, and a tablespace with `first` in its pages.
pub fn filled(fixture: &Fixture) -> (super::client::LogClient, Stream) {
    let mut stream = Stream::new();
    let mut client = fixture.log(1, 0);
    client.send(&stream.begin(PAGES)).unwrap();
    for page_no in 3..3 + PAGES {
        client.send(&stream.change(page_no, b"first")).unwrap();
    }
    let len_bytes = PAGE_BYTES as u64 * u64::from(PAGES + 3);
    client.send(&stream.frame(&StreamFrame::SetLen { path: b"d/t.ibd", len_bytes })).unwrap();
    for path in [&b"a.frm"[..], b"b.frm"] {
        let create = StreamFrame::Create { path, kind: FileKind::Plain, mode: 0o660 };
        client.send(&stream.frame(&create)).unwrap();
        client.send(&stream.frame(&StreamFrame::Write { path, offset_bytes: 0, data: b"old" })).unwrap();
    }
    assert!(client.wait_durable(stream.seq));
    (client, stream)
}

#[test]
fn an_export_is_the_moment_it_began_and_holds_nothing() {
    let fixture = Fixture::new();
    let (mut client, mut stream) = filled(&fixture);
    let mut export = begin_export(&fixture);
    let refused =
        fixture.control().ask(&Request::VolumeDelete { volume: "v".to_owned(), force: false }).unwrap();
    assert!(matches!(&refused, Reply::Failed { message, .. } if message.contains("in use")), "{refused:?}");

    // Several times the length of the log buffer: it must be applied meanwhile, plain files included.
    let start = stream.seq;
    while stream.seq - start < 4 * super::running::SMALL.ring {
        for page_no in 3..3 + PAGES {
            client.send(&stream.change(page_no, &[0xee; 500])).unwrap();
        }
    }
    client
        .send(&stream.frame(&StreamFrame::Write { path: b"a.frm", offset_bytes: 0, data: b"new!" }))
        .unwrap();
    client.send(&stream.frame(&StreamFrame::Unlink { path: b"b.frm" })).unwrap();
    client.send(&stream.frame(&StreamFrame::Unlink { path: b"d/t.ibd" })).unwrap();
    assert!(client.wait_durable(stream.seq));
    wait_until("a plain file is changed while the export is open", || fetched(&fixture, "a.frm") == b"new!");
    wait_until("everything is applied while the export is open", || {
        let status = fixture.control().status();
        status.ring_used_bytes == 0 && status.state == "exporting"
    });
    let applied = fixture.control().status().counters["pages_applied"];
    assert!(applied > 2 * u64::from(PAGES), "{applied}");

    for path in ["a.frm", "b.frm"] {
        assert_eq!(exported(&mut export, path), b"old", "{path}");
    }
    let table = exported(&mut export, "d/t.ibd");
    for page_no in 3..3 + PAGES as usize {
        let data = &table[page_no * PAGE_BYTES..][200..205];
        assert_eq!(data, b"first", "page {page_no}");
    }
    let pages = || {
        let directory = fixture.directory.path().join("volumes/v/pages");
        std::fs::read_dir(directory).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().ends_with(".pages")
        })
    };
    let during = pages().count();
    drop(export);
    wait_until("the dropped tablespace goes away with the export", || {
        pages().count() < during || during == 0
    });
}

#[test]
fn a_server_takes_over_while_an_export_is_under_way() {
    let fixture = Fixture::new();
    let (mut client, mut stream) = filled(&fixture);
    let mut export = begin_export(&fixture);
    client
        .send(&stream.frame(&StreamFrame::Write { path: b"a.frm", offset_bytes: 0, data: b"new!" }))
        .unwrap();
    client.send(&stream.change(3, b"later")).unwrap();
    assert!(client.wait_durable(stream.seq));
    drop(client);
    // The export is open until this test drops it, and is read from below. Attaching does not wait for its end.
    let attachment = fixture.control().attach("v");
    assert_eq!(attachment.generation, fixture.generation + 1);
    let address = fixture.address();
    let mut pages = PageClient::connect(address, "v", attachment.generation).unwrap();
    assert_eq!(super::protocol::changed(&mut pages, stream.seq, 3, 5), b"later");
    assert_eq!(fetched(&fixture, "a.frm"), b"new!");
    // And the export continues.
    assert_eq!(exported(&mut export, "a.frm"), b"old");
    assert_eq!(exported(&mut export, "d/t.ibd")[3 * PAGE_BYTES..][200..205], *b"first");
}

#[test]
fn one_export_at_a_time() {
    let fixture = Fixture::new();
    let _filled = filled(&fixture);
    let export = begin_export(&fixture);
    let second = fixture.control().ask(&Request::ExportBegin { volume: "v".to_owned() }).unwrap();
    assert!(
        matches!(&second, Reply::Failed { retry: true, message, .. } if message.contains("exported already")),
        "{second:?}"
    );
    drop(export);
    wait_until("the export ends with its connection", || {
        let again = fixture.control().ask(&Request::ExportBegin { volume: "v".to_owned() }).unwrap();
        matches!(again, Reply::Attached(_))
    });
}
