//! The scrub: damage that no read has met is found, repaired where that is certain, and else named.

use super::client::{ControlClient, PATIENCE};
use super::frozen::{fill_segments, flip};
use super::quarantine::{OTHER_PAGE, Running, own_file, start};
use super::rescue::{PAGE_LEN, PAGE_NO, Prepared, prepare};
use super::running::LocalNode;
use super::stored_files::plain_file;
use redoubt_node::ScrubOptions;
use redoubt_pagestore::PageProtection;
use redoubt_redo::mariadb::CheckpointBlock;
use redoubt_wire::control::{CheckProgress, Reply, Request};
use redoubt_wire::stream::{FileKind, StreamFrame};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn check(control: &mut ControlClient) -> CheckProgress {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let request = Request::VolumeCheck { volume: "v".to_owned() };
        match control.ask(&request).unwrap() {
            Reply::Checked(progress) if progress.is_complete => {
                assert_eq!((progress.unchecked, progress.first_unchecked.as_str()), (0, ""), "{progress:?}");
                return progress;
            }
            Reply::Checked(progress) => assert!(Instant::now() < deadline, "{progress:?}"),
            other => panic!("{other:?}"),
        }
    }
}

/// A change of the page that is applied.
fn change(prepared: &mut Prepared, running: &mut Running, data: &[u8]) {
    let wire = prepared.stream.change(PAGE_NO, data);
    running.send(&prepared.stream, &wire);
    running.control.wait_applied(prepared.stream.lsn.0);
}

#[test]
fn check_of_a_whole_volume_finds_nothing() {
    for protection in [PageProtection::Atomic, PageProtection::Doublewrite, PageProtection::Journal] {
        let mut prepared = prepare(protection, 20);
        let mut running = start(&mut prepared, 11);
        change(&mut prepared, &mut running, b"more");
        let checked = check(&mut running.control);
        assert!(checked.pages > u64::from(PAGE_NO) && checked.log_bytes > 0, "{checked:?}");
        assert_eq!((checked.damaged, checked.repaired, checked.log_damage.as_ref()), (0, 0, None));
        let scrub = running.control.status().scrub.unwrap();
        assert!(scrub.has_completed, "{scrub:?}");
        running.stop();
    }
}

#[test]
fn check_repairs_a_flipped_byte() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let whole = prepared.stored();
    let mut running = start(&mut prepared, 11);
    let mut rotten = whole.clone();
    rotten[9000] ^= 1;
    prepared.store(&rotten);
    let checked = check(&mut running.control);
    assert_eq!((checked.damaged, checked.repaired), (0, 1), "{checked:?}");
    assert_eq!(prepared.stored(), whole);
    running.stop();
}

#[test]
fn check_repairs_each_of_several_damaged_pages() {
    const PAGES: std::ops::Range<u32> = 3..7;
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let mut running = start(&mut prepared, 11);
    for page_no in PAGES {
        let wire = prepared.stream.change(page_no, b"whole");
        running.send(&prepared.stream, &wire);
    }
    running.control.wait_applied(prepared.stream.lsn.0);
    let whole = std::fs::read(prepared.file()).unwrap();
    let mut rotten = whole.clone();
    for page_no in PAGES {
        rotten[page_no as usize * PAGE_LEN + 9000] ^= 1;
    }
    // In place: the node has the file open.
    let file = std::fs::File::options().write(true).open(prepared.file()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &rotten, 0).unwrap();
    let checked = check(&mut running.control);
    assert_eq!((checked.damaged, checked.repaired), (0, u64::from(PAGES.end - PAGES.start)), "{checked:?}");
    assert!(std::fs::read(prepared.file()).unwrap() == whole, "each page is written again");
    running.stop();
}

