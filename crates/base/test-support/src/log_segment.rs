//! Changes what a log segment holds, with the checksums put right, so that only the parser of the stream can object.
//!
//! The layouts are those of `redoubt_logdev` (segments and records) and `redoubt_wire` (frames).

use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"RDBTLOG1";
const SEGMENT_HEADER_LEN: usize = 4096;
const RECORD_HEADER_LEN: usize = 32;
/// Bytes of a frame before its payload.
pub const FRAME_HEADER_LEN: usize = 8;
/// Frames of redo.
pub const KIND_REDO: u8 = 1;
/// Bit of the kind of a compressed frame.
const COMPRESSED: u8 = 0x80;

fn crc32c(bytes: impl IntoIterator<Item = u8>) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.into_iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(byte), step))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
}

/// Location of a frame in a segment file.
struct Frame {
    segment: usize,
    record_at: usize,
    at: usize,
    len: usize,
    position: u64,
}

fn frames_of(segment: usize, bytes: &[u8], found: &mut Vec<Frame>) {
    let unit = (u32_at(bytes, 12) as usize).max(8);
    let mut at = SEGMENT_HEADER_LEN;
    while at + RECORD_HEADER_LEN <= bytes.len() {
        let (position, flags_and_len) = (u64_at(bytes, at + 8), u32_at(bytes, at + 24));
        let len = (flags_and_len & 0x1fff_ffff) as usize;
        let end = at + RECORD_HEADER_LEN + len;
        if u64_at(bytes, at) != u64_at(bytes, 24) || end > bytes.len() {
            return;
        }
        let covered = bytes[at..at + 28].iter().chain(&bytes[at + RECORD_HEADER_LEN..end]).copied();
        if crc32c(covered) != u32_at(bytes, at + 28) {
            return;
        }
        let (mut frame_at, mut frame_position) = (at + RECORD_HEADER_LEN, position);
        while frame_at + FRAME_HEADER_LEN <= end {
            let len = FRAME_HEADER_LEN + (u32_at(bytes, frame_at) >> 8) as usize;
            if frame_at + len > end {
                break;
            }
            found.push(Frame { segment, record_at: at, at: frame_at, len, position: frame_position });
            (frame_at, frame_position) = (frame_at + len, frame_position + len as u64);
        }
        at = end.next_multiple_of(unit);
    }
}

/// Changes the last frame of `kind` in the log in `directory` whose payload `is_wanted` accepts. `change` gets the frame, its
/// kind in the first byte and its payload after the header; the length must stay. Returns the frame's position in the stream; `None`: there is no such frame.
///
/// # Errors
/// The directory or a file cannot be read or written.
pub fn change_last_frame(
    directory: &Path,
    kind: u8,
    is_wanted: impl Fn(&[u8]) -> bool,
    change: impl FnOnce(&mut [u8]),
) -> std::io::Result<Option<u64>> {
    let mut segments: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let bytes = std::fs::read(&path)?;
        if bytes.starts_with(MAGIC) && bytes.len() > SEGMENT_HEADER_LEN {
            segments.push((path, bytes));
        }
    }
    let mut frames = Vec::new();
    for (number, (_, bytes)) in segments.iter().enumerate() {
        frames_of(number, bytes, &mut frames);
    }
    frames.sort_by_key(|frame| frame.position);
    let wanted = frames.iter().rev().find(|frame| {
        let bytes = &segments[frame.segment].1;
        bytes[frame.at] & !COMPRESSED == kind
            && bytes[frame.at] & COMPRESSED == 0
            && is_wanted(&bytes[frame.at + FRAME_HEADER_LEN..frame.at + frame.len])
    });
    let Some(frame) = wanted else { return Ok(None) };
    let (path, bytes) = &mut segments[frame.segment];
    change(&mut bytes[frame.at..frame.at + frame.len]);
    let position = frame.position.to_le_bytes();
    let covered = position
        .into_iter()
        .chain(bytes[frame.at..frame.at + 4].iter().copied())
        .chain(bytes[frame.at + FRAME_HEADER_LEN..frame.at + frame.len].iter().copied());
    let crc = crc32c(covered).to_le_bytes();
    bytes[frame.at + 4..frame.at + FRAME_HEADER_LEN].copy_from_slice(&crc);
    let record = frame.record_at;
    let end = record + RECORD_HEADER_LEN + (u32_at(bytes, record + 24) & 0x1fff_ffff) as usize;
    let covered = bytes[record..record + 28].iter().chain(&bytes[record + RECORD_HEADER_LEN..end]).copied();
    let crc = crc32c(covered).to_le_bytes();
    bytes[record + 28..record + RECORD_HEADER_LEN].copy_from_slice(&crc);
    std::fs::write(path, bytes)?;
    Ok(Some(frame.position))
}
