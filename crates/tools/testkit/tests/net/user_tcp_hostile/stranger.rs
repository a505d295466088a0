//! A stranger on the client's wire that sends any packet, from any address.

use redoubt_chaos::packet_socket::{Mac, PacketSocket};
use redoubt_tcp::segment::{Flags, Header, Options, Segment};
use redoubt_tcp::{Checksum, Seq};
use redoubt_test_support::{NetworkPair, Side};
use std::net::{Ipv4Addr, SocketAddr};

const ETHERNET_LEN_BYTES: usize = 14;
const IPV4_LEN_BYTES: usize = 20;

/// A stranger with a packet socket on the client's wire.
pub struct Stranger {
    socket: PacketSocket,
    /// MAC address of the server's interface.
    to: Mac,
    /// Source MAC address: the stranger's own, or a forged one.
    pub from: Mac,
    pub server: SocketAddr,
    pub sent: u64,
}

/// State of a connection that the stranger has opened, or guesses.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub local: SocketAddr,
    pub next: Seq,
    pub told: Seq,
}

/// The sum of RFC 1071.
fn sum(parts: &[&[u8]]) -> [u8; 2] {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 = words.map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    (!((folded & 0xffff) + (folded >> 16)) as u16).to_be_bytes()
}

/// An address of its own for each number.
pub fn address_of(number: u32) -> SocketAddr {
    (Ipv4Addr::from(0x0b00_0000 + number), 1024 + (number % 60_000) as u16).into()
}

/// Times that a connection is tried, two seconds each.
const TRIES: u32 = 15;

impl Stranger {
    pub fn new(pair: &NetworkPair, server: SocketAddr) -> Self {
        let open = || PacketSocket::open(NetworkPair::INTERFACE).unwrap();
        let to = pair.within(Side::Server, open).mac();
        let socket = pair.within(Side::Client, open);
        Self { from: socket.mac(), socket, to, server, sent: 0 }
    }

    pub fn header(&self, known: &Known, flags: Flags) -> Header {
        Header {
            source: known.local,
            destination: self.server,
            seq: known.next,
            ack: known.told,
            flags,
            window: 0xffff,
            options: Options { mss: flags.has(Flags::SYN).then_some(1460), ..Options::default() },
        }
    }

    fn send_packet(&mut self, packet: &[u8]) {
        let frame = [&self.to[..], &self.from, &[8, 0], packet].concat();
        // The socket has no room at the moment: try again.
        redoubt_test_support::wait::until("room in the socket", || self.socket.send(&frame).unwrap());
        self.sent += 1;
    }

    pub fn send(&mut self, header: &Header, payload: &[u8]) {
        let mut packet = vec![0; 1500];
        let len =
            header.write(&mut packet, 0, payload.len(), |place| place.copy_from_slice(payload)).unwrap();
        self.send_packet(&packet[..len]);
    }

    /// With these bytes instead of options, up to 40, and right checksums.
    pub fn send_with_options(&mut self, header: &Header, options: &[u8], payload: &[u8]) {
        let bare = Header { options: Options::default(), ..*header };
        let mut packet = vec![0; 100];
        let len = bare.write(&mut packet, 0, 0, |_| {}).unwrap();
        packet.truncate(len);
        let padded = options.len().next_multiple_of(4);
        packet.extend_from_slice(options);
        packet.resize(len + padded, 0);
        packet.extend_from_slice(payload);
        let total = packet.len() as u16;
        let (ip, tcp) = packet.split_at_mut(IPV4_LEN_BYTES);
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        ip[10..12].fill(0);
        let checksum = sum(&[ip]);
        ip[10..12].copy_from_slice(&checksum);
        tcp[12] = ((20 + padded) as u8 / 4) << 4;
        tcp[16..18].fill(0);
        let len = (tcp.len() as u16).to_be_bytes();
        let checksum = sum(&[&ip[12..20], &[0, 6], &len, tcp]);
        tcp[16..18].copy_from_slice(&checksum);
        self.send_packet(&packet);
    }

    /// The next segment that the server sends to any address; `None` if there is none now.
    pub fn hear(&mut self) -> Option<(Header, usize)> {
        let mut frame = vec![0; 1 << 16];
        loop {
            let len = self.socket.receive(&mut frame).unwrap()?;
            let packet = &frame[ETHERNET_LEN_BYTES.min(len)..len];
            if frame[12..14] == [8, 0]
                && let Ok(segment) = Segment::parse(packet, Checksum::Trust)
            {
                return Some((segment.header, segment.payload.len()));
            }
        }
    }

    /// The next segment that the server sends to this address within two seconds.
    pub fn hear_for(&mut self, local: SocketAddr) -> Option<(Header, usize)> {
        let begin = std::time::Instant::now();
        while begin.elapsed().as_secs() < 2 {
            match self.hear() {
                Some(heard) if heard.0.destination == local => return Some(heard),
                Some(_) => {}
                None => std::thread::yield_now(),
            }
        }
        None
    }

    /// A connection from there, if the server answers. The first segment is sent again, as by any client: it, or its
    /// answer, may be lost, and a busy server may answer late.
    pub fn open(&mut self, local: SocketAddr, seq: u32) -> Option<Known> {
        let mut known = Known { local, next: Seq(seq), told: Seq(0) };
        let (answer, _) = (0..TRIES).find_map(|_| {
            self.send(&self.header(&known, Flags::SYN), b"");
            self.hear_for(local).filter(|(answer, _)| answer.flags.has(Flags::SYN))
        })?;
        (known.next, known.told) = (Seq(seq).plus(1), answer.seq.plus(1));
        self.send(&self.header(&known, Flags::ACK), b"");
        Some(known)
    }
}
