//! One batch of 1000 pages of 16 KiB, neighbours and scattered, on real files in the temporary directory.

use redoubt_pagestore::{FilePageStore, FilePageStoreOptions, ObjectId, PageStore, PageWrite};

const PAGE_LEN: usize = 16384;
const PAGES: usize = 1000;

fn main() {
    divan::main();
}

/// `stride` 1: neighbours in one object. Otherwise every `stride`th page, over four objects.
#[divan::bench(args = [1, 7], max_time = 6, sample_count = 20)]
fn write_batch_of_1000_pages(bencher: divan::Bencher<'_, '_>, stride: u32) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = FilePageStore::open(dir.path(), None, FilePageStoreOptions::default()).expect("a store");
    for object in 0..4 {
        store.create(ObjectId(object)).expect("create");
    }
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
