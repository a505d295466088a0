//! Seeded histories on a simulated disk: power cuts at every operation with writes under way, writes that finish in
//! any order, failing writes, a full disk.

use fastrand::Rng;
use redoubt_storage::ErrorKind;
use redoubt_storage::probe::{BlockDevice, PathProbe};
use redoubt_storage::sim::{Fault, OpKind, SimDisk, SimIo};

use super::*;
use crate::FileLogDevice;
use crate::choice::tests::{disk, good};
use crate::choice::{choose, write_unit_len};

fn segments() -> SegmentOptions {
    SegmentOptions {
        segment_len_bytes: 16384,
        spare_segments: 1,
        prepare_in_background: false,
        held: Default::default(),
    }
}

fn options() -> BlockLogOptions {
    BlockLogOptions {
        segments: segments(),
        max_in_flight: 3,
        group_len_bytes: 4096,
        ..BlockLogOptions::default()
    }
}

fn open(disk: &SimDisk) -> Result<BlockLogDevice, LogDeviceError> {
    open_with(disk, options())
}

fn open_with(disk: &SimDisk, options: BlockLogOptions) -> Result<BlockLogDevice, LogDeviceError> {
    let io = SimIo::new(disk, options.max_in_flight);
    BlockLogDevice::open_on(Arc::new(disk.clone()), Arc::new(io), options)
}

