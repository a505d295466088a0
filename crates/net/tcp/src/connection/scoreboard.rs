//! Sent segments that are not acknowledged, and the loss detection among them: RACK (RFC 8985, 6) with selective
//! acknowledgements (RFC 2018).
//!
//! RACK is based on time: a segment is lost if a segment sent later has arrived, and the time for reordering is over.
//! So it detects the loss of a retransmission, too, unlike counting of duplicates (RFC 6675).
//!
//! Invariants: segments are contiguous, from the first unacknowledged byte to the next to be sent. `in_flight` counts
//! the bytes of segments that are neither marked lost nor known to have arrived; `lost` counts those that are to be
//! sent again.

use std::collections::VecDeque;

use super::round_trip::RoundTrip;
use crate::sequence::Seq;
use crate::time::Micros;

const SACKED: u8 = 1;
const LOST: u8 = 2;
/// Was sent more than once.
const RETRANSMITTED: u8 = 4;

/// Segments received out of order after which reordering is not waited for, as long as none was ever seen.
const DUPLICATE_THRESHOLD: u32 = 3;
/// Recoveries after which a widened reordering window is reset.
const WINDOW_PERSISTS: u8 = 16;

/// A segment that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// Time of the last transmission.
    at: Micros,
    pub(crate) start: Seq,
    /// Length including FIN.
    pub(crate) len: u32,
    marks: u8,
}

impl Sent {
    fn end(&self) -> Seq {
        self.start.plus(self.len)
    }

    fn has(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }
}

/// Spare segment queues of connections without data in flight, for reuse.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    queues: Vec<VecDeque<Sent>>,
}

const MAX_SPARE: usize = 64;
const MAX_SPARE_SEGMENTS: usize = 1024;

impl Spare {
    fn take(&mut self, queue: &mut VecDeque<Sent>) {
        if queue.capacity() == 0 {
            *queue = self.queues.pop().unwrap_or_default();
        }
    }

    fn give(&mut self, queue: &mut VecDeque<Sent>) {
        let queue = std::mem::take(queue);
        if queue.capacity() != 0 && queue.capacity() <= MAX_SPARE_SEGMENTS && self.queues.len() < MAX_SPARE {
            self.queues.push(queue);
        }
    }
}

/// Data that an acknowledgement newly covers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivered {
    /// Bytes that are newly known to have arrived.
    pub(crate) bytes: u32,
    /// Send time of the latest segment that was sent only once.
    pub(crate) sent_once_at: Option<Micros>,
    /// Selective acknowledgements contributed.
    pub(crate) has_sacked: bool,
}

/// Unacknowledged segments in order, with totals by mark.
#[derive(Debug)]
pub(crate) struct Scoreboard {
    sent: VecDeque<Sent>,
    pub(crate) in_flight: u32,
    pub(crate) lost: u32,
    sacked_segments: u32,
    retransmitted_segments: u32,
    /// No segment before this number is marked lost.
    first_lost: Seq,
    /// Properties of the last-sent segment that has arrived (RACK.xmit_ts, RACK.end_seq, RACK.rtt).
    latest: (Micros, Seq),
    round_trip_us: u32,
    /// End of the received data (RACK.fack).
    forward: Seq,
    reordering_seen: bool,
    /// Reordering window in quarters of the minimum round trip.
    window_quarters: u8,
    window_persists: u8,
    duplicate_round: Option<Seq>,
}

