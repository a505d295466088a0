//! Effects of an acknowledgement on data in flight: RFC 9293, 3.10.7.4; RFC 8985, 6 and 7.4; RFC 9937 during loss
//! recovery; RFC 6582 for a peer without selective acknowledgements.

use super::Context;
use super::scoreboard::Delivered;
use super::sender::{Finish, Recovery, Sender};
use crate::planted::Bug;
use crate::segment::Header;
use crate::sequence::Seq;

const DUPLICATE_THRESHOLD: u32 = 3;

/// Result of one acknowledgement, as input of the loss recovery.
struct Progress {
    delivered: Delivered,
    /// Bytes that this acknowledgement covers for the first time.
    advance: u32,
    /// Bytes in flight before the acknowledgement.
    pipe: u32,
    is_duplicate: bool,
    reports_duplicate: bool,
}

impl Sender {
    /// Processes an acceptable acknowledgement. `echoed_us`: the time since the segment that its timestamp echoes was
    /// sent. Returns whether new data is acknowledged.
    pub(super) fn acknowledge(
        &mut self,
        context: &mut Context<'_>,
        header: &Header,
        has_data: bool,
        echoed_us: Option<u64>,
    ) -> bool {
        let (now, ack) = (context.now, header.ack);
        let is_ignored = self.window == 0 && context.config.is_planted(Bug::WindowUpdateLost);
        let is_update = !is_ignored && self.update_window(header);
        if ack.is_before(self.first) {
            return false;
        }
        let pipe = self.pipe();
        let advance = ack.since(self.first);
        let is_duplicate = advance == 0 && !has_data && !is_update && !self.board.is_empty();
        let mut delivered = self.board.acknowledge(context.spare, now, ack, &self.round_trip);
        if advance > 0 {
            self.advance_to(context, ack);
        } else if self.board.is_empty() {
            // The answer to a probe of a closed window.
            self.unanswered = 0;
        }
        let reports_duplicate = self.take_blocks(context, header, &mut delivered);
        if let Some(sent_at) = delivered.sent_once_at {
            self.round_trip.sample(now.since(sent_at));
            self.round_trip.backoff = 0;
        } else if let Some(echoed_us) = echoed_us.filter(|_| advance > 0) {
            self.round_trip.sample(echoed_us);
            self.round_trip.backoff = 0;
        }
        let progress = Progress { delivered, advance, pipe, is_duplicate, reports_duplicate };
        self.count_duplicates(&progress);
        self.recover(context, &progress);
        self.arm(now, context.config);
        advance > 0
    }

    /// Returns whether the window has changed.
    fn update_window(&mut self, header: &Header) -> bool {
        let window = u32::from(header.window) << self.scale;
        // RFC 9293 compares the sequence number before the acknowledgement. A peer that retransmits old data sends its
        // window with a new acknowledgement. A segment with the same two numbers may be late and is ignored if its
        // window is smaller: windows do not shrink.
        let is_newer = header.ack.is_after(self.first)
            || self.update_seq.is_before(header.seq)
            || self.update_seq == header.seq && window > self.window;
        if !is_newer || header.ack.is_before(self.first) {
            return false;
        }
        let before = std::mem::replace(&mut self.window, window);
        if before == 0 && window > 0 {
            self.round_trip.backoff = 0;
        }
        self.max_window = self.max_window.max(window);
        self.update_seq = header.seq;
        before != window
    }

    fn advance_to(&mut self, context: &mut Context<'_>, ack: Seq) {
        let advance = ack.since(self.first);
        self.buffer.advance(context.pool, advance);
        let is_early = context.config.is_planted(Bug::FinAcknowledgedEarly);
        if self.finish == Finish::Sent && (ack == self.next || is_early) {
            self.finish = Finish::Acknowledged;
        }
        self.first = ack;
        self.unanswered = 0;
        (self.timed_from, self.waiting_from) = (context.now, context.now);
        if self.recovery_point.is_before(ack) {
            // The number stays comparable.
            self.recovery_point = ack;
        }
    }

    /// Processes selective acknowledgements. Returns whether the first reports a duplicate (RFC 2883).
    fn take_blocks(&mut self, context: &Context<'_>, header: &Header, delivered: &mut Delivered) -> bool {
        if !self.has_sack {
            return false;
        }
        let blocks = header.options.sack.as_slice();
        let reports_duplicate = match blocks {
            [(start, end), (outer_start, outer_end), ..]
                if !start.is_before(*outer_start) && !end.is_after(*outer_end) =>
            {
                true
            }
            [(_, end), ..] => !end.is_after(header.ack),
            [] => false,
        };
        if reports_duplicate {
            self.board.duplicate_reported(self.next, self.first);
        }
        for (start, end) in blocks.iter().skip(usize::from(reports_duplicate)) {
            let end = match context.config.is_planted(Bug::BlockOneSegmentTooLong) {
                true => end.plus(self.mss).earlier(self.next),
                false => *end,
            };
            let is_sound = start.is_before(end) && !start.is_before(self.first) && !end.is_after(self.next);
            if is_sound {
                self.board.sack(context.now, *start, end, &self.round_trip, delivered);
            }
        }
        reports_duplicate
    }

