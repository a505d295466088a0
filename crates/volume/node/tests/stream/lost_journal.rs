//! A page journal that is lost while the node is down: its pages are rebuilt from page files and log.

use super::client::ControlClient;
use super::frozen::{fill_segments, flip, segments};
use super::protocol::changed;
use super::quarantine::{OTHER_PAGE, Running, start};
use super::rescue::{PAGE_NO, Prepared, prepare};
use super::running::LocalNode;
use redoubt_pagestore::PageProtection;
use redoubt_redo::mariadb::CheckpointBlock;
use redoubt_wire::stream::StreamFrame;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Beginning of the journal that has its two superblocks.
const SUPERBLOCKS_LEN: usize = 8192;

fn journal(prepared: &Prepared) -> PathBuf {
    prepared.directory.path().join("volumes/v/pages/pages.journal")
}

fn remove(path: &Path) {
    std::fs::remove_file(path).unwrap();
}

fn cut(path: &Path) {
    File::options().write(true).open(path).unwrap().set_len(100_000).unwrap();
}

fn clear_superblocks(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&[0; SUPERBLOCKS_LEN], 0).unwrap();
}

/// A volume whose page files have old versions of both pages.
fn prepare_old_pages() -> Prepared {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let mut running = start(&mut prepared, 2);
    let wire = prepared.stream.change(OTHER_PAGE, b"old");
    running.send(&prepared.stream, &wire);
    running.control.wait_applied(prepared.stream.lsn.0);
    running.stop();
    prepared.options.pages.protection = Some(PageProtection::Journal);
    prepared.options.pages.pretend_atomic = false;
    prepared
}

/// Changes both pages, and the server's checkpoint moves to the end of the log.
fn change_both(prepared: &mut Prepared, running: &mut Running, data: &[u8]) {
    for page_no in [PAGE_NO, OTHER_PAGE] {
        let wire = prepared.stream.change(page_no, data);
        running.send(&prepared.stream, &wire);
    }
    let lsn = prepared.stream.lsn;
    let block = CheckpointBlock { checkpoint_lsn: lsn, end_lsn: lsn }.build();
    let mut wire = prepared.stream.frame(&StreamFrame::Checkpoint { slot: 0, block: &block });
    wire.extend(prepared.stream.change(PAGE_NO, data));
    running.send(&prepared.stream, &wire);
    running.control.wait_applied(prepared.stream.lsn.0);
}

fn require_both(prepared: &Prepared, running: &mut Running, data: &[u8]) {
    for page_no in [PAGE_NO, OTHER_PAGE] {
        let need = prepared.stream.seq;
        assert_eq!(changed(&mut running.pages(), need, page_no, data.len()), data, "page {page_no}");
    }
}

fn pages_rebuilt(running: &mut Running) -> u64 {
    running.control.status().counters.get("pages_rebuilt").copied().unwrap()
}

#[test]
fn lost_page_journal_is_rebuilt_from_page_files_and_log() {
    let mut prepared = prepare_old_pages();
    let mut session = 10;
    for lose in [remove, cut, clear_superblocks] {
        let data = [session as u8; 50];
        let mut running = start(&mut prepared, session);
        change_both(&mut prepared, &mut running, &data);
        running.stop();
        lose(&journal(&prepared));
        let mut running = start(&mut prepared, session + 1);
        require_both(&prepared, &mut running, &data);
        assert_eq!(pages_rebuilt(&mut running), 2);
        running.wait_quarantined(0);
        running.stop();
        assert!(!journal(&prepared).with_extension("journal.lost").exists());
        // The new journal has them.
        let mut running = start(&mut prepared, session + 2);
        require_both(&prepared, &mut running, &data);
        assert_eq!(pages_rebuilt(&mut running), 0);
        running.stop();
        session += 3;
    }
}

