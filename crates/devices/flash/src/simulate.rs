//! A load on a drive: fill, warm-up, measurement.
//!
//! - Fill: every block that the load uses is written once, and still data up to the utilisation asked for. It counts
//!   for nothing.
//! - Warm-up: laps of the load until enough drive writes have passed and write amplification is stable. A drive write
//!   is as many host bytes as the drive's logical size. Stable means that write amplification over the last drive
//!   write, or the last lap where that is longer, differs by less than [`STABLE_PERCENT`] from the same span before.
//!   Warm-up is given up after [`MAX_WARM_UP_DRIVE_WRITES`], and the outcome reports this.
//! - Measurement: whole laps, so that every part of a trace has its weight, until enough drive writes have passed.

use serde::Serialize;

use crate::drive::{Drive, Step, Totals};
use crate::error::{Error, Result};
use crate::ftl::{BLOCK_LEN_BYTES, GcDestination, Geometry, Victims};
use crate::placement::Policy;
use crate::trace::Origin;

/// Difference of write amplification at which it counts as stable, in percent.
pub const STABLE_PERCENT: f64 = 2.0;
/// Span over which stability is measured, in drive writes, unless a lap is longer.
pub const STABLE_SPAN_DRIVE_WRITES: f64 = 1.0;
/// The longest warm-up, in drive writes.
pub const MAX_WARM_UP_DRIVE_WRITES: f64 = 20.0;
/// Window length of the write amplification series, in drive writes.
pub const WINDOW_DRIVE_WRITES: f64 = 0.1;

/// Results of a lap of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lap {
    /// Committed transactions.
    pub transactions: u64,
    /// Pages that the database wanted written.
    pub pages: u64,
    /// Length of a page, in bytes.
    pub page_len_bytes: u64,
}

/// A load: writes and trims without end, in laps.
pub trait Source {
    /// Which origins occur in it.
    fn occurs(&self) -> [bool; Origin::ALL.len()];

    /// Number of blocks of 4 KiB that it ever writes. They have the numbers from 0.
    fn used_blocks(&self) -> u32;

    /// Places every block that it uses, and `cold_blocks` more with the numbers after them, in the order in which
    /// they are to be written to a new drive.
    fn fill(&self, cold_blocks: u32, place: &mut impl FnMut(u32, Origin));

    /// Does the next lap.
    fn lap(&mut self, apply: &mut impl FnMut(&Step)) -> Lap;
}

/// The drive, and for how long.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Settings {
    /// Logical size, in blocks of 4 KiB.
    pub logical_blocks: u32,
    /// Size of a superblock, in blocks of 4 KiB.
    pub superblock_blocks: u32,
    /// Physical space beyond the logical, in percent.
    pub over_provisioning_percent: f64,
    /// Share of the logical blocks that hold something, in percent.
    pub utilisation_percent: f64,
    /// Where garbage collection puts what it saves.
    pub gc: GcDestination,
    /// Which origin goes to which stream.
    pub policy: Policy,
    /// Does the drive's write buffer bring parts of blocks together?
    pub coalesce_small: bool,
    /// Least warm-up, in drive writes.
    pub warm_up_drive_writes: f64,
    /// Least measurement, in drive writes.
    pub measured_drive_writes: f64,
}

impl Settings {
    fn check(&self) -> Result<()> {
        let percent = self.utilisation_percent;
        if !(percent > 0.0 && percent <= 100.0) {
            return Err(Error::Setting(format!(
                "a utilisation of {percent} %: it takes more than 0 and at most 100"
            )));
        }
        for (name, drive_writes) in
            [("warm-up", self.warm_up_drive_writes), ("measurement", self.measured_drive_writes)]
        {
            if !(0.0..=10_000.0).contains(&drive_writes) {
                return Err(Error::Setting(format!(
                    "a {name} of {drive_writes} drive writes: 0 to 10000 are possible"
                )));
            }
        }
        Ok(())
    }
}

