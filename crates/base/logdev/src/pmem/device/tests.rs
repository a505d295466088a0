//! Tests on real files: `/dev/shm`, which is tmpfs, and the temporary directory.

use std::sync::Barrier;

use redoubt_persistent_memory::PmemError;
use redoubt_storage::ErrorKind;

use super::*;
use crate::FileLogDevice;

fn memory_dir() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("pmem-log-").tempdir_in("/dev/shm").unwrap()
}

fn options(write_unit_bytes: usize) -> PmemLogOptions {
    PmemLogOptions {
        segments: SegmentOptions { segment_len_bytes: 16384, ..SegmentOptions::default() },
        write_unit_bytes,
        pretend: true,
        pin_writers: true,
    }
}

/// Cuts every segment under its mapping.
fn cut_segments(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("log-") {
            File::options().write(true).open(entry.path()).unwrap().set_len(0).unwrap();
        }
    }
}

fn read_all(log: &impl LogDevice) -> Vec<u8> {
    let mut bytes = vec![0; (log.end().0 - log.start().0) as usize];
    log.read_at(log.start(), &mut bytes).unwrap();
    bytes
}

#[test]
fn a_directory_without_dax_is_refused_and_left_as_it_was() {
    for dir in [tempfile::tempdir().unwrap(), memory_dir()] {
        let refused = PmemLogDevice::open(dir.path(), PmemLogOptions { pretend: false, ..options(64) });
        let error = refused.err().unwrap();
        let LogDeviceError::NotMappable { source, .. } = &error else { panic!("{error}") };
        assert!(
            matches!(source, PmemError::NotPersistent { .. } | PmemError::UnsupportedProcessor),
            "{error}"
        );
        assert_eq!(error.kind(), ErrorKind::Fatal);
        assert!(error.to_string().contains("use the file or block device instead"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let pretended = PmemLogDevice::open(dir.path(), options(64)).unwrap();
        assert_eq!(pretended.persistence(), Persistence::Pretended);
        assert!(pretended.info().detail.contains("NOTHING SURVIVES"), "{:?}", pretended.info());
    }
    let error = PmemLogDevice::open(memory_dir().path(), options(128)).err().unwrap();
    assert!(matches!(error, LogDeviceError::InvalidOption { option: "write_unit_bytes", .. }), "{error}");
}

#[test]
fn a_reopened_log_holds_what_was_appended() {
    for unit in WRITE_UNITS {
        let dir = memory_dir();
        let mut expected = Vec::new();
        for round in 0..4_u8 {
            let log = PmemLogDevice::open(dir.path(), options(unit)).unwrap();
            assert_eq!(read_all(&log), expected);
            for len in [1_usize, 7, 31, 32, 33, 96, 97, 500, 4096, 12_240, 12_256, 40_000, 0] {
                let record: Vec<u8> = (0..len).map(|n| (n as u8) ^ round).collect();
                expected.extend_from_slice(&record);
                assert_eq!(log.append(&record).unwrap(), Seq(expected.len() as u64));
                assert_eq!(log.durable_end(), log.end());
            }
            assert_eq!(log.sync().unwrap(), log.end());
            assert_eq!(read_all(&log), expected);
        }
    }
}

#[test]
fn another_device_reads_the_log_and_back() {
    let dir = memory_dir();
    let mut expected = Vec::new();
    for (round, unit) in [64, 512, 256, 64].into_iter().enumerate() {
        let log = PmemLogDevice::open(dir.path(), options(unit)).unwrap();
        assert_eq!(read_all(&log), expected);
        expected.extend_from_slice(&[round as u8; 777]);
        log.append(&[round as u8; 777]).unwrap();
        drop(log);
        let log = FileLogDevice::open(dir.path(), options(unit).segments).unwrap();
        assert_eq!(read_all(&log), expected);
        expected.extend_from_slice(&[round as u8; 55]);
        log.append(&[round as u8; 55]).unwrap();
        log.sync().unwrap();
    }
}

#[test]
fn written_bytes_count_headers_and_padding() {
    for (unit, record_len, in_file) in [(64, 32, 64), (64, 33, 128), (256, 33, 256), (512, 481, 1024)] {
        let dir = memory_dir();
        let log = PmemLogDevice::open(dir.path(), options(unit)).unwrap();
        let before = log.stats();
        for _ in 0..10 {
            log.append(&vec![1; record_len]).unwrap();
        }
        let after = log.stats();
        assert_eq!(after.bytes_appended - before.bytes_appended, 10 * record_len as u64);
        assert_eq!(after.bytes_written - before.bytes_written, 10 * in_file);
        assert_eq!(after.syncs - before.syncs, 10);
    }
}

#[test]
fn appends_of_many_threads_are_whole_and_durable_in_order() {
    const THREADS: usize = 8;
    const RECORDS: usize = 300;
    let dir = memory_dir();
    let log = PmemLogDevice::open(dir.path(), options(64)).unwrap();
    let taken: Vec<(u64, Vec<u8>)> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let log = &log;
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(thread as u64);
                    let appends = (0..RECORDS).map(|_| {
                        let record: Vec<u8> = (0..rng.usize(1..700)).map(|_| rng.u8(..)).collect();
                        let end = log.append(&record).unwrap();
                        assert!(log.durable_end() >= end);
                        let mut read = vec![0; record.len()];
                        log.read_at(Seq(end.0 - record.len() as u64), &mut read).unwrap();
                        assert!(read == record);
                        (end.0, record)
                    });
                    appends.collect::<Vec<_>>()
                })
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    let mut expected = taken;
    expected.sort_unstable_by_key(|(end, _)| *end);
    assert_eq!(expected.len(), THREADS * RECORDS);
    let expected: Vec<u8> = expected.into_iter().flat_map(|(_, record)| record).collect();
    assert!(read_all(&log) == expected);
    drop(log);
    assert!(read_all(&PmemLogDevice::open(dir.path(), options(64)).unwrap()) == expected);
}

