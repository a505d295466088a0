//! Memory that the network library (`libredoubt_net.so`) and `redoubt net` share. It has no name in the file system
//! (`memfd`). The library keeps it mapped, and the command finds it below `/proc/PID/fd`.
//!
//! Layout, in little-endian 64-bit words:
//!
//! * [`MAGIC`], process id, start in seconds since 1970;
//! * the wanted [`Mode`] of the collapser, the settings of [`Admission`] (three words), the server's [`Habit`];
//! * the state of admission (four words);
//! * whether TCP in user space accepts connections, whether the bypass is on, then zeros;
//! * from [`WAITERS_WORD`]: [`WAITERS`] groups of [`WAITER_WORDS`] words for waiting connections;
//! * from [`USER_TCP_LINKS_WORD`]: [`USER_TCP_LINKS`] groups of [`USER_TCP_LINK_WORDS`] words for interfaces;
//! * from [`COUNTERS_WORD`]: [`SHARDS`] groups of [`SHARD_WORDS`] words, each with one word per [`Counter`] in its
//!   order.
//!
//! A counter's value is the sum over the groups, so that threads count in different cache lines.
//!
//! Invariants: only the library writes counters, and they only grow. After the start of the library, only the command
//! writes the mode and the settings of admission.

mod admission;
mod user_tcp;

pub use admission::{Admission, Limit, Waiter};
pub use user_tcp::{UserTcp, UserTcpLink, UserTcpMode};

use std::path::{Path, PathBuf};

/// Name of the memory, as `/proc/PID/fd` shows it after `/memfd:`.
pub const NAME: &str = "redoubt-net";
/// Length in bytes.
pub const LEN_BYTES: usize = 16384;
/// First word: the name of the format, with its version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RDTNET03");
/// Word with the process id.
pub const PROCESS_WORD: usize = 1;
/// Word with the start of the server.
pub const START_WORD: usize = 2;
/// Word with the wanted mode of the collapser.
pub const COLLAPSER_WORD: usize = 3;
/// Word with the [`Limit`] of admission.
pub const LIMIT_WORD: usize = 4;
/// Word with the maximum time in milliseconds for which a client may leave a transaction idle.
pub const LEASE_WORD: usize = 5;
/// Word with the maximum time in milliseconds for which a connection waits.
pub const PATIENCE_WORD: usize = 6;
/// Word with the server's [`Habit`].
pub const HABIT_WORD: usize = 7;
/// Word with the number of admitted connections.
pub const INSIDE_WORD: usize = 8;
/// Word with the number of waiting connections.
pub const WAITING_WORD: usize = 9;
/// Word with the maximum duration of an ended wait, in milliseconds.
pub const LONGEST_WAIT_WORD: usize = 10;
/// Word with the time in milliseconds since 1970 of the last update of these words.
pub const LOOK_WORD: usize = 11;
/// Word that tells whether new connections bypass the kernel's TCP: 0 or 1.
pub const USER_TCP_WORD: usize = 12;
/// Word that tells whether new connections of clients on this host bypass TCP: 0 or 1.
pub const BYPASS_WORD: usize = 13;
/// First word of the waiting connections.
pub const WAITERS_WORD: usize = 64;
/// Maximum number of listed waiting connections.
pub const WAITERS: usize = 64;
/// Words for each waiting connection: a [`Waiter`].
pub const WAITER_WORDS: usize = 4;
/// First word of the interfaces whose TCP bypasses the kernel.
pub const USER_TCP_LINKS_WORD: usize = 320;
/// Maximum number of these interfaces.
pub const USER_TCP_LINKS: usize = 8;
/// Words for each interface: a [`UserTcpLink`].
pub const USER_TCP_LINK_WORDS: usize = 16;
/// First word of the counters.
pub const COUNTERS_WORD: usize = 512;
/// Groups of counters.
pub const SHARDS: usize = 64;
/// Words in a group.
pub const SHARD_WORDS: usize = 16;
/// Environment variable with the library's settings, as [`Setting::parse`] reads it.
pub const VARIABLE: &str = "REDOUBT_NET";
/// Environment variable that enables the same-host bypass, with the value `on`, when the program starts.
pub const BYPASS_VARIABLE: &str = "REDOUBT_NET_BYPASS";

