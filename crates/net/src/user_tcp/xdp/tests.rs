//! On a pair of virtual interfaces between two network namespaces, which needs root.

use super::*;
use redoubt_test_support::{NetworkPair, Side, skip};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

fn pair(test: &str) -> Option<NetworkPair> {
    let pair = NetworkPair::create();
    if pair.is_none() {
        skip(test, "network namespaces need root");
    }
    pair
}

fn open(pair: &NetworkPair) -> Result<Xdp, XdpError> {
    pair.within(Side::Server, || Xdp::open(&Interface::find(NetworkPair::INTERFACE).unwrap(), 0, false))
}

fn connect(pair: &NetworkPair, to: &str) -> io::Result<TcpStream> {
    let to: SocketAddr = to.parse().unwrap();
    pair.within(Side::Client, || TcpStream::connect_timeout(&to, Duration::from_millis(300)))
}

/// Ports of TCP to which frames have come.
fn ports(link: &mut Xdp) -> Vec<u16> {
    let mut all = Vec::new();
    link.receive(1000, &mut |frame| {
        let ip_header = if frame[12] == 0x86 { 40 } else { usize::from(frame[14] & 15) * 4 };
        let tcp = &frame[ETHERNET_LEN_BYTES + ip_header..];
        all.push(u16::from_be_bytes([tcp[2], tcp[3]]));
    });
    all
}

const TAKE: Steering = Steering { new: true, shared: false };

#[test]
fn what_is_steered_comes_and_nothing_else() {
    let Some(pair) = pair("what_is_steered_comes_and_nothing_else") else { return };
    let mut link = open(&pair).unwrap();
    assert_eq!((link.mode(), link.mtu_bytes()), (Mode::Native, 1500));
    assert!(link.has_partial_checksums());
    for (place, other) in [("10.79.0.1:7001", "10.79.0.1:7002"), ("[fd79::1]:7001", "[fd79::1]:7002")] {
        assert_eq!(connect(&pair, place).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        link.steer(place.parse().unwrap(), Some(TAKE)).unwrap();
        assert_eq!(connect(&pair, place).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(connect(&pair, other).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let ports = ports(&mut link);
        assert!(!ports.is_empty() && ports.iter().all(|port| *port == 7001), "{ports:?}");
        link.steer(place.parse().unwrap(), None).unwrap();
        link.steer(place.parse().unwrap(), None).unwrap();
        assert_eq!(connect(&pair, place).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(self::ports(&mut link), [0; 0]);
    }
    assert_eq!(link.counters().dropped, 0);
}

#[test]
fn connections_of_the_kernel_stay_with_it() {
    let Some(pair) = pair("connections_of_the_kernel_stay_with_it") else { return };
    let mut link = open(&pair).unwrap();
    for place in ["10.79.0.1:7001", "[fd79::1]:7001"] {
        let to: SocketAddr = place.parse().unwrap();
        let listener = pair.within(Side::Server, || TcpListener::bind(to)).unwrap();
        let talk = |link: &mut Xdp, mut client: TcpStream| {
            let (mut server, _) = listener.accept().unwrap();
            link.steer(to, Some(Steering { new: true, shared: true })).unwrap();
            client.write_all(b"question").unwrap();
            let mut bytes = [0; 8];
            server.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"question");
            server.write_all(b"answer").unwrap();
            client.read_exact(&mut bytes[..6]).unwrap();
            assert_eq!(ports(link), [0; 0]);
        };
        // Made before anything was steered, and then while no new ones are taken.
        let client = connect(&pair, place).unwrap();
        talk(&mut link, client);
        link.steer(to, Some(Steering { new: false, shared: true })).unwrap();
        let client = connect(&pair, place).unwrap();
        talk(&mut link, client);
        // A new one is taken.
        assert_eq!(connect(&pair, place).unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(ports(&mut link).contains(&7001));
    }
}

#[test]
fn frames_are_sent_in_any_number() {
    let Some(pair) = pair("frames_are_sent_in_any_number") else { return };
    let (mut link, peer) =
        (open(&pair).unwrap(), pair.within(Side::Client, || Interface::find("v0").unwrap()));
    let received = || {
        let path = "/sys/class/net/v0/statistics/rx_packets";
        let output = pair.command(Side::Client, "cat").arg(path).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap()
    };
    let before = received();
    for _ in 0..10 {
        for _ in 0..1000 {
            let mac = link.mac();
            assert!(link.transmit(&mut |frame| {
                frame[..6].copy_from_slice(&peer.mac);
                frame[6..12].copy_from_slice(&mac);
                frame[12..14].copy_from_slice(&[0x88, 0xb5]);
                Some(60)
            }));
        }
        while !link.flush() {}
    }
    assert!(received() - before >= 10_000, "{} of 10,000", received() - before);
    assert!(!link.transmit(&mut |_| None));
}

#[test]
fn an_interface_that_is_not_there_is_said_to_be_missing() {
    assert_eq!(Interface::find("nothing-there").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(Interface::find("lo").unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn a_second_owner_is_told_that_the_interface_is_taken() {
    let Some(pair) = pair("a_second_owner_is_told_that_the_interface_is_taken") else { return };
    let first = open(&pair).unwrap();
    let second = open(&pair);
    assert!(matches!(second.err().unwrap(), XdpError::Busy { .. }));
    drop(first);
    assert!(open(&pair).is_ok());
}
