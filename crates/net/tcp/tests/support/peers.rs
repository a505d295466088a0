//! Peers by the thousand, each of which sends exactly the segments of a test.

use redoubt_tcp::segment::{Flags, Header, Options, Segment};
use redoubt_tcp::{Checksum, ConnectionId, Engine, ListenerId, Micros, Seq};
use std::net::{Ipv4Addr, SocketAddr};

pub fn server() -> SocketAddr {
    ([10, 99, 0, 1], 3306).into()
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub local: SocketAddr,
    pub next: Seq,
    pub told: Seq,
    pub id: Option<ConnectionId>,
}

impl Peer {
    pub fn new(number: u32) -> Self {
        let local = SocketAddr::new(
            Ipv4Addr::from(0x0a00_0000 + number % 60_000).into(),
            10_000 + (number / 60_000) as u16,
        );
        Self { local, next: Seq(number.wrapping_mul(0x9e37_79b9)), told: Seq(0), id: None }
    }

    pub fn packet(&self, flags: Flags, payload: &[u8], out: &mut [u8]) -> usize {
        let mut options = Options::default();
        if flags.has(Flags::SYN) {
            (options.mss, options.sack_permitted, options.window_scale) = (Some(1460), true, Some(7));
        }
        let header = Header {
            source: self.local,
            destination: server(),
            seq: self.next,
            ack: self.told,
            flags,
            window: 0xffff,
            options,
        };
        header.write(out, 0, payload.len(), |place| place.copy_from_slice(payload)).unwrap()
    }

    pub fn say(&mut self, engine: &mut Engine, now: Micros, flags: Flags, payload: &[u8]) {
        let mut packet = [0; 1600];
        let len = self.packet(flags, payload, &mut packet);
        engine.receive(now, &packet[..len], Checksum::Verify);
        let one = flags.has(Flags::SYN) || flags.has(Flags::FIN);
        self.next = self.next.plus(payload.len() as u32 + u32::from(one));
    }

    /// The next segment that the engine sends; of this peer.
    pub fn hear(&mut self, engine: &mut Engine, now: Micros) -> (Header, usize) {
        let mut packet = [0; 1500];
        let transmit = engine.transmit(now, &mut packet).expect("a segment");
        let segment = Segment::parse(&packet[..transmit.len_bytes], Checksum::Trust).unwrap();
        assert_eq!(segment.header.destination, self.local);
        self.told = segment.header.seq.plus(segment.len());
        (segment.header, segment.payload.len())
    }

    pub fn open(number: u32, engine: &mut Engine, listener: ListenerId, now: Micros) -> Self {
        let mut peer = Self::new(number);
        peer.say(engine, now, Flags::SYN, b"");
        peer.hear(engine, now);
        peer.say(engine, now, Flags::ACK, b"");
        let (id, from) = engine.accept(listener).expect("a connection");
        assert_eq!(from, peer.local);
        engine.set_nodelay(now, id, true).unwrap();
        peer.id = Some(id);
        peer
    }

    /// A statement of 100 bytes and its answer of 1 KiB.
    pub fn statement(&mut self, engine: &mut Engine, now: Micros) {
        let id = self.id.expect("it is open");
        self.say(engine, now, Flags::ACK.with(Flags::PSH), &[5; 100]);
        let mut read = [0; 200];
        assert_eq!(engine.read(now, id, &mut read), Ok(100));
        assert_eq!(engine.send(now, id, &[6; 1024]), Ok(1024));
        assert_eq!(self.hear(engine, now).1, 1024);
        self.say(engine, now, Flags::ACK, b"");
    }
}
