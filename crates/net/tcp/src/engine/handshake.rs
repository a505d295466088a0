//! From a SYN to an open connection: its state is in a table with a limit, or in a cookie.

use super::Engine;
use crate::connection::{Agreed, Connection, DEFAULT_MSS, clock};
use crate::cookies::{self, Cookies};
use crate::demux::{Key, Target};
use crate::half_open::HalfOpen;
use crate::segment::{self, Flags, Header, Options, Segment, Timestamps};
use crate::sequence::Seq;
use crate::time::Micros;

/// Time until the first answer is repeated (RFC 6298, 2.1). It doubles each time.
const FIRST_TIMEOUT: Micros = Micros::from_secs(1);
/// Minimum time between answers to repeated SYNs.
const MIN_BETWEEN_ANSWERS: Micros = Micros::from_millis(100);

impl Engine {
    /// Processes a segment for a listener that belongs to no connection.
    pub(super) fn receive_new(&mut self, now: Micros, listener: u32, key: Key, segment: &Segment<'_>) {
        let flags = segment.header.flags;
        if flags.has(Flags::RST) {
            return;
        }
        if flags.has(Flags::SYN) && !flags.has(Flags::ACK) {
            return self.receive_syn(now, listener, key, segment, None);
        }
        if !flags.has(Flags::SYN) && self.open_cookie(now, listener, key, segment) {
            return;
        }
        let sent_at = self.listeners.get(listener).and_then(|listener| listener.cookie_at);
        if !segment.payload.is_empty() && sent_at.is_some_and(|at| cookies::may_come_back(now, at)) {
            // The ACK that carries the cookie may have been lost, and this segment does not identify it. The peer
            // retransmits.
            self.counters.dropped.acknowledgement += 1;
            return;
        }
        if self.may_reset(now) {
            self.reply_reset(segment);
        }
    }

    /// Processes a SYN. `ours`: an initial sequence number beyond those of an older connection.
    pub(super) fn receive_syn(
        &mut self,
        now: Micros,
        listener: u32,
        key: Key,
        segment: &Segment<'_>,
        ours: Option<Seq>,
    ) {
        let Some(is_full) = self.listeners.get(listener).map(|listener| listener.is_full()) else { return };
        if is_full || self.connections.is_full() {
            self.counters.dropped.full += 1;
            return;
        }
        let options = &segment.header.options;
        let number = self.number_of(now, &key);
        let agreed = Agreed {
            key,
            ours: ours.map_or(number, |ours| ours.later(number)),
            theirs: segment.header.seq,
            mss: options.mss.unwrap_or(DEFAULT_MSS),
            scale: options.window_scale.filter(|_| self.config.has_window_scaling),
            has_sack: options.sack_permitted && self.config.has_sack,
            timestamp: options.timestamps.filter(|_| self.config.has_timestamps).map(|stamps| stamps.value),
            clock_offset: self.clock_offset_of(&key),
        };
        let due = now.after(FIRST_TIMEOUT.0);
        let half_open = HalfOpen { agreed, listener, retransmissions: 0, answered_at: now, due };
        if let Some(index) = self.half_opens.insert(half_open) {
            self.demux.insert(key, Target::HalfOpen(index));
            let value = clock(now, agreed.clock_offset);
            self.answer_syn(&agreed, value);
        } else {
            self.send_cookie(now, listener, agreed);
        }
    }

