//! Made-up loads: pages chosen by a power law, made safe against torn writes in one of three ways.
//!
//! They show what the methods do to a drive when nothing else differs: no file system, no group of clients, a redo log
//! that grows by a fixed share of the page bytes. The reference figures ([`REFERENCE`]) are those of an earlier and
//! independent prototype of such a model; the loads follow its description.
//!
//! - Address space: redo ring, then doublewrite area or journal ring, then pages, together the share of the
//!   drive that is in use.
//! - A page's rank is drawn as `pages x u^(1 / (1 - skew))`, u uniform; ranks lie on pages in a fixed random order.
//! - Every page write adds 0.15 of its bytes to the redo log, which is written in whole blocks of 4 KiB.
//! - Doublewrite: some pages at a time (64 on a drive of 8 GiB) go to the doublewrite area, then to their places.
//! - Data journal: every page goes to the ring; when half of the ring is full, the distinct pages in it go to their
//!   places in page order.

use serde::Serialize;

use crate::drive::{BLOCK_SECTORS, Step};
use crate::placement::Policy;
use crate::simulate::{Lap, Source};
use crate::trace::Origin;

/// Length of a page, in blocks of 4 KiB.
const PAGE_BLOCKS: u32 = 4;
/// Length of a page, in bytes.
pub const PAGE_LEN_BYTES: u64 = 16384;
/// Redo bytes per page byte.
const REDO_SHARE: f64 = 0.15;

/// How a page write is made safe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// In place, untorn by the drive's promise.
    Atomic,
    /// Into the doublewrite area, then in place.
    Doublewrite,
    /// Into the journal, later in place.
    DataJournal,
}

impl Method {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Method::Atomic => "atomic",
            Method::Doublewrite => "doublewrite",
            Method::DataJournal => "data journal",
        }
    }
}

/// Sizes of a load, in blocks of 4 KiB.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Shape {
    /// All that is in use.
    pub used_blocks: u32,
    /// The redo ring.
    pub redo_blocks: u32,
    /// The doublewrite area.
    pub doublewrite_blocks: u32,
    /// Pages that go to the doublewrite area at a time.
    pub doublewrite_batch_pages: u32,
    /// The journal ring.
    pub journal_blocks: u32,
    /// Skew of the pages: 0 uniform, less than 1.
    pub skew: f64,
    /// Page writes in a lap.
    pub lap_pages: u32,
}

impl Shape {
    /// The shape of the reference figures for a drive of `logical_blocks`: all sizes in proportion to 8 GiB.
    pub fn reference(logical_blocks: u32, journal_mib: u32) -> Shape {
        let of_8_gib = |mib: u32| ((u64::from(mib) * 256 * u64::from(logical_blocks)) >> 21) as u32;
        Shape {
            used_blocks: (u64::from(logical_blocks) * 9 / 10) as u32,
            redo_blocks: of_8_gib(256),
            doublewrite_blocks: of_8_gib(2),
            doublewrite_batch_pages: (of_8_gib(1) / PAGE_BLOCKS).max(1),
            journal_blocks: of_8_gib(journal_mib),
            skew: 0.8,
            lap_pages: logical_blocks / 32,
        }
    }
}

/// A row of the reference figures.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Reference {
    /// Its name.
    pub label: &'static str,
    /// How a page write is made safe.
    pub method: Method,
    /// Stream policy.
    pub policy: Policy,
    /// Journal, in MiB on a drive of 8 GiB.
    pub journal_mib: u32,
    /// Device write amplification with 10 and 28 % over-provisioning.
    pub waf: [Option<f64>; 2],
    /// Bytes programmed per page byte, likewise.
    pub nand_per_page_byte: [Option<f64>; 2],
}

/// Over-provisioning of the two columns of [`REFERENCE`], in percent.
pub const REFERENCE_OP_PERCENT: [f64; 2] = [10.0, 28.0];

const fn row(
    label: &'static str,
    method: Method,
    policy: Policy,
    journal_mib: u32,
    waf: [Option<f64>; 2],
    nand_per_page_byte: [Option<f64>; 2],
) -> Reference {
    Reference { label, method, policy, journal_mib, waf, nand_per_page_byte }
}

