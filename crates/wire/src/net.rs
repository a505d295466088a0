//! What the network library (`libredoubt_net.so`) and `redoubt net` share: a piece of memory without a name in the file
//! system (`memfd`), which the library keeps mapped and the command finds below `/proc/PID/fd`.
//!
//! Layout, in little-endian 64-bit words: [`MAGIC`], process id, start in seconds since 1970, the wanted [`Mode`] of the
//! collapser, then zeros up to [`COUNTERS_WORD`]; from there [`SHARDS`] groups of [`SHARD_WORDS`] words, each with one
//! word per [`Counter`] in its order. A counter's value is the sum over the groups: threads that count at the same time
//! do so in different lines of the processors' caches.
//!
//! Invariants: only the library writes counters, and they only grow. Only the command writes the mode.

/// Name of the memory, as `/proc/PID/fd` shows it after `/memfd:`.
pub const NAME: &str = "redoubt-net";
/// Length in bytes.
pub const LEN_BYTES: usize = 8192;
/// First word: the name of the format, with its version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RDTNET01");
/// Word with the process id.
pub const PROCESS_WORD: usize = 1;
/// Word with the start of the server.
pub const START_WORD: usize = 2;
/// Word with the wanted mode of the collapser.
pub const COLLAPSER_WORD: usize = 3;
/// First word of the counters.
pub const COUNTERS_WORD: usize = 512;
/// Groups of counters.
pub const SHARDS: usize = 64;
/// Words in a group.
pub const SHARD_WORDS: usize = 8;
/// Environment variable that says what the library does, as [`Mode::parse_setting`] reads it.
pub const VARIABLE: &str = "REDOUBT_NET";
/// Environment variable that switches the same-host bypass on, with the value `on`.
pub const BYPASS_VARIABLE: &str = "REDOUBT_NET_BYPASS";

/// What the collapser does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Mode {
    /// Nothing: every call is the kernel's.
    Off = 0,
    /// Reads ahead: three system calls for a statement.
    ReadAhead = 1,
    /// Reads ahead and waits in the read: two system calls for a statement.
    On = 2,
    /// What the library takes for best: as [`Mode::On`] where that is two system calls, nothing elsewhere.
    Auto = 3,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Off, Self::ReadAhead, Self::On, Self::Auto];

    /// Name for people, options and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::ReadAhead => "read-ahead",
            Self::On => "on",
            Self::Auto => "auto",
        }
    }

    /// From a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// From the word in memory.
    pub fn from_word(word: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| *mode as u64 == word)
    }

    /// What it comes to where it does something: [`Mode::Auto`] is one of the others.
    #[must_use]
    pub const fn resolved(self) -> Self {
        match self {
            Self::Auto => Self::On,
            other => other,
        }
    }

    /// The mode of the collapser from the value of [`VARIABLE`]: a mode for all layers, or `LAYER=MODE` separated by
    /// commas, of which the last word on a layer counts. Of layers there is one, `collapser`.
    ///
    /// # Errors
    /// [`BadSetting`] with the word that is not understood.
    pub fn parse_setting(text: &str) -> Result<Self, BadSetting> {
        let mut collapser = Self::Auto;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let bad = || BadSetting(word.to_owned());
            let name = match word.split_once('=') {
                Some(("collapser", name)) => name,
                Some(_) => return Err(bad()),
                None => word,
            };
            collapser = Self::from_name(name).ok_or_else(bad)?;
        }
        Ok(collapser)
    }
}

/// A setting that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not understood; expected off, read-ahead, on or auto, for all layers or as collapser=MODE, separated by commas"
)]
pub struct BadSetting(String);

/// Memory that is not the library's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the counters of the network library cannot be read: {0}")]
pub struct BadMemory(String);

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Connections that were accepted and are looked after.
    Connections = 0,
    /// Of these, those that are closed.
    Closed = 1,
    /// Connections on which reading ahead has begun.
    Collapsed = 2,
    /// Connections that were left to the kernel, since something unusual was done with them.
    LeftAlone = 3,
    /// Waits that ended with bytes of the client: statements, and packets in the course of one.
    Requests = 4,
    /// Calls of the server that read from these connections or waited for them.
    Calls = 5,
    /// System calls that were made for them.
    SystemCalls = 6,
}

