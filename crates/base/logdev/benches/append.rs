//! One append and sync, for records of some lengths, on real files in the temporary directory.

use redoubt_logdev::{FileLogDevice, LogDevice, SegmentOptions};

fn main() {
    divan::main();
}

#[divan::bench(args = [512, 4096, 65536], max_time = 3)]
fn append_and_sync(bencher: divan::Bencher<'_, '_>, record_len: usize) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let log = FileLogDevice::open(dir.path(), SegmentOptions::default()).expect("a log");
    let record = vec![0x5a; record_len];
    bencher.counter(divan::counter::BytesCount::new(record_len)).bench_local(|| {
        log.append(&record).expect("append");
        let end = log.sync().expect("sync");
        log.discard_before(end).expect("discard");
    });
}

/// What the copy, the checksum and the write cost without a device.
#[divan::bench(args = [512, 4096, 65536], max_time = 1)]
fn append_only(bencher: divan::Bencher<'_, '_>, record_len: usize) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let log = FileLogDevice::open(dir.path(), SegmentOptions::default()).expect("a log");
    let record = vec![0x5a; record_len];
    bencher.counter(divan::counter::BytesCount::new(record_len)).bench_local(|| {
        let end = log.append(&record).expect("append");
        log.discard_before(end).expect("discard");
    });
}
