//! Damage in a part of the log that is applied, and files of the log that are missing or cut: the volume can be exported,
//! without the redo, and continues with a copy of the files.

use super::client::ControlClient;
use super::cut_files::change;
use super::frozen::{export_file, fill_segments, flip, log_of, prepare_long_log, require_refused, segments};
use super::quarantine::{OTHER_PAGE, start};
use super::rescue::{PAGE_LEN, PAGE_NO, Prepared, prepare};
use super::running::LocalNode;
use redoubt_pagestore::PageProtection;
use redoubt_redo::mariadb::CheckpointBlock;
use redoubt_wire::control::{Attachment, Reply, Request};
use std::fs::File;
use std::path::Path;

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

/// The volume is frozen at its end, and an export has its pages.
fn require_frozen_at_end(prepared: &Prepared, part: &str) {
    for _ in 0..2 {
        let node = LocalNode::open(&prepared.options);
        let mut control = ControlClient::connect(node.address).unwrap();
        let reason = control.wait_state("frozen").reason;
        assert!(reason.contains(part) && reason.contains("put back"), "{reason}");
        let end = begin_export(&mut control).frozen.expect("the volume is frozen");
        assert_eq!((end.lsn, end.changes_end), (prepared.stream.lsn.0, Some(u64::MAX)), "{part}");
        let (file, reply) = control.file_and_reply(&export_file("d/t.ibd", true)).unwrap();
        assert!(matches!(reply, Reply::Done), "{part}: {reply:?}");
        assert_eq!(file[PAGE_NO as usize * PAGE_LEN..][200..203], [19; 3], "{part}");
        require_ended_log(&mut control, prepared);
        drop(control);
        node.stop();
    }
}

fn cut(path: &Path, len_bytes: u64) {
    File::options().write(true).open(path).unwrap().set_len(len_bytes).unwrap();
}

/// The way out of the message.
fn remove_note(prepared: &Prepared) {
    std::fs::remove_file(prepared.directory.path().join("volumes/v/frozen")).unwrap();
}

#[test]
fn log_without_its_only_file_is_exported_and_continues_with_it() {
    for (number, part) in (0..).zip(["files of the log are missing", "bytes long", "header"]) {
        let mut prepared = prepare(PageProtection::Atomic, 20);
        let [(path, _)] = &segments(&prepared)[..] else { panic!("one segment") };
        let copy = std::fs::read(path).unwrap();
        match number {
            0 => std::fs::remove_file(path).unwrap(),
            1 => cut(path, 8192),
            _ => flip(path, 20),
        }
        require_frozen_at_end(&prepared, part);
        // Nothing was made in its place.
        assert_eq!((path.exists(), segments(&prepared).len()), (number > 0, usize::from(number > 0)));
        std::fs::write(path, &copy).unwrap();
        remove_note(&prepared);
        change(&mut prepared, 12 + number);
    }
}

#[test]
fn log_that_was_cut_behind_its_records_is_not_frozen() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let [(path, _)] = &segments(&prepared)[..] else { panic!("one segment") };
    let len_bytes = path.metadata().unwrap().len();
    let used = std::fs::read(path).unwrap().iter().rposition(|byte| *byte != 0).unwrap() as u64;
    cut(path, used + 1000);
    let path = path.clone();
    change(&mut prepared, 12);
    assert_eq!(path.metadata().unwrap().len(), len_bytes);
}

#[test]
fn volume_stays_frozen_if_damaged_files_of_its_log_are_removed() {
    let mut prepared = prepare_long_log();
    let segments = segments(&prepared);
    let (damaged, first_seq) = &segments[segments.len() - 2];
    flip(damaged, 20);
    let copies: Vec<_> = segments[segments.len() - 2..].iter().map(|(path, _)| path.clone()).collect();
    let copies: Vec<_> = copies.into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect();
    for round in 0..3 {
        let node = LocalNode::open(&prepared.options);
        let mut control = ControlClient::connect(node.address).unwrap();
        let status = control.wait_state("frozen");
        let end = status.d_seq.unwrap();
        assert!(end <= *first_seq && first_seq - end < 100_000, "{end} of {first_seq}: {}", status.reason);
        let frozen = begin_export(&mut control).frozen.expect("the volume is frozen");
        assert!(frozen.bytes_after > 0, "round {round}: {frozen:?}");
        drop(control);
        node.stop();
        // The last, then the damaged one, too: the log ends before the damage then, as if it were whole.
        if let Some((_, path)) = copies.iter().rev().nth(round) {
            std::fs::remove_file(path).unwrap();
        }
    }
    copies.iter().for_each(|(bytes, path)| std::fs::write(path, bytes).unwrap());
    flip(damaged, 20);
    remove_note(&prepared);
    change(&mut prepared, 12);
}
