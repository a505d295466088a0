//! Parsing speed of MySQL's redo on one core: mini-transactions found, records decoded and split into page runs, and
//! the same out of log blocks. The stream is synthetic, with record types and lengths close to those of a
//! transactional load; `REDOUBT_MYSQL_STREAM` names a file with payload of a real log instead, from the start of a
//! mini-transaction on.

#[path = "../tests/support/mysql_encoder.rs"]
mod encoder;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use redoubt_redo::mysql::record_reader::RecordReader;
use redoubt_redo::mysql::{LogFileName, LogObserver, block, walk_mtrs};
use redoubt_redo::{Lsn, Mtr};

const STREAM_BYTES: usize = 32 << 20;

fn main() {
    let (stream, records) = stream();
    println!("{} bytes, {} bytes per record", stream.len(), stream.len() as u64 / records);
    divan::main();
}

fn stream() -> (Vec<u8>, u64) {
    let mut bytes = match std::env::var_os("REDOUBT_MYSQL_STREAM") {
        Some(path) => std::fs::read(path).expect("the file can be read"),
        None => {
            let mut rng = fastrand::Rng::with_seed(42);
            let mut bytes = Vec::with_capacity(STREAM_BYTES + (1 << 20));
            while bytes.len() < STREAM_BYTES {
                bytes.extend(encoder::random_group(&mut rng));
            }
            bytes
        }
    };
    let mut records = 0;
    let count = &mut |mtr: &Mtr<'_, '_>| records += RecordReader::new(mtr.records).count() as u64;
    let walked = walk_mtrs(&bytes, Lsn(0), count).expect("the stream is valid");
    bytes.truncate(walked.len_bytes);
    (bytes, records)
}

fn walk(bytes: &[u8]) -> u64 {
    let mut sum = 0;
    let visitor = &mut |mtr: &Mtr<'_, '_>| {
        for run in mtr.runs {
            sum += run.page.page_no.0 as u64 + run.len_bytes as u64;
        }
    };
    let walked = walk_mtrs(bytes, Lsn(0), visitor).expect("the stream is valid");
    assert_eq!(walked.len_bytes, bytes.len());
    sum
}

/// Work of the node's parser.
#[divan::bench]
fn runs(bencher: Bencher<'_, '_>) {
    let (stream, records) = stream();
    bencher
        .counter(BytesCount::of_slice(&stream))
        .counter(ItemsCount::new(records))
        .bench(|| walk(black_box(&stream)));
}

/// Work of the observer in the server, 8 KiB a write.
#[divan::bench]
fn observer(bencher: Bencher<'_, '_>) {
    let (stream, _) = stream();
    let blocks: Vec<u8> = stream
        .chunks(block::PAYLOAD_BYTES)
        .zip((0..).step_by(block::PAYLOAD_BYTES))
        .flat_map(|(payload, start)| block::compose(Lsn(start), payload, None))
        .collect();
    bencher.counter(BytesCount::of_slice(&stream)).bench(|| {
        let mut observer = LogObserver::new(Lsn(0), [(0, 0)]);
        let mut sum = 0;
        for (write, offset) in black_box(&blocks).chunks(8192).zip((2048..).step_by(8192)) {
            let visitor = &mut |mtr: &Mtr<'_, '_>| sum += mtr.runs.len();
            observer.on_write(LogFileName::Log(0), offset, write, visitor).expect("valid");
        }
        sum
    });
}

/// The checksums of the blocks alone.
#[divan::bench]
fn checksums_alone(bencher: Bencher<'_, '_>) {
    let (stream, _) = stream();
    bencher
        .counter(BytesCount::of_slice(&stream))
        .bench(|| black_box(&stream).chunks(508).fold(0, |sum, piece| sum ^ crc32c::crc32c(piece)));
}
