//! Writes to a block device in write streams, and where the drive put them.
//!
//! Stream s of the kernel is the drive's placement identifier s - 1; stream 0 is no stream. The kernel refuses streams
//! that a device does not have, which shows whether a device has any.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use io_uring::{IoUring, opcode, types};

use super::fdp::GroupState;
use super::fdp_moved;

const PAGE_LEN_BYTES: usize = 4096;
const CHUNK_PAGES: usize = 256;
const CHUNK_LEN_BYTES: u64 = (PAGE_LEN_BYTES * CHUNK_PAGES) as u64;

/// Memory for direct I/O.
#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_LEN_BYTES]);

/// Writes without a stream, and in streams.
struct StreamWriter {
    file: File,
    ring: IoUring,
    chunk: Vec<Page>,
}

impl StreamWriter {
    fn open(device: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(device)?;
        Ok(Self { file, ring: IoUring::new(1)?, chunk: vec![Page([0; PAGE_LEN_BYTES]); CHUNK_PAGES] })
    }

    /// Writes one chunk, filled with the stream's number.
    fn write(&mut self, stream: u8, offset_bytes: u64) -> io::Result<()> {
        self.chunk.fill(Page([stream; PAGE_LEN_BYTES]));
        let entry = opcode::Write::new(
            types::Fd(self.file.as_raw_fd()),
            self.chunk.as_ptr().cast(),
            CHUNK_LEN_BYTES as u32,
        )
        .offset(offset_bytes)
        .write_stream(stream)
        .build();
        // SAFETY: the kernel reads from `chunk` and `file`, which live as long as the ring. This function returns only
        // after it has seen the completion, so the chunk does not change meanwhile.
        unsafe { self.ring.submission().push(&entry) }
            .map_err(|_| io::Error::other("the submission queue is full"))?;
        let completion = loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => return Err(error),
                _ => {}
            }
            if let Some(completion) = self.ring.completion().next() {
                break completion;
            }
        };
        match completion.result() {
            written if written as u64 == CHUNK_LEN_BYTES => Ok(()),
            error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            short => Err(io::Error::other(format!("{short} of {CHUNK_LEN_BYTES} bytes were written"))),
        }
    }
}

/// Checks that each write stream of `device` has a reclaim unit handle of its own: writes another number of bytes in
/// each, and reads from the drive how many its handles received. **Overwrites the device.**
///
/// # Errors
/// A text, if that is not so or if the device has no streams.
pub fn check_placement(device: &Path) -> Result<Vec<fdp_moved::Moved>, String> {
    let shown = device.display().to_string();
    let failed = |what: String| move |error: io::Error| format!("{shown}: cannot {what}: {error}");
    let streams = max_write_streams(device)?;
    if streams == 0 {
        return Err(format!("{}: the kernel knows no write streams of it", device.display()));
    }
    let mut writer = StreamWriter::open(device).map_err(failed.clone()("write to it".into()))?;
    let before = GroupState::read(&[device]).map_err(|error| error.to_string())?;
    let mut offset_bytes = 0;
    for stream in 1..=streams {
        for _ in 0..chunks_of(stream) {
            let failed = failed.clone()(format!("write in stream {stream}"));
            writer.write(stream, offset_bytes).map_err(failed)?;
            offset_bytes += CHUNK_LEN_BYTES;
        }
    }
    expect_refused(&mut writer, device, streams.saturating_add(1))?;
    let after = GroupState::read(&[device]).map_err(|error| error.to_string())?;
    let moved = fdp_moved::moved(&before, &after)?;
    for stream in 1..=streams {
        let placement_id = u16::from(stream) - 1;
        let expected = chunks_of(stream) * CHUNK_LEN_BYTES;
        match moved.iter().find(|one| one.placement_id == placement_id) {
            Some(one) if one.bytes == expected => {}
            other => {
                return Err(format!(
                    "{}: {expected} bytes were written in stream {stream}; placement {placement_id} has {other:?}",
                    device.display()
                ));
            }
        }
    }
    Ok(moved)
}

/// Another number for each stream, so that handles that changed places would be seen.
fn chunks_of(stream: u8) -> u64 {
    u64::from(stream)
}

/// Checks that the kernel refuses write streams on `device`, and takes the same write without one. **Overwrites the
/// device's first MiB.**
///
/// # Errors
/// A text, if a write in a stream is accepted.
pub fn check_refused(device: &Path) -> Result<(), String> {
    let streams = max_write_streams(device)?;
    if streams != 0 {
        return Err(format!("{}: the kernel reports {streams} write streams", device.display()));
    }
    let failed = |error: io::Error| format!("{}: cannot write to it: {error}", device.display());
    let mut writer = StreamWriter::open(device).map_err(failed)?;
    writer.write(0, 0).map_err(failed)?;
    expect_refused(&mut writer, device, 1)
}

fn expect_refused(writer: &mut StreamWriter, device: &Path, stream: u8) -> Result<(), String> {
    match writer.write(stream, 0) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        other => {
            Err(format!("{}: stream {stream} must be refused as invalid, but: {other:?}", device.display()))
        }
    }
}

/// The number of write streams that the kernel reports for a block device.
fn max_write_streams(device: &Path) -> Result<u8, String> {
    let name = device.file_name().unwrap_or_default();
    let path = Path::new("/sys/class/block").join(name).join("queue/max_write_streams");
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("{}: {error} (needs Linux 6.16 and a whole device)", path.display()))?;
    let streams: u16 = text.trim().parse().map_err(|_| format!("{}: {text:?}", path.display()))?;
    // A write names its stream in eight bits.
    Ok(streams.min(u16::from(u8::MAX) - 1) as u8)
}
