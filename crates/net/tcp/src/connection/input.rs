//! A segment for a connection: RFC 9293, 3.10.7.4, step by step, with RFC 5961 (blind attacks) and RFC 7323 (PAWS).

use super::{Connection, Context, clock};
use crate::error::ConnectionError;
use crate::planted::Bug;
use crate::segment::{Flags, Segment};
use crate::time::Micros;

/// Action that a segment requires of the engine, besides the connection's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    None,
    /// A state that the caller can see has changed.
    Changed,
    /// The segment does not fit: a challenge ACK makes a genuine peer repeat itself (RFC 5961). Limited by the engine.
    Challenge,
    /// The caller does not read the data that arrived: the connection is reset.
    Reset,
    /// The peer has reset it.
    WasReset,
}

/// Minimum time between answers to segments without data outside the window. It stops two hosts that answer each
/// other's answers.
const MIN_BETWEEN_ANSWERS: Micros = Micros::from_millis(100);

impl Connection {
    pub(crate) fn receive(&mut self, context: &mut Context<'_>, segment: &Segment<'_>) -> Answer {
        if self.error.is_some() {
            return Answer::None;
        }
        let (now, header, flags) = (context.now, &segment.header, segment.header.flags);
        let is_reset = flags.has(Flags::RST);
        if flags.has(Flags::SYN) {
            // Any sequence number is challenged (RFC 5961, 4.2). The SYN may belong to another connection, so that it
            // need not carry this one's timestamps.
            context.counters.dropped.syn += 1;
            let is_silent = context.config.is_planted(Bug::SynNotChallenged);
            return if !is_silent && self.may_answer(now) { Answer::Challenge } else { Answer::None };
        }
        let timestamps = header.options.timestamps.filter(|_| self.receiver.has_timestamps);
        if self.receiver.has_timestamps && !is_reset {
            let Some(timestamps) = timestamps else {
                context.counters.dropped.old_timestamp += 1;
                return Answer::None;
            };
            let is_taken = context.config.is_planted(Bug::OldTimestampsAccepted);
            if !is_taken && self.receiver.is_old(now, timestamps) {
                context.counters.dropped.old_timestamp += 1;
                return self.answer_out_of_place(now, segment);
            }
        }
        // A reset is judged by its sequence number, whatever text it has (RFC 5961, 3.2).
        let len = if is_reset { 0 } else { segment.len() };
        if !self.receiver.accepts(header.seq, len) {
            if is_reset {
                context.counters.dropped.reset += 1;
                return Answer::None;
            }
            context.counters.dropped.out_of_window += 1;
            return self.answer_out_of_place(now, segment);
        }
        if is_reset {
            if header.seq == self.receiver.next || context.config.is_planted(Bug::ResetAnywhereInWindow) {
                return Answer::WasReset;
            }
            context.counters.dropped.reset += 1;
            return Answer::Challenge;
        }
        if !flags.has(Flags::ACK) {
            context.counters.dropped.no_acknowledgement += 1;
            return Answer::None;
        }
        let is_beyond = match context.config.is_planted(Bug::ComparedWithoutWrapping) {
            true => header.ack.0 > self.sender.next.0,
            false => header.ack.is_after(self.sender.next),
        };
        if is_beyond || header.ack.is_before(self.sender.first.minus(self.sender.max_window)) {
            context.counters.dropped.acknowledgement += 1;
            return Answer::Challenge;
        }
        (self.heard_at, self.is_heard) = (now, true);
        self.keepalive_unanswered = 0;
        if let Some(timestamps) = timestamps {
            self.receiver.take_timestamp(now, header.seq, timestamps);
        }
        self.take(context, segment)
    }

    /// Step five and later: the segment belongs to this connection.
    fn take(&mut self, context: &mut Context<'_>, segment: &Segment<'_>) -> Answer {
        let header = &segment.header;
        let echoed = header.options.timestamps.filter(|_| self.receiver.has_timestamps);
        let echoed = echoed.map(|stamps| clock(context.now, self.clock_offset).wrapping_sub(stamps.echo));
        // An echo from the future, or from too long ago, is ignored.
        let echoed = echoed.filter(|millis| *millis < 1 << 18).map(|millis| u64::from(millis) * 1000);
        let has_data = !segment.is_empty();
        let was_finished = self.sender.finish;
        self.sender.acknowledge(context, header, has_data, echoed);
        if header.window == 0 && !self.is_orphan {
            // The peer is alive with a closed window. That ends no connection, even if the window was taken back (RFC
            // 9293, 3.8.6).
            self.sender.unanswered = 0;
        }
        let mut has_changed = was_finished != self.sender.finish;
        if has_data {
            let is_new = header.seq.plus(segment.payload.len() as u32).is_after(self.receiver.next);
            if self.is_orphan && !segment.payload.is_empty() && is_new && !self.receiver.has_ended {
                return Answer::Reset;
            }
            let arrived =
                self.receiver.take(context, header.seq, segment.payload, header.flags.has(Flags::FIN));
            has_changed |= arrived.len_bytes > 0 || arrived.has_ended;
        }
        has_changed |= self.has_room_again(context.config, context.pool);
        if has_changed { Answer::Changed } else { Answer::None }
    }

    /// Acknowledges a segment that does not fit, so that the peer gets the expected numbers. Data that was received
    /// before is answered each time: its sender waits.
    fn answer_out_of_place(&mut self, now: Micros, segment: &Segment<'_>) -> Answer {
        let is_known = segment.header.seq.is_before(self.receiver.next);
        if is_known && !segment.is_empty() {
            if !segment.payload.is_empty() {
                let end = segment.header.seq.plus(segment.payload.len() as u32);
                self.receiver.duplicate = Some((segment.header.seq, end.earlier(self.receiver.next)));
            }
            self.receiver.acknowledge_now();
        } else if self.may_answer(now) {
            // Possibly a keepalive probe. Segments from unrelated hosts do not count against this limit.
            self.receiver.acknowledge_now();
        }
        Answer::None
    }

    fn may_answer(&mut self, now: Micros) -> bool {
        let may = self.challenged_at == Micros(0) || now.since(self.challenged_at) >= MIN_BETWEEN_ANSWERS.0;
        if may {
            self.challenged_at = now;
        }
        may
    }

    /// Sends an acknowledgement, whatever the segment was.
    pub(crate) fn challenge(&mut self) {
        self.receiver.acknowledge_now();
    }

    pub(crate) fn peer_reset(&mut self, context: &mut Context<'_>) {
        self.fail(context, ConnectionError::Reset);
        context.counters.reset_by_peer += 1;
    }
}
