//! Seeded histories on a simulated disk: power cuts at every operation, failing calls, a full disk, damage.

use std::io;
use std::sync::Arc;

use fastrand::Rng;
use redoubt_storage::sim::{Fault, OpKind, SimDisk};
use redoubt_storage::{BudgetDir, ErrorKind, FileBudget};

use super::*;
use crate::format::SEGMENT_HEADER_LEN;
use crate::{DamagedLog, Held};

fn options() -> SegmentOptions {
    SegmentOptions {
        segment_len_bytes: 8192,
        spare_segments: 1,
        prepare_in_background: false,
        held: Default::default(),
    }
}

fn open(disk: &SimDisk) -> Result<FileLogDevice, LogDeviceError> {
    FileLogDevice::open_on(Arc::new(disk.clone()), options())
}

/// The log in a directory with one open file at a time.
fn open_in_turn(disk: &SimDisk) -> Result<FileLogDevice, LogDeviceError> {
    let dir = BudgetDir::new(Arc::new(disk.clone()), &FileBudget::new(1));
    FileLogDevice::open_on(Arc::new(dir), options())
}

/// Expected content of the log.
#[derive(Clone, Default)]
struct Model {
    /// All bytes from position 0 on, also those that may be lost.
    bytes: Vec<u8>,
    /// Ends of the records, among them one that was being appended.
    ends: Vec<u64>,
    durable: u64,
    discarded: u64,
}

impl Model {
    fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len() as u64);
    }

    /// Checks a log that was opened after a crash, and takes over where it ends.
    fn check(&mut self, log: &FileLogDevice, context: &str) {
        let (start, end) = (log.start().0, log.end().0);
        assert!(start <= self.discarded, "{context}: starts at {start}, kept from {}", self.discarded);
        assert!(end >= self.durable, "{context}: ends at {end}, durable to {}", self.durable);
        assert!(end == 0 || self.ends.contains(&end), "{context}: ends at {end}, inside a record");
        let mut read = vec![0; (end - start) as usize];
        log.read_at(Seq(start), &mut read).unwrap();
        assert!(read == self.bytes[start as usize..end as usize], "{context}: other bytes");
        self.bytes.truncate(end as usize);
        self.ends.retain(|&kept| kept <= end);
        self.durable = end;
    }
}

/// Does random things until the power fails or enough is done.
fn run_history(
    log: &FileLogDevice,
    model: &mut Model,
    rng: &mut Rng,
    steps: usize,
) -> Result<(), LogDeviceError> {
    for _ in 0..steps {
        match rng.u8(..10) {
            0..=5 => {
                // Few lengths, so that records of different histories come to lie at the same places.
                let len = [40, 472, 480, 1500, 4056, 9000][rng.usize(..6)];
                let record: Vec<u8> =
                    if rng.bool() { (0..len).map(|_| rng.u8(..)).collect() } else { vec![rng.u8(..2); len] };
                model.push(&record);
                assert_eq!(log.append(&record)?.0, model.bytes.len() as u64);
            }
            6..=8 => {
                let end = log.sync()?.0;
                assert_eq!(end, model.bytes.len() as u64);
                model.durable = end;
            }
            _ => {
                let seq = rng.u64(..=model.durable);
                model.discarded = model.discarded.max(seq);
                log.discard_before(Seq(seq))?;
                if rng.bool() {
                    log.prepare_spare_segments()?;
                }
            }
        }
    }
    Ok(())
}

