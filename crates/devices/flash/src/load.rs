//! A trace in memory, ready to be replayed in a loop.
//!
//! Owns the renumbering of blocks: the blocks of 4 KiB that a trace writes at least once get the numbers from 0 in the
//! order of their addresses, and all other data on the drive gets numbers after them. A page-mapped drive does not
//! care about addresses, so this changes no result, and it lets a drive be smaller than the recorded device. Runs of
//! sectors that one write covers stay runs. Trims of blocks that the trace never writes are dropped: such blocks stand
//! for data that lies still.

use std::path::{Path, PathBuf};

use crate::drive::{BLOCK_SECTORS, Step};
use crate::error::{Error, Result};
use crate::ftl::{BLOCK_LEN_BYTES, MAX_LOGICAL_BLOCKS};
use crate::simulate::{Lap, Source};
use crate::trace::{Op, Origin, Record, TraceInfo, TraceReader};

/// The most blocks of 4 KiB in a recorded device: 16 TiB.
const MAX_DEVICE_BLOCKS: u64 = 1 << 32;

/// The blocks that a trace writes, as a set that can count.
#[derive(Debug)]
struct BlockSet {
    words: Vec<u64>,
    /// Members before each word.
    before: Vec<u32>,
    len: u32,
}

impl BlockSet {
    fn new(device_blocks: u64) -> BlockSet {
        BlockSet { words: vec![0; device_blocks.div_ceil(64) as usize], before: Vec::new(), len: 0 }
    }

    fn insert(&mut self, block: u64) {
        if let Some(word) = self.words.get_mut((block / 64) as usize) {
            *word |= 1 << (block % 64);
        }
    }

    /// Counts the members; none may be added afterwards.
    fn count(&mut self) -> u64 {
        let mut len = 0u64;
        self.before = Vec::with_capacity(self.words.len());
        for word in &self.words {
            self.before.push(len as u32);
            len += u64::from(word.count_ones());
        }
        self.len = len as u32;
        len
    }

    fn contains(&self, block: u64) -> bool {
        self.words.get((block / 64) as usize).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    /// Number of members before `block`, which is the new number of a member.
    fn rank(&self, block: u64) -> u64 {
        let (index, bit) = ((block / 64) as usize, block % 64);
        match (self.words.get(index), self.before.get(index)) {
            (Some(word), Some(before)) => {
                u64::from(*before) + u64::from((word & ((1 << bit) - 1)).count_ones())
            }
            _ => u64::from(self.len),
        }
    }
}

/// A trace in memory.
#[derive(Debug)]
pub struct LoadedTrace {
    path: PathBuf,
    info: TraceInfo,
    steps: Vec<Step>,
    written: BlockSet,
    device_blocks: u64,
    /// Origin of the first write to each block, by its new number.
    first_origins: Vec<Origin>,
    occurs: [bool; Origin::ALL.len()],
    lap: Lap,
}

impl LoadedTrace {
    /// Reads a trace and the description beside it.
    pub fn load(path: &Path) -> Result<LoadedTrace> {
        let info = TraceInfo::load(path)?;
        let unusable = |what: String| Error::Unusable { path: path.to_owned(), what };
        let device_blocks = info.device_sectors.div_ceil(BLOCK_SECTORS);
        if device_blocks > MAX_DEVICE_BLOCKS {
            return Err(unusable(format!(
                "its description gives the device {} sectors; at most 2^35 (16 TiB) can be replayed",
                info.device_sectors
            )));
        }
        let mut written = BlockSet::new(device_blocks);
        let mut records = 0usize;
        for_each_record(path, |index, record| {
            records += 1;
            if matches!(record.op, Op::Write | Op::Trim) && end_of(&record) > info.device_sectors {
                return Err(unusable(format!(
                    "record {index} ends at sector {}, but the device has {} sectors (device_sectors in {})",
                    end_of(&record),
                    info.device_sectors,
                    TraceInfo::path_of(path).display()
                )));
            }
            if record.op == Op::Write {
                blocks_of(&record).for_each(|block| written.insert(block));
            }
            Ok(())
        })?;
        match written.count() {
            0 => return Err(unusable("it holds no write, so there is nothing to replay".into())),
            blocks if blocks > MAX_LOGICAL_BLOCKS => {
                return Err(unusable(format!(
                    "it writes {blocks} blocks of 4 KiB; at most 2^29 can be replayed"
                )));
            }
            _ => {}
        }
        LoadedTrace::with_steps(path, info, written, records, device_blocks)
    }

    /// The second pass: records into steps.
    fn with_steps(
        path: &Path,
        info: TraceInfo,
        written: BlockSet,
        records: usize,
        device_blocks: u64,
    ) -> Result<LoadedTrace> {
        let mut steps = Vec::with_capacity(records);
        let mut first_origins: Vec<Option<Origin>> = vec![None; written.len as usize];
        let mut occurs = [false; Origin::ALL.len()];
        let (mut marked, mut in_place_sectors) = (None, 0u64);
        for_each_record(path, |_, record| {
            match record.op {
                Op::Flush => {}
                Op::Mark => marked = Some(marked.unwrap_or(0) + u64::from(record.sectors)),
                Op::Trim => push_trims(&mut steps, &written, &record),
                Op::Write => {
                    let first = written.rank(record.sector / BLOCK_SECTORS);
                    let sector = first * BLOCK_SECTORS + record.sector % BLOCK_SECTORS;
                    steps.push(Step { sector, sectors: record.sectors, trim: false, origin: record.origin });
                    for slot in first_origins.iter_mut().skip(first as usize).take(blocks_of(&record).count())
                    {
                        slot.get_or_insert(record.origin);
                    }
                    occurs[record.origin as usize] = true;
                    if matches!(record.origin, Origin::Data | Origin::DataHot) {
                        in_place_sectors += u64::from(record.sectors);
                    }
                }
            }
            Ok(())
        })?;
        let in_place_pages = (in_place_sectors * 512).checked_div(info.page_len_bytes);
        let lap = Lap {
            transactions: marked.unwrap_or(info.transactions),
            pages: info.pages_written.or(in_place_pages).unwrap_or(0),
            page_len_bytes: info.page_len_bytes,
        };
        let first_origins = first_origins.into_iter().map(|origin| origin.unwrap_or(Origin::Data)).collect();
        let path = path.to_owned();
        Ok(LoadedTrace { path, info, steps, written, device_blocks, first_origins, occurs, lap })
    }

