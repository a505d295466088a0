//! An independent client: the requirements of RFC 9293, written for readability and not for speed. It shares only the
//! writing of segments with the engine. It retransmits from the first missing byte after a timeout and after three
//! duplicates. It never retransmits data that the engine has reported (RFC 2018), and splits data differently than
//! before, so that segments overlap.

use crate::support::server::{self, ECHO, FAREWELL, RESET, SINK, SOURCE};
use redoubt_tcp::segment::{Flags, Header, Options, Segment, Timestamps};
use redoubt_tcp::{Micros, Seq};
use std::collections::BTreeMap;
use std::net::SocketAddr;

const MSS: u64 = 1460;
const SCALE: u8 = 7;

/// Options and behaviour of a client.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    pub has_sack: bool,
    pub has_timestamps: bool,
    pub has_scaling: bool,
    /// Acknowledges every second segment, or after 40 ms.
    pub delays: bool,
    /// Limit of unread bytes.
    pub window: u64,
    /// It reads only from time to time.
    pub is_slow: bool,
    /// Segments under way at most.
    pub in_flight: u64,
    /// It fails after so many bytes were sent or received, and reconnects from the same port without its state.
    pub fails_at: Option<u64>,
}

/// For how long one that has failed is away: longer than anything is on its way.
const AWAY: u64 = 1_000_000;

pub struct Peer {
    pub port: u16,
    habits: Habits,
    local: SocketAddr,
    remote: SocketAddr,
    initial: u32,
    theirs: Option<u32>,
    scale: u8,
    timestamps: bool,
    recent: u32,
    /// Of the bytes it sends: acknowledged, sent, sent ever, all. FIN is one more.
    acknowledged: u64,
    sent: u64,
    sent_most: u64,
    pub len: u64,
    /// Bytes that the server may send.
    edge: u64,
    duplicates: u32,
    timeout: u64,
    timer: Micros,
    /// Of the bytes it receives: in order, read, early; where the end is.
    pub received: u64,
    read: u64,
    early: BTreeMap<u64, Vec<u8>>,
    last_early: u64,
    end: Option<u64>,
    has_ended: bool,
    pub was_reset: bool,
    told_edge: u64,
    acknowledge: u32,
    acknowledge_at: Micros,
    duplicate: Option<(u64, u64)>,
    request: u64,
    /// Ranges behind gaps that the engine has reported.
    told: Vec<(u64, u64)>,
    number: u32,
    away_until: Micros,
    /// Times that nothing came though something was under way that there was room for.
    pub timeouts: u64,
}

impl Peer {
    pub fn new(port: u16, number: u32, len: u64, habits: Habits, initial: u32, now: Micros) -> Self {
        let host = [10, 0, (number >> 8) as u8, number as u8];
        Self {
            port,
            habits,
            local: (host, 20_000).into(),
            remote: ([10, 99, 0, 1], port).into(),
            initial,
            theirs: None,
            scale: 0,
            timestamps: false,
            recent: 0,
            acknowledged: 0,
            sent: 0,
            sent_most: 0,
            len: if port == SOURCE { 8 } else { len },
            edge: 0,
            duplicates: 0,
            timeout: 300_000,
            timer: now,
            received: 0,
            read: 0,
            early: BTreeMap::new(),
            last_early: 0,
            end: None,
            has_ended: false,
            was_reset: false,
            told_edge: 0,
            acknowledge: 0,
            acknowledge_at: Micros::NEVER,
            duplicate: None,
            request: len,
            told: Vec::new(),
            number,
            away_until: Micros(0),
            timeouts: 0,
        }
    }

    /// Forgets everything, if it is to.
    fn may_fail(&mut self, now: Micros) {
        let is_due = self.habits.fails_at.is_some_and(|at| self.received + self.acknowledged >= at);
        if !is_due || self.is_done() {
            return;
        }
        let habits = Habits { fails_at: None, ..self.habits };
        // Far from what was sent before.
        let initial = self.initial.wrapping_add(1 << 30);
        let back = now.after(AWAY);
        *self = Self::new(self.port, self.number, self.request, habits, initial, back);
        self.away_until = back;
    }

