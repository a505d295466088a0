//! A server's writes, in order and not.

use super::*;
use crate::error::RedoError;
use crate::mysql::test_encoder::{group, random_group, record};
use crate::mysql::test_server_log::{LogWrite, ServerLog};

const START_LSN: u64 = 512 * 40;
const FILE_SIZE: u64 = 65_536;

fn log() -> ServerLog {
    ServerLog::new(START_LSN, 3, FILE_SIZE, 8192)
}

fn header(start_lsn: u64, flags: LogFlags) -> [u8; 512] {
    LogFileHeader { set_id: 7, start_lsn, creator: b"MySQL 9.7.4".to_vec(), flags }.build()
}

/// Observes a log as it is written.
struct Watch {
    observer: LogObserver,
    stream: Vec<u8>,
    mtrs: usize,
}

impl Watch {
    fn new(log: &ServerLog) -> Self {
        let next = Lsn(log.start_position());
        Self { observer: LogObserver::new(next, [(3, START_LSN)]), stream: Vec::new(), mtrs: 0 }
    }

    fn write(&mut self, write: &LogWrite) -> Result<(), ObserveError> {
        let name = LogFileName::Log(write.file);
        let mtrs = &mut self.mtrs;
        let before = self.observer.next_lsn();
        let visitor = &mut |_: &Mtr<'_, '_>| *mtrs += 1;
        match self.observer.on_write(name, write.offset, &write.bytes, visitor)? {
            Observed::Redo(redo) => {
                assert_eq!(redo.start_lsn, before);
                assert_eq!(redo.end_lsn.0 - redo.start_lsn.0, redo.bytes.len() as u64);
                assert!(redo.seen_lsn >= redo.end_lsn);
                self.stream.extend_from_slice(redo.bytes);
                Ok(())
            }
            other => panic!("{other:?}"),
        }
    }

    /// Content before the first data of a file.
    fn open_file(&mut self, log: &ServerLog, file: u64) {
        let start_lsn = log.file_start_lsn(file);
        let spare = LogFileName::Spare(file);
        let visitor = &mut |_: &Mtr<'_, '_>| panic!("no redo");
        let zeros = vec![0; FILE_SIZE as usize];
        assert_eq!(self.observer.on_write(spare, 0, &zeros, visitor), Ok(Observed::Filler));
        let block = header(start_lsn, LogFlags(0));
        let observed = self.observer.on_write(spare, 0, &block, visitor).unwrap();
        assert!(matches!(observed, Observed::Header(header) if header.start_lsn == start_lsn));
        let block = crate::mysql::log_file::build_checkpoint(0);
        for slot in CheckpointSlot::ALL {
            let observed = self.observer.on_write(spare, slot.offset(), &block, visitor).unwrap();
            assert_eq!(observed, Observed::Checkpoint { slot, checkpoint: None });
        }
        let full = header(log.file_start_lsn(file - 1), LogFlags::FULL);
        self.observer.on_write(LogFileName::Log(file - 1), 0, &full, visitor).unwrap();
    }
}

#[test]
fn each_byte_is_handed_out_once_in_whole_mini_transactions() {
    for seed in 0..30 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut log, mut watch) = (log(), None::<Watch>);
        let (mut opened, mut groups) = (3, 0);
        for _ in 0..400 {
            for _ in 0..rng.usize(0..8) {
                log.append(&random_group(&mut rng));
                groups += 1;
            }
            // Up to the end of a mini-transaction, or of anything less.
            let end = if rng.bool() { log.payload.len() } else { rng.usize(log.written..=log.payload.len()) };
            let watch = watch.get_or_insert_with(|| Watch::new(&log));
            for write in log.write_to(end) {
                while opened < write.file {
                    opened += 1;
                    watch.open_file(&log, opened);
                }
                watch.write(&write).unwrap();
                // Sent again.
                if rng.u8(0..8) == 0 && write.bytes.len() == 512 {
                    watch.write(&write).unwrap();
                }
            }
            assert_eq!(watch.observer.seen_lsn().0, log.start_position() + end as u64);
            assert_eq!(watch.stream, log.payload[..watch.stream.len()]);
        }
        let mut watch = watch.unwrap();
        let end = log.payload.len();
        log.write_to(end).iter().for_each(|write| {
            while opened < write.file {
                opened += 1;
                watch.open_file(&log, opened);
            }
            watch.write(write).unwrap();
        });
        assert_eq!(watch.stream, log.payload);
        assert_eq!(watch.mtrs, groups);
        assert!(opened > 3);
    }
}

