//! Speed of redo's path through the node on one core: parser and index, building a page, applying a table.

#![allow(clippy::unwrap_used)] // A benchmark fails by panicking.

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use encoder::MtrWriter;
use redoubt_node::apply::apply_tables;
use redoubt_node::construct::{StoredPages, construct};
use redoubt_node::figures::Worker;
use redoubt_node::home::Folder;
use redoubt_node::index::{Body, Entry, LogIndex, PageKey};
use redoubt_node::log_buffer::Chunk;
use redoubt_node::mark::Point;
use redoubt_node::namespace::Namespace;
use redoubt_node::parser::Parser;
use redoubt_node::plain::PlainStore;
use redoubt_page::{Format, SpaceFlags};
use redoubt_pagestore::{FilePageStore, FilePageStoreOptions, ObjectId};
use redoubt_redo::{Lsn, PageId, SpaceId};
use redoubt_sync::RwLock;
use redoubt_wire::Seq;
use std::path::Path;
use std::sync::Arc;

#[path = "../../redo/tests/support/encoder.rs"]
mod encoder;

fn main() {
    divan::main();
}

const END: Point = Point { seq: Seq(u64::MAX), lsn: Lsn(u64::MAX) };
const START: Point = Point { seq: Seq(0), lsn: Lsn(12_288) };
const FLAGS: SpaceFlags = SpaceFlags(0x15);
const FORMAT: Format = Format::of_mariadb(FLAGS);
const SPACE: u32 = 100;

/// Entries of a table's worth, spread over `pages` pages.
#[divan::bench(args = [1000, 100_000])]
fn insert(bencher: Bencher<'_, '_>, pages: u32) {
    const ENTRIES: u64 = 200_000;
    let mut random = fastrand::Rng::with_seed(1);
    let keys: Vec<_> =
        (0..ENTRIES).map(|_| PageKey::new(ObjectId(random.u32(..8)), random.u32(..pages))).collect();
    bencher.counter(ItemsCount::new(ENTRIES)).with_inputs(|| LogIndex::new(START)).bench_local_values(
        |index| {
            let table = index.open_table();
            for (number, key) in (0u64..).zip(&keys) {
                let body = Body::Run { chunk: 0, offset: 0, len: 80, reset: None };
                index.insert(&table, *key, Entry { start_lsn: Lsn(number), end_lsn: Lsn(number + 80), body });
            }
            index
        },
    );
}

/// A redo frame of about `len_bytes`.
fn frame(at: Point, redo: Vec<u8>) -> Arc<Chunk> {
    let end = Point { seq: Seq(at.seq.0 + 8 + redo.len() as u64), lsn: at.lsn.advance(redo.len() as u64) };
    let wire = [vec![0; 8], redo].concat();
    Arc::new(Chunk { kind: 1, logged: true, start: at, end, wire, raw: None })
}

/// Mini-transactions of a transactional load: 4 million pages (each run is for a page of its own) or 2000.
#[divan::bench(args = ["all pages cold", "2000 pages"])]
fn parse_and_index(bencher: Bencher<'_, '_>, pages: &str) {
    let mut random = fastrand::Rng::with_seed(1);
    let directory = tempfile::tempdir().unwrap();
    let mut frames = Vec::new();
    let mut at = START;
    for _ in 0..64 {
        let mut redo = Vec::new();
        while redo.len() < 128 << 10 {
            if pages == "2000 pages" {
                let mut mtr = MtrWriter::new();
                for _ in 0..random.usize(1..5) {
                    let page = (random.u32(1..9), random.u32(3..253));
                    mtr.write_absolute(page, random.u32(38..16_000), &[7; 60]).write(page, 20, &[7; 20]);
                }
                redo.extend(mtr.finish(1));
            } else {
                redo.extend(encoder::random_mtr(&mut random).finish(1));
            }
        }
        frames.push(frame(at, redo));
        at = frames.last().unwrap().end;
    }
    let bytes: usize = frames.iter().map(|chunk| chunk.wire.len()).sum();
    let plain = PlainStore::new(Folder::open(directory.path()).unwrap());
    bencher
        .counter(BytesCount::new(bytes))
        .with_inputs(|| (LogIndex::new(START), RwLock::new(Namespace::default())))
        .bench_local_values(|(index, names)| {
            let mut parser = Parser::new(&index, &names, &plain);
            for chunk in &frames {
                black_box(parser.handle(chunk).unwrap());
            }
            drop(parser);
            (index, names)
        });
}

