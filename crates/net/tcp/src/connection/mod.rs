//! A connection from the end of its handshake on (RFC 9293, 3.3.2).
//!
//! Its state is the progress of each side's end: [`Finish`] for ours, `receiver.has_ended` for the peer's.
//! [`Connection::state`] returns the name of RFC 9293. SYN-RECEIVED is in [`crate::half_open`], TIME-WAIT in
//! [`crate::time_wait`].
//!
//! | module | owns |
//! |---|---|
//! | `input` | whether a segment is acceptable, and its effects |
//! | `output` | writing the next segment |
//! | `sender` | which segments may be sent, timers of data in flight |
//! | `acknowledge` | effects of an acknowledgement on data in flight, loss recovery |
//! | `scoreboard` | which segments are in flight, have arrived, are lost |
//! | `round_trip`, `congestion` | timeouts, windows |
//! | `receiver` | incoming data, when to acknowledge it |

mod acknowledge;
mod congestion;
mod input;
mod output;
mod receiver;
mod round_trip;
mod scoreboard;
mod sender;

use crate::buffers::{Pool, ReceiveBuffer, SendBuffer};
use crate::config::Config;
use crate::counters::Counters;
use crate::demux::Key;
use crate::error::ConnectionError;
use crate::segment;
use crate::sequence::Seq;
use crate::time::Micros;
pub(crate) use input::Answer;
use receiver::{Acknowledge, Receiver};
use round_trip::RoundTrip;
use scoreboard::Scoreboard;
pub(crate) use scoreboard::Spare;
pub(crate) use sender::Finish;
use sender::{Probe, Recovery, Sender, Timer};

/// The parts of the engine that a connection uses.
pub(crate) struct Context<'e> {
    pub(crate) now: Micros,
    pub(crate) config: &'e Config,
    pub(crate) pool: &'e mut Pool,
    pub(crate) spare: &'e mut Spare,
    pub(crate) counters: &'e mut Counters,
}

/// Result of the handshake, on which both sides agreed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) key: Key,
    /// Initial sequence numbers.
    pub(crate) ours: Seq,
    pub(crate) theirs: Seq,
    /// The peer's maximum segment size, without options.
    pub(crate) mss: u16,
    /// The peer's shift, if windows are scaled.
    pub(crate) scale: Option<u8>,
    pub(crate) has_sack: bool,
    /// The peer's last timestamp, if they are used.
    pub(crate) timestamp: Option<u32>,
    /// Offset that is added to the clock for our timestamps.
    pub(crate) clock_offset: u32,
}

/// Keepalive probes to an idle peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle time before the first probe.
    pub idle: Micros,
    /// Time between probes.
    pub interval: Micros,
    /// Unanswered probes after which the connection is given up.
    pub probes: u8,
}

/// A connection from the end of its handshake on (RFC 9293, 3.3.2).
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) key: Key,
    sender: Sender,
    receiver: Receiver,
    clock_offset: u32,
    /// The caller has closed the connection and its id is stale.
    pub(crate) is_orphan: bool,
    /// Our FIN was the first: TIME-WAIT is on this side.
    closed_first: bool,
    pub(crate) error: Option<ConnectionError>,
    keepalive: Option<Keepalive>,
    keepalive_unanswered: u8,
    heard_at: Micros,
    /// The last segment fitted this connection.
    pub(crate) is_heard: bool,
    challenged_at: Micros,
    user_timeout: Micros,
    /// Deadline of an orphan whose peer does not end its side.
    pub(crate) lives_until: Micros,
    /// The caller has accepted the connection.
    pub(crate) is_accepted: bool,
}

/// Maximum segment size without an option (RFC 9293, 3.7.1).
pub(crate) const DEFAULT_MSS: u16 = 536;
/// Smallest maximum segment size. A smaller one would make segments of little but headers.
const MIN_MSS: u16 = 64;

/// Timestamp clock in milliseconds.
pub(crate) fn clock(now: Micros, offset: u32) -> u32 {
    ((now.0 / 1000) as u32).wrapping_add(offset)
}

