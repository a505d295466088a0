//! Seeded mutations of corpus files, for the ordinary test. The same seed gives the same bytes.

use fastrand::Rng;

/// Longest input that a mutation makes.
const MAX_LEN: usize = 128 << 10;
const VALUES: [u8; 8] = [0, 1, 0x7f, 0x80, 0xfe, 0xff, 16, 64];

/// Changes `input` a little: bytes, numbers, lengths, pieces moved or taken from `other`.
pub fn mutate(rng: &mut Rng, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..rng.usize(1..=4) {
        let len = input.len();
        match rng.u8(0..8) {
            _ if len == 0 => input.extend((0..rng.usize(1..64)).map(|_| rng.u8(..))),
            0 => input[rng.usize(..len)] = rng.u8(..),
            1 => input[rng.usize(..len)] = *rng.choice(&VALUES).unwrap(),
            2 => input[rng.usize(..len)] ^= 1 << rng.u8(..8),
            3 => input.truncate(rng.usize(..len)),
            4 => {
                let at = rng.usize(..len);
                let piece = piece(rng, other);
                input.splice(at..at, piece);
            }
            5 => {
                let at = rng.usize(..len);
                let end = len.min(at + rng.usize(..64));
                input.drain(at..end);
            }
            6 => {
                let at = rng.usize(..len);
                let piece = piece(rng, other);
                input.iter_mut().skip(at).zip(piece).for_each(|(to, from)| *to = from);
            }
            _ => {
                let at = rng.usize(..len);
                let number = rng.u64(..) >> rng.u32(..64);
                let width = *rng.choice(&[2usize, 4, 8]).unwrap();
                let bytes = if rng.bool() { number.to_le_bytes() } else { number.to_be_bytes() };
                input.iter_mut().skip(at).zip(&bytes[..width]).for_each(|(to, from)| *to = *from);
            }
        }
    }
    input.truncate(MAX_LEN);
}

fn piece(rng: &mut Rng, other: &[u8]) -> Vec<u8> {
    let at = rng.usize(..=other.len());
    let end = other.len().min(at + rng.usize(..256));
    other[at..end].to_vec()
}