/// An index with one closed table of `per_page` mini-transactions on each of `pages` pages, 40 bytes each, and the
/// number of mini-transactions.
fn filled(pages: u32, per_page: u32, plain: &PlainStore) -> (LogIndex, ObjectId, u64) {
    let names = RwLock::new(Namespace::default());
    let index = LogIndex::new(START);
    let mut redo = Vec::new();
    let mut first = MtrWriter::new();
    first.init((SPACE, 0)).write_absolute((SPACE, 0), 54, &FLAGS.0.to_be_bytes());
    redo.extend(first.finish(1));
    for round in 0..per_page {
        for page in 0..pages {
            let mut mtr = MtrWriter::new();
            let page = (SPACE, 3 + page);
            if round == 0 {
                mtr.init(page);
            }
            mtr.write_absolute(page, 100 + round * 40 % 16_000, &[round as u8; 40]);
            redo.extend(mtr.finish(1));
        }
    }
    let chunk = frame(START, redo);
    let mut parser = Parser::new(&index, &names, plain);
    parser.handle(&chunk).unwrap();
    parser.close_table(chunk.end);
    let object = names.read().known_object_of_space(SpaceId(SPACE)).unwrap();
    (index, object, u64::from(pages * per_page))
}

fn store(directory: &Path) -> FilePageStore {
    FilePageStore::open(directory, None, FilePageStoreOptions::default()).unwrap()
}

fn directory() -> tempfile::TempDir {
    // The benchmark measures the node's work, not the disk's.
    if Path::new("/dev/shm").is_dir() { tempfile::tempdir_in("/dev/shm") } else { tempfile::tempdir() }
        .unwrap()
}

#[divan::bench(args = [0, 1, 20, 200])]
fn construct_a_page_with_pending_runs(bencher: Bencher<'_, '_>, pending: u32) {
    let (plain_directory, store_directory) = (directory(), directory());
    let plain = PlainStore::new(Folder::open(plain_directory.path()).unwrap());
    let store = store(store_directory.path());
    let (base, object, _) = filled(1, 1, &plain);
    let describe = |key: PageKey| Some((PageId::new(SPACE, key.page_no()), Some(FORMAT)));
    apply_tables(
        StoredPages::without_rescue(&store),
        &[base.head().unwrap()],
        &Worker::several(1),
        &describe,
        &|_, _, _| Ok(()),
        &|_| {},
    )
    .unwrap();
    let index = LogIndex::new(START);
    let table = index.open_table();
    let key = PageKey::new(object, 3);
    let mut redo = Vec::new();
    for round in 0..pending {
        let mut mtr = MtrWriter::new();
        mtr.write((SPACE, 3), 100 + round * 40, &[round as u8; 40]);
        let (offset, len) = (redo.len() as u32, mtr.records.len() as u32);
        redo.extend(mtr.finish(1));
        let lsn = Lsn((1 << 30) + u64::from(round) * 100);
        let body = Body::Run { chunk: 0, offset, len, reset: None };
        index.insert(&table, key, Entry { start_lsn: lsn, end_lsn: lsn.advance(100), body });
    }
    table.add_chunk(&frame(START, redo));
    let page_id = PageId::new(SPACE, 3);
    bencher.bench_local(|| {
        construct(StoredPages::without_rescue(&store), &index, key, page_id, FORMAT, Some(END)).unwrap()
    });
}

/// One worker; the store is in memory where there is a file system for that.
#[divan::bench(args = [1, 10, 100])]
fn apply_a_table_with_records_per_page(bencher: Bencher<'_, '_>, per_page: u32) {
    let (plain_directory, store_directory) = (directory(), directory());
    let plain = PlainStore::new(Folder::open(plain_directory.path()).unwrap());
    let store = store(store_directory.path());
    let (index, _, records) = filled(2000, per_page, &plain);
    let table = index.head().unwrap();
    let describe = |key: PageKey| Some((PageId::new(SPACE, key.page_no()), Some(FORMAT)));
    bencher.counter(ItemsCount::new(records)).bench_local(|| {
        apply_tables(
            StoredPages::without_rescue(&store),
            std::slice::from_ref(&table),
            &Worker::several(1),
            &describe,
            &|_, _, _| Ok(()),
            &|_| {},
        )
        .unwrap()
    });
}
