//! The reason why no kernel sockmap bypasses TCP for clients on the server's host: the differences that unmodified
//! programs would notice.
//!
//! Both ends of a connection over the loopback interface are in the map before the first byte, so that no byte goes by
//! TCP. Each case then does the same on such a connection and on a plain one. That they differ depends on the kernel; a
//! kernel on which none differs is a reason to think again, and fails the test. It is about the kernel and not about
//! Redoubt, and needs root: `make sockmap`.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod bpf;

use bpf::Bypass;
use libc::{c_int, c_void};
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

struct Pair {
    server: TcpStream,
    client: TcpStream,
    bypass: Option<Bypass>,
}

fn connect(redirected: bool) -> std::io::Result<Pair> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let client = TcpStream::connect(address)?;
    let server = listener.accept()?.0;
    let bypass = redirected.then(|| Bypass::start(&server, &client, address.port())).transpose()?;
    Ok(Pair { server, client, bypass })
}

fn recv(socket: &TcpStream, len_bytes: usize, flags: c_int) -> String {
    let mut buffer = vec![0u8; len_bytes];
    // SAFETY: a buffer of this length.
    let len = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), flags) };
    if len < 0 { std::io::Error::last_os_error().to_string() } else { format!("{len} bytes") }
}

fn set<T>(socket: &TcpStream, name: c_int, value: &T) {
    let len = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast::<c_void>();
    // SAFETY: a value of this length.
    assert_eq!(unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, value, len) }, 0);
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} does not come");
        std::thread::yield_now();
    }
}

fn wait_for(socket: &TcpStream, events: libc::c_short) {
    let mut entry = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    // SAFETY: one entry.
    assert_eq!(unsafe { libc::poll(&raw mut entry, 1, 20_000) }, 1);
}

/// Result of recv in a thread that waits in it during the event.
fn blocked(
    pair: Pair,
    flags: c_int,
    event: impl FnOnce(&mut TcpStream, &TcpStream, libc::pthread_t),
) -> String {
    let Pair { mut server, client, bypass } = pair;
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            // SAFETY: no requirement.
            sender.send(unsafe { (libc::gettid(), libc::pthread_self()) }).unwrap();
            recv(&client, 10, flags)
        });
        let (number, thread) = receiver.recv().unwrap();
        let inside = format!("{} ", libc::SYS_recvfrom);
        until("a thread in recv", || {
            std::fs::read_to_string(format!("/proc/self/task/{number}/syscall")).unwrap().starts_with(&inside)
        });
        event(&mut server, &client, thread);
        // A reader that still waits after that gets some bytes, and then the end.
        let start = Instant::now();
        until("the reader", || reader.is_finished() || start.elapsed() > Duration::from_millis(100));
        let _ = server.write_all(b"67890");
        let _ = client.shutdown(Shutdown::Both);
        drop(bypass);
        reader.join().unwrap()
    })
}

extern "C" fn do_nothing(_: c_int) {}

fn signal(pair: Pair) -> String {
    // SAFETY: zeros are a valid sigaction; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = do_nothing as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    blocked(pair, 0, |_, _, thread| {
        // SAFETY: the thread waits in recv.
        assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
    })
}

fn reset(pair: Pair) -> String {
    blocked(pair, 0, |server, _, _| {
        set(server, libc::SO_LINGER, &libc::linger { l_onoff: 1, l_linger: 0 });
        // Closed by connecting its descriptor with nothing: only the library's drop closes it otherwise.
        let none = libc::sockaddr { sa_family: libc::AF_UNSPEC as u16, sa_data: [0; 14] };
        let len = size_of::<libc::sockaddr>() as libc::socklen_t;
        // SAFETY: an address of this length.
        assert_eq!(unsafe { libc::connect(server.as_raw_fd(), &raw const none, len) }, 0);
    })
}

fn shutdown(pair: Pair) -> String {
    blocked(pair, 0, |_, client, _| client.shutdown(Shutdown::Both).unwrap())
}

fn wait_for_all(pair: Pair) -> String {
    blocked(pair, libc::MSG_WAITALL, |server, _, _| server.write_all(b"12345").unwrap())
}

/// Bytes that poll announces, taken with splice.
fn splice(mut pair: Pair) -> String {
    pair.server.write_all(&[7; 1000]).unwrap();
    wait_for(&pair.client, libc::POLLIN);
    pair.client.set_nonblocking(true).unwrap();
    let (_reader, writer) = std::io::pipe().unwrap();
    let null = std::ptr::null_mut();
    // SAFETY: two descriptors that are open; no offsets.
    let len = unsafe { libc::splice(pair.client.as_raw_fd(), null, writer.as_raw_fd(), null, 1000, 0) };
    if len < 0 { std::io::Error::last_os_error().to_string() } else { format!("{len} bytes") }
}

