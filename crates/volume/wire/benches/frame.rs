//! Speed of framing: checksums, decoding, compression.
//!
//! The payloads are redo: random bytes in small records for framing, rows of text for compression.

#![allow(clippy::unwrap_used)] // A benchmark fails by panicking.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use redoubt_wire::frame::{append_frame, compress, decompress};
use redoubt_wire::stream::{StreamFrame, decode};
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES};

#[path = "../../redo/tests/support/encoder.rs"]
mod encoder;

fn main() {
    divan::main();
}

const LENS: [usize; 3] = [512, 16 << 10, 256 << 10];

/// About `len_bytes` of whole mini-transactions.
fn redo(len_bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut bytes = Vec::new();
    while bytes.len() < len_bytes {
        bytes.extend(encoder::random_mtr(&mut random).finish(1));
    }
    bytes
}

#[divan::bench(args = LENS)]
fn encode(bencher: Bencher<'_, '_>, len_bytes: usize) {
    let payload = redo(len_bytes);
    let mut out = Vec::with_capacity(payload.len() + HEADER_LEN_BYTES);
    bencher.counter(BytesCount::new(payload.len())).bench_local(|| {
        out.clear();
        append_frame(&mut out, 1, black_box(7), black_box(&payload)).unwrap();
        out.len()
    });
}

#[divan::bench(args = LENS)]
fn check_and_decode(bencher: Bencher<'_, '_>, len_bytes: usize) {
    let payload = redo(len_bytes);
    let mut frame = Vec::new();
    append_frame(&mut frame, 1, 7, &payload).unwrap();
    bencher.counter(BytesCount::new(payload.len())).bench_local(|| {
        let frame = black_box(&frame);
        let header = FrameHeader::decode(frame.first_chunk().unwrap());
        let payload = &frame[HEADER_LEN_BYTES..];
        header.check(7, payload).unwrap();
        matches!(decode(header.kind, payload).unwrap(), StreamFrame::Redo(_))
    });
}

/// Redo of rows with text: words from a small vocabulary, numbers, padding.
fn rows(len_bytes: usize) -> Vec<u8> {
    const WORDS: [&str; 12] = [
        "GC",
        "BARPRESE",
        "OUGHTABLE",
        "PRIESEEING",
        "Springfield",
        "original",
        "able",
        "BC",
        "street",
        "zip",
        "1111",
        "credit",
    ];
    let mut random = fastrand::Rng::with_seed(1);
    let mut bytes = Vec::new();
    while bytes.len() < len_bytes {
        let mut mtr = encoder::MtrWriter::new();
        let mut row = random.u64(..).to_be_bytes().to_vec();
        for _ in 0..random.usize(2..12) {
            row.extend_from_slice(WORDS[random.usize(..WORDS.len())].as_bytes());
            row.extend_from_slice(random.u16(..).to_string().as_bytes());
        }
        row.resize(row.len() + random.usize(..40), b' ');
        mtr.write((random.u32(1..20), random.u32(3..20_000)), random.u32(38..16_000), &row);
        bytes.extend(mtr.finish(1));
    }
    bytes
}

#[divan::bench(args = LENS)]
fn compress_payload(bencher: Bencher<'_, '_>, len_bytes: usize) {
    let payload = rows(len_bytes);
    bencher
        .counter(BytesCount::new(payload.len()))
        .bench_local(|| compress(black_box(&payload)).map(|packed| packed.len()));
}

#[divan::bench(args = LENS)]
fn decompress_payload(bencher: Bencher<'_, '_>, len_bytes: usize) {
    let payload = rows(len_bytes);
    let packed = compress(&payload).unwrap();
    bencher
        .counter(BytesCount::new(payload.len()))
        .bench_local(|| decompress(black_box(&packed)).unwrap().len());
}