/// Path of a process's memory below `/proc/PID`; `None` if it has none.
///
/// # Errors
/// Errors of reading its descriptors: the process may have ended, or this user may not read them.
pub fn find_memory(process: &Path) -> std::io::Result<Option<PathBuf>> {
    let expected = format!("/memfd:{NAME} (deleted)");
    for entry in std::fs::read_dir(process.join("fd"))? {
        let path = entry?.path();
        if std::fs::read_link(&path).is_ok_and(|link| link.as_os_str() == expected.as_str()) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Mode of the collapser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Mode {
    /// Off: every call goes to the kernel.
    Off = 0,
    /// Reads ahead: three system calls per statement.
    ReadAhead = 1,
    /// Reads ahead and waits in the read: two system calls per statement.
    On = 2,
    /// The library's choice: like [`Mode::On`] where that takes two system calls, off elsewhere.
    Auto = 3,
}

impl Mode {
    /// All modes.
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

    /// Converts a name to a mode.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Converts a word in memory to a mode.
    pub fn from_word(word: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| *mode as u64 == word)
    }

    /// The resulting mode in a server of this habit, never [`Mode::Auto`].
    #[must_use]
    pub const fn resolved(self, habit: Habit) -> Self {
        match (self, habit) {
            (Self::Auto, Habit::Complex) => Self::Off,
            (Self::On, Habit::Complex) => Self::ReadAhead,
            (Self::Auto, _) => Self::On,
            (other, _) => other,
        }
    }
}

/// Way in which a server waits for its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Habit {
    /// Not yet known.
    Unknown = 0,
    /// A read can replace the server's wait.
    Simple = 1,
    /// The server's wait needs the kernel, or its descriptors are passed to other programs.
    Complex = 2,
}

impl Habit {
    /// Converts a word in memory to a habit.
    pub fn from_word(word: u64) -> Self {
        let all = [Self::Simple, Self::Complex];
        all.into_iter().find(|habit| *habit as u64 == word).unwrap_or(Self::Unknown)
    }
}

/// Settings of the library, from [`VARIABLE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Mode of the collapser.
    pub collapser: Mode,
    /// Settings of admission.
    pub admission: Admission,
    /// Interfaces whose TCP bypasses the kernel.
    pub user_tcp: Vec<UserTcp>,
}

impl Setting {
    /// Parses the value of [`VARIABLE`]: a mode for the collapser, or `NAME=VALUE`, separated by commas. The last
    /// value of a name counts. Names are `collapser`, `admission` (a number, or off), `lease` and `longest-wait` (in
    /// seconds), `administrators` (names of users with + between them), and `user-tcp` (interfaces with + between
    /// them, see [`UserTcp::parse`]).
    ///
    /// # Errors
    /// [`BadSetting`] with the invalid word.
    pub fn parse(text: &str) -> Result<Self, BadSetting> {
        let mut setting = Self::from(Mode::Auto);
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let bad = || BadSetting(word.to_owned());
            let (name, value) = word.split_once('=').unwrap_or(("collapser", word));
            match name {
                "collapser" => setting.collapser = Mode::from_name(value).ok_or_else(bad)?,
                "admission" => setting.admission.limit = Limit::parse(value).ok_or_else(bad)?,
                "lease" => setting.admission.lease_ms = admission::seconds(value).ok_or_else(bad)?,
                "longest-wait" => {
                    setting.admission.longest_wait_ms = admission::seconds(value).ok_or_else(bad)?
                }
                "administrators" => {
                    let names = value.split('+').filter(|name| !name.is_empty());
                    setting.admission.administrators = names.map(str::to_owned).collect();
                }
                "user-tcp" => setting.user_tcp = UserTcp::parse_all(value).ok_or_else(bad)?,
                _ => return Err(bad()),
            }
        }
        Ok(setting)
    }

    /// The value of [`VARIABLE`] for these settings.
    pub fn to_value(&self) -> String {
        let Admission { limit, lease_ms, longest_wait_ms, administrators } = &self.admission;
        format!(
            "collapser={},admission={limit},lease={},longest-wait={},administrators={},user-tcp={}",
            self.collapser.name(),
            lease_ms / 1000,
            longest_wait_ms / 1000,
            administrators.join("+"),
            self.user_tcp.iter().map(ToString::to_string).collect::<Vec<_>>().join("+"),
        )
    }
}

