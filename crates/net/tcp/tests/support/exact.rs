//! One peer on one connection that sends exactly the segments of a test.

use redoubt_tcp::segment::{Flags, Header, Options, Segment, Timestamps};
use redoubt_tcp::{
    CallError, Checksum, Config, ConnectionError, ConnectionId, Engine, ListenerId, Micros, Seq,
};
use std::net::SocketAddr;

pub const SECOND: u64 = 1_000_000;
pub const ACK: Flags = Flags::ACK;
pub const SYN: Flags = Flags::SYN;
pub const FIN: Flags = Flags::ACK.with(Flags::FIN);
pub const RST: Flags = Flags::RST;

#[cfg(feature = "planted-bugs")]
thread_local! {
    /// The planted bug of this thread's engines.
    pub static PLANTED: std::cell::Cell<Option<redoubt_tcp::Bug>> = const { std::cell::Cell::new(None) };
}

/// Timers fire at their time or a tick of a millisecond later.
pub fn require_about(waited: u64, expected: u64) {
    assert!(waited >= expected && waited < expected + 3000, "{waited}, not {expected}");
}

/// The peer with its engine and clock.
pub struct Exact {
    pub engine: Engine,
    pub listener: ListenerId,
    pub now: Micros,
    pub id: Option<ConnectionId>,
    local: SocketAddr,
    remote: SocketAddr,
    /// Sequence numbers of the next byte to send, and of the next byte to receive.
    pub next: Seq,
    pub told: Seq,
    pub window: u16,
    /// Its clock, and the engine's, if they use timestamps.
    pub stamp: Option<u32>,
    echo: u32,
}

impl Exact {
    pub fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new([3; 16]);
        #[cfg(feature = "planted-bugs")]
        {
            config.planted = PLANTED.get();
        }
        change(&mut config);
        let mut engine = Engine::new(config).unwrap();
        let remote: SocketAddr = "10.0.0.1:3306".parse().unwrap();
        let listener = engine.listen(remote, 16).unwrap();
        Self {
            engine,
            listener,
            now: Micros(SECOND * 1000),
            id: None,
            local: "10.0.0.2:40000".parse().unwrap(),
            remote,
            next: Seq(0xffff_f000),
            told: Seq(0),
            window: 60_000,
            stamp: None,
            echo: 0,
        }
    }

    /// A connection that the server has.
    pub fn open(change: impl FnOnce(&mut Config)) -> Self {
        let mut peer = Self::new(change);
        peer.connect();
        peer
    }

    /// The same, with timestamps.
    pub fn open_with_timestamps(stamp: u32) -> Self {
        let mut peer = Self::new(|_| {});
        peer.stamp = Some(stamp);
        peer.connect();
        peer
    }

    pub fn connect(&mut self) {
        self.say(SYN, b"");
        let (answer, _) = self.hear().expect("an answer to SYN");
        assert_eq!((answer.flags, answer.ack), (SYN.with(ACK), self.next));
        self.say(ACK, b"");
        let (id, from) = self.engine.accept(self.listener).expect("a connection");
        assert_eq!(from, self.local);
        self.engine.set_nodelay(self.now, id, true).unwrap();
        self.id = Some(id);
    }

    pub fn id(&self) -> ConnectionId {
        self.id.expect("it is open")
    }

    /// The header that the peer would send now.
    pub fn header(&self, flags: Flags) -> Header {
        let is_syn = flags.has(SYN);
        Header {
            source: self.local,
            destination: self.remote,
            seq: self.next,
            ack: if flags.has(ACK) { self.told } else { Seq(0) },
            flags,
            window: self.window,
            options: Options {
                mss: is_syn.then_some(1460),
                timestamps: self.stamp.map(|value| Timestamps { value, echo: self.echo }),
                ..Options::default()
            },
        }
    }

    /// Says it, with whatever numbers.
    pub fn send(&mut self, header: &Header, payload: &[u8]) {
        let mut packet = [0; 2000];
        let len =
            header.write(&mut packet, 0, payload.len(), |place| place.copy_from_slice(payload)).unwrap();
        self.engine.receive(self.now, &packet[..len], Checksum::Verify);
        self.engine.require_sound();
    }

    /// Says the next thing.
    pub fn say(&mut self, flags: Flags, payload: &[u8]) {
        self.send(&self.header(flags), payload);
        let one = flags.has(SYN) || flags.has(Flags::FIN);
        self.next = self.next.plus(payload.len() as u32 + u32::from(one));
    }

    /// The next packet of the engine. A packet that continues the sequence counts as received.
    pub fn hear(&mut self) -> Option<(Header, Vec<u8>)> {
        let mut packet = [0; 1500];
        let sent = self.engine.transmit(self.now, &mut packet)?;
        self.engine.require_sound();
        let segment = Segment::parse(&packet[..sent.len_bytes], Checksum::Verify).unwrap();
        assert_eq!((segment.header.source, segment.header.destination), (self.remote, self.local));
        if segment.header.flags.has(SYN) || segment.header.seq == self.told {
            self.told = segment.header.seq.plus(segment.len());
        }
        if let Some(stamps) = segment.header.options.timestamps {
            self.echo = stamps.value;
        }
        Some((segment.header, segment.payload.to_vec()))
    }

    pub fn hear_nothing(&mut self) {
        let heard = self.hear();
        assert!(heard.is_none(), "{heard:?}");
    }

    /// The acknowledgement of all that it said, and nothing else.
    pub fn hear_acknowledgement(&mut self) {
        let (header, payload) = self.hear().expect("an acknowledgement");
        assert_eq!((header.flags, header.ack, header.seq, payload.len()), (ACK, self.next, self.told, 0));
        self.hear_nothing();
    }

    /// Time passes in which nothing comes.
    pub fn pass(&mut self, micros: u64) {
        self.now = self.now.after(micros);
        self.engine.advance(self.now);
        self.engine.require_sound();
    }

    /// Lets time pass until the engine sends a packet, at most `longest`. Returns its header and the elapsed time.
    pub fn pass_until_heard(&mut self, longest: u64) -> Option<(Header, u64)> {
        let (begin, end) = (self.now, self.now.after(longest));
        loop {
            let due = self.engine.next_timer().filter(|due| *due <= end)?;
            self.now = self.now.max(due);
            self.engine.advance(self.now);
            self.engine.require_sound();
            if let Some((header, _)) = self.hear() {
                return Some((header, self.now.since(begin)));
            }
        }
    }

    pub fn error(&self) -> Option<ConnectionError> {
        self.engine.state(self.id()).unwrap().error
    }

    /// Everything that can be read.
    pub fn read(&mut self) -> Result<Vec<u8>, CallError> {
        let mut out = vec![0; 1 << 16];
        let count = self.engine.read(self.now, self.id(), &mut out)?;
        out.truncate(count);
        Ok(out)
    }

    pub fn write(&mut self, data: &[u8]) {
        assert_eq!(self.engine.send(self.now, self.id(), data), Ok(data.len()));
    }
}
