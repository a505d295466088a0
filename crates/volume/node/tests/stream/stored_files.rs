//! Files of the node that are missing or cut: they are named, and everything else works.

use super::client::ControlClient;
use super::encoder::MtrWriter;
use super::protocol::changed;
use super::quarantine::{OTHER_PAGE, own_file, start};
use super::rescue::{PAGE_LEN, PAGE_NO, Prepared, prepare};
use super::running::LocalNode;
use redoubt_pagestore::PageProtection;
use redoubt_wire::control::{Reply, Request};
use redoubt_wire::stream::{FileKind, StreamFrame, SystemFile};
use std::path::PathBuf;

/// The final reply to a request for a file, or the refusal.
pub fn exported(control: &mut ControlClient, path: &str, with_damaged: bool) -> (Vec<u8>, Reply) {
    let held = control.ask(&Request::ExportBegin { volume: "v".to_owned() }).unwrap();
    assert!(matches!(held, Reply::Attached(_)), "{held:?}");
    let request = Request::ExportFile { volume: "v".to_owned(), path: path.to_owned(), with_damaged };
    let result = if with_damaged {
        control.file_and_reply(&request).unwrap()
    } else {
        match control.ask(&request).unwrap() {
            refused @ Reply::Failed { .. } => (Vec::new(), refused),
            other => panic!("{other:?}"),
        }
    };
    let ended = control.ask(&Request::ExportEnd { volume: "v".to_owned() }).unwrap();
    assert!(matches!(ended, Reply::Done), "{ended:?}");
    result
}

#[test]
fn missing_page_file_is_set_aside_as_a_whole() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    std::fs::remove_file(prepared.file()).unwrap();
    for session in [11, 12] {
        let mut running = start(&mut prepared, session);
        let status = running.wait_quarantined(1);
        let entry = &status.quarantine[0];
        assert_eq!((entry.file.as_str(), entry.page_no), ("d/t.ibd", None), "{entry:?}");
        assert!(entry.reason.contains("missing"), "{entry:?}");
        let wire = prepared.stream.change(OTHER_PAGE, b"lost");
        running.send(&prepared.stream, &wire);
        running.control.wait_applied(prepared.stream.lsn.0);
        let refusal = running.refusal(prepared.stream.seq, OTHER_PAGE).unwrap();
        assert!(refusal.contains("quarantine"), "{refusal}");
        let (_, reply) = exported(&mut running.control, "d/t.ibd", true);
        assert!(matches!(&reply, Reply::Damaged { pages, .. } if *pages > 1), "{reply:?}");
        running.stop();
    }
}

#[test]
fn cut_page_file_has_its_missing_pages_set_aside() {
    let mut prepared = prepare(PageProtection::Atomic, 200);
    let file = std::fs::File::options().write(true).open(prepared.file()).unwrap();
    file.set_len(u64::from(OTHER_PAGE) * PAGE_LEN as u64).unwrap();
    for session in [11, 12] {
        let mut running = start(&mut prepared, session);
        let status = running.wait_quarantined(2);
        let pages: Vec<_> =
            status.quarantine.iter().map(|entry| (entry.file.as_str(), entry.page_no)).collect();
        assert_eq!(pages, [("d/t.ibd", Some(OTHER_PAGE)), ("d/t.ibd", Some(OTHER_PAGE + 1))]);
        // Also of the state in which they were found.
        let (_, reply) = exported(&mut running.control, "d/t.ibd", true);
        assert!(matches!(&reply, Reply::Damaged { pages: 2, .. }), "{reply:?}");
        // After them, so that the file has a hole at the second start.
        let wire = prepared.stream.change(OTHER_PAGE + 2, b"kept");
        running.send(&prepared.stream, &wire);
        running.control.wait_applied(prepared.stream.lsn.0);
        for page_no in [OTHER_PAGE, OTHER_PAGE + 1] {
            let refusal = running.refusal(prepared.stream.seq, page_no).unwrap();
            assert!(refusal.contains("quarantine") && refusal.contains("bytes"), "{refusal}");
        }
        assert_eq!(changed(&mut running.pages(), prepared.stream.seq, OTHER_PAGE + 2, 4), b"kept");
        let (_, reply) = exported(&mut running.control, "d/t.ibd", true);
        assert!(matches!(&reply, Reply::Damaged { pages: 2, .. }), "{reply:?}");
        running.stop();
    }
}

