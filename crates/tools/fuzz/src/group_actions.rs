//! Any bytes as frames between members, as ordered write sets, and as the certification array that detects conflicts.
//! The bytes are decoded or refused, never a panic, and a decoded value is encoded to the very same bytes.
//!
//! Checked besides: a write set has the length that it says it has; and an array continues in the same way if it is
//! encoded and decoded after every step.
//!
//! Input: the bytes. An array with many sets is left alone: how many there are is one byte, and allocates.

use redoubt_group::certification::{Certification, Origin};
use redoubt_group::frame::Frame;
use redoubt_group::write_set::{Action, KeyKind, Keys, Seqno, WriteSet};

const MAX_SETS_LOG2: u8 = 5;
const MAX_STEPS: usize = 40;

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    if let Ok(action) = Action::decode(data) {
        assert_eq!(action.encode(), data);
        if let Action::WriteSet(write_set) = action {
            assert_eq!(write_set.encoded_len_bytes(), data.len());
        }
    }
    // A frame has its length before it when it is encoded.
    if let Ok(frame) = Frame::decode(data) {
        assert_eq!(frame.encode().get(4..), Some(data));
    }
    if data.get(1).is_some_and(|sets_log2| *sets_log2 > MAX_SETS_LOG2) {
        return;
    }
    if let Ok(certification) = Certification::decode(data) {
        assert_eq!(encoded(&certification), data);
        go_on(certification, data);
    }
}

fn encoded(certification: &Certification) -> Vec<u8> {
    let mut bytes = Vec::new();
    certification.encode(&mut bytes);
    bytes
}

/// Certifies write sets made of the last bytes, four each.
fn go_on(mut certification: Certification, data: &[u8]) {
    let mut again = Certification::decode(data).unwrap();
    for &[distance, origin, flags, key] in data.as_chunks().0.iter().rev().take(MAX_STEPS) {
        let Some(seqno) = certification.last().0.checked_add(1 << (distance & 33)) else { return };
        let mut keys = Keys::default();
        for (number, kind) in [key >> 2, key >> 4].into_iter().zip([key, flags >> 2]) {
            keys.add(&[&[number]], KeyKind::from_number(kind & 3).unwrap());
        }
        let last_seen = Seqno(seqno - i64::from(distance >> 2) - 1);
        let flags =
            u32::from(flags) << 2 & WriteSet::ISOLATION | u32::from(flags) & WriteSet::PARALLEL_UNSAFE;
        let write_set = WriteSet { flags, last_seen, keys, ..WriteSet::default() };
        let verdict = certification.certify(Seqno(seqno), Origin(u64::from(origin)), &write_set);
        assert_eq!(again.certify(Seqno(seqno), Origin(u64::from(origin)), &write_set), verdict);
        assert!(again.floor() <= again.last());
        let bytes = encoded(&certification);
        assert_eq!(encoded(&again), bytes);
        again = Certification::decode(&bytes).unwrap();
    }
}
