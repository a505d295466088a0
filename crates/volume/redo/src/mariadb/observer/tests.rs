//! The observer against a simulated server's writes, and writes it must refuse.

use super::*;
use crate::mariadb::test_encoder::{MtrWriter, random_mtr};
use crate::mariadb::test_server_log::{LogWrite, ServerLog};
use crate::types::PageId;

/// Reports of an observer.
#[derive(Default)]
struct Sent {
    stream: Vec<u8>,
    pages: Vec<(PageId, Lsn)>,
}

fn geometry(log: &ServerLog) -> LogGeometry {
    LogGeometry::new(Lsn(log.first_lsn), log.capacity + 12_288).unwrap()
}

impl Sent {
    fn feed(&mut self, observer: &mut LogObserver, write: &LogWrite) -> Result<(), ObserveError> {
        let before = observer.next_lsn();
        let pages = &mut self.pages;
        let observed = observer.on_write(write.offset, &write.bytes, &mut |mtr: &Mtr<'_, '_>| {
            pages.extend(mtr.runs.iter().map(|run| (run.page, mtr.end_lsn)));
        })?;
        let Observed::Redo(new) = observed else { panic!("{observed:?}") };
        assert_eq!(new.start_lsn, before);
        assert_eq!(new.end_lsn.0 - new.start_lsn.0, new.bytes.len() as u64);
        self.stream.extend_from_slice(new.bytes);
        Ok(())
    }
}

fn random_batch(rng: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    let mtrs = rng.usize(1..12);
    (0..mtrs).map(|_| random_mtr(rng).records).collect()
}

/// Pages and end LSNs, by a plain walk over the stream.
fn pages_of(stream: &[u8], start: Lsn) -> Vec<(PageId, Lsn)> {
    let mut pages = Vec::new();
    walk_mtrs(stream, start, SequenceRule::Any, &mut |mtr: &Mtr<'_, '_>| {
        pages.extend(mtr.runs.iter().map(|run| (run.page, mtr.end_lsn)));
    })
    .unwrap();
    pages
}

#[test]
fn every_byte_once_over_many_wraps() {
    for (write_size, first_lsn) in [(512, 12_288), (4096, 12_288), (512, 70_001), (4096, 999_999)] {
        let mut rng = fastrand::Rng::with_seed(write_size);
        let mut log = ServerLog::new(first_lsn, 256 * 1024, write_size);
        let mut observer = LogObserver::new(geometry(&log), Lsn(first_lsn));
        let (mut sent, mut expected, mut wrapped_mtrs) = (Sent::default(), Vec::new(), 0);
        while log.lsn < first_lsn + 12 * log.capacity {
            let (writes, stream) = log.append(&random_batch(&mut rng));
            expected.extend(stream);
            wrapped_mtrs += usize::from(writes.len() == 2);
            for write in &writes {
                sent.feed(&mut observer, write).unwrap();
            }
            assert_eq!(observer.next_lsn(), Lsn(log.lsn));
        }
        assert!(wrapped_mtrs > 8, "{wrapped_mtrs}");
        assert_eq!(sent.stream, expected);
        assert_eq!(sent.pages, pages_of(&expected, Lsn(first_lsn)));
    }
}

#[test]
fn short_writes_and_repeated_writes_change_nothing() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut log = ServerLog::new(12_288, 256 * 1024, 512);
    let mut observer = LogObserver::new(geometry(&log), Lsn(12_288));
    let (mut sent, mut expected) = (Sent::default(), Vec::new());
    while log.lsn < 12_288 + 3 * log.capacity {
        let (writes, stream) = log.append(&random_batch(&mut rng));
        expected.extend(stream);
        for write in writes {
            let mut cut = rng.usize(0..write.bytes.len() + 1) / 512 * 512;
            if rng.bool() {
                cut = 0;
            }
            let first = LogWrite { offset: write.offset, bytes: write.bytes[..cut].to_vec() };
            let rest = LogWrite { offset: write.offset + cut as u64, bytes: write.bytes[cut..].to_vec() };
            sent.feed(&mut observer, &first).unwrap();
            // The server may repeat the whole call, or go on where it stopped.
            sent.feed(&mut observer, if rng.bool() { &rest } else { &write }).unwrap();
        }
    }
    assert_eq!(observer.next_lsn(), Lsn(log.lsn));
    assert_eq!(sent.stream, expected);
}

