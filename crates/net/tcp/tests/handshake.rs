//! Segment by segment: a peer that says exactly what it wants to.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_tcp::segment::{Flags, Header, Options, Segment};
use redoubt_tcp::{CallError, Checksum, Config, Engine, Micros, Seq, Verdict};
use std::net::SocketAddr;

const SERVER: &str = "10.0.0.1:3306";
const CLIENT: &str = "10.0.0.2:40000";

struct Peer {
    local: SocketAddr,
    remote: SocketAddr,
}

impl Peer {
    fn say(
        &self,
        engine: &mut Engine,
        now: Micros,
        seq: u32,
        ack: u32,
        flags: Flags,
        payload: &[u8],
    ) -> Verdict {
        let header = Header {
            source: self.local,
            destination: self.remote,
            seq: Seq(seq),
            ack: Seq(ack),
            flags,
            window: 60_000,
            options: Options { mss: flags.has(Flags::SYN).then_some(1460), ..Options::default() },
        };
        let mut out = [0; 2000];
        let len = header.write(&mut out, 0, payload.len(), |place| place.copy_from_slice(payload)).unwrap();
        let verdict = engine.receive(now, &out[..len], Checksum::Verify);
        engine.require_sound();
        verdict
    }

    fn hear(&self, engine: &mut Engine, now: Micros) -> Option<(Header, Vec<u8>)> {
        let mut out = [0; 1500];
        let transmit = engine.transmit(now, &mut out)?;
        let segment = Segment::parse(&out[..transmit.len_bytes], Checksum::Verify).unwrap();
        assert_eq!((segment.header.source, segment.header.destination), (self.remote, self.local));
        engine.require_sound();
        Some((segment.header, segment.payload.to_vec()))
    }
}

#[test]
fn a_connection_is_opened_used_and_closed() {
    let mut engine = Engine::new(Config::new([7; 16])).unwrap();
    let listener = engine.listen(SERVER.parse().unwrap(), 16).unwrap();
    let peer = Peer { local: CLIENT.parse().unwrap(), remote: SERVER.parse().unwrap() };
    let now = Micros(1_000_000);
    assert_eq!(peer.say(&mut engine, now, 100, 0, Flags::SYN, b""), Verdict::Taken);
    let (answer, _) = peer.hear(&mut engine, now).unwrap();
    assert_eq!((answer.flags, answer.ack), (Flags::SYN.with(Flags::ACK), Seq(101)));
    let first = answer.seq.plus(1).0;
    assert_eq!(engine.accept(listener), None);
    peer.say(&mut engine, now, 101, first, Flags::ACK, b"");
    let (id, from) = engine.accept(listener).unwrap();
    assert_eq!(from, peer.local);
    assert_eq!(engine.read(now, id, &mut [0; 10]), Err(CallError::WouldBlock));

    peer.say(&mut engine, now, 101, first, Flags::ACK.with(Flags::PSH), b"hello");
    assert_eq!(engine.changed(), Some(id));
    assert_eq!(engine.changed(), None);
    let mut read = [0; 10];
    assert_eq!(engine.read(now, id, &mut read), Ok(5));
    assert_eq!(&read[..5], b"hello");
    assert_eq!(engine.send(now, id, b"world!"), Ok(6));
    let (answer, payload) = peer.hear(&mut engine, now).unwrap();
    assert_eq!((answer.seq, answer.ack, &payload[..]), (Seq(first), Seq(106), &b"world!"[..]));
    assert!(peer.hear(&mut engine, now).is_none());

    peer.say(&mut engine, now, 106, first + 6, Flags::ACK.with(Flags::FIN), b"");
    assert_eq!(engine.read(now, id, &mut read), Ok(0));
    engine.close(now, id).unwrap();
    assert_eq!(engine.read(now, id, &mut read), Err(CallError::Stale));
    let (answer, _) = peer.hear(&mut engine, now).unwrap();
    assert_eq!((answer.flags, answer.ack), (Flags::ACK.with(Flags::FIN), Seq(107)));
    peer.say(&mut engine, now, 107, first + 7, Flags::ACK, b"");
    let memory = engine.memory();
    assert_eq!((memory.connections, memory.time_wait, memory.data_len_bytes), (0, 0, 0));
}

#[test]
fn what_is_not_for_it_is_not_taken() {
    let mut engine = Engine::new(Config::new([7; 16])).unwrap();
    engine.listen(SERVER.parse().unwrap(), 16).unwrap();
    let peer = Peer { local: CLIENT.parse().unwrap(), remote: "10.0.0.1:22".parse().unwrap() };
    assert_eq!(peer.say(&mut engine, Micros(1), 100, 0, Flags::SYN, b""), Verdict::NotOurs);
    assert!(peer.hear(&mut engine, Micros(1)).is_none());
}