/// Superblocks for a drive of about `logical_blocks`: `largest`, halved until the drive has at least 512 of them.
/// On small drives large superblocks would make the open ones a sizeable part of the spare space.
pub fn superblock_blocks_for(logical_blocks: u64, largest: u32) -> u32 {
    let mut blocks = largest;
    while blocks > 64 && logical_blocks / u64::from(blocks) < 512 {
        blocks /= 2;
    }
    blocks
}

/// Results of one origin during the measurement.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct OriginOutcome {
    /// Which one.
    pub origin: Origin,
    /// Its write stream.
    pub stream: u8,
    /// Bytes that the host wrote.
    pub host_bytes: u64,
    /// Bytes programmed for the host: whole blocks of 4 KiB, less what came together in the write buffer.
    pub programmed_bytes: u64,
    /// Bytes copied by garbage collection.
    pub copied_bytes: u64,
}

/// Results of one stream during the measurement.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct StreamOutcome {
    /// Which one. With a shared destination the one after the last is what garbage collection wrote.
    pub stream: u8,
    /// Bytes programmed for the host.
    pub programmed_bytes: u64,
    /// Bytes copied out of its superblocks.
    pub copied_bytes: u64,
    /// Its superblocks erased.
    pub erases: u64,
    /// Valid share of its superblocks when they were collected, mean, 0 to 1.
    pub victim_validity: f64,
}

/// Write amplification of a part of the run.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Window {
    /// Where it ends, in drive writes since the fill.
    pub drive_writes: f64,
    /// Device write amplification in it.
    pub waf: f64,
}

/// Results of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// The drive.
    pub settings: Settings,
    /// Host streams in use.
    pub host_streams: u8,
    /// Physical size, in bytes.
    pub physical_bytes: u64,
    /// Blocks that the load uses, in percent of the drive; the rest of the utilisation is still data.
    pub used_percent: f64,
    /// Laps of the warm-up.
    pub warm_up_laps: u64,
    /// Warm-up, in drive writes.
    pub warm_up_drive_writes: f64,
    /// Was write amplification stable at the end of the warm-up?
    pub stable: bool,
    /// Laps that were measured.
    pub measured_laps: u64,
    /// Measurement, in drive writes.
    pub measured_drive_writes: f64,
    /// Bytes that the host wrote.
    pub host_bytes: u64,
    /// Bytes programmed.
    pub nand_bytes: u64,
    /// Device write amplification.
    pub waf: f64,
    /// Transactions committed.
    pub transactions: u64,
    /// Pages that the database wanted written.
    pub pages: u64,
    /// Bytes programmed per committed transaction, where there were any.
    pub nand_bytes_per_transaction: Option<f64>,
    /// Bytes that the host wrote per committed transaction, where there were any.
    pub host_bytes_per_transaction: Option<f64>,
    /// Bytes programmed per page that the database wanted written, where there were any.
    pub nand_bytes_per_page: Option<f64>,
    /// Bytes programmed per byte of such a page.
    pub nand_bytes_per_page_byte: Option<f64>,
    /// Superblocks erased.
    pub erases: u64,
    /// Every origin that occurs.
    pub origins: Vec<OriginOutcome>,
    /// Every stream.
    pub streams: Vec<StreamOutcome>,
    /// Write amplification over the run, warm-up included.
    pub windows: Vec<Window>,
    /// Speed of the model, in programmed blocks of 4 KiB per second.
    pub programmed_blocks_per_second: f64,
}

/// Makes windows while laps run.
struct Windows {
    drive_bytes: u64,
    next_bytes: u64,
    last: Totals,
    windows: Vec<Window>,
}

impl Windows {
    fn new(drive_bytes: u64, start: Totals) -> Windows {
        let mut windows = Windows { drive_bytes, next_bytes: 0, last: start, windows: Vec::new() };
        windows.next_bytes = windows.window_bytes();
        windows
    }

    fn window_bytes(&self) -> u64 {
        ((self.drive_bytes as f64 * WINDOW_DRIVE_WRITES) as u64).max(1)
    }

    fn note(&mut self, host_bytes: u64, totals: Totals) {
        let waf = totals.since(&self.last).waf();
        self.windows.push(Window { drive_writes: host_bytes as f64 / self.drive_bytes as f64, waf });
        self.last = totals;
        self.next_bytes = host_bytes + self.window_bytes();
    }
}

