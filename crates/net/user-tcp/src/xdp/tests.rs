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

/// Destination ports of the received TCP frames.
fn ports(link: &mut Xdp) -> Vec<u16> {
    ports_by(link, None)
}

fn ports_by(link: &mut Xdp, lane: Option<u32>) -> Vec<u16> {
    let mut all = Vec::new();
    link.receive(lane, 1000, &mut |frame| {
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
    let number = lane(&pair, &mut link).number;
    // Frames for which a lane's ring has no room go by the link's.
    for lane in (0..20).map(|round| [None, Some(number)][round % 2]) {
        for _ in 0..1000 {
            let mac = link.mac();
            assert!(link.has_room());
            assert!(link.transmit(&mut |frame| {
                frame[..6].copy_from_slice(&peer.mac);
                frame[6..12].copy_from_slice(&mac);
                frame[12..14].copy_from_slice(&[0x88, 0xb5]);
                Some(Written { len_bytes: 60, lane })
            }));
        }
        let kicks = link.take_kicks();
        assert_eq!(kicks.iter().count(), if lane.is_some() { 2 } else { 1 });
        kicks.iter().for_each(|kick| while crate::lane::kick(kick.fd) != super::Sent::All {});
        assert!(link.take_kicks().is_empty());
    }
    assert!(received() - before >= 20_000, "{} of 20,000", received() - before);
    assert!(!link.transmit(&mut |_| None));
}

/// One more lane of a link.
fn lane(pair: &NetworkPair, link: &mut Xdp) -> &'static Lane {
    let make = link.make_lane(10).unwrap();
    link.add_lane(pair.within(Side::Server, || make().unwrap())).unwrap()
}

/// Sends the first frame of a connection between these ends, in this network namespace: ours, and the peer's.
fn send_syn([own, peer]: [SocketAddr; 2]) {
    let kind = if own.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let to_kernel = |address: SocketAddr| {
        // SAFETY: plain numbers, for which zero is a value.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        // SAFETY: room for any address.
        unsafe { redoubt_interpose::Address::of(address).write((&raw mut storage).cast(), &mut len) };
        (storage, len)
    };
    let ((from, from_len), (to, to_len)) = (to_kernel(peer), to_kernel(own));
    // SAFETY: addresses of these lengths, and a descriptor that is closed once.
    unsafe {
        let fd = libc::socket(kind, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0);
        // The same end again: the kernel may not have let go of the socket before.
        let (on, len) = (1_i32, size_of::<i32>() as libc::socklen_t);
        assert_eq!(
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, (&raw const on).cast(), len),
            0
        );
        assert_eq!(libc::bind(fd, (&raw const from).cast(), from_len), 0, "{}", io::Error::last_os_error());
        libc::connect(fd, (&raw const to).cast(), to_len);
        libc::close(fd);
    }
}

#[test]
fn a_connection_with_a_lane_comes_by_it_and_no_other_one_does() {
    let Some(pair) = pair("a_connection_with_a_lane_comes_by_it_and_no_other_one_does") else { return };
    let mut link = open(&pair).unwrap();
    let lanes = [lane(&pair, &mut link), lane(&pair, &mut link)];
    assert_eq!(lanes.map(|lane| lane.number), [0, 1]);
    assert!(link.make_lane(2).is_none());
    for (own, peer) in [("10.79.0.1", "10.79.0.2"), ("fd79::1", "fd79::2")] {
        let place = |address: &str, port| SocketAddr::new(address.parse().unwrap(), port);
        let to = place(own, 7001);
        link.steer(to, Some(TAKE)).unwrap();
        let knock = |port| pair.within(Side::Client, || send_syn([to, place(peer, port)]));
        for (lane, port) in lanes.iter().zip([9001, 9002]) {
            link.steer_connection([to, place(peer, port)], Some(lane.number)).unwrap();
        }
        [9001, 9002, 9003].into_iter().for_each(knock);
        for lane in lanes {
            assert!(lane.has_frames());
            assert_eq!(ports_by(&mut link, Some(lane.number)), [7001]);
            assert!(!lane.has_frames());
        }
        assert_eq!(ports(&mut link), [7001]);
        link.steer_connection([to, place(peer, 9001)], None).unwrap();
        knock(9001);
        assert_eq!((ports(&mut link), ports_by(&mut link, Some(0))), (vec![7001], vec![]));
        link.steer_connection([to, place(peer, 9002)], None).unwrap();
    }
    assert_eq!(link.counters().dropped, 0);
}

#[test]
fn who_waits_at_a_lane_is_woken_by_frames_the_bell_and_time() {
    let Some(pair) = pair("who_waits_at_a_lane_is_woken_by_frames_the_bell_and_time") else { return };
    let mut link = open(&pair).unwrap();
    let lane = lane(&pair, &mut link);
    let none = std::ptr::null::<libc::sigset_t>;
    assert!(lane.attend() && !lane.attend() && lane.is_attended());
    let start = Instant::now();
    assert!(lane.wait(|| true, Some(Duration::from_millis(30)), none()));
    assert!(start.elapsed() >= Duration::from_millis(30));
    // The condition of the wait holds already.
    assert!(lane.wait(|| false, None, none()));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lane.wait(|| true, None, none()));
        redoubt_test_support::wait::until("a thread that polls the lane", || lane.is_polled());
        lane.ring();
        assert!(waiter.join().unwrap());
    });
    // The bell was consumed, and does not ring again.
    assert!(lane.wait(|| true, Some(Duration::from_millis(30)), none()));
    let ends = ["10.79.0.1:7001", "10.79.0.2:9001"].map(|end| end.parse::<SocketAddr>().unwrap());
    link.steer(ends[0], Some(TAKE)).unwrap();
    link.steer_connection(ends, Some(lane.number)).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lane.wait(|| true, None, none()));
        redoubt_test_support::wait::until("a thread that polls the lane", || lane.is_polled());
        pair.within(Side::Client, || send_syn(ends));
        assert!(waiter.join().unwrap());
    });
    assert!(lane.has_frames());
    lane.leave();
    assert!(!lane.is_attended() && lane.attend());
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
