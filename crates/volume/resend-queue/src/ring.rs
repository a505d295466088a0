//! The writer's side: frames that are not durable yet, in mapped words.
//!
//! Invariants:
//! * Frames are contiguous: each starts at the end of the previous one; `end` is after the last one.
//! * A word that a reader of the file would follow is stored only after its target. Room is reused only after `oldest`
//!   has left it. So a kill between any two stores leaves the state that [`crate::layout`] promises.
//! * No call here waits, and none enters the kernel but by a page fault.
//!
//! Frames begin at the front again as soon as there is room after [`NEAR_BYTES`]. So few pages are in use while the
//! node keeps up. They stay in the processor's cache, and the kernel has little to write to the disk.

use crate::layout::{
    AREA_WORD, DURABLE_WORD, END_WORD, GENERATION_WORD, HEAD_WORDS, HOLDS_WORD, OLDEST_WORD,
    SESSION_CRC_WORD, SESSION_WORD, START_WORD, WORD_LEN_BYTES, WRAP, pack_oldest, session_crc,
};
use redoubt_types::Seq;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Offset in the area. At or beyond it, the next frame goes to the front if it fits there.
const NEAR_BYTES: usize = 1 << 20;

/// The area has no room for a frame in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {len_bytes} bytes has no room among {used_bytes} bytes that are not durable")]
pub struct Full {
    /// Length of the frame.
    pub len_bytes: usize,
    /// Bytes in use.
    pub used_bytes: u64,
}

/// The words of a mapped file whose head was checked. The mapping is never removed.
#[derive(Clone, Copy, Debug)]
pub struct UnsentFile {
    words: &'static [AtomicU64],
}

impl UnsentFile {
    /// `words`: the head and the area.
    pub const fn new(words: &'static [AtomicU64]) -> Self {
        Self { words }
    }

    /// Stores a word after all earlier stores.
    fn store(&self, at: usize, value: u64) {
        self.put(at, value, Ordering::Release);
    }

    fn put(&self, at: usize, value: u64, order: Ordering) {
        #[cfg(test)]
        tests::note(at, value);
        if let Some(word) = self.words.get(at) {
            word.store(value, order);
        }
    }

    /// Records the position that the node has confirmed as durable.
    pub fn note_durable(&self, durable: Seq) {
        self.store(DURABLE_WORD, durable.0);
    }

    /// Records that all frames of the last server were sent and are durable.
    pub fn note_nothing_kept(&self) {
        self.store(HOLDS_WORD, 0);
    }