/// The drive with everything that is counted around it.
struct Run<'a, S> {
    source: S,
    drive: Drive,
    windows: Windows,
    laps: u64,
    worth: Lap,
    progress: &'a mut dyn FnMut(f64),
    expected_drive_writes: f64,
}

impl<S: Source> Run<'_, S> {
    fn drive_writes(&self, since: &Totals) -> f64 {
        self.drive.totals().since(since).all_host_bytes() as f64 / self.windows.drive_bytes as f64
    }

    /// Does a lap. False: it wrote nothing.
    fn lap(&mut self) -> bool {
        let before = self.drive.totals().all_host_bytes();
        let mut host_bytes = before;
        let Run { source, drive, windows, progress, expected_drive_writes, .. } = self;
        let lap = source.lap(&mut |step| {
            drive.apply(step);
            if !step.trim {
                host_bytes += u64::from(step.sectors) * 512;
                if host_bytes >= windows.next_bytes {
                    windows.note(host_bytes, drive.totals());
                    let done = host_bytes as f64 / windows.drive_bytes as f64;
                    progress((done / *expected_drive_writes).min(1.0));
                }
            }
        });
        self.laps += 1;
        self.worth.transactions += lap.transactions;
        self.worth.pages += lap.pages;
        self.worth.page_len_bytes = lap.page_len_bytes;
        host_bytes > before
    }

    /// Laps until long enough and stable. Was it stable?
    fn warm_up(&mut self, least_drive_writes: f64) -> Result<bool> {
        let start = self.drive.totals();
        let longest = MAX_WARM_UP_DRIVE_WRITES.max(least_drive_writes);
        // Totals at the ends of spans.
        let mut ends = vec![start];
        loop {
            if !self.lap() {
                return Err(Error::Setting("the load writes nothing, so there is nothing to measure".into()));
            }
            let done = self.drive_writes(&start);
            let span_start = ends.last().copied().unwrap_or(start);
            if self.drive_writes(&span_start) >= STABLE_SPAN_DRIVE_WRITES {
                ends.push(self.drive.totals());
            }
            let stable = match ends.as_slice() {
                [.., one, two, three] => {
                    let (before, after) = (two.since(one).waf(), three.since(two).waf());
                    (after / before - 1.0).abs() * 100.0 < STABLE_PERCENT
                }
                _ => false,
            };
            if done >= longest || done >= least_drive_writes && stable {
                return Ok(stable);
            }
        }
    }
}

