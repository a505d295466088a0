//! Pages that differ from the server's, and are healed (`--on-difference heal`).
//!
//! The planted difference is a digest of another content than the node has.

use super::client::{LogClient, PATIENCE, PageClient};
use super::encoder::MtrWriter;
use super::protocol::{Fixture, Stream, changed};
use super::running::{SMALL, Sizes};
use redoubt_node::volume::{DIFFERENCES_MAX, REPORTS_MAX};
use redoubt_page::{SpaceFlags, digest, finalize, layout};
use redoubt_redo::Lsn;
use redoubt_wire::Seq;
use redoubt_wire::control::VolumeStatus;
use redoubt_wire::notice::Notice;
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::stream::{StreamFrame, Verify};
use std::path::PathBuf;
use std::time::Instant;

const FLAGS: SpaceFlags = SpaceFlags(0x15);
const PAGE_LEN: usize = 16_384;
const PATH: &[u8] = b"d/t.ibd";
/// The last page that nothing differs on.
const FILLED: u32 = 4;
/// Tables are applied when they are full, so that a test decides when.
const BY_SIZE: Sizes = Sizes { ring: 1 << 20, batch: 32 << 10, interval_ms: 600_000 };

struct Running {
    fixture: Fixture,
    stream: Stream,
    log: LogClient,
    session: u64,
}

impl Running {
    fn new(sizes: Sizes, pages: u32) -> Self {
        let fixture = Fixture::within(&std::env::temp_dir(), sizes);
        let mut stream = Stream::new();
        let mut log = LogClient::with_features(fixture.address(), "v", fixture.generation, 1).unwrap();
        log.send(&stream.begin(pages)).unwrap();
        assert!(log.wait_durable(stream.seq));
        Self { fixture, stream, log, session: 1 }
    }

    /// Restarts the node; the same server connects again.
    fn restart(&mut self) {
        self.fixture.restart_with(BY_SIZE);
        self.connect_again();
    }

    fn connect_again(&mut self) {
        self.session += 1;
        let (address, generation) = (self.fixture.address(), self.fixture.generation);
        self.log = LogClient::with_features(address, "v", generation, self.session).unwrap();
        (self.stream.seq, self.stream.lsn) = (self.log.welcome.next_seq.0, self.log.welcome.next_lsn);
    }

    fn pages(&self) -> PageClient {
        PageClient::connect(self.fixture.address(), "v", self.fixture.generation).unwrap()
    }

    fn page(&self, page_no: u32) -> Vec<u8> {
        let (mut pages, need) = (self.pages(), self.stream.seq);
        let file = pages.open(need, "d/t.ibd").unwrap().unwrap();
        pages.read(need, file, u64::from(page_no) * PAGE_LEN as u64, PAGE_LEN as u32).unwrap()
    }

    fn send(&mut self, wire: &[u8]) {
        self.log.send(wire).unwrap();
        assert!(self.log.wait_durable(self.stream.seq));
    }

    /// Fills the open table with one frame, so that all sent so far is applied, and the next table is empty. Takes no
    /// notices.
    fn fill(&mut self) {
        let mut mtr = MtrWriter::new();
        for _ in 0..5 {
            mtr.write_absolute((5, FILLED), 200, &[b'f'; 8000]);
        }
        let wire = self.stream.redo(&mtr);
        assert!(wire.len() as u64 > BY_SIZE.batch);
        self.log.send(&wire).unwrap();
    }

    /// The server has dropped a write of this content.
    fn compare(&mut self, page_no: u32, page: &[u8]) {
        let (lsn, digest) = (layout::page_lsn(page).unwrap(), digest(page, FLAGS));
        let verify = Verify { path: PATH, page_no, lsn, digest };
        let wire = self.stream.frame(&StreamFrame::VerifyOrHeal(verify));
        self.log.send(&wire).unwrap();
    }

    fn image(&mut self, page_no: u32, page: &[u8]) {
        let wire = self.stream.frame(&StreamFrame::Image { path: PATH, page_no, page, is_recovered: false });
        self.send(&wire);
    }

    /// Waits until the server is asked for the page.
    fn wait_wanted(&mut self, page_no: u32) {
        let wanted = Notice::WantImage { path: PATH.to_vec(), page_no };
        assert_eq!(self.log.wait(|notice, _| *notice == wanted), Some(wanted));
    }

