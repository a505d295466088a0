//! Segment demultiplexing: one table from the four-tuple of a connection to its state.
//!
//! The table's hash has a secret key, so that a peer cannot choose addresses and ports that collide. A look-up costs
//! the same for one connection and for all.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use crate::hash::Keyed;

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

impl Key {
    /// The key as words, for hashes. An IPv4 pair and an IPv6 pair differ in the number of words.
    pub(crate) fn words(&self, mut take: impl FnMut(u64)) {
        for address in [self.local.ip(), self.remote.ip()] {
            match address {
                IpAddr::V4(address) => take(u64::from(u32::from(address))),
                IpAddr::V6(address) => {
                    let address = u128::from(address);
                    take(address as u64);
                    take((address >> 64) as u64);
                }
            }
        }
        take(u64::from(self.local.port()) << 16 | u64::from(self.remote.port()));
    }

    /// A keyed hash of the key and of more words.
    pub(crate) fn hash_with(&self, keyed: &Keyed, more: &[u64]) -> u64 {
        let mut hasher = std::hash::BuildHasher::build_hasher(keyed);
        self.words(|word| hasher.word(word));
        more.iter().for_each(|word| hasher.word(*word));
        hasher.finish()
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.words(|word| hasher.write_u64(word));
    }
}

/// State of a connection, with its index in the table of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Connection(u32),
    HalfOpen(u32),
    TimeWait(u32),
}

/// Table from the four-tuple of a connection to its state.
#[derive(Debug)]
pub(crate) struct Demux {
    table: HashMap<Key, Target, Keyed>,
}

impl Demux {
    pub(crate) fn new(keyed: Keyed) -> Self {
        Self { table: HashMap::with_hasher(keyed) }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Target> {
        self.table.get(key).copied()
    }

    /// Inserts a target, in place of any other.
    pub(crate) fn insert(&mut self, key: Key, target: Target) {
        self.table.insert(key, target);
    }

    /// Removes the entry only if it still has this target.
    pub(crate) fn remove(&mut self, key: &Key, target: Target) {
        if self.get(key) == Some(target) {
            self.table.remove(key);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes of memory: entries, a byte for each, and an eighth of free slots.
    pub(crate) fn memory_len_bytes(&self) -> usize {
        self.table.capacity() * 8 / 7 * (size_of::<(Key, Target)>() + 1)
    }
}
