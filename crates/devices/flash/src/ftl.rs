//! The flash translation layer: a page-mapped drive that only counts.
//!
//! Owns the map from logical blocks of 4 KiB to physical ones, the superblocks (the units of erasure, which NVMe calls
//! reclaim units) and the counters. There is no time in it and no data.
//!
//! - Each host stream has one open superblock and writes into it in order. Garbage collection writes into open
//!   superblocks of its own: one for all streams, or one per stream ([`GcDestination`]).
//! - When fewer than [`FREE_LOW`] superblocks are free, the closed superblock with the fewest valid blocks is
//!   collected: its valid blocks are copied, then it is erased. Finding it costs O(1): closed superblocks hang in
//!   doubly linked lists, one list per number of valid blocks.
//! - Physical size: logical size x (1 + over-provisioning), plus a reserve of [`RESERVE`] superblocks: the one that
//!   stays free after a host stream has opened another, and the unwritten halves, on average, of one host's and one
//!   collector's open superblock. So a drive with one stream has the spare space that its over-provisioning says, and
//!   each further stream takes its open superblocks from it.
//!
//! Invariants, which the tests check with [`Ftl::check`]:
//! - a mapped logical block and its physical block name each other, and the physical block's bit in `valid_bits` is
//!   set;
//! - the valid blocks of all superblocks are as many as the mapped logical blocks, and those of one are its set bits;
//! - a superblock is free, open or closed, and exactly the closed ones hang in the lists, each in that of its count.
//!
//! Layout: arrays of `u32`. `p2l` holds the logical block in its low 29 bits and the origin of the last host write in
//! its high 3, so a drive has at most 2^29 logical blocks (2 TiB).

use crate::trace::Origin;

/// Length of a block, the unit of mapping, in bytes.
pub const BLOCK_LEN_BYTES: u64 = 4096;
/// Superblocks that are always free before a new one is opened by a host stream.
pub const FREE_LOW: usize = 2;
/// Superblocks beyond logical size and over-provisioning.
pub const RESERVE: u32 = 2;
/// The most host streams.
pub const MAX_STREAMS: usize = 8;
/// The most logical blocks.
pub const MAX_LOGICAL_BLOCKS: u64 = 1 << LOGICAL_BITS;

const LOGICAL_BITS: u32 = 29;
const LOGICAL_MASK: u32 = (1 << LOGICAL_BITS) - 1;
const NONE: u32 = u32::MAX;
const ORIGINS: usize = Origin::ALL.len();

/// Where garbage collection puts what it saves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GcDestination {
    /// Into one superblock for all streams: NVMe's "initially isolated" reclaim unit handles.
    Shared,
    /// Into one superblock per stream: "persistently isolated".
    PerStream,
}

/// Which superblock is collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victims {
    /// The closed one with the fewest valid blocks.
    Greedy,
    /// Any closed one: a bad model, there to show that the validation notices.
    Random {
        /// Seed of the choice.
        seed: u64,
    },
}

/// Size and rules of a drive.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Geometry {
    /// Logical size, in blocks of 4 KiB.
    pub logical_blocks: u32,
    /// Size of a superblock, in blocks of 4 KiB: a power of two, at least 64.
    pub superblock_blocks: u32,
    /// Physical space beyond the logical, in percent of the logical.
    pub over_provisioning_percent: f64,
    /// Number of host streams, 1 to [`MAX_STREAMS`].
    pub host_streams: u8,
    /// Where garbage collection puts what it saves.
    pub gc: GcDestination,
    /// Which superblock is collected.
    pub victims: Victims,
}

