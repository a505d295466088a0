//! One stream of MySQL's redo, seen in every way that the product has: walked, composed into log files, observed as a
//! server writes these, and scanned from there. All must give the same mini-transactions.
//!
//! Input: size of the files (1 byte), blocks of each write (1 byte), place of the checkpoint (1 byte), then
//! mini-transactions one after the other, up to the first that is none.

use std::convert::Infallible;

use redoubt_redo::mysql::block::BLOCK_BYTES;
use redoubt_redo::mysql::log_file::FILE_HEADER_BYTES;
use redoubt_redo::mysql::position::block_start;
use redoubt_redo::mysql::{
    FirstGroups, LogFileName, LogImage, LogObserver, LogSet, LogSetRead, LogSetStop, Observed,
    from_server_lsn, walk_mtrs,
};
use redoubt_redo::{Lsn, Mtr, MtrVisitor};

/// Server LSN of the first block of the first file.
const START_LSN: u64 = 8192;
const STREAM_MAX_BYTES: usize = 60_000;

/// A mini-transaction as it was reported: positions, bytes, runs.
type Seen = (Lsn, Lsn, Vec<u8>, usize);

fn seen(mtr: &Mtr<'_, '_>) -> Seen {
    (mtr.start_lsn, mtr.end_lsn, mtr.bytes.to_vec(), mtr.runs.len())
}

struct Files(Vec<Vec<u8>>);

#[derive(Debug, thiserror::Error)]
#[error("outside")]
struct Outside;

impl LogSetRead for Files {
    type Error = Outside;

    fn read_at(&self, number: u64, offset: u64, buf: &mut [u8]) -> Result<(), Outside> {
        let file = self.0.get(number as usize).ok_or(Outside)?;
        buf.copy_from_slice(file.get(offset as usize..offset as usize + buf.len()).ok_or(Outside)?);
        Ok(())
    }
}

fn compose(image: &LogImage, groups: &FirstGroups, stream: &[u8]) -> Files {
    let fetch = |position: Lsn, part: &mut [u8]| -> Result<(), Infallible> {
        let at = (position.0 - from_server_lsn(START_LSN).0) as usize;
        part.copy_from_slice(&stream[at..at + part.len()]);
        Ok(())
    };
    let file = |number| {
        let mut bytes = vec![0; image.file_size_bytes as usize];
        image.compose(number, 0, &mut bytes, groups, fetch).unwrap();
        bytes
    };
    Files(image.numbers().map(file).collect())
}

fn observe(files: &Files, image: &LogImage, blocks: usize) -> (Vec<Seen>, Vec<u8>) {
    let starts = image.numbers().map(|number| (number, image.range(number).unwrap().start_lsn));
    let mut observer = LogObserver::new(from_server_lsn(START_LSN), starts);
    let (mut found, mut bytes) = (Vec::new(), Vec::new());
    for (number, file) in (0..).zip(&files.0) {
        let mut offset = FILE_HEADER_BYTES;
        for piece in file[FILE_HEADER_BYTES as usize..].chunks(blocks * BLOCK_BYTES) {
            let visitor = &mut |mtr: &Mtr<'_, '_>| found.push(seen(mtr));
            match observer.on_write(LogFileName::Log(number), offset, piece, visitor) {
                Ok(Observed::Redo(redo)) => bytes.extend_from_slice(redo.bytes),
                other => panic!("a server's write at {offset} of {number}: {other:?}"),
            }
            offset += piece.len() as u64;
        }
    }
    (found, bytes)
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let [size, blocks, checkpoint, rest @ ..] = data else { return };
    let start = from_server_lsn(START_LSN);
    let rest = rest.get(..STREAM_MAX_BYTES).unwrap_or(rest);
    let mut walked = Vec::new();
    let mut groups = FirstGroups::default();
    groups.insert(start);
    let _ = walk_mtrs(rest, start, &mut |mtr: &Mtr<'_, '_>| {
        walked.push(seen(mtr));
        groups.visit_mtr(mtr);
    });
    let end = walked.last().map_or(start, |mtr| mtr.1);
    let stream = &rest[..(end.0 - start.0) as usize];
    let image = LogImage {
        set_id: 1,
        creator: b"fuzz".to_vec(),
        first_number: 0,
        start_lsn: START_LSN,
        file_size_bytes: FILE_HEADER_BYTES + (u64::from(*size) + 1) * BLOCK_BYTES as u64,
        checkpoint: start.advance(stream.len() as u64 * u64::from(*checkpoint) / 256),
        oldest: start,
        end,
    };
    let files = compose(&image, &groups, stream);
    let (found, bytes) = observe(&files, &image, usize::from(*blocks) + 1);
    assert!(found == walked && bytes == stream, "the observer hands out each byte once");

    let sizes: Vec<_> = image.numbers().map(|number| (number, image.file_size_bytes)).collect();
    let set = LogSet::open(&files, &sizes).unwrap();
    assert_eq!(set.checkpoint(), image.checkpoint);
    let first = set.first_mtr().unwrap().unwrap();
    assert!(
        walked
            .iter()
            .map(|mtr| mtr.0)
            .chain([end])
            .find(|at| block_start(*at) >= block_start(image.checkpoint))
            == Some(first)
    );
    let mut scanned = Vec::new();
    let scan_end = set.walk(first, &mut |mtr: &Mtr<'_, '_>| scanned.push(seen(mtr))).unwrap();
    assert!(scanned.iter().eq(walked.iter().filter(|mtr| mtr.0 >= first)));
    assert_eq!((scan_end.end_lsn, scan_end.stop), (end, LogSetStop::NotFull));
}
