//! Tests on real files. Those on a simulated disk are in `crash_tests`.

use redoubt_storage::ErrorKind;

use super::*;
use crate::MAX_RECORD_LEN_BYTES;

fn options() -> SegmentOptions {
    SegmentOptions { segment_len_bytes: 16384, ..SegmentOptions::default() }
}

fn read_all(log: &FileLogDevice) -> Vec<u8> {
    let mut bytes = vec![0; (log.end().0 - log.start().0) as usize];
    log.read_at(log.start(), &mut bytes).unwrap();
    bytes
}

#[test]
fn a_reopened_log_holds_what_was_synced() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for round in 0..4_u8 {
        let log = FileLogDevice::open(dir.path(), options()).unwrap();
        assert_eq!(read_all(&log), expected);
        for len in [1_usize, 7, 500, 4096, 12_240, 12_256, 40_000, 0] {
            let record: Vec<u8> = (0..len).map(|n| (n as u8) ^ round).collect();
            expected.extend_from_slice(&record);
            assert_eq!(log.append(&record).unwrap(), Seq(expected.len() as u64));
        }
        assert_eq!(log.sync().unwrap(), log.end());
        assert_eq!(read_all(&log), expected);
    }
}

#[test]
fn discarded_segments_are_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let options = SegmentOptions { prepare_in_background: false, ..options() };
    let log = FileLogDevice::open(dir.path(), options.clone()).unwrap();
    for n in 0..100_u64 {
        log.append(&[n as u8; 12_000]).unwrap();
        let end = log.sync().unwrap();
        log.discard_before(end).unwrap();
        assert!(end.0 - log.start().0 <= 16_384);
    }
    let stats = log.stats();
    assert!(stats.segments_created <= 3, "{stats:?}");
    assert!(stats.segments_recycled >= 90, "{stats:?}");
    assert!(std::fs::read_dir(dir.path()).unwrap().count() <= 4);
    assert!(matches!(log.read_at(Seq(0), &mut [0]), Err(LogDeviceError::OutOfRange { .. })));
    let (start, end) = (log.start(), log.end());
    drop(log);
    let log = FileLogDevice::open(dir.path(), options).unwrap();
    assert_eq!((log.start(), log.end()), (start, end));
    let kept = read_all(&log);
    assert!(kept.iter().rev().take(12_000).all(|&byte| byte == 99));
}

#[test]
fn a_log_that_is_discarded_late_is_not_made_anew_all_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let options = SegmentOptions { prepare_in_background: false, ..options() };
    let log = FileLogDevice::open(dir.path(), options).unwrap();
    for _ in 0..100 {
        let before = log.end();
        log.append(&[1; 12_000]).unwrap();
        // As the thread of its own does: at once, long before anything is given up.
        log.prepare_spare_segments().unwrap();
        log.sync().unwrap();
        log.discard_before(before).unwrap();
    }
    let stats = log.stats();
    assert!(stats.segments_created <= 8, "{stats:?}");
}

#[test]
fn what_the_caller_does_wrong_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let log = FileLogDevice::open(dir.path(), options()).unwrap();
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
    let second = FileLogDevice::open(dir.path(), options());
    assert!(matches!(second, Err(LogDeviceError::Locked { .. })));
    drop(second);
    drop(log);
    std::fs::write(dir.path().join("log-5.seg"), b"").unwrap();
    let error = FileLogDevice::open(dir.path(), options()).err().unwrap();
    assert!(matches!(error, LogDeviceError::BadSegment { .. }), "{error}");
}

#[test]
fn a_record_longer_than_a_segment_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let options = SegmentOptions { segment_len_bytes: 4 << 20, ..SegmentOptions::default() };
    let record: Vec<u8> = (0..10_000_000_u32).map(|n| (n / 7) as u8).collect();
    let log = FileLogDevice::open(dir.path(), options.clone()).unwrap();
    log.append(&record).unwrap();
    log.sync().unwrap();
    assert!(read_all(&log) == record);
    drop(log);
    assert!(read_all(&FileLogDevice::open(dir.path(), options).unwrap()) == record);
}

#[test]
fn syncs_of_many_threads_cover_their_own_appends() {
    let dir = tempfile::tempdir().unwrap();
    let log = FileLogDevice::open(dir.path(), options()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let end = log.append(&[7; 333]).unwrap();
                    assert!(log.sync().unwrap() >= end);
                }
            });
        }
    });
    assert_eq!(log.end(), Seq(400 * 333));
    assert_eq!(log.durable_end(), log.end());
}
