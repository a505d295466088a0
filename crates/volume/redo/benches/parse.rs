//! Parsing speed on one core: mini-transactions found, checksums verified, records decoded and split into
//! page runs. The stream is synthetic, with record kinds, lengths and bytes per record close to those of a
//! transactional load.

#[path = "../tests/support/encoder.rs"]
mod encoder;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use redoubt_redo::mariadb::{
    LogGeometry, LogObserver, MtrStep, RecordReader, SequenceRule, next_mtr, walk_mtrs,
};
use redoubt_redo::{Lsn, Mtr};

const STREAM_BYTES: usize = 32 << 20;

fn main() {
    let (stream, records) = stream();
    println!("{} bytes, {} bytes per record", stream.len(), stream.len() as u64 / records);
    divan::main();
}

fn stream() -> (Vec<u8>, u64) {
    let mut rng = fastrand::Rng::with_seed(42);
    let mut bytes = Vec::with_capacity(STREAM_BYTES + (1 << 20));
    let mut records = 0;
    while bytes.len() < STREAM_BYTES {
        let mtr = encoder::random_mtr(&mut rng);
        records += RecordReader::new(&mtr.records).count() as u64;
        bytes.extend(mtr.finish(1));
    }
    (bytes, records)
}

fn walk(bytes: &[u8], rule: SequenceRule<'_>) -> u64 {
    let mut sum = 0;
    let visitor = &mut |mtr: &Mtr<'_, '_>| {
        for run in mtr.runs {
            sum += run.page.page_no.0 as u64 + run.len_bytes as u64;
        }
    };
    let walked = walk_mtrs(bytes, Lsn(12_288), rule, visitor).expect("the stream is valid");
    assert_eq!(walked.len_bytes, bytes.len());
    sum
}

/// Work of the node's parser.
#[divan::bench]
fn checksums_and_runs(bencher: Bencher<'_, '_>) {
    let (stream, records) = stream();
    bencher
        .counter(BytesCount::of_slice(&stream))
        .counter(ItemsCount::new(records))
        .bench(|| walk(black_box(&stream), SequenceRule::Any));
}

/// The same with the sequence bit of each mini-transaction.
#[divan::bench]
fn checksums_runs_and_sequence_bits(bencher: Bencher<'_, '_>) {
    let (stream, _) = stream();
    let geometry = LogGeometry::new(Lsn(12_288), 1 << 30).expect("valid");
    bencher
        .counter(BytesCount::of_slice(&stream))
        .bench(|| walk(black_box(&stream), SequenceRule::Geometry(&geometry)));
}

/// Work of the observer in the server, 8 KiB a write.
#[divan::bench]
fn observer(bencher: Bencher<'_, '_>) {
    let (stream, _) = stream();
    let geometry = LogGeometry::new(Lsn(12_288), 1 << 30).expect("valid");
    bencher.counter(BytesCount::of_slice(&stream)).bench(|| {
        let mut observer = LogObserver::new(geometry, Lsn(12_288));
        let mut sum = 0;
        for (index, chunk) in black_box(&stream).chunks(8192).enumerate() {
            let visitor = &mut |mtr: &Mtr<'_, '_>| sum += mtr.runs.len();
            observer.on_write(12_288 + index as u64 * 8192, chunk, visitor).expect("valid");
        }
        sum
    });
}

/// Headers and checksums only.
#[divan::bench]
fn ends_and_checksums(bencher: Bencher<'_, '_>) {
    let (stream, _) = stream();
    bencher.counter(BytesCount::of_slice(&stream)).bench(|| {
        let mut at = 0;
        while let Ok(MtrStep::Mtr { total_len_bytes, .. }) = next_mtr(&black_box(&stream)[at..]) {
            at += total_len_bytes;
        }
        assert_eq!(at, stream.len());
    });
}

/// The checksum alone, over pieces as long as mini-transactions: what the rest is measured against.
#[divan::bench]
fn checksum_alone(bencher: Bencher<'_, '_>) {
    let (stream, _) = stream();
    bencher
        .counter(BytesCount::of_slice(&stream))
        .bench(|| black_box(&stream).chunks(340).fold(0, |sum, piece| sum ^ crc32c::crc32c(piece)));
}
