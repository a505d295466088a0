//! The whole log on the store-order model: seeded histories of simulated threads, with a power cut at every step.

use fastrand::Rng;
use redoubt_persistent_memory::model::Keep;
use redoubt_storage::StorageFile;

use super::*;
use crate::Seq;
use crate::pmem::model_disk::{ModelDisk, ModelMapping};

impl MappedFile for ModelMapping {
    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), PmemError> {
        ModelMapping::write(self, offset_bytes, bytes)
    }

    fn fence(&self) -> Result<(), PmemError> {
        ModelMapping::fence(self)
    }
}

/// A fault put into the log, which the histories must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// Fences do nothing.
    NoFence,
    /// A record is acknowledged by its own fence, whatever is before it.
    EarlyAcknowledge,
    /// A range after a gap moves the durable end.
    PublishOverGap,
}

struct ModelMedia {
    disk: ModelDisk,
    fault: Fault,
}

impl Media for ModelMedia {
    type Handle = ModelMapping;
    const OPENS_SPARES: bool = false;

    fn open(&self, _: &Arc<dyn StorageFile>, name: &str, _: u64) -> std::io::Result<ModelMapping> {
        let mapping = self.disk.map(name)?;
        Ok(if self.fault == Fault::NoFence { mapping.without_fence() } else { mapping })
    }
}

type Log = PmemLog<ModelMedia>;

const THREADS: u32 = 3;

fn open(disk: &ModelDisk, unit: usize, fault: Fault) -> Result<Log, LogDeviceError> {
    let options = SegmentOptions {
        segment_len_bytes: 8192,
        spare_segments: 1,
        prepare_in_background: false,
        held: Default::default(),
    };
    PmemLog::open(Arc::new(disk.clone()), options, unit, ModelMedia { disk: disk.clone(), fault })
}

/// Expected content of the log.
#[derive(Clone, Default)]
struct Expected {
    /// All bytes from position 0 on, also those that may be lost.
    bytes: Vec<u8>,
    /// Ends of the records, among them those that were being appended.
    ends: Vec<u64>,
    acknowledged: u64,
    discarded: u64,
}

impl Expected {
    /// Compares with a log that was opened after a crash, and takes over where it ends.
    fn compare(&mut self, log: &Log) -> Result<(), String> {
        let (start, end) = (log.segments.start_seq(), log.segments.end_seq());
        if start > self.discarded {
            return Err(format!("it starts at {start}, to be kept from {}", self.discarded));
        }
        if end < self.acknowledged {
            return Err(format!("it ends at {end}, acknowledged to {}", self.acknowledged));
        }
        if end != 0 && !self.ends.contains(&end) {
            return Err(format!("it ends at {end}, inside a record"));
        }
        let mut read = vec![0; (end - start) as usize];
        log.segments.read_at(Seq(start), &mut read).map_err(|error| error.to_string())?;
        if read != self.bytes[start as usize..end as usize] {
            return Err(format!("other bytes in {start}..{end}"));
        }
        self.bytes.truncate(end as usize);
        self.ends.retain(|&kept| kept <= end);
        self.acknowledged = end;
        Ok(())
    }
}

/// Where a simulated thread is in its append.
enum Step {
    Idle,
    Reserved(Reservation<ModelMapping>, Vec<u8>),
    Copied(Reservation<ModelMapping>),
    Fenced(Reservation<ModelMapping>),
    Waiting(u64),
}

/// Lets the threads take steps in random order until the power fails or enough is done.
fn run_history(
    log: &Log,
    disk: &ModelDisk,
    fault: Fault,
    expected: &mut Expected,
    rng: &mut Rng,
    steps: usize,
) -> Result<(), LogDeviceError> {
    let mut threads: Vec<Step> = (0..THREADS).map(|_| Step::Idle).collect();
    for _ in 0..steps {
        let number = rng.usize(..threads.len());
        disk.set_thread(number as u32);
        let thread = &mut threads[number];
        *thread = match std::mem::replace(thread, Step::Idle) {
            Step::Idle if rng.u8(..12) == 0 => {
                let seq = rng.u64(..=expected.acknowledged);
                expected.discarded = expected.discarded.max(seq);
                log.segments.discard_before(Seq(seq))?;
                Step::Idle
            }
            Step::Idle => {
                // Few lengths, so that records of different histories come to lie at the same places.
                let len = [1, 32, 33, 96, 200, 480, 992, 1500, 5000][rng.usize(..9)];
                let record: Vec<u8> =
                    if rng.bool() { (0..len).map(|_| rng.u8(..)).collect() } else { vec![rng.u8(..2); len] };
                let reservation = log.reserve(len)?;
                assert_eq!(reservation.start_seq, expected.bytes.len() as u64);
                expected.bytes.extend_from_slice(&record);
                expected.ends.push(reservation.end_seq);
                Step::Reserved(reservation, record)
            }
            Step::Reserved(reservation, record) => {
                log.copy(&reservation, &record)?;
                Step::Copied(reservation)
            }
            Step::Copied(reservation) => {
                log.fence(&reservation)?;
                if fault == Fault::EarlyAcknowledge {
                    expected.acknowledged = expected.acknowledged.max(reservation.end_seq);
                }
                Step::Fenced(reservation)
            }
            Step::Fenced(mut reservation) => {
                if fault == Fault::PublishOverGap {
                    reservation.start_seq = log.published.lock().durable.min(reservation.start_seq);
                }
                log.publish(&reservation);
                Step::Waiting(reservation.end_seq)
            }
            Step::Waiting(end) => {
                if log.waiters.durable() >= end {
                    expected.acknowledged = expected.acknowledged.max(log.wait(end)?);
                    Step::Idle
                } else {
                    Step::Waiting(end)
                }
            }
        };
    }
    Ok(())
}

