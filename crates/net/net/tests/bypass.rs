//! Same-host bypass: the result for connections whose ends have the library, both, one, or neither; and the trust
//! checks.
//!
//! This process is server and client at once. Ends without the library make their own system calls.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod support;

use libc::{c_int, c_void, socklen_t};
use redoubt_net::bypass;
use redoubt_test_support::child;
use redoubt_test_support::port::with_port;
use redoubt_test_support::wait::{assert_at_once, until, until_asleep};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Addresses of a network without other hosts.
const OWN: &str = "198.51.100.7";
const OWN_6: &str = "2001:db8::7";
/// A user id without other uses.
const STRANGER: u32 = 64_001;
/// Connections that are tried where a busy machine may run the server too late for an exchange.
const TRIES: usize = 50;

redoubt_test_support::children!(addresses_of_a_network, few_descriptors, foreign_door);

fn start() {
    support::start();
    bypass::start(true);
    bypass::start(false);
}

fn domain(socket: &impl AsRawFd) -> c_int {
    let (mut value, mut len): (c_int, _) = (0, size_of::<c_int>() as socklen_t);
    let pointer = (&raw mut value).cast::<c_void>();
    // SAFETY: an int.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_DOMAIN, pointer, &raw mut len)
    };
    assert_eq!(result, 0);
    value
}

fn listen() -> (TcpListener, SocketAddr) {
    start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A client's connection. A failure ends the accept of this listener: otherwise it would wait for ever.
fn connect_or_end(listener: &TcpListener, address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).unwrap_or_else(|error| {
        // SAFETY: no pointers.
        unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
        panic!("connect to {address}: {error}")
    })
}

/// The server's end, the address that it sees, and the client's end.
fn meet(listener: &TcpListener, address: SocketAddr) -> (TcpStream, SocketAddr, TcpStream) {
    std::thread::scope(|scope| {
        let client = scope.spawn(|| connect_or_end(listener, address));
        let (server, seen) = listener.accept().expect("a client");
        (server, seen, client.join().unwrap())
    })
}

/// The same of a connection that was exchanged. A client gives up an offer that the server does not take in time, so
/// there are tries; both ends decide alike in each.
fn exchanged(listener: &TcpListener, address: SocketAddr) -> (TcpStream, SocketAddr, TcpStream) {
    let mut all = std::iter::repeat_with(|| meet(listener, address)).take(TRIES);
    let found = all.find(|(server, _, client)| {
        assert_eq!(domain(server), domain(client), "{address}");
        domain(server) == libc::AF_UNIX
    });
    found.unwrap_or_else(|| panic!("no connection to {address} was exchanged"))
}

/// Server's and client's end, exchanged.
fn pair() -> (TcpStream, TcpStream) {
    let (listener, address) = listen();
    let (server, _, client) = exchanged(&listener, address);
    (server, client)
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.u8(..)).collect()
}

fn send_in_pieces(mut to: &TcpStream, data: &[u8], seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut rest = data;
    while !rest.is_empty() {
        let len = random.usize(1..=rest.len().min(70_000));
        to.write_all(&rest[..len]).unwrap();
        rest = &rest[len..];
    }
    to.shutdown(Shutdown::Write).unwrap();
}

