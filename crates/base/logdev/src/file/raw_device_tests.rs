//! A log of the file device on a raw block device.

use redoubt_storage::raw_device::{RawDevice, RawFormatOptions};
use redoubt_storage::{StorageError, Stream};

use super::*;

fn read_all(log: &FileLogDevice) -> Vec<u8> {
    let mut bytes = vec![0; (log.end().0 - log.start().0) as usize];
    log.read_at(log.start(), &mut bytes).unwrap();
    bytes
}

/// Opens a device that this process has just closed. A program that another test is starting has this process's open
/// files, and so holds their locks, until it runs.
fn open_again(path: &Path) -> Arc<RawDevice> {
    loop {
        match RawDevice::open(path) {
            Err(StorageError::InUse { .. }) => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

#[test]
fn a_log_runs_on_a_raw_device() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(8 << 20).unwrap();
    let format = RawFormatOptions { force: false, chunk_len_bytes: 64 << 10 };
    RawDevice::format(file.path(), format).unwrap();
    let segments = SegmentOptions { segment_len_bytes: 256 << 10, ..SegmentOptions::default() };
    let mut expected = Vec::new();
    let mut start = 0;
    for round in 0..3_u8 {
        let device = open_again(file.path());
        let dir = device.dir_in("log", Stream::Redo).unwrap();
        let log = FileLogDevice::open_on(dir, segments.clone()).unwrap();
        assert!(read_all(&log) == expected[log.start().0 as usize..], "{round}");
        for n in 0..200_u32 {
            let record: Vec<u8> = (0..n * 37 % 9000 + 1).map(|byte| (byte as u8) ^ round).collect();
            expected.extend_from_slice(&record);
            log.append(&record).unwrap();
            if n % 3 == 0 {
                assert_eq!(log.sync().unwrap(), Seq(expected.len() as u64));
            }
            if n % 50 == 0 {
                start = log.durable_end().0.saturating_sub(300_000).max(start);
                log.discard_before(Seq(start)).unwrap();
            }
        }
        log.sync().unwrap();
    }
}
