//! Pages that cannot be built: set aside, and nothing else is affected.

use super::client::{ControlClient, LogClient, PATIENCE, PageClient, connect, hello};
use super::encoder::MtrWriter;
use super::protocol::{Stream, changed};
use super::rescue::{PAGE_LEN, PAGE_NO, Prepared, prepare};
use super::running::LocalNode;
use redoubt_pagestore::PageProtection;
use redoubt_test_support::log_segment::{FRAME_HEADER_LEN, KIND_REDO, change_last_frame};
use redoubt_wire::Seq;
use redoubt_wire::control::{Reply, Request, VolumeStatus};
use redoubt_wire::hello::{Role, Status};
use redoubt_wire::notice::Notice;
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::stream::StreamFrame;
use redoubt_wire::view::ViewRequest;
use std::time::Instant;

/// Beside the damaged one.
pub const OTHER_PAGE: u32 = PAGE_NO + 1;

pub struct Running {
    pub node: LocalNode,
    pub control: ControlClient,
    pub log: LogClient,
    pub generation: u64,
}

pub fn start(prepared: &mut Prepared, session: u64) -> Running {
    let (node, control) = prepared.start();
    let generation = prepared.generation;
    let log = LogClient::connect(node.address, "v", generation, session, 0).unwrap();
    // The node has ended the log of the server before.
    (prepared.stream.seq, prepared.stream.lsn) = (log.welcome.next_seq.0, log.welcome.next_lsn);
    Running { node, control, log, generation }
}

impl Running {
    pub fn send(&mut self, stream: &Stream, wire: &[u8]) {
        self.log.send(wire).unwrap();
        assert!(self.log.wait_durable(stream.seq));
    }

    pub fn wait_quarantined(&mut self, pages: u64) -> VolumeStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.control.status();
            if status.quarantined == pages {
                return status;
            }
            assert!(Instant::now() < deadline, "not {pages} pages in quarantine: {status:?}");
        }
    }

    pub fn pages(&self) -> PageClient {
        PageClient::connect(self.node.address, "v", self.generation).unwrap()
    }

    /// Message of the error that a read of the page gets; `None`: it is served.
    pub fn refusal(&self, need: u64, page_no: u32) -> Option<String> {
        let mut pages = self.pages();
        let file = pages.open(need, "d/t.ibd").unwrap().unwrap();
        let offset_bytes = u64::from(page_no) * PAGE_LEN as u64;
        let request = PageRequest::Read { need: Seq(need), file, offset_bytes, len_bytes: PAGE_LEN as u32 };
        let take = |reply: PageReply<'_>| match reply {
            PageReply::Failed { retry: false, message } => Some(message),
            PageReply::Bytes(_) => None,
            other => panic!("{other:?}"),
        };
        pages.ask(&request, take).unwrap()
    }

    pub fn stop(self) {
        let Self { node, control, log, .. } = self;
        drop((control, log));
        node.stop();
    }
}