/// Runs a load on a new drive. `progress` gets what is done, from 0 to 1.
pub fn run<S: Source>(source: S, settings: &Settings, progress: &mut dyn FnMut(f64)) -> Result<Outcome> {
    settings.check()?;
    let (streams, host_streams) = settings.policy.streams(&source.occurs());
    let geometry = Geometry {
        logical_blocks: settings.logical_blocks,
        superblock_blocks: settings.superblock_blocks,
        over_provisioning_percent: settings.over_provisioning_percent,
        host_streams,
        gc: settings.gc,
        victims: Victims::Greedy,
    };
    geometry.superblocks()?;
    let used_blocks = source.used_blocks();
    let in_use = (f64::from(settings.logical_blocks) * settings.utilisation_percent / 100.0).floor() as u32;
    let used_percent = 100.0 * f64::from(used_blocks) / f64::from(settings.logical_blocks);
    let Some(cold_blocks) = in_use.checked_sub(used_blocks) else {
        let Settings { logical_blocks, utilisation_percent, .. } = *settings;
        return Err(Error::TooFull { used_percent, used_blocks, logical_blocks, utilisation_percent });
    };
    let started = std::time::Instant::now();
    let mut drive = Drive::new(&geometry, streams, settings.coalesce_small)?;
    source.fill(cold_blocks, &mut |block, origin| drive.fill(block, origin));
    let drive_bytes = u64::from(settings.logical_blocks) * BLOCK_LEN_BYTES;
    let mut run = Run {
        windows: Windows::new(drive_bytes, drive.totals()),
        source,
        drive,
        laps: 0,
        worth: Lap::default(),
        progress,
        expected_drive_writes: (settings.warm_up_drive_writes + settings.measured_drive_writes).max(0.1),
    };
    let filled = run.drive.totals();
    let stable = run.warm_up(settings.warm_up_drive_writes)?;
    let warm_up_drive_writes = run.drive_writes(&filled);
    let (warm, warm_up_laps) = (run.drive.totals(), run.laps);
    (run.laps, run.worth) = (0, Lap::default());
    run.expected_drive_writes = warm_up_drive_writes + settings.measured_drive_writes.max(0.1);
    while run.laps == 0 || run.drive_writes(&warm) < settings.measured_drive_writes {
        run.lap();
    }
    (run.progress)(1.0);
    let measured = run.drive.totals().since(&warm);
    let seconds = started.elapsed().as_secs_f64();
    Ok(Outcome {
        settings: *settings,
        host_streams,
        physical_bytes: run.drive.ftl().physical_blocks() * BLOCK_LEN_BYTES,
        used_percent,
        warm_up_laps,
        warm_up_drive_writes,
        stable,
        measured_laps: run.laps,
        measured_drive_writes: run.drive_writes(&warm),
        programmed_blocks_per_second: run.drive.totals().counters.nand_blocks() as f64 / seconds,
        windows: run.windows.windows,
        ..outcome_of(settings, &measured, &run.worth, &streams, host_streams)
    })
}

/// The part of an outcome that follows from what was counted.
fn outcome_of(
    settings: &Settings,
    measured: &Totals,
    worth: &Lap,
    streams: &[u8; Origin::ALL.len()],
    host_streams: u8,
) -> Outcome {
    let counters = &measured.counters;
    let nand_bytes = measured.nand_bytes();
    let per = |bytes: u64, number: u64| (number > 0).then(|| bytes as f64 / number as f64);
    let origins = Origin::ALL.into_iter().map(|origin| OriginOutcome {
        origin,
        stream: streams[origin as usize],
        host_bytes: measured.host_bytes[origin as usize],
        programmed_bytes: counters.host_by_origin[origin as usize] * BLOCK_LEN_BYTES,
        copied_bytes: counters.gc_by_origin[origin as usize] * BLOCK_LEN_BYTES,
    });
    let stream_count = host_streams + u8::from(settings.gc == GcDestination::Shared);
    let streams = (0..stream_count).map(|stream| {
        let index = usize::from(stream);
        let collected = counters.erases[index] as f64 * f64::from(settings.superblock_blocks);
        StreamOutcome {
            stream,
            programmed_bytes: counters.host[index] * BLOCK_LEN_BYTES,
            copied_bytes: counters.gc[index] * BLOCK_LEN_BYTES,
            erases: counters.erases[index],
            victim_validity: if collected > 0.0 { counters.gc[index] as f64 / collected } else { 0.0 },
        }
    });
    Outcome {
        settings: *settings,
        host_streams,
        physical_bytes: 0,
        used_percent: 0.0,
        warm_up_laps: 0,
        warm_up_drive_writes: 0.0,
        stable: false,
        measured_laps: 0,
        measured_drive_writes: 0.0,
        host_bytes: measured.all_host_bytes(),
        nand_bytes,
        waf: measured.waf(),
        transactions: worth.transactions,
        pages: worth.pages,
        nand_bytes_per_transaction: per(nand_bytes, worth.transactions),
        host_bytes_per_transaction: per(measured.all_host_bytes(), worth.transactions),
        nand_bytes_per_page: per(nand_bytes, worth.pages),
        nand_bytes_per_page_byte: per(nand_bytes, worth.pages * worth.page_len_bytes),
        erases: counters.erased_superblocks(),
        origins: origins.filter(|one| one.host_bytes > 0 || one.copied_bytes > 0).collect(),
        streams: streams.collect(),
        windows: Vec::new(),
        programmed_blocks_per_second: 0.0,
    }
}

#[cfg(test)]
mod tests;
