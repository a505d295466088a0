//! Batches of pages of 16 KiB in each mode, on real files in the temporary directory; `atomic` only where that offers
//! untorn writes of 16 KiB.
//!
//! One batch of 1000 pages, neighbours or scattered; and 100 batches of 100 pages of which half are hot, for what
//! writing home later saves.

use redoubt_pagestore::{
    FilePageStore, FilePageStoreOptions, ObjectId, PageProtection, PageStore, PageWrite,
};
use redoubt_storage::{RealDir, StorageDir};

const PAGE_LEN: usize = 16384;
const PAGES: usize = 1000;
const MODES: [PageProtection; 3] =
    [PageProtection::Journal, PageProtection::Doublewrite, PageProtection::Atomic];

fn main() {
    divan::main();
}

/// A store with four objects. `None`: its directory does not offer the mode.
fn store(directory: &tempfile::TempDir, mode: PageProtection) -> Option<FilePageStore> {
    if mode == PageProtection::Atomic {
        let real = RealDir::open(directory.path()).expect("a directory");
        let limits = real.untorn_limits().expect("a probe");
        limits.filter(|limits| limits.allow(0, PAGE_LEN as u64))?;
    }
    let options = FilePageStoreOptions { protection: Some(mode), ..FilePageStoreOptions::default() };
    let store = FilePageStore::open(directory.path(), None, options).expect("a store");
    for object in 0..4 {
        store.create(ObjectId(object)).expect("create");
    }
    Some(store)
}

/// Neighbours in one object.
#[divan::bench(args = MODES, max_time = 6, sample_count = 20)]
fn batch_of_1000_neighbours(bencher: divan::Bencher<'_, '_>, mode: PageProtection) {
    write_batch(bencher, mode, 1);
}

/// Every seventh page, over four objects.
#[divan::bench(args = MODES, max_time = 6, sample_count = 20)]
fn batch_of_1000_scattered(bencher: divan::Bencher<'_, '_>, mode: PageProtection) {
    write_batch(bencher, mode, 7);
}

fn write_batch(bencher: divan::Bencher<'_, '_>, mode: PageProtection, stride: u32) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(store) = store(&directory, mode) else { return };
    let page = vec![0x5a; PAGE_LEN];
    let writes: Vec<_> = (0..PAGES as u32)
        .map(|n| PageWrite {
            object: ObjectId(if stride == 1 { 0 } else { n % 4 }),
            page_no: n * stride,
            page: &page,
        })
        .collect();
    bencher
        .counter(divan::counter::BytesCount::new(PAGES * PAGE_LEN))
        .bench_local(|| store.write_batch(&writes).expect("write_batch"));
}

#[divan::bench(args = MODES, max_time = 10, sample_count = 5)]
fn batches_with_hot_pages(bencher: divan::Bencher<'_, '_>, mode: PageProtection) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(store) = store(&directory, mode) else { return };
    let page = vec![0x5a; PAGE_LEN];
    let mut random = fastrand::Rng::with_seed(1);
    bencher.counter(divan::counter::BytesCount::new(100 * 100 * PAGE_LEN)).bench_local(|| {
        for _ in 0..100 {
            let writes: Vec<_> = (0..100)
                .map(|n| PageWrite {
                    object: ObjectId(0),
                    page_no: if n < 50 { random.u32(..200) } else { random.u32(200..8000) },
                    page: &page,
                })
                .collect();
            store.write_batch(&writes).expect("write_batch");
        }
    });
    let stats = store.stats();
    println!(
        "{mode}: {} pages written, {} home in {} writes, {} MiB to the journal, {} syncs",
        stats.pages_written,
        stats.pages_written_home,
        stats.home_writes,
        stats.bytes_written_journal >> 20,
        stats.syncs
    );
}