/// Why there is no such drive.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum GeometryError {
    /// Superblocks that the arrays cannot do.
    #[error("a superblock of {0} blocks of 4 KiB: it takes a power of two, at least 64 (256 KiB)")]
    Superblock(u32),
    /// Too small or too large.
    #[error(
        "a drive of {0} logical blocks of 4 KiB: the model takes one superblock to 2^29 blocks (2 TiB), and 2^32 physical"
    )]
    Size(u64),
    /// Not a percentage that makes sense.
    #[error("over-provisioning of {0} %: it takes more than 0 and at most 1000")]
    OverProvisioning(f64),
    /// No stream or too many.
    #[error("{0} host streams: the model takes 1 to {MAX_STREAMS}")]
    Streams(u8),
    /// Collection could come to a stop.
    #[error(
        "{spare} spare superblocks for {open} open ones and {FREE_LOW} free: collection needs {need}; \
         make superblocks smaller, the drive larger or over-provisioning higher"
    )]
    Spare {
        /// Superblocks beyond the logical size.
        spare: u32,
        /// Superblocks that may be open at once.
        open: u32,
        /// Spare superblocks that are needed.
        need: u32,
    },
}

impl Geometry {
    /// Number of superblocks of the drive, or why there is no such drive.
    pub fn superblocks(&self) -> Result<u32, GeometryError> {
        if !self.superblock_blocks.is_power_of_two() || self.superblock_blocks < 64 {
            return Err(GeometryError::Superblock(self.superblock_blocks));
        }
        let logical = u64::from(self.logical_blocks);
        if self.logical_blocks < self.superblock_blocks || logical > MAX_LOGICAL_BLOCKS {
            return Err(GeometryError::Size(logical));
        }
        if !(self.over_provisioning_percent > 0.0 && self.over_provisioning_percent <= 1000.0) {
            return Err(GeometryError::OverProvisioning(self.over_provisioning_percent));
        }
        if self.host_streams == 0 || usize::from(self.host_streams) > MAX_STREAMS {
            return Err(GeometryError::Streams(self.host_streams));
        }
        let blocks = (logical as f64 * (1.0 + self.over_provisioning_percent / 100.0)).ceil();
        let superblocks = (blocks / f64::from(self.superblock_blocks)).ceil() as u64 + u64::from(RESERVE);
        if superblocks * u64::from(self.superblock_blocks) >= u64::from(NONE) {
            return Err(GeometryError::Size(logical));
        }
        let superblocks = superblocks as u32;
        let spare = superblocks - self.logical_blocks.div_ceil(self.superblock_blocks);
        let gc_streams = match self.gc {
            GcDestination::Shared => 1,
            GcDestination::PerStream => u32::from(self.host_streams),
        };
        let open = u32::from(self.host_streams) + gc_streams;
        // One more, so that some closed superblock has an invalid block even when every logical block is mapped.
        let need = open + FREE_LOW as u32 + 1;
        if spare < need {
            return Err(GeometryError::Spare { spare, open, need });
        }
        Ok(superblocks)
    }
}

/// Counters. Numbers are of blocks of 4 KiB unless noted otherwise.
///
/// Streams are host streams from 0; with [`GcDestination::Shared`] the superblocks that collection wrote count as one
/// more stream after the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Written by the host, per stream.
    pub host: [u64; MAX_STREAMS + 1],
    /// Copied by garbage collection, per stream of the superblock collected.
    pub gc: [u64; MAX_STREAMS + 1],
    /// Superblocks erased, per stream.
    pub erases: [u64; MAX_STREAMS + 1],
    /// Written by the host, per origin.
    pub host_by_origin: [u64; ORIGINS],
    /// Copied by garbage collection, per origin.
    pub gc_by_origin: [u64; ORIGINS],
}

impl Counters {
    /// Difference of the counters since `before`.
    pub fn since(&self, before: &Counters) -> Counters {
        fn minus<const N: usize>(after: [u64; N], before: [u64; N]) -> [u64; N] {
            let mut difference = after;
            difference.iter_mut().zip(before).for_each(|(after, before)| *after -= before);
            difference
        }
        Counters {
            host: minus(self.host, before.host),
            gc: minus(self.gc, before.gc),
            erases: minus(self.erases, before.erases),
            host_by_origin: minus(self.host_by_origin, before.host_by_origin),
            gc_by_origin: minus(self.gc_by_origin, before.gc_by_origin),
        }
    }

