//! Reading a segment file from a drive that has lost parts of it.
//!
//! A block that fails several reads, while the drive reads others, is lost: it is read as zeros, which are no valid record.
//! A drive that reads nothing has lost nothing for certain, so its error stays one.

use redoubt_storage::{StorageFile, is_lost_content};

use crate::error::LogDeviceError;

/// Read at once after a failure.
const BLOCK_LEN: usize = 4096;
/// Reads of a block before it counts as lost.
const READS: usize = 3;
/// Lost blocks of a segment, each of which may take seconds to read. Bytes behind more of them count as lost.
const LOST_BLOCKS_MAX: usize = 8;

/// Bytes of a segment; lost blocks are zeros.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub bytes: Vec<u8>,
    /// First byte of the last lost block, and the first byte after it.
    lost: Option<(usize, usize)>,
}

impl Content {
    /// A byte that the drive has lost, if there is one from this byte on.
    pub fn lost_behind(&self, from: usize) -> Option<usize> {
        self.lost.filter(|(_, end)| *end > from).map(|(start, _)| start)
    }
}

/// The first `len` bytes of a file, or fewer.
///
/// # Errors
/// [`LogDeviceError::Io`], [`LogDeviceError::NoDescriptors`].
pub(super) fn read(file: &dyn StorageFile, name: &str, len: usize) -> Result<Vec<u8>, LogDeviceError> {
    let mut bytes = vec![0; len];
    let error = LogDeviceError::io_or_no_descriptors("read", name);
    let n = file.read_at(0, &mut bytes).map_err(error)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// The same. Blocks that the drive has lost are zeros.
///
/// # Errors
/// As [`read`]; also if the drive reads nothing.
pub(super) fn read_content(
    file: &dyn StorageFile,
    name: &str,
    len: usize,
) -> Result<Content, LogDeviceError> {
    match read(file, name, len) {
        Ok(bytes) => Ok(Content { bytes, lost: None }),
        Err(LogDeviceError::Io { source, .. }) if is_lost_content(&source) => read_blocks(file, name, len),
        Err(error) => Err(error),
    }
}

fn read_blocks(file: &dyn StorageFile, name: &str, len: usize) -> Result<Content, LogDeviceError> {
    let mut content = Content { bytes: vec![0; len], lost: None };
    let (mut lost_blocks, mut has_read) = (0, false);
    for (block, at) in content.bytes.chunks_mut(BLOCK_LEN).zip((0..).step_by(BLOCK_LEN)) {
        match read_block(file, at, block) {
            Ok(()) => has_read = true,
            Err(error) if is_lost_content(&error) => {
                block.fill(0);
                lost_blocks += 1;
                content.lost = Some((at, at + block.len()));
                if lost_blocks <= LOST_BLOCKS_MAX {
                    continue;
                }
                if has_read {
                    content.lost = Some((at, len));
                    return Ok(content);
                }
                return Err(LogDeviceError::io("read", name)(error));
            }
            Err(error) => return Err(LogDeviceError::io_or_no_descriptors("read", name)(error)),
        }
    }
    if has_read {
        return Ok(content);
    }
    let cause = "the drive reads no block of it";
    Err(LogDeviceError::io("read", name)(std::io::Error::other(cause)))
}

fn read_block(file: &dyn StorageFile, at: usize, block: &mut [u8]) -> std::io::Result<()> {
    let mut reads = 1;
    loop {
        match file.read_at(at as u64, block) {
            Ok(_) => return Ok(()),
            Err(error) if is_lost_content(&error) && reads < READS => {
                // Without effect, the block is read from where it was read before.
                let _ = file.drop_cache_of(at as u64, block.len() as u64);
                reads += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
#[path = "content_tests.rs"]
mod tests;
