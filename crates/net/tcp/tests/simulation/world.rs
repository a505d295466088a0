//! An engine, its clients, and the link between them, in simulated time, all by one seed.

use crate::peer::{Habits, Peer};
use crate::support::server::{PORTS, RESET, Server};
use redoubt_tcp::segment::Segment;
use redoubt_tcp::{Checksum, Config, Engine, Micros, Seq};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Properties of the link, in thousandths and microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    pub lost: u32,
    pub doubled: u32,
    pub corrupted: u32,
    /// Delayed by up to `late_us` more than others.
    pub late: u32,
    pub late_us: u64,
    pub delay_us: u64,
    /// Bytes a second from the engine, 0 for all; and what may wait for it.
    pub rate: u64,
    pub queue_len_bytes: u64,
    /// The server looks at its connections only so often.
    pub server_us: u64,
    /// Strangers send something, in so many steps of a thousand.
    pub forged: u32,
    /// So many clients of a thousand fail and begin again.
    pub failing: u32,
}

impl Trouble {
    /// The link and all who use it are as they should be.
    pub fn is_none(&self) -> bool {
        [self.lost, self.doubled, self.corrupted, self.late, self.forged, self.failing] == [0; 6]
            && (self.rate, self.server_us) == (0, 0)
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: Micros,
    order: u64,
    /// To that peer, or to the engine.
    to: Option<usize>,
    packet: Vec<u8>,
}

pub struct World {
    seed: u64,
    rng: fastrand::Rng,
    pub trouble: Trouble,
    pub now: Micros,
    pub engine: Engine,
    server: Server,
    server_at: Micros,
    pub peers: Vec<Peer>,
    events: BinaryHeap<Reverse<Event>>,
    order: u64,
    /// When the link from the engine is free.
    free_at: Micros,
    config: Config,
}

pub fn habits(rng: &mut fastrand::Rng) -> Habits {
    Habits {
        has_sack: rng.u32(..4) > 0,
        has_timestamps: rng.bool(),
        has_scaling: rng.bool(),
        delays: rng.bool(),
        window: [2000, 8000, 65_535, 300_000][rng.usize(..4)],
        is_slow: rng.u32(..4) == 0,
        in_flight: rng.u64(1..64),
        fails_at: None,
    }
}

impl World {
    pub fn new(seed: u64, trouble: Trouble, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new([seed as u8; 16]);
        change(&mut config);
        let mut engine = Engine::new(config.clone()).unwrap();
        let server = Server::new(&mut engine, [10, 99, 0, 1].into(), 64);
        Self {
            seed,
            rng: fastrand::Rng::with_seed(seed),
            trouble,
            now: Micros(1_000_000_000 + seed * 12_345_678),
            engine,
            server,
            server_at: Micros(0),
            peers: Vec::new(),
            events: BinaryHeap::new(),
            order: 0,
            free_at: Micros(0),
            config,
        }
    }

    pub fn random_peers(&mut self) {
        for number in 0..self.rng.u32(1..5) {
            let port = PORTS[self.rng.usize(..PORTS.len())];
            let len = 1 + (self.rng.u64(..) >> self.rng.u32(46..63));
            let mut habits = habits(&mut self.rng);
            if port != RESET && self.rng.u32(..1000) < self.trouble.failing {
                habits.fails_at = Some(self.rng.u64(..2 * len));
            }
            self.add(number, port, len, habits);
        }
        if self.seed.is_multiple_of(3) {
            self.go_around();
        }
    }

    /// Chooses the time such that the engine's numbers go around in the first client's connection: they grow by one in
    /// four microseconds.
    fn go_around(&mut self) {
        let mut engine = Engine::new(self.config.clone()).unwrap();
        Server::new(&mut engine, [10, 99, 0, 1].into(), 64);
        let mut out = [0; 1500];
        engine.receive(self.now, &self.peers[0].syn(self.now), Checksum::Verify);
        let answer = engine.transmit(self.now, &mut out).unwrap();
        let answer = Segment::parse(&out[..answer.len_bytes], Checksum::Verify).unwrap();
        let wanted = Seq(0u32.wrapping_sub(self.rng.u32(..self.peers[0].len.clamp(1, 300_000) as u32)));
        self.now = self.now.after(u64::from(wanted.since(answer.header.seq)) * 4);
    }

    pub fn add(&mut self, number: u32, port: u16, len: u64, habits: Habits) {
        // Sequence numbers go around in many of them.
        let initial = 0u32.wrapping_sub(self.rng.u32(..200_000));
        self.peers.push(Peer::new(port, number, len, habits, initial, self.now));
    }

