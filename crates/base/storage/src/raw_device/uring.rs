//! [`StreamUring`]: one write at a time with io_uring, the only interface by which a process can name a write stream.
//!
//! Invariant: a buffer that the kernel uses is returned or freed only after the completion. Without a completion, the
//! buffer is leaked.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::{Errno, ReadWriteFlags};

use crate::kernel_ring::{MAX_RESUBMISSIONS, is_transient};
use crate::{AlignedBuffer, untorn};

/// A ring for one write at a time, in a write stream.
pub(super) struct StreamUring {
    ring: IoUring,
}

impl StreamUring {
    pub fn new() -> io::Result<Self> {
        Ok(Self { ring: IoUring::builder().dontfork().build(1)? })
    }

    /// Writes the whole buffer, in write stream number `stream`. After a failure the ring must not be used again.
    pub fn write(
        &mut self,
        file: &File,
        offset_bytes: u64,
        buffer: AlignedBuffer,
        stream: u8,
        flags: ReadWriteFlags,
    ) -> io::Result<AlignedBuffer> {
        let len = u32::try_from(buffer.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let entry: squeue::Entry =
            opcode::Write::new(types::Fd(file.as_raw_fd()), buffer.bytes().as_ptr(), len)
                .offset(offset_bytes)
                .rw_flags(flags.bits() as i32)
                .write_stream(stream)
                .build();
        for _ in 0..MAX_RESUBMISSIONS {
            // SAFETY: the buffer has no other borrower and outlives the request: `run` returns after the completion,
            // or with an error after which the buffer is leaked. The file is open while `run` runs, and the kernel
            // holds it afterwards.
            let result = match unsafe { self.run(&entry) } {
                Ok(result) => result,
                Err(error) => {
                    std::mem::forget(buffer);
                    return Err(error);
                }
            };
            if let Ok(written) = usize::try_from(result) {
                return if written == buffer.len() {
                    Ok(buffer)
                } else {
                    Err(untorn::short(written, buffer.len()))
                };
            }
            let error = io::Error::from_raw_os_error(-result);
            if !is_transient(&error) {
                return Err(explain(error, offset_bytes, buffer.len(), stream, flags));
            }
            redoubt_sync::thread::yield_now();
        }
        Err(io::Error::other("the kernel did not start the write"))
    }

    /// Submits a request and waits for its result.
    ///
    /// # Safety
    /// The memory that the request points to must stay valid until this returns a result, or permanently if it returns
    /// an error.
    unsafe fn run(&mut self, entry: &squeue::Entry) -> io::Result<i32> {
        // SAFETY: the caller's promise.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(|_| io::Error::other("the submission queue is full"))?;
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
            if let Some(completion) = self.ring.completion().next() {
                return Ok(completion.result());
            }
        }
    }
}

/// The error for a request that the kernel rejected.
fn explain(error: io::Error, offset_bytes: u64, len: usize, stream: u8, flags: ReadWriteFlags) -> io::Error {
    let is_untorn = flags.contains(untorn::RWF_ATOMIC);
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::INVAL) if is_untorn => untorn::refused(offset_bytes, len, io::ErrorKind::InvalidInput),
        Some(Errno::OPNOTSUPP) if is_untorn => untorn::refused(offset_bytes, len, io::ErrorKind::Unsupported),
        Some(Errno::INVAL) => {
            let reason = format!("the kernel does not take write stream {stream} for this device");
            io::Error::new(io::ErrorKind::InvalidInput, reason)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests;
