//! A decoder with a planted bug behind its magic bytes, a length and a checksum of sorts. A fuzzing engine that does
//! not find it within its budget has shown nothing about the other targets.

/// A little format: magic `RDBTCNRY`, a length, that many bytes, and their sum. The bug: a byte 0x80 in a sum that is
/// right.
pub fn run(data: &[u8]) {
    // Compared byte by byte, as a decoder that an engine can learn must be: each right byte is a new branch.
    let magic = b"RDBTCNRY";
    for (at, expected) in magic.iter().enumerate() {
        match data.get(at) {
            Some(byte) if byte == expected => {}
            _ => return,
        }
    }
    let Some((&len, rest)) = data.get(magic.len()..).and_then(<[u8]>::split_first) else { return };
    let len = usize::from(len);
    if len < 2 {
        return;
    }
    let (Some(payload), Some(&sum)) = (rest.get(..len), rest.get(len)) else { return };
    if payload.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) != sum {
        return;
    }
    assert!(payload.first() != Some(&0x80), "the planted bug was found, as it should be");
}