#[test]
fn damaged_page_that_a_check_finds_is_listed_after_restarts() {
    let mut prepared = prepare(PageProtection::Atomic, 200);
    let whole = prepared.stored();
    prepared.damage();
    let mut running = start(&mut prepared, 11);
    assert_eq!(running.control.status().quarantined, 0);
    let checked = check(&mut running.control);
    assert_eq!((checked.damaged, checked.repaired), (1, 0), "{checked:?}");
    for session in [12, 13] {
        let status = running.control.status();
        assert_eq!(status.quarantined, 1, "{status:?}");
        let page = &status.quarantine[0];
        assert_eq!((page.file.as_str(), page.space, page.page_no), ("d/t.ibd", 5, Some(PAGE_NO)));
        assert!(page.reason.contains("found by the scrub") && page.lsn > 0, "{page:?}");
        // No record of it is left out.
        assert_eq!(own_file(&prepared, "quarantine"), None);
        running.stop();
        running = start(&mut prepared, session);
    }
    prepared.store(&whole);
    assert_eq!(check(&mut running.control).damaged, 0);
    assert_eq!(running.control.status().quarantined, 0);
    running.stop();
}

#[test]
fn older_version_of_a_page_is_rebuilt_from_the_log() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let mut running = start(&mut prepared, 11);
    change(&mut prepared, &mut running, b"first");
    let older = prepared.stored();
    change(&mut prepared, &mut running, b"newer");
    let newest = prepared.stored();
    assert_ne!(older, newest);
    prepared.store(&older);
    let checked = check(&mut running.control);
    assert_eq!((checked.damaged, checked.repaired), (0, 1), "{checked:?}");
    assert_eq!(prepared.stored(), newest);
    assert_eq!(running.control.status().counters["outdated_pages_rebuilt"], 1);
    running.stop();
}

#[test]
fn older_version_of_a_page_is_rebuilt_from_the_journal() {
    let mut prepared = prepare(PageProtection::Doublewrite, 200);
    let older = prepared.stored();
    let mut running = start(&mut prepared, 11);
    change(&mut prepared, &mut running, b"newer");
    let newest = prepared.stored();
    prepared.store(&older);
    let checked = check(&mut running.control);
    assert_eq!((checked.damaged, checked.repaired), (0, 1), "{checked:?}");
    assert_eq!(prepared.stored(), newest);
    running.stop();
}

#[test]
fn outdated_page_that_cannot_be_rebuilt_is_set_aside() {
    for is_zeroed in [false, true] {
        let mut prepared = prepare(PageProtection::Atomic, 200);
        let older = if is_zeroed { vec![0; PAGE_LEN] } else { prepared.stored() };
        let mut running = start(&mut prepared, 11);
        change(&mut prepared, &mut running, b"middle");
        for n in 0..130_u8 {
            let wire = prepared.stream.change(OTHER_PAGE, &[n; 1000]);
            running.send(&prepared.stream, &wire);
        }
        // The log begins at most 64 KiB before this, once more is applied.
        let lsn = prepared.stream.lsn;
        let block = CheckpointBlock { checkpoint_lsn: lsn, end_lsn: lsn }.build();
        let wire = [0, 1].map(|slot| prepared.stream.frame(&StreamFrame::Checkpoint { slot, block: &block }));
        running.send(&prepared.stream, &wire.concat());
        for data in [b"newer", b"newest"] as [&[u8]; 2] {
            change(&mut prepared, &mut running, data);
        }
        prepared.store(&older);
        let need = prepared.stream.seq;
        assert_eq!(running.refusal(need, PAGE_NO), None, "its checksum is right");
        let checked = check(&mut running.control);
        assert_eq!(checked.damaged, 1, "{checked:?}");
        for session in [12, 13] {
            let status = running.control.status();
            let page = &status.quarantine[0];
            assert_eq!((page.file.as_str(), page.page_no), ("d/t.ibd", Some(PAGE_NO)));
            assert!(page.reason.contains("lost a write") && page.lsn > 0, "{page:?}");
            assert!(running.refusal(prepared.stream.seq, PAGE_NO).unwrap().contains("quarantine"));
            assert_eq!(running.refusal(prepared.stream.seq, OTHER_PAGE), None);
            running.stop();
            running = start(&mut prepared, session);
        }
        running.stop();
    }
}

#[test]
fn damaged_segment_of_the_log_is_found_and_given_up() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let mut running = start(&mut prepared, 11);
    let segments = fill_segments(&mut prepared, &mut running);
    assert_eq!(check(&mut running.control).log_damage, None);
    flip(&segments[1].0, 100_000);
    let checked = check(&mut running.control);
    assert!(checked.log_damage.is_some() && checked.damaged == 0, "{checked:?}");
    assert_eq!(running.control.status().scrub.unwrap().log_damage, checked.log_damage);
    // Another server's start ends the log.
    let node = running.node.address;
    let mut control = ControlClient::connect(node).unwrap();
    control.attach("v");
    let deadline = Instant::now() + PATIENCE;
    while control.status().scrub.unwrap().log_damage.is_some() {
        assert!(Instant::now() < deadline, "{:?}", control.status());
    }
    drop(control);
    running.stop();
}

