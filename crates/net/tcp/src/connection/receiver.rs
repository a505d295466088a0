//! Receiving: the window that the peer may use, data in and out of order, and when to acknowledge it (RFC 9293, 3.8.6;
//! RFC 5681, 4.2; RFC 2018, 4; RFC 2883; RFC 7323, 4 and 5).
//!
//! Invariants: the window's right edge never goes back, and data beyond it is not accepted. So a connection holds at
//! most `limit` bytes, rounded up to what a scaled window can express.

use super::Context;
use crate::buffers::ReceiveBuffer;
use crate::planted::Bug;
use crate::segment::{Options, Timestamps};
use crate::sequence::Seq;
use crate::time::Micros;

/// Whether an acknowledgement must be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acknowledge {
    No,
    /// The acknowledgement may wait for data.
    Later,
    Now,
}

/// Result of processing a segment's payload.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrived {
    /// Bytes that can be read now.
    pub(crate) len_bytes: u32,
    /// The peer's FIN is reached.
    pub(crate) has_ended: bool,
}

/// State of the receiving side.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// The next byte that is expected (RCV.NXT).
    pub(super) next: Seq,
    /// The right edge of the advertised window.
    pub(super) edge: Seq,
    /// Limit of bytes that wait to be read.
    pub(super) limit: u32,
    pub(super) scale: u8,
    pub(super) mss: u32,
    pub(super) has_sack: bool,
    pub(super) has_timestamps: bool,
    /// FIN was received, and all data before it.
    pub(super) has_ended: bool,
    /// Reading has ended: incoming data is discarded.
    pub(super) is_discarded: bool,
    pub(super) fin: Option<Seq>,
    pub(super) buffer: ReceiveBuffer,
    /// TS.Recent, and when it was set.
    pub(super) recent: u32,
    pub(super) recent_at: Micros,
    pub(super) last_acknowledged: Seq,
    pub(super) acknowledge: Acknowledge,
    pub(super) acknowledge_at: Micros,
    /// Bytes since the last acknowledgement.
    pub(super) unacknowledged: u32,
    /// The last range that arrived twice, to be reported (RFC 2883).
    pub(super) duplicate: Option<(Seq, Seq)>,
    /// Bytes read since `read_from`.
    pub(super) read_bytes: u32,
    pub(super) read_from: Micros,
}

/// Age beyond which a timestamp is not valid (RFC 7323, 5.5).
const MAX_RECENT_AGE: Micros = Micros::from_secs(24 * 86_400);

impl Receiver {
    /// RFC 9293, 3.10.7.4, first step.
    pub(super) fn accepts(&self, seq: Seq, len: u32) -> bool {
        let window = self.edge.since(self.next);
        let is_inside = |at: Seq| at.since(self.next) < window;
        match (len, window) {
            (0, 0) => seq == self.next,
            (0, _) => is_inside(seq),
            // A closed window accepts no data, but it lets acknowledgements through (RFC 9293, 3.10.7.4).
            (_, 0) => seq == self.next,
            _ => is_inside(seq) || is_inside(seq.plus(len - 1)),
        }
    }

    /// PAWS (RFC 7323, 5): whether the segment is older than the received ones.
    pub(super) fn is_old(&self, now: Micros, timestamps: Timestamps) -> bool {
        (timestamps.value.wrapping_sub(self.recent) as i32) < 0
            && now.since(self.recent_at) < MAX_RECENT_AGE.0
    }

    /// RFC 7323, 4.3.
    pub(super) fn take_timestamp(&mut self, now: Micros, seq: Seq, timestamps: Timestamps) {
        if !seq.is_after(self.last_acknowledged) {
            self.recent = timestamps.value;
            self.recent_at = now;
        }
    }

    pub(super) fn acknowledge_now(&mut self) {
        self.acknowledge = Acknowledge::Now;
    }

    /// Processes the data of an acceptable segment.
    pub(super) fn take(
        &mut self,
        context: &mut Context<'_>,
        seq: Seq,
        payload: &[u8],
        has_fin: bool,
    ) -> Arrived {
        let mut arrived = Arrived::default();
        if self.has_ended {
            // All data was received before.
            self.acknowledge_now();
            return arrived;
        }
        if has_fin && self.fin.is_none() {
            let fin = seq.plus(payload.len() as u32);
            if !fin.is_after(self.edge) && !fin.is_before(self.next) {
                self.fin = Some(fin);
            }
        }
        if !payload.is_empty() {
            arrived.len_bytes = self.take_data(context, seq, payload);
        } else if has_fin {
            self.acknowledge_now();
        }
        if self.fin.is_some_and(|fin| !fin.is_after(self.next)) {
            self.next = self.next.plus(if context.config.is_planted(Bug::FinCountedTwice) { 2 } else { 1 });
            self.edge = self.edge.later(self.next);
            self.has_ended = true;
            arrived.has_ended = true;
            self.acknowledge_now();
        }
        arrived
    }