pub fn own_file(prepared: &Prepared, name: &str) -> Option<String> {
    let bytes = std::fs::read(prepared.directory.path().join("volumes/v").join(name)).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The final reply to a request for a file.
fn exported(control: &mut ControlClient, with_damaged: bool) -> (Vec<u8>, Reply) {
    let held = control.ask(&Request::ExportBegin { volume: "v".to_owned() }).unwrap();
    assert!(matches!(held, Reply::Attached(_)), "{held:?}");
    let request = Request::ExportFile { volume: "v".to_owned(), path: "d/t.ibd".to_owned(), with_damaged };
    let exported = control.file_and_reply(&request).unwrap();
    let ended = control.ask(&Request::ExportEnd { volume: "v".to_owned() }).unwrap();
    assert!(matches!(ended, Reply::Done), "{ended:?}");
    exported
}

#[test]
fn damaged_page_that_is_changed_leaves_the_rest_working() {
    let mut prepared = prepare(PageProtection::Atomic, 200);
    prepared.damage();
    let mut running = start(&mut prepared, 11);
    for (page_no, data) in [(PAGE_NO, b"lost"), (OTHER_PAGE, b"kept")] {
        let wire = prepared.stream.change(page_no, data);
        running.send(&prepared.stream, &wire);
    }
    let status = running.wait_quarantined(1);
    assert_eq!((status.quarantine[0].page_no, status.state.as_str()), (Some(PAGE_NO), "attached"));
    assert_eq!(status.quarantine[0].file, "d/t.ibd");
    running.control.wait_applied(prepared.stream.lsn.0);
    // Also after a restart, with a newer record. Older builds refuse the volume meanwhile.
    for session in [12, 13] {
        let need = prepared.stream.seq;
        let refusal = running.refusal(need, PAGE_NO).unwrap();
        assert!(refusal.contains("quarantine") && refusal.contains("stored image is damaged"), "{refusal}");
        assert_eq!(changed(&mut running.pages(), need, OTHER_PAGE, 4), b"kept");
        assert!(own_file(&prepared, "volume").unwrap().contains("\"format\":3"));
        running.stop();
        running = start(&mut prepared, session);
        let wire = prepared.stream.change(PAGE_NO, b"more");
        running.send(&prepared.stream, &wire);
        assert_eq!(running.wait_quarantined(1).quarantine, status.quarantine);
        running.control.wait_applied(prepared.stream.lsn.0);
    }

    let (_, refused) = exported(&mut running.control, false);
    assert!(
        matches!(&refused, Reply::Failed { message, .. } if message.contains("quarantine")),
        "{refused:?}"
    );
    let (file, reply) = exported(&mut running.control, true);
    assert!(matches!(&reply, Reply::Damaged { pages: 1, first } if first[0].contains("page 4")), "{reply:?}");
    let other = &file[OTHER_PAGE as usize * PAGE_LEN..][200..204];
    assert_eq!(other, b"kept", "all other pages are exported");

    // Redo that initialises the page ends it, while an export holds the state before.
    let held = running.control.ask(&Request::ExportBegin { volume: "v".to_owned() }).unwrap();
    assert!(matches!(held, Reply::Attached(_)), "{held:?}");
    let mut mtr = MtrWriter::new();
    mtr.init((5, PAGE_NO)).write_absolute((5, PAGE_NO), 200, b"anew");
    let wire = prepared.stream.redo(&mtr);
    running.send(&prepared.stream, &wire);
    let deadline = Instant::now() + PATIENCE;
    let mut status = ControlClient::connect(running.node.address).unwrap();
    while status.status().quarantined > 0 {
        assert!(Instant::now() < deadline, "still in quarantine: {:?}", status.status());
    }
    let request =
        Request::ExportFile { volume: "v".to_owned(), path: "d/t.ibd".to_owned(), with_damaged: true };
    let (_, reply) = running.control.file_and_reply(&request).unwrap();
    assert!(matches!(&reply, Reply::Damaged { pages: 1, .. }), "it was damaged at that moment: {reply:?}");
    assert_eq!(changed(&mut running.pages(), prepared.stream.seq, PAGE_NO, 4), b"anew");
    assert_eq!(own_file(&prepared, "quarantine"), None);
    assert!(own_file(&prepared, "volume").unwrap().contains("\"format\":1"));
    drop(status);
    running.stop();
}

#[test]
fn damaged_page_that_is_only_read_is_listed() {
    let mut prepared = prepare(PageProtection::Atomic, 200);
    let whole = prepared.stored();
    prepared.damage();
    let mut running = start(&mut prepared, 11);
    let need = prepared.stream.seq;
    assert_eq!(running.control.status().quarantined, 0);
    for _ in 0..2 {
        let refusal = running.refusal(need, PAGE_NO).unwrap();
        assert!(refusal.contains("stored image is damaged"), "{refusal}");
        let status = running.control.status();
        assert_eq!(status.quarantined, 1, "{status:?}");
        let page = &status.quarantine[0];
        assert_eq!((page.file.as_str(), page.space, page.page_no), ("d/t.ibd", 5, Some(PAGE_NO)));
        assert!(page.reason.contains("found by a read"), "{}", page.reason);
    }
    // No record of it is left out: it is whole again if its image is.
    assert_eq!(own_file(&prepared, "quarantine"), None);
    prepared.store(&whole);
    assert_eq!(running.refusal(need, PAGE_NO), None);
    assert_eq!(running.control.status().quarantined, 0);
    prepared.damage();
    let (_, refused) = exported(&mut running.control, false);
    assert!(matches!(&refused, Reply::Failed { .. }), "{refused:?}");
    let listed = running.control.status();
    assert!(listed.quarantined == 1 && listed.quarantine[0].reason.contains("found by a read"), "{listed:?}");
    // A change sets it aside, under one entry.
    let wire = prepared.stream.change(PAGE_NO, b"lost");
    running.send(&prepared.stream, &wire);
    running.control.wait_applied(prepared.stream.lsn.0);
    let status = running.control.status();
    assert!(own_file(&prepared, "quarantine").is_some());
    assert!(status.quarantined == 1 && !status.quarantine[0].reason.contains("found by"), "{status:?}");
    running.stop();
}

#[test]
fn record_that_does_not_fit_is_kept_as_evidence() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let mut running = start(&mut prepared, 11);
    let mut mtr = MtrWriter::new();
    // Past the end of the page.
    mtr.write((5, PAGE_NO), PAGE_LEN as u32 - 20, &[0x77; 100]);
    let wire = prepared.stream.redo(&mtr);
    running.send(&prepared.stream, &wire);
    let wire = prepared.stream.change(OTHER_PAGE, b"kept");
    running.send(&prepared.stream, &wire);
    running.wait_quarantined(1);
    let need = prepared.stream.seq;
    assert_eq!(changed(&mut running.pages(), need, OTHER_PAGE, 4), b"kept");
    assert!(running.refusal(need, PAGE_NO).is_some());
    let text = own_file(&prepared, "quarantine-5-4.txt").unwrap();
    assert!(text.contains("777777") && text.contains("reason"), "{text}");
    assert!(own_file(&prepared, "quarantine-5-4.page").is_some());
    // Freed, it has no content any more.
    let mut mtr = MtrWriter::new();
    mtr.free((5, PAGE_NO));
    let wire = prepared.stream.redo(&mtr);
    running.send(&prepared.stream, &wire);
    running.wait_quarantined(0);
    assert_eq!(own_file(&prepared, "quarantine-5-4.txt"), None);
    running.stop();
}