    /// Begins a session. No frame of an earlier session may be left to send.
    pub fn begin(self, generation: u64, session: u64, start: Seq) -> UnsentRing {
        self.note_nothing_kept();
        let crc = session_crc([generation, session, start.0]);
        for (at, value) in [
            (GENERATION_WORD, generation),
            (SESSION_WORD, session),
            (START_WORD, start.0),
            (SESSION_CRC_WORD, crc),
            (END_WORD, start.0),
            (OLDEST_WORD, pack_oldest(0, start.0)),
            (DURABLE_WORD, start.0),
        ] {
            self.store(at, value);
        }
        self.store(HOLDS_WORD, 1);
        let area_len_bytes = self.words.get(AREA_WORD).map_or(0, |word| word.load(Ordering::Relaxed));
        let mapped = self.words.len().saturating_sub(HEAD_WORDS);
        let area_words = mapped.min(area_len_bytes as usize / WORD_LEN_BYTES);
        UnsentRing {
            file: self,
            area_words,
            frames: VecDeque::new(),
            end: start.0,
            at_word: 0,
            used_words: 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct KeptFrame {
    position: u64,
    at_word: usize,
    len_bytes: usize,
    /// Words up to the next frame, including free ones at the end of the area.
    room_words: usize,
}

/// Writer of the file, with the frames that are not durable yet.
#[derive(Debug)]
pub struct UnsentRing {
    file: UnsentFile,
    area_words: usize,
    frames: VecDeque<KeptFrame>,
    end: u64,
    /// Word of the next frame, if it fits there.
    at_word: usize,
    used_words: usize,
}

impl UnsentRing {
    /// Position of the next frame.
    pub const fn end(&self) -> Seq {
        Seq(self.end)
    }

    /// Position of the oldest frame.
    pub fn oldest(&self) -> Seq {
        Seq(self.frames.front().map_or(self.end, |frame| frame.position))
    }

    /// Bytes in use.
    pub const fn used_bytes(&self) -> u64 {
        (self.used_words * WORD_LEN_BYTES) as u64
    }

    /// Positions of the frames kept, in order.
    pub fn positions(&self) -> impl DoubleEndedIterator<Item = Seq> + ExactSizeIterator {
        self.frames.iter().map(|frame| Seq(frame.position))
    }

    /// Adds a frame at the position [`UnsentRing::end`].
    ///
    /// # Errors
    /// [`Full`].
    pub fn push(&mut self, frame: &[u8]) -> Result<(), Full> {
        let room_words = frame.len().div_ceil(WORD_LEN_BYTES);
        let full = Full { len_bytes: frame.len(), used_bytes: self.used_bytes() };
        let at_word = self.place(room_words).ok_or(full)?;
        let mut bytes = frame.chunks_exact(WORD_LEN_BYTES);
        let mut to = HEAD_WORDS + at_word;
        for chunk in &mut bytes {
            if let Ok(chunk) = chunk.try_into() {
                self.file.put(to, u64::from_le_bytes(chunk), Ordering::Relaxed);
            }
            to += 1;
        }
        let rest = bytes.remainder();
        if !rest.is_empty() {
            let mut last = [0; WORD_LEN_BYTES];
            last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            self.file.store(to, u64::from_le_bytes(last));
        }
        self.frames.push_back(KeptFrame { position: self.end, at_word, len_bytes: frame.len(), room_words });
        self.at_word = at_word + room_words;
        self.used_words += room_words;
        self.end += frame.len() as u64;
        self.file.store(END_WORD, self.end);
        Ok(())
    }

    /// Word in the area for a frame of this length. Stores the words that a reader needs to find it.
    fn place(&mut self, room_words: usize) -> Option<usize> {
        let Some(oldest) = self.frames.front().map(|frame| frame.at_word) else {
            if room_words > self.area_words {
                return None;
            }
            // A reader still finds no frames: both words contain the same position.
            self.file.store(OLDEST_WORD, pack_oldest(0, self.end));
            self.used_words = 0;
            return Some(0);
        };
        let is_wrapped = self.at_word <= oldest;
        if is_wrapped {
            return (self.at_word + room_words <= oldest).then_some(self.at_word);
        }
        let fits_here = self.at_word + room_words <= self.area_words;
        let fits_in_front = room_words <= oldest;
        let is_far = self.at_word >= NEAR_BYTES / WORD_LEN_BYTES;
        if fits_in_front && (is_far || !fits_here) {
            let left_words = self.area_words - self.at_word;
            if left_words > 0 {
                self.file.store(HEAD_WORDS + self.at_word, WRAP);
            }
            if let Some(last) = self.frames.back_mut() {
                last.room_words += left_words;
                self.used_words += left_words;
            }
            return Some(0);
        }
        fits_here.then_some(self.at_word)
    }

    /// Removes frames that end at or before `durable`.
    pub fn trim(&mut self, durable: Seq) {
        let before = self.frames.len();
        while let Some(frame) = self.frames.front() {
            if frame.position + frame.len_bytes as u64 > durable.0 {
                break;
            }
            self.used_words -= frame.room_words;
            self.frames.pop_front();
        }
        if self.frames.len() != before {
            let at_word = self.frames.front().map_or(0, |frame| frame.at_word);
            self.file.store(OLDEST_WORD, pack_oldest(at_word, self.oldest().0));
        }
    }

    /// Copies the frame with this number, counted from the oldest, into `out`; `false`: there is none.
    pub fn copy(&self, number: usize, out: &mut Vec<u8>) -> bool {
        out.clear();
        let Some(frame) = self.frames.get(number) else { return false };
        let from = HEAD_WORDS + frame.at_word;
        let words = self.file.words.get(from..from + frame.len_bytes.div_ceil(WORD_LEN_BYTES));
        for word in words.unwrap_or(&[]) {
            out.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        out.truncate(frame.len_bytes);
        out.len() == frame.len_bytes
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