/// A killed server leaves a file that begins after the end of the log; the next one looks at them in any order.
#[test]
fn files_may_be_opened_in_any_order() {
    let mut log = log();
    log.append(&random_group(&mut fastrand::Rng::with_seed(1)));
    let mut observer = LogObserver::new(Lsn(log.start_position()), []);
    for file in [4, 3] {
        let block = header(log.file_start_lsn(file), LogFlags(0));
        observer.on_write(LogFileName::Log(file), 0, &block, &mut |_: &Mtr<'_, '_>| ()).unwrap();
    }
    let mut mtrs = 0;
    for write in log.write_to(log.payload.len()) {
        assert_eq!(write.file, 3);
        let visitor = &mut |_: &Mtr<'_, '_>| mtrs += 1;
        observer.on_write(LogFileName::Log(write.file), write.offset, &write.bytes, visitor).unwrap();
    }
    assert_eq!(mtrs, 1);
}

#[test]
fn one_that_begins_in_the_middle_of_a_block_knows_only_what_comes() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut log = log();
    (0..50).for_each(|_| log.append(&random_group(&mut rng)));
    let end = log.payload.len();
    for &next in &log.groups.clone() {
        log.written = next;
        let next_lsn = Lsn(log.start_position() + next as u64);
        let mut watch = Watch::new(&log);
        watch.observer = LogObserver::new(next_lsn, [(3, START_LSN)]);
        for write in log.write_to(end) {
            watch.write(&write).unwrap();
        }
        assert_eq!(watch.stream, log.payload[next..]);
    }
}

/// At its start the server takes one that fills a block only if the next block was written.
#[test]
fn what_fills_a_block_is_complete_with_the_next_one() {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut log = log();
    while log.payload.is_empty() || !log.payload.len().is_multiple_of(496) {
        log.append(&random_group(&mut rng));
    }
    let last = Lsn(log.start_position() + *log.groups.last().unwrap() as u64);
    let end = Lsn(log.start_position() + log.payload.len() as u64);
    let mut watch = Watch::new(&log);
    let mut writes = log.write_to(log.payload.len());
    let next = writes.last_mut().unwrap();
    let at = next.bytes.len() - 512;
    let next = LogWrite { offset: next.offset + at as u64, bytes: next.bytes.split_off(at), ..*next };
    writes.retain(|write| !write.bytes.is_empty());
    let mut opened = 3;
    for write in &writes {
        while opened < write.file {
            opened += 1;
            watch.open_file(&log, opened);
        }
        watch.write(write).unwrap();
    }
    assert_eq!((watch.observer.next_lsn(), watch.observer.seen_lsn()), (last, end));
    // The full one again, as the server may write it.
    let full = writes.last().unwrap();
    let at = full.bytes.len() - 512;
    let full = LogWrite { offset: full.offset + at as u64, bytes: full.bytes[at..].to_vec(), ..*full };
    watch.write(&full).unwrap();
    assert_eq!(watch.observer.next_lsn(), last);
    watch.write(&next).unwrap();
    assert_eq!(watch.observer.next_lsn(), end);
    assert_eq!(watch.stream, log.payload);
}

