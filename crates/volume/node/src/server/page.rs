//! A page connection of a server: one request, one reply, in turn.
//!
//! Invariant: a server that is fenced, or whose volume has stopped, receives no error: the node closes the connection.
//! A server can continue after an I/O error: a rollback leaves the page out, and its redo may still become durable. After
//! a closed connection the library connects again, is refused in the greeting or told by a notice, and ends the server.

use super::io::{FrameReader, FrameWriter};
use crate::counters::add;
use crate::error::NodeError;
use crate::volume::Volume;
use redoubt_sync::planted::{Bug, is_planted};
use redoubt_transport::Connection;
use redoubt_wire::frame::{COMPRESSED, compress};
use redoubt_wire::hello::{Compression, Hello};
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES};

/// Longest request: an image of the largest page, with its path.
const REQUEST_LIMIT_BYTES: usize = 128 << 10;
/// Shorter replies have little to save.
const PACKED_LEN_BYTES_MIN: usize = 512;

/// Serves it until it ends.
///
/// # Errors
/// The error that ended it; none if the peer closed it.
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
        // The image that completes the report of a difference arrives after the difference has stopped the volume.
        let allowed = match request {
            PageRequest::MismatchImage { .. } => volume.check_fence(hello),
            _ if is_planted(Bug::ReadsNotFenced) => Ok(()),
            _ => volume.check_generation(hello),
        };
        let is_image = matches!(request, PageRequest::MismatchImage { .. });
        let reply = match allowed {
            Ok(()) => volume.answer(&request, &mut bytes),
            Err(refusal) if is_planted(Bug::RefusalAnswered) => {
                PageReply::Failed { retry: false, message: refusal.message }
            }
            Err(_) => return Ok(()),
        };
        // The volume may have been stopped or taken over while the request waited, or by the request itself.
        let is_failed = matches!(reply, PageReply::Failed { .. });
        if is_failed
            && !is_image
            && !is_planted(Bug::RefusalAnswered)
            && volume.check_generation(hello).is_err()
        {
            return Ok(());
        }
        payload.clear();
        let kind = reply.encode(&mut payload);
        match pack(volume, hello, stream, &payload) {
            Some(packed) => writer.send(kind | COMPRESSED, &packed)?,
            None => writer.send(kind, &payload)?,
        }
    }
    Ok(())
}

/// The reply in its wire form, if that differs from `payload`.
fn pack(volume: &Volume, hello: &Hello, stream: &dyn Connection, payload: &[u8]) -> Option<Vec<u8>> {
    if payload.len() <= PACKED_LEN_BYTES_MIN {
        return None;
    }
    let packed = match hello.compression {
        Compression::Off => None,
        Compression::On => compress(payload),
        Compression::Auto => pack_if_worth_it(volume, stream, payload),
    }?;
    let counters = volume.counters();
    add(&counters.page_replies_compressed, 1);
    add(&counters.page_bytes_saved, (payload.len() - packed.len()) as u64);
    Some(packed)
}

fn pack_if_worth_it(volume: &Volume, stream: &dyn Connection, payload: &[u8]) -> Option<Vec<u8>> {
    let packing = volume.page_packing();
    let choice = packing.choose(stream, payload.len());
    if let Some(news) = choice.news {
        tracing::info!(event = "page_compression_changed", volume = volume.name(), "page replies are {news}");
    }
    if !choice.pack {
        return None;
    }
    let len_bytes = |packed: &Option<Vec<u8>>| packed.as_ref().map_or(payload.len(), Vec::len);
    packing.measured(payload.len(), || compress(payload), len_bytes)
}