#[test]
fn new_bytes_are_not_copied() {
    let mut rng = fastrand::Rng::with_seed(6);
    let mut log = ServerLog::new(12_288, 64 * 1024, 512);
    let mut observer = LogObserver::new(geometry(&log), Lsn(12_288));
    for _ in 0..2 {
        let (writes, _) = log.append(&[random_mtr(&mut rng).records]);
        let Ok(Observed::Redo(new)) =
            observer.on_write(writes[0].offset, &writes[0].bytes, &mut |_: &Mtr<'_, '_>| ())
        else {
            panic!()
        };
        assert!(writes[0].bytes.as_ptr_range().contains(&new.bytes.as_ptr()));
    }
}

#[test]
fn online_resize_carries_over() {
    let mut rng = fastrand::Rng::with_seed(7);
    for (from, to) in [(128 * 1024, 256 * 1024), (256 * 1024, 96 * 1024)] {
        let mut log = ServerLog::new(12_288, from, 4096);
        let mut observer = LogObserver::new(geometry(&log), Lsn(12_288));
        let (mut sent, mut expected) = (Sent::default(), Vec::new());
        let step = |log: &mut ServerLog, rng: &mut fastrand::Rng, expected: &mut Vec<u8>| {
            let batch = random_batch(rng);
            let (writes, stream) = log.append(&batch);
            expected.extend(stream);
            (batch, writes)
        };
        while log.lsn < 12_288 + 2 * from + from / 3 {
            let (_, writes) = step(&mut log, &mut rng, &mut expected);
            writes.iter().for_each(|write| sent.feed(&mut observer, write).unwrap());
        }
        // While resizing, each write goes to both files; only the first one is observed.
        let mut new_log = ServerLog::new(log.lsn, to, 4096);
        while new_log.lsn < new_log.first_lsn + to / 2 {
            let (batch, writes) = step(&mut log, &mut rng, &mut expected);
            writes.iter().for_each(|write| sent.feed(&mut observer, write).unwrap());
            new_log.append(&batch);
        }
        assert_eq!(new_log.lsn, log.lsn);
        observer.switch_geometry(geometry(&new_log)).unwrap();
        while new_log.lsn < new_log.first_lsn + 4 * to {
            let (_, writes) = step(&mut new_log, &mut rng, &mut expected);
            writes.iter().for_each(|write| sent.feed(&mut observer, write).unwrap());
        }
        assert_eq!(observer.next_lsn(), Lsn(new_log.lsn));
        assert_eq!(sent.stream, expected);
    }
}

#[test]
fn no_switch_inside_a_mini_transaction() {
    let mut log = ServerLog::new(12_288, 16_384, 512);
    let mut observer = LogObserver::new(geometry(&log), Lsn(12_288));
    let mut sent = Sent::default();
    let records = |len: usize| MtrWriter::new().write((5, 9), 100, &vec![1; len]).records.clone();
    let (writes, _) = log.append(&[records(7000)]);
    sent.feed(&mut observer, &writes[0]).unwrap();
    let (writes, _) = log.append(&[records(12_000)]);
    assert_eq!(writes.len(), 2);
    sent.feed(&mut observer, &writes[0]).unwrap();
    let error = observer.switch_geometry(geometry(&log)).unwrap_err();
    assert!(matches!(error, ObserveError::UnfinishedAtSwitch { .. }), "{error}");
}

#[test]
fn header_and_checkpoints_are_classified() {
    let log = ServerLog::new(12_288, 8192, 512);
    let mut observer = LogObserver::new(geometry(&log), Lsn(12_288));
    let none = &mut |_: &Mtr<'_, '_>| ();
    assert_eq!(observer.on_write(0, &[0; 4096], none), Ok(Observed::Header));
    let checkpoint = CheckpointBlock { checkpoint_lsn: Lsn(20_000), end_lsn: Lsn(20_010) };
    let mut block = checkpoint.build().to_vec();
    block.resize(512, 0);
    let (slot, found) = (CheckpointSlot::First, Some(checkpoint));
    assert_eq!(observer.on_write(4096, &block, none), Ok(Observed::Checkpoint { slot, checkpoint: found }));
    let slot = CheckpointSlot::Second;
    let expected = Observed::Checkpoint { slot, checkpoint: None };
    assert_eq!(observer.on_write(8192, &[0; 4096], none), Ok(expected));
    for (offset, len) in [(0, 4097), (4096, 8192), (8192, 4097), (12_288, 8193), (u64::MAX, 1), (u64::MAX, 0)]
    {
        let bytes = vec![0; len];
        let result = observer.on_write(offset, &bytes, none);
        assert!(matches!(result, Err(ObserveError::CrossesArea { .. })), "{offset}");
    }
}

