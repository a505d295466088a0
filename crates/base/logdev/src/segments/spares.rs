//! Files that are ready to become the next segment: new ones, filled with zeros, and discarded ones.
//!
//! A recycled spare keeps its old header and records. They are harmless: a new header with a new epoch is
//! durable before the file gets a `log-` name again.

use redoubt_storage::{StorageDir, StorageFile};
use redoubt_sync::thread::JoinHandle;
use std::io;
use std::sync::{Arc, Weak};

use redoubt_sync::{Condvar, Mutex};

use super::index::SegmentIndex;
use super::{Counters, Media, Segment, Shared, add, segment_name};
use crate::error::LogDeviceError;
use crate::format::SegmentHeader;

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// One spare file.
pub(super) struct Spare {
    pub file: Arc<dyn StorageFile>,
    pub name: String,
    pub len_bytes: u64,
    pub is_recycled: bool,
}

impl Spare {
    /// Turns the file into the segment that starts at `first_seq`, with records at multiples of `unit`; durable
    /// when it returns.
    pub fn activate(
        self,
        dir: &dyn StorageDir,
        first_seq: u64,
        durable_seq: u64,
        unit: usize,
    ) -> Result<(OpenSegment, SegmentIndex), LogDeviceError> {
        let Self { file, name: old_name, len_bytes, .. } = self;
        let epoch = fastrand::u64(1..);
        let header = SegmentHeader { first_seq, epoch, len_bytes, durable_seq, unit: unit as u32 };
        file.write_at(0, &header.encode()).map_err(LogDeviceError::io("write header to", &old_name))?;
        file.sync_data().map_err(LogDeviceError::io("sync", &old_name))?;
        let name = segment_name(first_seq);
        dir.rename(&old_name, &name).map_err(LogDeviceError::io("rename", &old_name))?;
        dir.sync().map_err(LogDeviceError::io("sync the directory of", &name))?;
        let segment = SegmentIndex::new(first_seq, len_bytes, file.clone(), &name);
        Ok((OpenSegment { file, name, epoch, len_bytes }, segment))
    }
}

/// A segment that is on the disk under its own name, before the device has prepared it for records.
pub(super) struct OpenSegment {
    pub file: Arc<dyn StorageFile>,
    pub name: String,
    pub epoch: u64,
    pub len_bytes: u64,
}

impl OpenSegment {
    /// Lets the device prepare it.
    pub fn with_handle<M: Media>(self, media: &M) -> Result<Segment<M::Handle>, LogDeviceError> {
        let Self { file, name, len_bytes, .. } = &self;
        let handle = media.open(file, name, *len_bytes).map_err(LogDeviceError::io("prepare", name))?;
        Ok(self.with(handle))
    }

    /// The device has prepared it.
    pub fn with<H>(self, handle: H) -> Segment<H> {
        let Self { file, name, epoch, len_bytes } = self;
        Segment { file, name, epoch, len: len_bytes as usize, handle }
    }
}

/// A use of a spare's file, and the handle of the device.
type OpenFiles<H> = (Option<Arc<dyn StorageFile>>, Option<H>);

/// A spare that can become a segment without another descriptor.
pub(super) struct OpenSpare<H> {
    pub spare: Spare,
    /// Keeps its file open.
    pub open: Option<Arc<dyn StorageFile>>,
    /// That of the device, if it can be made before the file is a segment.
    pub handle: Option<H>,
}

/// The spares at hand.
#[derive(Default)]
pub(super) struct Spares {
    ready: Vec<Spare>,
    next_number: u64,
}

impl Spares {
    /// Spares found on opening. New ones get numbers from `next_number` on.
    pub fn new(ready: Vec<Spare>, next_number: u64) -> Self {
        Self { ready, next_number }
    }

    pub fn count(&self) -> usize {
        self.ready.len()
    }

    pub fn take(&mut self) -> Option<Spare> {
        self.ready.pop()
    }

    pub fn put_recycled(&mut self, file: Arc<dyn StorageFile>, name: String, len_bytes: u64) {
        self.ready.push(Spare { file, name, len_bytes, is_recycled: true });
    }

    /// A name that no file has.
    pub fn next_name(&mut self) -> String {
        self.next_number += 1;
        format!("spare-{:020}.seg", self.next_number)
    }

    /// A spare at hand, or a new one.
    pub fn make(
        &mut self,
        dir: &dyn StorageDir,
        len_bytes: u64,
        counters: &Counters,
    ) -> Result<Spare, LogDeviceError> {
        match self.take() {
            Some(spare) => Ok(spare),
            None => create(dir, self.next_name(), len_bytes, counters),
        }
    }
}