    /// A segment of an attacker that has the addresses and guesses the rest. No part of it may have any effect.
    pub fn forged(&self, rng: &mut fastrand::Rng) -> Vec<u8> {
        let beyond = self.initial.wrapping_add(self.sent_most as u32);
        let (flags, seq) = match rng.u32(..4) {
            // Within the window, more or less, and never exactly the next.
            0 => (Flags::RST, beyond.wrapping_add(3 + rng.u32(..3000))),
            // From before: a later one may begin a new connection where the old one has ended.
            1 => (Flags::SYN, beyond.wrapping_sub(rng.u32(..1 << 30))),
            2 => (Flags::ACK, beyond.wrapping_add(1)),
            _ => (Flags::ACK.with(Flags::FIN), beyond.wrapping_add(1 << 30)),
        };
        let header = Header {
            source: self.local,
            destination: self.remote,
            seq: Seq(seq),
            ack: Seq(self.theirs.unwrap_or(0).wrapping_add(1 << 30)),
            flags,
            window: rng.u16(..),
            options: Options::default(),
        };
        let mut out = vec![0; 100];
        let len = header.write(&mut out, 0, 0, |_| {}).unwrap();
        out.truncate(len);
        out
    }

    /// How it begins.
    pub fn syn(&mut self, now: Micros) -> Vec<u8> {
        self.packet(now, 0, 0, false, true)
    }

    /// Whether it is connected, as far as it knows.
    pub fn is_open(&self) -> bool {
        self.theirs.is_some() && !self.was_reset
    }

    pub fn is_done(&self) -> bool {
        match self.port {
            // A lost reset is not sent again, unless the client sends another segment.
            RESET => self.was_reset || self.acknowledged == self.len + 1,
            _ => self.acknowledged == self.len + 1 && self.has_ended && self.early.is_empty(),
        }
    }

    /// Whether FIN may be sent by now: a client that requested data waits for all of it.
    fn may_end(&self) -> bool {
        self.port != SOURCE || self.has_ended
    }

    fn byte(&self, at: u64) -> u8 {
        if self.port == SOURCE { self.request.to_be_bytes()[at as usize] } else { server::pattern(at) }
    }

    /// Number of bytes that the server must send.
    fn expected_len(&self) -> Option<u64> {
        match self.port {
            ECHO => Some(self.len),
            SINK => Some(9),
            SOURCE => Some(self.request),
            FAREWELL => Some(0),
            _ => None,
        }
    }

    fn expected(&self, at: u64) -> u8 {
        match self.port {
            SINK => [&self.len.to_be_bytes()[..], &[1]].concat()[at as usize],
            _ => server::pattern(at),
        }
    }

    fn clock(now: Micros) -> u32 {
        (now.0 / 1000) as u32 + 77
    }

    fn window(&self) -> u64 {
        let free = self.habits.window - (self.received - self.read);
        free.max(self.told_edge.saturating_sub(self.received))
    }

    fn packet(&mut self, now: Micros, at: u64, len: u64, has_fin: bool, is_syn: bool) -> Vec<u8> {
        let scale = if self.habits.has_scaling && self.scale_is_on() { SCALE } else { 0 };
        let window = if is_syn { self.window().min(0xffff) } else { (self.window() >> scale).min(0xffff) };
        let mut options = Options::default();
        let mut flags = Flags::default();
        let mut ack = Seq(0);
        if is_syn {
            flags = Flags::SYN;
            options.mss = Some(MSS as u16);
            options.window_scale = self.habits.has_scaling.then_some(SCALE);
            options.sack_permitted = self.habits.has_sack;
        }
        if let Some(theirs) = self.theirs {
            flags = flags.with(Flags::ACK);
            let fin = u64::from(self.has_ended);
            ack = Seq(theirs.wrapping_add(1).wrapping_add((self.received + fin) as u32));
            self.told_edge = self.told_edge.max(self.received + (window << scale));
            self.acknowledge = 0;
            self.acknowledge_at = Micros::NEVER;
            if self.habits.has_sack && len == 0 {
                for (start, end) in self.blocks() {
                    let seq = |at: u64| Seq(theirs.wrapping_add(1).wrapping_add(at as u32));
                    options.sack.push(seq(start), seq(end));
                }
            }
        }
        if self.timestamps || is_syn && self.habits.has_timestamps {
            options.timestamps = Some(Timestamps { value: Self::clock(now), echo: self.recent });
        }
        if has_fin {
            flags = flags.with(Flags::FIN);
        }
        let seq = if is_syn {
            Seq(self.initial)
        } else {
            Seq(self.initial.wrapping_add(1).wrapping_add(at as u32))
        };
        let (source, destination) = (self.local, self.remote);
        let header = Header { source, destination, seq, ack, flags, window: window as u16, options };
        let mut out = vec![0; 1500];
        let content: Vec<u8> = (at..at + len).map(|at| self.byte(at)).collect();
        let len = header.write(&mut out, 0, len as usize, |place| place.copy_from_slice(&content)).unwrap();
        out.truncate(len);
        out
    }

