//! Plain files that the node has lost: nothing is served or listed as if they were empty.

use super::client::ControlClient;
use super::export::wait_until;
use super::frozen::{export_file, require_refused};
use super::quarantine::{OTHER_PAGE, Running, start};
use super::rescue::{Prepared, prepare};
use super::running::LocalNode;
use super::stored_files::{exported, plain_file};
use redoubt_pagestore::PageProtection;
use redoubt_wire::control::{Reply, Request};
use redoubt_wire::stream::{FileKind, StreamFrame};
use redoubt_wire::view::{LIVE, ViewReply, ViewRequest};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const PATH: &str = "a.frm";

fn write(prepared: &mut Prepared, running: &mut Running, frames: &[StreamFrame<'_>]) {
    let stream = &mut prepared.stream;
    let mut wire: Vec<u8> = frames.iter().flat_map(|frame| stream.frame(frame)).collect();
    // For a batch to be applied.
    wire.extend(stream.change(OTHER_PAGE, b"more"));
    running.send(&prepared.stream, &wire);
    running.control.wait_applied(prepared.stream.lsn.0);
}

/// A stopped node that has lost the contents of a plain file, and their location.
fn prepare_lost() -> (Prepared, PathBuf) {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let mut running = start(&mut prepared, 11);
    let path = PATH.as_bytes();
    let frames = [
        StreamFrame::Create { path, kind: FileKind::Plain, mode: 0o660 },
        StreamFrame::Write { path, offset_bytes: 0, data: b"content" },
    ];
    write(&mut prepared, &mut running, &frames);
    running.stop();
    let file = plain_file(&prepared, b"content");
    std::fs::remove_file(&file).unwrap();
    (prepared, file)
}

fn list(control: &mut ControlClient) -> Reply {
    control.ask(&Request::List { volume: "v".to_owned() }).unwrap()
}

fn restored(file: &Path) -> PathBuf {
    file.with_extension("restored")
}

/// The length in the list.
fn listed_len(reply: &Reply) -> u64 {
    let Reply::Attached(attachment) = reply else { panic!("{reply:?}") };
    attachment.entries.iter().find(|entry| entry.path == PATH).expect("the file").len_bytes
}

#[test]
fn lost_plain_file_is_not_served_as_an_empty_one() {
    let (mut prepared, path) = prepare_lost();
    let number = u32::from_str_radix(path.file_stem().unwrap().to_str().unwrap(), 16).unwrap();
    let mut running = start(&mut prepared, 12);
    running.wait_quarantined(1);
    let control = &mut running.control;
    let fetch = control.ask(&Request::Fetch { volume: "v".to_owned(), path: PATH.to_owned() }).unwrap();
    require_refused(&fetch, &["missing"]);
    let mut view = |about| control.ask(&Request::View { volume: "v".to_owned(), about }).unwrap();
    let begun = view(ViewRequest::Begin { moment: true });
    let Reply::View(ViewReply::Begun { number: moment, .. }) = begun else { panic!("{begun:?}") };
    // It has no length, and so no bytes that could be refused.
    for of in [LIVE, moment] {
        require_refused(&view(ViewRequest::Stat { view: of, path: PATH.to_owned() }), &["missing"]);
        let read = ViewRequest::Read { view: of, file: number, offset_bytes: 0, len_bytes: 7 };
        require_refused(&view(read), &["missing"]);
    }
    let status = running.control.status();
    let copy = restored(&path).display().to_string();
    assert_eq!(status.quarantine[0].restore_from.as_deref(), Some(copy.as_str()), "{status:?}");
    // With a hole.
    let frame = StreamFrame::Write { path: PATH.as_bytes(), offset_bytes: 3, data: b"tail" };
    write(&mut prepared, &mut running, &[frame]);
    let stat = ViewRequest::Stat { view: LIVE, path: PATH.to_owned() };
    let reply = running.control.ask(&Request::View { volume: "v".to_owned(), about: stat }).unwrap();
    require_refused(&reply, &["missing"]);
    running.stop();
}

#[test]
fn server_does_not_start_over_a_lost_plain_file() {
    for content in [&b"content of a copy"[..], b""] {
        let (mut prepared, file) = prepare_lost();
        let mut running = start(&mut prepared, 12);
        running.wait_quarantined(1);
        let copy = restored(&file);
        require_refused(&list(&mut running.control), &[PATH, &copy.display().to_string(), "No server"]);
        std::fs::write(&copy, content).unwrap();
        let written_at = |age: Duration| {
            let file = std::fs::File::options().write(true).open(&copy).unwrap();
            file.set_modified(SystemTime::now().checked_sub(age).unwrap()).unwrap();
        };
        written_at(Duration::from_secs(3600));
        // The server that is connected may be writing the file.
        require_refused(&list(&mut running.control), &[PATH]);
        assert!(copy.exists());
        let Running { node, mut control, log, .. } = running;
        drop(log);
        // An operator's `cp` may still be writing it.
        let is_refused =
            |reply| matches!(&reply, Reply::Failed { message, .. } if message.contains("less than 10 s ago"));
        wait_until("the fresh copy is refused", || {
            written_at(Duration::ZERO);
            is_refused(list(&mut control))
        });
        assert!(copy.exists());
        written_at(Duration::from_secs(3600));
        wait_until("the copy is taken", || matches!(list(&mut control), Reply::Attached(_)));
        assert_eq!(listed_len(&list(&mut control)), content.len() as u64);
        assert_eq!((std::fs::read(&file).unwrap(), copy.exists()), (content.to_vec(), false));
        drop(control);
        node.stop();
        let node = LocalNode::open(&prepared.options);
        let mut control = ControlClient::connect(node.address).unwrap();
        assert_eq!(listed_len(&list(&mut control)), content.len() as u64);
        assert_eq!(control.status().quarantined, 0);
        let (sent, reply) = exported(&mut control, PATH, true);
        assert_eq!((&sent[..], format!("{reply:?}").as_str()), (content, "Done"));
        drop(control);
        node.stop();
    }
}

#[test]
fn loss_that_ends_during_an_export_is_one_of_the_export() {
    let (mut prepared, _) = prepare_lost();
    let mut running = start(&mut prepared, 12);
    running.wait_quarantined(1);
    let mut export = ControlClient::connect(running.node.address).unwrap();
    let held = export.ask(&Request::ExportBegin { volume: "v".to_owned() }).unwrap();
    assert!(matches!(held, Reply::Attached(_)), "{held:?}");
    let emptied = StreamFrame::SetLen { path: PATH.as_bytes(), len_bytes: 0 };
    write(&mut prepared, &mut running, &[emptied]);
    running.wait_quarantined(0);
    require_refused(&export.ask(&export_file(PATH, false)).unwrap(), &["missing"]);
    let (_, reply) = export.file_and_reply(&export_file(PATH, true)).unwrap();
    assert!(matches!(&reply, Reply::Damaged { pages: 1, .. }), "{reply:?}");
    drop(export);
    // A later one has the empty file.
    wait_until("the export has ended", || running.control.status().state != "exporting");
    let (file, reply) = exported(&mut running.control, PATH, true);
    assert_eq!((file.len(), format!("{reply:?}").as_str()), (0, "Done"));
    running.stop();
}