/// Creates a file of `len_bytes` zeros, all of them written. On failure nothing is left of it, if possible.
fn create(
    dir: &dyn StorageDir,
    name: String,
    len_bytes: u64,
    counters: &Counters,
) -> Result<Spare, LogDeviceError> {
    let file = dir.create(&name).map_err(LogDeviceError::io_or_no_space("create", &name))?;
    let filled = fill(&*file, len_bytes, counters);
    if let Err(source) = filled {
        drop(file);
        // Opening the log removes what is left here.
        let _ = dir.remove(&name);
        return Err(LogDeviceError::io_or_no_space("preallocate", &name)(source));
    }
    add(&counters.segments_created, 1);
    Ok(Spare { file, name, len_bytes, is_recycled: false })
}

fn fill(file: &dyn StorageFile, len_bytes: u64, counters: &Counters) -> std::io::Result<()> {
    file.allocate(0, len_bytes)?;
    let mut at = 0;
    while at < len_bytes {
        let len = ZEROS.len().min((len_bytes - at) as usize);
        file.write_at(at, &ZEROS[..len])?;
        at += len as u64;
        add(&counters.bytes_preallocated, len);
    }
    file.sync_all()
}

impl<M: Media> Shared<M> {
    /// A new spare. Not under the lock of the others, since it takes long.
    pub(super) fn make_spare(&self) -> Result<Spare, LogDeviceError> {
        let name = self.spares.lock().next_name();
        create(&*self.dir, name, self.options.segment_len_bytes, &self.counters)
    }

    /// Takes a spare, or makes one, and opens it. After a failure it stays a spare.
    pub(super) fn open_spare(&self) -> Result<OpenSpare<M::Handle>, LogDeviceError> {
        let spare = self.spares.lock().take();
        let spare = match spare {
            Some(spare) => spare,
            None => self.make_spare()?,
        };
        match self.open_files_of(&spare) {
            Ok((open, handle)) => Ok(OpenSpare { spare, open, handle }),
            Err(source) => {
                let error = LogDeviceError::io_or_no_space("open", &spare.name)(source);
                self.spares.lock().ready.push(spare);
                Err(error)
            }
        }
    }

    fn open_files_of(&self, spare: &Spare) -> io::Result<OpenFiles<M::Handle>> {
        let open = spare.file.hold_open()?;
        let mut handle = None;
        if M::OPENS_SPARES {
            self.dir.with_descriptor(&mut || {
                handle = Some(self.media.open(&spare.file, &spare.name, spare.len_bytes)?);
                Ok(())
            })?;
        }
        Ok((open, handle))
    }

    /// Makes as many spares as the options ask for; returns how many were made.
    pub(super) fn prepare_spares(&self) -> Result<usize, LogDeviceError> {
        let mut made = 0;
        while self.spares.lock().count() < self.options.spare_segments {
            let spare = self.make_spare()?;
            self.spares.lock().ready.push(spare);
            made += 1;
        }
        Ok(made)
    }
}

#[derive(Default)]
struct Signal {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Wanted {
    #[default]
    Nothing,
    Spares,
    Stop,
}

/// The thread that keeps spares ready. A failure there is left to the next append that needs a spare, which
/// meets it again and reports it.
pub(super) struct Preparer {
    signal: Arc<Signal>,
    thread: JoinHandle<()>,
}

impl Preparer {
    pub fn start<M: Media>(log: &Arc<Shared<M>>) -> Result<Self, LogDeviceError> {
        let signal = Arc::new(Signal { wanted: Mutex::new(Wanted::Spares), changed: Condvar::new() });
        let (theirs, log) = (signal.clone(), Arc::downgrade(log));
        let thread = redoubt_sync::thread::Builder::new()
            .name("log-spares".into())
            .spawn(move || prepare_until_stopped(&theirs, &log))
            .map_err(LogDeviceError::io("start a thread for", "log spares"))?;
        Ok(Self { signal, thread })
    }

    /// Tells the thread that a spare was used.
    pub fn wake(&self) {
        self.set(Wanted::Spares);
    }

    /// Ends the thread.
    pub fn stop(self) {
        self.set(Wanted::Stop);
        let _ = self.thread.join();
    }

    fn set(&self, wanted: Wanted) {
        *self.signal.wanted.lock() = wanted;
        self.signal.changed.notify_one();
    }
}

fn prepare_until_stopped<M: Media>(signal: &Signal, log: &Weak<Shared<M>>) {
    loop {
        {
            let mut wanted = signal.wanted.lock();
            while *wanted == Wanted::Nothing {
                signal.changed.wait(&mut wanted);
            }
            if *wanted == Wanted::Stop {
                return;
            }
            *wanted = Wanted::Nothing;
        }
        let Some(log) = log.upgrade() else { return };
        if log.poison.check().is_ok() {
            let _ = log.prepare_spares();
        }
    }
}
