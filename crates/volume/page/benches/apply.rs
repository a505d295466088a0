//! Speed of applying records on one core, and of constructing a page.
//!
//! The records are a page's life as an OLTP load writes it: inserts into an index page, small writes, moves,
//! and deletes.

#![allow(clippy::unwrap_used)] // A benchmark fails by panicking.

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use redoubt_page::mysql;
use redoubt_page::{Change, SpaceFlags, apply_changes, digest, finalize, verify};
use redoubt_redo::{Lsn, PageId};

const FLAGS: SpaceFlags = SpaceFlags(0x15);
const ID: PageId = PageId::new(100, 1000);
const PAGE_BYTES: usize = 16384;

fn main() {
    divan::main();
}

fn varint(out: &mut Vec<u8>, value: u32) {
    if value < 128 {
        out.push(value as u8);
    } else if value < 128 + 0x4000 {
        out.extend_from_slice(&(0x8000 | (value - 128) as u16).to_be_bytes());
    } else {
        let value = 0x00c0_0000 | (value - 16512);
        out.extend_from_slice(&value.to_be_bytes()[1..]);
    }
}

/// Append a record of page [`ID`]; the first one of a run carries the ids.
fn record(run: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    let mut body = Vec::new();
    let mut first = kind;
    if run.is_empty() {
        varint(&mut body, ID.space.0);
        varint(&mut body, ID.page_no.0);
    } else {
        first |= 0x80;
    }
    body.extend_from_slice(payload);
    if body.len() < 16 {
        run.push(first | body.len() as u8);
    } else {
        run.push(first);
        let mut length = Vec::new();
        // The length counts its own bytes beyond the first 15.
        for guess in 1..=3 {
            length.clear();
            varint(&mut length, (body.len() + guess - 15) as u32);
            if length.len() == guess {
                break;
            }
        }
        run.extend_from_slice(&length);
    }
    run.extend_from_slice(&body);
}

fn init_run() -> Vec<u8> {
    let mut run = Vec::new();
    record(&mut run, 0x10, &[]);
    record(&mut run, 0x20, &[1]);
    run
}

/// Insert a record of 60 data bytes in ascending order, then the small write that comes with most inserts.
fn insert_run(prev: u32, number: u8) -> Vec<u8> {
    let mut payload = vec![6];
    varint(&mut payload, prev - 99);
    varint(&mut payload, 1 << 3);
    payload.extend_from_slice(&[0, 0, 60]);
    payload.extend_from_slice(&[number; 60]);
    let mut run = Vec::new();
    record(&mut run, 0x20, &payload);
    run
}

fn write_run(offset: u32, data: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    varint(&mut payload, offset);
    payload.extend_from_slice(data);
    let mut run = Vec::new();
    record(&mut run, 0x30, &payload);
    run
}

/// One mini-transaction per run: an empty page, `n_inserts` inserts, each followed by `n_writes` updates.
fn life(n_inserts: u32, n_writes: u32) -> Vec<Vec<u8>> {
    let mut runs = vec![init_run()];
    let mut prev = 99;
    for number in 0..n_inserts {
        runs.push(insert_run(prev, number as u8));
        prev = 120 + number * 66 + 6;
        for write in 0..n_writes {
            runs.push(write_run(prev + 4 + write * 8, &number.to_be_bytes()));
        }
    }
    runs
}

fn changes(runs: &[Vec<u8>]) -> Vec<Change<'_>> {
    let change = |(number, run): (usize, &'_ Vec<u8>)| (Lsn(1000 + number as u64 * 100), run.len());
    runs.iter()
        .enumerate()
        .map(|(number, run)| {
            let (start_lsn, len_bytes) = change((number, run));
            Change { start_lsn, end_lsn: start_lsn.advance(len_bytes as u64 + 5), run }
        })
        .collect()
}

/// A chain from INIT_PAGE on; throughput is records per second.
#[divan::bench(args = [0, 1, 3])]
fn apply_chain(bencher: Bencher<'_, '_>, writes_per_insert: u32) {
    let runs = life(200, writes_per_insert);
    let changes = changes(&runs);
    let mut page = vec![0; PAGE_BYTES];
    bencher.counter(ItemsCount::new(changes.len() + 1)).bench_local(|| {
        apply_changes(black_box(&mut page), ID, FLAGS, false, changes.iter().copied()).unwrap()
    });
}

