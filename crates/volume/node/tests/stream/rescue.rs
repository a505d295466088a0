//! Pages that the drive has damaged: rebuilt where that is certain to be right, refused with the reason elsewhere.

use super::client::{ControlClient, LogClient, PATIENCE, PageClient};
use super::protocol::{Stream, changed};
use super::running::{LocalNode, SMALL, options};
use redoubt_node::{NodeOptions, PageOptions};
use redoubt_page::{SpaceFlags, verify};
use redoubt_pagestore::PageProtection;
use redoubt_redo::mariadb::CheckpointBlock;
use redoubt_wire::Seq;
use redoubt_wire::control::{Reply, Request};
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::stream::StreamFrame;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

const FLAGS: SpaceFlags = SpaceFlags(0x15);
pub const PAGE_LEN: usize = 16_384;
pub const PAGE_NO: u32 = 4;

fn with_protection(directory: &Path, protection: PageProtection) -> NodeOptions {
    let mut options = options(directory, SMALL);
    let pretend_atomic = protection == PageProtection::Atomic;
    options.pages = PageOptions { protection: Some(protection), pretend_atomic, ..options.pages };
    options
}

/// A volume `v` with all of its stream applied, on a node that has stopped.
pub struct Prepared {
    pub directory: tempfile::TempDir,
    pub options: NodeOptions,
    pub stream: Stream,
    pub generation: u64,
}

/// `changes` changes of a page, of 1000 bytes each.
pub fn prepare(protection: PageProtection, changes: u32) -> Prepared {
    let directory = tempfile::tempdir().unwrap();
    let options = with_protection(directory.path(), protection);
    let node = LocalNode::open(&options);
    let mut control = ControlClient::connect(node.address).unwrap();
    control.create("v");
    let generation = control.attach("v").generation;
    let mut log = LogClient::connect(node.address, "v", generation, 1, 0).unwrap();
    let mut stream = Stream::new();
    log.send(&stream.begin(4)).unwrap();
    let len_bytes = 8 * PAGE_LEN as u64;
    log.send(&stream.frame(&StreamFrame::SetLen { path: b"d/t.ibd", len_bytes })).unwrap();
    for n in 0..changes {
        if n + 2 == changes {
            // An export needs redo from the server's checkpoint on.
            let block = CheckpointBlock { checkpoint_lsn: stream.lsn, end_lsn: stream.lsn }.build();
            log.send(&stream.frame(&StreamFrame::Checkpoint { slot: 0, block: &block })).unwrap();
        }
        log.send(&stream.change(PAGE_NO, &[n as u8; 1000])).unwrap();
    }
    assert!(log.wait_durable(stream.seq));
    let deadline = Instant::now() + PATIENCE;
    while control.status().a_lsn < stream.lsn.0 {
        assert!(Instant::now() < deadline, "not applied: {:?}", control.status());
    }
    drop((log, control));
    node.stop();
    Prepared { directory, options, stream, generation }
}

impl Prepared {
    /// The only page file with user pages in it: that of tablespace 5.
    pub fn file(&self) -> PathBuf {
        let pages = self.directory.path().join("volumes/v/pages");
        let is_pages = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "pages");
        let mut files: Vec<_> =
            std::fs::read_dir(pages).unwrap().map(|entry| entry.unwrap().path()).filter(is_pages).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files.remove(0)
    }

    pub fn stored(&self) -> Vec<u8> {
        let mut page = vec![0; PAGE_LEN];
        let file = std::fs::File::open(self.file()).unwrap();
        file.read_exact_at(&mut page, u64::from(PAGE_NO) * PAGE_LEN as u64).unwrap();
        page
    }

    /// Puts back a page.
    pub fn store(&self, page: &[u8]) {
        let file = std::fs::File::options().write(true).open(self.file()).unwrap();
        file.write_all_at(page, u64::from(PAGE_NO) * PAGE_LEN as u64).unwrap();
        file.sync_all().unwrap();
    }

    /// Half of the page is from another write.
    pub fn damage(&self) {
        assert!(verify(&self.stored(), FLAGS).is_ok());
        let file = std::fs::File::options().write(true).open(self.file()).unwrap();
        file.write_all_at(&[0xdb; 512], u64::from(PAGE_NO) * PAGE_LEN as u64 + 4096).unwrap();
        file.sync_all().unwrap();
        assert!(verify(&self.stored(), FLAGS).is_err());
    }

    pub fn start(&mut self) -> (LocalNode, ControlClient) {
        let node = LocalNode::open(&self.options);
        let mut control = ControlClient::connect(node.address).unwrap();
        self.generation = control.attach("v").generation;
        (node, control)
    }
}