/// Cuts the power at each operation of the history of each seed.
fn cut_everywhere(
    open: impl Fn(&SimDisk) -> Result<FileLogDevice, LogDeviceError>,
    seeds: impl Iterator<Item = u64>,
) {
    let mut cuts = 0;
    for seed in seeds {
        let mut ops = u64::MAX;
        let mut cut = 0;
        while cut < ops {
            fastrand::seed(seed * 1000 + cut);
            let mut disk = SimDisk::new(seed);
            disk.cut_power_at(cut);
            let mut model = Model::default();
            let mut rng = Rng::with_seed(seed);
            let done = open(&disk).and_then(|log| run_history(&log, &mut model, &mut rng, 25));
            if done.is_ok() && !disk.is_off() {
                ops = disk.ops_done();
            }
            // More lives, some of them cut off while opening the log.
            for life in 0..4 {
                // Now and then only the process dies, and the system keeps what it wrote.
                disk = if rng.u8(..4) == 0 { disk.copy() } else { disk.after_power_cut() };
                let context = format!("seed {seed}, cut at {cut}, life {life}");
                if life < 3 {
                    disk.cut_power_at(rng.u64(..25));
                }
                match open(&disk) {
                    Ok(log) => {
                        model.check(&log, &context);
                        let _ = run_history(&log, &mut model, &mut rng, 6);
                    }
                    Err(error) => assert!(disk.is_off(), "{context}: {error}"),
                }
            }
            cuts += 1;
            cut += 1;
        }
    }
    assert!(cuts > 1000, "{cuts}");
}

#[test]
fn no_power_cut_loses_synced_bytes_or_brings_back_others() {
    // 1797: half of a lost record header fits half of a new one.
    cut_everywhere(open, (0..60).chain([1797]));
}

#[test]
fn no_power_cut_loses_synced_bytes_of_segments_opened_in_turn() {
    cut_everywhere(open_in_turn, 100..160);
}

/// A disk with a log that was closed, and its bytes.
fn closed_log(disk: &SimDisk) -> Vec<u8> {
    let log = open(disk).unwrap();
    let mut bytes = Vec::new();
    for (n, len) in [600, 3000, 9000, 40, 1, 2000].into_iter().enumerate() {
        let record = vec![n as u8 + 1; len];
        bytes.extend_from_slice(&record);
        log.append(&record).unwrap();
        log.sync().unwrap();
    }
    bytes
}

/// What the log holds, read by somebody who wants all of it.
fn read_whole(disk: &SimDisk) -> Result<Vec<u8>, LogDeviceError> {
    let log = open(disk)?;
    let mut read = vec![0; log.end().0 as usize];
    log.read_at(Seq(0), &mut read)?;
    Ok(read)
}

#[test]
fn damage_to_durable_bytes_is_never_cut_off() {
    let disk = SimDisk::new(1);
    let bytes = closed_log(&disk);
    let mut refused = 0;
    for name in disk.list().unwrap() {
        for at in (0..disk.content(&name).len()).step_by(3) {
            let damaged = disk.copy();
            damaged.damage(&name, at, |bytes| bytes[0] ^= 0x10);
            match read_whole(&damaged) {
                Ok(read) => assert!(read == bytes, "{name} at {at}"),
                Err(LogDeviceError::Damaged { .. } | LogDeviceError::BadSegment { .. }) => refused += 1,
                Err(error) => panic!("{name} at {at}: {error}"),
            }
        }
    }
    assert!(refused > bytes.len() / 4, "{refused}");
}

#[test]
fn a_lost_segment_is_noticed() {
    let disk = SimDisk::new(1);
    closed_log(&disk);
    let names: Vec<_> = disk.list().unwrap().into_iter().filter(|name| name.starts_with("log-")).collect();
    assert!(names.len() >= 3);
    disk.remove(&names[1]).unwrap();
    assert!(matches!(read_whole(&disk), Err(LogDeviceError::BadSegment { .. })));
}

/// Records before the damage of a log that cannot be opened, and how far it is known to have been durable.
fn read_before_damage(disk: &SimDisk) -> (Vec<u8>, Seq) {
    let log = DamagedLog::open_on(&(Arc::new(disk.clone()) as Arc<dyn StorageDir>)).unwrap();
    let mut read = vec![0; (log.end().0 - log.start().0) as usize];
    log.read_at(log.start(), &mut read).unwrap();
    (read, log.proven_end())
}

