//! One stream of redo, seen in every way that the product has: walked, observed as a server writes it block by block
//! and around the end of its file, composed into a log file, and scanned from there. All must give the same
//! mini-transactions.
//!
//! Input: capacity of the file (1 byte), block size and size of the pieces of a composed file (1 byte), how many
//! mini-transactions each write brings (1 byte), then records, in mini-transactions separated by 0xff. Input that is
//! not a mini-transaction is left out.

use std::convert::Infallible;

use redoubt_redo::mariadb::{
    CheckpointBlock, LogGeometry, LogHeader, LogImage, LogObserver, LogScan, MtrStep, Observed, RecordReader,
    ScanStop, SequenceRule, next_mtr, rewrite_sequence_bits, walk_mtrs,
};
use redoubt_redo::{Lsn, Mtr};

const DATA_OFFSET: u64 = 12_288;
const FIRST_LSN: Lsn = Lsn(12_288);

/// A mini-transaction as it was reported: LSNs, bytes, runs.
type Seen = (Lsn, Lsn, Vec<u8>, usize);

fn seen(mtr: &Mtr<'_, '_>) -> Seen {
    (mtr.start_lsn, mtr.end_lsn, mtr.bytes.to_vec(), mtr.runs.len())
}

/// The stream: every piece that is a mini-transaction, framed.
fn stream(data: &[u8], limit: usize) -> Vec<u8> {
    let mut stream = Vec::new();
    for records in data.split(|&byte| byte == 0xff) {
        let mut mtr = records.to_vec();
        mtr.push(1);
        mtr.extend_from_slice(&crc32c::crc32c(records).to_be_bytes());
        let is_whole = matches!(next_mtr(&mtr), Ok(MtrStep::Mtr { total_len_bytes, .. }) if total_len_bytes == mtr.len());
        let is_readable = RecordReader::new(records).all(|record| record.is_ok());
        let mut is_walked = false;
        let walked = walk_mtrs(&mtr, FIRST_LSN, SequenceRule::Any, &mut |_: &Mtr<'_, '_>| is_walked = true);
        assert!(!is_whole || walked.is_err() || is_walked);
        if is_whole && is_readable && walked.is_ok() && stream.len() + mtr.len() <= limit {
            stream.extend(mtr);
        }
    }
    stream
}

/// Writes the stream as a server does: from the start of the block that holds the previous end, to the end of the block
/// with the new end, padded with zeros. A write that crosses the end of the file is split in two.
fn observe(stream: &[u8], ends: &[u64], geometry: LogGeometry, block: u64, per_write: usize) -> Vec<Seen> {
    let mut observer = LogObserver::new(geometry, FIRST_LSN);
    let mut found = Vec::new();
    let mut bytes = Vec::new();
    let mut from = 0;
    for group in ends.chunks(per_write) {
        let end = *group.last().unwrap();
        let start = from / block * block;
        let mut content = stream[start as usize..end as usize].to_vec();
        content.resize((end - start).next_multiple_of(block) as usize, 0);
        let offset = geometry.offset_of(FIRST_LSN.advance(start));
        let to_end = (geometry.file_size_bytes() - offset).min(content.len() as u64) as usize;
        for (offset, piece) in [(offset, &content[..to_end]), (DATA_OFFSET, &content[to_end..])] {
            if piece.is_empty() {
                continue;
            }
            match observer.on_write(offset, piece, &mut |mtr: &Mtr<'_, '_>| found.push(seen(mtr))) {
                Ok(Observed::Redo(redo)) => bytes.extend_from_slice(redo.bytes),
                other => panic!("a server's write at {offset}: {other:?}"),
            }
        }
        from = end;
    }
    assert!(bytes == stream, "the observer hands out each byte once");
    assert_eq!(observer.next_lsn(), FIRST_LSN.advance(stream.len() as u64));
    found
}

fn compose(stream: &[u8], geometry: LogGeometry, checkpoint: Lsn, piece: usize) -> Vec<u8> {
    let end_lsn = FIRST_LSN.advance(stream.len() as u64);
    let block = CheckpointBlock { checkpoint_lsn: checkpoint, end_lsn: checkpoint }.build();
    let image = LogImage {
        geometry,
        header: LogHeader { first_lsn: FIRST_LSN, creator: b"fuzz".to_vec() }.build(),
        checkpoints: [[0; 64], block],
        oldest_lsn: checkpoint,
        end_lsn,
    };
    let mut file = vec![0xee; geometry.file_size_bytes() as usize];
    for (number, part) in file.chunks_mut(piece).enumerate() {
        let composed = image.compose((number * piece) as u64, part, |lsn, part| {
            let at = (lsn.0 - FIRST_LSN.0) as usize;
            part.copy_from_slice(&stream[at..at + part.len()]);
            Ok::<(), Infallible>(())
        });
        composed.unwrap_or_else(|never| match never {});
    }
    file
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let [capacity, sizes, per_write, records @ ..] = data else { return };
    let block = 512u64 << (sizes % 4);
    let capacity = (u64::from(*capacity) + 4).max(12) * block;
    let geometry = LogGeometry::new(FIRST_LSN, DATA_OFFSET + capacity).unwrap();
    let mut stream = stream(records, 3 * capacity as usize);
    rewrite_sequence_bits(&mut stream, FIRST_LSN, &geometry).expect("they are mini-transactions");
    let mut walked = Vec::new();
    let mut collect = |mtr: &Mtr<'_, '_>| walked.push(seen(mtr));
    walk_mtrs(&stream, FIRST_LSN, SequenceRule::Geometry(&geometry), &mut collect)
        .expect("they were walked before");
    assert_eq!(walked.iter().map(|(_, _, bytes, _)| bytes.len()).sum::<usize>(), stream.len());
    let ends: Vec<u64> = walked.iter().map(|(_, end, ..)| end.0 - FIRST_LSN.0).collect();
    // A server never writes more than its file holds, less some room, in one go.
    let per_write = usize::from(per_write % 8) + 1;
    if walked
        .chunks(per_write)
        .all(|group| group.iter().map(|seen| seen.2.len() as u64).sum::<u64>() + 2 * block < capacity)
    {
        assert!(
            observe(&stream, &ends, geometry, block, per_write) == walked,
            "observed otherwise than walked"
        );
    }
    let end_lsn = FIRST_LSN.0 + stream.len() as u64;
    let Some(first) = walked.iter().position(|seen| seen.0.0 + capacity > end_lsn) else { return };
    let checkpoint = walked[first].0;
    let file = compose(&stream, geometry, checkpoint, 64 + usize::from(*sizes) * 16);
    let scan = LogScan::open(&file[..]).expect("a composed log file is one");
    assert_eq!(scan.checkpoint().checkpoint_lsn, checkpoint);
    let mut scanned = Vec::new();
    let end =
        scan.walk(checkpoint, &mut |mtr: &Mtr<'_, '_>| scanned.push(seen(mtr))).expect("it can be read");
    assert_eq!(end.end_lsn, Lsn(end_lsn));
    assert!(matches!(end.stop, ScanStop::EndOfLog | ScanStop::WholeFile), "{:?}", end.stop);
    assert!(scanned == walked[first..], "scanned otherwise than walked");
}