impl From<Mode> for Setting {
    fn from(collapser: Mode) -> Self {
        Self { collapser, admission: Admission::default(), user_tcp: Vec::new() }
    }
}

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid setting {0:?}: expected off, read-ahead, on or auto (or collapser=MODE), admission=NUMBER or off, \
     lease=SECONDS, longest-wait=SECONDS, administrators=USER+USER, user-tcp=INTERFACE+INTERFACE, separated \
     by commas"
)]
pub struct BadSetting(String);

/// Memory that does not belong to the library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the counters of the network library cannot be read: {0}")]
pub struct BadMemory(String);

/// The counted events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Accepted connections that the library intercepts.
    Connections = 0,
    /// Closed connections, of those.
    Closed = 1,
    /// Connections on which the library has begun to read ahead.
    Collapsed = 2,
    /// Connections that were left to the kernel after an unusual call.
    LeftAlone = 3,
    /// Waits that ended with bytes of the client: statements, and packets in the course of one.
    Requests = 4,
    /// Calls of the server that read from these connections or waited for them.
    Calls = 5,
    /// System calls that the library made for these calls.
    SystemCalls = 6,
    /// Commands that admission admitted at once.
    Entered = 7,
    /// Commands that had to wait for admission.
    Waited = 8,
    /// Waiting commands that were admitted over the limit after the maximum wait.
    LetInLate = 9,
    /// Waiting commands whose connection was closed, or whose wait the server ended.
    WaitsEnded = 10,
    /// Transactions that no longer count, because their client left them idle.
    LeasesEnded = 11,
    /// Connections that never wait, because the library does not understand them.
    NotUnderstood = 12,
    /// Connections that never wait (again), because they may hold locks outside of transactions.
    Holders = 13,
    /// Connections that never wait, because they belong to an administrator.
    Administrators = 14,
    /// Connections of clients on the same host that were replaced by unix sockets.
    Bypassed = 15,
}

impl Counter {
    /// All counters, in the order of the memory.
    pub const ALL: [Self; 16] = [
        Self::Connections,
        Self::Closed,
        Self::Collapsed,
        Self::LeftAlone,
        Self::Requests,
        Self::Calls,
        Self::SystemCalls,
        Self::Entered,
        Self::Waited,
        Self::LetInLate,
        Self::WaitsEnded,
        Self::LeasesEnded,
        Self::NotUnderstood,
        Self::Holders,
        Self::Administrators,
        Self::Bypassed,
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
            Self::Entered => "entered",
            Self::Waited => "waited",
            Self::LetInLate => "let_in_late",
            Self::WaitsEnded => "waits_ended",
            Self::LeasesEnded => "leases_ended",
            Self::NotUnderstood => "not_understood",
            Self::Holders => "holders",
            Self::Administrators => "administrators",
            Self::Bypassed => "bypassed",
        }
    }
}

/// Parsed content of the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Process id of the server.
    pub process_id: u64,
    /// Start of the server, in seconds since 1970.
    pub start_s: u64,
    /// Wanted mode of the collapser.
    pub collapser: Mode,
    /// Observed habit of the server.
    pub habit: Habit,
    /// Whether new connections of clients on this host bypass TCP.
    pub is_bypass_on: bool,
    /// Limit of admission.
    pub limit: Limit,
    /// Maximum idle time of a transaction, in milliseconds; see [`LEASE_WORD`].
    pub lease_ms: u64,
    /// Maximum wait of a connection, in milliseconds; see [`PATIENCE_WORD`].
    pub longest_wait_ms: u64,
    /// Number of admitted connections.
    pub inside: u64,
    /// Number of waiting connections.
    pub waiting: u64,
    /// Maximum duration of an ended wait, in milliseconds.
    pub longest_ended_wait_ms: u64,
    /// The first waiting connections.
    pub waiters: Vec<Waiter>,
    /// Whether new connections bypass the kernel's TCP.
    pub is_user_tcp_on: bool,
    /// Interfaces with TCP in user space.
    pub user_tcp: Vec<UserTcpLink>,
    values: [u64; SHARD_WORDS],
}

