//! The counters of a server that was started with `redoubt run --local-log`: a small file that the preloaded
//! library keeps mapped and `redoubt status --local-log` reads.
//!
//! Layout, in little-endian 64-bit words: magic, process id, start in seconds since 1970, kind of persistence
//! ([`Persistence`]), then one word per [`Counter`] in its order. The rest of the file is zero.
//!
//! Invariants: the process that writes the file holds an exclusive `flock` on it. So the file describes a running
//! server exactly while it is locked. Counters start at zero with each server and only grow. Each counter is correct
//! by itself. A reader may see the later of two related counters before the earlier one.

/// Name of the file in the data directory.
pub const FILE_NAME: &str = ".redoubt-local-log";
/// Length of the file in bytes.
pub const FILE_LEN_BYTES: usize = 4096;
/// First word: the name of the format, with its version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RDTLOCL1");

/// Words before the counters.
pub const HEADER_WORDS: usize = 4;
/// Word with the process id.
pub const PROCESS_WORD: usize = 1;
/// Word with the start of the server.
pub const START_WORD: usize = 2;
/// Word with the kind of persistence.
pub const PERSISTENCE_WORD: usize = 3;

/// A file that is not a counter file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the counters cannot be read: {0}")]
pub struct BadCounterFile(String);

/// Basis of the redo files' durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Persistence {
    /// No redo file was mapped yet.
    NothingMapped = 0,
    /// Persistent memory: the kernel granted MAP_SYNC.
    MapSync = 1,
    /// Ordinary memory, as requested with `--pretend-pmem`.
    Pretended = 2,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// The counted events.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter {
            $($(#[$doc])* $variant,)*
        }

        impl Counter {
            /// All, in the order of the file.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Name for people and for JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

counters! {
    /// Writes of the server that became stores into a mapping.
    MappedWrites "mapped_writes",
    /// Number of bytes in these writes.
    MappedBytes "mapped_bytes",
    /// Store fences.
    Fences "fences",
    /// Nanoseconds in mapped writes, including fences.
    MappedWriteNanos "mapped_write_nanos",
    /// fsync and fdatasync calls that needed no system call.
    SyncsAvoided "syncs_avoided",
    /// Nanoseconds in these calls.
    SyncsAvoidedNanos "syncs_avoided_nanos",
    /// fsync and fdatasync calls that were passed to the kernel, because a file has changed its size or is new.
    SyncsPassed "syncs_passed",
    /// Nanoseconds in these calls.
    SyncsPassedNanos "syncs_passed_nanos",
    /// Writes that were passed to the kernel, because they exceed the end of a file.
    PassedWrites "passed_writes",
    /// Number of bytes in these writes.
    PassedBytes "passed_bytes",
    /// Nanoseconds in these writes.
    PassedWriteNanos "passed_write_nanos",
    /// Number of mappings of redo files.
    Mappings "mappings",
    /// Attempts of the server to map a redo file for writing, which were rejected.
    MapsRefused "maps_refused",
    /// Calls that failed because of the memory or the device.
    Failures "failures",
}

/// Parsed content of a counter file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Process id of the server.
    pub process_id: u64,
    /// Start of the server, in seconds since 1970.
    pub start_s: u64,
    /// The basis of durability.
    pub persistence: Persistence,
    values: Vec<u64>,
}

impl Snapshot {
    /// Reads the content of a counter file.
    ///
    /// # Errors
    /// [`BadCounterFile`] for any other content.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadCounterFile> {
        let invalid = |why: &str| BadCounterFile(why.to_owned());
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
            .collect();
        let word = |at: usize| words.get(at).copied().ok_or_else(|| invalid("it is too short"));
        if word(0)? != MAGIC {
            return Err(invalid(
                "it was not written by this version of the library; use the `redoubt` command of the version that the \
                 server was started with, or restart the server with this one",
            ));
        }
        let persistence = match word(PERSISTENCE_WORD)? {
            0 => Persistence::NothingMapped,
            1 => Persistence::MapSync,
            2 => Persistence::Pretended,
            other => return Err(invalid(&format!("kind of persistence {other} is not known"))),
        };
        let values =
            (0..Counter::ALL.len()).map(|at| word(HEADER_WORDS + at)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { process_id: word(PROCESS_WORD)?, start_s: word(START_WORD)?, persistence, values })
    }

    /// Value of a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.values.get(counter as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(words: &[u64]) -> Vec<u8> {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(FILE_LEN_BYTES, 0);
        bytes
    }

    #[test]
    fn what_was_written_is_read() {
        let mut words = vec![MAGIC, 77, 1_700_000_000, Persistence::Pretended as u64];
        words.extend((0..Counter::ALL.len()).map(|at| 100 + at as u64));
        let snapshot = Snapshot::parse(&file(&words)).unwrap();
        assert_eq!((snapshot.process_id, snapshot.start_s), (77, 1_700_000_000));
        assert_eq!(snapshot.persistence, Persistence::Pretended);
        for (at, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(snapshot.get(*counter), 100 + at as u64, "{}", counter.name());
        }
    }

    #[test]
    fn other_files_are_refused() {
        assert!(Snapshot::parse(b"").is_err());
        assert!(Snapshot::parse(&file(&[MAGIC + 1])).is_err());
        assert!(Snapshot::parse(&file(&[MAGIC, 1, 2, 9])).is_err());
        assert!(Snapshot::parse(&file(&[MAGIC])[..40]).is_err());
    }
}
