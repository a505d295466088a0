//! A file of a [`SimDisk`](super::SimDisk): the visible state, the durable state, and the versions between.
//!
//! All versions of each sector since the last sync are retained, numbered from 1 in order; version 0 is the durable
//! one. A power cut chooses a version for every such sector. An untorn write is a set of (sector, version). The choice
//! is either below the version for all of them, or for none.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use fastrand::Rng;

use super::durable_io;

type Sector = Box<[u8]>;

#[derive(Clone)]
pub(super) struct File {
    sector_len: usize,
    cache: Vec<u8>,
    durable: Vec<u8>,
    /// Minimum length since the last sync, if the file was truncated: content after it is gone.
    cut_to: Option<usize>,
    /// For each sector written since the last sync, its content after each write.
    dirty: BTreeMap<usize, Vec<Sector>>,
    /// Untorn writes since the last sync: their sectors, and the version of each.
    untorn: Vec<Vec<(usize, usize)>>,
    /// Sectors that the drive cannot read until they are written again.
    lost: BTreeSet<usize>,
    /// Durable writes in progress, by number.
    pub under_way: BTreeMap<u64, durable_io::UnderWay>,
}

impl File {
    pub fn new(sector_len: usize) -> Self {
        Self {
            sector_len,
            cache: Vec::new(),
            durable: Vec::new(),
            cut_to: None,
            dirty: BTreeMap::new(),
            untorn: Vec::new(),
            lost: BTreeSet::new(),
            under_way: BTreeMap::new(),
        }
    }

    pub fn sector_len(&self) -> usize {
        self.sector_len
    }

    pub fn len(&self) -> usize {
        self.cache.len()
    }

    pub fn content(&self) -> &[u8] {
        &self.cache
    }

    pub fn damage(&mut self, offset_bytes: usize, change: impl FnOnce(&mut [u8])) {
        change(&mut self.cache[offset_bytes..]);
        self.durable.clone_from(&self.cache);
    }

    /// The drive cannot read the sectors of this range any more.
    pub fn lose(&mut self, range: Range<usize>) {
        self.lost.extend(self.sectors(range));
    }

    pub fn has_lost(&self, range: Range<usize>) -> bool {
        self.lost.range(self.sectors(range)).next().is_some()
    }

    fn sectors(&self, range: Range<usize>) -> Range<usize> {
        range.start / self.sector_len..range.end.div_ceil(self.sector_len)
    }

    /// Until the cache is dropped, the process sees other bytes than the disk has.
    pub fn damage_memory(&mut self, offset_bytes: usize, change: impl FnOnce(&mut [u8])) {
        change(&mut self.cache[offset_bytes..]);
    }

    pub fn write(&mut self, at: usize, bytes: &[u8], is_untorn: bool) {
        if bytes.is_empty() {
            return;
        }
        let end = at + bytes.len();
        if self.cache.len() < end {
            self.cache.resize(end, 0);
        }
        self.cache[at..end].copy_from_slice(bytes);
        let mut together = Vec::new();
        for sector in at / self.sector_len..end.div_ceil(self.sector_len) {
            self.lost.remove(&sector);
            let now = sector_of(&self.cache, sector, self.sector_len);
            let versions = self.dirty.entry(sector).or_default();
            versions.push(now);
            together.push((sector, versions.len()));
        }
        if is_untorn {
            self.untorn.push(together);
        }
    }

    pub fn grow(&mut self, len: usize) {
        self.cache.resize(len.max(self.cache.len()), 0);
    }

    pub fn set_len(&mut self, len: usize) {
        if len < self.cache.len() {
            self.cut_to = Some(self.cut_to.map_or(len, |shortest| shortest.min(len)));
        }
        let is_cut = len < self.cache.len();
        self.cache.resize(len, 0);
        // The sectors after the end are gone. The last sector reads as zero after the end.
        let sector_len = self.sector_len;
        self.dirty.retain(|&sector, _| sector * sector_len < len);
        for write in &mut self.untorn {
            write.retain(|&(sector, _)| sector * sector_len < len);
        }
        // Old versions of the last sector must not reappear after the end either.
        if is_cut && let Some(versions) = self.dirty.get_mut(&(len / sector_len)) {
            versions.push(sector_of(&self.cache, len / sector_len, sector_len));
        }
    }

    /// Applies the current length to `bytes`, which have the durable one.
    fn take_len(&self, bytes: &mut Vec<u8>) {
        bytes.truncate(self.cut_to.unwrap_or(usize::MAX));
        bytes.resize(self.cache.len(), 0);
    }

    fn sync_len(&mut self) {
        let mut durable = std::mem::take(&mut self.durable);
        self.take_len(&mut durable);
        self.durable = durable;
        self.cut_to = None;
    }

