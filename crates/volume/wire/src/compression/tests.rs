use super::*;
use crate::frame::append_frame;
use crate::{FrameHeader, HEADER_LEN_BYTES};

/// Frames as a log connection has them: parts that repeat near and far, parts that do not, short and long ones.
fn frames(seed: u64, count: usize) -> Vec<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut position = 0;
    let mut rows: Vec<Vec<u8>> = Vec::new();
    let mut frame = |_| {
        let mut payload = Vec::new();
        for _ in 0..random.usize(0..60) {
            if rows.len() < 50 || random.u8(..) < 20 {
                rows.push((0..random.usize(1..500)).map(|_| random.u8(..)).collect());
            }
            payload.extend_from_slice(&rows[random.usize(..rows.len())]);
        }
        let mut out = Vec::new();
        append_frame(&mut out, 1, position, &payload).unwrap();
        position += out.len() as u64;
        out
    };
    (0..count).map(&mut frame).collect()
}

/// Unpacks all, with pieces of input and output of these lengths at most.
fn unpack(
    decompressor: &mut Decompressor,
    mut input: &[u8],
    piece: usize,
    room: usize,
) -> Result<Vec<u8>, WireError> {
    let mut all = Vec::new();
    let mut out = vec![0; room];
    let mut has_more = false;
    while !input.is_empty() || has_more {
        let step = decompressor.unpack(&input[..input.len().min(piece)], &mut out)?;
        input = &input[step.taken_bytes..];
        has_more = step.given_bytes == room;
        all.extend_from_slice(&out[..step.given_bytes]);
    }
    Ok(all)
}

#[test]
fn each_frame_can_be_read_as_soon_as_it_is_sent() {
    for (seed, piece, room) in [(1, usize::MAX, 1 << 20), (2, 1, 7), (3, 1000, 64 << 10), (4, 17, 1)] {
        let (mut compressor, mut decompressor) = (Compressor::new().unwrap(), Decompressor::new().unwrap());
        let (mut sent, mut raw) = (0, 0);
        for frame in frames(seed, if room < 100 { 20 } else { 200 }) {
            let mut wire = Vec::new();
            compressor.pack(&frame, &mut wire).unwrap();
            assert_eq!(unpack(&mut decompressor, &wire, piece, room).unwrap(), frame);
            (sent, raw) = (sent + wire.len(), raw + frame.len());
        }
        assert!(sent < raw, "{sent} of {raw}");
    }
}

#[test]
fn what_was_sent_long_ago_makes_frames_short() {
    let mut random = fastrand::Rng::with_seed(5);
    let row: Vec<u8> = (0..4000).map(|_| random.u8(..)).collect();
    let between: Vec<u8> = (0..6 << 20).map(|_| random.u8(..)).collect();
    let (mut compressor, mut decompressor) = (Compressor::new().unwrap(), Decompressor::new().unwrap());
    let mut lens = Vec::new();
    for bytes in [&row, &between, &row] {
        let mut wire = Vec::new();
        compressor.pack(bytes, &mut wire).unwrap();
        lens.push(wire.len());
        assert!(unpack(&mut decompressor, &wire, 64 << 10, 256 << 10).unwrap() == *bytes);
    }
    assert!(lens[0] > 4000 && lens[2] < 400, "{lens:?}");
}

#[test]
fn a_stream_is_read_up_to_where_it_was_cut() {
    let frames = frames(6, 30);
    let mut compressor = Compressor::new().unwrap();
    let (mut wire, mut ends) = (Vec::new(), Vec::new());
    for frame in &frames {
        compressor.pack(frame, &mut wire).unwrap();
        ends.push(wire.len());
    }
    let raw = frames.concat();
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..100 {
        let cut = random.usize(..wire.len());
        let read = unpack(&mut Decompressor::new().unwrap(), &wire[..cut], 1000, 4096).unwrap();
        let whole: usize =
            ends.iter().zip(&frames).filter(|(end, _)| **end <= cut).map(|(_, frame)| frame.len()).sum();
        assert!(read.len() >= whole && raw.starts_with(&read));
    }
}

/// A receiver: takes frames until one is invalid.
fn accepted(wire: &[u8]) -> usize {
    let mut decompressor = Decompressor::new().unwrap();
    let (mut all, mut out, mut input) = (Vec::new(), vec![0; 4096], wire);
    while let Ok(step) = decompressor.unpack(input, &mut out) {
        input = &input[step.taken_bytes..];
        all.extend_from_slice(&out[..step.given_bytes]);
        if step.given_bytes < out.len() {
            break;
        }
    }
    let mut at = 0;
    while let Some(head) = all.get(at..).and_then(|rest| rest.first_chunk::<HEADER_LEN_BYTES>()) {
        let header = FrameHeader::decode(head);
        let end = at + header.total_len_bytes() as usize;
        let Some(payload) = all.get(at + HEADER_LEN_BYTES..end) else { break };
        if header.check(at as u64, payload).is_err() {
            break;
        }
        at = end;
    }
    at
}

#[test]
fn frames_that_were_damaged_lost_repeated_or_moved_are_not_accepted() {
    let frames = frames(8, 40);
    let mut compressor = Compressor::new().unwrap();
    let packed: Vec<_> = frames
        .iter()
        .map(|frame| {
            let mut wire = Vec::new();
            compressor.pack(frame, &mut wire).unwrap();
            wire
        })
        .collect();
    let raw = frames.concat();
    assert_eq!(accepted(&packed.concat()), raw.len());
    let before = |count: usize| frames[..count].iter().map(Vec::len).sum::<usize>();
    let mut random = fastrand::Rng::with_seed(9);
    for _ in 0..200 {
        let (mut changed, at) = (packed.clone(), random.usize(1..39));
        match random.u8(..4) {
            0 => drop(changed.remove(at)),
            1 => changed.insert(at, packed[at].clone()),
            2 => changed.swap(at, at + 1),
            _ => {
                let byte = random.usize(..changed[at].len());
                changed[at][byte] ^= 1 << random.u8(..8);
            }
        }
        if changed == packed {
            continue;
        }
        // One after a repeated frame is at the wrong position too. The repeated one itself is right the first time.
        assert!(accepted(&changed.concat()) <= before(at + 1));
    }
}

#[test]
fn a_larger_window_an_end_and_other_bytes_are_refused() {
    let why =
        |bytes: &[u8]| unpack(&mut Decompressor::new().unwrap(), bytes, 1000, 1000).unwrap_err().to_string();
    let mut encoder = Encoder::new(1).unwrap();
    encoder.set_parameter(CParameter::WindowLog(WINDOW_LOG + 1)).unwrap();
    let mut wire = Vec::new();
    with_room(&mut wire, |room| encoder.run(&mut InBuffer::around(b"frame"), room)).unwrap();
    with_room(&mut wire, |room| encoder.flush(room)).unwrap();
    assert!(why(&wire).contains("memory"), "{}", why(&wire));
    // A frame in one segment needs a window of its whole length.
    assert!(why(&[0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x10, 0]).contains("memory"));
    let ended = zstd::bulk::compress(b"a frame and the end", 1).unwrap();
    assert!(why(&ended).contains("ends"));
    // Bytes to be skipped: 3 of them.
    assert!(why(&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]).contains("ends"));
    let mut plain = Vec::new();
    append_frame(&mut plain, 1, 0, b"not compressed").unwrap();
    assert!(!why(&plain).is_empty());
}