#[test]
fn pages_of_a_short_file_are_back_when_it_is_put_back() {
    let mut prepared = prepare(PageProtection::Atomic, 200);
    // Ends the log of the server before.
    start(&mut prepared, 11).stop();
    assert_eq!(quarantined_at_start(&prepared), 0);
    let whole = std::fs::read(prepared.file()).unwrap();
    std::fs::write(prepared.file(), &whole[..3 * PAGE_LEN]).unwrap();
    assert_eq!(quarantined_at_start(&prepared), 4);
    // As long as before, but with holes.
    let file = std::fs::File::options().write(true).open(prepared.file()).unwrap();
    file.set_len(whole.len() as u64).unwrap();
    assert_eq!(quarantined_at_start(&prepared), 4);
    std::fs::write(prepared.file(), &whole).unwrap();
    assert_eq!(quarantined_at_start(&prepared), 0);
}

/// Opens the volume without a server, so that its log gets no frame. Returns how much is set aside when all is applied.
pub fn quarantined_at_start(prepared: &Prepared) -> u64 {
    let node = LocalNode::open(&prepared.options);
    let mut control = ControlClient::connect(node.address).unwrap();
    let held = control.ask(&Request::ExportBegin { volume: "v".to_owned() }).unwrap();
    assert!(matches!(held, Reply::Attached(_)), "{held:?}");
    let ended = control.ask(&Request::ExportEnd { volume: "v".to_owned() }).unwrap();
    assert!(matches!(ended, Reply::Done), "{ended:?}");
    let quarantined = control.status().quarantined;
    drop(control);
    node.stop();
    quarantined
}

#[test]
fn page_file_put_back_counts_until_changes_were_left_out() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    // Ends the log of the server before.
    let running = start(&mut prepared, 11);
    running.stop();
    assert_eq!(quarantined_at_start(&prepared), 0);
    let file = prepared.file();
    let away = prepared.directory.path().join("away");
    std::fs::rename(&file, &away).unwrap();
    // The second start finds the entry.
    for _ in 0..2 {
        assert_eq!(quarantined_at_start(&prepared), 1);
    }
    std::fs::rename(&away, &file).unwrap();
    assert_eq!(quarantined_at_start(&prepared), 0);
    assert_eq!(own_file(&prepared, "quarantine"), None);

    std::fs::rename(&file, &away).unwrap();
    let mut running = start(&mut prepared, 12);
    running.wait_quarantined(1);
    let wire = prepared.stream.change(PAGE_NO, b"lost");
    running.send(&prepared.stream, &wire);
    running.control.wait_applied(prepared.stream.lsn.0);
    running.stop();
    std::fs::rename(&away, &file).unwrap();
    let mut running = start(&mut prepared, 13);
    running.wait_quarantined(1);
    running.stop();
}

pub fn plain_file(prepared: &Prepared, content: &[u8]) -> PathBuf {
    let plain = prepared.directory.path().join("volumes/v/plain");
    let mut paths = std::fs::read_dir(plain).unwrap().map(|entry| entry.unwrap().path());
    paths.find(|path| std::fs::read(path).unwrap() == content).expect("the file")
}

