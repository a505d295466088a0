//! The next packet, timers, and the follow-up of a connection's changes.

use super::{ConnectionId, Engine, Transmit};
use crate::config::LOW_WATER_LEN_BYTES;
use crate::connection::{Connection, State};
use crate::demux::Target;
use crate::error::ConnectionError;
use crate::planted::Bug;
use crate::segment::Segment;
use crate::time::Micros;
use crate::time_wait::TimeWait;

/// Limit of waiting connections that are checked without success each time that memory may have become free.
const MOST_VAIN_LOOKS: usize = 8;

impl Engine {
    /// Writes at most one IP packet into `out`, which must have room for [`crate::Config::mtu_len_bytes`]; `None` if
    /// there is nothing to send now. Connections take turns.
    pub fn transmit(&mut self, now: Micros, out: &mut [u8]) -> Option<Transmit> {
        if let Some(header) = self.replies.first() {
            let destination = header.destination.ip();
            let len_bytes = header.write(out, self.ip_id, 0, |_| {});
            self.replies.pop();
            self.ip_id = self.ip_id.wrapping_add(1);
            self.counters.segments_out += 1;
            return len_bytes.map(|len_bytes| Transmit { len_bytes, destination, connection: None });
        }
        while let Some(index) = self.sending.pop() {
            let ip_id = self.ip_id;
            let written = self.with(now, index, |connection, context| {
                let len_bytes = connection.transmit(context, out, ip_id)?;
                let is_known = connection.is_accepted && !connection.is_orphan;
                Some((len_bytes, connection.key.remote.ip(), is_known))
            });
            let Some((len_bytes, destination, is_known)) = written.flatten() else { continue };
            self.ip_id = self.ip_id.wrapping_add(1);
            self.counters.segments_out += 1;
            self.settle(now, index);
            let generation = self.connections.generation(index);
            let connection =
                generation.filter(|_| is_known).map(|generation| ConnectionId { index, generation });
            return Some(Transmit { len_bytes, destination, connection });
        }
        None
    }

    /// Handles all timers that are due.
    pub fn advance(&mut self, now: Micros) {
        self.advance_half_opens(now);
        while let Some((index, entry)) = self.time_waits.take_first(now) {
            self.demux.remove(&entry.key, Target::TimeWait(index));
        }
        while let Some(index) = self.timers.fired(now) {
            let is_due = self.connections.get(index).is_some_and(|connection| connection.next_timer() <= now);
            if is_due && self.with(now, index, Connection::advance) == Some(false) {
                self.counters.timed_out += 1;
                self.give_up(now, index);
            }
            self.settle(now, index);
        }
        self.tell_who_waits_for_memory();
    }

    /// The time at which [`Engine::advance`] must be called, if no other call comes first.
    #[must_use]
    pub fn next_timer(&self) -> Option<Micros> {
        let all = [self.timers.next(), self.half_opens.timers.next(), self.time_waits.next_timer()];
        all.into_iter().flatten().min()
    }

    /// Gives up a connection whose peer does not answer. A final reset is sent in case the peer is still running.
    fn give_up(&mut self, now: Micros, index: u32) {
        let Some(connection) = self.connections.get(index) else { return };
        let header = connection.reset_header(now);
        self.reply(header);
        self.with(now, index, |connection, context| connection.fail(context, ConnectionError::TimedOut));
        self.mark_changed(index);
    }

    /// Resets a connection and removes it.
    pub(super) fn reset_connection(&mut self, now: Micros, index: u32) {
        let Some(connection) = self.connections.get(index) else { return };
        if !connection.is_over() {
            let header = connection.reset_header(now);
            self.reply(header);
        }
        self.forget(now, index);
    }

    fn forget(&mut self, now: Micros, index: u32) {
        if !self.config.is_planted(Bug::MemoryLeaked) {
            self.with(now, index, Connection::release_in);
        }
        let Some(connection) = self.connections.remove(index) else { return };
        self.demux.remove(&connection.key, Target::Connection(index));
        self.timers.clear(index);
        self.tell_who_waits_for_memory();
    }

