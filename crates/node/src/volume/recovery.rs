//! Reading frames back from the log device: at start, and for composing the server's redo log file.
//!
//! Invariant: the device holds whole frames. A frame that fails its checksum is damage, because the device
//! itself has already cut off what was not durable.

use super::Volume;
use crate::error::NodeError;
use crate::log_buffer::Chunk;
use crate::mark::Point;
use redoubt_redo::Lsn;
use redoubt_wire::stream::{FIRST_UNLOGGED_KIND, StreamFrame, decode};
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES, Seq, WireError};
use std::sync::atomic::Ordering;

/// Most bytes read from the device at once.
const READ_LEN_BYTES: u64 = 4 << 20;
/// Redo positions are kept this far apart at least.
const POSITION_GAP_BYTES: u64 = 64 << 10;

impl Volume {
    /// Feeds everything after A back into the log buffer, and finds out where the stream ends.
    pub(super) fn recover_log(&self) -> Result<(), NodeError> {
        let (applied, log_start) = {
            let checkpoint = self.checkpoint.lock();
            (checkpoint.applied, checkpoint.log_start)
        };
        let end = self.device.end();
        if end < applied.seq {
            return Err(NodeError::Damaged {
                path: self.directory.join("log"),
                reason: format!(
                    "the log ends at {end}, but the checkpoint says that {} was durable; files of the log are missing",
                    applied.seq
                ),
            });
        }
        let mut recovered = 0u64;
        let last = self.read_frames(log_start, end, |chunk| {
            self.note_redo_position(&chunk);
            if chunk.start.seq >= applied.seq {
                recovered += chunk.wire.len() as u64;
                self.buffer.push_recovered(chunk);
            }
            Ok(())
        })?;
        self.durable.advance(last);
        self.buffer.set_durable(last.seq);
        self.recovered_seq.store(last.seq.0, Ordering::Release);
        tracing::info!(
            volume = self.name,
            applied_lsn = applied.lsn.0,
            end_lsn = last.lsn.0,
            recovered_bytes = recovered,
            "volume recovered"
        );
        Ok(())
    }

    /// Calls `each` for the frames in `[start.seq, end)`. Returns the point after the last.
    pub(super) fn read_frames(
        &self,
        start: Point,
        end: Seq,
        mut each: impl FnMut(Chunk) -> Result<(), NodeError>,
    ) -> Result<Point, NodeError> {
        let mut at = start;
        let mut window: Vec<u8> = Vec::new();
        let mut window_start = start.seq.0;
        while at.seq < end {
            let from = (at.seq.0 - window_start) as usize;
            let frame_len = frame_len(window.get(from..).unwrap_or(&[]));
            let have = window.len() as u64 - from as u64;
            match frame_len {
                Some(len) if len <= have => {
                    let wire = window.get(from..from + len as usize).unwrap_or(&[]).to_vec();
                    let chunk = decode_chunk(wire, at)?;
                    at = chunk.end;
                    each(chunk)?;
                }
                _ => {
                    let wanted = frame_len.unwrap_or(HEADER_LEN_BYTES as u64).max(READ_LEN_BYTES);
                    let wanted = wanted.min(end.0 - at.seq.0);
                    if wanted <= have {
                        return Err(self.cut_frame(at));
                    }
                    window.resize(wanted as usize, 0);
                    self.device.read_at(at.seq, &mut window)?;
                    window_start = at.seq.0;
                }
            }
        }
        Ok(at)
    }

    fn cut_frame(&self, at: Point) -> NodeError {
        NodeError::Damaged {
            path: self.directory.join("log"),
            reason: format!("the last frame, at {}, is cut off", at.seq),
        }
    }

    /// Remembers where a frame with redo starts.
    pub(super) fn note_redo_position(&self, chunk: &Chunk) {
        if chunk.end.lsn == chunk.start.lsn {
            return;
        }
        let mut positions = self.redo_positions.lock();
        if positions.back().is_none_or(|last| chunk.start.lsn.0 >= last.lsn.0 + POSITION_GAP_BYTES) {
            positions.push_back(chunk.start);
        }
    }

    /// The newest remembered position at or before `lsn`.
    pub(super) fn redo_position(&self, lsn: Lsn) -> Option<Point> {
        let positions = self.redo_positions.lock();
        let after = positions.partition_point(|point| point.lsn <= lsn);
        positions.get(after.checked_sub(1)?).copied()
    }

    /// Forgets positions that are no longer in the log, but keeps one at or before `from`.
    pub(super) fn forget_redo_positions(&self, from: Point) {
        let mut positions = self.redo_positions.lock();
        while positions.get(1).is_some_and(|second| second.seq <= from.seq) {
            positions.pop_front();
        }
    }
}

fn frame_len(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk::<HEADER_LEN_BYTES>().map(|header| FrameHeader::decode(header).total_len_bytes())
}

/// Checks a frame that starts at `start` and turns it into a chunk.
///
/// # Errors
/// [`NodeError::Wire`] for a frame that is damaged or does not belong there.
pub fn decode_chunk(wire: Vec<u8>, start: Point) -> Result<Chunk, NodeError> {
    let cut = WireError::Truncated { what: "frame", len_bytes: wire.len(), field: "header" };
    let header = FrameHeader::decode(wire.first_chunk().ok_or(cut)?);
    let payload = wire.get(HEADER_LEN_BYTES..).unwrap_or(&[]);
    header.check(start.seq.0, payload)?;
    let raw = if header.compressed { Some(redoubt_wire::frame::decompress(payload)?) } else { None };
    let logged = header.kind < FIRST_UNLOGGED_KIND;
    let mut end = start;
    if logged {
        end.seq = Seq(start.seq.0 + wire.len() as u64);
    }
    match decode(header.kind, raw.as_deref().unwrap_or(payload))? {
        StreamFrame::Redo(_) if start.lsn == Lsn(0) => {
            return Err(NodeError::Wire(WireError::Invalid {
                what: "redo",
                field: "position",
                why: "it comes before the first redo log file frame, so its LSN is not known".to_owned(),
            }));
        }
        StreamFrame::Redo(bytes) => end.lsn = start.lsn.advance(bytes.len() as u64),
        StreamFrame::LogFile { next_lsn, .. } if start.lsn == Lsn(0) => end.lsn = next_lsn,
        _ => {}
    }
    Ok(Chunk { kind: header.kind, logged, start, end, wire, raw })
}
