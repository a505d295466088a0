//! Sending: when a segment may be sent, and which one (RFC 9293, 3.8; RFC 5681; RFC 8985).
//!
//! Order: lost data comes before new data. New data waits for the peer's window and the congestion window. A small
//! segment also waits until the data in flight is acknowledged (Nagle, RFC 9293, 3.7.4), unless the caller has disabled
//! that.

use super::Context;
use super::congestion::Congestion;
use super::round_trip::RoundTrip;
use super::scoreboard::{Scoreboard, Sent};
use crate::buffers::SendBuffer;
use crate::config::Config;
use crate::planted::Bug;
use crate::sequence::Seq;
use crate::time::Micros;

/// State of the end of the caller's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// More data may follow.
    Open,
    /// No more data follows; FIN was not sent yet.
    Wanted,
    Sent,
    Acknowledged,
}

/// State of loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// No losses are known.
    Open,
    /// Losses were found by acknowledgements.
    Fast,
    /// Losses were found by the retransmission timeout.
    Loss,
}

/// Segment that is sent to get an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    None,
    /// New data, although the congestion window is full (RFC 8985, 7.3).
    New,
    /// The last segment again (RFC 8985, 7.3).
    Last,
    /// No data, with a sequence number that has been acknowledged: any receiver answers (RFC 9293, 3.10.7.4).
    Empty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    Retransmission,
    LossProbe,
    /// The peer's window blocks all data.
    Persist,
}

/// The next segment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outgoing {
    Again(Sent),
    New { len: u32, has_fin: bool },
    Empty,
}

/// State of the sending side.
#[derive(Debug)]
pub(crate) struct Sender {
    /// The first byte that is not acknowledged (SND.UNA).
    pub(super) first: Seq,
    /// The next byte to be sent (SND.NXT).
    pub(super) next: Seq,
    /// The peer's window (SND.WND), and the largest it ever was.
    pub(super) window: u32,
    pub(super) max_window: u32,
    /// Sequence number of the segment that last updated the window (SND.WL1).
    pub(super) update_seq: Seq,
    /// The shift of the peer's windows.
    pub(super) scale: u8,
    pub(super) has_sack: bool,
    pub(super) no_delay: bool,
    /// A send was accepted only in part, and the caller waits for room.
    pub(super) is_blocked: bool,
    /// A small segment is sent although the window is small (RFC 9293, 3.8.6.2.1).
    pub(super) override_small: bool,
    /// Largest payload of a segment.
    pub(super) mss: u32,
    pub(super) buffer: SendBuffer,
    pub(super) board: Scoreboard,
    pub(super) round_trip: RoundTrip,
    pub(super) congestion: Congestion,
    pub(super) finish: Finish,
    pub(super) recovery: Recovery,
    /// Recovery ends when this number is acknowledged.
    pub(super) recovery_point: Seq,
    /// Proportional rate reduction (RFC 9937): prr_delivered, prr_out, RecoverFS.
    pub(super) reduction: [u32; 3],
    /// Without selective acknowledgements: received duplicates, and the bytes that they stand for.
    pub(super) duplicates: u32,
    pub(super) duplicate_bytes: u32,
    pub(super) probe: Probe,
    /// End of a loss probe, and whether the probe was old data.
    pub(super) probe_end: Option<(Seq, bool)>,
    pub(super) timer: Timer,
    pub(super) timer_at: Micros,
    /// Start of the retransmission timeout.
    pub(super) timed_from: Micros,
    /// Time at which reordering is over and segments count as lost.
    pub(super) reordered_at: Micros,
    pub(super) last_sent_at: Micros,
    /// Time since when data waits for an acknowledgement, for the user timeout.
    pub(super) waiting_from: Micros,
    /// Timeouts without an answer.
    pub(super) unanswered: u8,
}

/// Longest delay of an acknowledgement by the peer (RFC 8985, 7.2).
const MAX_PEER_DELAY_US: u64 = 200_000;