impl Snapshot {
    /// Reads the content of the memory.
    ///
    /// # Errors
    /// [`BadMemory`] for any other content.
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
            habit: Habit::from_word(word(HABIT_WORD)?),
            is_bypass_on: word(BYPASS_WORD)? != 0,
            limit: Limit::from_word(word(LIMIT_WORD)?),
            lease_ms: word(LEASE_WORD)?,
            longest_wait_ms: word(PATIENCE_WORD)?,
            inside: word(INSIDE_WORD)?,
            waiting: word(WAITING_WORD)?,
            longest_ended_wait_ms: word(LONGEST_WAIT_WORD)?,
            waiters: Waiter::parse_all(words.get(WAITERS_WORD..).unwrap_or_default(), word(LOOK_WORD)?),
            is_user_tcp_on: word(USER_TCP_WORD)? != 0,
            user_tcp: UserTcpLink::parse_all(words.get(USER_TCP_LINKS_WORD..).unwrap_or_default()),
            values,
        })
    }

    /// Value of a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.values.get(counter as usize).copied().unwrap_or(0)
    }

    /// Number of system calls that were avoided.
    pub fn saved(&self) -> u64 {
        self.get(Counter::Calls).saturating_sub(self.get(Counter::SystemCalls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
        for (text, collapser, limit) in [
            ("", Mode::Auto, None),
            ("off", Mode::Off, None),
            ("auto", Mode::Auto, None),
            ("collapser=read-ahead", Mode::ReadAhead, None),
            ("off, collapser=on", Mode::On, None),
            ("admission=64", Mode::Auto, Some(64)),
            ("on,admission=64,admission=off", Mode::On, None),
        ] {
            let setting = Setting::parse(text).unwrap();
            assert_eq!((setting.collapser, setting.admission.limit.count()), (collapser, limit), "{text}");
            assert_eq!(setting.admission.administrators, ["root"]);
        }
        for text in
            ["yes", "admission=on", "admission=0", "collapser=", "collapser=off=on", "lease=0", "limit=3"]
        {
            let error = Setting::parse(text).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("read-ahead"), "{error}");
        }
        for habit in [Habit::Unknown, Habit::Simple, Habit::Complex] {
            assert_ne!(Mode::Auto.resolved(habit), Mode::Auto);
            assert_eq!(Habit::from_word(habit as u64), habit);
        }
        assert_eq!(Mode::Auto.resolved(Habit::Complex), Mode::Off);
        assert_eq!(Mode::On.resolved(Habit::Complex), Mode::ReadAhead);
    }

    #[test]
    fn settings_are_written_and_read() {
        let text = "on,admission=7,lease=3,longest-wait=4,administrators=a+b,user-tcp=eth0+eth1:zero-copy";
        let setting = Setting::parse(text).unwrap();
        let Admission { lease_ms, longest_wait_ms, administrators, .. } = &setting.admission;
        assert_eq!(setting.user_tcp.len(), 2);
        assert_eq!((*lease_ms, *longest_wait_ms, administrators.len()), (3000, 4000, 2));
        assert_eq!(Setting::parse(&setting.to_value()), Ok(setting));
        let nobody = Setting::parse("administrators=").unwrap();
        assert!(nobody.admission.administrators.is_empty());
        assert_eq!(Setting::parse(&nobody.to_value()), Ok(nobody));
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
        assert_eq!((snapshot.limit.count(), snapshot.waiters.len()), (None, 0));
        assert!(Snapshot::parse(&bytes[..4096]).is_err());
        words[0] += 1;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert!(Snapshot::parse(&bytes).is_err());
    }
}
