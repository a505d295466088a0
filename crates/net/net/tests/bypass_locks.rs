//! The locks of the same-host bypass: a thread that is kept from a processor, and forks. In a program of its own, since
//! other tests would wait as well.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod support;

use libc::c_int;
use redoubt_locks::IgnorePoison;
use redoubt_net::bypass;
use redoubt_test_support::wait::system_call;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, mpsc};
use std::thread::ScopedJoinHandle;

/// One test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn listen() -> (MutexGuard<'static, ()>, TcpListener, SocketAddr) {
    let alone = ALONE.lock().ignore_poison();
    support::start();
    bypass::start(true);
    bypass::start(false);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (alone, listener, address)
}

/// A thread that connects or accepts, and its `gettid`.
struct End<'scope> {
    number: libc::pid_t,
    thread: ScopedJoinHandle<'scope, TcpStream>,
}

impl<'scope> End<'scope> {
    fn begin<'environment>(
        scope: &'scope std::thread::Scope<'scope, 'environment>,
        make: impl FnOnce() -> TcpStream + Send + 'scope,
    ) -> Self {
        let (tell, told) = mpsc::channel();
        let thread = scope.spawn(move || {
            // SAFETY: no arguments.
            tell.send(unsafe { libc::gettid() }).unwrap();
            make()
        });
        Self { number: told.recv().unwrap(), thread }
    }

    /// It has tried to take the lock as often as it does without a pause, and sleeps between further tries.
    fn naps(&self) -> bool {
        let naps = [libc::SYS_clock_nanosleep, libc::SYS_nanosleep];
        system_call(self.number).is_some_and(|(number, _)| naps.contains(&number))
    }
}

/// Holds the library's lock until both ends of a connection wait for it with pauses. `None`: a client that gave up its
/// offer before the server took it.
fn exchange_under_a_held_lock(listener: &TcpListener, address: SocketAddr) -> Option<(TcpStream, TcpStream)> {
    std::thread::scope(|scope| {
        let held = bypass::hold();
        let client = End::begin(scope, || TcpStream::connect(address).unwrap());
        let server = End::begin(scope, || listener.accept().unwrap().0);
        let (mut client_napped, mut server_napped) = (false, false);
        while !(client.thread.is_finished() || client_napped && server_napped) {
            client_napped |= client.naps();
            server_napped |= server.naps();
        }
        drop(held);
        let ends = (server.thread.join().unwrap(), client.thread.join().unwrap());
        (client_napped && server_napped).then_some(ends)
    })
}

/// A thread that has the library's lock may be kept from a processor for long, by sixty others that connect.
#[test]
fn who_is_kept_from_a_processor_keeps_nobody_from_an_exchange() {
    let (_alone, listener, address) = listen();
    let ends = (0..50).find_map(|_| exchange_under_a_held_lock(&listener, address));
    let (server, client) = ends.expect("both ends wait for the lock");
    assert!(bypass::is_exchanged(server.as_raw_fd()) && bypass::is_exchanged(client.as_raw_fd()));
}

#[test]
fn a_child_knows_the_addresses_whenever_it_was_forked() {
    let (_alone, listener, address) = listen();
    // A client gives up an offer that the server does not take in time.
    let ends = (0..50).find_map(|_| {
        let client = std::thread::spawn(move || TcpStream::connect(address).unwrap());
        let server = listener.accept().unwrap().0;
        let client = client.join().unwrap();
        bypass::is_exchanged(server.as_raw_fd()).then_some((server, client))
    });
    let (server, _client) = ends.expect("a connection that is exchanged");
    let expected = server.peer_addr().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = server.peer_addr();
                }
            });
        }
        let mut wrong = Vec::new();
        for round in 0..300 {
            // SAFETY: the child makes system calls only, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let is_right = server.peer_addr().is_ok_and(|address| address == expected);
                // SAFETY: no pointers; nothing of the parent's is run at the end.
                unsafe { libc::_exit(c_int::from(!is_right)) };
            }
            let mut status = 0;
            // SAFETY: an int.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            if status != 0 {
                wrong.push(round);
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(wrong.is_empty(), "children {wrong:?}");
    });
}
