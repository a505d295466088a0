//! The model against the closed form: uniform random writes, greedy victims, every logical block mapped.

use std::time::Instant;

use serde::Serialize;

use crate::closed_form::uniform_waf;
use crate::ftl::{Ftl, GcDestination, Geometry, GeometryError, Victims};
use crate::trace::Origin;

/// Over-provisioning that is tried, in percent.
pub const OP_PERCENT: [f64; 4] = [7.0, 15.0, 28.0, 50.0];
/// How far the model may be from the closed form, in percent.
pub const TOLERANCE_PERCENT: f64 = 3.0;

/// How to try.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Logical size, in blocks of 4 KiB.
    pub logical_blocks: u32,
    /// Size of a superblock, in blocks of 4 KiB.
    pub superblock_blocks: u32,
    /// Random writes before counting begins, in drive writes.
    pub warm_up_drive_writes: u32,
    /// Random writes that are counted, in drive writes.
    pub measured_drive_writes: u32,
    /// Which superblock is collected.
    pub victims: Victims,
    /// Seed of the writes.
    pub seed: u64,
}

impl Settings {
    /// 8 GiB in superblocks of 16 MiB, the usual drive of this model.
    pub const FULL: Settings = Settings {
        logical_blocks: 1 << 21,
        superblock_blocks: 1 << 12,
        warm_up_drive_writes: 3,
        measured_drive_writes: 3,
        victims: Victims::Greedy,
        seed: 1,
    };

    /// 2 GiB in superblocks of 2 MiB, for tests.
    pub const QUICK: Settings = Settings {
        logical_blocks: 1 << 19,
        superblock_blocks: 1 << 9,
        warm_up_drive_writes: 2,
        measured_drive_writes: 1,
        ..Settings::FULL
    };
}

/// One over-provisioning.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Row {
    /// Over-provisioning, in percent.
    pub over_provisioning_percent: f64,
    /// Write amplification of the model.
    pub simulated: f64,
    /// Write amplification by formula.
    pub closed_form: f64,
    /// How far the model is from the formula, in percent of the formula.
    pub deviation_percent: f64,
    /// Speed of the model, in programmed blocks of 4 KiB per second.
    pub programmed_blocks_per_second: f64,
}

impl Row {
    /// Is the model close enough?
    pub fn within_tolerance(&self) -> bool {
        self.deviation_percent.abs() <= TOLERANCE_PERCENT
    }
}

/// Tries one over-provisioning. `progress` gets what is done, from 0 to 1.
pub fn uniform(
    op_percent: f64,
    settings: &Settings,
    mut progress: impl FnMut(f64),
) -> Result<Row, GeometryError> {
    let mut ftl = Ftl::new(&Geometry {
        logical_blocks: settings.logical_blocks,
        superblock_blocks: settings.superblock_blocks,
        over_provisioning_percent: op_percent,
        host_streams: 1,
        gc: GcDestination::Shared,
        victims: settings.victims,
    })?;
    let mut random = fastrand::Rng::with_seed(settings.seed);
    let started = Instant::now();
    for block in 0..settings.logical_blocks {
        ftl.write(block, 0, Origin::Data);
    }
    let total = settings.warm_up_drive_writes + settings.measured_drive_writes;
    let mut before = *ftl.counters();
    for drive_write in 0..total {
        if drive_write == settings.warm_up_drive_writes {
            before = *ftl.counters();
        }
        for _ in 0..settings.logical_blocks {
            ftl.write(random.u32(..settings.logical_blocks), 0, Origin::Data);
        }
        progress(f64::from(drive_write + 1) / f64::from(total));
    }
    let counted = ftl.counters().since(&before);
    let simulated = counted.nand_blocks() as f64 / counted.host_blocks() as f64;
    let closed_form = uniform_waf(op_percent);
    Ok(Row {
        over_provisioning_percent: op_percent,
        simulated,
        closed_form,
        deviation_percent: 100.0 * (simulated / closed_form - 1.0),
        programmed_blocks_per_second: ftl.counters().nand_blocks() as f64 / started.elapsed().as_secs_f64(),
    })
}

#[cfg(test)]
mod tests;