#[test]
fn log_that_was_cut_behind_its_records_continues() {
    let disk = SimDisk::new(1);
    let bytes = closed_log(&disk);
    let names: Vec<_> = disk.list().unwrap().into_iter().filter(|name| name.starts_with("log-")).collect();
    let last = names.last().unwrap();
    let (mut continued, mut refused) = (0, 0);
    for len in (0..options().segment_len_bytes).step_by(8) {
        let cut = disk.copy();
        cut.open(last).unwrap().set_len(len).unwrap();
        match read_whole(&cut) {
            Ok(read) => {
                continued += 1;
                assert!(read == bytes, "cut at {len}");
                let log = open(&cut).unwrap();
                log.append(b"another record").unwrap();
                log.sync().unwrap();
                drop(log);
                assert_eq!(cut.content(last).len() as u64, options().segment_len_bytes);
                assert!(read_whole(&cut).unwrap() == [&bytes, &b"another record"[..]].concat());
            }
            Err(error) => {
                refused += 1;
                assert!(error.damaged_from().is_some(), "cut at {len}: {error}");
                let (read, proven_end) = read_before_damage(&cut);
                assert!(bytes.starts_with(&read) && proven_end.0 >= read.len() as u64, "cut at {len}");
            }
        }
    }
    assert!(continued > 100 && refused > 100, "{continued} {refused}");
}

#[test]
fn damaged_header_of_a_segment_leaves_what_is_before_it() {
    let (disk, names) = many_segments();
    let bytes: Vec<u8> = (0..40_u8).flat_map(|n| [n; 3000]).collect();
    for (number, name) in names.iter().enumerate() {
        let first_seq: usize = name["log-".len()..name.len() - ".seg".len()].parse().unwrap();
        for at in [0, 20, 40, 50] {
            let damaged = disk.copy();
            damaged.damage(name, at, |bytes| bytes[0] ^= 0x10);
            let error = open(&damaged).err().unwrap();
            assert_eq!(error.damaged_from(), Some(Seq(first_seq as u64)), "{name} at {at}: {error}");
            let (read, proven_end) = read_before_damage(&damaged);
            assert!(bytes.starts_with(&read), "{name} at {at}");
            assert!(read.len() <= first_seq && first_seq - read.len() < 3000, "{name}: {}", read.len());
            let is_proven = number + 1 == names.len() || proven_end.0 as usize > first_seq;
            assert!(is_proven, "{name}: durable to {proven_end}");
        }
    }
}

#[test]
fn log_that_lacks_what_it_held_is_not_opened_and_not_changed() {
    let (disk, names) = many_segments();
    let open_held = |disk: &SimDisk, (from, to)| {
        let held = Held { from: Seq(from), to: Seq(to) };
        FileLogDevice::open_on(Arc::new(disk.clone()), SegmentOptions { held, ..options() })
    };
    let content = |disk: &SimDisk| {
        let names = disk.list().unwrap();
        names.iter().map(|name| (name.clone(), disk.content(name))).collect::<Vec<_>>()
    };
    assert_eq!(open_held(&disk.copy(), (0, 120_000)).unwrap().end(), Seq(120_000));
    let without = |gone: &[String]| {
        let disk = disk.copy();
        gone.iter().for_each(|name| disk.remove(name).unwrap());
        disk
    };
    let begins_later = without(&names[..2]);
    let ends_earlier = without(&names[names.len() - 1..]);
    let has_none = without(&names);
    let ends_in_a_cut_file = ends_earlier.copy();
    ends_in_a_cut_file.open(&names[names.len() - 2]).unwrap().set_len(8000).unwrap();
    let cases = [
        (begins_later, (1, 120_000)),
        (ends_earlier, (120_000, 120_000)),
        (ends_in_a_cut_file, (1, 120_000)),
        (has_none, (1, 1)),
        (disk.copy(), (1, 120_001)),
    ];
    for (disk, held) in cases {
        let before = content(&disk);
        let error = open_held(&disk, held).err().unwrap();
        assert!(error.damaged_from().is_some(), "{error}");
        assert!(content(&disk) == before, "{error}");
    }
}