    fn pass(&mut self, to: Option<usize>, mut packet: Vec<u8>) {
        let trouble = self.trouble;
        let happens = |rng: &mut fastrand::Rng, thousandths| rng.u32(..1000) < thousandths;
        let mut at = self.now;
        if to.is_some() && trouble.rate > 0 {
            let waits = self.free_at.since(self.now);
            if waits * trouble.rate / 1_000_000 > trouble.queue_len_bytes {
                return;
            }
            self.free_at = self.free_at.max(self.now).after(packet.len() as u64 * 1_000_000 / trouble.rate);
            at = self.free_at;
        }
        if happens(&mut self.rng, trouble.lost) {
            return;
        }
        if happens(&mut self.rng, trouble.corrupted) {
            let bit = self.rng.usize(..packet.len() * 8);
            packet[bit / 8] ^= 1 << (bit % 8);
        }
        let copies = 1 + u32::from(happens(&mut self.rng, trouble.doubled));
        for _ in 0..copies {
            let late = if happens(&mut self.rng, trouble.late) { self.rng.u64(..trouble.late_us) } else { 0 };
            let at = at.after(trouble.delay_us + late);
            self.order += 1;
            self.events.push(Reverse(Event { at, order: self.order, to, packet: packet.clone() }));
        }
    }

    fn deliver(&mut self, event: Event) {
        match event.to {
            None => {
                self.engine.receive(self.now, &event.packet, Checksum::Verify);
            }
            Some(index) => {
                let mut out = Vec::new();
                self.peers[index].receive(self.now, &event.packet, &mut out);
                out.into_iter().for_each(|packet| self.pass(None, packet));
            }
        }
    }

    /// Everything that happens at one time.
    fn step(&mut self) {
        while let Some(Reverse(event)) = self.events.peek() {
            if event.at > self.now {
                break;
            }
            let Some(Reverse(event)) = self.events.pop() else { break };
            self.deliver(event);
        }
        if self.rng.u32(..1000) < self.trouble.forged {
            let peer = &self.peers[self.rng.usize(..self.peers.len())];
            if peer.is_open() {
                let forged = peer.forged(&mut self.rng);
                self.engine.receive(self.now, &forged, Checksum::Verify);
            }
        }
        self.engine.advance(self.now);
        if self.server_at <= self.now {
            self.server.step(&mut self.engine, self.now);
            self.server_at = self.now.after(self.rng.u64(..self.trouble.server_us.max(1)));
        }
        let mut out = [0; 1500];
        while let Some(transmit) = self.engine.transmit(self.now, &mut out) {
            let std::net::IpAddr::V4(to) = transmit.destination else { panic!("an address of IPv6") };
            let [_, _, high, low] = to.octets();
            let index = usize::from(high) << 8 | usize::from(low);
            self.pass(Some(index), out[..transmit.len_bytes].to_vec());
        }
        for index in 0..self.peers.len() {
            let mut sent = Vec::new();
            if self.rng.u32(..30) == 0 {
                self.peers[index].read();
            }
            self.peers[index].send(self.now, &mut sent);
            sent.into_iter().for_each(|packet| self.pass(None, packet));
        }
        self.engine.require_sound();
        assert!(self.engine.memory().data_len_bytes <= self.config.memory_len_bytes);
    }

    fn next(&self) -> Micros {
        let engine = self.engine.next_timer().unwrap_or(Micros::NEVER);
        let event = self.events.peek().map_or(Micros::NEVER, |Reverse(event)| event.at);
        let peers = self.peers.iter().map(Peer::next_timer).min().unwrap_or(Micros::NEVER);
        // A slow reader or server looks again.
        let look = self.now.after(50_000);
        engine.min(event).min(peers).min(look).max(self.now.after(1))
    }

    pub fn is_done(&self) -> bool {
        self.peers.iter().all(Peer::is_done)
    }

    /// Until all clients are done; how long that took in simulated microseconds.
    pub fn run(&mut self, limit: Micros) -> u64 {
        let begin = self.now;
        while !self.is_done() {
            assert!(self.now.since(begin) < limit.0, "seed {}: no end:\n{}", self.seed, self.describe());
            self.step();
            self.now = self.next();
        }
        self.now.since(begin)
    }

    /// Afterwards nothing is left.
    pub fn settle(&mut self) {
        let end = self.now.after(Micros::from_secs(9000).0);
        while self.now < end && self.engine.memory().connections > 0 {
            self.step();
            self.now = self.next();
        }
        let memory = self.engine.memory();
        assert_eq!(
            (memory.connections, memory.data_len_bytes),
            (0, 0),
            "seed {}: {}",
            self.seed,
            self.describe()
        );
        for _ in 0..1000 {
            self.now = self.now.after(Micros::from_secs(10).0);
            self.engine.advance(self.now);
        }
        let memory = self.engine.memory();
        assert_eq!((memory.half_open, memory.time_wait), (0, 0));
        assert_eq!(self.engine.next_timer(), None);
        self.engine.require_sound();
    }

    fn describe(&self) -> String {
        let peers: Vec<_> = self.peers.iter().map(Peer::describe).collect();
        format!(
            "{}\n{:?}\n{:?}\n{:#?}",
            peers.join("\n"),
            self.engine.memory(),
            self.engine.counters(),
            self.engine.describe()
        )
    }
}