    fn scale_is_on(&self) -> bool {
        self.scale != u8::MAX
    }

    /// The range that arrived twice, then the range with the latest arrival, then the others.
    fn blocks(&mut self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (start, data) in &self.early {
            let end = start + data.len() as u64;
            match ranges.last_mut() {
                Some(last) if last.1 >= *start => last.1 = last.1.max(end),
                _ => ranges.push((*start, end)),
            }
        }
        let is_last = |range: &(u64, u64)| range.0 <= self.last_early && self.last_early < range.1;
        ranges.sort_by_key(|range| !is_last(range));
        self.duplicate.take().into_iter().chain(ranges).collect()
    }

    pub fn next_timer(&self) -> Micros {
        self.timer.min(self.acknowledge_at)
    }

    /// Everything that it sends now.
    pub fn send(&mut self, now: Micros, out: &mut Vec<Vec<u8>>) {
        self.may_fail(now);
        if self.was_reset {
            self.timer = Micros::NEVER;
            return;
        }
        let is_late = self.timer <= now;
        if self.theirs.is_none() {
            if is_late {
                out.push(self.packet(now, 0, 0, false, true));
                self.back_off(now);
            }
            return;
        }
        let all = self.len + u64::from(self.may_end());
        if is_late && self.acknowledged < all {
            self.timeouts += u64::from(self.sent > self.acknowledged && self.edge > self.acknowledged);
            self.sent = self.acknowledged;
            self.duplicates = 0;
            self.back_off(now);
        } else if is_late {
            self.timer = Micros::NEVER;
        }
        let limit = self.edge.min(self.acknowledged + self.habits.in_flight * MSS);
        while self.sent < all {
            if let Some((_, end)) = self.told.iter().find(|(start, end)| (*start..*end).contains(&self.sent))
            {
                self.sent = *end;
                continue;
            }
            let room = limit.saturating_sub(self.sent);
            // Nothing fits: one byte asks for the window, when it is time to.
            let len = (self.len - self.sent.min(self.len)).min(MSS - 12);
            let is_again = self.sent < self.sent_most && self.sent == self.acknowledged;
            let len = if is_again { len.min(1 + now.0 % (MSS - 12)) } else { len };
            let len = if room == 0 && is_late && self.sent == self.acknowledged {
                len.min(1)
            } else {
                len.min(room)
            };
            let has_fin = self.sent + len == self.len && all > self.len;
            if len == 0 && !has_fin {
                break;
            }
            out.push(self.packet(now, self.sent, len, has_fin, false));
            self.sent += len + u64::from(has_fin);
            self.sent_most = self.sent_most.max(self.sent);
        }
        if self.acknowledged < all && self.timer == Micros::NEVER {
            self.timer = now.after(self.timeout);
        }
        if self.acknowledge >= 2 || self.acknowledge_at <= now {
            out.push(self.packet(now, self.sent, 0, false, false));
        }
    }

    fn back_off(&mut self, now: Micros) {
        self.timer = now.after(self.timeout);
        self.timeout = (self.timeout * 2).min(10_000_000);
    }

    /// It reads what has come.
    pub fn read(&mut self) {
        let was = self.window();
        self.read = self.received;
        if was < MSS && self.window() >= MSS {
            self.acknowledge = 2;
        }
    }

