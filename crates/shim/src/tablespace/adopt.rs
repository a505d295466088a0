//! A tablespace file that appeared locally without the node: copied in for IMPORT TABLESPACE.
//!
//! When the server opens it for writing, all of it is sent, page by page, and the local file becomes a stub.

use super::Tablespace;
use crate::message::{self, show};
use crate::names::NameHold;
use crate::real::{self, Errno};
use crate::runtime::Runtime;
use redoubt_page::flags_of_page0;
use redoubt_wire::stream::{Counter, FileKind, StreamFrame};
use std::os::fd::RawFd;

const HEADER_BYTES: usize = 4096;

/// Sends the whole local file behind `fd` and makes it a stub.
///
/// # Errors
/// `EIO` when it is not a tablespace file that can be sent.
pub fn adopt(
    runtime: &Runtime,
    hold: &NameHold<'_>,
    fd: RawFd,
    path: &[u8],
    tablespace: &Tablespace,
) -> Result<(), Errno> {
    let status = real::status(fd)?;
    let mut header = vec![0; HEADER_BYTES];
    let header_len = read_full(fd, &mut header, 0)?;
    let flags = flags_of_page0(header.get(..header_len).unwrap_or_default()).map_err(|error| {
        message::error(&format!("{} was copied in, but cannot be used: {error}", show(path)));
        Errno::EIO
    })?;
    if header.iter().all(|byte| *byte == 0) {
        // The node could not tell what pages these are, and would stop.
        message::error(&format!("{} was copied in, but its first page is empty; copy it again", show(path)));
        return Err(Errno::EIO);
    }
    let page_size = flags.physical_page_size_bytes();
    message::note(&format!(
        "{} is not known to the storage node ({} bytes, copied in from outside); sending it",
        show(path),
        status.len_bytes
    ));
    runtime.stream.append(&StreamFrame::Create { path, kind: FileKind::Tablespace, mode: status.mode })?;
    let mut end = runtime.stream.append(&StreamFrame::SetLen { path, len_bytes: status.len_bytes })?;
    let mut page = vec![0; page_size];
    for page_no in 0..status.len_bytes.div_ceil(page_size as u64) {
        page.fill(0);
        read_full(fd, &mut page, page_no * page_size as u64)?;
        if page.iter().all(|byte| *byte == 0) {
            continue;
        }
        let page_no = u32::try_from(page_no).map_err(|_| Errno(libc::EFBIG))?;
        end = runtime.stream.append(&StreamFrame::Image { path, page_no, page: &page })?;
        runtime.need.raise(tablespace.number, page_no, end);
        runtime.counters.add(Counter::ImageBytes, page_size as u64);
    }
    tablespace.sent(end);
    // Only now may the local content go: until it is durable it is the only copy.
    runtime.stream.wait_durable(end)?;
    real::set_len(fd, 0)?;
    real::set_len(fd, status.len_bytes)?;
    if !tablespace.look_up(runtime, hold, false)? {
        message::error(&format!("{} was sent, but the storage node does not have it", show(path)));
        return Err(Errno::EIO);
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends.
fn read_full(fd: RawFd, buffer: &mut [u8], offset_bytes: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match real::read_at(fd, rest, offset_bytes + done as u64) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(Errno(libc::EINTR)) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}