    fn take_data(&mut self, context: &mut Context<'_>, seq: Seq, payload: &[u8]) -> u32 {
        let end = seq.plus(payload.len() as u32);
        let known_end = self.fin.unwrap_or(self.edge).earlier(self.edge);
        // Lengths of the part that arrived before and of the part beyond the window or the FIN.
        let before = if seq.is_before(self.next) { self.next.since(seq) as usize } else { 0 };
        let beyond = if end.is_after(known_end) { end.since(known_end) as usize } else { 0 };
        let kept = payload.len().saturating_sub(beyond);
        let wanted = match context.config.is_planted(Bug::OverlapCopiedFromStart) {
            true => 0..kept.saturating_sub(before),
            false => before..kept,
        };
        let data = payload.get(wanted).unwrap_or_default();
        if before > 0 {
            self.duplicate = Some((seq, self.next.earlier(end)));
            self.acknowledge_now();
        }
        if data.is_empty() {
            self.acknowledge_now();
            let dropped = &mut context.counters.dropped;
            *(if before > 0 { &mut dropped.duplicate } else { &mut dropped.out_of_window }) += 1;
            return 0;
        }
        let offset = seq.later(self.next).since(self.next);
        if offset > 0 && self.buffer.has_early(offset, data.len() as u32) {
            self.duplicate = Some((seq, end));
        }
        let had_gap = self.buffer.has_gap();
        let Some(more) = self.buffer.insert(context.pool, offset, data) else {
            context.counters.dropped.memory += 1;
            self.acknowledge_now();
            return 0;
        };
        self.next = self.next.plus(more);
        context.counters.data_in_len_bytes += u64::from(more);
        if self.is_discarded {
            self.buffer.discard(context.pool, more);
        }
        self.unacknowledged += more;
        if offset > 0 || had_gap || self.unacknowledged >= 2 * self.mss {
            self.acknowledge_now();
        } else if self.acknowledge == Acknowledge::No {
            self.acknowledge = Acknowledge::Later;
            let is_forgotten = context.config.is_planted(Bug::DelayedAckNeverSent);
            self.acknowledge_at = if is_forgotten {
                Micros::NEVER
            } else {
                context.now.after(context.config.delayed_acknowledgement.0)
            };
        }
        more
    }

    /// The right edge that the window would have now.
    fn right_edge(&self) -> Seq {
        let free = self.limit.saturating_sub(self.buffer.readable());
        let edge = self.next.plus(free);
        if !edge.is_after(self.edge) {
            return self.edge;
        }
        // Silly windows are not advertised (RFC 9293, 3.8.6.2.2).
        let is_worth_it = edge.since(self.edge) >= (self.limit / 2).min(self.mss);
        if is_worth_it { edge } else { self.edge }
    }

    /// Window of a segment sent now, as on the wire, and its right edge.
    fn window(&self) -> (u16, Seq) {
        let window = self.right_edge().since(self.next);
        let mut shifted = window >> self.scale;
        // Rounding down would move the edge back.
        if self.next.plus(shifted << self.scale).is_before(self.edge) {
            shifted += 1;
        }
        let shifted = shifted.min(0xffff);
        (shifted as u16, self.next.plus(shifted << self.scale))
    }

    /// Records that a segment is sent, which acknowledges everything, and returns its window.
    pub(super) fn acknowledged(&mut self) -> u16 {
        let (window, edge) = self.window();
        self.edge = self.edge.later(edge);
        self.last_acknowledged = self.next;
        self.acknowledge = Acknowledge::No;
        self.acknowledge_at = Micros::NEVER;
        self.unacknowledged = 0;
        window
    }

    /// Adds the SACK blocks: a duplicate first, then ranges behind gaps, beginning with the one that changed last.
    pub(super) fn blocks(&mut self, options: &mut Options) {
        let duplicate = self.duplicate.take();
        if !self.has_sack {
            return;
        }
        if let Some((start, end)) = duplicate {
            options.sack.push(start, end);
        }
        if !self.buffer.has_gap() {
            return;
        }
        let base = self.next.minus(self.buffer.readable());
        for range in self.buffer.early() {
            if !options.sack.push(base.plus(range.start), base.plus(range.end)) {
                break;
            }
        }
    }

    /// Records that bytes were read: the window may open, and it grows if the reader keeps up with a round trip's data.
    pub(super) fn was_read(&mut self, now: Micros, bytes: u32, round_trip_us: u32, max: u32) {
        self.read_bytes = self.read_bytes.saturating_add(bytes);
        if now.since(self.read_from) > u64::from(round_trip_us.max(1000)) {
            if self.read_bytes > self.limit / 2 {
                self.limit = self.limit.saturating_mul(2).min(max);
            }
            (self.read_bytes, self.read_from) = (0, now);
        }
        if self.has_ended {
            return;
        }
        let opened = self.right_edge().since(self.edge);
        let was = self.edge.since(self.next);
        if opened >= (2 * self.mss).min(self.limit / 2) && (opened >= was || opened >= self.limit / 4) {
            self.acknowledge_now();
        }
    }
}