    pub fn receive(&mut self, now: Micros, packet: &[u8], out: &mut Vec<Vec<u8>>) {
        let Ok(segment) = Segment::parse(packet, redoubt_tcp::Checksum::Verify) else { return };
        if now < self.away_until {
            return;
        }
        let header = &segment.header;
        assert_eq!((header.source, header.destination), (self.remote, self.local));
        assert!(segment.payload.len() as u64 + if self.timestamps { 12 } else { 0 } <= MSS);
        let is_for_syn = header.ack == Seq(self.initial.wrapping_add(1));
        if self.theirs.is_none() && !is_for_syn {
            // The segment belongs to no connection of this client (RFC 9293, 3.10.7.3).
            if !header.flags.has(Flags::RST) {
                out.push(self.reset(header.ack));
            }
            return;
        }
        if header.flags.has(Flags::RST) {
            // Where it expects it, and not an answer to what a stranger said.
            let expected = self
                .theirs
                .map_or(header.seq, |theirs| Seq(theirs.wrapping_add(1)).plus(self.received as u32));
            if header.seq.since(expected) > 1 << 20 {
                return;
            }
            assert!(self.port == RESET || self.is_done(), "was reset by {header:?}: {}", self.describe());
            self.was_reset = true;
            return;
        }
        let Some(theirs) = self.theirs else {
            if header.flags.has(Flags::SYN) {
                self.opened(header);
                out.push(self.packet(now, 0, 0, false, false));
            }
            return;
        };
        if header.flags.has(Flags::SYN) {
            // Our ACK was lost.
            self.acknowledge = 2;
            return;
        }
        if self.timestamps {
            let stamps = header.options.timestamps.expect("timestamps on each segment");
            if (stamps.value.wrapping_sub(self.recent) as i32) < 0 {
                self.acknowledge = 2;
                return;
            }
        }
        let place = |seq: Seq, base: u32, near: u64| {
            let ahead = seq.0.wrapping_sub(base.wrapping_add(1)).wrapping_sub(near as u32) as i32;
            near as i64 + i64::from(ahead)
        };
        self.take_acknowledgement(now, place(header.ack, self.initial, self.acknowledged), &segment);
        let at = place(header.seq, theirs, self.received);
        if let Some(stamps) = header.options.timestamps
            && at <= self.received as i64
        {
            self.recent = stamps.value;
        }
        self.take_blocks(header);
        if segment.is_empty() && at < self.received as i64 {
            // Before the window: a keepalive probe.
            self.acknowledge = 2;
        } else if !segment.is_empty() {
            self.take_data(now, at, &segment);
        }
    }

    fn reset(&self, seq: Seq) -> Vec<u8> {
        let (source, destination) = (self.local, self.remote);
        let options = Options::default();
        let header = Header { source, destination, seq, ack: Seq(0), flags: Flags::RST, window: 0, options };
        let mut out = vec![0; 100];
        let len = header.write(&mut out, 0, 0, |_| {}).unwrap();
        out.truncate(len);
        out
    }

    /// Takes the engine's SACK blocks: no unsent data, and no acknowledged data except in the first block, for data
    /// that arrived twice (RFC 2883).
    fn take_blocks(&mut self, header: &Header) {
        let place = |seq: Seq| {
            let ahead =
                seq.0.wrapping_sub(self.initial.wrapping_add(1)).wrapping_sub(self.acknowledged as u32);
            self.acknowledged as i64 + i64::from(ahead as i32)
        };
        let ack = place(header.ack);
        let blocks: Vec<_> =
            header.options.sack.as_slice().iter().map(|(start, end)| (place(*start), place(*end))).collect();
        assert!(self.habits.has_sack || blocks.is_empty());
        for (number, (start, end)) in blocks.iter().enumerate() {
            assert!(start < end && *end as u64 <= self.sent_most, "{blocks:?}: {}", self.describe());
            assert!(*start > ack || number == 0, "{blocks:?} after {ack}: {}", self.describe());
            if *start > ack {
                self.told.push((*start as u64, *end as u64));
            }
        }
        let acknowledged = self.acknowledged;
        self.told.retain(|(_, end)| *end > acknowledged);
        self.told.sort_unstable();
        self.told.dedup();
    }

