//! One durable append in `/dev/shm`: the persistent-memory device with pretended persistence, against a write and
//! an `fdatasync` of a preallocated file. Both are in DRAM: this is the software's share and an upper bound, not the
//! speed of persistent memory.

use std::fs::File;
use std::os::unix::fs::FileExt;

use redoubt_logdev::LogDevice;
use redoubt_logdev::pmem::{PmemLogDevice, PmemLogOptions};
use redoubt_persistent_memory::Mapping;

const LENGTHS: [usize; 4] = [512, 1024, 4096, 8192];
const FILE_LEN: usize = 64 << 20;

fn main() {
    divan::main();
}

fn memory_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm")
}

/// A written file in memory.
fn written_file(dir: &tempfile::TempDir) -> File {
    let path = dir.path().join("file");
    std::fs::write(&path, vec![0; FILE_LEN]).expect("a file");
    File::options().read(true).write(true).open(path).expect("the file")
}

/// Offsets of records one after the other, from the start again at the end of the file.
fn next(at: &mut usize, len: usize) -> u64 {
    let here = *at;
    *at = if here + 2 * len > FILE_LEN { 0 } else { here + len };
    here as u64
}

#[divan::bench(args = LENGTHS, max_time = 2, sample_size = 100)]
fn pmem_log_append(bencher: divan::Bencher<'_, '_>, len: usize) {
    let dir = memory_dir();
    let options = PmemLogOptions { pretend: true, ..PmemLogOptions::default() };
    let log = PmemLogDevice::open(dir.path(), options).expect("a log");
    let record = vec![0x5a; len];
    let mut count = 0_u32;
    bencher.counter(divan::counter::BytesCount::new(len)).bench_local(|| {
        let end = log.append(&record).expect("append");
        count += 1;
        if count.is_multiple_of(1024) {
            log.discard_before(end).expect("discard");
        }
    });
}

/// The time of one append in each of many threads.
#[divan::bench(threads = [1, 2, 4, 16, 64], max_time = 2, sample_size = 200)]
fn pmem_log_append_512_by_threads(bencher: divan::Bencher<'_, '_>) {
    let dir = memory_dir();
    let options = PmemLogOptions { pretend: true, ..PmemLogOptions::default() };
    let log = PmemLogDevice::open(dir.path(), options).expect("a log");
    bencher.counter(divan::counter::ItemsCount::new(1_u32)).bench(|| {
        let end = log.append(&[0x5a; 512]).expect("append");
        if (end.0 / 512).is_multiple_of(8192) {
            log.discard_before(end).expect("discard");
        }
    });
}

#[divan::bench(args = LENGTHS, max_time = 1, sample_size = 100)]
fn mapped_store_and_fence(bencher: divan::Bencher<'_, '_>, len: usize) {
    let dir = memory_dir();
    let mapping = Mapping::map(written_file(&dir), FILE_LEN as u64, true).expect("a mapping");
    mapping.prefault();
    let record = vec![0x5a; len];
    let mut at = 0;
    bencher.counter(divan::counter::BytesCount::new(len)).bench_local(|| {
        mapping.write(next(&mut at, len), &record).expect("store");
        mapping.fence().expect("fence");
    });
}

#[divan::bench(args = LENGTHS, max_time = 1, sample_size = 100)]
fn pwrite_and_fdatasync(bencher: divan::Bencher<'_, '_>, len: usize) {
    let dir = memory_dir();
    let file = written_file(&dir);
    let record = vec![0x5a; len];
    let mut at = 0;
    bencher.counter(divan::counter::BytesCount::new(len)).bench_local(|| {
        file.write_all_at(&record, next(&mut at, len)).expect("write");
        file.sync_data().expect("sync");
    });
}
