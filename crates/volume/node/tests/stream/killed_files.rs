//! Page files that are damaged after the node was killed: the loss is noticed, although the list of files is older.

use super::client::{ControlClient, LogClient};
use super::encoder::MtrWriter;
use super::protocol::{Stream, changed};
use super::quarantine::start;
use super::rescue::{PAGE_LEN, PAGE_NO, Prepared};
use super::running::{NodeProcess, SMALL, options};
use super::stored_files::exported;
use redoubt_wire::control::Reply;
use redoubt_wire::stream::StreamFrame;

/// Pages that are initialised after the list of files was written. The page journal holds less than half of them.
const PAGES: std::ops::Range<u32> = 10..160;
/// They are initialised with so many checkpoints.
const STEPS: usize = 5;
/// The end of the cut file.
const CUT_PAGES: u32 = 20;

/// A killed node. With more `changes`, of 8000 bytes each, its log does not reach back to where the pages begin.
fn killed(changes: u32) -> Prepared {
    let directory = tempfile::tempdir().unwrap();
    let node = NodeProcess::start(directory.path(), SMALL);
    let mut control = ControlClient::connect(node.address).unwrap();
    control.create("v");
    let generation = control.attach("v").generation;
    let mut log = LogClient::connect(node.address, "v", generation, 1, 0).unwrap();
    let mut stream = Stream::new();
    let mut send = |wire: Vec<u8>, lsn: u64| {
        log.send(&wire).unwrap();
        control.wait_applied(lsn);
    };
    let len_bytes = u64::from(PAGES.end) * PAGE_LEN as u64;
    let wire = [stream.begin(4), stream.frame(&StreamFrame::SetLen { path: b"d/t.ibd", len_bytes })].concat();
    send(wire, stream.lsn.0);
    for numbers in PAGES.collect::<Vec<_>>().chunks(PAGES.len() / STEPS) {
        let mut wire = Vec::new();
        for page_no in numbers {
            let mut mtr = MtrWriter::new();
            mtr.init((5, *page_no)).write_absolute((5, *page_no), 200, b"first");
            wire.extend(stream.redo(&mtr));
        }
        send(wire, stream.lsn.0);
    }
    for n in 0..changes {
        let wire = stream.change(PAGE_NO, &[n as u8; 8000]);
        send(wire, stream.lsn.0);
    }
    node.kill();
    let options = options(directory.path(), SMALL);
    let prepared = Prepared { directory, options, stream, generation };
    let len_bytes = std::fs::metadata(prepared.file()).unwrap().len();
    assert!(len_bytes > 2 * u64::from(CUT_PAGES) * PAGE_LEN as u64, "{len_bytes}");
    prepared
}

/// How many of the pages are refused. The others are as they were.
fn refused(mut prepared: Prepared) -> u64 {
    let mut running = start(&mut prepared, 11);
    running.control.wait_applied(prepared.stream.lsn.0);
    let need = prepared.stream.seq;
    let mut refused = 0;
    for page_no in PAGES {
        match running.refusal(need, page_no) {
            Some(refusal) => {
                assert!(refusal.contains("quarantine"), "{refusal}");
                refused += 1;
            }
            None => assert_eq!(changed(&mut running.pages(), need, page_no, 5), b"first", "page {page_no}"),
        }
    }
    running.wait_quarantined(refused);
    let (_, reply) = exported(&mut running.control, "d/t.ibd", true);
    match reply {
        Reply::Done => assert_eq!(refused, 0),
        Reply::Damaged { pages, .. } => assert_eq!(refused, pages),
        other => panic!("{other:?}"),
    }
    running.stop();
    refused
}

fn cut(prepared: &Prepared) {
    let file = std::fs::File::options().write(true).open(prepared.file()).unwrap();
    file.set_len(u64::from(CUT_PAGES) * PAGE_LEN as u64).unwrap();
}

#[test]
fn pages_of_a_file_cut_after_a_kill_are_rebuilt_from_the_log() {
    let prepared = killed(0);
    cut(&prepared);
    assert_eq!(refused(prepared), 0);
}

#[test]
fn pages_of_a_file_cut_after_a_kill_are_set_aside() {
    let prepared = killed(200);
    cut(&prepared);
    assert!(refused(prepared) > 0);
}

#[test]
fn page_file_removed_after_a_kill_is_set_aside() {
    let mut prepared = killed(0);
    std::fs::remove_file(prepared.file()).unwrap();
    let mut running = start(&mut prepared, 11);
    let status = running.wait_quarantined(1);
    assert_eq!((status.quarantine[0].file.as_str(), status.quarantine[0].page_no), ("d/t.ibd", None));
    running.stop();
}