    pub fn sync(&mut self) {
        self.sync_len();
        for (sector, versions) in std::mem::take(&mut self.dirty) {
            if let Some(last) = versions.last() {
                put_sector(&mut self.durable, sector, last);
            }
        }
        self.untorn.clear();
    }

    /// Makes some sectors durable, and marks all as clean.
    pub fn fail_sync(&mut self, rng: &mut Rng) {
        self.sync_len();
        let last_or_none = |versions: usize, rng: &mut Rng| if rng.bool() { versions } else { 0 };
        let chosen = self.choose(rng, last_or_none);
        let mut durable = std::mem::take(&mut self.durable);
        self.put(&chosen, &mut durable);
        self.durable = durable;
        self.dirty.clear();
        self.untorn.clear();
    }

    pub fn drop_cache(&mut self) {
        self.drop_cache_of(0..self.cache.len());
    }

    pub fn drop_cache_of(&mut self, range: Range<usize>) {
        for sector in self.sectors(range.start..range.end.min(self.cache.len())) {
            if !self.dirty.contains_key(&sector) {
                let durable = sector_of(&self.durable, sector, self.sector_len);
                put_sector(&mut self.cache, sector, &durable);
            }
        }
    }

    pub fn after_power_cut(&self, physical_sector_len: usize, rng: &mut Rng) -> Self {
        let mut after = self.durable.clone();
        if rng.bool() {
            self.take_len(&mut after);
        }
        // All kinds of results should be common: nothing retained, all retained, a mixture.
        let odds = [0, 1, 50, 99, 100][rng.usize(..5)];
        let chosen = self.choose(rng, |versions, rng| match rng.u8(..100) < odds {
            true if rng.bool() => versions,
            true => rng.usize(1..=versions),
            false => 0,
        });
        self.put(&chosen, &mut after);
        for write in self.under_way.values() {
            write.put_some_sectors(&mut after, self.sector_len, rng);
        }
        // After all of them: two writes in progress may share a physical sector.
        for write in self.under_way.values() {
            write.damage_parts(&mut after, physical_sector_len, rng);
        }
        let lost = self.lost.clone();
        Self { cache: after.clone(), durable: after, lost, ..Self::new(self.sector_len) }
    }

    /// Chooses a version of each dirty sector, given the number of versions, so that no untorn write is torn.
    fn choose(&self, rng: &mut Rng, one: impl Fn(usize, &mut Rng) -> usize) -> BTreeMap<usize, usize> {
        let mut chosen: BTreeMap<usize, usize> =
            self.dirty.iter().map(|(&sector, versions)| (sector, one(versions.len(), rng))).collect();
        for write in &self.untorn {
            // One choice for the whole write makes both results common, for any number of sectors.
            let is_kept = one(1, rng) == 1;
            for (sector, version) in write {
                let Some(chosen) = chosen.get_mut(sector) else { continue };
                *chosen = if is_kept { *version.max(chosen) } else { (*chosen).min(version - 1) };
            }
        }
        loop {
            let mut is_torn = false;
            for write in &self.untorn {
                let is_kept = |&(sector, version): &(usize, usize)| {
                    chosen.get(&sector).is_some_and(|&it| it >= version)
                };
                if write.iter().any(is_kept) && !write.iter().all(is_kept) {
                    is_torn = true;
                    for (sector, version) in write {
                        chosen.entry(*sector).and_modify(|chosen| *chosen = *version.max(chosen));
                    }
                }
            }
            if !is_torn {
                return chosen;
            }
        }
    }

    fn put(&self, chosen: &BTreeMap<usize, usize>, bytes: &mut [u8]) {
        for (sector, version) in chosen {
            if let Some(version) = version.checked_sub(1) {
                put_sector(bytes, *sector, &self.dirty[sector][version]);
            }
        }
    }

    /// Makes a sector durable that bypassed the cache.
    pub fn put_durable(&mut self, sector: usize, content: &[u8]) {
        self.dirty.remove(&sector);
        for write in &mut self.untorn {
            write.retain(|&(other, _)| other != sector);
        }
        self.lost.remove(&sector);
        put_sector(&mut self.cache, sector, content);
        put_sector(&mut self.durable, sector, content);
    }
}

/// A sector of a file, with zeros after the file's end.
pub(super) fn sector_of(bytes: &[u8], sector: usize, sector_len: usize) -> Sector {
    let mut out = vec![0; sector_len];
    let at = sector * sector_len;
    if let Some(bytes) = bytes.get(at..bytes.len().min(at + sector_len)) {
        out[..bytes.len()].copy_from_slice(bytes);
    }
    out.into()
}

/// Writes the part of a sector inside the file.
pub(super) fn put_sector(bytes: &mut [u8], sector: usize, content: &[u8]) {
    let at = sector * content.len();
    let end = bytes.len().min(at + content.len());
    if let Some(bytes) = bytes.get_mut(at..end) {
        bytes.copy_from_slice(&content[..bytes.len()]);
    }
}
