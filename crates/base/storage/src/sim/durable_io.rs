//! Concurrent durable writes on the simulated disk.
//!
//! The disk has a write from [`DurableFile::start`] on. Until [`DurableIo::finish`] returns success, a power cut
//! retains any of its sectors. The end of one write may end others, like on a disk that performs them in any order.
//! The starters of these learn that later.
//!
//! A failed write (see [`OpKind::FinishWrite`]) has changed any of its sectors. With the error kind `WriteZero` it was
//! done up to some byte, like a short write.

use std::io;
use std::sync::Arc;

use fastrand::Rng;
use redoubt_sync::Mutex;

use super::file::{File, put_sector, sector_of};
use super::{DiskState, OpKind, Outcome, SimDisk, off};
use crate::AlignedBuffer;
use crate::durable_io::{DurableFile, DurableIo};

/// Durable writes to the files of a [`SimDisk`].
pub struct SimIo {
    disk: SimDisk,
    slots: Arc<Mutex<Vec<Option<Taken>>>>,
}

/// Content of a slot.
struct Taken {
    file: usize,
    name: String,
    write: u64,
    buffer: AlignedBuffer,
}

struct SimDurableFile {
    disk: SimDisk,
    file: usize,
    name: String,
    slots: Arc<Mutex<Vec<Option<Taken>>>>,
}

/// A write in progress on the disk.
#[derive(Clone)]
pub(super) struct UnderWay {
    at: usize,
    bytes: Vec<u8>,
}

impl UnderWay {
    fn sectors(&self, sector_len: usize) -> impl Iterator<Item = usize> + use<> {
        self.at / sector_len..(self.at + self.bytes.len()) / sector_len
    }

    fn sector(&self, sector: usize, sector_len: usize) -> Box<[u8]> {
        sector_of(&self.bytes[sector * sector_len - self.at..], 0, sector_len)
    }

    pub fn put_some_sectors(&self, file: &mut [u8], sector_len: usize, rng: &mut Rng) {
        let odds = [0, 50, 90, 100][rng.usize(..4)];
        for sector in self.sectors(sector_len).filter(|_| rng.u8(..100) < odds) {
            put_sector(file, sector, &self.sector(sector, sector_len));
        }
    }
}

impl UnderWay {
    /// Damages the physical sectors of which this write covers only a part, because the disk was about to write them.
    pub fn damage_parts(&self, file: &mut [u8], physical_sector_len: usize, rng: &mut Rng) {
        let end = self.at + self.bytes.len();
        for sector in self.at / physical_sector_len..end.div_ceil(physical_sector_len) {
            let first = sector * physical_sector_len;
            let is_whole = self.at <= first && first + physical_sector_len <= end;
            let last = file.len().min(first + physical_sector_len);
            if !is_whole && rng.bool() {
                file[first..last].fill_with(|| rng.u8(..));
            }
        }
    }
}

impl File {
    /// Ends a write in progress. Sectors for which `is_done` holds become durable.
    fn finish(&mut self, write: u64, mut is_done: impl FnMut(usize) -> bool) {
        let Some(write) = self.under_way.remove(&write) else { return };
        let sector_len = self.sector_len();
        for sector in write.sectors(sector_len).filter(|&sector| is_done(sector)) {
            self.put_durable(sector, &write.sector(sector, sector_len));
        }
    }

    /// Ends all writes after the end of their process. Writes that the disk had not begun are cancelled.
    pub(super) fn finish_without_process(&mut self, rng: &mut Rng) {
        for write in self.under_way.keys().copied().collect::<Vec<_>>() {
            let is_done = rng.bool();
            self.finish(write, |_| is_done);
        }
    }
}

impl SimIo {
    /// Creates durable writes to the files of `disk`, up to `slots` at a time.
    pub fn new(disk: &SimDisk, slots: usize) -> Self {
        let slots = Arc::new(Mutex::new((0..slots).map(|_| None).collect()));
        Self { disk: disk.clone(), slots }
    }
}

impl DiskState {
    /// Ends some of the writes in progress without a notification.
    fn finish_some(&mut self) {
        let Self { rng, files, .. } = self;
        for file in files {
            for write in file.under_way.keys().copied().collect::<Vec<_>>() {
                if rng.u8(..4) == 0 {
                    file.finish(write, |_| true);
                }
            }
        }
    }
}

impl DurableIo for SimIo {
    fn slots(&self) -> usize {
        self.slots.lock().len()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DurableFile>> {
        let file = self.disk.state.lock().find(name)?;
        let (disk, slots) = (self.disk.clone(), Arc::clone(&self.slots));
        Ok(Arc::new(SimDurableFile { disk, file, name: name.into(), slots }))
    }

    fn finish(&self, slot: usize) -> io::Result<AlignedBuffer> {
        let taken = self.slots.lock().get_mut(slot).and_then(Option::take);
        let taken = taken.ok_or(io::ErrorKind::InvalidInput)?;
        let mut state = self.disk.state.lock();
        let outcome = state.begin(OpKind::FinishWrite, &taken.name)?;
        let DiskState { rng, files, .. } = &mut *state;
        let file = &mut files[taken.file];
        match &outcome {
            Outcome::Done => file.finish(taken.write, |_| true),
            // `after_power_cut` decides about the content.
            Outcome::Partly(io::ErrorKind::Other) => return Err(off()),
            Outcome::Partly(io::ErrorKind::WriteZero) => {
                let sectors = taken.buffer.len() / file.sector_len();
                let mut left = rng.usize(..sectors.max(1));
                file.finish(taken.write, |_| {
                    let is_done = left > 0;
                    left = left.saturating_sub(1);
                    is_done
                });
            }
            Outcome::Partly(_) => file.finish(taken.write, |_| rng.bool()),
        }
        outcome.result()?;
        state.finish_some();
        Ok(taken.buffer)
    }
}

impl DurableFile for SimDurableFile {
    fn start(&self, slot: usize, offset_bytes: u64, buffer: AlignedBuffer) -> io::Result<()> {
        let mut slots = self.slots.lock();
        let place = slots.get_mut(slot).filter(|place| place.is_none()).ok_or(io::ErrorKind::InvalidInput)?;
        let mut state = self.disk.state.lock();
        let at = offset_bytes as usize;
        let file = &state.files[self.file];
        let is_whole = at.is_multiple_of(file.sector_len()) && buffer.len().is_multiple_of(file.sector_len());
        if !is_whole || at + buffer.len() > file.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let outcome = state.begin(OpKind::StartWrite, &self.name)?;
        if let Outcome::Partly(kind) = outcome
            && kind != io::ErrorKind::Other
        {
            return Err(kind.into());
        }
        let write = state.ops_done;
        let under_way = UnderWay { at, bytes: buffer.bytes().to_vec() };
        state.files[self.file].under_way.insert(write, under_way);
        *place = Some(Taken { file: self.file, name: self.name.clone(), write, buffer });
        outcome.result()
    }
}
