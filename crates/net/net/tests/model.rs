//! The library against the kernel: the same calls in the same order must have the same results, on an intercepted
//! connection and on a plain one.
//!
//! Between two calls the test waits until both servers have all bytes that their clients have sent. There is one
//! intended difference. A read of a header right after an answer may return EAGAIN once; then a wait must end at once
//! and the read must have the kernel's result.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod support;

use libc::{c_int, c_short};
use redoubt_net::{control, reading::HEADER_LEN_BYTES};
use redoubt_shm_control::net::Counter;
use redoubt_test_support::setting;
use std::time::{Duration, Instant};
use support::{Ends, Family, checked, close_client, close_server, connect, entry, kernel, library};

/// A call's result and the bytes that it wrote.
type Outcome = (Result<usize, c_int>, Vec<u8>);

struct Both {
    ours: Ends,
    theirs: Ends,
    family: Family,
    random: fastrand::Rng,
    next_byte: u8,
    /// Neither client sends any more.
    ended: bool,
    presumed: usize,
    log: Vec<String>,
}

fn read_parts(fd: c_int, sizes: &[usize], raw: bool) -> Outcome {
    let mut parts: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0; *size]).collect();
    let list: Vec<libc::iovec> = parts
        .iter_mut()
        .map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() })
        .collect();
    // SAFETY: a list of this length, of buffers that live as long.
    let result = checked(unsafe {
        if raw {
            libc::syscall(libc::SYS_readv, fd, list.as_ptr(), list.len()) as isize
        } else {
            libc::readv(fd, list.as_ptr(), list.len() as c_int)
        }
    });
    let mut bytes = parts.concat();
    bytes.truncate(result.unwrap_or(0));
    (result, bytes)
}

fn read_message(fd: c_int, size: usize, flags: c_int, raw: bool) -> Outcome {
    let mut bytes = vec![0u8; size];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: size };
    // SAFETY: all zero bytes are a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    // SAFETY: a message with one buffer that lives long enough.
    let result = checked(unsafe {
        if raw {
            libc::syscall(libc::SYS_recvmsg, fd, &raw mut message, flags) as isize
        } else {
            libc::recvmsg(fd, &raw mut message, flags)
        }
    });
    bytes.truncate(result.unwrap_or(0));
    (result, bytes)
}

fn duplicate(fd: c_int, raw: bool) -> c_int {
    // SAFETY: no pointers.
    let copy = unsafe { if raw { libc::syscall(libc::SYS_dup, fd) as c_int } else { libc::dup(fd) } };
    checked(copy as isize).unwrap() as c_int
}

impl Both {
    fn new(family: Family, seed: u64) -> Self {
        let (ours, theirs) = (connect(family, true), connect(family, false));
        library::fcntl(ours.server, libc::F_SETFL, libc::O_NONBLOCK).unwrap();
        kernel::fcntl(theirs.server, libc::F_SETFL, libc::O_NONBLOCK).unwrap();
        let random = fastrand::Rng::with_seed(seed);
        Self { ours, theirs, family, random, next_byte: 0, ended: false, presumed: 0, log: Vec::new() }
    }