#[test]
fn both_ends_go_on_to_see_tcp() {
    let (listener, address) = listen();
    let (server, seen, client) = exchanged(&listener, address);
    assert_eq!((client.peer_addr().unwrap(), server.local_addr().unwrap()), (address, address));
    assert_eq!((client.local_addr().unwrap(), server.peer_addr().unwrap()), (seen, seen));
    for end in [&server, &client] {
        end.set_nodelay(true).unwrap();
        // SAFETY: no pointers.
        let flags = unsafe { libc::fcntl(end.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    }
    // The number comes back as a plain connection.
    let number = client.as_raw_fd();
    drop((server, client));
    let plain = std::os::unix::net::UnixStream::pair().unwrap();
    assert!([plain.0.as_raw_fd(), plain.1.as_raw_fd()].contains(&number) || !bypass::is_exchanged(number));
    assert!(!bypass::is_exchanged(plain.0.as_raw_fd()) && !bypass::is_exchanged(plain.1.as_raw_fd()));
}

/// A driver that begins TLS in the middle of a connection may do so on a copy of its descriptor.
#[test]
fn copies_go_on_to_see_tcp_as_well() {
    let (server, client) = pair();
    for end in [&server, &client] {
        let number = end.as_raw_fd();
        // SAFETY: new descriptors.
        let copies = unsafe {
            let free = libc::dup(number);
            let copies = [
                libc::dup(number),
                libc::fcntl(number, libc::F_DUPFD, 0),
                libc::dup2(number, free),
                libc::dup3(number, libc::dup(number), libc::O_CLOEXEC),
            ];
            copies.map(|copy| TcpStream::from_raw_fd(copy))
        };
        for copy in copies.into_iter().chain([end.try_clone().unwrap()]) {
            assert_eq!(domain(&copy), libc::AF_UNIX);
            assert_eq!(copy.peer_addr().unwrap(), end.peer_addr().unwrap());
            assert_eq!(copy.local_addr().unwrap(), end.local_addr().unwrap());
            copy.set_nodelay(true).unwrap();
        }
    }
    echo(server, client);
}

/// A connection to this address, of a listener at that one, is exchanged.
fn check_address(listen_at: &str, to: &str) {
    start();
    let listener = TcpListener::bind((listen_at, 0)).unwrap();
    let address = SocketAddr::new(to.parse().unwrap(), listener.local_addr().unwrap().port());
    let (server, seen, client) = exchanged(&listener, address);
    let canonical = |address: SocketAddr| (address.ip().to_canonical(), address.port());
    assert_eq!(client.peer_addr().unwrap(), address);
    assert_eq!(canonical(server.local_addr().unwrap()), canonical(address));
    assert_eq!(canonical(client.local_addr().unwrap()), canonical(seen));
    assert_eq!(server.peer_addr().unwrap(), seen);
    client.set_nodelay(true).unwrap();
    echo(server, client);
}

#[test]
fn connections_of_ipv6_are_exchanged() {
    for (listen_at, to) in [("::1", "::1"), ("::", "::1"), ("::", "127.0.0.1")] {
        check_address(listen_at, to);
    }
}

/// The kernel makes the local route to an IPv6 address later, in a thread of its own. Until then a packet to it follows
/// the route of its network, and finds no host.
fn has_route_to_own_6() -> bool {
    const RTF_LOCAL: u32 = 1 << 31;
    let octets = OWN_6.parse::<Ipv6Addr>().unwrap().octets();
    let digits: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    let routes = std::fs::read_to_string("/proc/self/net/ipv6_route").unwrap();
    // Destination and length of its prefix first, flags and interface last.
    routes.lines().any(|route| {
        let flags = route.split_whitespace().nth(8).and_then(|flags| u32::from_str_radix(flags, 16).ok());
        route.starts_with(&format!("{digits} 80 ")) && flags.is_some_and(|flags| flags & RTF_LOCAL != 0)
    })
}

/// A child process of [`every_address_of_this_host_will_do`], in a separate network namespace.
fn addresses_of_a_network() {
    until("a route to the IPv6 address", has_route_to_own_6);
    for (listen_at, to) in [("0.0.0.0", OWN), ("::", OWN), (OWN, OWN), ("::", OWN_6), (OWN_6, OWN_6)] {
        check_address(listen_at, to);
    }
    println!("\nall were exchanged");
}

#[test]
fn every_address_of_this_host_will_do() {
    let script = format!(
        "ip link set lo up && ip link add redoubt0 type veth peer name redoubt1 && ip link set redoubt0 up \
         && ip addr add {OWN}/24 dev redoubt0 && ip addr add {OWN_6}/64 dev redoubt0 nodad && exec \"$0\" \"$@\""
    );
    // SAFETY: no requirement.
    if unsafe { libc::geteuid() } != 0 {
        return redoubt_test_support::skip("other addresses of a host", "network namespaces need root");
    }
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .args([child::MARK, "addresses_of_a_network"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(text.contains("all were exchanged"), "{text}");
}

#[test]
fn streams_arrive_whole_both_ways_and_end_one_after_the_other() {
    for seed in 0..20 {
        let (server, client) = pair();
        let len = [0, 1, 4, 16_384, 1 << 20, 9 << 20][seed as usize % 6] + seed as usize;
        let (request, answer) = (bytes(seed, len), bytes(seed + 1000, len * 2));
        std::thread::scope(|scope| {
            scope.spawn(|| send_in_pieces(&client, &request, seed));
            scope.spawn(|| send_in_pieces(&server, &answer, seed + 1));
            let read = scope.spawn(|| {
                let mut all = Vec::new();
                (&server).read_to_end(&mut all).unwrap();
                all
            });
            let mut all = Vec::new();
            (&client).read_to_end(&mut all).unwrap();
            assert!(all == answer && read.join().unwrap() == request, "seed {seed}");
        });
    }
}

/// The differences that the test of the sockmap finds do not exist here.
#[test]
fn the_kernel_goes_on_to_decide_about_readers_and_writers() {
    let (mut server, client) = pair();
    let reader = std::thread::spawn(move || {
        let mut buffer = [0u8; 10];
        // SAFETY: a buffer of this length.
        let len =
            unsafe { libc::recv(client.as_raw_fd(), buffer.as_mut_ptr().cast(), 10, libc::MSG_WAITALL) };
        (len, client)
    });
    server.write_all(b"12345").unwrap();
    server.write_all(b"67890").unwrap();
    let (len, client) = reader.join().unwrap();
    assert_eq!(len, 10);

    let other = client.try_clone().unwrap();
    let reader = std::thread::spawn(move || (&client).read(&mut [0]).unwrap());
    other.shutdown(Shutdown::Both).unwrap();
    assert_eq!(reader.join().unwrap(), 0);

    let (mut server, client) = pair();
    server.set_nonblocking(true).unwrap();
    let block = [1u8; 16_384];
    let written: usize = std::iter::from_fn(|| server.write(&block).ok()).sum();
    assert!(written < 4 << 20, "{written}");
    drop(server);
    let mut all = Vec::new();
    assert!((&client).read_to_end(&mut all).is_ok() && all.len() == written);
}

fn echo(mut server: TcpStream, mut client: TcpStream) {
    let mut byte = [0];
    server.write_all(b"x").unwrap();
    client.read_exact(&mut byte).unwrap();
    client.write_all(b"y").unwrap();
    server.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"y");
}

/// As TcpStream::connect, without the library.
fn connect_plainly(to: SocketAddr) -> TcpStream {
    let SocketAddr::V4(to) = to else { unreachable!() };
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: to.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*to.ip()).to_be() },
        sin_zero: [0; 8],
    };
    // SAFETY: an address of this length; a new descriptor.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert_eq!(libc::syscall(libc::SYS_connect, fd, &raw const address, size_of_val(&address)), 0);
        TcpStream::from_raw_fd(fd)
    }
}

