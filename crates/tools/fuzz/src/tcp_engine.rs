//! Any packets and calls, at any times: an engine's tables agree with each other, its memory is bounded, and its output
//! can be parsed. Packets with valid numbers reach more states, so a packet may use numbers that the engine has sent.
//!
//! Input: settings (1 byte), then steps: a byte that selects the step, and its arguments.

use std::net::SocketAddr;

use redoubt_tcp::segment::{Flags, Header, Options, Segment, Timestamps};
use redoubt_tcp::{CallError, Checksum, Config, ConnectionId, Engine, Keepalive, Micros, Seq};

use crate::tcp_segment::make_right;

const PEERS: usize = 4;
const MEMORY: usize = 64 << 10;

struct Input<'d> {
    rest: &'d [u8],
}

impl<'d> Input<'d> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn half(&mut self) -> Option<u16> {
        Some(u16::from(self.byte()?) << 8 | u16::from(self.byte()?))
    }

    fn take(&mut self, len: usize) -> &'d [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }
}

/// A peer's view of its connection with the engine.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Sequence numbers: the peer's next byte, and in `told` the next byte that it expects from the engine.
    next: u32,
    told: u32,
    stamp: u32,
}

struct World {
    engine: Engine,
    now: Micros,
    seen: [Seen; PEERS],
    open: Vec<ConnectionId>,
}

fn server(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

impl World {
    fn new(settings: u8) -> Self {
        let mut config = Config::new([settings; 16]);
        config.max_connections = 3;
        config.max_half_open = 2 - u32::from(settings & 1) * 2;
        config.max_time_wait = 2 - u32::from(settings >> 1 & 1) * 2;
        config.has_timestamps = settings & 4 == 0;
        config.has_sack = settings & 8 == 0;
        config.has_window_scaling = settings & 16 == 0;
        config.memory_len_bytes = MEMORY;
        config.send_buffer_len_bytes = 20_000;
        config.receive_buffer_len_bytes = 40_000;
        config.initial_window_len_bytes = 20_000;
        let engine = Engine::new(config).unwrap();
        Self { engine, now: Micros(5_000_000_000), seen: [Seen::default(); PEERS], open: Vec::new() }
    }

    /// A segment of a peer: numbers near to what is right, flags and options as the input says.
    fn segment(&mut self, input: &mut Input<'_>) -> Option<()> {
        let (peer, bits, kinds) = (usize::from(input.byte()?) % PEERS, input.byte()?, input.byte()?);
        let near = |input: &mut Input<'_>, is_off: bool| {
            if is_off { input.half().map(|by| by as i16) } else { Some(0) }
        };
        let seen = self.seen[peer];
        let seq = seen.next.wrapping_add_signed(i32::from(near(input, kinds & 1 != 0)?));
        let ack = seen.told.wrapping_add_signed(i32::from(near(input, kinds & 2 != 0)?));
        let window = if kinds & 4 != 0 { input.half()? } else { 0xf000 };
        let mut options = Options::default();
        if kinds & 8 != 0 {
            options.timestamps = Some(Timestamps { value: (self.now.0 / 1000) as u32, echo: seen.stamp });
        }
        if bits & 2 != 0 {
            options.mss = Some(1460);
            options.window_scale = (kinds & 16 != 0).then_some(bits >> 5);
            options.sack_permitted = kinds & 32 != 0;
        } else if kinds & 32 != 0 {
            for _ in 0..input.byte()? % 4 {
                let start = ack.wrapping_add(u32::from(input.half()?));
                options.sack.push(Seq(start), Seq(start.wrapping_add(u32::from(input.half()?))));
            }
        }
        let len = if kinds & 64 != 0 { usize::from(input.half()? % 1460) } else { 0 };
        let mut flags = if bits & 16 == 0 && bits & 2 == 0 { Flags::ACK } else { Flags::default() };
        for (bit, flag) in [(1, Flags::FIN), (2, Flags::SYN), (4, Flags::RST), (8, Flags::PSH)] {
            if bits & bit != 0 {
                flags = flags.with(flag);
            }
        }
        let source = ([10, 0, 1, peer as u8], 5000).into();
        let header =
            Header { source, destination: server(80), seq: Seq(seq), ack: Seq(ack), flags, window, options };
        let mut packet = vec![0; 2000];
        let len = header.write(&mut packet, 0, len, |place| place.fill(bits))?;
        self.engine.receive(self.now, &packet[..len], Checksum::Verify);
        if let Ok(segment) = Segment::parse(&packet[..len], Checksum::Verify) {
            self.seen[peer].next = seq.wrapping_add(segment.len());
        }
        Some(())
    }

    fn hear(&mut self) {
        let mut out = [0; 1500];
        for _ in 0..200 {
            let Some(transmit) = self.engine.transmit(self.now, &mut out) else { return };
            let segment = Segment::parse(&out[..transmit.len_bytes], Checksum::Verify)
                .expect("what it writes is right");
            let std::net::IpAddr::V4(to) = transmit.destination else { panic!("of another family") };
            let Some(seen) = self.seen.get_mut(usize::from(to.octets()[3])) else { continue };
            let header = &segment.header;
            seen.told = header.seq.plus(segment.len()).0;
            seen.next = if header.flags.has(Flags::ACK) { header.ack.0 } else { seen.next };
            seen.stamp = header.options.timestamps.map_or(0, |stamps| stamps.value);
        }
    }

    fn call(&mut self, input: &mut Input<'_>) -> Option<()> {
        let (what, which) = (input.byte()?, usize::from(input.byte()?));
        let id = *self.open.get(which % self.open.len().max(1))?;
        let (engine, now) = (&mut self.engine, self.now);
        let result = match what % 10 {
            0 | 1 => engine.send(now, id, &[what; 20_000][..usize::from(input.half()?) % 20_000]).map(drop),
            2 | 3 => engine.read(now, id, &mut [0; 5000]).map(drop),
            4 => engine.shutdown_write(now, id),
            5 => engine.shutdown_read(now, id),
            6 => engine.close(now, id),
            7 => engine.reset(now, id),
            8 => engine.set_nodelay(now, id, what & 16 != 0),
            _ => {
                let keepalive = Keepalive { idle: Micros(5_000_000), interval: Micros(1_000_000), probes: 3 };
                engine.set_user_timeout(now, id, (what & 16 != 0).then_some(Micros(9_000_000))).ok();
                engine.set_keepalive(now, id, (what & 32 != 0).then_some(keepalive))
            }
        };
        let ends = matches!(what % 10, 6 | 7);
        assert!(!ends || result == Ok(()) || result == Err(CallError::Stale));
        if ends {
            assert_eq!(engine.state(id), Err(CallError::Stale));
        }
        Some(())
    }
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let _ = play(data);
}