    fn wait(&self, what: &str, is_so: impl Fn(&VolumeStatus) -> bool) -> VolumeStatus {
        let (mut control, deadline) = (self.fixture.control(), Instant::now() + PATIENCE);
        loop {
            let status = control.status();
            if is_so(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "not {what}: {status:?}");
        }
    }

    /// Message of the failure that a read of the page gets.
    fn refusal(&self, page_no: u32) -> String {
        self.failure(page_no, self.stream.seq).1
    }

    /// A read of the page fails because it differs, and is to be repeated.
    fn is_awaited(&self, page_no: u32) -> bool {
        let (is_repeated, message) = self.failure(page_no, 0);
        assert!(message.contains("differs from the server's"), "{message}");
        is_repeated
    }

    /// Whether the read is to be repeated, and why it fails.
    fn failure(&self, page_no: u32, need: u64) -> (bool, String) {
        let mut pages = self.pages();
        let file = pages.open(need, "d/t.ibd").unwrap().unwrap();
        let offset_bytes = u64::from(page_no) * PAGE_LEN as u64;
        let request = PageRequest::Read { need: Seq(need), file, offset_bytes, len_bytes: PAGE_LEN as u32 };
        let take = |reply: PageReply<'_>| match reply {
            PageReply::Failed { retry, message } => (retry, message),
            other => panic!("{other:?}"),
        };
        pages.ask(&request, take).unwrap()
    }

    /// Sends a change of another page, and waits until it is applied.
    fn apply(&mut self) {
        let wire = self.stream.change(FILLED, b"more");
        let end = self.stream.lsn;
        self.send(&wire);
        self.wait("applied", |status| status.a_lsn >= end.0);
    }

    fn own(&self, name: &str) -> PathBuf {
        self.fixture.directory.path().join("volumes/v").join(name)
    }
}

/// The same page with one other byte.
fn differing(page: &[u8]) -> Vec<u8> {
    let mut page = page.to_vec();
    page[200] ^= 1;
    finalize(&mut page, FLAGS).unwrap();
    page
}

#[test]
fn differing_page_is_replaced_by_the_servers_over_restarts() {
    let mut running = Running::new(BY_SIZE, 2);
    let wire = running.stream.change(3, b"same");
    running.send(&wire);
    let ours = running.page(3);
    let servers = differing(&ours);
    let lsn = layout::page_lsn(&servers).unwrap();
    running.compare(3, &servers);
    running.fill();
    let needed = running.log.wait(|notice, _| matches!(notice, Notice::NeedImage { .. }));
    assert_eq!(needed, Some(Notice::NeedImage { path: PATH.to_vec(), page_no: 3, lsn }));
    running.wait_wanted(3);
    let status = running.wait("set aside", |status| status.quarantined == 1);
    assert_eq!((status.state.as_str(), status.counters["page_mismatches"]), ("attached", 1));
    let entry = &status.quarantine[0];
    assert_eq!((entry.file.as_str(), entry.page_no, entry.lsn), ("d/t.ibd", Some(3), lsn.0));
    assert!(entry.reason.contains("differs from the server's"), "{}", entry.reason);
    // The evidence has both images.
    let image = PageRequest::MismatchImage { path: PATH, page_no: 3, lsn, page: &servers };
    running.pages().ask(&image, |reply| assert_eq!(reply, PageReply::Done)).unwrap();
    let name = format!("mismatch-5-3-{lsn}");
    let replayed = std::fs::read(running.own(&name).with_extension("node.page")).unwrap();
    assert_eq!(digest(&replayed, FLAGS), digest(&ours, FLAGS));
    assert_eq!(std::fs::read(running.own(&name).with_extension("server.page")).unwrap(), servers);
    let text = std::fs::read_to_string(running.own(&name).with_extension("txt")).unwrap();
    assert!(text.contains("200..201: 72 / 73"), "{text}");

    // The comparison was not in the log. The page is never served as it was replayed, and the server is asked again.
    assert!(running.refusal(3).contains("differs from the server's"));
    running.restart();
    running.wait_wanted(3);
    assert!(running.refusal(3).contains("differs from the server's"));
    assert_eq!(changed(&mut running.pages(), running.stream.seq, FILLED, 4), b"ffff");

    // The image is followed by redo of the page. The node restarts before they are applied.
    running.image(3, &servers);
    let mut mtr = MtrWriter::new();
    mtr.write((5, 3), 300, b"after");
    let wire = running.stream.redo(&mtr);
    running.send(&wire);
    running.restart();
    let page = running.page(3);
    assert_eq!((&page[200..204], &page[300..305]), (&servers[200..204], &b"after"[..]));
    let end = running.stream.lsn;
    let status = running.wait("applied", |status| status.a_lsn >= end.0 && status.quarantined == 0);
    assert_eq!((status.state.as_str(), status.counters["page_mismatches"]), ("attached", 0));
    running.restart();
    assert_eq!(running.page(3), page);
    assert!(!running.own("quarantine").exists());
}