    fn count_duplicates(&mut self, progress: &Progress) {
        if self.has_sack {
            return;
        }
        if progress.advance > 0 {
            self.duplicates = 0;
            self.duplicate_bytes = self.duplicate_bytes.saturating_sub(progress.advance);
            if self.recovery == Recovery::Fast && self.first.is_before(self.recovery_point) {
                self.board.first_is_lost();
            }
        } else if progress.is_duplicate {
            self.duplicates += 1;
            self.duplicate_bytes = (self.duplicate_bytes + self.mss).min(self.next.since(self.first));
            if self.recovery == Recovery::Open && self.duplicates == DUPLICATE_THRESHOLD {
                self.board.first_is_lost();
            }
        }
        if self.board.is_empty() {
            self.duplicate_bytes = 0;
        }
    }

    /// Marks lost segments, and begins recovery.
    pub(super) fn find_losses(&mut self, context: &mut Context<'_>) -> bool {
        let in_recovery = self.recovery != Recovery::Open;
        let (found, look_again) = self.board.detect(context.now, in_recovery, &self.round_trip);
        self.reordered_at = look_again;
        if self.recovery == Recovery::Open && self.board.lost > 0 {
            context.counters.fast_recoveries += 1;
            let under_way = self.next.since(self.first);
            self.congestion.lost(under_way);
            self.recovery = Recovery::Fast;
            self.recovery_point = self.next;
            self.reduction = [0, 0, under_way.max(1)];
            // The first lost segment is sent at once.
            self.congestion.window = self.pipe() + self.mss;
        }
        found
    }

    fn recover(&mut self, context: &mut Context<'_>, progress: &Progress) {
        self.end_loss_probe(progress);
        let was = self.recovery;
        if was != Recovery::Open && !self.first.is_before(self.recovery_point) {
            if was == Recovery::Fast {
                self.congestion.window = self.congestion.slow_start_threshold;
                self.board.recovered();
            }
            self.recovery = Recovery::Open;
            self.duplicate_bytes = 0;
        }
        let found = self.find_losses(context);
        match self.recovery {
            Recovery::Fast => self.reduce(progress, found),
            Recovery::Open | Recovery::Loss if progress.advance > 0 => {
                let slow_start = self.congestion.window < self.congestion.slow_start_threshold;
                let used = if slow_start { 2 * progress.pipe } else { progress.pipe + self.mss };
                if used >= self.congestion.window {
                    self.congestion.acknowledged(context.now, progress.advance, self.round_trip.smoothed);
                } else {
                    self.congestion.is_not_used();
                }
            }
            Recovery::Open | Recovery::Loss => {}
        }
    }

    /// RFC 9937, 6.
    fn reduce(&mut self, progress: &Progress, found_more: bool) {
        let mut delivered = progress.delivered.bytes;
        if progress.is_duplicate && !self.has_sack {
            delivered += self.mss;
        }
        self.reduction[0] = self.reduction[0].saturating_add(delivered);
        let [total, out, flight] = self.reduction;
        let (pipe, threshold) = (self.pipe(), self.congestion.slow_start_threshold);
        let mut more = if pipe > threshold {
            let share = (u64::from(total) * u64::from(threshold)).div_ceil(u64::from(flight));
            share.saturating_sub(u64::from(out)) as u32
        } else {
            let mut limit = total.saturating_sub(out).max(delivered);
            if progress.advance > 0 && !found_more {
                limit += self.mss;
            }
            limit.min(threshold - pipe)
        };
        if out == 0 {
            more = more.max(self.mss);
        }
        self.congestion.window = (pipe + more).max(self.mss);
    }

    /// RFC 8985, 7.4.2.
    fn end_loss_probe(&mut self, progress: &Progress) {
        let Some((end, was_old)) = self.probe_end else { return };
        if self.first.is_before(end) {
            return;
        }
        if !was_old || progress.reports_duplicate {
            self.probe_end = None;
        } else if self.first.is_after(end) {
            // Only the probe has arrived: a loss like any other.
            self.probe_end = None;
            if self.recovery == Recovery::Open {
                self.congestion.lost(progress.pipe);
                self.congestion.window = self.congestion.slow_start_threshold;
            }
        } else if progress.is_duplicate && !progress.delivered.has_sacked {
            self.probe_end = None;
        }
    }
}
