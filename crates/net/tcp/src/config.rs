//! Settings of an engine.

use crate::planted::Bug;
use crate::time::Micros;

/// Free send space, in bytes, at which a connection is reported writable. A caller that waited for memory is notified
/// when as much is free.
pub const LOW_WATER_LEN_BYTES: u32 = 16 << 10;
/// With less memory, received data of other connections could leave no connection that much send space.
const LEAST_MEMORY_LEN_BYTES: u64 = 4 * LOW_WATER_LEN_BYTES as u64;

/// Settings of an engine. [`Config::new`] has what suits a database server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Limit of connections, including those that the caller has closed and whose last bytes are still being sent.
    pub max_connections: u32,
    /// Limit of incomplete handshakes of all listeners; beyond it, SYNs get cookies.
    pub max_half_open: u32,
    /// Limit of connections in TIME-WAIT; beyond it, the oldest is evicted.
    pub max_time_wait: u32,
    /// Limit of bytes in one connection's send buffer.
    pub send_buffer_len_bytes: u32,
    /// Limit of received bytes of one connection that the caller has not read yet.
    pub receive_buffer_len_bytes: u32,
    /// Initial window of a connection. It grows to `receive_buffer_len_bytes` if its reader keeps up.
    pub initial_window_len_bytes: u32,
    /// Limit of memory for the data of all connections together.
    pub memory_len_bytes: usize,
    /// Longest IP packet of the link.
    pub mtu_len_bytes: u16,
    /// Key for initial sequence numbers, cookies, timestamps and the connection table. Random and secret.
    pub secret: [u8; 16],
    /// Whether selective acknowledgements are negotiated (RFC 2018).
    pub has_sack: bool,
    /// Whether timestamps are negotiated (RFC 7323).
    pub has_timestamps: bool,
    /// Whether windows are scaled (RFC 7323).
    pub has_window_scaling: bool,
    /// Shortest retransmission timeout. RFC 6298 requires one second; all systems in use have less, and so has this.
    pub min_retransmission_timeout: Micros,
    /// Longest retransmission timeout; 60 seconds or more (RFC 6298, 2.5).
    pub max_retransmission_timeout: Micros,
    /// Longest delay of an acknowledgement; below half a second (RFC 9293, 3.8.6.3).
    pub delayed_acknowledgement: Micros,
    /// Unanswered retransmissions by timeout after which a connection is given up.
    pub max_retransmissions: u8,
    /// The same for a connection that the caller has closed.
    pub max_orphan_retransmissions: u8,
    /// Answers to a SYN that are sent before the handshake is given up.
    pub max_half_open_retransmissions: u8,
    /// Duration of TIME-WAIT: twice the longest lifetime of a segment.
    pub time_wait: Micros,
    /// Time within which a peer must end its side after the caller has closed.
    pub orphan_timeout: Micros,
    /// Limit of answers per second to segments that do not fit their connection (RFC 5961, 7), all together; and as
    /// many resets for segments that belong to no connection.
    pub max_challenges_per_second: u32,
    /// Planted bug that is turned on.
    #[cfg(feature = "planted-bugs")]
    #[doc(hidden)]
    pub planted: Option<Bug>,
}

/// Settings that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A value out of its range.
    #[error("{name} must be from {min} to {max}, not {value}")]
    Range {
        /// The setting.
        name: &'static str,
        /// The rejected value.
        value: u64,
        /// Smallest valid value.
        min: u64,
        /// Largest valid value.
        max: u64,
    },
}

impl Config {
    /// Settings that suit a database server on an Ethernet.
    #[must_use]
    pub fn new(secret: [u8; 16]) -> Self {
        Self {
            max_connections: 10_000,
            max_half_open: 1024,
            max_time_wait: 10_000,
            send_buffer_len_bytes: 1 << 20,
            receive_buffer_len_bytes: 1 << 20,
            initial_window_len_bytes: 64 << 10,
            memory_len_bytes: 256 << 20,
            mtu_len_bytes: 1500,
            secret,
            has_sack: true,
            has_timestamps: true,
            has_window_scaling: true,
            min_retransmission_timeout: Micros::from_millis(200),
            max_retransmission_timeout: Micros::from_secs(60),
            delayed_acknowledgement: Micros::from_millis(40),
            max_retransmissions: 15,
            max_orphan_retransmissions: 8,
            max_half_open_retransmissions: 5,
            time_wait: Micros::from_secs(60),
            orphan_timeout: Micros::from_secs(60),
            max_challenges_per_second: 1000,
            #[cfg(feature = "planted-bugs")]
            planted: None,
        }
    }

    /// # Errors
    /// The first setting that is out of its range.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let window = u64::from(self.receive_buffer_len_bytes);
        let ranges = [
            ("max_connections", u64::from(self.max_connections), 1, 1 << 24),
            ("max_half_open", u64::from(self.max_half_open), 0, 1 << 24),
            ("max_time_wait", u64::from(self.max_time_wait), 0, 1 << 24),
            ("send_buffer_len_bytes", u64::from(self.send_buffer_len_bytes), 4096, 1 << 29),
            ("receive_buffer_len_bytes", window, 4096, 1 << 29),
            ("initial_window_len_bytes", u64::from(self.initial_window_len_bytes), 2048, window),
            ("memory_len_bytes", self.memory_len_bytes as u64, LEAST_MEMORY_LEN_BYTES, 1 << 48),
            ("mtu_len_bytes", u64::from(self.mtu_len_bytes), 576, 65_535),
            ("min_retransmission_timeout", self.min_retransmission_timeout.0, 1000, 60_000_000),
            ("max_retransmission_timeout", self.max_retransmission_timeout.0, 60_000_000, 1 << 40),
            ("delayed_acknowledgement", self.delayed_acknowledgement.0, 0, 499_999),
        ];
        let wrong = ranges.into_iter().find(|(_, value, min, max)| value < min || value > max);
        wrong.map_or(Ok(()), |(name, value, min, max)| Err(ConfigError::Range { name, value, min, max }))
    }

    /// Whether the bug is turned on.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn is_planted(&self, bug: Bug) -> bool {
        self.planted == Some(bug) && !std::hint::black_box(crate::planted::MARKER).is_empty()
    }

    /// Whether the bug is turned on: never, as this build has no planted bugs.
    #[cfg(not(feature = "planted-bugs"))]
    #[inline(always)]
    pub(crate) const fn is_planted(&self, _bug: Bug) -> bool {
        false
    }

    /// The shift of advertised windows: the smallest that can express the largest window.
    pub(crate) fn window_scale(&self) -> u8 {
        (0..14).find(|shift| self.receive_buffer_len_bytes >> shift <= 0xffff).unwrap_or(14)
    }
}