#[test]
fn dropped_table_leaves_the_quarantine() {
    let mut prepared = prepare(PageProtection::Atomic, 200);
    prepared.damage();
    let mut running = start(&mut prepared, 11);
    let wire = prepared.stream.change(PAGE_NO, b"lost");
    running.send(&prepared.stream, &wire);
    running.wait_quarantined(1);
    let mut mtr = MtrWriter::new();
    mtr.file(0x90, 5, b"./d/t.ibd");
    let wire = prepared.stream.redo(&mtr);
    running.send(&prepared.stream, &wire);
    let unlink = StreamFrame::Unlink { path: b"d/t.ibd" };
    let wire = prepared.stream.frame(&unlink);
    running.send(&prepared.stream, &wire);
    running.wait_quarantined(0);
    assert_eq!(own_file(&prepared, "quarantine"), None);
    running.stop();
}

/// While it exists, no checkpoint can be written: the volume stops instead.
struct NoCheckpoint(std::path::PathBuf);

impl NoCheckpoint {
    /// Everything that was sent so far has its checkpoint.
    fn new(prepared: &mut Prepared, running: &mut Running) -> Self {
        let wire = prepared.stream.change(OTHER_PAGE, b"last");
        running.send(&prepared.stream, &wire);
        running.control.wait_applied(prepared.stream.lsn.0);
        let path = prepared.directory.path().join("volumes/v/checkpoint.new");
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// The node stops when the volume has.
    fn end(self, mut running: Running) {
        let stopped = running.log.wait(|notice, _| matches!(notice, Notice::Stopped { .. })).unwrap();
        assert!(
            matches!(&stopped, Notice::Stopped { reason } if reason.contains("checkpoint")),
            "{stopped:?}"
        );
        running.stop();
        std::fs::remove_dir(self.0).unwrap();
    }
}

#[test]
fn quarantine_is_durable_before_the_checkpoint() {
    let mut prepared = prepare(PageProtection::Atomic, 200);
    prepared.damage();
    let mut running = start(&mut prepared, 11);
    let no_checkpoint = NoCheckpoint::new(&mut prepared, &mut running);
    let kept = prepared.stream.change(OTHER_PAGE, b"kept");
    let lost = prepared.stream.change(PAGE_NO, b"lost");
    running.log.send(&[kept, lost].concat()).unwrap();
    no_checkpoint.end(running);
    let listed = own_file(&prepared, "quarantine").unwrap();
    assert!(listed.contains("\"page_no\":4"), "{listed}");
    assert!(own_file(&prepared, "volume").unwrap().contains("\"format\":3"));
    // The same records are applied once more.
    let mut running = start(&mut prepared, 12);
    assert_eq!(running.control.status().quarantined, 1);
    running.control.wait_applied(prepared.stream.lsn.0);
    let need = prepared.stream.seq;
    assert!(running.refusal(need, PAGE_NO).unwrap().contains("quarantine"));
    assert_eq!(changed(&mut running.pages(), need, OTHER_PAGE, 4), b"kept");
    assert_eq!(own_file(&prepared, "quarantine"), Some(listed));
    running.stop();
}

#[test]
fn dropped_table_leaves_the_quarantine_after_the_checkpoint() {
    let mut prepared = prepare(PageProtection::Atomic, 200);
    prepared.damage();
    let mut running = start(&mut prepared, 11);
    let wire = prepared.stream.change(PAGE_NO, b"lost");
    running.send(&prepared.stream, &wire);
    running.wait_quarantined(1);
    let no_checkpoint = NoCheckpoint::new(&mut prepared, &mut running);
    let mut mtr = MtrWriter::new();
    mtr.file(0x90, 5, b"./d/t.ibd");
    let redo = prepared.stream.redo(&mtr);
    let unlink = prepared.stream.frame(&StreamFrame::Unlink { path: b"d/t.ibd" });
    running.log.send(&[redo, unlink].concat()).unwrap();
    no_checkpoint.end(running);
    assert!(own_file(&prepared, "quarantine").is_some(), "a restart makes the table again");
    let mut running = start(&mut prepared, 12);
    running.wait_quarantined(0);
    assert_eq!(own_file(&prepared, "quarantine"), None);
    running.stop();
}

#[test]
fn quarantine_outlives_one_of_its_two_lists() {
    let mut prepared = prepare(PageProtection::Atomic, 200);
    prepared.damage();
    let mut running = start(&mut prepared, 11);
    let wire = prepared.stream.change(PAGE_NO, b"lost");
    running.send(&prepared.stream, &wire);
    let listed = running.wait_quarantined(1).quarantine;
    running.stop();
    let own = prepared.directory.path().join("volumes/v");
    let names = ["quarantine", "quarantine.copy"];
    for (damaged, session) in [0, 1].into_iter().zip(12..) {
        std::fs::write(own.join(names[damaged]), b"rotten").unwrap();
        let mut running = start(&mut prepared, session);
        assert_eq!(running.wait_quarantined(1).quarantine, listed);
        assert_eq!(own_file(&prepared, names[0]), own_file(&prepared, names[1]));
        running.stop();
    }
    names.iter().for_each(|name| std::fs::remove_file(own.join(name)).unwrap());
    let node = LocalNode::open(&prepared.options);
    let mut control = ControlClient::connect(node.address).unwrap();
    let status = control.wait_state("unusable");
    assert!(status.reason.contains("quarantine: it lists the damaged pages"), "{}", status.reason);
    drop(control);
    node.stop();
}

/// Damages all images of the page that the journal has.
fn damage_images(prepared: &Prepared) {
    let journal = prepared.directory.path().join("volumes/v/pages/pages.journal");
    let mut bytes = std::fs::read(&journal).unwrap();
    // All images of the page that are there: none may serve as a base.
    let mut images = 0;
    for at in (0..bytes.len() - 4).step_by(512) {
        let is_image = bytes[at + 4..].starts_with(&PAGE_NO.to_be_bytes())
            && bytes.get(at + 34..).is_some_and(|rest| rest.starts_with(&5u32.to_be_bytes()));
        if is_image {
            bytes[at + 5000] ^= 1;
            images += 1;
        }
    }
    assert!(images > 0);
    std::fs::write(&journal, bytes).unwrap();
}

/// The page is in its file in an older version, and the log begins after the page was initialised.
const MANY_CHANGES: u32 = 3000;

#[test]
fn damaged_image_of_the_journal_is_rebuilt_from_file_and_log() {
    let mut prepared = prepare(PageProtection::Journal, MANY_CHANGES);
    damage_images(&prepared);
    let mut running = start(&mut prepared, 11);
    let wire = prepared.stream.change(PAGE_NO, b"kept");
    running.send(&prepared.stream, &wire);
    let status = running.control.wait_applied(prepared.stream.lsn.0);
    assert_eq!((status.quarantined, status.counters["pages_rebuilt"]), (0, 1));
    let page = changed(&mut running.pages(), prepared.stream.seq, PAGE_NO, 1000);
    assert_eq!((&page[..4], &page[4..]), (&b"kept"[..], &[(MANY_CHANGES - 1) as u8; 996][..]));
    running.stop();
}

#[test]
fn damaged_newest_image_of_the_journal_stops_nothing() {
    let mut prepared = prepare(PageProtection::Journal, MANY_CHANGES);
    damage_images(&prepared);
    prepared.damage();
    let mut running = start(&mut prepared, 11);
    let wire = prepared.stream.change(PAGE_NO, b"lost");
    running.send(&prepared.stream, &wire);
    running.wait_quarantined(1);
    // An export reads the page while it is in the journal only.
    let (_, reply) = exported(&mut running.control, true);
    assert!(matches!(&reply, Reply::Damaged { pages: 1, .. }), "{reply:?}");
    // The journal wants the room of the image.
    for n in 0..200u32 {
        for page_no in [OTHER_PAGE, OTHER_PAGE + 1, OTHER_PAGE + 2] {
            let wire = prepared.stream.change(page_no, &[n as u8; 2000]);
            running.send(&prepared.stream, &wire);
        }
    }
    running.control.wait_applied(prepared.stream.lsn.0);
    let status = running.control.status();
    assert_eq!((status.state.as_str(), status.quarantined), ("attached", 1), "{status:?}");
    let (_, reply) = exported(&mut running.control, true);
    assert!(matches!(&reply, Reply::Damaged { pages: 1, .. }), "{reply:?}");
    running.stop();
}

/// Frames that are not applied before the node stops.
fn prepare_unapplied(stream_end: &[u8]) -> Prepared {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    prepared.options.apply_interval = PATIENCE;
    prepared.options.batch_len_bytes = 1 << 30;
    let mut running = start(&mut prepared, 11);
    for data in [b"good", stream_end] {
        let wire = prepared.stream.change(OTHER_PAGE, data);
        running.send(&prepared.stream, &wire);
    }
    running.stop();
    prepared
}

#[test]
fn frame_of_the_log_that_cannot_be_used_freezes_at_start() {
    for is_unknown_kind in [true, false] {
        let mut prepared = prepare_unapplied(b"evil");
        let log = prepared.directory.path().join("volumes/v/log");
        let has_mark = |payload: &[u8]| payload.windows(4).any(|window| window == b"evil");
        let change = |frame: &mut [u8]| match is_unknown_kind {
            true => frame[0] = 0x3d,
            false => frame[FRAME_HEADER_LEN] ^= 0x41,
        };
        change_last_frame(&log, KIND_REDO, has_mark, change).unwrap().expect("the frame");
        prepared.options.apply_interval =
            super::running::options(prepared.directory.path(), super::running::SMALL).apply_interval;
        for start in 0..3 {
            let node = LocalNode::open(&prepared.options);
            let mut control = ControlClient::connect(node.address).unwrap();
            let (file, reply) = exported(&mut control, true);
            assert!(matches!(reply, Reply::Done), "{reply:?}");
            assert_eq!(file[OTHER_PAGE as usize * PAGE_LEN..][200..204], *b"good");
            let status = control.wait_state("frozen");
            assert!(status.reason.contains("put back a copy"), "{}", status.reason);
            drop(control);
            node.stop();
            if start == 1 {
                // A note that is damaged is written again.
                std::fs::write(prepared.directory.path().join("volumes/v/frozen"), b"rotten").unwrap();
            }
        }
    }
}

#[test]
fn object_that_a_refused_frame_ends_keeps_its_changes() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let mut running = start(&mut prepared, 11);
    // A reader of a moment and an idle connection of the server do not keep the volume from being opened again.
    let pages = running.pages();
    let mut reader = ControlClient::connect(running.node.address).unwrap();
    let about = ViewRequest::Begin { moment: true };
    let seen = reader.ask(&Request::View { volume: "v".to_owned(), about }).unwrap();
    assert!(matches!(seen, Reply::View(_)), "{seen:?}");
    let wire = prepared.stream.change(OTHER_PAGE, b"good");
    let mut dropping = MtrWriter::new();
    dropping.file(0x90, 5, b"./d/t.ibd");
    let mut refused = MtrWriter::new();
    refused.init((6, 0)).write_absolute((6, 0), 54, &[0xff; 4]);
    let redo = [dropping.finish(1), refused.finish(1)].concat();
    let end = prepared.stream.frame(&StreamFrame::Redo(&redo));
    running.log.send(&[wire, end].concat()).unwrap();
    let stopped = running.log.wait(|notice, _| matches!(notice, Notice::Stopped { .. })).unwrap();
    assert!(matches!(&stopped, Notice::Stopped { reason } if reason.contains("frozen")), "{stopped:?}");
    let (file, reply) = exported(&mut running.control, true);
    assert!(matches!(reply, Reply::Done), "{reply:?}");
    assert_eq!(file[OTHER_PAGE as usize * PAGE_LEN..][200..204], *b"good");
    running.control.wait_state("frozen");
    drop((pages, reader));
    running.stop();
}

