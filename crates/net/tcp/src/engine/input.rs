//! Assignment of segments to connections and listeners, and their effects there.

use super::{ConnectionId, Engine, Heard, Verdict};
use crate::connection::{Answer, clock};
use crate::demux::{Key, Target};
use crate::planted::Bug;
use crate::segment::{Checksum, Flags, Header, Options, Segment, Timestamps};
use crate::sequence::Seq;
use crate::time::Micros;
use crate::time_wait::TimeWait;

impl Engine {
    /// Processes an IP packet, without a link header.
    pub fn receive(&mut self, now: Micros, packet: &[u8], checksum: Checksum) -> Verdict {
        let is_blind = self.config.is_planted(Bug::ChecksumNotVerified);
        let checksum = if is_blind { Checksum::Trust } else { checksum };
        let segment = match Segment::parse(packet, checksum) {
            Ok(segment) => segment,
            Err(refusal) => {
                self.counters.refused.count(refusal);
                return Verdict::Refused(refusal);
            }
        };
        self.heard = None;
        let key = Key { local: segment.header.destination, remote: segment.header.source };
        match self.demux.get(&key) {
            Some(Target::Connection(index)) => self.receive_on(now, index, &segment),
            Some(Target::HalfOpen(index)) => self.receive_half_open(now, index, &segment),
            Some(Target::TimeWait(index)) => self.receive_time_wait(now, index, &segment),
            None => {
                let Some(listener) = self.listener_for(key.local) else { return Verdict::NotOurs };
                self.receive_new(now, listener, key, &segment);
            }
        }
        self.counters.segments_in += 1;
        Verdict::Taken
    }

    fn listener_for(&self, address: std::net::SocketAddr) -> Option<u32> {
        let is_for =
            |index: &u32| self.listeners.get(*index).is_some_and(|listener| listener.is_for(address));
        let is_exact =
            |index: &u32| self.listeners.get(*index).is_some_and(|listener| listener.address == address);
        self.listeners.indices().find(is_exact).or_else(|| self.listeners.indices().find(is_for))
    }

    fn receive_on(&mut self, now: Micros, index: u32, segment: &Segment<'_>) {
        let answer = self.with(now, index, |connection, context| connection.receive(context, segment));
        self.note_heard(index);
        match answer {
            None | Some(Answer::None) => {}
            Some(Answer::Changed) => self.mark_changed(index),
            Some(Answer::Challenge) => {
                if self.may_challenge(now) {
                    self.with(now, index, |connection, _| connection.challenge());
                }
            }
            Some(Answer::Reset) => return self.reset_connection(now, index),
            Some(Answer::WasReset) => {
                self.with(now, index, |connection, context| connection.peer_reset(context));
                self.mark_changed(index);
            }
        }
        self.settle(now, index);
        self.tell_who_waits_for_memory();
    }

    pub(super) fn note_heard(&mut self, index: u32) {
        let generation = self.connections.generation(index);
        if let Some(connection) = self.connections.get_mut(index)
            && std::mem::take(&mut connection.is_heard)
            && !connection.is_orphan
        {
            let id = generation.map(|generation| ConnectionId { index, generation });
            let connection_id = id.filter(|_| connection.is_accepted);
            self.heard = Some(Heard { peer: connection.key.remote, connection: connection_id });
        }
    }

    /// Whether a segment that does not fit its connection may be answered now.
    pub(super) fn may_challenge(&mut self, now: Micros) -> bool {
        let (max, counters) = (self.config.max_challenges_per_second, &mut self.counters);
        let may = self.challenges.take(now, max, |second| self.numbers.hash(&[2, second]));
        *(if may { &mut counters.challenges } else { &mut counters.challenges_suppressed }) += 1;
        may
    }

    /// Whether a segment that belongs to no connection may be answered. Counted apart, so that unrelated hosts do not
    /// use up the answers that connections need.
    pub(super) fn may_reset(&mut self, now: Micros) -> bool {
        let max = self.config.max_challenges_per_second;
        let may = self.resets.take(now, max, |second| self.numbers.hash(&[3, second]));
        self.counters.resets_suppressed += u64::from(!may);
        may
    }