    /// Where it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The description beside it.
    pub fn info(&self) -> &TraceInfo {
        &self.info
    }

    /// Size of the recorded device, in blocks of 4 KiB.
    pub fn device_blocks(&self) -> u64 {
        self.device_blocks
    }

    /// Bytes that one loop writes.
    pub fn bytes_per_loop(&self) -> u64 {
        self.steps.iter().filter(|step| !step.trim).map(|step| u64::from(step.sectors) * 512).sum()
    }
}

impl Source for &LoadedTrace {
    fn occurs(&self) -> [bool; Origin::ALL.len()] {
        self.occurs
    }

    fn used_blocks(&self) -> u32 {
        self.written.len
    }

    /// In the order of the recorded addresses, still data spread evenly over the blocks that the trace never writes.
    fn fill(&self, cold_blocks: u32, place: &mut impl FnMut(u32, Origin)) {
        let still = (self.device_blocks - u64::from(self.written.len)).max(1);
        let among = u64::from(cold_blocks).min(still);
        let (mut next_used, mut next_cold, mut due) = (0u32, self.written.len, 0u64);
        for block in 0..self.device_blocks {
            if self.written.contains(block) {
                let origin = self.first_origins.get(next_used as usize).copied();
                place(next_used, origin.unwrap_or(Origin::Data));
                next_used += 1;
            } else {
                due += among;
                if due >= still {
                    due -= still;
                    place(next_cold, Origin::Data);
                    next_cold += 1;
                }
            }
        }
        (next_cold..self.written.len + cold_blocks).for_each(|block| place(block, Origin::Data));
    }

    fn lap(&mut self, apply: &mut impl FnMut(&Step)) -> Lap {
        self.steps.iter().for_each(apply);
        self.lap
    }
}

/// Hands each record of a file and its number to `each`.
fn for_each_record(path: &Path, mut each: impl FnMut(u64, Record) -> Result<()>) -> Result<()> {
    for (index, record) in (0..).zip(TraceReader::open(path)?) {
        each(index, record.map_err(|source| Error::Trace { path: path.to_owned(), source })?)?;
    }
    Ok(())
}

/// The sector after the last. A reader lets no record through where this overflows.
fn end_of(record: &Record) -> u64 {
    record.sector + u64::from(record.sectors)
}

/// The blocks of 4 KiB that a record touches.
fn blocks_of(record: &Record) -> std::ops::Range<u64> {
    record.sector / BLOCK_SECTORS..end_of(record).div_ceil(BLOCK_SECTORS)
}

/// Adds the runs of whole blocks that are trimmed and are written somewhere in the trace.
fn push_trims(steps: &mut Vec<Step>, written: &BlockSet, record: &Record) {
    // Members have consecutive numbers, so the members of a range are one run.
    let first = written.rank(record.sector.div_ceil(BLOCK_SECTORS));
    let end = written.rank(end_of(record) / BLOCK_SECTORS).max(first);
    let sectors_max = u64::from(u32::MAX) / BLOCK_SECTORS * BLOCK_SECTORS;
    let (mut sector, end_sector) = (first * BLOCK_SECTORS, end * BLOCK_SECTORS);
    while sector < end_sector {
        let sectors = (end_sector - sector).min(sectors_max);
        steps.push(Step { sector, sectors: sectors as u32, trim: true, origin: record.origin });
        sector += sectors;
    }
}

/// Logical size of the drive for a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogicalSize {
    /// As large as the recorded device.
    Device,
    /// So small that the blocks that the trace writes alone are the utilisation asked for.
    Fit,
    /// So many MiB.
    Mib(u64),
}

impl LogicalSize {
    /// Blocks of 4 KiB for this trace, rounded up to superblocks.
    pub fn blocks(
        self,
        trace: &LoadedTrace,
        utilisation_percent: f64,
        superblock_blocks: u32,
    ) -> Result<u32> {
        let blocks = match self {
            LogicalSize::Device => trace.device_blocks,
            LogicalSize::Fit => {
                (f64::from(trace.written.len) * 100.0 / utilisation_percent.max(1.0)).ceil() as u64
            }
            LogicalSize::Mib(mib) => mib.saturating_mul((1 << 20) / BLOCK_LEN_BYTES),
        };
        let rounded = blocks.checked_next_multiple_of(u64::from(superblock_blocks.max(1)));
        match rounded.map(u32::try_from) {
            Some(Ok(blocks)) => Ok(blocks),
            _ => Err(crate::ftl::GeometryError::Size(blocks).into()),
        }
    }
}

impl std::str::FromStr for LogicalSize {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<LogicalSize, String> {
        match text {
            "device" => Ok(LogicalSize::Device),
            "fit" => Ok(LogicalSize::Fit),
            number => number
                .parse()
                .map(LogicalSize::Mib)
                .map_err(|_| format!("{number:?} is neither \"device\" nor \"fit\" nor a number of MiB")),
        }
    }
}

#[cfg(test)]
mod tests;
