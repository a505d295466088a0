//! Sets of files as a server leaves them, and as it does not.

use std::collections::BTreeMap;

use super::*;
use crate::mtr::Mtr;
use crate::mysql::log_file::build_checkpoint;
use crate::mysql::position::server_lsn;
use crate::mysql::test_encoder::random_group;
use crate::mysql::test_server_log::ServerLog;

const START_LSN: u64 = 512 * 40;
const FILE_SIZE: u64 = 65_536;

#[derive(Clone)]
struct Files(BTreeMap<u64, Vec<u8>>);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("outside")]
struct Outside;

impl LogSetRead for Files {
    type Error = Outside;

    fn read_at(&self, number: u64, offset: u64, buf: &mut [u8]) -> Result<(), Outside> {
        let file = self.0.get(&number).ok_or(Outside)?;
        let part = file.get(offset as usize..offset as usize + buf.len()).ok_or(Outside)?;
        buf.copy_from_slice(part);
        Ok(())
    }
}

impl Files {
    fn sizes(&self) -> Vec<(u64, u64)> {
        self.0.iter().map(|(&number, file)| (number, file.len() as u64)).collect()
    }

    fn header(&mut self, number: u64, change: impl FnOnce(&mut LogFileHeader)) {
        let file = self.0.get_mut(&number).unwrap();
        let mut header = LogFileHeader::parse(file[..512].try_into().unwrap()).unwrap();
        change(&mut header);
        file[..512].copy_from_slice(&header.build());
    }

    fn open(&self) -> Result<LogSet<'_, Self>, LogSetError<Outside>> {
        LogSet::open(self, &self.sizes())
    }

    fn error(&self) -> LogSetError<Outside> {
        self.open().err().unwrap()
    }
}

