//! Settings and state of admission.

use super::{WAITER_WORDS, WAITERS};
use std::fmt;

/// Default name of the users that never wait.
const ADMINISTRATOR: &str = "root";
/// Maximum time that can be set, in seconds: a year.
const LONGEST_S: u64 = 86_400 * 365;

/// Limit of connections in a transaction, and the number of times that the limit was turned on.
///
/// Both are in the same word, so that a reader of the limit detects whether it was off since the previous read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Limit {
    count: u32,
    turned_on: u32,
}

impl Limit {
    /// Parses a number, or `off`.
    pub fn parse(text: &str) -> Option<Self> {
        let count = if text == "off" { 0 } else { text.parse().ok().filter(|count| *count > 0)? };
        Some(Self { count, turned_on: 0 })
    }

    /// Converts a word in memory to a limit.
    pub const fn from_word(word: u64) -> Self {
        Self { count: word as u32, turned_on: (word >> 32) as u32 }
    }

    /// Converts the limit to a word in memory.
    pub const fn to_word(self) -> u64 {
        (self.turned_on as u64) << 32 | self.count as u64
    }

    /// Maximum number of connections; `None` if off.
    pub fn count(self) -> Option<u32> {
        (self.count > 0).then_some(self.count)
    }

    /// Number of times that the limit was turned on.
    pub fn turned_on(self) -> u32 {
        self.turned_on
    }

    /// The limit that replaces this one for a wanted limit.
    #[must_use]
    pub fn replaced_by(self, wanted: Self) -> Self {
        let begins = self.count == 0 && wanted.count > 0;
        Self { count: wanted.count, turned_on: self.turned_on.wrapping_add(u32::from(begins)) }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count() {
            Some(count) => count.fmt(f),
            None => f.write_str("off"),
        }
    }
}

/// Parses a time in whole seconds, and converts it to milliseconds.
pub(super) fn seconds(text: &str) -> Option<u64> {
    text.parse().ok().filter(|seconds| (1..=LONGEST_S).contains(seconds)).map(|seconds: u64| seconds * 1000)
}

/// Settings of admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Limit of connections in a transaction.
    pub limit: Limit,
    /// Time after which an idle transaction no longer counts.
    pub lease_ms: u64,
    /// Maximum wait of a connection.
    pub longest_wait_ms: u64,
    /// Users that never wait.
    pub administrators: Vec<String>,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            limit: Limit::default(),
            lease_ms: 10_000,
            longest_wait_ms: 30_000,
            administrators: vec![ADMINISTRATOR.to_owned()],
        }
    }
}

/// A waiting connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Id of the server's thread in the system.
    pub thread_id: u32,
    /// Descriptor in the server.
    pub descriptor: u32,
    /// Time that the connection has waited.
    pub waited_ms: u64,
    /// Address of an IPv4 client; zeros for other clients.
    pub address: [u8; 4],
    /// Port of an IPv4 client; 0 for other clients.
    pub port: u16,
}

impl Waiter {
    /// The connection's words: thread and descriptor; beginning of the wait (milliseconds since 1970); address and
    /// port; 0.
    pub fn to_words(self, now_ms: u64) -> [u64; WAITER_WORDS] {
        let who = u64::from(self.thread_id) << 32 | u64::from(self.descriptor);
        let address = u64::from(u32::from_be_bytes(self.address)) << 16 | u64::from(self.port);
        [who, now_ms.saturating_sub(self.waited_ms), address, 0]
    }

    /// Parses waiting connections up to the first empty group.
    pub(super) fn parse_all(words: &[u64], now_ms: u64) -> Vec<Self> {
        let parse = |words: &[u64]| {
            let [who, since_ms, address, _] =
                *words.first_chunk().filter(|words: &&[u64; 4]| words[0] != 0)?;
            Some(Self {
                thread_id: (who >> 32) as u32,
                descriptor: who as u32,
                waited_ms: now_ms.saturating_sub(since_ms),
                address: ((address >> 16) as u32).to_be_bytes(),
                port: address as u16,
            })
        };
        words.chunks_exact(WAITER_WORDS).take(WAITERS).map_while(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let off = Limit::default();
        let limit = |text| Limit::parse(text).unwrap();
        let on = off.replaced_by(limit("8"));
        assert_eq!((on.count(), on.turned_on(), on.to_string().as_str()), (Some(8), 1, "8"));
        assert_eq!(on.replaced_by(limit("9")).turned_on(), 1);
        let again = on.replaced_by(limit("off")).replaced_by(limit("8"));
        assert_eq!((again.count(), again.turned_on()), (Some(8), 2));
        assert_eq!(Limit::from_word(again.to_word()), again);
        for text in ["0", "-1", "on", "", "4294967296"] {
            assert_eq!(Limit::parse(text), None, "{text}");
        }
    }

    #[test]
    fn waiters_are_written_and_read() {
        let waiter = |at: u32| Waiter {
            thread_id: u32::MAX - at,
            descriptor: at,
            waited_ms: u64::from(at) * 10,
            address: [127, 0, 0, at as u8],
            port: 60_000 + at as u16,
        };
        let all: Vec<Waiter> = (0..3).map(waiter).collect();
        let mut words: Vec<u64> = all.iter().flat_map(|waiter| waiter.to_words(1_000_000)).collect();
        words.extend([0; WAITER_WORDS * 2]);
        assert_eq!(Waiter::parse_all(&words, 1_000_000), all);
    }
}