impl BlockLogDevice {
    /// Awaits any one of the writes under way.
    fn finish_any(&self, rng: &mut Rng) -> Result<(), LogDeviceError> {
        let write = self.lock()?.take_any_to_await(rng.usize(..));
        match write {
            Some(write) => self.finish(write, 0).map(drop),
            None => Ok(()),
        }
    }
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
    fn check(&mut self, log: &dyn LogDevice, context: &str) {
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

fn random_record(rng: &mut Rng) -> Vec<u8> {
    // Few lengths, so that records of different histories come to lie at the same places.
    let len = [40, 472, 480, 481, 1500, 4056, 9000, 20_000][rng.usize(..8)];
    if rng.bool() { (0..len).map(|_| rng.u8(..)).collect() } else { vec![rng.u8(..2); len] }
}

/// Does random things until the power fails or enough is done.
fn run_history(
    log: &BlockLogDevice,
    model: &mut Model,
    rng: &mut Rng,
    steps: usize,
) -> Result<(), LogDeviceError> {
    for _ in 0..steps {
        match rng.u8(..12) {
            0..=5 => {
                let record = random_record(rng);
                model.push(&record);
                assert_eq!(log.append(&record)?.0, model.bytes.len() as u64);
            }
            6..=8 => log.finish_any(rng)?,
            9 => assert_eq!(log.sync()?.0, model.bytes.len() as u64),
            10 => {
                let end = model.ends.get(rng.usize(..model.ends.len().max(1))).copied().unwrap_or(0);
                assert!(log.wait_durable(Seq(end))?.0 >= end);
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
        // Whatever is said to be durable must be there after a crash.
        model.durable = model.durable.max(log.durable_end().0);
    }
    Ok(())
}

/// One history, cut at operation `cut`, then some more lives. Returns how many operations the whole history has,
/// if the cut was after its end.
fn run_lives(seed: u64, cut: u64, options: &BlockLogOptions) -> Option<u64> {
    run_lives_on(SimDisk::new(seed), seed, cut, options)
}

/// [`run_lives`] on a new disk.
fn run_lives_on(mut disk: SimDisk, seed: u64, cut: u64, options: &BlockLogOptions) -> Option<u64> {
    fastrand::seed(seed * 1000 + cut);
    disk.cut_power_at(cut);
    let mut model = Model::default();
    let mut rng = Rng::with_seed(seed);
    let done = open_with(&disk, options.clone())
        .and_then(|log| run_history(&log, &mut model, &mut rng, 25).map(|()| drop(log)));
    let ops = (done.is_ok() && !disk.is_off()).then(|| disk.ops_done());
    for life in 0..4 {
        // Now and then only the process dies, and the system keeps what it wrote.
        disk = if rng.u8(..4) == 0 { disk.copy() } else { disk.after_power_cut() };
        let context = format!("seed {seed}, cut at {cut}, life {life}");
        if life < 3 {
            disk.cut_power_at(rng.u64(..30));
        }
        if rng.u8(..5) == 0 {
            // Another device carries on.
            match FileLogDevice::open_on(Arc::new(disk.clone()), options.segments.clone()) {
                Ok(log) => {
                    model.check(&log, &context);
                    let record = random_record(&mut rng);
                    model.push(&record);
                    if log.append(&record).and_then(|_| log.sync()).is_ok() {
                        model.durable = model.bytes.len() as u64;
                    }
                }
                Err(error) => assert!(disk.is_off(), "{context}: {error}"),
            }
            continue;
        }
        match open_with(&disk, options.clone()) {
            Ok(log) => {
                model.check(&log, &context);
                let _ = run_history(&log, &mut model, &mut rng, 8);
            }
            Err(error) => assert!(disk.is_off(), "{context}: {error}"),
        }
    }
    ops
}

#[test]
fn no_power_cut_loses_durable_bytes_or_brings_back_others() {
    let variants = [
        options(),
        BlockLogOptions { max_in_flight: 1, ..options() },
        BlockLogOptions { max_in_flight: 8, eager_in_flight: 8, ..options() },
        BlockLogOptions { write_unit_bytes: 4096, group_len_bytes: 16384, ..options() },
    ];
    let mut cuts = 0;
    for seed in 0..40_u64 {
        let options = &variants[seed as usize % variants.len()];
        let mut cut = 0;
        loop {
            let ops = run_lives(seed, cut, options);
            cut += 1;
            cuts += 1;
            if ops.is_some_and(|ops| cut >= ops) {
                break;
            }
        }
    }
    assert!(cuts > 1000, "{cuts}");
}

/// A drive that shows sectors of 512 bytes and writes 4096.
fn emulating_disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.set_physical_sector_len_bytes(4096);
    disk
}

/// What is found out about a directory on such a drive.
fn emulating_probe() -> PathProbe {
    let drive = BlockDevice { physical_block_len: Some(4096), ..disk() };
    PathProbe { block_device: Some(drive), ..good() }
}

/// Histories on such drives, cut at each operation.
fn run_emulated(unit: usize) -> u64 {
    let options = BlockLogOptions { write_unit_bytes: unit, group_len_bytes: 16384, ..options() };
    let mut cuts = 0;
    for seed in 0..10 {
        let mut cut = 0;
        while run_lives_on(emulating_disk(seed), seed, cut, &options).is_none_or(|ops| cut + 1 < ops) {
            cut += 1;
        }
        cuts += cut;
    }
    cuts
}

#[test]
fn a_drive_that_writes_more_than_a_sector_takes_nothing_that_was_acknowledged() {
    let probe = emulating_probe();
    assert_eq!(choose(&probe, false).kind, DeviceKind::Block);
    assert!(run_emulated(write_unit_len(&probe) as usize) > 250);
}

#[test]
#[should_panic = "seed"]
fn the_simulated_drive_finds_a_unit_that_is_too_short() {
    run_emulated(512);
}

#[test]
fn a_log_with_a_shorter_unit_is_read_and_goes_on_with_the_longer_one() {
    let whole = || BlockLogOptions { write_unit_bytes: 4096, group_len_bytes: 16384, ..options() };
    for seed in 0..40 {
        // Written by an earlier version, on a drive that was lucky.
        let mut disk = SimDisk::new(seed);
        let mut model = Model::default();
        let mut rng = Rng::with_seed(seed);
        let log = open(&disk).unwrap();
        run_history(&log, &mut model, &mut rng, 25).unwrap();
        if rng.bool() {
            drop(log);
        } else {
            std::mem::forget(log);
        }
        disk = disk.after_power_cut();
        disk.set_physical_sector_len_bytes(4096);
        for life in 0..4 {
            let context = format!("seed {seed}, life {life}");
            disk.cut_power_at(rng.u64(..40));
            match open_with(&disk, whole()) {
                Ok(log) => {
                    model.check(&log, &context);
                    let _ = run_history(&log, &mut model, &mut rng, 12);
                }
                Err(error) => assert!(disk.is_off(), "{context}: {error}"),
            }
            disk = disk.after_power_cut();
        }
        model.check(&open_with(&disk, whole()).unwrap(), &format!("seed {seed}, end"));
    }
}

#[test]
fn the_durable_end_waits_for_the_first_write() {
    let disk = SimDisk::new(5);
    let options = BlockLogOptions { eager_in_flight: 8, ..options() };
    let log = open_with(&disk, options).unwrap();
    let ends = [1_u8, 2, 3].map(|n| log.append(&[n; 1000]).unwrap());
    let await_number = |number| {
        let write = log.lock().unwrap().take_any_to_await(number).unwrap();
        log.finish(write, 0).unwrap();
    };
    // The last, then the second, then the first.
    await_number(2);
    assert_eq!(log.durable_end(), Seq(0));
    await_number(1);
    assert_eq!(log.durable_end(), Seq(0));
    await_number(0);
    assert_eq!(log.durable_end(), ends[2]);
}

#[test]
fn a_full_disk_can_be_retried() {
    let disk = SimDisk::new(2);
    let log = open(&disk).unwrap();
    log.append(&[1; 3000]).unwrap();
    for extra in [0, 4000, 16_384, 20_000] {
        disk.set_capacity_bytes(Some(disk.used_bytes() + extra));
        let error = log.append(&[2; 50_000]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        assert_eq!(log.end(), Seq(3000));
        // What was appended before becomes durable all the same.
        assert_eq!(log.sync().unwrap(), Seq(3000));
    }
    disk.set_capacity_bytes(None);
    assert_eq!(log.append(&[2; 50_000]).unwrap(), Seq(53_000));
    log.sync().unwrap();
    drop(log);
    let log = open(&disk.after_power_cut()).unwrap();
    let mut read = vec![0; 53_000];
    log.read_at(Seq(0), &mut read).unwrap();
    assert!(read[..3000] == [1; 3000] && read[3000..] == [2; 50_000]);
}

#[test]
fn a_full_disk_fails_the_append_and_not_the_write() {
    let disk = SimDisk::new(3);
    let log = open(&disk).unwrap();
    disk.set_capacity_bytes(Some(disk.used_bytes()));
    let mut end = Seq(0);
    let error = loop {
        match log.append(&[9; 700]) {
            Ok(appended) => end = appended,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    assert_eq!(log.end(), end);
    assert_eq!(log.sync().unwrap(), end);
    assert!(end.0 > 8000);
}

#[test]
fn after_a_failed_write_every_call_fails() {
    for (kind, error) in [
        (OpKind::StartWrite, io::ErrorKind::InvalidData),
        (OpKind::FinishWrite, io::ErrorKind::InvalidData),
        (OpKind::FinishWrite, io::ErrorKind::StorageFull),
        (OpKind::FinishWrite, io::ErrorKind::WriteZero),
    ] {
        for seed in 0..30 {
            let disk = SimDisk::new(seed);
            let options = BlockLogOptions { eager_in_flight: 8, ..options() };
            let log = open_with(&disk, options.clone()).unwrap();
            log.append(&[1; 700]).unwrap();
            log.sync().unwrap();
            disk.inject(Fault { kind, name: String::new(), skip: seed % 3, error });
            let mut failed = None;
            let mut model = Model::default();
            model.push(&[1; 700]);
            model.durable = 700;
            for n in 0..4_u8 {
                model.push(&[n; 900]);
                failed = failed.or(log.append(&[n; 900]).err());
            }
            let failed = failed.or(log.sync().err()).unwrap();
            assert_eq!(failed.kind(), ErrorKind::Fatal, "{failed}");
            model.durable = model.durable.max(log.durable_end().0);
            let poisoned = |result: Result<(), LogDeviceError>| {
                assert!(matches!(result, Err(LogDeviceError::Poisoned { .. })));
            };
            poisoned(log.append(&[3]).map(drop));
            poisoned(log.sync().map(drop));
            poisoned(log.wait_durable(log.end()).map(drop));
            poisoned(log.discard_before(Seq(0)));
            poisoned(log.read_at(Seq(0), &mut [0]));
            // Nothing but the durable end is known, and it does not move any more.
            assert_eq!(log.durable_end().0, model.durable);
            drop(log);
            model.clone().check(&open_with(&disk.copy(), options.clone()).unwrap(), "process restarted");
            model.clone().check(&open_with(&disk.after_power_cut(), options).unwrap(), "power cut");
        }
    }
}

/// A failure wakes those who wait, whoever met it.
#[test]
fn no_waiter_is_left_asleep_by_a_failure() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let log = open(&disk).unwrap();
        let error = io::ErrorKind::InvalidData;
        disk.inject(Fault { kind: OpKind::FinishWrite, name: String::new(), skip: seed, error });
        std::thread::scope(|scope| {
            for thread in 0..6_u8 {
                let log = &log;
                scope.spawn(move || {
                    let failed = (0..1000).find_map(|_| {
                        let end = log.append(&[thread; 600]);
                        end.and_then(|end| log.wait_durable(end)).err()
                    });
                    assert_eq!(failed.unwrap().kind(), ErrorKind::Fatal);
                });
            }
        });
    }
}

#[test]
fn who_sleeps_until_a_write_is_done_is_woken_when_it_fails() {
    let disk = SimDisk::new(1);
    let log = open(&disk).unwrap();
    let end = log.append(&[1; 600]).unwrap();
    let write = log.lock().unwrap().take_any_to_await(0).unwrap();
    let error = io::ErrorKind::InvalidData;
    disk.inject(Fault { kind: OpKind::FinishWrite, name: String::new(), skip: 0, error });
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| log.wait_durable(end));
        redoubt_test_support::wait::until("a follower of the write", || log.lock().unwrap().followers() > 0);
        assert_eq!(log.finish(write, 0).unwrap_err().kind(), ErrorKind::Fatal);
        assert!(matches!(waiter.join().unwrap(), Err(LogDeviceError::Poisoned { .. })));
    });
}

/// A disk with a log that was closed, and its bytes.
fn closed_log(disk: &SimDisk) -> Vec<u8> {
    let log = open(disk).unwrap();
    let mut bytes = Vec::new();
    // The last segment has room for the mark that is left on closing.
    for (n, len) in [600, 3000, 9000, 40, 1, 20_000, 900].into_iter().enumerate() {
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
        for at in (0..disk.content(&name).len()).step_by(7) {
            let damaged = disk.copy();
            damaged.damage(&name, at, |bytes| bytes[0] ^= 0x10);
            match read_whole(&damaged) {
                Ok(read) => assert!(read == bytes, "{name} at {at}"),
                Err(LogDeviceError::Damaged { .. } | LogDeviceError::BadSegment { .. }) => refused += 1,
                Err(error) => panic!("{name} at {at}: {error}"),
            }
        }
    }
    assert!(refused > bytes.len() / 10, "{refused}");
}