/// Each write of a mini-transaction that comes in many small ones leaves little that is not known. That known bytes are
/// not walked again shows `known_bytes_of_a_mini_transaction_are_not_walked_again`.
#[test]
fn observer_keeps_the_known_bytes_over_small_writes() {
    let records: Vec<_> =
        (0..40_000).map(|page_no| record(4, 9, page_no, &[0, 60, 0xf0, 0x7f, 0xff, 0xff, 0xff])).collect();
    let (mut log, bytes) = (log(), group(&records));
    let mut observer = LogObserver::new(Lsn(log.start_position()), [(3, START_LSN)]);
    log.file_size = 1 << 30;
    log.append(&bytes);
    let (mut writes, mut walked, mut handed_out) = (0, 0, 0);
    for end in (0..=bytes.len()).step_by(4000).chain([bytes.len()]) {
        for write in log.write_to(end) {
            let (name, known) = (LogFileName::Log(write.file), observer.known);
            let observed =
                observer.on_write(name, write.offset, &write.bytes, &mut |_: &Mtr<'_, '_>| {}).unwrap();
            let Observed::Redo(redo) = observed else { panic!() };
            handed_out += redo.bytes.len();
            walked += observer.pending.len() - known;
            writes += 1;
        }
    }
    assert_eq!(handed_out, bytes.len());
    assert!(writes > 100, "{writes}");
    assert!(walked < 2 * bytes.len(), "{walked} bytes walked of {}", bytes.len());
}

fn some_writes() -> (ServerLog, Vec<LogWrite>) {
    let mut rng = fastrand::Rng::with_seed(6);
    let mut log = log();
    let mut writes = Vec::new();
    for _ in 0..20 {
        (0..10).for_each(|_| log.append(&random_group(&mut rng)));
        let end = log.payload.len();
        writes.extend(log.write_to(end));
    }
    (log, writes)
}

#[test]
fn a_write_that_was_not_seen_is_missed() {
    let (log, writes) = some_writes();
    for missing in 0..writes.len() - 1 {
        let mut watch = Watch::new(&log);
        let result = writes
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != missing)
            .try_for_each(|(_, write)| watch.write(write));
        // Missing is only what a later write has again.
        assert!(
            matches!(result, Err(ObserveError::Gap { .. })) || watch.stream == log.payload,
            "{missing}: {result:?}"
        );
        assert_eq!(watch.stream, log.payload[..watch.stream.len()]);
    }
}

#[test]
fn changed_bytes_never_become_other_redo() {
    let (log, writes) = some_writes();
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..500 {
        let mut writes = writes.clone();
        let write = rng.usize(0..writes.len());
        let at = rng.usize(0..writes[write].bytes.len());
        writes[write].bytes[at] ^= 1 << rng.u8(0..8);
        let mut watch = Watch::new(&log);
        let result = writes.iter().try_for_each(|write| watch.write(write));
        assert!(result.is_err());
        assert_eq!(watch.stream, log.payload[..watch.stream.len()]);
    }
}

/// A block with other content and a right CRC.
fn resealed(mut block: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    block[at] = byte;
    let crc = crc32c::crc32c(&block[..508]);
    block[508..].copy_from_slice(&crc.to_be_bytes());
    block
}

#[test]
fn a_block_that_was_seen_stays_as_it_was() {
    let mut log = log();
    log.append(&group(&[record(2, 5, 3, &[0, 60, 1])]));
    let first = log.write_to(log.payload.len());
    let mut watch = Watch::new(&log);
    watch.write(&first[0]).unwrap();
    let block = LogWrite { file: 3, offset: 2048, bytes: resealed(first[0].bytes[..512].to_vec(), 14, 9) };
    assert!(matches!(watch.write(&block), Err(ObserveError::Changed { lsn: START_LSN, .. })));
    let shorter = LogWrite { file: 3, offset: 2048, bytes: resealed(first[0].bytes[..512].to_vec(), 5, 14) };
    let mut watch = Watch::new(&log);
    watch.write(&first[0]).unwrap();
    assert!(matches!(watch.write(&shorter), Err(ObserveError::Changed { .. })));
}