#[test]
fn writes_that_do_not_fit_are_errors() {
    let mut rng = fastrand::Rng::with_seed(8);
    let mut log = ServerLog::new(12_288, 512 * 1024, 512);
    let mut observer = LogObserver::new(geometry(&log), Lsn(12_288));
    let mut sent = Sent::default();
    let (writes, _) = log.append(&random_batch(&mut rng));
    sent.feed(&mut observer, &writes[0]).unwrap();

    // A write in between is missing.
    while log.lsn < 20_000 {
        log.append(&random_batch(&mut rng));
    }
    let (later, _) = log.append(&random_batch(&mut rng));
    let error = sent.feed(&mut observer.clone(), &later[0]).unwrap_err();
    assert!(matches!(error, ObserveError::Gap { .. }), "{error}");

    // The geometry is not that of the file.
    let mut good = MtrWriter::new().init((5, 9)).finish(0);
    good.resize(BLOCK_MAX_BYTES + 1, 0);
    let place = observer.geometry().offset_of(observer.next_lsn());
    let error =
        sent.feed(&mut observer.clone(), &LogWrite { offset: place, bytes: good.clone() }).unwrap_err();
    assert!(matches!(error, ObserveError::SequenceBit { .. }), "{error}");

    // Damaged bytes.
    let mut bad = MtrWriter::new().init((5, 9)).finish(1);
    bad[1] ^= 1;
    bad.resize(BLOCK_MAX_BYTES + 1, 0);
    let error = sent.feed(&mut observer.clone(), &LogWrite { offset: place, bytes: bad }).unwrap_err();
    assert!(matches!(error, ObserveError::Stream(_)), "{error}");
}

#[test]
fn random_writes_never_panic() {
    let mut rng = fastrand::Rng::with_seed(9);
    for _ in 0..2000 {
        let mut observer =
            LogObserver::new(LogGeometry::new(Lsn(12_288), 20_000).unwrap(), Lsn(rng.u64(12_288..40_000)));
        for _ in 0..8 {
            let len = rng.usize(0..600);
            let bytes: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
            let _ = observer.on_write(rng.u64(0..21_000), &bytes, &mut |_: &Mtr<'_, '_>| ());
        }
    }
}

/// Other threads append to a block while it is written: its tail holds half-copied mini-transactions.
#[test]
fn the_tail_of_a_live_block_is_not_believed() {
    let mut rng = fastrand::Rng::with_seed(11);
    let mut log = ServerLog::new(12_288, 256 * 1024, 4096);
    let mut observer = LogObserver::new(geometry(&log), Lsn(12_288));
    let (mut sent, mut expected, mut torn) = (Sent::default(), Vec::new(), 0);
    while log.lsn < 12_288 + 5 * log.capacity {
        let (mut writes, stream) = log.append(&[random_mtr(&mut rng).records]);
        expected.extend(stream);
        let used = ((log.lsn - 12_288) % 4096) as usize;
        if let [write] = &mut writes[..]
            && write.bytes.len() == 4096
            && used > 0
        {
            let mut tail = random_mtr(&mut rng).records;
            tail.extend([rng.u8(0..2), rng.u8(..), rng.u8(..), rng.u8(..), rng.u8(..)]);
            tail.resize_with(4096, || rng.u8(..));
            write.bytes[used..].copy_from_slice(&tail[..4096 - used]);
            torn += 1;
        }
        for write in &writes {
            sent.feed(&mut observer, write).unwrap();
        }
        assert_eq!(observer.next_lsn(), Lsn(log.lsn));
    }
    assert!(torn > 100, "{torn}");
    assert_eq!(sent.stream, expected);
}

/// Without anything found past the server's own end, a write must bring something new.
#[test]
fn a_live_block_with_nothing_new_is_an_error_at_once() {
    let log = ServerLog::new(12_288, 512 * 1024, 512);
    let mut observer = LogObserver::new(geometry(&log), Lsn(12_288));
    let other_lap = MtrWriter::new().init((5, 9)).finish(0);
    let error =
        Sent::default().feed(&mut observer, &LogWrite { offset: 12_288, bytes: other_lap }).unwrap_err();
    assert!(matches!(error, ObserveError::SequenceBit { .. }), "{error}");
}