#[test]
fn log_that_is_kept_for_the_page_journal_has_a_bound() {
    let mut prepared = prepare_old_pages();
    prepared.options.pages.journal_len_bytes = 256 << 10;
    let mut running = start(&mut prepared, 11);
    // Its newest image replaces each older one, so it would never go home.
    for _ in 0..3 {
        fill_segments(&mut prepared, &mut running);
    }
    change_both(&mut prepared, &mut running, b"newest");
    change_both(&mut prepared, &mut running, b"newest");
    let first = segments(&prepared)[0].1;
    let most_bytes = prepared.options.pages.journal_len_bytes + 3 * prepared.options.log.segment_len_bytes;
    assert!(prepared.stream.seq - first <= most_bytes, "{first} of {}", prepared.stream.seq);
    running.stop();
    remove(&journal(&prepared));
    let mut running = start(&mut prepared, 12);
    require_both(&prepared, &mut running, b"newest");
    running.stop();
}

#[test]
fn journal_lost_with_its_log_can_be_put_back() {
    let mut prepared = prepare_old_pages();
    let mut running = start(&mut prepared, 11);
    let data = [9; 500];
    change_both(&mut prepared, &mut running, &data);
    running.stop();
    let (journal, copy) = (journal(&prepared), prepared.directory.path().join("copy"));
    std::fs::rename(&journal, &copy).unwrap();
    let find =
        |path: &PathBuf| std::fs::read(path).unwrap().windows(data.len()).position(|window| window == data);
    let segments: Vec<_> = segments(&prepared).into_iter().map(|(path, _)| path).collect();
    let (segment, at) = segments.iter().find_map(|path| Some((path, find(path)?))).expect("the change");
    flip(segment, at as u64);
    for _ in 0..2 {
        let node = LocalNode::open(&prepared.options);
        let mut control = ControlClient::connect(node.address).unwrap();
        let reason = control.wait_state("unusable").reason;
        for part in ["pages.journal", "put it back", "log cannot take its place"] {
            assert!(reason.contains(part), "{part}: {reason}");
        }
        drop(control);
        node.stop();
        assert!(!journal.exists(), "nothing was made in its place");
    }
    flip(segment, at as u64);
    std::fs::rename(&copy, &journal).unwrap();
    let mut running = start(&mut prepared, 12);
    require_both(&prepared, &mut running, &data);
    assert_eq!(pages_rebuilt(&mut running), 0);
    running.stop();
}

/// Removes the cover from the checkpoint, as a build before it writes that.
fn remove_cover(prepared: &Prepared) {
    for name in ["checkpoint", "checkpoint.copy"] {
        let path = prepared.directory.path().join("volumes/v").join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        let (_, body) = text.split_once('\n').unwrap();
        let mut body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert!(body.as_object_mut().unwrap().remove("cover").is_some());
        let body = body.to_string();
        std::fs::write(&path, format!("{:08x}\n{body}", crc32c::crc32c(body.as_bytes()))).unwrap();
    }
}

#[test]
fn log_of_an_older_build_does_not_take_the_place_of_a_journal() {
    let mut prepared = prepare_old_pages();
    let mut running = start(&mut prepared, 11);
    change_both(&mut prepared, &mut running, b"before");
    running.stop();
    remove_cover(&prepared);
    let (journal, copy) = (journal(&prepared), prepared.directory.path().join("copy"));
    std::fs::rename(&journal, &copy).unwrap();
    let node = LocalNode::open(&prepared.options);
    let mut control = ControlClient::connect(node.address).unwrap();
    let reason = control.wait_state("unusable").reason;
    assert!(reason.contains("put it back") && reason.contains("not known"), "{reason}");
    drop(control);
    node.stop();
    std::fs::rename(&copy, &journal).unwrap();
    // This build writes the pages of that time to their files.
    let mut running = start(&mut prepared, 12);
    let wire = prepared.stream.change(PAGE_NO, b"after ");
    running.send(&prepared.stream, &wire);
    running.control.wait_applied(prepared.stream.lsn.0);
    running.stop();
    remove(&journal);
    let running = start(&mut prepared, 13);
    let need = prepared.stream.seq;
    assert_eq!(changed(&mut running.pages(), need, OTHER_PAGE, 6), b"before");
    assert_eq!(changed(&mut running.pages(), need, PAGE_NO, 6), b"after ");
    running.stop();
}
