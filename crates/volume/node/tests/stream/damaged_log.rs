//! Damage in a part of the log that is applied: the volume can be exported, without the redo.

use super::client::ControlClient;
use super::frozen::{export_file, fill_segments, flip, log_of, require_refused};
use super::quarantine::{OTHER_PAGE, start};
use super::rescue::{PAGE_LEN, PAGE_NO, Prepared, prepare};
use super::running::LocalNode;
use redoubt_pagestore::PageProtection;
use redoubt_redo::mariadb::CheckpointBlock;
use redoubt_wire::control::{Attachment, Reply, Request};

const LOG_FILE: &str = "ib_logfile0";

fn begin_export(control: &mut ControlClient) -> Attachment {
    match control.ask(&Request::ExportBegin { volume: "v".to_owned() }).unwrap() {
        Reply::Attached(held) => held,
        other => panic!("{other:?}"),
    }
}

/// The log of the export has a checkpoint at the end of the stream, and is reported as damaged.
fn require_ended_log(control: &mut ControlClient, prepared: &Prepared) {
    let (log, reply) = control.file_and_reply(&export_file(LOG_FILE, true)).unwrap();
    let is_named = |first: &[String]| first.iter().any(|defect| defect.contains("redo cannot be read"));
    assert!(matches!(&reply, Reply::Damaged { pages: 1, first } if is_named(first)), "{reply:?}");
    let block = CheckpointBlock::parse(&log[4096..]).expect("a checkpoint");
    assert_eq!((block.checkpoint_lsn, block.end_lsn), (prepared.stream.lsn, prepared.stream.lsn));
}

#[test]
fn damage_before_the_applied_end_freezes_the_volume_there() {
    let prepared = prepare(PageProtection::Atomic, 20);
    let log = log_of(&prepared);
    let mark = [3; 500];
    let mut files = std::fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path());
    let found = files.find_map(|path| {
        let bytes = std::fs::read(&path).unwrap();
        bytes.windows(mark.len()).position(|window| window == mark).map(|at| (path, at))
    });
    let (path, at) = found.expect("an early change");
    flip(&path, at as u64);
    for _ in 0..2 {
        let node = LocalNode::open(&prepared.options);
        let mut control = ControlClient::connect(node.address).unwrap();
        let status = control.wait_state("frozen");
        assert!(status.reason.contains("not exact"), "{}", status.reason);
        assert!(!status.reason.contains("nothing acknowledged"), "{}", status.reason);
        let end = begin_export(&mut control).frozen.expect("the volume is frozen");
        assert_eq!((end.lsn, end.changes_end), (prepared.stream.lsn.0, Some(u64::MAX)));
        let (file, reply) = control.file_and_reply(&export_file("d/t.ibd", true)).unwrap();
        assert!(matches!(reply, Reply::Done), "{reply:?}");
        assert_eq!(file[PAGE_NO as usize * PAGE_LEN..][200..203], [19; 3]);
        require_ended_log(&mut control, &prepared);
        drop(control);
        node.stop();
    }
}

#[test]
fn damaged_segment_of_applied_redo_does_not_prevent_an_export() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let mut running = start(&mut prepared, 11);
    let segments = fill_segments(&mut prepared, &mut running);
    running.stop();
    flip(&segments[0].0, 100_000);
    let node = LocalNode::open(&prepared.options);
    let mut control = ControlClient::connect(node.address).unwrap();
    assert_eq!(begin_export(&mut control).frozen, None);
    require_refused(&control.ask(&export_file(LOG_FILE, false)).unwrap(), &["redo cannot be read"]);
    require_ended_log(&mut control, &prepared);
    let (file, reply) = control.file_and_reply(&export_file("d/t.ibd", true)).unwrap();
    assert!(matches!(reply, Reply::Done), "{reply:?}");
    assert_eq!(file[OTHER_PAGE as usize * PAGE_LEN..][200..203], [79; 3]);
    drop(control);
    node.stop();
}