impl Connection {
    pub(crate) fn new(agreed: &Agreed, window: u16, now: Micros, config: &Config) -> Self {
        let headers = segment::headers_len_bytes(agreed.key.remote.ip()) as u32;
        let options =
            if agreed.timestamp.is_some() { segment::options::TIMESTAMPS_LEN_BYTES as u32 } else { 0 };
        let local_mss = u32::from(config.mtu_len_bytes) - headers;
        let mss = u32::from(agreed.mss.max(MIN_MSS)).min(local_mss) - options;
        let scale = if agreed.scale.is_some() { config.window_scale() } else { 0 };
        let (ours, theirs) = (agreed.ours.plus(1), agreed.theirs.plus(1));
        let limit = config.initial_window_len_bytes;
        Self {
            key: agreed.key,
            sender: Sender::new(ours, theirs, mss, agreed, window),
            receiver: Receiver {
                next: theirs,
                edge: theirs.plus(limit.min(0xffff)),
                limit,
                scale,
                mss: local_mss - options,
                has_sack: agreed.has_sack,
                has_timestamps: agreed.timestamp.is_some(),
                has_ended: false,
                is_discarded: false,
                fin: None,
                buffer: ReceiveBuffer::default(),
                recent: agreed.timestamp.unwrap_or(0),
                recent_at: now,
                last_acknowledged: theirs,
                acknowledge: Acknowledge::No,
                acknowledge_at: Micros::NEVER,
                unacknowledged: 0,
                duplicate: None,
                read_bytes: 0,
                read_from: now,
            },
            clock_offset: agreed.clock_offset,
            is_orphan: false,
            closed_first: false,
            error: None,
            keepalive: None,
            keepalive_unanswered: 0,
            heard_at: now,
            is_heard: false,
            challenged_at: Micros(0),
            user_timeout: Micros::NEVER,
            lives_until: Micros::NEVER,
            is_accepted: false,
        }
    }

