//! Arbitrary bytes as the file of unsent frames that a killed server left for its node. The file is refused, or read as
//! whole consecutive frames, none of them longer or later than the file's head states.
//!
//! Input: with an odd first byte the whole file. Otherwise seven words of its head (generation, session, start, whether
//! it keeps something, end, oldest, durable), a byte with the length of the area, and frames. Each frame has its kind
//! and length in a byte. The checksums are right then, and the frames lie where the head points.

use redoubt_resend_queue::layout::{HEAD_LEN_BYTES, HOLDS_WORD, head, session_crc};
use redoubt_resend_queue::{Kept, read};
use redoubt_wire::frame::append_frame;

const VOLUME_ID: &str = "00112233445566778899aabbccddeeff";
/// Where the words of the input go; see the table of `redoubt_resend_queue::layout`.
const WORDS: [usize; 7] = [16, 17, 18, HOLDS_WORD, 64, 65, 128];
const SESSION_CRC_WORD: usize = 19;
const POSITION_BITS: u32 = 40;

fn put_word(file: &mut [u8], at: usize, word: u64) {
    file[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
}

fn take_word(data: &mut &[u8]) -> u64 {
    let Some((word, rest)) = data.split_first_chunk() else { return 0 };
    *data = rest;
    u64::from_le_bytes(*word)
}

/// The file that the input describes.
fn file(mut data: &[u8]) -> Vec<u8> {
    let words = WORDS.map(|at| (at, take_word(&mut data)));
    let (area_words, mut data) =
        data.split_first().map_or((0, data), |(len, rest)| (usize::from(*len), rest));
    let mut file = head(VOLUME_ID, area_words as u64 * 8).unwrap();
    file.resize(HEAD_LEN_BYTES + area_words * 8, 0);
    for (at, word) in words {
        put_word(&mut file, at, word);
    }
    let [generation, session, start, _, end, oldest, _] = words.map(|(_, word)| word);
    put_word(&mut file, SESSION_CRC_WORD, session_crc([generation, session, start]));
    let mut at = HEAD_LEN_BYTES.saturating_add(((oldest >> POSITION_BITS) as usize) * 8);
    let mut position = end.wrapping_sub(end.wrapping_sub(oldest) & ((1 << POSITION_BITS) - 1));
    while let Some(([kind, len], rest)) = data.split_first_chunk() {
        let (payload, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        let mut frame = Vec::new();
        append_frame(&mut frame, *kind, position, payload).unwrap();
        if file.len().saturating_sub(at) < frame.len() {
            if let Some(wrap) = file.get_mut(at..at.saturating_add(8)) {
                wrap.fill(0xff);
            }
            at = HEAD_LEN_BYTES;
        }
        let Some(place) = file.get_mut(at..at + frame.len()) else { break };
        place.copy_from_slice(&frame);
        at += frame.len().next_multiple_of(8);
        position = position.wrapping_add(frame.len() as u64);
        data = rest;
    }
    file
}

fn check(kept: &Kept, file: &[u8]) {
    let mut position = kept.oldest.0;
    for (at, range) in &kept.frames {
        assert_eq!(at.0, position, "frames follow each other");
        assert!(range.start >= HEAD_LEN_BYTES && range.end <= file.len() && !range.is_empty());
        position += range.len() as u64;
    }
    assert_eq!(position, kept.sound_end.0);
    assert!(kept.sound_end <= kept.end);
    assert!(kept.unconfirmed_bytes() > 0, "otherwise nothing is kept");
    assert_eq!(kept.damaged_bytes(), kept.end.0 - kept.sound_end.0);
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else { return };
    let file = if first & 1 == 1 { data.to_vec() } else { file(data) };
    if let Ok(contents) = read(&file) {
        assert_eq!(contents.area_len_bytes, (file.len() - HEAD_LEN_BYTES) as u64);
        if let Some(kept) = contents.kept {
            check(&kept, &file);
        }
    }
}
