//! Tests on real files. Those on a simulated disk are in `crash_tests`.

use std::sync::atomic::{AtomicU64, Ordering};

use redoubt_storage::ErrorKind;

use super::*;
use crate::FileLogDevice;

fn segments() -> SegmentOptions {
    SegmentOptions { segment_len_bytes: 64 << 10, ..SegmentOptions::default() }
}

fn options() -> BlockLogOptions {
    BlockLogOptions { segments: segments(), ..BlockLogOptions::default() }
}

fn read_all(log: &dyn LogDevice) -> Vec<u8> {
    let mut bytes = vec![0; (log.end().0 - log.start().0) as usize];
    log.read_at(log.start(), &mut bytes).unwrap();
    bytes
}

#[test]
fn a_reopened_log_holds_what_was_synced() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for (round, unit) in [512, 512, 4096, 1024, 512].into_iter().enumerate() {
        let options = BlockLogOptions { write_unit_bytes: unit, ..options() };
        let log = BlockLogDevice::open(dir.path(), options).unwrap();
        assert_eq!(read_all(&log), expected);
        for len in [1_usize, 7, 480, 481, 4096, 12_240, 61_408, 61_409, 400_000, 0] {
            let record: Vec<u8> = (0..len).map(|n| (n as u8) ^ round as u8).collect();
            expected.extend_from_slice(&record);
            let end = log.append(&record).unwrap();
            assert_eq!(end, Seq(expected.len() as u64));
            assert_eq!(log.end(), end);
        }
        assert_eq!(log.sync().unwrap(), log.end());
        assert_eq!(log.durable_end(), log.end());
        assert_eq!(read_all(&log), expected);
    }
}

#[test]
fn each_device_opens_the_log_of_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for round in 0..6_u8 {
        let log: Box<dyn LogDevice> = if round % 2 == 0 {
            Box::new(FileLogDevice::open(dir.path(), segments()).unwrap())
        } else {
            Box::new(BlockLogDevice::open(dir.path(), options()).unwrap())
        };
        assert_eq!(read_all(&*log), expected, "round {round}");
        for len in [1_usize, 333, 5000, 70_000] {
            let record = vec![round + 1; len];
            expected.extend_from_slice(&record);
            log.append(&record).unwrap();
        }
        log.sync().unwrap();
        assert_eq!(read_all(&*log), expected, "round {round}");
    }
}

#[test]
fn waiting_for_a_position_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let log = BlockLogDevice::open(dir.path(), options()).unwrap();
    assert!(log.is_pipelined());
    let first = log.append(&[1; 100]).unwrap();
    let second = log.append(&[2; 100]).unwrap();
    assert!(log.wait_durable(first).unwrap() >= first);
    assert_eq!(log.wait_durable(second).unwrap(), second);
    assert_eq!(log.durable_end(), second);
    let error = log.wait_durable(Seq(201)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CallerBug, "{error}");
}

#[test]
fn nothing_is_lost_in_a_pipeline_that_nobody_waits_for() {
    let dir = tempfile::tempdir().unwrap();
    let log = BlockLogDevice::open(dir.path(), options()).unwrap();
    let mut expected = Vec::new();
    for n in 0..3000_u32 {
        let record = vec![n as u8; 1 + n as usize % 700];
        expected.extend_from_slice(&record);
        log.append(&record).unwrap();
    }
    assert!(read_all(&log) == expected);
    // Closing makes the rest durable.
    log.append(b"end").unwrap();
    drop(log);
    let log = BlockLogDevice::open(dir.path(), options()).unwrap();
    assert!(read_all(&log)[expected.len()..] == *b"end");
}

#[test]
fn discarded_segments_are_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let segments = SegmentOptions { prepare_in_background: false, ..segments() };
    let options = BlockLogOptions { segments, ..options() };
    let log = BlockLogDevice::open(dir.path(), options.clone()).unwrap();
    for n in 0..200_u64 {
        let end = log.append(&[n as u8; 12_000]).unwrap();
        log.discard_before(end).unwrap();
        assert!(end.0 - log.start().0 <= 65_536);
    }
    let stats = log.stats();
    assert!(stats.segments_created <= 3, "{stats:?}");
    assert!(stats.segments_recycled >= 30, "{stats:?}");
    assert!(matches!(log.read_at(Seq(0), &mut [0]), Err(LogDeviceError::OutOfRange { .. })));
    let (start, end) = (log.start(), log.end());
    drop(log);
    let log = BlockLogDevice::open(dir.path(), options).unwrap();
    assert_eq!((log.start(), log.end()), (start, end));
    assert!(read_all(&log).iter().rev().take(12_000).all(|&byte| byte == 199));
}

