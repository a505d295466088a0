use super::*;
use redoubt_test_support::wait::{GUARD, assert_at_once};
use std::io::Write;
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Instant;

/// Creates a TCP listener, for its address, and the local socket of that address.
fn node(listen_on: &str) -> (TcpListener, UnixListener) {
    let tcp = TcpListener::bind(listen_on).unwrap();
    let unix = listen(tcp.local_addr().unwrap()).unwrap();
    unix.set_nonblocking(false).unwrap();
    (tcp, unix)
}

fn port(tcp: &TcpListener) -> u16 {
    tcp.local_addr().unwrap().port()
}

#[test]
fn it_is_reached_by_each_address_that_tcp_reaches() {
    for (listen_on, addresses) in [
        ("127.0.0.1:0", &["127.0.0.1", "::ffff:127.0.0.1"][..]),
        ("0.0.0.0:0", &["127.0.0.1", "127.0.0.2"]),
        ("[::]:0", &["::1", "127.0.0.1"]),
        ("[::1]:0", &["::1"]),
    ] {
        let (tcp, unix) = node(listen_on);
        for ip in addresses {
            let address = SocketAddr::new(ip.parse().unwrap(), port(&tcp));
            std::net::TcpStream::connect(address).unwrap();
            let reached = std::thread::spawn(move || reach(address));
            let (mut server, _) = unix.accept().unwrap();
            server.write_all(&[WORD]).unwrap();
            let client = reached.join().unwrap().unwrap_or_else(|error| panic!("{listen_on} {ip}: {error}"));
            assert!(client.is_over_local_socket() && !client.crosses_network());
            assert!(client.peer().contains(&std::process::id().to_string()), "{}", client.peer());
            let server = SocketConnection::local(server, peer_of(&unix).unwrap());
            client.write_all(b"there").unwrap();
            let mut out = [0; 8];
            assert_eq!(server.read(&mut out).unwrap(), 5);
            client.shutdown();
            assert_eq!(server.read(&mut out).unwrap(), 0);
            assert!(server.write_all(b"x").is_err(), "and no signal");
        }
        let other = SocketAddr::new("127.0.0.3".parse().unwrap(), port(&tcp));
        let is_reached = std::net::TcpStream::connect(other).is_ok();
        assert!(is_reached || reach(other).is_err());
    }
}

#[test]
fn without_one_there_is_an_error_at_once() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_at_once("a node without a local socket", || {
        let error = reach(tcp.local_addr().unwrap()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    });
    assert_at_once("a node of another host", || {
        assert!(reach("192.0.2.1:7070".parse().unwrap()).is_err());
    });
}

#[test]
fn a_name_that_is_taken_cannot_be_had_until_its_owner_is_gone() {
    let (tcp, unix) = node("127.0.0.1:0");
    let address = tcp.local_addr().unwrap();
    assert_eq!(listen(address).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    drop(unix);
    listen(address).unwrap();
}

#[test]
fn who_says_nothing_or_something_else_or_takes_nobody_is_left() {
    let (tcp, unix) = node("127.0.0.1:0");
    let address = tcp.local_addr().unwrap();
    let reached = std::thread::spawn(move || reach(address).unwrap_err().to_string());
    drop(unix.accept().unwrap());
    assert!(reached.join().unwrap().contains("does not let"));
    let reached = std::thread::spawn(move || reach(address).unwrap_err().to_string());
    unix.accept().unwrap().0.write_all(b"X").unwrap();
    assert!(reached.join().unwrap().contains("no node"));
    // No process accepts, like a stopped node; later the node's queue is full.
    // The deadline ends the wait: the kind of the error shows it, even if this thread runs late.
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let began = Instant::now();
        let error = reach(address).unwrap_err();
        sender.send((error.kind(), began.elapsed())).unwrap();
    });
    let (kind, took) = receiver.recv_timeout(GUARD).expect("the wait has an end");
    assert!(matches!(kind, std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock), "{kind:?}");
    assert!(took >= PATIENCE / 2, "{took:?}");
    let mut waiting = Vec::new();
    while waiting.len() < 100_000
        && let Ok(knocked) = knock(address)
    {
        waiting.push(knocked);
    }
    assert_eq!(knock(address).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}
