use super::*;
use redoubt_test_support::{NetworkPair, Side, run};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Instant;

fn pair() -> (SocketConnection, SocketConnection) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (SocketConnection::new(client), SocketConnection::new(listener.accept().unwrap().0))
}

#[test]
fn bytes_go_both_ways_and_an_end_is_seen() {
    let (a, b) = pair();
    a.write_all(b"there").unwrap();
    b.write_all(b"back").unwrap();
    let mut out = [0; 5];
    (&b as &dyn Connection).read_exact(&mut out).unwrap();
    assert_eq!(&out, b"there");
    (&a as &dyn Connection).read_exact(&mut out[..4]).unwrap();
    assert_eq!(&out[..4], b"back");
    a.shutdown();
    assert_eq!(b.read(&mut out).unwrap(), 0);
}

#[test]
fn a_shutdown_ends_a_read_that_waits() {
    let (a, _b) = pair();
    let a = Arc::new(a);
    let reader = std::thread::spawn({
        let a = Arc::clone(&a);
        move || a.read(&mut [0; 1]).unwrap()
    });
    a.shutdown();
    assert_eq!(reader.join().unwrap(), 0);
}

/// Minimum interval between two bytes of a slow peer.
const BETWEEN: Duration = Duration::from_millis(10);

/// Reads from a slow peer until the deadline. Returns the number of bytes before it.
fn received_before(deadline: Duration) -> u32 {
    let (a, b) = pair();
    b.set_deadline(Some(deadline)).unwrap();
    let sender = std::thread::spawn(move || {
        // Until the other side closes it, after its deadline.
        while a.write_all(b"x").is_ok() {
            std::thread::sleep(BETWEEN);
        }
    });
    let mut received = 0;
    let error = loop {
        match b.read(&mut [0; 1]) {
            Ok(len) => received += len,
            Err(error) => break error,
        }
    };
    assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock), "{error}");
    // No more than the peer can send in that time, and one more if this thread was preempted before it read it.
    let most = deadline.div_duration_f64(BETWEEN) as u32 + 2;
    assert!(received as u32 <= most, "{received} bytes within {deadline:?}");
    b.set_deadline(None).unwrap();
    assert_eq!(b.read(&mut [0; 1]).unwrap(), 1);
    b.shutdown();
    drop(b);
    sender.join().unwrap();
    received as u32
}

#[test]
fn a_byte_now_and_then_does_not_extend_a_deadline() {
    // On a busy machine the peer may not get to send before a short deadline.
    let deadlines = (0..8).map(|doubled| Duration::from_millis(200 << doubled));
    assert!(deadlines.into_iter().any(|deadline| received_before(deadline) >= 2));
}

#[test]
fn a_peer_that_does_not_read_fails_the_write() {
    let (a, _b) = pair();
    a.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let error = a.write_all(&vec![0; 64 << 20]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock), "{error}");
}

#[test]
fn the_kernel_knows_the_delay_and_on_one_host_nobody_is_told() {
    let began = Instant::now();
    let (a, b) = pair();
    for _ in 0..20 {
        a.write_all(b"there").unwrap();
        (&b as &dyn Connection).read_exact(&mut [0; 5]).unwrap();
        b.write_all(b"back").unwrap();
        (&a as &dyn Connection).read_exact(&mut [0; 4]).unwrap();
    }
    let found = delay(&a.stream).unwrap();
    assert!(found.least > Duration::ZERO && found.least <= found.now, "{found:?}");
    // The kernel's measurements are parts of the duration of the whole exchange.
    assert!(found.now <= began.elapsed(), "{found:?}");
    assert!(a.is_local && a.delay().is_none() && b.delay().is_none());
}

#[test]
fn what_the_peer_has_no_room_for_is_held_back_and_goes_first() {
    let (a, b) = pair();
    let a = Arc::new(a);
    let piece = |number: u32| number.to_le_bytes().repeat(4096);
    let mut count = 0;
    let mut write = || {
        count += 1;
        a.write_now(&piece(count)).unwrap()
    };
    while write() == Written::All {}
    assert_eq!(write(), Written::Held, "there is no room still");
    let writer = std::thread::spawn({
        let a = Arc::clone(&a);
        move || a.write_all(b"end").unwrap()
    });
    let mut got = vec![0; piece(0).len()];
    for number in 1..=count {
        (&b as &dyn Connection).read_exact(&mut got).unwrap();
        assert!(got == piece(number), "piece {number}");
    }
    (&b as &dyn Connection).read_exact(&mut got[..3]).unwrap();
    assert_eq!(&got[..3], b"end");
    writer.join().unwrap();
    assert_eq!(a.write_now(b"more").unwrap(), Written::All);
}

/// The cable is cut while a reply is under way, when the kernel sends no probes.
#[test]
fn peer_that_vanishes_while_bytes_are_under_way_is_lost_in_time() {
    const LIMIT: Duration = Duration::from_secs(3);
    let Some(pair) = NetworkPair::create() else {
        redoubt_test_support::skip("a host that vanishes", "there are no network namespaces here");
        return;
    };
    let listener = pair.within(Side::Server, || TcpListener::bind("10.79.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    let _client = pair.within(Side::Client, || TcpStream::connect(address).unwrap());
    let socket = SocketConnection::new(listener.accept().unwrap().0);
    socket.set_silence_limit(LIMIT);
    run("ip", &["-n", &pair.name(Side::Client), "link", "set", NetworkPair::INTERFACE, "down"]);
    socket.write_all(b"a reply").unwrap();
    let lost = socket.read(&mut [0; 1]).unwrap_err();
    let kinds = [ErrorKind::TimedOut, ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable];
    assert!(kinds.contains(&lost.kind()), "{lost}");
}
