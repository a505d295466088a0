//! Bytes of the redo log as the server expects them at its start: the node composes them.

use crate::base::message;
use crate::base::real::Errno;
use crate::content::Content;
use redoubt_wire::page::{MAX_READ_LEN_BYTES, PageReply, PageRequest};

/// Reads up to the end of the file, at `file_len`. `request` reads a number of bytes from an offset on.
///
/// # Errors
/// `EIO` when the node cannot answer.
pub fn read<'r>(
    content: &Content,
    file_len: u64,
    buffer: &mut [u8],
    offset_bytes: u64,
    request: impl Fn(u64, u32) -> PageRequest<'r>,
) -> Result<usize, Errno> {
    let wanted = (buffer.len() as u64).min(file_len.saturating_sub(offset_bytes)) as usize;
    let mut at = offset_bytes;
    for piece in buffer.get_mut(..wanted).ok_or(Errno::EIO)?.chunks_mut(MAX_READ_LEN_BYTES as usize) {
        let is_complete = content.pool.request(&request(at, piece.len() as u32), |reply| match reply {
            // Zeros at the end are left out.
            PageReply::Bytes(bytes) if bytes.len() <= piece.len() => {
                let (used, rest) = piece.split_at_mut(bytes.len());
                used.copy_from_slice(bytes);
                rest.fill(0);
                true
            }
            _ => false,
        })?;
        if !is_complete {
            message::error(&format!(
                "the storage node's answer to a redo log read at {at} has another length"
            ));
            return Err(Errno::EIO);
        }
        at += piece.len() as u64;
    }
    Ok(wanted)
}
