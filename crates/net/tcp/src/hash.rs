//! SipHash-2-4 (Aumasson, Bernstein, INDOCRYPT 2012) with secret keys: its values cannot be predicted without the key.
//! It serves the connection table (a peer cannot make entries collide), initial sequence numbers (RFC 6528) and
//! cookies.

use std::hash::{BuildHasher, Hasher};

/// Makes hashers with one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed {
    key: [u64; 2],
}

impl Keyed {
    /// Derives a key for one purpose from a secret.
    pub(crate) fn new(secret: &[u8; 16], purpose: u64) -> Self {
        let (low, high) = secret.split_at(8);
        let half = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        let master = Self { key: [half(low), half(high)] };
        Self { key: [master.hash(&[purpose, 0]), master.hash(&[purpose, 1])] }
    }

    /// Hashes words.
    pub(crate) fn hash(&self, words: &[u64]) -> u64 {
        let mut hasher = self.build_hasher();
        words.iter().for_each(|word| hasher.word(*word));
        hasher.finish()
    }
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher;

    fn build_hasher(&self) -> SipHasher {
        let [low, high] = self.key;
        SipHasher {
            state: [
                low ^ 0x736f_6d65_7073_6575,
                high ^ 0x646f_7261_6e64_6f6d,
                low ^ 0x6c79_6765_6e65_7261,
                high ^ 0x7465_6462_7974_6573,
            ],
            words: 0,
        }
    }
}

/// A hasher for whole words: all hashed keys consist of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SipHasher {
    state: [u64; 4],
    words: u64,
}

fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

impl SipHasher {
    pub(crate) fn word(&mut self, word: u64) {
        self.state[3] ^= word;
        round(&mut self.state);
        round(&mut self.state);
        self.state[0] ^= word;
        self.words += 1;
    }
}

impl Hasher for SipHasher {
    fn finish(&self) -> u64 {
        let mut last = *self;
        last.word(self.words << 59);
        last.state[2] ^= 0xff;
        (0..4).for_each(|_| round(&mut last.state));
        last.state.into_iter().fold(0, |sum, word| sum ^ word)
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.word(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_hash_as_the_paper_says() {
        // Key 00..0f; the messages 00..07 and "" of the authors' vectors.
        let keyed = Keyed { key: [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908] };
        assert_eq!(keyed.hash(&[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(keyed.hash(&[0x0706_0504_0302_0100]), 0x93f5_f579_9a93_2462);
    }

    #[test]
    fn each_purpose_has_another_key() {
        let secret = *b"0123456789abcdef";
        assert_ne!(Keyed::new(&secret, 1).hash(&[7]), Keyed::new(&secret, 2).hash(&[7]));
    }
}