/// Result of a send by a client that has not noticed yet that the server has hung up.
fn send_to_closed(pair: Pair) -> String {
    let Pair { server, client, bypass } = pair;
    drop(server);
    wait_for(&client, libc::POLLRDHUP);
    let result =
        (&client).write(b"query").map_or_else(|error| error.to_string(), |len| format!("{len} bytes"));
    drop(bypass);
    result
}

/// A byte out of band, which is not to be among the others.
fn out_of_band(pair: Pair) -> String {
    // SAFETY: one byte.
    assert_eq!(unsafe { libc::send(pair.server.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) }, 1);
    wait_for(&pair.client, libc::POLLIN | libc::POLLPRI);
    recv(&pair.client, 10, libc::MSG_DONTWAIT)
}

/// Bytes that one end accepts from a writer while its program reads nothing.
fn slow_reader(pair: Pair) -> String {
    const ENOUGH_BYTES: usize = 64 << 20;
    pair.server.set_nonblocking(true).unwrap();
    let block = vec![1u8; 16 << 10];
    let mut total = 0;
    while total < ENOUGH_BYTES {
        match (&pair.server).write(&block) {
            Ok(len) => total += len,
            Err(_) => return "the writer has to wait".to_owned(),
        }
    }
    format!("more than {} MiB in the kernel", total >> 20)
}

/// Bytes that are unread when the end that has them is taken out of the map.
fn removed(mut pair: Pair) -> String {
    pair.server.write_all(&[7; 1000]).unwrap();
    wait_for(&pair.client, libc::POLLIN);
    if let Some(bypass) = &pair.bypass {
        bypass.remove(1).unwrap();
    }
    recv(&pair.client, 4000, libc::MSG_DONTWAIT)
}

/// Bytes that are unread when the program that made the map ends.
fn abandoned(pair: Pair) -> String {
    let Pair { mut server, client, bypass } = pair;
    server.write_all(&[7; 1000]).unwrap();
    wait_for(&client, libc::POLLIN);
    drop(bypass);
    recv(&client, 4000, libc::MSG_DONTWAIT)
}

/// An answer that is unread when the client shuts down its sending side, and the server ends.
fn half_closed(mut pair: Pair) -> String {
    pair.server.write_all(&[7; 1000]).unwrap();
    pair.client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(recv(&pair.server, 10, 0), "0 bytes");
    drop(pair.server);
    wait_for(&pair.client, libc::POLLRDHUP);
    recv(&pair.client, 4000, 0)
}

type Case = fn(Pair) -> String;

/// Differences that no BPF program can remove, since it only processes sent messages.
const FOR_GOOD: [(&str, Case); 6] = [
    ("a signal with SA_RESTART comes to a blocked reader", signal),
    ("the connection of a blocked reader is reset", reset),
    ("the connection of a blocked reader is shut down", shutdown),
    ("a reader waits for all of ten bytes (MSG_WAITALL), which come in two parts", wait_for_all),
    ("a reader uses splice", splice),
    ("a byte is sent out of band", out_of_band),
];
/// Differences that a BPF program could avoid: by its verdict, or by leaving the map as it is.
const AVOIDABLE: [(&str, Case); 5] = [
    ("a client sends to a server that has hung up", send_to_closed),
    ("a reader does not read", slow_reader),
    ("an end with unread bytes leaves the map", removed),
    ("the owner of the map ends while bytes are unread", abandoned),
    ("a half-closed connection ends while bytes are unread", half_closed),
];

#[test]
#[ignore = "make sockmap"]
fn programs_notice_that_a_sockmap_redirects_what_they_send() {
    drop(connect(true).expect("a sockmap, which needs root and a kernel that allows it"));
    let differs = |(what, case): &(&str, Case)| {
        let [plain, redirected] = [false, true].map(|redirected| case(connect(redirected).unwrap()));
        println!("{what}: {plain}; redirected: {redirected}");
        plain != redirected
    };
    let noticed = FOR_GOOD.iter().filter(|case| differs(case)).count();
    AVOIDABLE.iter().for_each(|case| {
        differs(case);
    });
    assert!(noticed > 0, "this kernel redirects unnoticed: a bypass by sockmap could be sound on it");
}
