//! A drive in memory for tests: in a power cut it loses and retains data as a real drive may, and it fails on demand.

use std::io;
use std::sync::Arc;

use fastrand::Rng;
use redoubt_sync::Mutex;

use super::media::{BlockMedia, MediaWrite};
use crate::{AlignedBuffer, UntornLimits};

const SECTOR_LEN: usize = 512;

/// A drive in memory. Clones share the drive.
#[derive(Clone)]
pub(super) struct ModelDrive(Arc<Mutex<DriveState>>);

struct DriveState {
    rng: Rng,
    cache: Vec<u8>,
    durable: Vec<u8>,
    /// Writes since the last flush, in order.
    pending: Vec<Pending>,
    ops: u64,
    cut_at: Option<u64>,
    is_off: bool,
    fail_in: Option<(Op, u64)>,
    streams: u32,
    takes_streams: bool,
    untorn: Option<UntornLimits>,
    /// Offset, length and stream of all writes.
    writes: Vec<(u64, usize, u8)>,
    discards: Vec<(u64, u64)>,
}

struct Pending {
    offset: usize,
    bytes: Vec<u8>,
    untorn: bool,
}

/// A kind of call that can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    Read,
    Write,
    Flush,
}

impl ModelDrive {
    pub fn new(len: usize, seed: u64) -> Self {
        Self::with_content(vec![0; len], Rng::with_seed(seed))
    }

    fn with_content(content: Vec<u8>, rng: Rng) -> Self {
        Self(Arc::new(Mutex::new(DriveState {
            rng,
            cache: content.clone(),
            durable: content,
            pending: Vec::new(),
            ops: 0,
            cut_at: None,
            is_off: false,
            fail_in: None,
            streams: 0,
            takes_streams: true,
            untorn: None,
            writes: Vec::new(),
            discards: Vec::new(),
        })))
    }

    /// Makes the drive report streams; `takes_streams` decides whether it accepts them.
    pub fn with_streams(self, count: u32, takes_streams: bool) -> Self {
        {
            let mut state = self.0.lock();
            state.streams = count;
            state.takes_streams = takes_streams;
        }
        self
    }

    pub fn with_untorn(self, min_len_bytes: u64, max_len_bytes: u64) -> Self {
        self.0.lock().untorn = Some(UntornLimits { min_len_bytes, max_len_bytes });
        self
    }

    pub fn boxed(&self) -> Box<dyn BlockMedia> {
        Box::new(self.clone())
    }

    pub fn ops(&self) -> u64 {
        self.0.lock().ops
    }

    /// Cuts the power during changing call number `op` (from 0).
    pub fn cut_power_at(&self, op: u64) {
        self.0.lock().cut_at = Some(op);
    }

    pub fn is_off(&self) -> bool {
        self.0.lock().is_off
    }

    /// Makes a call fail, after `skip` others of its kind.
    pub fn fail(&self, op: Op, skip: u64) {
        self.0.lock().fail_in = Some((op, skip));
    }

    pub fn take_writes(&self) -> Vec<(u64, usize, u8)> {
        std::mem::take(&mut self.0.lock().writes)
    }

    pub fn take_discards(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.0.lock().discards)
    }

    /// Changes bytes, durably.
    pub fn damage(&self, offset: u64, len: usize) {
        let mut state = self.0.lock();
        let range = offset as usize..offset as usize + len;
        state.cache[range.clone()].iter_mut().for_each(|byte| *byte ^= 0x5A);
        state.durable[range].iter_mut().for_each(|byte| *byte ^= 0x5A);
    }

    pub fn put(&self, offset: u64, bytes: &[u8]) {
        let mut state = self.0.lock();
        let range = offset as usize..offset as usize + bytes.len();
        state.cache[range.clone()].copy_from_slice(bytes);
        state.durable[range].copy_from_slice(bytes);
    }

    pub fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        self.0.lock().cache[offset as usize..offset as usize + len].to_vec()
    }

    /// The same drive with another length.
    pub fn resized(&self, len: usize) -> Self {
        let mut content = self.0.lock().cache.clone();
        content.resize(len, 0);
        Self::with_content(content, Rng::new())
    }

    /// The drive that a new process finds after the death of this one, without a power cut.
    pub fn after_process_death(&self) -> Self {
        let state = self.0.lock();
        let next = Self::with_content(state.cache.clone(), state.rng.clone());
        next.take_over(&state);
        next
    }

    /// The drive after a power cut now.
    pub fn after_power_cut(&self) -> Self {
        let mut state = self.0.lock();
        let mut rng = state.rng.fork();
        let mut content = state.durable.clone();
        // All kinds of results should be common: nothing retained, all retained, a mixture.
        let odds = [0, 1, 50, 99, 100][rng.usize(..5)];
        for write in &state.pending {
            let unit = if write.untorn { write.bytes.len() } else { SECTOR_LEN };
            for (n, part) in write.bytes.chunks(unit).enumerate() {
                if rng.u8(..100) < odds {
                    let at = write.offset + n * unit;
                    content[at..at + part.len()].copy_from_slice(part);
                }
            }
        }
        let next = Self::with_content(content, rng);
        next.take_over(&state);
        next
    }

    fn take_over(&self, from: &DriveState) {
        let mut to = self.0.lock();
        to.streams = from.streams;
        to.takes_streams = from.takes_streams;
        to.untorn = from.untorn;
    }
}