#[test]
fn missing_plain_file_is_lost_until_it_is_emptied() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let mut running = start(&mut prepared, 11);
    for (path, data) in [(b"a.frm", b"one"), (b"b.frm", b"two")] {
        let stream = &mut prepared.stream;
        let mut wire = stream.frame(&StreamFrame::Create { path, kind: FileKind::Plain, mode: 0o660 });
        wire.extend(stream.frame(&StreamFrame::Write { path, offset_bytes: 0, data }));
        // For a batch to be applied.
        wire.extend(stream.change(OTHER_PAGE, b"more"));
        running.send(&prepared.stream, &wire);
    }
    running.control.wait_applied(prepared.stream.lsn.0);
    running.stop();
    std::fs::remove_file(plain_file(&prepared, b"one")).unwrap();
    for session in [12, 13] {
        let mut running = start(&mut prepared, session);
        let status = running.wait_quarantined(1);
        assert_eq!(status.quarantine[0].file, "a.frm", "{:?}", status.quarantine);
        let (_, refused) = exported(&mut running.control, "a.frm", false);
        let is_named = |message: &str| message.contains("missing");
        assert!(matches!(&refused, Reply::Failed { message, .. } if is_named(message)), "{refused:?}");
        let (_, reply) = exported(&mut running.control, "a.frm", true);
        assert!(matches!(&reply, Reply::Damaged { pages: 1, .. }), "{reply:?}");
        let (file, reply) = exported(&mut running.control, "b.frm", true);
        assert_eq!((&file[..], format!("{reply:?}").as_str()), (&b"two"[..], "Done"));
        // The file is there again, with a hole.
        let write = StreamFrame::Write { path: b"a.frm", offset_bytes: 3, data: b"more" };
        let wire = [prepared.stream.frame(&write), prepared.stream.change(OTHER_PAGE, b"more")].concat();
        running.send(&prepared.stream, &wire);
        running.control.wait_applied(prepared.stream.lsn.0);
        running.stop();
    }
    for session in [14, 15] {
        let mut running = start(&mut prepared, session);
        if session == 14 {
            let emptied = StreamFrame::SetLen { path: b"a.frm", len_bytes: 0 };
            let wire =
                [prepared.stream.frame(&emptied), prepared.stream.change(OTHER_PAGE, b"more")].concat();
            running.send(&prepared.stream, &wire);
        }
        running.wait_quarantined(0);
        let (_, reply) = exported(&mut running.control, "a.frm", true);
        assert!(matches!(reply, Reply::Done), "{reply:?}");
        running.stop();
    }
}

#[test]
fn page_past_the_end_of_a_cut_file_leaves_the_quarantine() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let mut running = start(&mut prepared, 11);
    let path = b"ibdata1";
    let set_len = |pages: u64| StreamFrame::SetLen { path, len_bytes: pages * PAGE_LEN as u64 };
    let stream = &mut prepared.stream;
    let files = vec![SystemFile { path: path.to_vec(), len_bytes: 0 }];
    let mut wire = stream.frame(&StreamFrame::SystemFiles(files));
    wire.extend(stream.frame(&StreamFrame::Create { path, kind: FileKind::Tablespace, mode: 0o660 }));
    let mut mtr = MtrWriter::new();
    mtr.init((0, 0)).write_absolute((0, 0), 54, &0x15_u32.to_be_bytes());
    mtr.init((0, 5)).write((0, 5), 100, b"first");
    wire.extend(stream.redo(&mtr));
    wire.extend(stream.frame(&set_len(8)));
    let mut mtr = MtrWriter::new();
    // Past the end of the page.
    mtr.write((0, 5), PAGE_LEN as u32 - 20, &[0x77; 100]);
    wire.extend(stream.redo(&mtr));
    running.send(&prepared.stream, &wire);
    let status = running.wait_quarantined(1);
    assert_eq!((status.quarantine[0].file.as_str(), status.quarantine[0].page_no), ("ibdata1", Some(5)));
    let mut mtr = MtrWriter::new();
    mtr.trim((0, 5));
    let stream = &mut prepared.stream;
    let wire = [stream.redo(&mtr), stream.frame(&set_len(5)), stream.change(OTHER_PAGE, b"kept")].concat();
    running.send(&prepared.stream, &wire);
    running.wait_quarantined(0);
    running.stop();
}
