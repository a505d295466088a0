//! The content of records in the log device test: cells that can be checked one by one.
//!
//! Layout of a cell: five little-endian words of 64 bits (run, thread, counter, index, count), then bytes that follow
//! from them. A record is `count` cells with the indexes 0, 1, 2 and so on. All records are whole cells long, so a
//! cell starts at every multiple of [`CELL_LEN_BYTES`] in the stream, no matter in which order threads append, and
//! the check can start anywhere. The length is odd on purpose: records begin and end at every offset in a cache line.

use std::collections::HashMap;

/// The length of a cell in bytes.
pub const CELL_LEN_BYTES: usize = 61;
const WORDS: usize = 5;
const WORDS_LEN_BYTES: usize = WORDS * 8;

/// The words of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// Where the stream ended when the run started that appended it.
    pub run: u64,
    /// Which thread appended it.
    pub thread: u64,
    /// Number of the record in its run and thread, from 0.
    pub counter: u64,
    /// Number of the cell in its record, from 0.
    pub index: u64,
    /// Cells of the record.
    pub count: u64,
}

impl Cell {
    /// Appends the cell's bytes to `record`.
    pub fn write_to(&self, record: &mut Vec<u8>) {
        let words = [self.run, self.thread, self.counter, self.index, self.count];
        record.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        record.extend(filler(&words));
    }

    /// The cell that these bytes are, unless a bit of them is wrong.
    pub fn read_from(bytes: &[u8]) -> Option<Self> {
        let (heads, tail) = bytes.split_at_checked(WORDS_LEN_BYTES)?;
        let mut words = [0; WORDS];
        for (word, head) in words.iter_mut().zip(heads.chunks_exact(8)) {
            *word = u64::from_le_bytes(head.try_into().ok()?);
        }
        let [run, thread, counter, index, count] = words;
        let is_whole = tail.len() == CELL_LEN_BYTES - WORDS_LEN_BYTES
            && filler(&words).eq(tail.iter().copied())
            && index < count;
        is_whole.then_some(Self { run, thread, counter, index, count })
    }

    fn is_last(&self) -> bool {
        self.index + 1 == self.count
    }
}

/// The bytes after the words: a mix of all of them (SplitMix64's finisher, chained).
fn filler(words: &[u64; WORDS]) -> impl Iterator<Item = u8> + use<> {
    let mut state = words.iter().fold(0, |state, word| mix(state ^ word));
    std::iter::from_fn(move || {
        state = mix(state);
        Some(state.to_le_bytes())
    })
    .flatten()
    .take(CELL_LEN_BYTES - WORDS_LEN_BYTES)
}

fn mix(value: u64) -> u64 {
    let mut word = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Follows the cells of a stream from any cell on: records are whole, and no thread's record is missing or twice.
#[derive(Default)]
pub struct Follower {
    previous: Option<Cell>,
    counters: HashMap<(u64, u64), u64>,
}

impl Follower {
    /// Takes the next cell.
    ///
    /// # Errors
    /// A text that says what is wrong with it.
    pub fn take(&mut self, cell: Cell) -> Result<(), String> {
        match self.previous {
            Some(previous) if !previous.is_last() => {
                let expected = Cell { index: previous.index + 1, ..previous };
                if cell != expected {
                    return Err(format!("after {previous:?} comes {cell:?}"));
                }
            }
            Some(_) if cell.index != 0 => return Err(format!("a record begins with {cell:?}")),
            _ => {}
        }
        if self.previous.is_none() || cell.index == 0 {
            let before = self.counters.insert((cell.run, cell.thread), cell.counter);
            if before.is_some_and(|before| before + 1 != cell.counter) {
                return Err(format!("record {before:?} of the thread is followed by {cell:?}"));
            }
        }
        self.previous = Some(cell);
        Ok(())
    }

    /// Whether the last record is whole.
    pub fn is_at_record_end(&self) -> bool {
        self.previous.is_none_or(|previous| previous.is_last())
    }
}

#[cfg(test)]
#[path = "cell_tests.rs"]
mod tests;