/// It may be whole, and this program too old.
#[test]
fn segment_of_an_unknown_version_is_not_damage() {
    let (disk, names) = many_segments();
    disk.damage(&names[3], 8, |bytes| bytes[0] = 77);
    let error = open(&disk).err().unwrap();
    assert!(error.damaged_from().is_none() && error.to_string().contains("77"), "{error}");
}

/// A log of 40 records of 3000 bytes, and the names of its segments in order.
fn many_segments() -> (SimDisk, Vec<String>) {
    let disk = SimDisk::new(3);
    let log = open(&disk).unwrap();
    for n in 0..40_u8 {
        log.append(&[n; 3000]).unwrap();
        log.sync().unwrap();
    }
    drop(log);
    let mut names: Vec<_> =
        disk.list().unwrap().into_iter().filter(|name| name.starts_with("log-")).collect();
    names.sort_unstable();
    (disk, names)
}

/// Damage to a segment that was durable long before does not keep the log from being opened: the damage is where it
/// is, and the rest can be read and added to.
#[test]
fn what_was_sealed_is_checked_by_who_reads_it() {
    let (disk, names) = many_segments();
    assert!(names.len() > 8);
    for (number, name) in names.iter().enumerate().take(names.len() - 4) {
        let damaged = disk.copy();
        damaged.damage(name, 6000, |bytes| bytes[0] ^= 0x10);
        let log = open(&damaged).unwrap();
        assert_eq!(log.end(), Seq(120_000));
        let first_seq: u64 = name["log-".len()..][..20].parse().unwrap();
        let next_seq: u64 = names[number + 1]["log-".len()..][..20].parse().unwrap();
        let read = |from: u64, to: u64| {
            let mut bytes = vec![0; (to - from) as usize];
            log.read_at(Seq(from), &mut bytes).map(|()| bytes)
        };
        let whole = |from: u64, to: u64| (from..to).map(|at| (at / 3000) as u8).collect::<Vec<_>>();
        assert!(read(0, first_seq).unwrap() == whole(0, first_seq), "{name}");
        assert!(read(next_seq, 120_000).unwrap() == whole(next_seq, 120_000), "{name}");
        let error = read(first_seq, next_seq).unwrap_err();
        let LogDeviceError::Damaged { file, seq, .. } = &error else { panic!("{name}: {error}") };
        assert_eq!(file, name);
        // Before its damage it is whole, and after it nothing of it is given out.
        assert!(read(first_seq, seq.0).unwrap() == whole(first_seq, seq.0), "{name}");
        read(seq.0, seq.0 + 1).unwrap_err();
        // What it holds is not given back by a second try either.
        read(0, 120_000).unwrap_err();
        log.append(&[40; 3000]).unwrap();
        log.sync().unwrap();
    }
}

/// A sector that the drive cannot read is damage like any other, wherever it is.
#[test]
fn sector_that_the_drive_has_lost_is_damage_of_the_log() {
    let (disk, names) = many_segments();
    let last = names.len() - 1;
    for (number, name) in names.iter().enumerate() {
        let damaged = disk.copy();
        damaged.lose(name, 5000..5100);
        let error = match open(&damaged) {
            Ok(log) => log.read_at(Seq(0), &mut vec![0; 120_000]).unwrap_err(),
            Err(error) => error,
        };
        assert!(matches!(&error, LogDeviceError::Damaged { file, .. } if file == name), "{name}: {error}");
        let from = error.damaged_from().unwrap();
        if let Err(refused) = open(&damaged) {
            assert_eq!(refused.damaged_from(), Some(from), "{name}");
            let readable = DamagedLog::open_on(&(Arc::new(damaged.copy()) as Arc<dyn StorageDir>)).unwrap();
            assert!(readable.end() <= from, "{name}");
        }
        assert!(number < last || open(&damaged).is_err(), "the end of the log is not known");
    }
    // Nothing but the header.
    let away = disk.copy();
    away.lose(&names[0], 4096..away.content(&names[0]).len());
    let log = open(&away).unwrap();
    let mut byte = [0];
    assert!(matches!(log.read_at(Seq(0), &mut byte), Err(LogDeviceError::Damaged { .. })));
}