#[test]
fn image_in_the_same_batch_heals_and_is_counted() {
    let mut running = Running::new(BY_SIZE, 2);
    let servers = differing(&running.page(3));
    running.compare(3, &servers);
    running.image(3, &servers);
    running.compare(3, &servers);
    running.fill();
    let status = running.wait("healed", |status| status.counters["pages_healed"] == 1);
    assert_eq!((status.counters["page_mismatches"], status.counters["pages_verified"]), (1, 1));
    assert_eq!(running.page(3), servers);
    running.wait("out of quarantine", |status| status.quarantined == 0);
}

#[test]
fn unsound_images_never_replace_a_differing_page() {
    let mut running = Running::new(SMALL, 3);
    let wire = running.stream.change(3, b"same");
    running.send(&wire);
    let servers = differing(&running.page(3));
    running.compare(3, &servers);
    let wire = running.stream.change(FILLED, b"next");
    running.send(&wire);
    running.wait("set aside", |status| status.quarantined == 1);
    let mut wrong_checksum = servers.clone();
    wrong_checksum[5000] ^= 1;
    let wrong_page = running.page(5);
    let mut older = servers.clone();
    let before = Lsn(layout::page_lsn(&servers).unwrap().0 - 1);
    assert!(layout::set_page_lsn(&mut older, before));
    finalize(&mut older, FLAGS).unwrap();
    for (image, what) in [(wrong_checksum, "checksum"), (wrong_page, "page id"), (older, "LSN")] {
        running.image(3, &image);
        // Whether it is applied already or not.
        assert!(running.refusal(3).contains("differs from the server's"), "{what}");
        let end = running.stream.lsn;
        let wire = running.stream.change(FILLED, b"more");
        running.send(&wire);
        let status = running.wait("applied", |status| status.a_lsn > end.0);
        assert_eq!((status.quarantined, status.counters["pages_healed"]), (1, 0), "{what}");
        assert!(running.refusal(3).contains("differs from the server's"), "{what}");
    }
    running.image(3, &servers);
    running.wait("healed", |status| status.quarantined == 0 && status.counters["pages_healed"] == 1);
    assert_eq!(running.page(3), servers);
}

#[test]
fn unsound_image_after_the_start_of_its_page_is_not_taken() {
    let mut running = Running::new(BY_SIZE, 3);
    let servers = differing(&running.page(3));
    let other = running.page(5);
    running.compare(3, &servers);
    running.fill();
    running.wait_wanted(3);
    let mut torn = servers.clone();
    torn[5000] ^= 1;
    for (image, what) in [(torn, "checksum"), (other, "page id")] {
        for begins_with_redo in [true, false] {
            // In one table, which is applied as a whole.
            if begins_with_redo {
                let mut mtr = MtrWriter::new();
                mtr.init((5, 3)).write((5, 3), 100, b"again");
                let wire = running.stream.redo(&mtr);
                running.send(&wire);
            } else {
                running.image(3, &servers);
            }
            running.image(3, &image);
            running.fill();
            let end = running.stream.lsn;
            let status = running.wait("applied", |status| status.a_lsn >= end.0);
            assert_eq!((status.quarantined, status.counters["pages_healed"]), (1, 0), "{what}");
            assert!(running.refusal(3).contains("differs from the server's"), "{what}");
        }
    }
    running.image(3, &servers);
    running.fill();
    running.wait("healed", |status| status.quarantined == 0 && status.counters["pages_healed"] == 1);
    assert_eq!(running.page(3), servers);
}