    fn check<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, ours: &T, theirs: &T) {
        let line = format!("{what}: {theirs:?}");
        self.log.push(line.chars().take(160).collect());
        let last = self.log.len().saturating_sub(40);
        assert!(
            ours == theirs,
            "{what}: {ours:?}, the kernel {theirs:?}, after\n{}",
            self.log[last..].join("\n")
        );
    }

    /// Returns when both servers have all bytes that were sent.
    fn settle(&self, sent_bytes: usize) {
        let deadline = Instant::now() + Duration::from_secs(10);
        let expected = kernel::unread(self.theirs.server);
        let mut seen = expected;
        while (library::unread(self.ours.server), seen) != (seen, seen) || seen < sent_bytes as c_int {
            assert!(
                Instant::now() < deadline,
                "{} and {seen} of {sent_bytes}",
                library::unread(self.ours.server)
            );
            std::thread::yield_now();
            seen = kernel::unread(self.theirs.server);
        }
    }

    fn client_sends(&mut self, len_bytes: usize) {
        if self.ended {
            return;
        }
        let before = kernel::unread(self.theirs.server) as usize;
        let bytes: Vec<u8> = (0..len_bytes)
            .map(|_| {
                self.next_byte = self.next_byte.wrapping_add(1);
                self.next_byte
            })
            .collect();
        self.log.push(format!("client sends {len_bytes}"));
        for client in [self.ours.client, self.theirs.client] {
            assert_eq!(kernel::send(client, &bytes, 0), Ok(len_bytes));
        }
        self.settle(before + len_bytes);
    }

    fn server_sends(&mut self, len_bytes: usize) {
        let bytes = vec![9u8; len_bytes];
        let results = [(self.ours, true), (self.theirs, false)].map(|(ends, looked_after)| {
            let send = if looked_after { library::send } else { kernel::send };
            let result = send(ends.server, &bytes, libc::MSG_NOSIGNAL);
            let mut got = vec![0u8; len_bytes];
            if let Ok(len) = result
                && !self.ended
            {
                assert_eq!(kernel::recv(ends.client, &mut got[..len], libc::MSG_WAITALL), Ok(len));
            }
            result
        });
        self.check("send", &results[0], &results[1]);
    }

    fn receive(&mut self, size: usize, flags: c_int, by_read: bool) {
        let mut expected = vec![0u8; size];
        let wanted = kernel::recv(self.theirs.server, &mut expected, flags);
        expected.truncate(wanted.unwrap_or(0));
        let mut bytes = vec![0u8; size];
        let call = |bytes: &mut [u8]| {
            if by_read {
                library::read(self.ours.server, bytes)
            } else {
                library::recv(self.ours.server, bytes, flags)
            }
        };
        let mut got = call(&mut bytes);
        if got == Err(libc::EAGAIN) && wanted != got && size <= HEADER_LEN_BYTES {
            self.presumed += 1;
            let mut list = [entry(self.ours.server, libc::POLLIN | libc::POLLPRI)];
            assert_eq!(library::poll(&mut list, 28_800_000), Ok(1), "a wait that has to end at once");
            got = call(&mut bytes);
        }
        bytes.truncate(got.unwrap_or(0));
        self.check(
            &format!("receive {size} flags {flags:#x} read {by_read}"),
            &(got, &bytes),
            &(wanted, &expected),
        );
    }

    fn poll(&mut self, events: c_short, timeout: c_int) {
        let mut ours = [entry(self.ours.server, events)];
        let mut theirs = [entry(self.theirs.server, events)];
        let results = (library::poll(&mut ours, timeout), kernel::poll(&mut theirs, timeout));
        let outcomes = ((results.0, ours[0].revents), (results.1, theirs[0].revents));
        self.check(&format!("poll {events:#x} {timeout}"), &outcomes.0, &outcomes.1);
    }

    /// A statement as a server reads it: this habit makes the library read ahead.
    fn habit(&mut self) {
        let rest = self.random.usize(1..300);
        self.receive(4, libc::MSG_DONTWAIT, false);
        self.client_sends(4 + rest);
        self.poll(libc::POLLIN | libc::POLLPRI, 28_800_000 * c_int::from(!self.ended));
        self.receive(4, libc::MSG_DONTWAIT, false);
        if self.random.u8(..4) == 0 {
            self.any();
        }
        self.receive(rest, libc::MSG_DONTWAIT, false);
        let len = self.random.usize(1..100);
        self.server_sends(len);
    }

    fn copy(&mut self) {
        let copies = (duplicate(self.ours.server, false), duplicate(self.theirs.server, true));
        if self.random.bool() {
            // The first descriptor goes, the copy stays.
            close_server(self.ours.server);
            close_client(self.theirs.server);
            (self.ours.server, self.theirs.server) = copies;
        } else {
            close_server(copies.0);
            close_client(copies.1);
        }
        self.log.push("dup".to_owned());
    }

    fn flags(&mut self) {
        let ours = library::fcntl(self.ours.server, libc::F_GETFL, 0);
        let theirs = kernel::fcntl(self.theirs.server, libc::F_GETFL, 0);
        self.check("F_GETFL", &ours, &theirs);
    }

    fn any(&mut self) {
        let sizes = [1, 3, 4, 5, 7, 16, 17, 100, 4096, 5000, 20_000];
        let size = sizes[self.random.usize(..sizes.len())];
        match self.random.u32(..24) {
            0..6 => {
                let len = [1, 4, 5, 100, 3000, 4096, 6000][self.random.usize(..7)];
                self.client_sends(len);
            }
            6..10 => {
                let flags =
                    [0, libc::MSG_DONTWAIT, libc::MSG_WAITALL | libc::MSG_DONTWAIT][self.random.usize(..3)];
                self.receive(size, flags, false);
            }
            10 => self.receive(size, 0, true),
            11..13 => {
                let flags = libc::MSG_PEEK | if self.random.bool() { libc::MSG_DONTWAIT } else { 0 };
                self.receive(size, flags, false);
            }
            13..16 => {
                let events = [
                    libc::POLLIN,
                    libc::POLLIN | libc::POLLOUT,
                    libc::POLLOUT,
                    libc::POLLIN | libc::POLLRDHUP,
                ];
                let events = events[self.random.usize(..4)];
                self.poll(events, 0);
            }
            16..18 => {
                let len = self.random.usize(1..2000);
                self.server_sends(len);
            }
            18 => self.flags(),
            19 => self.check(
                "FIONREAD",
                &library::unread(self.ours.server),
                &kernel::unread(self.theirs.server),
            ),
            20 if self.random.u8(..8) == 0 => {
                let sizes = [self.random.usize(..5), self.random.usize(..300), self.random.usize(..9000)];
                let outcomes = (
                    read_parts(self.ours.server, &sizes, false),
                    read_parts(self.theirs.server, &sizes, true),
                );
                self.check("readv", &outcomes.0, &outcomes.1);
            }
            21 if self.random.u8(..8) == 0 => {
                let flags = if self.random.bool() { libc::MSG_PEEK } else { 0 };
                let ours = read_message(self.ours.server, size, flags, false);
                let theirs = read_message(self.theirs.server, size, flags, true);
                self.check("recvmsg", &ours, &theirs);
            }
            22 if self.random.u8(..16) == 0 => self.copy(),
            23 if self.random.u8(..32) == 0 && !self.ended => self.end(),
            _ => self.habit(),
        }
    }

    /// The clients send no more.
    fn end(&mut self) {
        self.ended = true;
        for client in [self.ours.client, self.theirs.client] {
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::syscall(libc::SYS_shutdown, client, libc::SHUT_WR) }, 0);
        }
        for server in [self.ours.server, self.theirs.server] {
            assert_eq!(kernel::poll(&mut [entry(server, libc::POLLRDHUP)], 5000), Ok(1));
        }
        self.log.push("clients end".to_owned());
    }

    fn close(self) {
        close_server(self.ours.server);
        close_client(self.theirs.server);
        close_client(self.ours.client);
        close_client(self.theirs.client);
    }
}

fn run(family: Family, seed: u64) -> usize {
    let mut both = Both::new(family, seed);
    let log = format!("{:?} seed {seed}", both.family);
    both.log.push(log);
    for _ in 0..12 {
        both.habit();
    }
    for _ in 0..150 {
        both.any();
    }
    let presumed = both.presumed;
    both.close();
    presumed
}

#[test]
fn the_same_calls_have_the_same_results() {
    let (rounds, first) = (setting("REDOUBT_NET_ROUNDS", 30), setting("REDOUBT_NET_SEED", 1));
    let mut presumed = 0;
    for seed in first..first + rounds {
        for family in [Family::Tcp, Family::Unix] {
            presumed += run(family, seed);
        }
    }
    // The test has covered reading ahead and presumed answers.
    let (calls, system_calls) = (control::total(Counter::Calls), control::total(Counter::SystemCalls));
    println!("{calls} calls, {system_calls} system calls, presumed {presumed}");
    assert!(control::total(Counter::Collapsed) >= rounds && presumed as u64 >= rounds);
    assert!(system_calls < calls * 9 / 10, "{system_calls} of {calls}");
}