/// As TcpListener::bind, without the library.
fn listen_plainly() -> (TcpListener, SocketAddr) {
    // SAFETY: a new descriptor.
    let listener = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert_eq!(libc::syscall(libc::SYS_listen, fd, 16), 0);
        TcpListener::from_raw_fd(fd)
    };
    let port = listener.local_addr().unwrap().port();
    (listener, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

#[test]
fn where_one_end_lacks_the_library_it_is_tcp_at_once() {
    let (listener, address) = listen();
    let client = connect_plainly(address);
    let server = listener.accept().unwrap().0;
    assert_eq!((domain(&server), domain(&client)), (libc::AF_INET, libc::AF_INET));
    echo(server, client);

    let (listener, address) = listen_plainly();
    let mut client = None;
    assert_at_once("connect", || {
        if client.replace(TcpStream::connect(address).unwrap()).is_some() {
            drop(listener.accept().unwrap());
        }
    });
    let (client, server) = (client.unwrap(), listener.accept().unwrap().0);
    assert_eq!((domain(&server), domain(&client)), (libc::AF_INET, libc::AF_INET));
    echo(server, client);
}

#[test]
fn a_server_that_accepts_late_gets_tcp() {
    let (listener, address) = listen();
    let client = TcpStream::connect(address).unwrap();
    let server = listener.accept().unwrap().0;
    assert_eq!((domain(&server), domain(&client)), (libc::AF_INET, libc::AF_INET));
    echo(server, client);
}

/// Accepts after `wait`, or without it after the client has its connection. Returns the decision of both ends.
fn decision(listener: &TcpListener, address: SocketAddr, wait: Option<Duration>) -> c_int {
    std::thread::scope(|scope| {
        let client = scope.spawn(|| connect_or_end(listener, address));
        let began = Instant::now();
        match wait {
            Some(wait) => {
                while began.elapsed() < wait {
                    std::thread::yield_now();
                }
            }
            None => until("the end of the client's offer", || client.is_finished()),
        }
        let server = listener.accept().unwrap().0;
        let client = client.join().unwrap();
        let decided = domain(&server);
        assert_eq!(decided, domain(&client), "accepted after {wait:?}");
        echo(server, client);
        decided
    })
}

/// Accepts at once, at about the time of the clients' timeout, and after it: both ends always agree.
#[test]
fn both_ends_decide_alike() {
    let (listener, address) = listen();
    // On a busy machine an offer may end before it is accepted.
    until("an offer that is accepted in time", || {
        decision(&listener, address, Some(Duration::ZERO)) == libc::AF_UNIX
    });
    let domains: BTreeSet<c_int> = (0..40)
        .map(|round| decision(&listener, address, Some(Duration::from_micros(199_000 + round * 100))))
        .collect();
    println!("{domains:?}");
    assert_eq!(decision(&listener, address, None), libc::AF_INET);
}

#[test]
fn many_clients_at_once_get_their_own_connections() {
    let (listener, address) = listen();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..200)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = TcpStream::connect(address).unwrap();
                    let own = client.local_addr().unwrap().to_string();
                    client.write_all(format!("{own}\n").as_bytes()).unwrap();
                    let mut line = String::new();
                    BufReader::new(&client).read_line(&mut line).unwrap();
                    assert_eq!(line.trim_end(), own);
                    domain(&client)
                })
            })
            .collect();
        for _ in 0..200 {
            let (mut server, peer) = listener.accept().unwrap();
            scope.spawn(move || {
                let mut line = String::new();
                BufReader::new(&server).read_line(&mut line).unwrap();
                assert_eq!(line.trim_end(), peer.to_string());
                server.write_all(line.as_bytes()).unwrap();
            });
        }
        let exchanged = clients.into_iter().map(|client| client.join().unwrap());
        let exchanged = exchanged.filter(|domain| *domain == libc::AF_UNIX).count();
        // With few processors, many clients withdraw their offers after the timeout.
        assert!(exchanged > 0, "{exchanged} of 200");
    });
}