    fn opened(&mut self, header: &Header) {
        let options = &header.options;
        self.theirs = Some(header.seq.0);
        self.edge = u64::from(header.window);
        self.timestamps = options.timestamps.is_some();
        assert!(self.habits.has_timestamps || !self.timestamps);
        self.recent = options.timestamps.map_or(0, |stamps| stamps.value);
        self.scale = options.window_scale.unwrap_or(u8::MAX);
        self.habits.has_sack &= options.sack_permitted;
        self.timeout = 300_000;
        self.timer = Micros::NEVER;
    }

    fn take_acknowledgement(&mut self, now: Micros, ack: i64, segment: &Segment<'_>) {
        let Ok(ack) = u64::try_from(ack) else { return };
        assert!(ack <= self.sent_most, "{} acknowledges {ack} of {}", self.remote, self.sent_most);
        let scale = if self.scale_is_on() && self.habits.has_scaling { self.scale } else { 0 };
        let edge = ack + (u64::from(segment.header.window) << scale);
        let had = self.edge;
        // A segment that acknowledges more was sent later, and a window's edge does not go back; after the end there is
        // none.
        assert!(
            ack <= self.acknowledged || ack > self.len || edge >= had,
            "{edge} after {had}: {}",
            self.describe()
        );
        self.edge = self.edge.max(edge);
        if ack > self.acknowledged {
            self.acknowledged = ack;
            self.sent = self.sent.max(ack);
            self.duplicates = 0;
            self.timeout = 300_000;
            self.timer = Micros::NEVER;
        } else if ack == self.acknowledged && segment.is_empty() && self.sent > ack && had == self.edge {
            self.duplicates += 1;
            if self.duplicates == 3 {
                self.sent = self.acknowledged;
            }
        }
        if self.edge > had {
            self.timer = self.timer.min(now.after(self.timeout));
        }
    }

    fn take_data(&mut self, now: Micros, at: i64, segment: &Segment<'_>) {
        let is_fin = segment.header.flags.has(Flags::FIN);
        let end = at + segment.payload.len() as i64;
        assert!(
            end as u64 <= self.told_edge.max(self.habits.window) || at < 0,
            "beyond the window: {at} to {end}: {}",
            self.describe()
        );
        if is_fin {
            assert!(self.end.is_none_or(|known| known == end as u64), "two ends");
            self.end = Some(end as u64);
        }
        let skip = (self.received as i64 - at).max(0) as usize;
        if skip > 0 && skip >= segment.payload.len() && !segment.payload.is_empty() {
            self.duplicate = Some((at.max(0) as u64, end.max(0) as u64));
            self.acknowledge = 2;
        }
        let was_gap = !self.early.is_empty();
        if let Some(data) = segment.payload.get(skip..).filter(|data| !data.is_empty()) {
            let at = (at + skip as i64) as u64;
            self.last_early = at;
            let entry = self.early.entry(at).or_default();
            if entry.len() < data.len() {
                *entry = data.to_vec();
            }
        }
        self.deliver();
        let is_urgent = was_gap || !self.early.is_empty() || is_fin || !self.habits.delays;
        self.acknowledge += if is_urgent { 2 } else { 1 };
        self.acknowledge_at = self.acknowledge_at.min(now.after(40_000));
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.early.first_entry() {
            let at = *entry.key();
            if at > self.received {
                break;
            }
            let data = entry.remove();
            for (byte, at) in data.iter().zip(at..) {
                assert_eq!(*byte, self.expected(at), "{}: byte {at}", self.local);
                self.received = self.received.max(at + 1);
            }
        }
        if self.end == Some(self.received) && !self.has_ended {
            self.has_ended = true;
            if let Some(expected) = self.expected_len() {
                assert_eq!(self.received, expected, "{}: the end comes early", self.local);
            }
            self.timer = self.timer.min(Micros(0));
            self.timeout = 300_000;
        }
        if !self.habits.is_slow {
            self.read();
        }
    }

    pub fn describe(&self) -> String {
        format!(
            "port {} of {:?}: acknowledged {} sent {} of {}, edge {}, received {} (end {:?}, early {:?}), told {}",
            self.port,
            self.habits,
            self.acknowledged,
            self.sent,
            self.len,
            self.edge,
            self.received,
            self.end,
            self.early.keys().next(),
            self.told_edge
        )
    }
}