impl Scoreboard {
    pub(crate) fn new(first: Seq) -> Self {
        Self {
            sent: VecDeque::new(),
            in_flight: 0,
            lost: 0,
            sacked_segments: 0,
            retransmitted_segments: 0,
            first_lost: first,
            latest: (Micros(0), first),
            round_trip_us: 0,
            forward: first,
            reordering_seen: false,
            window_quarters: 1,
            window_persists: WINDOW_PERSISTS,
            duplicate_round: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }

    pub(crate) fn has_sacked(&self) -> bool {
        self.sacked_segments > 0
    }

    /// Adds a new segment.
    pub(crate) fn push(&mut self, spare: &mut Spare, now: Micros, start: Seq, len: u32) {
        spare.take(&mut self.sent);
        self.sent.push_back(Sent { at: now, start, len, marks: 0 });
        self.in_flight += len;
    }

    /// The first segment that must be sent again.
    pub(crate) fn next_lost(&self) -> Option<Sent> {
        if self.lost == 0 {
            return None;
        }
        let from = self.sent.partition_point(|segment| segment.start.is_before(self.first_lost));
        self.sent.range(from..).find(|segment| segment.has(LOST)).copied()
    }

    /// The last segment, for a probe.
    pub(crate) fn last(&self) -> Option<Sent> {
        self.sent.back().copied()
    }

    /// Records that the segment at `start` is sent again.
    pub(crate) fn retransmitted(&mut self, now: Micros, start: Seq) {
        let index = self.sent.partition_point(|segment| segment.start.is_before(start));
        let Some(segment) = self.sent.get_mut(index) else { return };
        if segment.has(LOST) {
            self.lost -= segment.len;
            self.in_flight += segment.len;
            self.first_lost = segment.end();
        }
        if !segment.has(RETRANSMITTED) {
            self.retransmitted_segments += 1;
        }
        segment.marks = segment.marks & SACKED | RETRANSMITTED;
        segment.at = now;
    }

    fn leave_flight(&mut self, segment: Sent) {
        if segment.has(LOST) {
            self.lost -= segment.len;
        } else if !segment.has(SACKED) {
            self.in_flight -= segment.len;
        }
    }

    fn delivered(&mut self, segment: Sent, into: &mut Delivered, round_trip: &RoundTrip, now: Micros) {
        into.bytes += segment.len;
        let end = segment.end();
        if segment.has(RETRANSMITTED) {
            // Ambiguous transmission; too early for the last one.
            if now.since(segment.at) < u64::from(round_trip.min) {
                return;
            }
        } else {
            into.sent_once_at = into.sent_once_at.max(Some(segment.at));
            if end.is_before(self.forward) {
                self.reordering_seen = true;
            }
        }
        self.forward = self.forward.later(end);
        self.round_trip_us = now.since(segment.at).min(u64::from(u32::MAX)) as u32;
        if self.latest.0 < segment.at || self.latest.0 == segment.at && self.latest.1.is_before(end) {
            self.latest = (segment.at, end);
        }
    }

    /// Marks everything before `ack` as arrived. `round_trip` does not have this acknowledgement's sample yet.
    pub(crate) fn acknowledge(
        &mut self,
        spare: &mut Spare,
        now: Micros,
        ack: Seq,
        round_trip: &RoundTrip,
    ) -> Delivered {
        let mut delivered = Delivered::default();
        while let Some(first) = self.sent.front_mut() {
            if first.end().is_after(ack) {
                // A segment that is acknowledged in part. A peer that keeps whole segments does not send this.
                if first.start.is_before(ack) {
                    let part = ack.since(first.start);
                    first.start = ack;
                    first.len -= part;
                    let marks = first.marks;
                    self.leave_flight(Sent { at: now, start: ack, len: part, marks });
                    if marks & SACKED == 0 {
                        delivered.bytes += part;
                    }
                }
                break;
            }
            let Some(segment) = self.sent.pop_front() else { break };
            self.leave_flight(segment);
            self.sacked_segments -= u32::from(segment.has(SACKED));
            self.retransmitted_segments -= u32::from(segment.has(RETRANSMITTED));
            if !segment.has(SACKED) {
                self.delivered(segment, &mut delivered, round_trip, now);
            }
        }
        self.first_lost = self.first_lost.later(ack);
        self.forward = self.forward.later(ack);
        if self.sent.is_empty() {
            spare.give(&mut self.sent);
        }
        delivered
    }

    /// Marks the bytes from `start` to `end` as arrived.
    pub(crate) fn sack(
        &mut self,
        now: Micros,
        start: Seq,
        end: Seq,
        round_trip: &RoundTrip,
        delivered: &mut Delivered,
    ) {
        let first = self.sent.partition_point(|segment| segment.start.is_before(start));
        for index in first..self.sent.len() {
            let segment = self.sent[index];
            if segment.end().is_after(end) {
                break;
            }
            if segment.has(SACKED) {
                continue;
            }
            self.leave_flight(segment);
            self.sacked_segments += 1;
            self.sent[index].marks = segment.marks & !LOST | SACKED;
            self.delivered(segment, delivered, round_trip, now);
            delivered.has_sacked = true;
        }
    }

    /// Processes a duplicate report: data that counted as lost was late (RFC 8985, 6.2, step 4).
    pub(crate) fn duplicate_reported(&mut self, next: Seq, acknowledged: Seq) {
        if self.duplicate_round.is_none_or(|round| !acknowledged.is_before(round)) {
            self.duplicate_round = Some(next);
            self.window_quarters = self.window_quarters.saturating_add(1).min(64);
            self.window_persists = WINDOW_PERSISTS;
        }
    }

    /// Records the end of a recovery.
    pub(crate) fn recovered(&mut self) {
        self.window_persists = self.window_persists.saturating_sub(1);
        if self.window_persists == 0 {
            self.window_quarters = 1;
            self.window_persists = WINDOW_PERSISTS;
        }
    }

    fn reordering_window_us(&self, in_recovery: bool, round_trip: &RoundTrip) -> u64 {
        if !self.reordering_seen && (in_recovery || self.sacked_segments >= DUPLICATE_THRESHOLD) {
            return 0;
        }
        let quarter = u64::from(round_trip.min) / 4;
        (quarter * u64::from(self.window_quarters)).min(u64::from(round_trip.smoothed))
    }

    /// Marks lost segments. Returns whether there are new ones, and when to check again.
    pub(crate) fn detect(
        &mut self,
        now: Micros,
        in_recovery: bool,
        round_trip: &RoundTrip,
    ) -> (bool, Micros) {
        let mut look_again = Micros::NEVER;
        let mut found = false;
        // Without gaps and retransmissions, data arrives in the order in which it was sent.
        if self.sacked_segments == 0 && self.retransmitted_segments == 0 {
            return (false, look_again);
        }
        let wait = u64::from(self.round_trip_us) + self.reordering_window_us(in_recovery, round_trip);
        for index in 0..self.sent.len() {
            let segment = self.sent[index];
            if segment.has(SACKED) || segment.has(LOST) {
                continue;
            }
            let (at, end) = self.latest;
            if segment.at > at || segment.at == at && !segment.end().is_before(end) {
                continue;
            }
            let due = segment.at.after(wait);
            if due <= now {
                self.mark_lost(index);
                found = true;
            } else {
                look_again = look_again.min(due);
            }
        }
        (found, look_again)
    }

    fn mark_lost(&mut self, index: usize) {
        let Some(segment) = self.sent.get_mut(index).filter(|segment| !segment.has(SACKED | LOST)) else {
            return;
        };
        segment.marks |= LOST;
        self.in_flight -= segment.len;
        self.lost += segment.len;
        self.first_lost = self.first_lost.earlier(segment.start);
    }

    /// Marks the first segment lost, after duplicate acknowledgements.
    pub(crate) fn first_is_lost(&mut self) {
        self.mark_lost(0);
    }

    /// The retransmission timeout: no segment counts as in flight any more. A peer that has discarded data after
    /// reporting it (RFC 2018, 8) shows this by not acknowledging the first segment.
    pub(crate) fn all_is_lost(&mut self) {
        if self.sent.front().is_some_and(|first| first.has(SACKED)) {
            for segment in &mut self.sent {
                if segment.has(SACKED) {
                    segment.marks &= !SACKED;
                    self.in_flight += segment.len;
                }
            }
            self.sacked_segments = 0;
        }
        (0..self.sent.len()).for_each(|index| self.mark_lost(index));
    }

    pub(crate) fn clear(&mut self, spare: &mut Spare) {
        self.sent.clear();
        spare.give(&mut self.sent);
        (self.in_flight, self.lost, self.sacked_segments, self.retransmitted_segments) = (0, 0, 0, 0);
    }

    pub(crate) fn memory_len_bytes(&self) -> usize {
        self.sent.capacity() * size_of::<Sent>()
    }

    /// Asserts the invariants of this module, for tests.
    pub(crate) fn require_sound(&self, first: Seq, next: Seq) {
        let sum = |is: &dyn Fn(&Sent) -> bool| {
            self.sent.iter().filter(|sent| is(sent)).map(|sent| sent.len).sum::<u32>()
        };
        assert_eq!(self.lost, sum(&|sent| sent.has(LOST)));
        assert_eq!(self.in_flight, sum(&|sent| !sent.has(LOST | SACKED)));
        let end = self.sent.iter().fold(first, |at, sent| {
            assert_eq!(at, sent.start);
            sent.end()
        });
        assert_eq!(end, next);
    }
}