#[test]
fn read_of_a_differing_page_is_repeated_after_a_restart() {
    let mut running = Running::new(BY_SIZE, 2);
    let servers = differing(&running.page(3));
    running.compare(3, &servers);
    running.fill();
    running.wait_wanted(3);
    assert!(running.is_awaited(3));
    // A start makes a file again that is younger than the checkpoint.
    let end = running.stream.lsn;
    running.wait("applied", |status| status.a_lsn >= end.0);
    running.fixture.restart_with(BY_SIZE);
    assert!(running.is_awaited(3), "the server was not asked yet");
    running.connect_again();
    running.wait_wanted(3);
    assert!(running.is_awaited(3), "the image may be on its way");
}

#[test]
fn differing_page_is_requested_until_it_is_healed() {
    let mut running = Running::new(SMALL, 3);
    let servers = differing(&running.page(3));
    running.compare(3, &servers);
    running.apply();
    running.wait_wanted(3);
    // It is not taken.
    let other = running.page(5);
    running.image(3, &other);
    running.apply();
    running.log.poll();
    running.apply();
    running.wait_wanted(3);
    // Its file gets another name.
    let to = b"d/u.ibd";
    let wire = running.stream.frame(&StreamFrame::Rename { from: PATH, to });
    running.send(&wire);
    running.apply();
    let wanted = Notice::WantImage { path: to.to_vec(), page_no: 3 };
    assert_eq!(running.log.wait(|notice, _| *notice == wanted), Some(wanted.clone()));
    let image = StreamFrame::Image { path: to, page_no: 3, page: &servers, is_recovered: false };
    let wire = running.stream.frame(&image);
    running.send(&wire);
    running.apply();
    running.wait("healed", |status| status.quarantined == 0 && status.counters["pages_healed"] == 1);
}

#[test]
fn differences_up_to_the_limit_heal_and_one_more_stops() {
    let first = 3;
    let mut running = Running::new(SMALL, DIFFERENCES_MAX as u32 + 2);
    let differ = |running: &mut Running, page_no: u32| {
        let servers = differing(&running.page(page_no));
        running.compare(page_no, &servers);
        servers
    };
    // Page 4 stays, for changes that make the rest applied.
    let pages: Vec<u32> = (first..).filter(|page_no| *page_no != FILLED).take(DIFFERENCES_MAX + 1).collect();
    let (last, others) = pages.split_last().unwrap();
    let servers: Vec<_> = others.iter().map(|page_no| differ(&mut running, *page_no)).collect();
    let wire = running.stream.change(FILLED, b"next");
    running.send(&wire);
    let status = running.wait("set aside", |status| status.quarantined == DIFFERENCES_MAX as u64);
    assert_eq!(status.state, "attached");
    for (page_no, page) in others.iter().zip(&servers) {
        running.image(*page_no, page);
    }
    let healed = |status: &VolumeStatus| {
        status.counters["pages_healed"] == DIFFERENCES_MAX as u64 && status.quarantined == 0
    };
    let status = running.wait("healed", healed);
    assert_eq!(status.state, "attached");
    assert_eq!(running.page(others[0]), servers[0]);
    let reports = std::fs::read_dir(running.own("")).unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("mismatch-") && name.to_string_lossy().ends_with(".txt")
    });
    assert_eq!(reports.count(), REPORTS_MAX);

    differ(&mut running, *last);
    let wire = running.stream.change(FILLED, b"last");
    running.log.send(&wire).unwrap();
    let stopped = running.log.wait(|notice, _| matches!(notice, Notice::Stopped { .. })).unwrap();
    for part in ["more than 100", "--on-difference heal", "differs from the server's"] {
        assert!(
            matches!(&stopped, Notice::Stopped { reason } if reason.contains(part)),
            "{part}: {stopped:?}"
        );
    }
    running.fixture.restart();
    let status = running.fixture.control().wait_state("unusable");
    assert!(status.reason.contains("--on-difference heal"), "{}", status.reason);
}
