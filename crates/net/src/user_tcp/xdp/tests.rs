//! On a pair of virtual interfaces between two network namespaces, which needs root.

use super::*;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Two namespaces; `a` has 10.79.0.1 and fd79::1, `b` the addresses with a 2.
struct Pair(String);

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Pair {
    fn create() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // SAFETY: no arguments.
        if unsafe { libc::geteuid() } != 0 {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        let pair = Self(format!("rxdp-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
        let (a, b) = (pair.name("a"), pair.name("b"));
        ip(&["netns", "add", &a]);
        ip(&["netns", "add", &b]);
        ip(&["link", "add", "v0", "netns", &a, "type", "veth", "peer", "name", "v0", "netns", &b]);
        for (name, number) in [(&a, 1), (&b, 2)] {
            ip(&["-n", name, "address", "add", &format!("10.79.0.{number}/24"), "dev", "v0"]);
            ip(&["-n", name, "address", "add", &format!("fd79::{number}/64"), "dev", "v0", "nodad"]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
            ip(&["-n", name, "link", "set", "v0", "up"]);
        }
        Some(pair)
    }

    fn name(&self, side: &str) -> String {
        format!("{}-{side}", self.0)
    }

    /// Runs something in a namespace.
    fn within<Done: Send>(&self, side: &str, call: impl FnOnce() -> Done + Send) -> Done {
        let namespace = std::fs::File::open(format!("/run/netns/{}", self.name(side))).unwrap();
        std::thread::scope(|scope| {
            let run = || {
                // SAFETY: changes this thread alone.
                assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
                call()
            };
            scope.spawn(run).join().unwrap()
        })
    }

    fn open(&self) -> Xdp {
        self.within("a", || Xdp::open(&Interface::find("v0").unwrap(), 0, false)).unwrap()
    }

    fn connect(&self, to: &str) -> io::Result<TcpStream> {
        let to: SocketAddr = to.parse().unwrap();
        self.within("b", || TcpStream::connect_timeout(&to, Duration::from_millis(300)))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for side in ["a", "b"] {
            let _ = Command::new("ip").args(["netns", "del", &self.name(side)]).status();
        }
    }
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
    let Some(pair) = Pair::create() else { return };
    let mut link = pair.open();
    assert_eq!((link.mode(), link.mtu_bytes()), (Mode::Native, 1500));
    assert!(link.has_partial_checksums());
    for (place, other) in [("10.79.0.1:7001", "10.79.0.1:7002"), ("[fd79::1]:7001", "[fd79::1]:7002")] {
        assert_eq!(pair.connect(place).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        link.steer(place.parse().unwrap(), Some(TAKE)).unwrap();
        assert_eq!(pair.connect(place).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(pair.connect(other).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let ports = ports(&mut link);
        assert!(!ports.is_empty() && ports.iter().all(|port| *port == 7001), "{ports:?}");
        link.steer(place.parse().unwrap(), None).unwrap();
        link.steer(place.parse().unwrap(), None).unwrap();
        assert_eq!(pair.connect(place).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(self::ports(&mut link), [0; 0]);
    }
    assert_eq!(link.counters().dropped, 0);
}

#[test]
fn connections_of_the_kernel_stay_with_it() {
    let Some(pair) = Pair::create() else { return };
    let mut link = pair.open();
    for place in ["10.79.0.1:7001", "[fd79::1]:7001"] {
        let to: SocketAddr = place.parse().unwrap();
        let listener = pair.within("a", || TcpListener::bind(to)).unwrap();
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
        let client = pair.connect(place).unwrap();
        talk(&mut link, client);
        link.steer(to, Some(Steering { new: false, shared: true })).unwrap();
        let client = pair.connect(place).unwrap();
        talk(&mut link, client);
        // A new one is taken.
        assert_eq!(pair.connect(place).unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(ports(&mut link).contains(&7001));
    }
}

#[test]
fn frames_are_sent_in_any_number() {
    let Some(pair) = Pair::create() else { return };
    let (mut link, peer) = (pair.open(), pair.within("b", || Interface::find("v0").unwrap()));
    let received = || {
        let file = format!("/sys/class/net/v0/statistics/rx_packets");
        let output = Command::new("ip")
            .args(["netns", "exec", &pair.name("b"), "cat", &file])
            .output()
            .unwrap();
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
    let Some(pair) = Pair::create() else { return };
    let first = pair.open();
    let second = pair.within("a", || Xdp::open(&Interface::find("v0").unwrap(), 0, false));
    assert!(matches!(second.err().unwrap(), XdpError::Busy { .. }));
    drop(first);
    let again = pair.within("a", || Xdp::open(&Interface::find("v0").unwrap(), 0, false));
    assert!(again.is_ok());
    drop(again);
}