const FRM: &[u8] = b"content of a definition";

/// A volume with a plain file that is at rest and has a checksum, on a node that was started again.
fn with_plain_file() -> (Prepared, Running) {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let mut running = start(&mut prepared, 11);
    let path = b"a.frm";
    let frames = [
        StreamFrame::Create { path, kind: FileKind::Plain, mode: 0o660 },
        StreamFrame::Write { path, offset_bytes: 0, data: FRM },
    ];
    let mut wire: Vec<u8> = frames.iter().flat_map(|frame| prepared.stream.frame(frame)).collect();
    wire.extend(prepared.stream.change(OTHER_PAGE, b"more"));
    running.send(&prepared.stream, &wire);
    running.control.wait_applied(prepared.stream.lsn.0);
    let checked = check(&mut running.control);
    assert_eq!((checked.files, checked.new_files), (1, 0), "it was changed a short while ago: {checked:?}");
    running.stop();
    let mut running = start(&mut prepared, 12);
    let checked = check(&mut running.control);
    assert_eq!((checked.files, checked.new_files), (1, 1), "{checked:?}");
    (prepared, running)
}

#[test]
fn flipped_byte_of_a_short_plain_file_is_found() {
    let (mut prepared, running) = with_plain_file();
    let file = plain_file(&prepared, FRM);
    running.stop();
    flip(&file, 3);
    let mut running = start(&mut prepared, 13);
    assert_eq!(running.control.status().quarantined, 0);
    let checked = check(&mut running.control);
    assert_eq!(checked.damaged, 1, "{checked:?}");
    for session in [14, 15] {
        let status = running.control.status();
        let lost = &status.quarantine[0];
        assert_eq!((lost.file.as_str(), lost.restore_from.is_some()), ("a.frm", true), "{lost:?}");
        assert!(lost.reason.contains("checksum"), "{lost:?}");
        let fetch = Request::Fetch { volume: "v".to_owned(), path: "a.frm".to_owned() };
        let reply = running.control.ask(&fetch).unwrap();
        assert!(matches!(&reply, Reply::Failed { message, .. } if message.contains("checksum")), "{reply:?}");
        running.stop();
        running = start(&mut prepared, session);
        running.wait_quarantined(1);
    }
    // The server writes it again.
    let frames = [
        StreamFrame::SetLen { path: b"a.frm", len_bytes: 0 },
        StreamFrame::Write { path: b"a.frm", offset_bytes: 0, data: b"another" },
    ];
    let wire: Vec<u8> = frames.iter().flat_map(|frame| prepared.stream.frame(frame)).collect();
    running.send(&prepared.stream, &wire);
    running.wait_quarantined(0);
    running.stop();
}

#[test]
fn plain_file_that_its_server_changes_is_not_damaged() {
    let (mut prepared, mut running) = with_plain_file();
    let frame = StreamFrame::Write { path: b"a.frm", offset_bytes: 3, data: b"xyz" };
    let wire = prepared.stream.frame(&frame);
    running.send(&prepared.stream, &wire);
    assert_eq!(check(&mut running.control).damaged, 0);
    running.stop();
    let mut running = start(&mut prepared, 13);
    assert_eq!(check(&mut running.control).damaged, 0);
    running.stop();
}