fn counter(control: &mut ControlClient, name: &str) -> u64 {
    control.status().counters.get(name).copied().unwrap()
}

/// A read finds the damage, which is then fixed in place.
fn is_rebuilt(mut prepared: Prepared, last: u8) {
    let whole = prepared.stored();
    // A start brings pages of the journal home, so it would fix this one.
    let (node, mut control) = prepared.start();
    prepared.damage();
    let mut pages = PageClient::connect(node.address, "v", prepared.generation).unwrap();
    let need = prepared.stream.seq;
    assert_eq!(changed(&mut pages, need, PAGE_NO, 1000), [last; 1000]);
    assert!(counter(&mut control, "pages_rebuilt") > 0);
    let deadline = Instant::now() + PATIENCE;
    while verify(&prepared.stored(), FLAGS).is_err() {
        assert!(Instant::now() < deadline, "not written again");
    }
    assert_eq!(prepared.stored(), whole);
    // An export that finds the damage does not return the page either.
    prepared.damage();
    let held = control.ask(&Request::ExportBegin { volume: "v".to_owned() }).unwrap();
    assert!(matches!(held, Reply::Attached(_)), "{held:?}");
    let request =
        Request::ExportFile { volume: "v".to_owned(), path: "d/t.ibd".to_owned(), with_damaged: false };
    let exported = control.file(&request).unwrap();
    let at = PAGE_NO as usize * PAGE_LEN;
    assert_eq!(exported[at..at + PAGE_LEN], whole);
    drop((pages, control));
    node.stop();
}

#[test]
fn from_redo_that_starts_the_page_anew() {
    is_rebuilt(prepare(PageProtection::Atomic, 20), 19);
}

#[test]
fn from_the_newest_image_of_the_journal() {
    // Too long for the log to reach back to the beginning of the page.
    is_rebuilt(prepare(PageProtection::Doublewrite, 200), 199);
}

#[test]
fn a_page_that_nothing_is_left_of_is_refused_with_the_reason() {
    let mut prepared = prepare(PageProtection::Atomic, 200);
    prepared.damage();
    let (node, mut control) = prepared.start();
    let mut pages = PageClient::connect(node.address, "v", prepared.generation).unwrap();
    let need = prepared.stream.seq;
    let file = pages.open(need, "d/t.ibd").unwrap().unwrap();
    let offset_bytes = u64::from(PAGE_NO) * PAGE_LEN as u64;
    let request = PageRequest::Read { need: Seq(need), file, offset_bytes, len_bytes: PAGE_LEN as u32 };
    let message = pages.ask(&request, |reply| match reply {
        PageReply::Failed { retry: false, message } => message,
        other => panic!("{other:?}"),
    });
    let message = message.unwrap();
    for part in ["d/t.ibd", "damaged", "cannot be rebuilt", "does not initialise it", "export"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // The other pages are served.
    let whole = PageRequest::Read { need: Seq(need), file, offset_bytes: 0, len_bytes: PAGE_LEN as u32 };
    assert!(pages.ask(&whole, |reply| matches!(reply, PageReply::Bytes(_))).unwrap());
    assert_eq!(counter(&mut control, "pages_rebuilt"), 0);
    drop((pages, control));
    node.stop();
}