fn connect_without_waiting(fd: RawFd, port: u16) -> c_int {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    };
    // SAFETY: an address of this length.
    unsafe { libc::connect(fd, (&raw const address).cast(), size_of_val(&address) as socklen_t) }
}

/// A client that does not wait, whose descriptor a set may have. `true`: it was exchanged.
fn check_client_that_does_not_wait(in_set: bool) -> bool {
    let (listener, address) = listen();
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: new descriptors, and an event.
    let (client, set) = unsafe {
        let client = TcpStream::from_raw_fd(libc::socket(libc::AF_INET, kind, 0));
        let set = TcpStream::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 5 };
        if in_set {
            let add = libc::EPOLL_CTL_ADD;
            assert_eq!(libc::epoll_ctl(set.as_raw_fd(), add, client.as_raw_fd(), &raw mut event), 0);
        }
        (client, set)
    };
    let server = std::thread::scope(|scope| {
        let server = scope.spawn(|| listener.accept().unwrap().0);
        let result = connect_without_waiting(client.as_raw_fd(), address.port());
        assert!(result == 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EINPROGRESS));
        server.join().unwrap()
    });
    assert_eq!(domain(&server), domain(&client));
    let is_exchanged = domain(&client) == libc::AF_UNIX;
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(client.as_raw_fd(), libc::F_GETFL) };
    assert_eq!(flags & libc::O_NONBLOCK, libc::O_NONBLOCK);
    (&server).write_all(b"x").unwrap();
    if in_set {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: one event.
        assert_eq!(unsafe { libc::epoll_wait(set.as_raw_fd(), &raw mut event, 1, 10_000) }, 1);
        assert_eq!({ event.u64 }, 5);
    }
    client.set_nonblocking(false).unwrap();
    echo(server, client);
    is_exchanged
}