    pub(super) fn mark_changed(&mut self, index: u32) {
        if self
            .connections
            .get(index)
            .is_some_and(|connection| connection.is_accepted && !connection.is_orphan)
        {
            self.changed.push(index);
        }
    }

    /// Processes the segment that completed the handshake, for the connection that it opened.
    pub(super) fn receive_first(&mut self, now: Micros, index: u32, segment: &Segment<'_>) {
        let answer = self.with(now, index, |connection, context| connection.receive(context, segment));
        self.note_heard(index);
        if answer == Some(crate::connection::Answer::WasReset) {
            self.with(now, index, |connection, context| connection.peer_reset(context));
        }
        self.settle(now, index);
    }

    /// Follow-up of each operation on a connection: its queues, its timer, its end.
    pub(super) fn settle(&mut self, now: Micros, index: u32) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.is_over() {
            return self.end(now, index);
        }
        if connection.is_orphan
            && connection.lives_until == Micros::NEVER
            && connection.state() == State::FinWait2
        {
            connection.lives_until = now.after(self.config.orphan_timeout.0);
        }
        if connection.wants_to_send() {
            self.sending.push(index);
        }
        let at = connection.next_timer();
        if at != Micros::NEVER {
            self.timers.set_by(index, at);
        }
    }

    /// Ends a connection: its four-tuple is free, or belongs to TIME-WAIT. The entry stays while the caller holds the
    /// id.
    fn end(&mut self, now: Micros, index: u32) {
        let Some(connection) = self.connections.get(index) else { return };
        let key = connection.key;
        if self.demux.get(&key) == Some(Target::Connection(index)) {
            self.demux.remove(&key, Target::Connection(index));
            if connection.state() == State::TimeWait {
                let (ours, theirs) = connection.next_seqs();
                let entry = TimeWait {
                    key,
                    ours,
                    theirs,
                    recent: connection.recent_timestamp(),
                    clock_offset: connection.clock_offset(),
                    until: now.after(self.config.time_wait.0),
                    answered_at: Micros(0),
                };
                self.begin_time_wait(now, index, entry);
            }
            self.mark_changed(index);
        }
        if self.connections.get(index).is_some_and(|connection| connection.is_orphan) {
            self.forget(now, index);
        }
    }

    fn begin_time_wait(&mut self, now: Micros, index: u32, entry: TimeWait) {
        // The peer's FIN is acknowledged at once.
        if let Some(connection) = self.connections.get_mut(index) {
            let header = connection.last_acknowledgement(now);
            self.reply(header);
        }
        if self.time_waits.is_full()
            && let Some((old, entry)) = self.time_waits.take_first(Micros::NEVER)
        {
            self.demux.remove(&entry.key, Target::TimeWait(old));
            self.counters.time_wait_evicted += 1;
        }
        if let Some(place) = self.time_waits.insert(entry) {
            self.demux.insert(entry.key, Target::TimeWait(place));
        }
    }

    /// Whether there is enough memory to make a connection writable; `true` for a connection that is gone.
    pub(super) fn has_memory(&self, index: u32) -> bool {
        let sendable = self.connections.get(index).map(|connection| connection.sendable(&self.pool));
        sendable.is_none_or(|bytes| bytes >= LOW_WATER_LEN_BYTES)
    }

    /// Reports connections that waited for memory as changed once chunks are free. Each call checks only a few without
    /// success.
    pub(super) fn tell_who_waits_for_memory(&mut self) {
        let mut in_vain = 0;
        while in_vain < MOST_VAIN_LOOKS.min(self.waiting.len())
            && let Some(index) = self.waiting.pop()
        {
            if self.has_memory(index) {
                self.mark_changed(index);
            } else {
                self.waiting.push(index);
                in_vain += 1;
            }
        }
    }
}