impl Sender {
    pub(super) fn pipe(&self) -> u32 {
        self.board.in_flight.saturating_sub(self.duplicate_bytes)
    }

    pub(super) fn unsent(&self) -> u32 {
        let fin = u32::from(self.finish == Finish::Sent);
        self.buffer.len().saturating_sub(self.next.since(self.first) - fin)
    }

    /// Bytes for which the peer's window has room.
    fn usable(&self) -> u32 {
        let edge = self.first.plus(self.window);
        if edge.is_after(self.next) { edge.since(self.next) } else { 0 }
    }

    /// The next segment, if one may be sent now.
    pub(super) fn outgoing(&self) -> Option<Outgoing> {
        if let Some(lost) = self.board.next_lost()
            && (self.pipe() < self.congestion.window || self.pipe() == 0)
        {
            return Some(Outgoing::Again(lost));
        }
        match self.probe {
            Probe::Last => {
                if let Some(last) = self.board.last() {
                    return Some(Outgoing::Again(last));
                }
            }
            Probe::Empty => return Some(Outgoing::Empty),
            Probe::None | Probe::New => {}
        }
        self.new_data()
    }

    fn new_data(&self) -> Option<Outgoing> {
        let unsent = self.unsent();
        let ends = self.finish == Finish::Wanted;
        if unsent == 0 {
            return ends.then_some(Outgoing::New { len: 0, has_fin: true });
        }
        let len = unsent.min(self.mss).min(self.usable());
        let is_all = len == unsent;
        let may_go = if len == 0 {
            false
        } else if len == self.mss || self.override_small {
            true
        } else if is_all {
            self.no_delay || self.board.is_empty() || ends
        } else {
            // The window cuts the segment: a silly window is waited out.
            len >= self.max_window / 2
        };
        let pipe = self.pipe();
        let fits = pipe == 0 || pipe + len <= self.congestion.window || self.probe == Probe::New;
        (may_go && fits).then_some(Outgoing::New { len, has_fin: is_all && ends })
    }

    /// Records that a segment was written.
    pub(super) fn sent(&mut self, context: &mut Context<'_>, outgoing: Outgoing) {
        let now = context.now;
        match outgoing {
            Outgoing::Again(segment) => {
                self.board.retransmitted(now, segment.start);
                self.reduction[1] += segment.len;
                context.counters.retransmitted += 1;
                if self.probe == Probe::Last {
                    self.probe = Probe::None;
                }
            }
            Outgoing::New { len, has_fin } => {
                if self.board.is_empty() {
                    (self.timed_from, self.waiting_from) = (now, now);
                }
                self.board.push(context.spare, now, self.next, len + u32::from(has_fin));
                self.next = self.next.plus(len + u32::from(has_fin));
                self.reduction[1] += len;
                context.counters.data_out_len_bytes += u64::from(len);
                if has_fin {
                    self.finish = Finish::Sent;
                }
                self.override_small = false;
                if self.probe == Probe::New {
                    self.probe = Probe::None;
                    self.probe_end = Some((self.next, false));
                }
            }
            Outgoing::Empty => self.probe = Probe::None,
        }
        self.last_sent_at = now;
        self.arm(now, context.config);
    }

    /// Call before new data: after a pause the congestion window is not valid.
    pub(super) fn is_about_to_send(&mut self, now: Micros, config: &Config) {
        let pause = now.since(self.last_sent_at);
        if self.last_sent_at != Micros(0) && pause > self.round_trip.timeout(config) {
            self.congestion.restart();
        }
        self.waiting_from = now;
    }