/// A log of some files, with a checkpoint at this payload offset.
fn files(log: &mut ServerLog, checkpoint: usize) -> Files {
    let end = log.payload.len();
    let mut files = Files(BTreeMap::new());
    log.written = 0;
    let writes = log.write_to(end);
    let newest = writes.last().map_or(log.first_file, |write| write.file);
    for number in log.first_file..=newest {
        let mut file = vec![0; log.file_size as usize];
        let flags = if number < newest { LogFlags::FULL } else { LogFlags(0) };
        let start_lsn = log.file_start_lsn(number);
        let header = LogFileHeader { set_id: 7, start_lsn, creator: b"MySQL 9.7.4".to_vec(), flags };
        file[..512].copy_from_slice(&header.build());
        let lsn = server_lsn(Lsn(log.start_position() + checkpoint as u64));
        let range = FileRange { start_lsn, size_bytes: log.file_size };
        file[1536..2048].copy_from_slice(&build_checkpoint(if range.contains(lsn) { lsn } else { 0 }));
        files.0.insert(number, file);
    }
    for write in writes {
        let at = write.offset as usize;
        files.0.get_mut(&write.file).unwrap()[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
    }
    files
}

fn log(groups: usize, seed: u64) -> ServerLog {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut log = ServerLog::new(START_LSN, 3, FILE_SIZE, 8192);
    (0..groups).for_each(|_| log.append(&random_group(&mut rng)));
    log
}

fn walk(set: &LogSet<'_, Files>, start: Lsn) -> (Vec<u8>, Vec<u64>, LogSetEnd) {
    let (mut bytes, mut starts) = (Vec::new(), Vec::new());
    let end = set.walk(start, &mut |mtr: &Mtr<'_, '_>| {
        bytes.extend_from_slice(mtr.bytes);
        starts.push(mtr.start_lsn.0);
    });
    (bytes, starts, end.unwrap())
}

#[test]
fn a_log_is_read_from_any_checkpoint_to_its_end() {
    for seed in 0..20 {
        let mut log = log(1200, seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        let checkpoint = rng.usize(0..log.payload.len());
        let files = files(&mut log, checkpoint);
        let set = files.open().unwrap();
        assert!(set.files().len() > 2);
        let position = log.start_position();
        assert_eq!(set.checkpoint().0, position + checkpoint as u64);
        let Some(first) = set.first_mtr().unwrap() else { continue };
        let block = checkpoint / 496 * 496;
        let expected = log.groups.iter().copied().find(|&at| at >= block).unwrap_or(log.payload.len());
        assert_eq!(first.0, position + expected as u64);
        let (bytes, starts, end) = walk(&set, first);
        assert!(bytes == log.payload[expected..]);
        let groups: Vec<_> =
            log.groups.iter().map(|&at| position + at as u64).filter(|&at| at >= first.0).collect();
        assert_eq!(starts, groups);
        assert_eq!(end.end_lsn.0, position + log.payload.len() as u64);
        assert_eq!(end.payload_end, end.end_lsn);
        let from = rng.usize(0..log.payload.len());
        let len = rng.usize(0..=log.payload.len() - from);
        let mut part = vec![0; len];
        set.read_payload(Lsn(position + from as u64), &mut part).unwrap();
        assert!(part == log.payload[from..from + len]);
    }
}

/// The server was killed when it had no file to continue in: at its next start it leaves out the filler of the last block.
#[test]
fn what_fills_the_last_file_is_complete_with_the_next_one() {
    let mut log = log(300, 1);
    let per_file = (FILE_SIZE as usize - 2048) / 512 * 496;
    // DUMMY_RECORDs, and MULTI_REC_END.
    let mut filler = vec![32; (log.payload.len() + 2).next_multiple_of(per_file) - log.payload.len()];
    *filler.last_mut().unwrap() = 31;
    log.append(&filler);
    let mut files = files(&mut log, 0);
    let first = Lsn(log.start_position());
    assert_eq!(walk(&files.open().unwrap(), first).0, log.payload);
    let (newest, _) = files.0.pop_last().unwrap();
    files.header(newest - 1, |header| header.flags = LogFlags(0));
    let (bytes, _, end) = walk(&files.open().unwrap(), first);
    assert_eq!(end.stop, LogSetStop::WholeSet);
    assert_eq!(bytes.len(), log.payload.len() - filler.len());
    assert_eq!(end.end_lsn.0, first.0 + bytes.len() as u64);
    assert_eq!(end.payload_end.0, first.0 + log.payload.len() as u64);
}

#[test]
fn the_end_is_where_no_block_follows() {
    let mut log = log(300, 1);
    let files = files(&mut log, 0);
    let first = Lsn(log.start_position());
    let whole = walk(&files.open().unwrap(), first).0.len();
    // A block in the middle is gone: the mini-transaction that is in it is not whole.
    for (change, expected) in [(100, "checksum"), (0, "number")] {
        let mut damaged = files.clone();
        damaged.0.get_mut(&3).unwrap()[2048 + 512 * 7 + change] ^= 0x55;
        let set = damaged.open().unwrap();
        let (bytes, _, end) = walk(&set, first);
        assert!(bytes.len() < whole && bytes == log.payload[..bytes.len()], "{expected}");
        assert_eq!(end.payload_end.0, first.0 + 7 * 496);
        assert!(end.end_lsn <= end.payload_end);
        assert!(matches!(end.stop, LogSetStop::NoBlock(_)));
    }
    let mut encrypted = files.clone();
    let block = &mut encrypted.0.get_mut(&3).unwrap()[2048..2560];
    block[4] |= 0x80;
    let set = encrypted.open().unwrap();
    assert!(matches!(
        set.walk(first, &mut |_: &Mtr<'_, '_>| {}),
        Err(LogSetError::Block(BlockError::Encrypted { .. }))
    ));
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let mut log = log(2000, 2);
    let good = files(&mut log, 100);
    let newest = *good.0.keys().last().unwrap();
    let change = |change: &dyn Fn(&mut Files)| {
        let mut files = good.clone();
        change(&mut files);
        files.error()
    };
    assert_eq!(change(&|files| files.0.clear()), LogSetError::NoFiles);
    assert_eq!(change(&|files| drop(files.0.remove(&4))), LogSetError::NoChain { number: 5 });
    assert_eq!(
        change(&|files| files.header(4, |header| header.set_id = 8)),
        LogSetError::NoChain { number: 4 }
    );
    assert_eq!(
        change(&|files| files.header(4, |header| header.start_lsn += 512)),
        LogSetError::NoChain { number: 4 }
    );
    assert_eq!(
        change(&|files| drop(files.0.remove(&newest))),
        LogSetError::NewestMissing { number: newest - 1 }
    );
    for flags in [2, 3, 4] {
        let error = change(&|files| files.header(newest, |header| header.flags = LogFlags(flags)));
        assert_eq!(error, LogSetError::Flags { flags });
    }
    let no_checkpoint = |files: &mut Files| files.0.get_mut(&3).unwrap()[1536..2048].fill(0);
    assert_eq!(change(&no_checkpoint), LogSetError::NoCheckpoint);
    assert!(matches!(
        change(&|files| files.0.get_mut(&4).unwrap()[9] ^= 1),
        LogSetError::File { number: 4, .. }
    ));
    assert_eq!(
        change(&|files| files.0.get_mut(&5).unwrap().truncate(100)),
        LogSetError::Read { number: 5, error: Outside }
    );
}

#[test]
fn a_checkpoint_of_another_file_does_not_count() {
    let mut log = log(2000, 3);
    let mut files = files(&mut log, 100);
    let expected = files.open().unwrap().checkpoint();
    files.0.get_mut(&4).unwrap()[512..1024].copy_from_slice(&build_checkpoint(START_LSN + 600));
    assert_eq!(files.open().unwrap().checkpoint(), expected);
    // An older one in the other slot.
    files.0.get_mut(&3).unwrap()[512..1024].copy_from_slice(&build_checkpoint(START_LSN + 20));
    assert_eq!(files.open().unwrap().checkpoint(), expected);
}

#[test]
fn changed_files_never_panic() {
    let mut log = log(600, 4);
    let good = files(&mut log, 3000);
    let mut rng = fastrand::Rng::with_seed(4);
    for _ in 0..300 {
        let mut files = good.clone();
        for _ in 0..rng.u8(1..6) {
            let file = files.0.get_mut(&rng.u64(3..5)).unwrap();
            let at = if rng.bool() { rng.usize(0..2048) } else { rng.usize(0..file.len()) };
            file[at] = rng.u8(..);
        }
        let Ok(set) = files.open() else { continue };
        if let Ok(Some(first)) = set.first_mtr() {
            let _ = set.walk(first, &mut |_: &Mtr<'_, '_>| {});
        }
    }
    let set = good.open().unwrap();
    assert!(matches!(set.read_payload(Lsn(5), &mut [0]), Err(LogSetError::NotInLog { .. })));
    assert!(set.read_payload(Lsn(u64::MAX), &mut [0]).is_err());
}