    /// The connection sends and receives nothing any longer.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state(), State::Closed | State::TimeWait)
    }

    /// The name of RFC 9293.
    pub(crate) fn state(&self) -> State {
        if self.error.is_some() {
            return State::Closed;
        }
        match (self.sender.finish, self.receiver.has_ended) {
            (Finish::Open | Finish::Wanted, false) => State::Established,
            (Finish::Open | Finish::Wanted, true) => State::CloseWait,
            (Finish::Sent, false) => State::FinWait1,
            (Finish::Sent, true) if self.closed_first => State::Closing,
            (Finish::Sent, true) => State::LastAck,
            (Finish::Acknowledged, false) => State::FinWait2,
            (Finish::Acknowledged, true) if self.closed_first => State::TimeWait,
            (Finish::Acknowledged, true) => State::Closed,
        }
    }

    pub(crate) fn readable(&self) -> u32 {
        self.receiver.buffer.readable()
    }

    pub(crate) fn peer_has_ended(&self) -> bool {
        self.receiver.has_ended
    }

    pub(crate) fn reads_no_more(&self) -> bool {
        self.receiver.is_discarded
    }

    pub(crate) fn finish(&self) -> Finish {
        self.sender.finish
    }

    /// Bytes that may still be sent without waiting.
    pub(crate) fn writable(&self, config: &Config, pool: &Pool) -> u32 {
        if self.sender.finish != Finish::Open || self.error.is_some() {
            return 0;
        }
        let free = config.send_buffer_len_bytes.saturating_sub(self.sender.buffer.len());
        free.min(self.sendable(pool))
    }

    /// Bytes for which the pool has memory.
    pub(crate) fn sendable(&self, pool: &Pool) -> u32 {
        let len_bytes = pool.sendable_len_bytes(self.sender.buffer.chunks());
        u32::try_from(len_bytes).unwrap_or(u32::MAX)
    }

    /// Bytes that were not sent yet.
    pub(crate) fn unsent(&self) -> u32 {
        if self.error.is_some() { 0 } else { self.sender.unsent() }
    }

    /// Takes the caller's bytes and returns how many were accepted.
    pub(crate) fn send(&mut self, context: &mut Context<'_>, data: &[u8]) -> usize {
        if self.sender.unsent() == 0 && self.sender.board.is_empty() {
            self.sender.is_about_to_send(context.now, context.config);
        }
        let max = context.config.send_buffer_len_bytes;
        let count = self.sender.buffer.push(context.pool, data, max);
        self.sender.is_blocked |= count < data.len();
        self.sender.arm_if_held(context.now, context.config);
        count
    }

    pub(crate) fn read(&mut self, context: &mut Context<'_>, out: &mut [u8]) -> usize {
        let count = self.receiver.buffer.read(context.pool, out);
        let (round_trip, max) = (self.sender.round_trip.smoothed, context.config.receive_buffer_len_bytes);
        self.receiver.was_read(context.now, count as u32, round_trip, max);
        count
    }

    /// Ends sending: the caller has no more data.
    pub(crate) fn end_sending(&mut self) {
        if self.sender.finish == Finish::Open {
            self.sender.finish = Finish::Wanted;
        }
    }

    /// Ends reading: incoming data is acknowledged and discarded.
    pub(crate) fn end_reading_in(&mut self, context: &mut Context<'_>) {
        self.receiver.is_discarded = true;
        let waiting = self.receiver.buffer.readable();
        self.receiver.buffer.discard(context.pool, waiting);
        self.receiver.was_read(context.now, waiting, 0, context.config.receive_buffer_len_bytes);
    }

    /// Records the handshake's round trip.
    pub(crate) fn sample(&mut self, micros: u64) {
        self.sender.round_trip.sample(micros);
    }

    pub(crate) fn set_no_delay(&mut self, no_delay: bool) {
        self.sender.no_delay = no_delay;
    }

    pub(crate) fn set_keepalive(&mut self, keepalive: Option<Keepalive>) {
        self.keepalive = keepalive;
        self.keepalive_unanswered = 0;
    }

    pub(crate) fn set_user_timeout(&mut self, timeout: Option<Micros>) {
        self.user_timeout = timeout.unwrap_or(Micros::NEVER);
    }

    /// The next sequence numbers of both sides, for a segment that ends or closes it.
    pub(crate) fn next_seqs(&self) -> (Seq, Seq) {
        (self.sender.next, self.receiver.next)
    }

    pub(crate) fn clock_offset(&self) -> u32 {
        self.clock_offset
    }

    /// The peer's last timestamp, if they are used.
    pub(crate) fn recent_timestamp(&self) -> Option<u32> {
        self.receiver.has_timestamps.then_some(self.receiver.recent)
    }

    /// Whether enough room has become free since a send was accepted only in part.
    pub(crate) fn has_room_again(&mut self, config: &Config, pool: &Pool) -> bool {
        // Not for each acknowledgement, but for a third of the buffer.
        self.sender.is_blocked
            && self.writable(config, pool) >= config.send_buffer_len_bytes / 3
            && std::mem::take(&mut self.sender.is_blocked)
    }

    /// When [`Connection::advance`] has something to do.
    pub(crate) fn next_timer(&self) -> Micros {
        if self.is_over() {
            return Micros::NEVER;
        }
        let keepalive = self.keepalive.map_or(Micros::NEVER, |keepalive| self.keepalive_at(keepalive));
        let user = if self.sender.board.is_empty() && self.sender.unsent() == 0 {
            Micros::NEVER
        } else {
            self.sender.timed_out_from().after(self.user_timeout.0)
        };
        self.sender
            .next_timer()
            .min(self.receiver.acknowledge_at)
            .min(self.lives_until)
            .min(keepalive)
            .min(user)
    }

    fn keepalive_at(&self, keepalive: Keepalive) -> Micros {
        let probes = u64::from(self.keepalive_unanswered);
        self.heard_at.after(keepalive.idle.0).after(probes.saturating_mul(keepalive.interval.0))
    }

    /// Handles the timers that are due. `false`: the connection is given up.
    pub(crate) fn advance(&mut self, context: &mut Context<'_>) -> bool {
        let now = context.now;
        if self.is_over() {
            return true;
        }
        if self.lives_until <= now {
            return false;
        }
        let has_data = !self.sender.board.is_empty() || self.sender.unsent() > 0;
        if has_data && self.sender.timed_out_from().after(self.user_timeout.0) <= now {
            return false;
        }
        if self.receiver.acknowledge_at <= now {
            self.receiver.acknowledge_at = Micros::NEVER;
            self.receiver.acknowledge_now();
        }
        if let Some(keepalive) = self.keepalive
            && self.keepalive_at(keepalive) <= now
        {
            if self.keepalive_unanswered >= keepalive.probes {
                return false;
            }
            self.keepalive_unanswered += 1;
            // Data in flight probes the peer already.
            if self.sender.board.is_empty() {
                self.sender.probe = Probe::Empty;
                context.counters.keepalive_probes += 1;
            }
        }
        let max = match self.is_orphan {
            true => context.config.max_orphan_retransmissions,
            false => context.config.max_retransmissions,
        };
        self.sender.advance(context, max, self.is_orphan)
    }

    /// Ends the connection with an error: only its state is left for the caller.
    pub(crate) fn fail(&mut self, context: &mut Context<'_>, error: ConnectionError) {
        self.error = Some(error);
        self.release_in(context);
    }

    /// Releases all memory.
    pub(crate) fn release_in(&mut self, context: &mut Context<'_>) {
        self.sender.buffer.clear(context.pool);
        self.sender.board.clear(context.spare);
        self.receiver.buffer.clear(context.pool);
    }

    /// Chunks in use.
    pub(crate) fn chunks(&self) -> usize {
        self.sender.buffer.chunks() + self.receiver.buffer.chunks()
    }

    /// Bytes on the heap.
    pub(crate) fn memory_len_bytes(&self) -> usize {
        self.sender.buffer.memory_len_bytes()
            + self.sender.board.memory_len_bytes()
            + self.receiver.buffer.memory_len_bytes()
    }

    /// Asserts the invariants, for tests.
    pub(crate) fn require_sound(&self, config: &Config) {
        if self.error.is_some() {
            return;
        }
        self.sender.board.require_sound(self.sender.first, self.sender.next);
        assert!(self.sender.buffer.len() <= config.send_buffer_len_bytes);
        let slack = (1 << self.receiver.scale) + 1;
        assert!(
            self.receiver.edge.since(self.receiver.next)
                <= config.receive_buffer_len_bytes.max(0xffff) + slack
        );
        assert!(self.readable() <= config.receive_buffer_len_bytes + slack);
    }
}