#[test]
fn clients_that_do_not_wait_are_exchanged_unless_a_set_has_them() {
    // On a busy machine the server may be too late for the first.
    assert!((0..TRIES).any(|_| check_client_that_does_not_wait(false)));
    for _ in 0..5 {
        assert!(!check_client_that_does_not_wait(true));
    }
}

/// Two servers may have one port, each at an address of its own.
#[test]
fn a_server_of_one_address_has_a_door_of_its_own() {
    start();
    let (_elsewhere, listener) = with_port(|port| {
        let elsewhere = door_of(port);
        Some((elsewhere, TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?))
    });
    let address = listener.local_addr().unwrap();
    let (server, _, client) = exchanged(&listener, address);
    echo(server, client);
}

/// The rendezvous socket of this port, for a server whose part a test plays.
fn door_of(port: u16) -> std::os::unix::net::UnixListener {
    let name = std::os::unix::net::SocketAddr::from_abstract_name(format!("redoubt-net-bypass-{port}"));
    std::os::unix::net::UnixListener::bind_addr(&name.unwrap()).unwrap()
}

/// Waits for an offer and takes the token that comes with it. `false`: the client has it.
fn take_offer(door: &std::os::unix::net::UnixListener) -> (std::os::unix::net::UnixStream, bool) {
    let (unix, _) = door.accept().unwrap();
    let (mut byte, mut room) = ([0u8], [0u64; 8]);
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: a message with a byte and room for a control message; the descriptors in it are ours.
    let is_taken = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        (message.msg_control, message.msg_controllen) = (room.as_mut_ptr().cast(), size_of_val(&room));
        assert_eq!(libc::recvmsg(unix.as_raw_fd(), &raw mut message, 0), 1);
        let control = libc::CMSG_FIRSTHDR(&raw const message);
        let [tcp, token] = libc::CMSG_DATA(control).cast::<[RawFd; 2]>().read_unaligned();
        drop(TcpStream::from_raw_fd(tcp));
        let mut token = std::fs::File::from_raw_fd(token);
        token.read(&mut [0; 8]).is_ok()
    };
    (unix, is_taken)
}

/// A client that is interrupted again and again continues with the server's choice. `None`: it had given up its offer
/// before.
fn client_that_is_interrupted() -> Option<()> {
    let (_listener, address) = listen_plainly();
    let door = door_of(address.port());
    let (sender, receiver) = std::sync::mpsc::channel();
    let client = std::thread::spawn(move || {
        // SAFETY: no arguments.
        sender.send(unsafe { (libc::gettid(), libc::pthread_self()) }).unwrap();
        TcpStream::connect(address).unwrap()
    });
    let (id, thread) = receiver.recv().unwrap();
    let (mut unix, is_taken) = take_offer(&door);
    if !is_taken {
        assert_eq!(domain(&client.join().unwrap()), libc::AF_INET);
        return None;
    }
    for _ in 0..5 {
        until_asleep(id);
        // SAFETY: the thread has not been joined.
        assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
    }
    unix.write_all(b"B").unwrap();
    let client = client.join().unwrap();
    assert_eq!(domain(&client), libc::AF_UNIX);
    unix.write_all(b"hello").unwrap();
    let mut got = [0; 5];
    (&client).read_exact(&mut got).unwrap();
    assert_eq!(&got, b"hello");
    Some(())
}

#[test]
fn signals_do_not_divide_the_ends() {
    start();
    support::handle(libc::SIGUSR1, false);
    assert!((0..TRIES).any(|_| client_that_is_interrupted().is_some()));
}