    fn send_cookie(&mut self, now: Micros, listener: u32, mut agreed: Agreed) {
        if agreed.timestamp.is_none() {
            // A cookie without a timestamp has no room for them.
            (agreed.scale, agreed.has_sack) = (None, false);
        }
        agreed.ours = self.cookies.number(now, &agreed);
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.cookie_at = Some(now);
        }
        self.counters.cookies_out += 1;
        self.answer_syn(&agreed, Cookies::timestamp(now, &agreed));
    }

    /// Sends SYN and ACK.
    fn answer_syn(&mut self, agreed: &Agreed, timestamp: u32) {
        let headers = segment::headers_len_bytes(agreed.key.local.ip()) as u16;
        let window = self.config.initial_window_len_bytes.min(0xffff) as u16;
        self.reply(Header {
            source: agreed.key.local,
            destination: agreed.key.remote,
            seq: agreed.ours,
            ack: agreed.theirs.plus(1),
            flags: Flags::SYN.with(Flags::ACK),
            window,
            options: Options {
                mss: Some(self.config.mtu_len_bytes - headers),
                window_scale: agreed.scale.map(|_| self.config.window_scale()),
                sack_permitted: agreed.has_sack,
                timestamps: agreed.timestamp.map(|echo| Timestamps { value: timestamp, echo }),
                ..Options::default()
            },
        });
    }

    fn open_cookie(&mut self, now: Micros, listener: u32, key: Key, segment: &Segment<'_>) -> bool {
        let sent_at = self.listeners.get(listener).and_then(|listener| listener.cookie_at);
        if !sent_at.is_some_and(|sent_at| cookies::may_come_back(now, sent_at)) {
            return false;
        }
        let header = &segment.header;
        let (ours, theirs) = (header.ack.minus(1), header.seq.minus(1));
        let Some(mut agreed) = self.cookies.open(now, key, ours, theirs, &header.options) else {
            self.counters.cookies_refused += 1;
            return false;
        };
        agreed.clock_offset = self.clock_offset_of(&key);
        // The peer controls the timestamp's contents: options that this engine does not agree to are not used.
        agreed.scale = agreed.scale.filter(|_| self.config.has_window_scaling);
        agreed.has_sack &= self.config.has_sack;
        agreed.timestamp = agreed.timestamp.filter(|_| self.config.has_timestamps);
        if self.open(now, listener, &agreed, None, segment) {
            self.counters.cookies_accepted += 1;
        }
        true
    }

    /// A segment for a connection in SYN-RECEIVED (RFC 9293, 3.10.7.4).
    pub(super) fn receive_half_open(&mut self, now: Micros, index: u32, segment: &Segment<'_>) {
        let Some(half_open) = self.half_opens.slots.get(index).copied() else { return };
        let (agreed, header, flags) = (half_open.agreed, &segment.header, segment.header.flags);
        let expected = agreed.theirs.plus(1);
        let offset = header.seq.since(expected);
        let window = self.config.initial_window_len_bytes.min(0xffff);
        if flags.has(Flags::RST) {
            if offset == 0 {
                return self.remove_half_open(index);
            }
            self.counters.dropped.reset += 1;
            if offset < window && self.may_challenge(now) {
                self.reply_half_open(now, &agreed);
            }
            return;
        }
        if flags.has(Flags::SYN) {
            if header.seq != agreed.theirs || flags.has(Flags::ACK) {
                self.counters.dropped.syn += 1;
                if self.may_challenge(now) {
                    self.reply_half_open(now, &agreed);
                }
            } else if now.since(half_open.answered_at) >= MIN_BETWEEN_ANSWERS.0 {
                self.answer_again(now, index);
            }
            return;
        }
        if header.ack != agreed.ours.plus(1) {
            // The peer sent two SYNs and answers the other one's cookie.
            self.demux.remove(&agreed.key, Target::HalfOpen(index));
            if self.open_cookie(now, half_open.listener, agreed.key, segment) {
                self.half_opens.remove(index);
                return;
            }
            self.demux.insert(agreed.key, Target::HalfOpen(index));
            self.counters.dropped.acknowledgement += 1;
            if self.may_reset(now) {
                self.reply_reset(segment);
            }
            return;
        }
        let is_old = match (agreed.timestamp, header.options.timestamps) {
            (Some(recent), Some(stamps)) => (stamps.value.wrapping_sub(recent) as i32) < 0,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if offset > window || is_old {
            self.counters.dropped.out_of_window += 1;
            if self.may_challenge(now) {
                self.reply_half_open(now, &agreed);
            }
            return;
        }
        // The first sample, if it is certain which answer was acknowledged (RFC 6298, 3).
        let sample = (half_open.retransmissions == 0).then(|| now.since(half_open.answered_at));
        if self.open(now, half_open.listener, &agreed, sample, segment) {
            self.half_opens.remove(index);
        }
    }

    /// Sends an acknowledgement of the data received so far.
    fn reply_half_open(&mut self, now: Micros, agreed: &Agreed) {
        let value = clock(now, agreed.clock_offset);
        let options = Options {
            timestamps: agreed.timestamp.map(|echo| Timestamps { value, echo }),
            ..Options::default()
        };
        self.reply(Header {
            source: agreed.key.local,
            destination: agreed.key.remote,
            seq: agreed.ours.plus(1),
            ack: agreed.theirs.plus(1),
            flags: Flags::ACK,
            window: 0,
            options,
        });
    }

    /// Completes a handshake with a connection. If the table is full, the peer's next segment tries again.
    fn open(
        &mut self,
        now: Micros,
        listener: u32,
        agreed: &Agreed,
        round_trip_us: Option<u64>,
        segment: &Segment<'_>,
    ) -> bool {
        if self.listeners.get(listener).is_none_or(|listener| listener.is_full()) {
            self.counters.dropped.full += 1;
            return false;
        }
        let window = segment.header.window;
        let mut connection = Connection::new(agreed, window, now, &self.config);
        if let Some(sample) = round_trip_us {
            connection.sample(sample);
        }
        let Some((index, _)) = self.connections.insert(connection) else {
            self.counters.dropped.full += 1;
            return false;
        };
        self.demux.insert(agreed.key, Target::Connection(index));
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.waiting.push_back(index);
        }
        self.counters.opened += 1;
        self.receive_first(now, index, segment);
        true
    }

    pub(super) fn remove_half_open(&mut self, index: u32) {
        if let Some(half_open) = self.half_opens.remove(index) {
            self.demux.remove(&half_open.agreed.key, Target::HalfOpen(index));
        }
    }

    fn answer_again(&mut self, now: Micros, index: u32) {
        let Some(half_open) = self.half_opens.slots.get_mut(index) else { return };
        half_open.answered_at = now;
        half_open.retransmissions = half_open.retransmissions.max(1);
        let agreed = half_open.agreed;
        self.answer_syn(&agreed, clock(now, agreed.clock_offset));
    }

    /// Repeats answers that are due, and gives handshakes up.
    pub(super) fn advance_half_opens(&mut self, now: Micros) {
        while let Some(index) = self.half_opens.timers.fired(now) {
            let max = self.config.max_half_open_retransmissions;
            let Some(half_open) = self.half_opens.slots.get_mut(index) else { continue };
            if half_open.due > now {
                let due = half_open.due;
                self.half_opens.timers.set_by(index, due);
                continue;
            }
            if half_open.retransmissions >= max {
                self.counters.half_open_timed_out += 1;
                self.remove_half_open(index);
                continue;
            }
            half_open.retransmissions += 1;
            half_open.due = now.after(FIRST_TIMEOUT.0 << half_open.retransmissions.min(16));
            let due = half_open.due;
            self.half_opens.timers.set_by(index, due);
            self.answer_again(now, index);
        }
    }
}