    /// Blocks written by the host.
    pub fn host_blocks(&self) -> u64 {
        self.host.iter().sum()
    }

    /// Blocks copied by garbage collection.
    pub fn gc_blocks(&self) -> u64 {
        self.gc.iter().sum()
    }

    /// Blocks programmed: by the host and by garbage collection.
    pub fn nand_blocks(&self) -> u64 {
        self.host_blocks() + self.gc_blocks()
    }

    /// Superblocks erased.
    pub fn erased_superblocks(&self) -> u64 {
        self.erases.iter().sum()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SuperblockState {
    Free,
    Open,
    Closed,
}

#[derive(Clone, Copy, Debug)]
struct Superblock {
    valid: u32,
    next: u32,
    previous: u32,
    state: SuperblockState,
    stream: u8,
}

/// The drive. See the module's description.
#[derive(Debug)]
pub struct Ftl {
    shift: u32,
    l2p: Vec<u32>,
    p2l: Vec<u32>,
    valid_bits: Vec<u64>,
    superblocks: Vec<Superblock>,
    /// First closed superblock with so many valid blocks.
    heads: Vec<u32>,
    /// No closed superblock has fewer valid blocks.
    fewest_valid: usize,
    free: Vec<u32>,
    /// Next physical block of each open superblock: host streams, then destinations of collection. `NONE`: none is
    /// open.
    cursors: Vec<u32>,
    host_streams: u8,
    gc: GcDestination,
    random: Option<u64>,
    mapped: u64,
    counters: Counters,
}

impl Ftl {
    /// An empty drive.
    pub fn new(geometry: &Geometry) -> Result<Ftl, GeometryError> {
        let superblocks = geometry.superblocks()?;
        let blocks = superblocks as usize * geometry.superblock_blocks as usize;
        let free =
            Superblock { valid: 0, next: NONE, previous: NONE, state: SuperblockState::Free, stream: 0 };
        let gc_cursors = match geometry.gc {
            GcDestination::Shared => 1,
            GcDestination::PerStream => geometry.host_streams,
        };
        Ok(Ftl {
            shift: geometry.superblock_blocks.trailing_zeros(),
            l2p: vec![NONE; geometry.logical_blocks as usize],
            p2l: vec![0; blocks],
            valid_bits: vec![0; blocks / 64],
            superblocks: vec![free; superblocks as usize],
            heads: vec![NONE; geometry.superblock_blocks as usize + 1],
            fewest_valid: geometry.superblock_blocks as usize,
            free: (0..superblocks).rev().collect(),
            cursors: vec![NONE; usize::from(geometry.host_streams + gc_cursors)],
            host_streams: geometry.host_streams,
            gc: geometry.gc,
            random: match geometry.victims {
                Victims::Greedy => None,
                Victims::Random { seed } => Some(seed | 1),
            },
            mapped: 0,
            counters: Counters::default(),
        })
    }

    /// Number of logical blocks.
    pub fn logical_blocks(&self) -> u32 {
        self.l2p.len() as u32
    }

    /// Number of physical blocks.
    pub fn physical_blocks(&self) -> u64 {
        self.p2l.len() as u64
    }

    /// Number of logical blocks that hold something.
    pub fn mapped_blocks(&self) -> u64 {
        self.mapped
    }

    /// Counters so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The host writes a block. It must be less than [`Ftl::logical_blocks`], and `stream` a host stream.
    pub fn write(&mut self, block: u32, stream: u8, origin: Origin) {
        debug_assert!(stream < self.host_streams);
        if self.cursors[usize::from(stream)] == NONE {
            while self.free.len() < FREE_LOW {
                self.collect();
            }
            self.open(usize::from(stream), stream);
        }
        match self.l2p[block as usize] {
            NONE => self.mapped += 1,
            old => self.invalidate(old),
        }
        self.append(usize::from(stream), block | (origin as u32) << LOGICAL_BITS);
        self.counters.host[usize::from(stream)] += 1;
        self.counters.host_by_origin[origin as usize] += 1;
    }

    /// The host declares a block unused. It must be less than [`Ftl::logical_blocks`].
    pub fn trim(&mut self, block: u32) {
        let old = std::mem::replace(&mut self.l2p[block as usize], NONE);
        if old != NONE {
            self.mapped -= 1;
            self.invalidate(old);
        }
    }

    /// Puts an entry of `p2l` at the cursor and maps its logical block there.
    fn append(&mut self, cursor: usize, entry: u32) {
        let place = self.cursors[cursor];
        self.p2l[place as usize] = entry;
        self.l2p[(entry & LOGICAL_MASK) as usize] = place;
        self.valid_bits[place as usize >> 6] |= 1 << (place & 63);
        let superblock = place >> self.shift;
        self.superblocks[superblock as usize].valid += 1;
        let next = place + 1;
        if next & ((1 << self.shift) - 1) == 0 {
            self.cursors[cursor] = NONE;
            self.superblocks[superblock as usize].state = SuperblockState::Closed;
            self.link(superblock);
        } else {
            self.cursors[cursor] = next;
        }
    }

    /// The physical block no longer holds anything.
    fn invalidate(&mut self, place: u32) {
        self.valid_bits[place as usize >> 6] &= !(1 << (place & 63));
        let index = place >> self.shift;
        if self.superblocks[index as usize].state == SuperblockState::Closed {
            self.unlink(index);
            self.superblocks[index as usize].valid -= 1;
            self.link(index);
        } else {
            self.superblocks[index as usize].valid -= 1;
        }
    }

    /// Hangs a closed superblock into the list of its number of valid blocks.
    fn link(&mut self, index: u32) {
        let valid = self.superblocks[index as usize].valid as usize;
        let next = std::mem::replace(&mut self.heads[valid], index);
        if next != NONE {
            self.superblocks[next as usize].previous = index;
        }
        let superblock = &mut self.superblocks[index as usize];
        superblock.next = next;
        superblock.previous = NONE;
        self.fewest_valid = self.fewest_valid.min(valid);
    }

    /// Takes a closed superblock out of its list.
    fn unlink(&mut self, index: u32) {
        let Superblock { valid, next, previous, .. } = self.superblocks[index as usize];
        if previous == NONE {
            self.heads[valid as usize] = next;
        } else {
            self.superblocks[previous as usize].next = next;
        }
        if next != NONE {
            self.superblocks[next as usize].previous = previous;
        }
    }

    /// Opens a free superblock for a cursor. One must be free.
    fn open(&mut self, cursor: usize, stream: u8) {
        let Some(index) = self.free.pop() else {
            unreachable!("Geometry::superblocks keeps enough superblocks for collection to go on")
        };
        let superblock = &mut self.superblocks[index as usize];
        superblock.state = SuperblockState::Open;
        superblock.stream = stream;
        superblock.valid = 0;
        self.cursors[cursor] = index << self.shift;
    }

    /// Copies what is valid in a victim and erases it.
    fn collect(&mut self) {
        let victim = self.victim();
        self.unlink(victim);
        // Open while its blocks move, so that no list has it.
        self.superblocks[victim as usize].state = SuperblockState::Open;
        let stream = self.superblocks[victim as usize].stream;
        let cursor = match self.gc {
            GcDestination::Shared => usize::from(self.host_streams),
            GcDestination::PerStream => usize::from(self.host_streams + stream),
        };
        let destination = match self.gc {
            GcDestination::Shared => self.host_streams,
            GcDestination::PerStream => stream,
        };
        let words = 1usize << (self.shift - 6);
        let first_word = victim as usize * words;
        for word in first_word..first_word + words {
            let mut bits = std::mem::take(&mut self.valid_bits[word]);
            while bits != 0 {
                let place = word << 6 | bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if self.cursors[cursor] == NONE {
                    self.open(cursor, destination);
                }
                let entry = self.p2l[place];
                self.append(cursor, entry);
                self.counters.gc_by_origin[(entry >> LOGICAL_BITS) as usize] += 1;
            }
        }
        let superblock = &mut self.superblocks[victim as usize];
        self.counters.gc[usize::from(stream)] += u64::from(superblock.valid);
        self.counters.erases[usize::from(stream)] += 1;
        superblock.state = SuperblockState::Free;
        superblock.valid = 0;
        self.free.push(victim);
    }

    /// The superblock to collect.
    fn victim(&mut self) -> u32 {
        if let Some(victim) = self.random_victim() {
            return victim;
        }
        // It went up at most as far as invalidations had brought it down.
        while self.heads[self.fewest_valid] == NONE {
            self.fewest_valid += 1;
        }
        self.heads[self.fewest_valid]
    }

    /// A random closed superblock that is not wholly valid, where the drive chooses so.
    fn random_victim(&mut self) -> Option<u32> {
        let mut state = self.random?;
        loop {
            // xorshift64: never zero, as its seed is not.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            self.random = Some(state);
            let index = (state >> 16) % self.superblocks.len() as u64;
            let superblock = &self.superblocks[index as usize];
            if superblock.state == SuperblockState::Closed && superblock.valid < 1 << self.shift {
                return Some(index as u32);
            }
        }
    }

    /// Holds every invariant of the module against the arrays. The error names the first that is broken.
    pub fn check(&self) -> Result<(), String> {
        let mut mapped = 0;
        for (block, &place) in self.l2p.iter().enumerate().filter(|(_, place)| **place != NONE) {
            mapped += 1;
            if (self.p2l[place as usize] & LOGICAL_MASK) as usize != block {
                return Err(format!("block {block} is mapped to {place}, which holds another"));
            }
            if self.valid_bits[place as usize >> 6] >> (place & 63) & 1 == 0 {
                return Err(format!("block {block} is mapped to {place}, which is not valid"));
            }
        }
        let words = 1usize << (self.shift - 6);
        let mut valid = 0;
        for (index, superblock) in self.superblocks.iter().enumerate() {
            let bits = &self.valid_bits[index * words..(index + 1) * words];
            let set: u32 = bits.iter().map(|word| word.count_ones()).sum();
            valid += u64::from(set);
            if set != superblock.valid {
                return Err(format!("superblock {index} counts {} valid, {set} are", superblock.valid));
            }
        }
        if (mapped, valid) != (self.mapped, self.mapped) {
            return Err(format!("{mapped} mapped, {valid} valid, {} counted", self.mapped));
        }
        self.check_lists()
    }

    /// The part of [`Ftl::check`] about the states of superblocks.
    fn check_lists(&self) -> Result<(), String> {
        let mut listed = vec![false; self.superblocks.len()];
        for (valid, &head) in self.heads.iter().enumerate() {
            let (mut index, mut previous) = (head, NONE);
            while index != NONE {
                let superblock = &self.superblocks[index as usize];
                if superblock.valid as usize != valid
                    || superblock.previous != previous
                    || superblock.state != SuperblockState::Closed
                    || valid < self.fewest_valid
                    || std::mem::replace(&mut listed[index as usize], true)
                {
                    return Err(format!("superblock {index} is wrong in list {valid}: {superblock:?}"));
                }
                (previous, index) = (index, superblock.next);
            }
        }
        for (index, superblock) in self.superblocks.iter().enumerate() {
            let free = self.free.contains(&(index as u32));
            let open =
                self.cursors.iter().any(|&next| next != NONE && (next >> self.shift) as usize == index);
            let state = match (free, open, listed[index]) {
                (true, false, false) => SuperblockState::Free,
                (false, true, false) => SuperblockState::Open,
                (false, false, true) => SuperblockState::Closed,
                other => return Err(format!("superblock {index} is free, open, listed: {other:?}")),
            };
            if state != superblock.state {
                return Err(format!("superblock {index} is {state:?}, says {:?}", superblock.state));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
