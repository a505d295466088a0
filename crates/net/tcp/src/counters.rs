//! Counters of an engine.

use crate::segment::Refusal;

/// Counters of an engine since its creation. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments that were processed.
    pub segments_in: u64,
    /// Segments that were written.
    pub segments_out: u64,
    /// Bytes of data received in order, each once.
    pub data_in_len_bytes: u64,
    /// Bytes of data sent for the first time.
    pub data_out_len_bytes: u64,
    /// Packets that were refused before processing.
    pub refused: Refused,
    /// Segments that were processed and dropped.
    pub dropped: Dropped,
    /// Connections whose handshake was completed.
    pub opened: u64,
    /// Connections that a peer reset.
    pub reset_by_peer: u64,
    /// Connections that were given up without an answer from the peer.
    pub timed_out: u64,
    /// RSTs that were sent.
    pub resets_out: u64,
    /// RSTs to unknown peers that the rate limit suppressed.
    pub resets_suppressed: u64,
    /// Segments that were retransmitted.
    pub retransmitted: u64,
    /// Losses found by acknowledgements.
    pub fast_recoveries: u64,
    /// Losses found by the retransmission timeout.
    pub retransmission_timeouts: u64,
    /// Tail loss probes.
    pub loss_probes: u64,
    /// Probes of a closed window.
    pub window_probes: u64,
    /// Keepalive probes.
    pub keepalive_probes: u64,
    /// Answers to segments that do not fit their connection.
    pub challenges: u64,
    /// Challenges that the rate limit suppressed.
    pub challenges_suppressed: u64,
    /// SYNs that were answered with a cookie.
    pub cookies_out: u64,
    /// Valid cookies that came back.
    pub cookies_accepted: u64,
    /// Invalid or late cookies that came back.
    pub cookies_refused: u64,
    /// Handshakes that were given up.
    pub half_open_timed_out: u64,
    /// TIME-WAITs that were evicted early.
    pub time_wait_evicted: u64,
}

/// Packets that were refused before processing, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// See [`Refusal::Short`].
    pub short: u64,
    /// See [`Refusal::Version`].
    pub version: u64,
    /// See [`Refusal::IpLength`].
    pub ip_length: u64,
    /// See [`Refusal::Fragment`].
    pub fragment: u64,
    /// See [`Refusal::Protocol`].
    pub protocol: u64,
    /// See [`Refusal::IpChecksum`].
    pub ip_checksum: u64,
    /// See [`Refusal::Address`].
    pub address: u64,
    /// See [`Refusal::Port`].
    pub port: u64,
    /// See [`Refusal::TcpLength`].
    pub tcp_length: u64,
    /// See [`Refusal::TcpChecksum`].
    pub tcp_checksum: u64,
    /// See [`Refusal::Option`].
    pub option: u64,
    /// See [`Refusal::Flags`].
    pub flags: u64,
}

impl Refused {
    pub(crate) fn count(&mut self, refusal: Refusal) {
        *match refusal {
            Refusal::Short => &mut self.short,
            Refusal::Version => &mut self.version,
            Refusal::IpLength => &mut self.ip_length,
            Refusal::Fragment => &mut self.fragment,
            Refusal::Protocol => &mut self.protocol,
            Refusal::IpChecksum => &mut self.ip_checksum,
            Refusal::Address => &mut self.address,
            Refusal::Port => &mut self.port,
            Refusal::TcpLength => &mut self.tcp_length,
            Refusal::TcpChecksum => &mut self.tcp_checksum,
            Refusal::Option => &mut self.option,
            Refusal::Flags => &mut self.flags,
        } += 1;
    }
}

/// Segments that were processed and dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Outside the window.
    pub out_of_window: u64,
    /// Timestamp older than the received ones (PAWS).
    pub old_timestamp: u64,
    /// Acknowledgement of unsent data, or of very old data.
    pub acknowledgement: u64,
    /// Without ACK.
    pub no_acknowledgement: u64,
    /// Data that was received before.
    pub duplicate: u64,
    /// No memory for the data.
    pub memory: u64,
    /// Connections arrive faster than they are accepted, or the connection limit is reached.
    pub full: u64,
    /// Answer that belongs to no connection, with a full queue.
    pub replies: u64,
    /// Reset that does not fit (RFC 5961).
    pub reset: u64,
    /// SYN within a connection.
    pub syn: u64,
}