#[test]
fn a_first_group_where_none_starts_is_told() {
    let mut log = log();
    (0..3).for_each(|_| log.append(&group(&[record(2, 5, 3, &[0, 60, 1])])));
    let write = log.write_to(log.payload.len()).remove(0);
    let wrong = LogWrite { bytes: resealed(write.bytes[..512].to_vec(), 7, 13), ..write };
    let result = Watch::new(&log).write(&wrong);
    assert_eq!(result, Err(ObserveError::FirstGroup { first_group: Lsn(log.start_position() + 1) }));
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let log = log();
    let visitor = &mut |_: &Mtr<'_, '_>| {};
    let live = LogFileName::Log(3);
    let mut observer = Watch::new(&log).observer;
    let disabled = header(START_LSN, LogFlags(3));
    assert_eq!(observer.on_write(live, 0, &disabled, visitor), Err(ObserveError::LoggingDisabled));
    let cases: [(LogFileName, u64, Vec<u8>); 6] = [
        (live, 2048, vec![1; 100]),
        (live, 2050, vec![1; 512]),
        (live, 1536, vec![1; 1024]),
        (LogFileName::Spare(4), 2048, vec![1; 512]),
        (LogFileName::Log(4), 2048, vec![0; 512]),
        (live, 0, vec![1; 512]),
    ];
    for (file, offset, bytes) in cases {
        let result = observer.on_write(file, offset, &bytes, visitor);
        assert!(
            matches!(
                result,
                Err(ObserveError::NotBlocks { .. }
                    | ObserveError::UnknownFile { .. }
                    | ObserveError::Header { .. })
            ),
            "{file} {offset}: {result:?}"
        );
    }
    let mut encrypted = super::super::block::compose(Lsn(log.start_position()), &[1], None).to_vec();
    encrypted[4] |= 0x80;
    let result = observer.on_write(live, 2048, &encrypted, visitor);
    assert!(matches!(result, Err(ObserveError::Block(BlockError::Encrypted { .. }))));
    let unknown = super::super::block::compose(Lsn(log.start_position()), &[9, 0, 0], None);
    let result = observer.on_write(live, 2048, &unknown, visitor);
    assert!(matches!(
        result,
        Err(ObserveError::Stream(StreamError { error: RedoError::BadByte { offset: 0, .. }, .. }))
    ));
}

#[test]
fn bytes_after_the_end_are_refused_and_zeros_are_not() {
    let mut log = log();
    log.append(&group(&[record(2, 5, 3, &[0, 60, 1])]));
    let write = log.write_to(log.payload.len()).remove(0);
    assert_eq!(write.bytes.len(), 6144);
    let next = super::super::block::compose(Lsn(log.start_position() + 496), &[1], None);
    let mut bytes = write.bytes[..512].to_vec();
    bytes.extend(next);
    let result = Watch::new(&log).write(&LogWrite { bytes, ..write.clone() });
    assert_eq!(result, Err(ObserveError::AfterEnd { lsn: START_LSN }));
    let mut bytes = write.bytes.clone();
    bytes[700] = 1;
    let result = Watch::new(&log).write(&LogWrite { bytes, ..write });
    assert!(matches!(result, Err(ObserveError::Block(BlockError::Number { .. }))));
}

#[test]
fn checkpoints_and_keys_are_told() {
    let log = log();
    let mut observer = Watch::new(&log).observer;
    let visitor = &mut |_: &Mtr<'_, '_>| {};
    let block = crate::mysql::log_file::build_checkpoint(512 * 41 + 100);
    let observed = observer.on_write(LogFileName::Log(3), 1536, &block, visitor).unwrap();
    let checkpoint = Some(Lsn(496 * 41 + 88));
    assert_eq!(observed, Observed::Checkpoint { slot: CheckpointSlot::Second, checkpoint });
    let observed = observer.on_write(LogFileName::Log(3), 1024, &[0; 512], visitor).unwrap();
    assert_eq!(observed, Observed::Encryption);
    assert_eq!(observer.on_write(LogFileName::Log(3), 1024, &block, visitor), Err(ObserveError::Encrypted));
}