    pub(super) fn reply(&mut self, header: Header) {
        let is_reset = header.flags.has(Flags::RST);
        if self.replies.push(header) {
            self.counters.resets_out += u64::from(is_reset);
        } else {
            self.counters.dropped.replies += 1;
        }
    }

    /// Answers a segment that belongs to no connection (RFC 9293, 3.10.7.1).
    pub(super) fn reply_reset(&mut self, segment: &Segment<'_>) {
        let asked = &segment.header;
        if asked.flags.has(Flags::RST) {
            return;
        }
        let (seq, ack, flags) = if asked.flags.has(Flags::ACK) {
            (asked.ack, Seq(0), Flags::RST)
        } else {
            (Seq(0), asked.seq.plus(segment.len()), Flags::RST.with(Flags::ACK))
        };
        self.reply(Header {
            source: asked.destination,
            destination: asked.source,
            seq,
            ack,
            flags,
            window: 0,
            options: Options::default(),
        });
    }

    fn receive_time_wait(&mut self, now: Micros, index: u32, segment: &Segment<'_>) {
        let Some(entry) = self.time_waits.get(index).copied() else { return };
        let (header, flags) = (&segment.header, segment.header.flags);
        // RFC 1337: a reset does not shorten TIME-WAIT.
        if flags.has(Flags::RST) {
            return;
        }
        if flags.has(Flags::SYN)
            && !flags.has(Flags::ACK)
            && (is_newer(&entry, header) || self.config.is_planted(Bug::OldSynReopens))
            && let Some(listener) = self.listener_for(entry.key.local)
        {
            self.remove_time_wait(index);
            // Beyond all sequence numbers of the old connection.
            let ours = entry.ours.plus(0x1_0000);
            return self.receive_syn(now, listener, entry.key, segment, Some(ours));
        }
        let is_fin_again = flags.has(Flags::FIN) && header.seq.plus(segment.len()) == entry.theirs;
        if is_fin_again {
            let until = now.after(self.config.time_wait.0);
            if let Some(entry) = self.time_waits.get_mut(index) {
                entry.until = until;
            }
        } else if now.since(entry.answered_at) < 100_000 || segment.is_empty() || !self.may_challenge(now) {
            return;
        }
        if let Some(entry) = self.time_waits.get_mut(index) {
            entry.answered_at = now;
        }
        let value = clock(now, entry.clock_offset);
        self.reply(Header {
            source: entry.key.local,
            destination: entry.key.remote,
            seq: entry.ours,
            ack: entry.theirs,
            flags: Flags::ACK,
            window: 0,
            options: Options {
                timestamps: entry.recent.map(|echo| Timestamps { value, echo }),
                ..Options::default()
            },
        });
    }

    pub(super) fn remove_time_wait(&mut self, index: u32) {
        if let Some(entry) = self.time_waits.remove(index) {
            self.demux.remove(&entry.key, Target::TimeWait(index));
        }
    }
}

/// Rate limit for each second, of a random size. With a known size, a peer could find out from its own share whether
/// its guesses about other connections are right (CVE-2016-5696).
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// Number of the second plus one, so that 0 means none yet.
    second: u64,
    left: u32,
}

impl Budget {
    fn take(&mut self, now: Micros, max: u32, random: impl FnOnce(u64) -> u64) -> bool {
        let (second, max) = (now.0 / 1_000_000 + 1, u64::from(max));
        if self.second != second {
            *self = Self { second, left: (max / 2 + random(second) % (max / 2 + 1)) as u32 };
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

/// Whether a SYN begins after all that the old connection has sent (RFC 6191, 2).
fn is_newer(entry: &TimeWait, header: &Header) -> bool {
    match (entry.recent, header.options.timestamps) {
        (Some(recent), Some(timestamps)) if timestamps.value != recent => {
            timestamps.value.wrapping_sub(recent) as i32 > 0
        }
        _ => header.seq.is_after(entry.theirs),
    }
}