    /// Sets the timer for the data in flight.
    pub(super) fn arm(&mut self, now: Micros, config: &Config) {
        if self.board.is_empty() {
            let is_held = self.unsent() > 0 && self.outgoing().is_none();
            let is_held = is_held && !config.is_planted(Bug::ClosedWindowNotProbed);
            if !is_held {
                self.timer_at = Micros::NEVER;
            } else if self.timer != Timer::Persist || self.timer_at == Micros::NEVER {
                self.timer = Timer::Persist;
                self.timer_at = now.after(self.round_trip.backed_off(config));
            }
            return;
        }
        self.timer = Timer::Retransmission;
        self.timer_at = self.timed_from.after(self.round_trip.backed_off(config)).max(now);
        if let Some(probe_at) = self.loss_probe_at(now).filter(|at| *at < self.timer_at) {
            self.timer = Timer::LossProbe;
            self.timer_at = probe_at;
        }
    }

    /// RFC 8985, 7.2.
    fn loss_probe_at(&self, now: Micros) -> Option<Micros> {
        let is_quiet = self.recovery == Recovery::Open && !self.board.has_sacked() && self.board.lost == 0;
        if !self.has_sack || !is_quiet || self.probe_end.is_some() || self.round_trip.smoothed == 0 {
            return None;
        }
        let alone = if self.board.len() == 1 { MAX_PEER_DELAY_US } else { 0 };
        Some(now.after(2 * u64::from(self.round_trip.smoothed) + alone))
    }

    /// Handles the timers that are due. `false`: too many retransmissions without an answer.
    pub(super) fn advance(&mut self, context: &mut Context<'_>, max_unanswered: u8, is_orphan: bool) -> bool {
        let now = context.now;
        if self.reordered_at <= now {
            self.reordered_at = Micros::NEVER;
            self.find_losses(context);
            self.arm(now, context.config);
        }
        if self.timer_at > now {
            return true;
        }
        match self.timer {
            Timer::LossProbe => self.loss_probe(context),
            Timer::Retransmission => {
                self.unanswered = self.unanswered.saturating_add(1);
                if self.unanswered > max_unanswered {
                    return false;
                }
                self.retransmission_timeout(context);
            }
            Timer::Persist => {
                self.unanswered = self.unanswered.saturating_add(1);
                let backoff = self.round_trip.backoff.saturating_add(1);
                if self.unanswered > max_unanswered || is_orphan && backoff > max_unanswered {
                    return false;
                }
                self.round_trip.backoff = backoff;
                if self.usable() > 0 {
                    self.override_small = true;
                } else {
                    self.probe = Probe::Empty;
                    context.counters.window_probes += 1;
                }
                self.timer_at = now.after(self.round_trip.backed_off(context.config));
            }
        }
        true
    }

    fn loss_probe(&mut self, context: &mut Context<'_>) {
        context.counters.loss_probes += 1;
        self.timed_from = context.now;
        if self.unsent() > 0 && self.usable() >= self.unsent().min(self.mss) {
            self.probe = Probe::New;
        } else {
            self.probe = Probe::Last;
        }
        self.probe_end = Some((self.next, self.probe == Probe::Last));
        self.timer = Timer::Retransmission;
        self.timer_at = context.now.after(self.round_trip.backed_off(context.config));
    }

    /// RFC 6298, 5.4 to 5.7; RFC 5681, 3.1.
    fn retransmission_timeout(&mut self, context: &mut Context<'_>) {
        context.counters.retransmission_timeouts += 1;
        if self.recovery != Recovery::Loss {
            self.congestion.lost(self.next.since(self.first));
        }
        self.congestion.collapse();
        self.recovery = Recovery::Loss;
        self.recovery_point = self.next;
        self.board.all_is_lost();
        (self.duplicates, self.duplicate_bytes) = (0, 0);
        (self.probe, self.probe_end) = (Probe::None, None);
        self.reordered_at = Micros::NEVER;
        if !context.config.is_planted(Bug::TimeoutNotDoubled) {
            self.round_trip.backoff = self.round_trip.backoff.saturating_add(1);
        }
        self.timed_from = context.now;
        self.arm(context.now, context.config);
    }

    /// The first of what is due.
    pub(super) fn next_timer(&self) -> Micros {
        self.timer_at.min(self.reordered_at)
    }
}
