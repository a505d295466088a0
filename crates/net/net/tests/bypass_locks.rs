//! The locks of the same-host bypass: a thread that is kept from a processor, and forks. In a program of its own, since
//! other tests would wait as well.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod support;

use libc::c_int;
use redoubt_locks::IgnorePoison;
use redoubt_net::bypass;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

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

/// A thread that has the library's lock may be kept from a processor for long, by sixty others that connect.
#[test]
fn who_is_kept_from_a_processor_keeps_nobody_from_an_exchange() {
    let (_alone, listener, address) = listen();
    std::thread::scope(|scope| {
        let held = bypass::hold();
        let client = scope.spawn(|| TcpStream::connect(address).unwrap());
        let server = scope.spawn(|| listener.accept().unwrap().0);
        // Longer than any number of tries at a lock takes.
        std::thread::sleep(Duration::from_millis(150));
        drop(held);
        let (server, client) = (server.join().unwrap(), client.join().unwrap());
        assert!(bypass::is_exchanged(server.as_raw_fd()) && bypass::is_exchanged(client.as_raw_fd()));
    });
}

#[test]
fn a_child_knows_the_addresses_whenever_it_was_forked() {
    let (_alone, listener, address) = listen();
    let client = std::thread::spawn(move || TcpStream::connect(address).unwrap());
    let server = listener.accept().unwrap().0;
    let _client = client.join().unwrap();
    assert!(bypass::is_exchanged(server.as_raw_fd()));
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