/// Figures of an earlier prototype: 8 GiB, 90 % in use, superblocks of 16 MiB, skew 0.8.
pub const REFERENCE: [Reference; 8] = [
    row(
        "doublewrite, one stream",
        Method::Doublewrite,
        Policy::One,
        0,
        [Some(3.07), Some(2.04)],
        [Some(6.61), Some(4.39)],
    ),
    row(
        "doublewrite, own stream",
        Method::Doublewrite,
        Policy::Doublewrite,
        0,
        [Some(2.43), Some(1.81)],
        [Some(5.22), Some(3.90)],
    ),
    row(
        "atomic, one stream",
        Method::Atomic,
        Policy::One,
        0,
        [Some(3.04), Some(2.20)],
        [Some(3.50), Some(2.53)],
    ),
    row(
        "atomic, redo apart",
        Method::Atomic,
        Policy::JournalRedo,
        0,
        [Some(3.09), Some(2.06)],
        [Some(3.55), Some(2.37)],
    ),
    row(
        "data journal 128 MB, one stream",
        Method::DataJournal,
        Policy::One,
        128,
        [Some(2.50), Some(1.61)],
        [Some(4.86), Some(3.13)],
    ),
    row(
        "data journal 128 MB, own stream",
        Method::DataJournal,
        Policy::Journal,
        128,
        [Some(2.01), Some(1.44)],
        [Some(3.92), Some(2.81)],
    ),
    row(
        "data journal 1 GiB, one stream",
        Method::DataJournal,
        Policy::One,
        1024,
        [Some(2.02), None],
        [Some(3.63), None],
    ),
    row(
        "data journal 1 GiB, own stream",
        Method::DataJournal,
        Policy::Journal,
        1024,
        [Some(1.65), None],
        [Some(2.97), None],
    ),
];

/// A made-up load.
#[derive(Debug)]
pub struct Synthetic {
    shape: Shape,
    method: Method,
    random: fastrand::Rng,
    /// Pages by rank.
    pages: Vec<u32>,
    /// Bytes of redo that are not a whole block yet.
    redo_bytes: f64,
    redo_next: u32,
    ring_next: u32,
    /// Pages that are in the doublewrite batch or in this half of the journal.
    pending: Vec<u32>,
}

impl Synthetic {
    /// A load of this shape. The error says what does not fit.
    pub fn new(shape: Shape, method: Method, seed: u64) -> Result<Synthetic, String> {
        let rings = u64::from(shape.redo_blocks) + u64::from(ring_blocks(&shape, method));
        let page_count = u64::from(shape.used_blocks).saturating_sub(rings) / u64::from(PAGE_BLOCKS);
        if page_count == 0 || shape.redo_blocks == 0 || shape.lap_pages == 0 {
            return Err(format!("no room for pages and redo beside the rings: {shape:?}"));
        }
        if !(0.0..1.0).contains(&shape.skew) {
            return Err(format!("a skew of {}: it takes 0 to less than 1", shape.skew));
        }
        let least = match method {
            Method::Atomic => 0,
            Method::Doublewrite => shape.doublewrite_batch_pages.saturating_mul(PAGE_BLOCKS),
            Method::DataJournal => 4 * PAGE_BLOCKS,
        };
        if ring_blocks(&shape, method) < least {
            return Err(format!("the ring of {method:?} needs at least {least} blocks of 4 KiB"));
        }
        let mut random = fastrand::Rng::with_seed(seed);
        let mut pages: Vec<u32> = (0..page_count as u32).collect();
        random.shuffle(&mut pages);
        let pending = Vec::new();
        Ok(Synthetic { shape, method, random, pages, redo_bytes: 0.0, redo_next: 0, ring_next: 0, pending })
    }

    fn draw(&mut self) -> u32 {
        let rank = self.pages.len() as f64 * self.random.f64().powf(1.0 / (1.0 - self.shape.skew));
        self.pages.get(rank as usize).copied().unwrap_or(0)
    }