/// Once the server has the token, the connection is the server's, regardless of the result of the kernel's connect.
#[test]
fn a_connect_that_has_not_ended_does_not_divide_the_ends() {
    start();
    let (listener, address) = listen_plainly();
    // SAFETY: no pointers. There is room for one.
    unsafe { assert_eq!(libc::syscall(libc::SYS_listen, listener.as_raw_fd(), 0), 0) };
    let _first = connect_plainly(address);
    let door = door_of(address.port());
    // On a busy machine the client may be first.
    let was_taken = (0..TRIES).any(|_| {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: a new descriptor.
        let client = unsafe { TcpStream::from_raw_fd(libc::socket(libc::AF_INET, kind, 0)) };
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let (mut unix, is_taken) = take_offer(&door);
                if is_taken {
                    unix.write_all(b"Bhello").unwrap();
                }
                (unix, is_taken)
            });
            let result = connect_without_waiting(client.as_raw_fd(), address.port());
            let (_unix, is_taken) = server.join().unwrap();
            let expected = if is_taken { (0, libc::AF_UNIX) } else { (-1, libc::AF_INET) };
            assert_eq!((result, domain(&client)), expected);
            if is_taken {
                client.set_nonblocking(false).unwrap();
                let mut got = [0; 5];
                (&client).read_exact(&mut got).unwrap();
                assert_eq!(&got, b"hello");
            }
            is_taken
        })
    });
    assert!(was_taken);
}

/// Non-blocking programs check by connecting again.
#[test]
fn who_connects_again_is_told_that_he_is_connected() {
    let (listener, address) = listen();
    let (server, _, client) = exchanged(&listener, address);
    assert_eq!(connect_without_waiting(client.as_raw_fd(), address.port()), -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EISCONN));
    echo(server, client);
}

/// Clients of [`those_who_wait_leave_connections_their_descriptors`].
const CLIENTS: usize = 10;

/// A child process of the test below: a server that may have few descriptors.
fn few_descriptors() {
    let (listener, address) = listen();
    println!("\n{}", address.port());
    // The clients have come, and continued with TCP.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let used = std::fs::read_dir("/proc/self/fd").unwrap().count() as libc::rlim_t;
    // Enough for all connections, but not for the descriptors of all offers.
    let limit = libc::rlimit { rlim_cur: used + CLIENTS as libc::rlim_t + 2, rlim_max: 4096 };
    // SAFETY: a limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let all: Vec<_> = (0..CLIENTS).map_while(|_| listener.accept().ok()).collect();
    println!("\n{} accepted", all.len());
}

#[test]
fn those_who_wait_leave_connections_their_descriptors() {
    start();
    let mut server = support::another("few_descriptors").spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let port: u16 = lines.find_map(|line| line.parse().ok()).unwrap();
    let clients: Vec<_> = std::thread::scope(|scope| {
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(connect)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    server.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
    let accepted = lines.find(|line| line.ends_with(" accepted")).unwrap();
    assert_eq!(accepted, format!("{} accepted", clients.len()));
    assert!(server.wait().unwrap().success());
}

/// A child process of [`a_door_of_another_user_is_not_trusted`], with another user.
fn foreign_door() {
    let door = door_of(child::argument(0));
    println!("\nopen");
    // Until the test ends this process, or bytes have arrived.
    let (mut unix, _) = door.accept().unwrap();
    let len = unix.read(&mut [0; 16]).unwrap_or(0);
    println!("{len} bytes");
}

#[test]
fn a_door_of_another_user_is_not_trusted() {
    // SAFETY: no requirement.
    if unsafe { libc::geteuid() } != 0 {
        redoubt_test_support::skip("a door of another user", "only root can be another user");
        return;
    }
    start();
    let (listener, address) = listen_plainly();
    // Where another user may execute it.
    let copy = std::env::temp_dir().join(format!("redoubt-test-door-{}", std::process::id()));
    child::copy_program(&copy);
    let mut child = Command::new(&copy)
        .args([child::MARK, "foreign_door", &address.port().to_string()])
        .current_dir("/")
        .stdout(Stdio::piped())
        .uid(STRANGER)
        .gid(STRANGER)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().any(|line| line.unwrap() == "open"));
    let client = TcpStream::connect(address).unwrap();
    let server = listener.accept().unwrap().0;
    assert_eq!((domain(&server), domain(&client)), (libc::AF_INET, libc::AF_INET));
    echo(server, client);
    // The client has connected to the rendezvous socket, but has sent nothing.
    assert!(lines.any(|line| line.unwrap() == "0 bytes"));
    assert!(child.wait().unwrap().success());
    std::fs::remove_file(copy).unwrap();
}
