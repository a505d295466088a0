//! A page connection of a server: one request, one reply, in turn.

use super::io::{FrameReader, FrameWriter};
use crate::error::NodeError;
use crate::volume::Volume;
use redoubt_transport::Connection;
use redoubt_wire::frame::{COMPRESSED, compress};
use redoubt_wire::hello::Hello;
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES};

/// Longest request: an image of the largest page, with its path.
const REQUEST_LIMIT_BYTES: usize = 128 << 10;

/// Serves it until it ends.
///
/// # Errors
/// Whatever ended it, except that the peer closed it.
pub fn serve(volume: &Volume, hello: &Hello, stream: &dyn Connection) -> Result<(), NodeError> {
    let mut reader = FrameReader::new(stream);
    let mut writer = FrameWriter::new(stream);
    let mut bytes = Vec::new();
    let mut payload = Vec::new();
    let mut position = 0;
    while let Some(frame) = reader.next(REQUEST_LIMIT_BYTES)? {
        let header = FrameHeader::decode(frame.first_chunk().unwrap_or(&[0; HEADER_LEN_BYTES]));
        let request = frame.get(HEADER_LEN_BYTES..).unwrap_or(&[]);
        header.check(position, request)?;
        position += 1;
        let request = PageRequest::decode(header.kind, request)?;
        // The image that completes the report of a difference comes after the volume has stopped for it.
        let allowed = match request {
            PageRequest::MismatchImage { .. } => volume.check_fence(hello),
            _ if redoubt_sync::is_planted("reads not fenced") => Ok(()),
            _ => volume.check_generation(hello),
        };
        let reply = match allowed {
            Ok(()) => volume.answer(&request, &mut bytes),
            Err(refusal) => PageReply::Failed { retry: false, message: refusal.message },
        };
        if volume.is_shutting_down() && matches!(reply, PageReply::Failed { .. }) {
            return Ok(());
        }
        payload.clear();
        let kind = reply.encode(&mut payload);
        let packed = if hello.compression && payload.len() > 512 { compress(&payload) } else { None };
        match packed {
            Some(packed) => writer.send(kind | COMPRESSED, &packed)?,
            None => writer.send(kind, &payload)?,
        }
    }
    Ok(())
}