#[test]
fn refused_frame_freezes_the_volume_at_the_last_good_position() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let mut running = start(&mut prepared, 11);
    let wire = prepared.stream.change(OTHER_PAGE, b"good");
    running.send(&prepared.stream, &wire);
    let end_lsn = prepared.stream.lsn.0;
    // No tablespace has such flags.
    let mut mtr = MtrWriter::new();
    mtr.init((6, 0)).write_absolute((6, 0), 54, &[0xff; 4]);
    running.log.send(&prepared.stream.redo(&mtr)).unwrap();
    let stopped = running.log.wait(|notice, _| matches!(notice, Notice::Stopped { .. })).unwrap();
    assert!(matches!(&stopped, Notice::Stopped { reason } if reason.contains("frozen")), "{stopped:?}");
    let Running { mut node, mut control, log, generation } = running;
    drop(log);
    // At once, and after a restart.
    for is_last in [false, true] {
        let (file, reply) = exported(&mut control, true);
        assert!(matches!(reply, Reply::Done), "{reply:?}");
        assert_eq!(file[OTHER_PAGE as usize * PAGE_LEN..][200..204], *b"good");
        let status = control.wait_state("frozen");
        assert_eq!((status.p_lsn, status.a_lsn), (end_lsn, end_lsn), "{status:?}");
        let (volume, who) = ("v".to_owned(), "the test".to_owned());
        let attach = Request::Attach { volume, who, server: None, seen_generation: None };
        let refused = control.ask(&attach).unwrap();
        let is_named = |message: &String| {
            ["frozen", "flags 0xffffffff", "export"].iter().all(|part| message.contains(part))
        };
        assert!(matches!(&refused, Reply::Failed { message, .. } if is_named(message)), "{refused:?}");
        let (_, welcome) = connect(node.address, &hello(Role::Log, "v", generation, 12, 0)).unwrap();
        assert_eq!(welcome.status, Status::Refused, "{}", welcome.message);
        let about = ViewRequest::Begin { moment: false };
        let seen = control.ask(&Request::View { volume: "v".to_owned(), about }).unwrap();
        assert!(matches!(seen, Reply::View(_)), "{seen:?}");
        drop(control);
        node.stop();
        if is_last {
            return;
        }
        node = LocalNode::open(&prepared.options);
        control = ControlClient::connect(node.address).unwrap();
    }
}