/// Wherever a log is damaged, all whole records before the damage can be read.
#[test]
fn damaged_log_is_readable_up_to_its_damage() {
    let (disk, names) = many_segments();
    let whole: Vec<_> = (0..120_000).map(|at| (at / 3000) as u8).collect();
    let (mut sealed, mut refused) = (0, 0);
    for name in names {
        let first_seq: u64 = name["log-".len()..][..20].parse().unwrap();
        let damaged = disk.copy();
        // In the second record of the segment, which has 3032 bytes.
        damaged.damage(&name, 7500, |bytes| bytes[0] ^= 0x10);
        let damaged_from = match open(&damaged) {
            Ok(log) => {
                let mut bytes = vec![0; 120_000];
                let Err(error) = log.read_at(Seq(0), &mut bytes) else { continue };
                let from = error.damaged_from().unwrap();
                log.read_at(Seq(0), &mut bytes[..from.0 as usize]).unwrap();
                assert!(bytes[..from.0 as usize] == whole[..from.0 as usize], "{name}");
                sealed += 1;
                from.0
            }
            Err(error) => {
                let dir: Arc<dyn redoubt_storage::StorageDir> = Arc::new(damaged.clone());
                let before = damaged.list().unwrap().len();
                let log = DamagedLog::open_on(&dir).unwrap();
                let end = log.end();
                assert!(end <= error.damaged_from().unwrap() && end < log.proven_end(), "{name}");
                let mut bytes = vec![0; end.0 as usize];
                log.read_at(Seq(0), &mut bytes).unwrap();
                assert!(bytes == whole[..end.0 as usize], "{name}");
                assert!(log.read_at(end, &mut [0]).is_err() && log.append(b"more").is_err());
                log.discard_before(end).unwrap();
                assert_eq!(damaged.list().unwrap().len(), before, "nothing is changed");
                refused += 1;
                end.0
            }
        };
        assert!(damaged_from + 3000 > first_seq, "{name}: readable up to {damaged_from} only");
    }
    assert!(sealed > 5 && refused > 0, "{sealed} {refused}");
}

/// Opening reads the end only, however long the log is.
#[test]
fn a_long_log_is_opened_as_fast_as_a_short_one() {
    let mut ops = Vec::new();
    for records in [20_usize, 200] {
        let disk = SimDisk::new(3);
        let log = open(&disk).unwrap();
        for _ in 0..records {
            log.append(&[7; 3000]).unwrap();
            log.sync().unwrap();
        }
        drop(log);
        let bytes_read = disk.bytes_read();
        drop(open(&disk).unwrap());
        let segments = disk.list().unwrap().len() as u64;
        // Each segment's header is read.
        ops.push(disk.bytes_read() - bytes_read - segments * SEGMENT_HEADER_LEN as u64);
    }
    assert!(ops[1] <= ops[0] + 8192, "{ops:?}");
}

