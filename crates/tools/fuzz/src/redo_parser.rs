//! Arbitrary bytes as redo: as records, as a stream of mini-transactions, as writes to a log file, and as a
//! whole log file.
//!
//! Checked besides the absence of panics: only whole mini-transactions are reported, each of them can be read
//! record by record, and its runs cover its page records without a gap.

use redoubt_redo::mariadb::{
    LogGeometry, LogObserver, LogScan, MtrStep, PageRun, RecordReader, SequenceRule, next_mtr, walk_mtrs,
};
use redoubt_redo::{Lsn, Mtr};

/// First LSN of the simulated log file.
const FIRST_LSN: Lsn = Lsn(12_288);

fn check_mtr(mtr: &Mtr<'_, '_>) {
    assert!(matches!(next_mtr(mtr.bytes), Ok(MtrStep::Mtr { records, .. }) if records == mtr.records));
    assert!(RecordReader::new(mtr.records).all(|record| record.is_ok()));
    let mut at = None;
    for run in mtr.runs {
        assert!(at.is_none_or(|at| at == run.offset_in_bytes));
        at = Some(run.offset_in_bytes + run.len_bytes);
        let mut records = PageRun::new(mtr.run_bytes(run)).expect("a run starts with page ids");
        assert_eq!(records.page(), run.page);
        assert!(records.all(|record| record.is_ok()));
    }
    assert!(at.is_none_or(|at| at == mtr.offset_in_bytes + mtr.records.len()));
}

/// Whole mini-transactions from arbitrary record bytes: the checksum keeps the fuzzer out otherwise.
fn framed(data: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    for records in data.split(|&byte| byte == 0xff) {
        stream.extend_from_slice(records);
        stream.push(1);
        stream.extend_from_slice(&crc32c::crc32c(records).to_be_bytes());
    }
    stream
}

fn observe(data: &[u8]) {
    let Ok(geometry) = LogGeometry::new(FIRST_LSN, 12_288 + 4096) else { return };
    let mut observer = LogObserver::new(geometry, FIRST_LSN);
    let mut offset = 12_288;
    for piece in data.chunks(97) {
        let before = observer.next_lsn();
        if observer.on_write(offset, piece, &mut check_mtr).is_err() {
            return;
        }
        assert!(observer.next_lsn() >= before);
        offset += piece.len() as u64;
        if offset >= geometry.file_size_bytes() {
            offset = 12_288;
        }
    }
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    RecordReader::new(data).for_each(drop);
    let stream = framed(data);
    for bytes in [data, &stream] {
        let _ = walk_mtrs(bytes, FIRST_LSN, SequenceRule::Any, &mut check_mtr);
        observe(bytes);
    }
    if let Ok(scan) = LogScan::open(data) {
        let _ = scan.walk(scan.checkpoint().checkpoint_lsn, &mut check_mtr);
    }
}