#[test]
fn what_the_caller_does_wrong_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let log = BlockLogDevice::open(dir.path(), options()).unwrap();
    log.append(b"abc").unwrap();
    let errors = [
        log.append(&vec![0; MAX_RECORD_LEN_BYTES + 1]).unwrap_err(),
        log.read_at(Seq(1), &mut [0; 3]).unwrap_err(),
        log.read_at(Seq(u64::MAX), &mut [0; 3]).unwrap_err(),
        log.discard_before(Seq(4)).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::CallerBug, "{error}");
    }
    assert_eq!(log.sync().unwrap(), Seq(3));
    assert_eq!(read_all(&log), b"abc");
    let second = BlockLogDevice::open(dir.path(), options());
    assert!(matches!(second, Err(LogDeviceError::Locked { .. })));
    for wrong in [
        BlockLogOptions { write_unit_bytes: 256, ..options() },
        BlockLogOptions { write_unit_bytes: 8192, ..options() },
        BlockLogOptions { max_in_flight: 0, ..options() },
        BlockLogOptions { group_len_bytes: 0, ..options() },
    ] {
        let error = BlockLogDevice::open(&dir.path().join("other"), wrong).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::CallerBug, "{error}");
    }
}

/// Many threads append records that name their thread and number, wait, and check that they are durable. The log
/// must hold all of them, in the order of positions, those of each thread in its order.
#[test]
fn threads_that_append_and_wait_all_find_their_records_again() {
    for (max_in_flight, eager_in_flight) in [(1, 1), (2, 1), (4, 2), (8, 8)] {
        let dir = tempfile::tempdir().unwrap();
        let options = BlockLogOptions { max_in_flight, eager_in_flight, ..options() };
        let log = BlockLogDevice::open(dir.path(), options.clone()).unwrap();
        let appended = Mutex::new(Vec::new());
        let reopened_at = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8_u32 {
                let (log, appended, reopened_at) = (&log, &appended, &reopened_at);
                scope.spawn(move || {
                    for number in 0..60_u32 {
                        let len = 8 + (thread * 131 + number * 577) as usize % 5000;
                        let mut record = vec![thread as u8; len];
                        record[..4].copy_from_slice(&thread.to_le_bytes());
                        record[4..8].copy_from_slice(&number.to_le_bytes());
                        let end = log.append(&record).unwrap();
                        appended.lock().push((end, record));
                        // Some leave it to others.
                        if number % 7 != thread % 7 {
                            assert!(log.wait_durable(end).unwrap() >= end);
                            assert!(log.durable_end() >= end);
                        }
                        reopened_at.fetch_max(end.0, Ordering::Relaxed);
                    }
                });
            }
        });
        let mut appended = appended.into_inner();
        appended.sort_unstable_by_key(|(end, _)| *end);
        let mut expected = Vec::new();
        for (end, record) in appended {
            expected.extend_from_slice(&record);
            assert_eq!(end.0, expected.len() as u64);
        }
        assert_eq!(log.end().0, reopened_at.into_inner());
        assert!(read_all(&log) == expected);
        drop(log);
        let log = BlockLogDevice::open(dir.path(), options).unwrap();
        assert!(read_all(&log) == expected);
    }
}

#[test]
fn many_clients_pay_little_for_padding() {
    let dir = tempfile::tempdir().unwrap();
    let segments = SegmentOptions { segment_len_bytes: 16 << 20, ..segments() };
    let log = BlockLogDevice::open(dir.path(), BlockLogOptions { segments, ..options() }).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16_u64 {
            let log = &log;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                for _ in 0..100 {
                    let end = log.append(&vec![7; rng.usize(2000..6000)]).unwrap();
                    log.wait_durable(end).unwrap();
                }
            });
        }
    });
    let stats = log.stats();
    assert_eq!(stats.bytes_appended, log.end().0);
    let ratio = stats.bytes_written as f64 / stats.bytes_appended as f64;
    assert!(ratio > 1.0 && ratio <= 1.06, "{ratio}: {stats:?}");
}

/// A follower that was offered the group finds no free slot, and sleeps again: the group must not count as taken.
#[test]
fn group_is_offered_again_when_its_follower_sleeps_again() {
    let mut pipeline = Pipeline::new(1, 512, 4096, 0);
    assert!(pipeline.gather(b"a record"));
    for _ in 0..3 {
        let follower = pipeline.follow(8);
        let mut woken = Vec::new();
        assert!(pipeline.offer_group(&mut woken));
        assert_eq!(woken.len(), 1);
        assert!(Arc::ptr_eq(&woken[0], &follower));
        // It is on its way.
        assert!(pipeline.offer_group(&mut woken) && woken.len() == 1);
    }
}