impl Counter {
    /// All, in the order of the memory.
    pub const ALL: [Self; 7] = [
        Self::Connections,
        Self::Closed,
        Self::Collapsed,
        Self::LeftAlone,
        Self::Requests,
        Self::Calls,
        Self::SystemCalls,
    ];

    /// Name for JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Closed => "closed",
            Self::Collapsed => "collapsed",
            Self::LeftAlone => "left_alone",
            Self::Requests => "requests",
            Self::Calls => "calls",
            Self::SystemCalls => "system_calls",
        }
    }
}

/// The memory, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Process id of the server.
    pub process_id: u64,
    /// Its start, in seconds since 1970.
    pub start_s: u64,
    /// What the collapser is told to do.
    pub collapser: Mode,
    values: [u64; SHARD_WORDS],
}

impl Snapshot {
    /// Reads the content of the memory.
    ///
    /// # Errors
    /// [`BadMemory`] for anything that is not it.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadMemory> {
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
            .collect();
        let word = |at: usize| words.get(at).copied().ok_or_else(|| BadMemory("it is too short".to_owned()));
        if word(0)? != MAGIC || words.len() * 8 != LEN_BYTES {
            return Err(BadMemory(
                "another version of the library wrote them; use the `redoubt` command that the server was started with"
                    .to_owned(),
            ));
        }
        let mut values = [0u64; SHARD_WORDS];
        for shard in 0..SHARDS {
            for (at, value) in values.iter_mut().enumerate() {
                *value = value.wrapping_add(word(COUNTERS_WORD + shard * SHARD_WORDS + at)?);
            }
        }
        let mode = word(COLLAPSER_WORD)?;
        Ok(Self {
            process_id: word(PROCESS_WORD)?,
            start_s: word(START_WORD)?,
            collapser: Mode::from_word(mode)
                .ok_or_else(|| BadMemory(format!("mode {mode} of the collapser is not known")))?,
            values,
        })
    }

    /// Value of a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.values.get(counter as usize).copied().unwrap_or(0)
    }

    /// System calls that were not made.
    pub fn saved(&self) -> u64 {
        self.get(Counter::Calls).saturating_sub(self.get(Counter::SystemCalls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
        for (text, expected) in [
            ("", Mode::Auto),
            ("off", Mode::Off),
            ("auto", Mode::Auto),
            ("collapser=read-ahead", Mode::ReadAhead),
            ("off, collapser=on", Mode::On),
        ] {
            assert_eq!(Mode::parse_setting(text), Ok(expected), "{text}");
        }
        for text in ["yes", "admission=on", "collapser=", "collapser=off=on"] {
            let error = Mode::parse_setting(text).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("read-ahead"), "{error}");
        }
        assert_ne!(Mode::Auto.resolved(), Mode::Auto);
    }

    #[test]
    fn counters_are_summed_over_the_shards() {
        let mut words = vec![0u64; LEN_BYTES / 8];
        words[0] = MAGIC;
        words[PROCESS_WORD] = 7;
        words[COLLAPSER_WORD] = Mode::On as u64;
        words[COUNTERS_WORD + Counter::Calls as usize] = 5;
        words[COUNTERS_WORD + 63 * SHARD_WORDS + Counter::Calls as usize] = 6;
        words[COUNTERS_WORD + Counter::SystemCalls as usize] = 4;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let snapshot = Snapshot::parse(&bytes).unwrap();
        assert_eq!(
            (snapshot.process_id, snapshot.collapser, snapshot.get(Counter::Calls)),
            (7, Mode::On, 11)
        );
        assert_eq!(snapshot.saved(), 7);
        assert!(Snapshot::parse(&bytes[..4096]).is_err());
        words[0] += 1;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert!(Snapshot::parse(&bytes).is_err());
    }
}
