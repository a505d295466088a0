//! Arbitrary bytes as MySQL's redo: as records, as a stream of mini-transactions, as payload of blocks that a server
//! writes, and as a whole set of log files.
//!
//! Checked besides the absence of panics: only whole mini-transactions are reported, each of them can be read record by
//! record, its runs hold records of their page alone, and its end is found from any part of it.

use redoubt_redo::mysql::record_reader::RecordReader;
use redoubt_redo::mysql::{
    Body, LogFileName, LogObserver, LogSet, LogSetRead, MtrEnd, block, from_server_lsn, mtr_end, walk_mtrs,
};
use redoubt_redo::{Lsn, Mtr};

/// Server LSN of the first block of the simulated log file.
const START_LSN: u64 = 8192;

fn check_mtr(mtr: &Mtr<'_, '_>) {
    assert_eq!(mtr_end(mtr.bytes, 0), Ok(MtrEnd::At(mtr.bytes.len())));
    assert!(RecordReader::new(mtr.records).all(|record| record.is_ok()));
    let mut at = mtr.offset_in_bytes;
    for run in mtr.runs {
        assert!(run.offset_in_bytes >= at && run.len_bytes > 0);
        at = run.offset_in_bytes + run.len_bytes;
        for record in RecordReader::new(mtr.run_bytes(run)) {
            assert_eq!(record.unwrap().page, run.page);
        }
    }
    assert!(at <= mtr.offset_in_bytes + mtr.records.len());
}

fn read_records(data: &[u8]) {
    let mut columns = Vec::new();
    for record in RecordReader::new(data).map_while(Result::ok) {
        match record.body {
            Body::UpdateInPlace { index, fields, .. } => {
                let _ = index.columns(&mut columns);
                let said = fields.len();
                assert_eq!(fields.count(), said);
            }
            Body::ListEndCopyCreated { index, inserts } => {
                let _ = index.columns(&mut columns);
                inserts.for_each(drop);
            }
            Body::Insert { index, .. } if index.columns(&mut columns).is_ok() => {
                let mut positions: Vec<_> = columns.iter().map(|column| column.physical_position).collect();
                positions.sort_unstable();
                assert!(positions.into_iter().eq(0..index.n_fields()));
            }
            _ => {}
        }
    }
}

/// The bytes in blocks, as a server writes them.
fn observe(data: &[u8]) {
    let mut observer = LogObserver::new(from_server_lsn(START_LSN), [(0, START_LSN)]);
    let mut start = from_server_lsn(START_LSN);
    for (payload, offset) in data.chunks(block::PAYLOAD_BYTES).zip((2048..).step_by(block::BLOCK_BYTES)) {
        let before = observer.next_lsn();
        let bytes = block::compose(start, payload, None);
        if observer.on_write(LogFileName::Log(0), offset, &bytes, &mut check_mtr).is_err() {
            return;
        }
        assert!(observer.next_lsn() >= before);
        start = start.advance(payload.len() as u64);
    }
}

/// The input as the only file of a log.
struct OneFile<'a>(&'a [u8]);

#[derive(Debug, thiserror::Error)]
#[error("outside")]
struct Outside;

impl LogSetRead for OneFile<'_> {
    type Error = Outside;

    fn read_at(&self, _: u64, offset: u64, buf: &mut [u8]) -> Result<(), Outside> {
        let start = usize::try_from(offset).map_err(|_| Outside)?;
        buf.copy_from_slice(self.0.get(start..).and_then(|rest| rest.get(..buf.len())).ok_or(Outside)?);
        Ok(())
    }
}

/// Checksums made right: they keep the fuzzer out otherwise.
fn sealed(data: &[u8]) -> Vec<u8> {
    let mut file = data.to_vec();
    for block in file.as_chunks_mut::<{ block::BLOCK_BYTES }>().0 {
        let crc = crc32c::crc32c(&block[..508]);
        block[508..].copy_from_slice(&crc.to_be_bytes());
    }
    file
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    read_records(data);
    let _ = walk_mtrs(data, Lsn(0), &mut check_mtr);
    observe(data);
    let file = sealed(data);
    if let Ok(set) = LogSet::open(&OneFile(&file), &[(0, file.len() as u64)])
        && let Ok(Some(first)) = set.first_mtr()
    {
        let _ = set.walk(first, &mut check_mtr);
    }
}
