//! Composed files are read back by the scanner, in the same geometry and in another one.

use std::convert::Infallible;

use super::*;
use crate::mariadb::log_file::{CheckpointBlock, LogHeader};
use crate::mariadb::log_scan::{LogScan, ScanStop};
use crate::mariadb::test_encoder::random_mtr;
use crate::mariadb::test_server_log::ServerLog;
use crate::mariadb::{SequenceRule, walk_mtrs};
use crate::mtr::Mtr;

const FIRST: u64 = 12_288;

/// A stream of `len` bytes and a bit, as a server with a file of `capacity` wrote it.
fn stream(capacity: u64, len: u64) -> (ServerLog, Vec<u8>, Vec<u64>) {
    let mut rng = fastrand::Rng::with_seed(30);
    let mut log = ServerLog::new(FIRST, capacity, 512);
    let (mut bytes, mut starts) = (Vec::new(), Vec::new());
    while log.lsn < FIRST + len {
        starts.push(log.lsn);
        bytes.extend(log.append(&[random_mtr(&mut rng).records]).1);
    }
    (log, bytes, starts)
}

fn image(geometry: LogGeometry, oldest: u64, end: u64) -> LogImage {
    let checkpoint = CheckpointBlock { checkpoint_lsn: Lsn(oldest), end_lsn: Lsn(oldest) };
    LogImage {
        geometry,
        header: LogHeader { first_lsn: geometry.first_lsn(), creator: Vec::new() }.build(),
        checkpoints: [checkpoint.build(), [0; 64]],
        oldest_lsn: Lsn(oldest),
        end_lsn: Lsn(end),
    }
}

/// The whole file, composed in pieces of `piece` bytes.
fn compose(image: &LogImage, stream: &[u8], piece: usize) -> Vec<u8> {
    let mut file = vec![0x55; image.geometry.file_size_bytes() as usize];
    for (index, part) in file.chunks_mut(piece).enumerate() {
        let result = image.compose((index * piece) as u64, part, |lsn, buf| {
            assert!(lsn >= image.oldest_lsn && lsn.0 + buf.len() as u64 <= image.end_lsn.0);
            buf.copy_from_slice(&stream[(lsn.0 - FIRST) as usize..][..buf.len()]);
            Ok::<_, Infallible>(())
        });
        result.unwrap();
    }
    file
}

#[test]
fn composed_file_has_the_servers_bytes() {
    let (log, stream, starts) = stream(64 * 1024, 200 * 1024);
    let oldest = starts.iter().copied().find(|&start| start > log.lsn - log.capacity / 2).unwrap();
    let geometry = LogGeometry::new(Lsn(FIRST), log.capacity + 12_288).unwrap();
    let image = image(geometry, oldest, log.lsn);
    let whole = compose(&image, &stream, usize::MAX / 2);
    for piece in [1, 511, 512, 4096, 30_000] {
        assert_eq!(compose(&image, &stream, piece), whole, "{piece}");
    }
    for lsn in oldest..log.lsn {
        let at = geometry.offset_of(Lsn(lsn)) as usize;
        assert_eq!(whole[at], log.image[at], "LSN {lsn}");
    }
    let scan = LogScan::open(whole.as_slice()).unwrap();
    let end = scan.walk(Lsn(oldest), &mut |_: &Mtr<'_, '_>| ()).unwrap();
    assert_eq!((end.end_lsn, end.stop), (Lsn(log.lsn), ScanStop::EndOfLog));
}

#[test]
fn end_of_a_full_file_is_still_the_end() {
    let (log, stream, _) = stream(64 * 1024, 200 * 1024);
    let geometry = LogGeometry::new(Lsn(FIRST), log.capacity + 12_288).unwrap();
    let file = compose(&image(geometry, FIRST, log.lsn), &stream, 4096);
    assert_eq!(file[geometry.offset_of(Lsn(log.lsn)) as usize], 0);
}

#[test]
fn sequence_bits_are_rewritten_for_another_file_size() {
    let (log, mut stream, starts) = stream(64 * 1024, 200 * 1024);
    let old = LogGeometry::new(Lsn(FIRST), log.capacity + 12_288).unwrap();
    let new = LogGeometry::new(Lsn(FIRST), 100 * 1024 + 12_288).unwrap();
    let original = stream.clone();
    let walk = |stream: &[u8], geometry: &LogGeometry| {
        let none = &mut |_: &Mtr<'_, '_>| ();
        walk_mtrs(stream, Lsn(FIRST), SequenceRule::Geometry(geometry), none).unwrap().len_bytes
    };
    assert_eq!(walk(&stream, &old), stream.len());
    assert_ne!(walk(&stream, &new), stream.len());
    // In two parts, the first of which ends inside a mini-transaction.
    let cut = (starts[starts.len() / 2] - FIRST) as usize + 3;
    let done = rewrite_sequence_bits(&mut stream[..cut], Lsn(FIRST), &new).unwrap();
    assert_eq!(done, cut - 3);
    let rest = rewrite_sequence_bits(&mut stream[done..], Lsn(FIRST + done as u64), &new).unwrap();
    assert_eq!(done + rest, original.len());
    assert_eq!(walk(&stream, &new), stream.len());

    let oldest = starts.iter().copied().find(|&start| start > log.lsn - 80 * 1024).unwrap();
    let file = compose(&image(new, oldest, log.lsn), &stream, 4096);
    let scan = LogScan::open(file.as_slice()).unwrap();
    let end = scan.walk(scan.checkpoint().checkpoint_lsn, &mut |_: &Mtr<'_, '_>| ()).unwrap();
    assert_eq!(end.end_lsn, Lsn(log.lsn));

    stream[5] ^= 0x10;
    assert!(rewrite_sequence_bits(&mut stream, Lsn(FIRST), &new).is_err());
}