/// The counters of an engine at the end of an input; for tests of how far an input gets.
#[must_use]
pub fn play(data: &[u8]) -> Option<redoubt_tcp::Counters> {
    let mut input = Input { rest: data };
    let settings = input.byte()?;
    let mut world = World::new(settings);
    let mut listener = world.engine.listen(server(80), 2).unwrap();
    while let Some(what) = input.byte() {
        match what % 8 {
            0..3 => drop(world.segment(&mut input)),
            3 => world.hear(),
            4 => {
                let step = u64::from(input.byte().unwrap_or(0)).pow(3);
                world.now = world.now.after(step * if what & 64 != 0 { 1000 } else { 1 });
                world.engine.advance(world.now);
            }
            5 => {
                let len = usize::from(input.byte().unwrap_or(0));
                let mut packet = input.take(len).to_vec();
                make_right(&mut packet);
                world.engine.receive(world.now, &packet, Checksum::Verify);
            }
            6 => drop(world.call(&mut input)),
            _ => {
                while let Some((id, _)) = world.engine.accept(listener) {
                    world.open.push(id);
                }
                while world.engine.changed().is_some() {}
                if what & 128 != 0 {
                    world.engine.unlisten(world.now, listener);
                    listener = world.engine.listen(server(80), 2).unwrap();
                }
            }
        }
        world.engine.require_sound();
        let memory = world.engine.memory();
        assert!(memory.connections <= 3 && memory.half_open <= 2 && memory.time_wait <= 2);
        // Connection slots, chunks, and the segments and gaps of each connection.
        assert!(memory.connections_len_bytes < MEMORY + 3 * 30_000, "{memory:?}");
    }
    // All connections end by themselves, once no caller holds them.
    for id in std::mem::take(&mut world.open) {
        world.engine.reset(world.now, id).ok();
    }
    world.engine.unlisten(world.now, listener);
    for _ in 0..2000 {
        world.hear();
        let Some(at) = world.engine.next_timer() else { break };
        world.now = world.now.max(at);
        world.engine.advance(world.now);
    }
    let memory = world.engine.memory();
    assert_eq!((memory.connections, memory.half_open, memory.time_wait), (0, 0, 0));
    assert_eq!((memory.data_len_bytes, world.engine.next_timer()), (0, None));
    Some(world.engine.counters())
}
