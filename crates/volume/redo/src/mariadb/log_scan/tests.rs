//! Whole log files written by the simulated server.

use super::*;
use crate::mariadb::test_encoder::random_mtr;
use crate::mariadb::test_server_log::ServerLog;
use crate::mtr::Mtr;

/// A file with wraps, the LSNs where mini-transactions start, and the stream.
fn written(laps: u64, seed: u64) -> (ServerLog, Vec<u64>, Vec<u8>) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut log = ServerLog::new(12_288, 64 * 1024, 512);
    let (mut starts, mut stream) = (Vec::new(), Vec::new());
    while log.lsn < 12_288 + laps * log.capacity + log.capacity / 3 {
        starts.push(log.lsn);
        stream.extend(log.append(&[random_mtr(&mut rng).records]).1);
    }
    (log, starts, stream)
}

fn finish(log: &mut ServerLog, checkpoint_lsn: u64) {
    let header = LogHeader { first_lsn: Lsn(log.first_lsn), creator: b"test".to_vec() };
    log.image[..512].copy_from_slice(&header.build());
    let checkpoint = CheckpointBlock { checkpoint_lsn: Lsn(checkpoint_lsn), end_lsn: Lsn(checkpoint_lsn) };
    log.image[4096..4160].copy_from_slice(&checkpoint.build());
    log.image[8192..8256].fill(0);
}

#[test]
fn scan_finds_the_end_over_wraps() {
    for laps in 0..4 {
        let (mut log, starts, stream) = written(laps, 10 + laps);
        let low = log.lsn.saturating_sub(log.capacity * 3 / 4).max(12_288);
        let from = starts.iter().copied().find(|&start| start >= low).unwrap();
        finish(&mut log, from);
        let scan = LogScan::open(log.image.as_slice()).unwrap();
        assert_eq!(scan.header().creator, b"test");
        assert_eq!(scan.checkpoint().checkpoint_lsn, Lsn(from));
        let mut found = Vec::new();
        let end = scan
            .walk(scan.checkpoint().checkpoint_lsn, &mut |mtr: &Mtr<'_, '_>| {
                found.extend_from_slice(mtr.bytes);
            })
            .unwrap();
        assert_eq!(end.end_lsn, Lsn(log.lsn), "{end:?}");
        assert_eq!(found, &stream[(from - 12_288) as usize..]);
        assert_ne!(end.stop, ScanStop::WholeFile);
    }
}

#[test]
fn scan_ends_before_a_damaged_mini_transaction() {
    let (mut log, starts, _) = written(0, 20);
    finish(&mut log, 12_288);
    let victim = starts[starts.len() / 2];
    log.image[victim as usize + 1] ^= 0x40;
    let scan = LogScan::open(log.image.as_slice()).unwrap();
    let end = scan.walk(Lsn(12_288), &mut |_: &Mtr<'_, '_>| ()).unwrap();
    assert_eq!(end.end_lsn, Lsn(victim));
    assert_ne!(end.stop, ScanStop::EndOfLog);
}

#[test]
fn unusable_files_are_refused() {
    let (mut log, _, _) = written(0, 21);
    assert!(matches!(LogScan::open(&log.image[..12_288]), Err(ScanError::File(_))));
    finish(&mut log, 12_288);
    assert!(LogScan::open(log.image.as_slice()).is_ok());
    let scan = LogScan::open(log.image.as_slice()).unwrap();
    let early = scan.walk(Lsn(5), &mut |_: &Mtr<'_, '_>| ());
    assert!(matches!(early, Err(ScanError::NotInFile { .. })));
    log.image[4096] ^= 1;
    let no_checkpoint = LogScan::open(log.image.as_slice()).err().unwrap();
    assert_eq!(no_checkpoint, ScanError::File(LogFileError::NoCheckpoint));
}

#[test]
fn random_files_never_panic() {
    let mut rng = fastrand::Rng::with_seed(22);
    for _ in 0..200 {
        let mut log = ServerLog::new(12_288, 4096, 512);
        finish(&mut log, 12_288);
        for byte in &mut log.image[12_288..] {
            *byte = rng.u8(..);
        }
        let scan = LogScan::open(log.image.as_slice()).unwrap();
        let _ = scan.walk(Lsn(12_288), &mut |_: &Mtr<'_, '_>| ());
    }
}