#[test]
fn a_full_disk_can_be_retried() {
    let disk = SimDisk::new(2);
    let log = open(&disk).unwrap();
    log.append(&[1; 3000]).unwrap();
    for extra in [0, 4000, 8192, 12_000] {
        disk.set_capacity_bytes(Some(disk.used_bytes() + extra));
        let error = log.append(&[2; 20_000]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        assert_eq!(log.end(), Seq(3000));
    }
    disk.set_capacity_bytes(None);
    assert_eq!(log.append(&[2; 20_000]).unwrap(), Seq(23_000));
    log.sync().unwrap();
    drop(log);
    let log = open(&disk.after_power_cut()).unwrap();
    let mut read = vec![0; 23_000];
    log.read_at(Seq(0), &mut read).unwrap();
    assert!(read[..3000] == [1; 3000] && read[3000..] == [2; 20_000]);
}

#[test]
fn after_a_failed_write_or_sync_every_call_fails() {
    for (kind, error) in [
        (OpKind::Write, io::ErrorKind::InvalidData),
        (OpKind::Write, io::ErrorKind::StorageFull),
        (OpKind::Sync, io::ErrorKind::InvalidData),
        (OpKind::Sync, io::ErrorKind::StorageFull),
    ] {
        for seed in 0..20 {
            let disk = SimDisk::new(seed);
            let log = open(&disk).unwrap();
            log.append(&[1; 700]).unwrap();
            log.sync().unwrap();
            disk.inject(Fault { kind, name: "log-".into(), skip: 0, error });
            // The file was opened under its spare name; faults go by the name it was opened with.
            disk.inject(Fault { kind, name: "spare-".into(), skip: 0, error });
            let failed = log.append(&[2; 900]).and_then(|_| log.sync()).unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::Fatal);
            let poisoned = |result: Result<(), LogDeviceError>| {
                assert!(matches!(result, Err(LogDeviceError::Poisoned { .. })));
            };
            poisoned(log.append(&[3]).map(drop));
            poisoned(log.sync().map(drop));
            poisoned(log.discard_before(Seq(0)));
            poisoned(log.read_at(Seq(0), &mut [0]));
            drop(log);
            // The machine goes on, the process starts again.
            let log = open(&disk.copy()).unwrap();
            let end = log.end().0;
            assert!(end == 700 || end == 1600, "{end}");
            let log_after_cut = open(&disk.after_power_cut()).unwrap();
            assert!(log_after_cut.end().0 >= 700);
        }
    }
}

#[test]
fn a_sync_that_failed_is_not_believed_after_a_restart() {
    let mut lost = 0;
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let log = open(&disk).unwrap();
        log.append(&[1; 5000]).unwrap();
        disk.inject(Fault {
            kind: OpKind::Sync,
            name: String::new(),
            skip: 0,
            error: io::ErrorKind::InvalidData,
        });
        log.sync().unwrap_err();
        drop(log);
        // What the new process finds must survive a power cut.
        let log = open(&disk).unwrap();
        let end = log.end();
        drop(log);
        assert!(open(&disk.after_power_cut()).unwrap().end() >= end, "seed {seed}");
        lost += u32::from(end == Seq(0));
    }
    assert!(lost > 0);
}

/// With many threads in and around a sync that fails, each gets an error and none is left asleep.
#[test]
fn a_failed_sync_lets_all_waiting_threads_go() {
    for seed in 0..30 {
        let disk = SimDisk::new(seed);
        // All fits into one segment: every sync is one of records.
        let options = SegmentOptions { segment_len_bytes: 1 << 20, spare_segments: 0, ..options() };
        let log = FileLogDevice::open_on(Arc::new(disk.clone()), options).unwrap();
        let error = io::ErrorKind::InvalidData;
        disk.inject(Fault { kind: OpKind::Sync, name: String::new(), skip: seed, error });
        let commit = || log.append(&[5; 300]).and_then(|end| Ok((end, log.wait_durable(end)?)));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        match commit() {
                            Ok((end, durable)) => assert!(durable >= end),
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Fatal, "{error}");
                                return;
                            }
                        }
                    }
                });
            }
        });
        assert!(matches!(log.sync(), Err(LogDeviceError::Poisoned { .. })), "seed {seed}");
    }
}