fn off() -> io::Error {
    io::Error::other("the power is off")
}

impl DriveState {
    fn check(&mut self, op: Op) -> io::Result<()> {
        if self.is_off {
            return Err(off());
        }
        if let Some((failing, skip)) = self.fail_in.filter(|(failing, _)| *failing == op) {
            self.fail_in = (skip > 0).then(|| (failing, skip - 1));
            if skip == 0 {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok(())
    }

    /// Whether the power is cut during this call.
    fn count(&mut self) -> bool {
        let is_cut = self.cut_at == Some(self.ops);
        self.ops += 1;
        self.is_off |= is_cut;
        is_cut
    }

    fn put(&mut self, offset: u64, bytes: &[u8], untorn: bool) {
        let offset = offset as usize;
        self.cache[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.pending.push(Pending { offset, bytes: bytes.to_vec(), untorn });
    }
}

impl BlockMedia for ModelDrive {
    fn len_bytes(&self) -> u64 {
        self.0.lock().cache.len() as u64
    }

    fn read(&self, offset_bytes: u64, buffer: &mut AlignedBuffer) -> io::Result<()> {
        let mut state = self.0.lock();
        state.check(Op::Read)?;
        assert!(offset_bytes.is_multiple_of(4096) && buffer.len().is_multiple_of(4096));
        let offset = offset_bytes as usize;
        let end = offset + buffer.len();
        buffer.bytes_mut().copy_from_slice(&state.cache[offset..end]);
        Ok(())
    }

    fn write(&self, offset_bytes: u64, buffer: AlignedBuffer, how: MediaWrite) -> io::Result<AlignedBuffer> {
        let mut state = self.0.lock();
        assert!(offset_bytes.is_multiple_of(4096) && buffer.len().is_multiple_of(4096) && !buffer.is_empty());
        if u32::from(how.stream) > state.streams || (how.stream > 0 && !state.takes_streams) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let len = buffer.len() as u64;
        if how.untorn && !state.untorn.is_some_and(|limits| limits.allow(offset_bytes, len)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if let Err(error) = state.check(Op::Write) {
            if !state.is_off {
                // Done in part.
                let done = state.rng.usize(..buffer.len() / SECTOR_LEN) * SECTOR_LEN;
                let done = if how.untorn { 0 } else { done };
                state.put(offset_bytes, &buffer.bytes()[..done], false);
            }
            return Err(error);
        }
        let is_cut = state.count();
        state.put(offset_bytes, buffer.bytes(), how.untorn);
        state.writes.push((offset_bytes, buffer.len(), how.stream));
        if is_cut { Err(off()) } else { Ok(buffer) }
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        if let Err(error) = state.check(Op::Flush) {
            if !state.is_off {
                // A part of the unflushed data is lost permanently, and the next flush does not report that.
                let DriveState { rng, pending, .. } = &mut *state;
                pending.retain(|_| rng.bool());
            }
            return Err(error);
        }
        if state.count() {
            return Err(off());
        }
        for write in std::mem::take(&mut state.pending) {
            state.durable[write.offset..write.offset + write.bytes.len()].copy_from_slice(&write.bytes);
        }
        Ok(())
    }

    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        state.check(Op::Write)?;
        let is_cut = state.count();
        state.discards.push((offset_bytes, len_bytes));
        let garbage = vec![state.rng.u8(1..); len_bytes as usize];
        state.put(offset_bytes, &garbage, false);
        if is_cut { Err(off()) } else { Ok(()) }
    }

    fn stated_streams(&self) -> u32 {
        self.0.lock().streams
    }

    fn stated_untorn(&self) -> Option<UntornLimits> {
        self.0.lock().untorn
    }

    fn model(&self) -> Option<String> {
        Some("MODEL".to_owned())
    }
}
