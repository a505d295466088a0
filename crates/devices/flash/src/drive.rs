//! A drive as a host sees it: sectors and origins on the outside, the [`Ftl`] inside.
//!
//! Owns the counts of bytes that the host sent and, where asked, the drive's write buffer: RAM with power-loss
//! protection in which writes of less than 4 KiB to the same block come together before it is programmed. The buffer
//! keeps the last [`BUFFER_BLOCKS`] such blocks, whatever their stream; whole blocks do not stay in it. A flush does
//! nothing, as the buffer survives a power cut. Without the buffer every write that touches a block, however little
//! of it, programs the block.

use crate::ftl::{BLOCK_LEN_BYTES, Counters, Ftl, Geometry, GeometryError};
use crate::trace::{Origin, SECTOR_LEN_BYTES};

/// Sectors in a block of 4 KiB.
pub const BLOCK_SECTORS: u64 = BLOCK_LEN_BYTES / SECTOR_LEN_BYTES;
/// Blocks in part written that the write buffer keeps.
pub const BUFFER_BLOCKS: usize = 16;

/// A write or a trim, at its place on the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// First sector on the drive.
    pub sector: u64,
    /// Number of sectors, at least 1.
    pub sectors: u32,
    /// A trim rather than a write.
    pub trim: bool,
    /// Content of the sectors.
    pub origin: Origin,
}

/// Counters: bytes that the host sent, and operations of the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Bytes that the host wrote, per origin.
    pub host_bytes: [u64; Origin::ALL.len()],
    /// Operations of the drive for it.
    pub counters: Counters,
}

impl Totals {
    /// Difference of the counters since `before`.
    pub fn since(&self, before: &Totals) -> Totals {
        let mut host_bytes = self.host_bytes;
        host_bytes.iter_mut().zip(before.host_bytes).for_each(|(after, before)| *after -= before);
        Totals { host_bytes, counters: self.counters.since(&before.counters) }
    }

    /// Bytes that the host wrote.
    pub fn all_host_bytes(&self) -> u64 {
        self.host_bytes.iter().sum()
    }

    /// Bytes programmed.
    pub fn nand_bytes(&self) -> u64 {
        self.counters.nand_blocks() * BLOCK_LEN_BYTES
    }

    /// Device write amplification: bytes programmed per byte that the host wrote. 0 where it wrote nothing.
    pub fn waf(&self) -> f64 {
        match self.all_host_bytes() {
            0 => 0.0,
            host_bytes => self.nand_bytes() as f64 / host_bytes as f64,
        }
    }
}

/// The drive. See the module's description.
#[derive(Debug)]
pub struct Drive {
    ftl: Ftl,
    streams: [u8; Origin::ALL.len()],
    coalesce: bool,
    /// Blocks written in part, the most recent last.
    buffer: Vec<(u32, Origin)>,
    host_bytes: [u64; Origin::ALL.len()],
}

impl Drive {
    /// An empty drive. `streams` gives each origin its stream, and `geometry` has as many.
    pub fn new(
        geometry: &Geometry,
        streams: [u8; Origin::ALL.len()],
        coalesce: bool,
    ) -> Result<Drive, GeometryError> {
        let ftl = Ftl::new(geometry)?;
        let buffer = Vec::with_capacity(BUFFER_BLOCKS + 1);
        Ok(Drive { ftl, streams, coalesce, buffer, host_bytes: [0; Origin::ALL.len()] })
    }

    /// The translation layer.
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    /// Counters so far. Blocks in the write buffer are not programmed yet.
    pub fn totals(&self) -> Totals {
        Totals { host_bytes: self.host_bytes, counters: *self.ftl.counters() }
    }

    /// Does a step. It must end on the drive.
    pub fn apply(&mut self, step: &Step) {
        let end = step.sector + u64::from(step.sectors);
        if step.trim {
            // A block of which a part stays in use stays mapped.
            for block in step.sector.div_ceil(BLOCK_SECTORS)..end / BLOCK_SECTORS {
                self.forget(block as u32);
                self.ftl.trim(block as u32);
            }
            return;
        }
        self.host_bytes[step.origin as usize] += u64::from(step.sectors) * SECTOR_LEN_BYTES;
        for block in step.sector / BLOCK_SECTORS..end.div_ceil(BLOCK_SECTORS) {
            let whole = block * BLOCK_SECTORS >= step.sector && (block + 1) * BLOCK_SECTORS <= end;
            if whole || !self.coalesce {
                self.forget(block as u32);
                self.program(block as u32, step.origin);
            } else {
                self.buffer_part(block as u32, step.origin);
            }
        }
    }

    /// Writes a whole block that is not counted as the host's: what lay on the drive before.
    pub fn fill(&mut self, block: u32, origin: Origin) {
        self.program(block, origin);
    }

    fn program(&mut self, block: u32, origin: Origin) {
        self.ftl.write(block, self.streams[origin as usize], origin);
    }

    /// The buffer need not program the block any more.
    fn forget(&mut self, block: u32) {
        if !self.buffer.is_empty() {
            self.buffer.retain(|(buffered, _)| *buffered != block);
        }
    }

    /// Takes a part of a block into the buffer, and programs the block that has to leave it.
    fn buffer_part(&mut self, block: u32, origin: Origin) {
        self.forget(block);
        self.buffer.push((block, origin));
        if self.buffer.len() > BUFFER_BLOCKS {
            let (oldest, its_origin) = self.buffer.remove(0);
            self.program(oldest, its_origin);
        }
    }
}

#[cfg(test)]
mod tests;