#[test]
fn segments_are_used_again_while_others_append() {
    let dir = memory_dir();
    let mut options = options(256);
    options.segments.prepare_in_background = false;
    let log = PmemLogDevice::open(dir.path(), options).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    log.append(&[9; 600]).unwrap();
                    log.discard_before(log.durable_end()).unwrap();
                }
            });
        }
    });
    assert_eq!(log.end(), Seq(4 * 500 * 600));
    log.discard_before(log.end()).unwrap();
    assert!(log.stats().segments_recycled > 10, "{:?}", log.stats());
    assert!(read_all(&log).iter().all(|&byte| byte == 9));
    let error = log.discard_before(Seq(log.end().0 + 1)).unwrap_err();
    assert!(matches!(error, LogDeviceError::OutOfRange { .. }), "{error}");
    assert!(matches!(log.wait_durable(Seq(u64::MAX)), Err(LogDeviceError::OutOfRange { .. })));
    assert!(matches!(log.read_at(log.end(), &mut [0]), Err(LogDeviceError::OutOfRange { .. })));
}

#[test]
fn a_lost_page_stops_the_device_and_not_the_process() {
    const THREADS: usize = 4;
    let dir = memory_dir();
    let mut options = options(64);
    options.segments.segment_len_bytes = 1 << 20;
    let log = PmemLogDevice::open(dir.path(), options).unwrap();
    let step = Barrier::new(THREADS + 1);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..100 {
                    log.append(&[2; 300]).unwrap();
                }
                step.wait();
                step.wait();
                // The next store to the segment is a real SIGBUS.
                let error = log.append(&[2; 300]).unwrap_err();
                assert!(matches!(error, LogDeviceError::Poisoned { .. }), "{error}");
                assert!(error.to_string().contains("persistent memory failed"), "{error}");
            });
        }
        step.wait();
        cut_segments(dir.path());
        step.wait();
    });
    for error in [
        log.append(&[3]).unwrap_err(),
        log.append(&[]).unwrap_err(),
        log.sync().unwrap_err(),
        log.wait_durable(Seq(1)).unwrap_err(),
        log.read_at(Seq(0), &mut [0]).unwrap_err(),
        log.discard_before(Seq(0)).unwrap_err(),
    ] {
        assert!(matches!(error, LogDeviceError::Poisoned { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Fatal);
    }
}

/// On a real DAX mount: the guest with an emulated NVDIMM, or a machine that has persistent memory.
#[test]
#[ignore = "needs a directory on a DAX mount, named by REDOUBT_DAX_DIR"]
fn on_a_dax_mount_nothing_is_pretended() {
    let parent = redoubt_test_support::setting_os("REDOUBT_DAX_DIR")
        .expect("REDOUBT_DAX_DIR names a directory on a DAX mount");
    for unit in WRITE_UNITS {
        let dir = tempfile::tempdir_in(&parent).unwrap();
        let options = PmemLogOptions { pretend: false, ..options(unit) };
        let log = PmemLogDevice::open(dir.path(), options.clone()).unwrap();
        assert_eq!(log.persistence(), Persistence::MapSync);
        println!("{:?}", log.info());
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let log = &log;
                scope.spawn(move || {
                    for _ in 0..200 {
                        log.append(&[thread; 333]).unwrap();
                    }
                });
            }
        });
        let bytes = read_all(&log);
        assert_eq!(bytes.len(), 4 * 200 * 333);
        assert!(bytes.chunks(333).all(|record| record.iter().all(|&byte| byte == record[0])));
        drop(log);
        let log = PmemLogDevice::open(dir.path(), options).unwrap();
        assert!(read_all(&log) == bytes);
        log.append(&[1; 50]).unwrap();
        // The same signal that a failed module raises.
        cut_segments(dir.path());
        let error = log.append(&[1; 50]).unwrap_err();
        assert!(matches!(error, LogDeviceError::Poisoned { .. }), "{error}");
    }
}
