//! [`UringIo`]: durable writes with io_uring, past the page cache.
//!
//! Each slot has a ring of its own, with space for its one write. So the kernel wakes a thread that waits for a write
//! exactly at its completion, and no additional thread has to distribute completions.
//!
//! A write is one request with `RWF_DSYNC` on a file opened with `O_DIRECT`. The kernel sends it with Force Unit
//! Access if the device supports that. Otherwise, it flushes the device's cache afterwards.
//!
//! The kernel completes a request in the context of the thread that submitted it. The end of that thread does not
//! affect a request that the device has received. A request that was waiting for a kernel thread returns as cancelled
//! and was never started; it is submitted again. So is a request that the kernel rejected for lack of a resource. Any
//! other result than the full length is a failure.
//!
//! Each open file has a shared lock. The kernel keeps the file open until its last write completes, even if the
//! process is killed. An open of the file in a [`RealDir`](crate::RealDir) waits for that lock. Otherwise, a write in
//! progress could overwrite data that was recovered meanwhile.
//!
//! Invariant: the slot owns a buffer that the kernel uses, and releases it only after the completion.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use redoubt_sync::Mutex;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::{DurableFile, DurableIo};
use crate::kernel_ring::{self, MAX_RESUBMISSIONS, is_transient};
use crate::{AlignedBuffer, is_out_of_descriptors};

/// Durable writes with io_uring. See the module's documentation.
pub struct UringIo {
    dir: PathBuf,
    slots: Arc<[Mutex<WriteSlot>]>,
}

struct WriteSlot {
    ring: IoUring,
    under_way: Option<UnderWay>,
}

/// A write in progress in the kernel.
struct UnderWay {
    file: Arc<File>,
    offset_bytes: u64,
    buffer: AlignedBuffer,
}

struct UringFile {
    file: Arc<File>,
    slots: Arc<[Mutex<WriteSlot>]>,
}

impl UringIo {
    /// Creates durable writes to files in `dir`, up to `slots` at a time.
    ///
    /// # Errors
    /// If this process may not use io_uring, with the reason and the fix.
    pub fn new(dir: &Path, slots: usize) -> io::Result<Self> {
        let slots = (0..slots).map(|_| WriteSlot::new().map(Mutex::new)).collect::<io::Result<Arc<[_]>>>();
        let slots = slots.map_err(|error| match is_out_of_descriptors(&error) {
            true => error,
            false => io::Error::new(error.kind(), kernel_ring::explain(&error)),
        })?;
        Ok(Self { dir: dir.to_owned(), slots })
    }
}

impl DurableIo for UringIo {
    fn slots(&self) -> usize {
        self.slots.len()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DurableFile>> {
        let flags = OFlags::DIRECT.bits() as i32;
        let file = File::options().read(true).write(true).custom_flags(flags).open(self.dir.join(name))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared)?;
        Ok(Arc::new(UringFile { file: Arc::new(file), slots: Arc::clone(&self.slots) }))
    }

    fn finish(&self, slot: usize) -> io::Result<AlignedBuffer> {
        let slot = self.slots.get(slot).ok_or(io::ErrorKind::InvalidInput)?;
        slot.lock().finish()
    }
}

impl DurableFile for UringFile {
    fn start(&self, slot: usize, offset_bytes: u64, buffer: AlignedBuffer) -> io::Result<()> {
        let slot = self.slots.get(slot).ok_or(io::ErrorKind::InvalidInput)?;
        let mut slot = slot.lock();
        if slot.under_way.is_some() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        slot.under_way = Some(UnderWay { file: Arc::clone(&self.file), offset_bytes, buffer });
        slot.submit()
    }
}

impl WriteSlot {
    fn new() -> io::Result<Self> {
        let ring = IoUring::builder().dontfork().build(1)?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Write::CODE) {
            return Err(Errno::NOSYS.into());
        }
        Ok(Self { ring, under_way: None })
    }

    /// Submits the slot's write to the kernel. After a failure the kernel does not have it.
    fn submit(&mut self) -> io::Result<()> {
        let Some(write) = &self.under_way else { return Err(io::ErrorKind::InvalidInput.into()) };
        let len = u32::try_from(write.buffer.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let entry: squeue::Entry =
            opcode::Write::new(types::Fd(write.file.as_raw_fd()), write.buffer.bytes().as_ptr(), len)
                .offset(write.offset_bytes)
                .rw_flags(ReadWriteFlags::DSYNC.bits() as i32)
                .build();
        // SAFETY: `under_way` owns buffer and file until the completion; `Drop` waits for it, too. The kernel only
        // reads the buffer, and no thread changes it meanwhile.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // The ring has space for one entry, and the previous entry has completed.
        pushed.map_err(|_| io::Error::other("the submission queue is full"))?;
        loop {
            match self.ring.submit() {
                Ok(1..) => return Ok(()),
                Ok(0) => {}
                Err(error) if is_transient(&error) => {}
                Err(error) => {
                    // The entry stays in the queue: nothing else is submitted to this ring.
                    return Err(error);
                }
            }
        }
    }

    /// Waits until the slot's write completes.
    fn finish(&mut self) -> io::Result<AlignedBuffer> {
        for _ in 0..MAX_RESUBMISSIONS {
            let expected = match &self.under_way {
                Some(write) => write.buffer.len(),
                None => return Err(io::ErrorKind::InvalidInput.into()),
            };
            let result = self.wait()?;
            match usize::try_from(result) {
                Ok(len) if len == expected => {
                    let write = self.under_way.take().ok_or(io::ErrorKind::InvalidInput)?;
                    return Ok(write.buffer);
                }
                Ok(len) => {
                    self.under_way = None;
                    let reason = format!("{len} of {expected} bytes were written");
                    return Err(io::Error::new(io::ErrorKind::WriteZero, reason));
                }
                Err(_) => {
                    let error = io::Error::from_raw_os_error(-result);
                    if !is_transient(&error) {
                        self.under_way = None;
                        return Err(error);
                    }
                    redoubt_sync::thread::yield_now();
                    self.submit()?;
                }
            }
        }
        Err(io::Error::other("the kernel did not start the write"))
    }

    /// Waits for the result of the slot's request.
    fn wait(&mut self) -> io::Result<i32> {
        loop {
            if let Some(completion) = self.ring.completion().next() {
                return Ok(completion.result());
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for WriteSlot {
    fn drop(&mut self) {
        if self.under_way.is_some() && self.wait().is_err() {
            // The kernel may still read the buffer.
            std::mem::forget(self.under_way.take());
        }
    }
}

#[cfg(test)]
mod tests;