#[test]
fn check_during_changes_finds_no_damage() {
    const CHECKS_BESIDE_CHANGES: usize = 10;
    const CHANGE_ROUNDS: usize = 600;
    for protection in [PageProtection::Atomic, PageProtection::Journal] {
        let mut prepared = prepare(protection, 20);
        let mut running = start(&mut prepared, 11);
        let address = running.node.address;
        let rounds = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let checking = scope.spawn(|| {
                let mut control = ControlClient::connect(address).unwrap();
                let deadline = Instant::now() + PATIENCE;
                let (mut checks, mut beside_changes) = (0, 0);
                while beside_changes < CHECKS_BESIDE_CHANGES {
                    assert!(Instant::now() < deadline, "{beside_changes} of {checks} checks beside changes");
                    let before = rounds.load(Ordering::Relaxed);
                    let checked = check(&mut control);
                    assert_eq!((checked.damaged, checked.repaired), (0, 0), "{checked:?}");
                    checks += 1;
                    beside_changes += usize::from(rounds.load(Ordering::Relaxed) > before);
                }
                checks
            });
            let mut round = 0;
            while round < CHANGE_ROUNDS || !checking.is_finished() {
                for page_no in PAGE_NO..PAGE_NO + 3 {
                    let wire = prepared.stream.change(page_no, &[round as u8; 2000]);
                    running.send(&prepared.stream, &wire);
                }
                round += 1;
                rounds.store(round, Ordering::Relaxed);
            }
            println!("{protection:?}: {} checks beside {round} rounds", checking.join().unwrap());
        });
        running.stop();
    }
}

#[test]
fn second_check_at_a_time_is_refused() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    // Slow enough for a second one.
    prepared.options.scrub.rate_bytes_per_second = 1;
    let running = start(&mut prepared, 11);
    let request = Request::VolumeCheck { volume: "v".to_owned() };
    let address = running.node.address;
    let slow = std::thread::spawn({
        let request = request.clone();
        move || drop(ControlClient::connect(address).unwrap().ask(&request))
    });
    let mut second = ControlClient::connect(address).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while running_stage(&mut second).is_empty() {
        assert!(Instant::now() < deadline, "the first check does not begin");
    }
    let refused = second.ask(&request).unwrap();
    let is_named = |message: &str| message.contains("another command");
    assert!(matches!(&refused, Reply::Failed { retry: true, message } if is_named(message)), "{refused:?}");
    drop(second);
    // The volume ends the waits of a check.
    running.stop();
    slow.join().unwrap();
}

#[test]
fn volume_that_is_deleted_ends_its_check() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    prepared.options.scrub.rate_bytes_per_second = 1;
    let running = start(&mut prepared, 11);
    let address = running.node.address;
    let slow = std::thread::spawn(move || {
        let request = Request::VolumeCheck { volume: "v".to_owned() };
        ControlClient::connect(address).unwrap().ask(&request).unwrap()
    });
    let mut control = ControlClient::connect(address).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while running_stage(&mut control).is_empty() {
        assert!(Instant::now() < deadline, "the check does not begin");
    }
    let delete = Request::VolumeDelete { volume: "v".to_owned(), force: true };
    let deleted = control.ask(&delete).unwrap();
    assert!(matches!(deleted, Reply::Done), "{deleted:?}");
    let ended = slow.join().unwrap();
    assert!(matches!(&ended, Reply::Failed { message, .. } if message.contains("deleted")), "{ended:?}");
    drop(control);
    running.stop();
}

fn running_stage(control: &mut ControlClient) -> String {
    control.status().scrub.unwrap().stage
}

#[test]
fn scrub_by_schedule_completes_and_is_remembered() {
    let mut prepared = prepare(PageProtection::Atomic, 200);
    prepared.damage();
    prepared.options.scrub = ScrubOptions {
        period: Some(Duration::from_secs(3600)),
        first_delay: Duration::ZERO,
        ..ScrubOptions::default()
    };
    let node = LocalNode::open(&prepared.options);
    let mut control = ControlClient::connect(node.address).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !control.status().scrub.unwrap().has_completed {
        assert!(Instant::now() < deadline, "{:?}", control.status().scrub);
    }
    let status = control.status();
    assert_eq!(status.quarantined, 1, "{status:?}");
    assert!(status.counters["scrubbed_bytes"] > PAGE_LEN as u64);
    drop(control);
    node.stop();
    prepared.options.scrub.period = None;
    let node = LocalNode::open(&prepared.options);
    let mut control = ControlClient::connect(node.address).unwrap();
    let status = control.status();
    let scrub = status.scrub.unwrap();
    assert!(scrub.has_completed && scrub.period_s.is_none(), "{scrub:?}");
    assert_eq!(status.quarantined, 1);
    drop(control);
    node.stop();
}
