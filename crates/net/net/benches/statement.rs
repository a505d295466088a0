//! Cost of a statement on both sides together, for a server that waits for each statement: on a connection that is not
//! intercepted, and in each mode of the collapser.
//!
//! Client and server share one processor, so that only work counts. Slices of all kinds take turns. Only the least
//! disturbed tenth of each kind's slices counts, so that other work on the machine does not matter.

#![allow(clippy::unwrap_used, reason = "a failed call ends the bench")]

#[path = "../tests/support/mod.rs"]
mod support;

use redoubt_net::control;
use redoubt_shm_control::net::Mode;
use std::time::Instant;
use support::{Ends, Family, connect, entry, kernel, library};

const STATEMENT: [u8; 100] = [0x5a; 100];
const ANSWER: [u8; 1024] = [0xa5; 1024];
const WAIT: libc::c_int = 28_800_000;
const SLICE: u32 = 300;
const SLICES: usize = 200;

fn pin() {
    // SAFETY: a set that is made empty first.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set), 0);
    }
}

/// A server's thread for one connection, until the client ends.
fn serve(fd: libc::c_int) {
    let mut rest = [0u8; STATEMENT.len()];
    let read = |buffer: &mut [u8]| loop {
        match library::recv(fd, buffer, libc::MSG_DONTWAIT) {
            Err(libc::EAGAIN) => {
                library::poll(&mut [entry(fd, libc::POLLIN | libc::POLLPRI)], WAIT).unwrap();
            }
            other => return other.unwrap(),
        }
    };
    while read(&mut rest[..4]) == 4 {
        assert_eq!(read(&mut rest[4..]), STATEMENT.len() - 4);
        library::send(fd, &ANSWER, libc::MSG_DONTWAIT).unwrap();
    }
}

fn slice(ends: Ends) -> f64 {
    let mut answer = [0u8; ANSWER.len()];
    let mut statement = || {
        kernel::send(ends.client, &STATEMENT, 0).unwrap();
        assert_eq!(kernel::recv(ends.client, &mut answer, libc::MSG_WAITALL), Ok(ANSWER.len()));
    };
    // Until the mode is in force.
    (0..20).for_each(|_| statement());
    let start = Instant::now();
    (0..SLICE).for_each(|_| statement());
    start.elapsed().as_nanos() as f64 / f64::from(SLICE)
}

fn best(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 10).copied().unwrap_or(f64::NAN)
}

fn main() {
    // `cargo test --benches` only checks that it runs.
    let slices = if std::env::args().any(|argument| argument == "--bench") { SLICES } else { 2 };
    pin();
    for family in [Family::Tcp, Family::Unix] {
        let connections = [connect(family, false), connect(family, true)];
        let servers = connections.map(|ends| {
            kernel::fcntl(ends.server, libc::F_SETFL, libc::O_NONBLOCK).unwrap();
            library::fcntl(ends.server, libc::F_SETFL, libc::O_NONBLOCK).unwrap();
            std::thread::spawn(move || serve(ends.server))
        });
        let kinds = [
            ("not looked after", 0, Mode::Off),
            ("off", 1, Mode::Off),
            ("read-ahead", 1, Mode::ReadAhead),
            ("on", 1, Mode::On),
        ];
        let mut times = [const { Vec::new() }; 4];
        for _ in 0..slices {
            for ((_, connection, mode), times) in kinds.iter().zip(&mut times) {
                control::set_mode(*mode);
                times.push(slice(connections[*connection]));
            }
        }
        let base = best(times[0].clone());
        for ((name, ..), times) in kinds.iter().zip(times) {
            let best = best(times);
            println!("{family:?} {name}: {best:.0} ns a statement, {:.3}", best / base);
        }
        for ends in connections {
            // SAFETY: no pointers.
            unsafe { libc::shutdown(ends.client, libc::SHUT_RDWR) };
        }
        servers.into_iter().for_each(|server| server.join().unwrap());
    }
}