struct Run {
    cuts: usize,
    images: usize,
    violations: Vec<String>,
}

/// One history with a cut at each of its steps, and for each cut what different losses leave.
fn run_seed(seed: u64, fault: Fault, run: &mut Run) {
    let unit = [64, 256, 512][(seed % 3) as usize];
    let mut cut = 0;
    loop {
        fastrand::seed(seed * 1_000_000 + cut);
        let disk = ModelDisk::new();
        disk.switch().cut_at(cut);
        let mut rng = Rng::with_seed(seed);
        let mut expected = Expected::default();
        let done = open(&disk, unit, fault)
            .and_then(|log| run_history(&log, &disk, fault, &mut expected, &mut rng, 60).map(|()| log));
        run.cuts += 1;
        let mut rng = Rng::with_seed(seed ^ cut << 20);
        let keeps =
            [Keep::Nothing, Keep::Everything].into_iter().chain((0..3).map(|_| Keep::Some(rng.u64(..))));
        for keep in keeps.collect::<Vec<_>>() {
            run.images += 1;
            let next = disk.after_power_cut(keep);
            let result = live_on(&next, unit, fault, &expected, &mut rng, run);
            if let Err(violation) = result {
                run.violations.push(format!("seed {seed}, cut at step {cut}, {keep:?}: {violation}"));
            }
        }
        if done.is_ok() && !disk.switch().is_off() {
            return;
        }
        assert!(disk.switch().is_off(), "seed {seed}: {:?}", done.err());
        cut += 1;
    }
}

/// Opens what a cut left and compares; now and then goes on there, to another cut or the end of the process.
fn live_on(
    disk: &ModelDisk,
    unit: usize,
    fault: Fault,
    expected: &Expected,
    rng: &mut Rng,
    run: &mut Run,
) -> Result<(), String> {
    let mut expected = expected.clone();
    let mut disk = disk.clone();
    for life in 0.. {
        let goes_on = life < 3 && rng.u8(..4) == 0;
        if goes_on {
            disk.switch().cut_at(rng.u64(..600));
        }
        match open(&disk, unit, fault) {
            Ok(log) => {
                expected.compare(&log).map_err(|error| format!("life {life}: {error}"))?;
                if !goes_on {
                    return Ok(());
                }
                let _ = run_history(&log, &disk, fault, &mut expected, rng, 20);
            }
            Err(_) if disk.switch().is_off() => {}
            Err(error) => return Err(format!("life {life}: {error}")),
        }
        run.cuts += 1;
        run.images += 1;
        disk = if rng.u8(..4) == 0 {
            disk.after_process_end()
        } else {
            disk.after_power_cut([Keep::Nothing, Keep::Everything, Keep::Some(rng.u64(..))][rng.usize(..3)])
        };
    }
    Ok(())
}

#[test]
fn no_power_cut_at_any_step_loses_an_acknowledged_byte_or_accepts_a_torn_record() {
    let mut run = Run { cuts: 0, images: 0, violations: Vec::new() };
    for seed in 0..6 {
        run_seed(seed, Fault::None, &mut run);
    }
    println!("{} cut points, {} images recovered", run.cuts, run.images);
    assert!(run.violations.is_empty(), "{} violations, first: {}", run.violations.len(), run.violations[0]);
    assert!(run.cuts > 10_000, "{}", run.cuts);
}

#[test]
fn faults_in_the_log_are_found() {
    for fault in [Fault::NoFence, Fault::EarlyAcknowledge, Fault::PublishOverGap] {
        let mut run = Run { cuts: 0, images: 0, violations: Vec::new() };
        for seed in 0..2 {
            run_seed(seed, fault, &mut run);
        }
        println!("{fault:?}: {} of {} images show it", run.violations.len(), run.images);
        assert!(run.violations.len() > 10, "{fault:?}: {} of {}", run.violations.len(), run.images);
    }
}

#[test]
fn ranges_are_published_in_order() {
    let mut rng = Rng::with_seed(1);
    for _ in 0..200 {
        let mut ends: Vec<u64> = (0..20).map(|_| rng.u64(1..1000)).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut ranges: Vec<(u64, u64)> =
            ends.iter().scan(0, |start, &end| Some((std::mem::replace(start, end), end))).collect();
        rng.shuffle(&mut ranges);
        let mut published = Published { durable: 0, ahead: BTreeMap::new() };
        for n in 0..ranges.len() {
            let (start, end) = ranges[n];
            let durable = published.add(start, end);
            // Everything from 0 on that was added, and not more.
            let mut expected = 0;
            while let Some((_, end)) = ranges[..=n].iter().find(|(start, _)| *start == expected) {
                expected = *end;
            }
            assert_eq!(durable, expected);
        }
        assert!(published.ahead.is_empty());
    }
}