    fn write_home(&self, page: u32, apply: &mut impl FnMut(&Step)) {
        let first = self.shape.redo_blocks + ring_blocks(&self.shape, self.method) + page * PAGE_BLOCKS;
        apply(&step(first, PAGE_BLOCKS, Origin::Data));
    }

    /// Writes a page into the ring of the method.
    fn write_ring(&mut self, origin: Origin, apply: &mut impl FnMut(&Step)) {
        let len = ring_blocks(&self.shape, self.method) / PAGE_BLOCKS;
        apply(&step(self.shape.redo_blocks + self.ring_next * PAGE_BLOCKS, PAGE_BLOCKS, origin));
        self.ring_next = (self.ring_next + 1) % len;
    }

    fn write_redo(&mut self, apply: &mut impl FnMut(&Step)) {
        self.redo_bytes += REDO_SHARE * PAGE_LEN_BYTES as f64;
        while self.redo_bytes >= 4096.0 {
            self.redo_bytes -= 4096.0;
            apply(&step(self.redo_next, 1, Origin::Redo));
            self.redo_next = (self.redo_next + 1) % self.shape.redo_blocks;
        }
    }

    fn write_page(&mut self, page: u32, apply: &mut impl FnMut(&Step)) {
        match self.method {
            Method::Atomic => self.write_home(page, apply),
            Method::Doublewrite => {
                self.pending.push(page);
                let batch = self.shape.doublewrite_batch_pages as usize;
                if self.pending.len() >= batch {
                    (0..batch).for_each(|_| self.write_ring(Origin::Doublewrite, apply));
                    self.flush_pending(apply);
                }
            }
            Method::DataJournal => {
                self.write_ring(Origin::Journal, apply);
                self.pending.push(page);
                if self.pending.len() >= (self.shape.journal_blocks / PAGE_BLOCKS / 2) as usize {
                    self.pending.sort_unstable();
                    self.pending.dedup();
                    self.flush_pending(apply);
                }
            }
        }
    }

    fn flush_pending(&mut self, apply: &mut impl FnMut(&Step)) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.iter().for_each(|page| self.write_home(*page, apply));
        pending.clear();
        self.pending = pending;
    }
}

fn ring_blocks(shape: &Shape, method: Method) -> u32 {
    match method {
        Method::Atomic => 0,
        Method::Doublewrite => shape.doublewrite_blocks,
        Method::DataJournal => shape.journal_blocks,
    }
}

fn step(block: u32, blocks: u32, origin: Origin) -> Step {
    let sectors = blocks * BLOCK_SECTORS as u32;
    Step { sector: u64::from(block) * BLOCK_SECTORS, sectors, trim: false, origin }
}

impl Source for Synthetic {
    fn occurs(&self) -> [bool; Origin::ALL.len()] {
        let ring = match self.method {
            Method::Atomic => Origin::Data,
            Method::Doublewrite => Origin::Doublewrite,
            Method::DataJournal => Origin::Journal,
        };
        Origin::ALL.map(|origin| [Origin::Redo, Origin::Data, ring].contains(&origin))
    }

    fn used_blocks(&self) -> u32 {
        self.shape.used_blocks
    }

    fn fill(&self, cold_blocks: u32, place: &mut impl FnMut(u32, Origin)) {
        let redo_end = self.shape.redo_blocks;
        let ring_end = redo_end + ring_blocks(&self.shape, self.method);
        for block in 0..self.shape.used_blocks + cold_blocks {
            let origin = match self.method {
                _ if block < redo_end => Origin::Redo,
                Method::Doublewrite if block < ring_end => Origin::Doublewrite,
                Method::DataJournal if block < ring_end => Origin::Journal,
                _ => Origin::Data,
            };
            place(block, origin);
        }
    }

    fn lap(&mut self, apply: &mut impl FnMut(&Step)) -> Lap {
        for _ in 0..self.shape.lap_pages {
            self.write_redo(apply);
            let page = self.draw();
            self.write_page(page, apply);
        }
        Lap { transactions: 0, pages: u64::from(self.shape.lap_pages), page_len_bytes: PAGE_LEN_BYTES }
    }
}

#[cfg(test)]
mod tests;