/// States of a connection (RFC 9293, 3.3.2) that exist after the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the RFC's")]
pub enum State {
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

impl Sender {
    fn new(ours: Seq, theirs: Seq, mss: u32, agreed: &Agreed, window: u16) -> Self {
        let scale = agreed.scale.unwrap_or(0);
        // The window of a SYN is not scaled; of the ACK after it, it is.
        let window = u32::from(window) << scale;
        Self {
            first: ours,
            next: ours,
            window,
            max_window: window,
            update_seq: theirs,
            scale,
            has_sack: agreed.has_sack,
            no_delay: false,
            is_blocked: false,
            override_small: false,
            mss,
            buffer: SendBuffer::default(),
            board: Scoreboard::new(ours),
            round_trip: RoundTrip::new(),
            congestion: congestion::Congestion::new(mss),
            finish: Finish::Open,
            recovery: Recovery::Open,
            recovery_point: ours,
            reduction: [0; 3],
            duplicates: 0,
            duplicate_bytes: 0,
            probe: Probe::None,
            probe_end: None,
            timer: Timer::Retransmission,
            timer_at: Micros::NEVER,
            timed_from: Micros(0),
            reordered_at: Micros::NEVER,
            last_sent_at: Micros(0),
            waiting_from: Micros(0),
            unanswered: 0,
        }
    }
}