/// Cost of a page read: copy the stored image, apply 20 changes, write the checksum.
#[divan::bench]
fn construct_20_changes(bencher: Bencher<'_, '_>) {
    let runs = life(100, 1);
    let changes = changes(&runs);
    let (old, new) = changes.split_at(changes.len() - 20);
    let mut base = vec![0; PAGE_BYTES];
    apply_changes(&mut base, ID, FLAGS, false, old.iter().copied()).unwrap();
    let mut page = vec![0; PAGE_BYTES];
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| {
        page.copy_from_slice(black_box(&base));
        apply_changes(&mut page, ID, FLAGS, true, new.iter().copied()).unwrap();
        finalize(&mut page, FLAGS).unwrap();
    });
    verify(&page, FLAGS).unwrap();
}

/// Checksum of one page, as a read verifies it.
#[divan::bench]
fn verify_page(bencher: Bencher<'_, '_>) {
    let mut page = vec![0x5a; PAGE_BYTES];
    page[24..26].copy_from_slice(&17855u16.to_be_bytes());
    finalize(&mut page, FLAGS).unwrap();
    bencher.counter(BytesCount::new(PAGE_BYTES)).bench_local(|| verify(black_box(&page), FLAGS).unwrap());
}

/// Digest of one page, as self-verification computes it.
#[divan::bench]
fn digest_page(bencher: Bencher<'_, '_>) {
    let page = vec![0x5a; PAGE_BYTES];
    bencher.counter(BytesCount::new(PAGE_BYTES)).bench_local(|| digest(black_box(&page), FLAGS));
}

/// Description of a compact clustered index: an INT, the two system columns, `n` strings of which every second can be
/// NULL.
fn mysql_index(n: u8) -> Vec<u8> {
    let strings = (0..n).flat_map(|number| if number % 2 == 0 { [0x80, 0] } else { [0, 0] });
    [1, 1, 0, 3 + n, 0, 1, 0x80, 4, 0x80, 6, 0x80, 7].into_iter().chain(strings).collect()
}

/// The same life of a page as redo of MySQL: records of 77 bytes with 4 strings, each inserted as a whole.
fn mysql_life(n_inserts: u8, n_writes: u8) -> Vec<Vec<u8>> {
    let ids = [100, 0x83, 0xe8];
    let head = |kind: u8| [&[kind][..], &ids].concat();
    let mut runs = vec![[head(59), head(37)].concat()];
    let mut previous = 99u16;
    for number in 0..n_inserts {
        let header = [15, 15, 15, 15, 0, 0, 0, 0, 0, 0];
        let record = [&header[..], &[number; 77]].concat();
        let mut run = [head(67), mysql_index(4), previous.to_be_bytes().to_vec()].concat();
        let encoded = record.len() as u16 * 2 + 1;
        run.extend((0x8000 | encoded).to_be_bytes());
        run.extend([0, header.len() as u8, 0]);
        run.extend(&record);
        runs.push(run);
        previous = 120 + u16::from(number) * 87 + 10;
        for write in 0..n_writes {
            let offset = previous + 20 + u16::from(write);
            runs.push([&head(1)[..], &offset.to_be_bytes(), &[number & 0x7f]].concat());
        }
    }
    runs
}

/// [`apply_chain`] of MySQL.
#[divan::bench(args = [0, 1, 3])]
fn mysql_apply_chain(bencher: Bencher<'_, '_>, writes_per_insert: u8) {
    let runs = mysql_life(170, writes_per_insert);
    let changes = changes(&runs);
    let mut page = vec![0; PAGE_BYTES];
    let mut scratch = mysql::Scratch::default();
    bencher.counter(ItemsCount::new(changes.len() + 1)).bench_local(|| {
        let changes = changes.iter().copied();
        mysql::apply_changes(black_box(&mut page), ID, mysql::Flags(0), false, changes, &mut scratch).unwrap()
    });
}

/// [`construct_20_changes`] of MySQL.
#[divan::bench]
fn mysql_construct_20_changes(bencher: Bencher<'_, '_>) {
    let runs = mysql_life(100, 1);
    let changes = changes(&runs);
    let (old, new) = changes.split_at(changes.len() - 20);
    let mut base = vec![0; PAGE_BYTES];
    let flags = mysql::Flags(0);
    let mut scratch = mysql::Scratch::default();
    mysql::apply_changes(&mut base, ID, flags, false, old.iter().copied(), &mut scratch).unwrap();
    let mut page = vec![0; PAGE_BYTES];
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| {
        page.copy_from_slice(black_box(&base));
        mysql::apply_changes(&mut page, ID, flags, true, new.iter().copied(), &mut scratch).unwrap();
        mysql::finalize(&mut page, flags).unwrap();
    });
    mysql::verify(&page, flags).unwrap();
}

/// [`digest_page`] of MySQL.
#[divan::bench]
fn mysql_digest_page(bencher: Bencher<'_, '_>) {
    let page = vec![0x5a; PAGE_BYTES];
    bencher.counter(BytesCount::new(PAGE_BYTES)).bench_local(|| mysql::digest(black_box(&page)));
}
