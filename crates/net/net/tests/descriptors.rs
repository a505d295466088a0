//! Uses that make the library leave a connection to the kernel, and descriptors that are not passed to others.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod support;

use libc::c_int;
use redoubt_locks::IgnorePoison;
use redoubt_net::control;
use redoubt_shm_control::net::{Counter, Mode};
use std::sync::{Mutex, MutexGuard};
use support::{
    Ends, Family, checked, close_client, close_server, engaged, entry, finish_statement, is_blocking, kernel,
    library, request, statement,
};

const WAIT: c_int = 28_800_000;
const STATEMENT: &[u8] = b"\x01\x00\x00\x00\x0e";
/// One test changes the mode for all.
static MODE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    MODE.lock().ignore_poison()
}

/// Reads the first four bytes of two statements; the rest has been read ahead.
fn with_rest(family: Family) -> Ends {
    let ends = engaged(family, WAIT);
    let mut header = [0u8; 4];
    assert_eq!(library::recv(ends.server, &mut header, libc::MSG_DONTWAIT), Err(libc::EAGAIN));
    request(ends, &[STATEMENT, STATEMENT].concat());
    assert_eq!(library::poll(&mut [entry(ends.server, libc::POLLIN)], WAIT), Ok(1));
    assert_eq!(library::recv(ends.server, &mut header, libc::MSG_DONTWAIT), Ok(4));
    assert_eq!((kernel::unread(ends.server), library::unread(ends.server)), (0, 6));
    ends
}

fn close(ends: Ends) {
    close_server(ends.server);
    close_client(ends.client);
}

/// The rest of [`with_rest`], and then the kernel's own state.
fn left_alone(ends: Ends) {
    let mut buffer = [0u8; 64];
    assert_eq!(library::recv(ends.server, &mut buffer, libc::MSG_DONTWAIT), Ok(6));
    assert!(!is_blocking(ends.server));
    for _ in 0..20 {
        statement(ends, STATEMENT, WAIT);
    }
    assert!(!is_blocking(ends.server), "for good");
}

#[test]
fn options_that_change_what_reads_mean_are_the_kernels() {
    let _alone = alone();
    for option in [libc::SO_RCVTIMEO, libc::SO_RCVLOWAT, libc::SO_PASSCRED, libc::SO_TIMESTAMP] {
        let ends = with_rest(Family::Unix);
        let value = [0 as c_int; 4];
        let len = if option == libc::SO_RCVTIMEO { 16 } else { 4 };
        // SAFETY: at least that many bytes.
        let result =
            unsafe { libc::setsockopt(ends.server, libc::SOL_SOCKET, option, value.as_ptr().cast(), len) };
        assert_eq!(checked(result as isize), Ok(0), "{option}");
        left_alone(ends);
        close(ends);
    }
}

#[test]
fn options_of_servers_change_nothing() {
    let _alone = alone();
    let ends = engaged(Family::Tcp, WAIT);
    let value: c_int = 1;
    for (level, option) in [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY),
        (libc::IPPROTO_IP, libc::IP_TOS),
    ] {
        // SAFETY: an int.
        let result = unsafe { libc::setsockopt(ends.server, level, option, (&raw const value).cast(), 4) };
        assert_eq!(result, 0);
    }
    statement(ends, STATEMENT, WAIT);
    assert!(is_blocking(ends.server));
    close(ends);
}

#[test]
fn a_connection_in_a_set_of_epoll_is_the_kernels() {
    let _alone = alone();
    let ends = engaged(Family::Tcp, WAIT);
    assert!(is_blocking(ends.server));
    // SAFETY: descriptors of the test, an event that lives long enough.
    unsafe {
        let set = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 7 };
        assert_eq!(libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, ends.server, &raw mut event), 0);
        assert!(!is_blocking(ends.server));
        for _ in 0..20 {
            kernel::send(ends.client, &[STATEMENT, STATEMENT].concat(), 0).unwrap();
            let mut got = libc::epoll_event { events: 0, u64: 0 };
            assert_eq!(libc::epoll_wait(set, &raw mut got, 1, 10_000), 1);
            let mut header = [0u8; 4];
            // Two statements: no byte may be lost between them.
            for _ in 0..2 {
                assert_eq!(library::recv(ends.server, &mut header, 0), Ok(4));
                assert_eq!(library::recv(ends.server, &mut header[..1], 0), Ok(1));
            }
            assert_eq!(library::recv(ends.server, &mut header, 0), Err(libc::EAGAIN));
            library::send(ends.server, &[1], 0).unwrap();
        }
        libc::close(set);
    }
    close(ends);
}

/// Waits for events of a set, and returns their number and those of the first.
fn wait_for_set(set: c_int, timeout: c_int) -> (c_int, u32, u64) {
    let mut got = [libc::epoll_event { events: 0, u64: 0 }; 4];
    // SAFETY: room for that many events.
    let ready = unsafe { libc::epoll_wait(set, got.as_mut_ptr(), 4, timeout) };
    (ready, got[0].events, got[0].u64)
}

fn change_set(set: c_int, operation: c_int, fd: c_int, event: (u32, u64)) {
    let mut event = libc::epoll_event { events: event.0, u64: event.1 };
    // SAFETY: descriptors of the test, an event that lives long enough.
    assert_eq!(unsafe { libc::epoll_ctl(set, operation, fd, &raw mut event) }, 0);
}

#[test]
fn a_set_of_epoll_reports_what_was_read_ahead() {
    const IN: u32 = libc::EPOLLIN as u32;
    const ONCE: u32 = libc::EPOLLONESHOT as u32;
    let _alone = alone();
    for asked in [IN | ONCE | (libc::EPOLLRDHUP | libc::EPOLLET) as u32, IN | ONCE, IN] {
        let (ends, other) = (with_rest(Family::Tcp), with_rest(Family::Unix));
        let again = c_int::from(asked & ONCE == 0);
        // SAFETY: no pointers.
        let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        change_set(set, libc::EPOLL_CTL_ADD, ends.server, (asked, 7));
        assert_eq!(wait_for_set(set, 10_000), (1, IN, 7), "{asked:#x}");
        assert_eq!(wait_for_set(set, 0).0, again, "once, or for as long as there is something");
        let mut buffer = [0u8; 4];
        assert_eq!(library::recv(ends.server, &mut buffer, 0), Ok(4));
        change_set(set, libc::EPOLL_CTL_MOD, ends.server, (asked, 8));
        assert_eq!(wait_for_set(set, 10_000), (1, IN, 8), "two bytes are left");
        assert_eq!(library::recv(ends.server, &mut buffer, 0), Ok(2));
        if again == 0 {
            change_set(set, libc::EPOLL_CTL_MOD, ends.server, (asked, 9));
        }
        assert_eq!(wait_for_set(set, 20).0, 0, "nothing is left, and room to write is not asked for");
        request(ends, STATEMENT);
        assert_eq!(wait_for_set(set, 10_000).0, 1);
        assert_eq!(library::recv(ends.server, &mut [0u8; 64], 0), Ok(5));
        change_set(set, libc::EPOLL_CTL_ADD, other.server, (asked, 10));
        close(other);
        assert_eq!(wait_for_set(set, 0).0, 0, "what is closed is not reported");
        close(ends);
        close_server(set);
    }
}

#[test]
fn a_copy_has_what_was_read_ahead() {
    let _alone = alone();
    for how in 0..4 {
        let ends = with_rest(Family::Tcp);
        let target = engaged(Family::Tcp, WAIT);
        // SAFETY: descriptors of the test.
        let copy = unsafe {
            match how {
                0 => libc::dup(ends.server),
                1 => libc::dup2(ends.server, target.server),
                2 => libc::dup3(ends.server, target.server, libc::O_CLOEXEC),
                _ => libc::fcntl(ends.server, libc::F_DUPFD_CLOEXEC, 100),
            }
        };
        assert!(copy >= 0);
        let mut buffer = [0u8; 4];
        assert_eq!(library::recv(copy, &mut buffer, 0), Ok(4));
        assert_eq!(library::recv(ends.server, &mut buffer[..1], 0), Ok(1));
        close_server(ends.server);
        assert_eq!(library::recv(copy, &mut buffer, 0), Ok(1));
        assert_eq!(library::recv(copy, &mut buffer, 0), Err(libc::EAGAIN));
        let left = Ends { server: copy, client: ends.client };
        statement(left, STATEMENT, WAIT);
        assert!(!is_blocking(copy));
        close(left);
        close_client(target.client);
        if how == 0 || how == 3 {
            close_server(target.server);
        }
    }
}

#[test]
fn a_failed_copy_leaves_the_other_as_it_is() {
    let _alone = alone();
    let ends = with_rest(Family::Tcp);
    // SAFETY: a number that is no descriptor's.
    let result = unsafe { libc::dup2(-1, ends.server) };
    assert_eq!(checked(result as isize), Err(libc::EBADF));
    let mut buffer = [0u8; 64];
    assert_eq!(library::recv(ends.server, &mut buffer, 0), Ok(6));
    close(ends);
}

#[test]
fn a_used_number_has_nothing_of_its_predecessor() {
    let _alone = alone();
    let ends = with_rest(Family::Tcp);
    close(ends);
    // SAFETY: two descriptors; the first number that is free is taken.
    unsafe {
        let mut pipe = [0 as c_int; 2];
        assert_eq!(libc::pipe2(pipe.as_mut_ptr(), libc::O_NONBLOCK), 0);
        let mut buffer = [0u8; 64];
        assert_eq!(library::read(pipe[0], &mut buffer), Err(libc::EAGAIN));
        assert_eq!(libc::write(pipe[1], b"pipe".as_ptr().cast(), 4), 4);
        assert_eq!(library::read(pipe[0], &mut buffer), Ok(4));
        libc::close(pipe[0]);
        libc::close(pipe[1]);
    }
}

#[test]
fn a_forked_child_gets_nothing_that_was_read_ahead() {
    let _alone = alone();
    let ends = with_rest(Family::Tcp);
    assert!(is_blocking(ends.server));
    // SAFETY: the child makes system calls only, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let mut buffer = [0u8; 64];
            let nothing = libc::recv(ends.server, buffer.as_mut_ptr().cast(), 64, 0);
            let errno = *libc::__errno_location();
            let flags = libc::fcntl(ends.server, libc::F_GETFL);
            let mut list = [entry(ends.server, libc::POLLIN)];
            let ready = libc::poll(list.as_mut_ptr(), 1, 0);
            let copy = libc::dup(ends.server);
            let closed = libc::close(copy) == 0 && libc::close(ends.server) == 0;
            let fine = nothing == -1
                && errno == libc::EAGAIN
                && flags & libc::O_NONBLOCK != 0
                && ready == 0
                && closed;
            libc::_exit(c_int::from(!fine));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
    assert!(is_blocking(ends.server), "the parent goes on");
    let mut buffer = [0u8; 64];
    assert_eq!(library::recv(ends.server, &mut buffer, 0), Ok(6));
    statement(ends, STATEMENT, WAIT);
    assert!(is_blocking(ends.server));
    close(ends);
}

#[test]
fn a_descriptor_that_other_programs_get_is_the_kernels() {
    let _alone = alone();
    let ends = engaged(Family::Tcp, WAIT);
    library::fcntl(ends.server, libc::F_SETFD, 0).unwrap();
    assert!(!is_blocking(ends.server));
    // A program that inherits it sees a descriptor that does not wait.
    let script = format!("head -c 1 <&{0}; echo $?; grep flags /proc/self/fdinfo/{0}", ends.server);
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let flags = text.rsplit('\t').next().and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok()).unwrap();
    assert_ne!(flags & libc::O_NONBLOCK, 0, "{text}");
    close(ends);
}

#[test]
fn blocking_descriptors_block() {
    let _alone = alone();
    let ends = with_rest(Family::Tcp);
    library::fcntl(ends.server, libc::F_SETFL, 0).unwrap();
    let mut buffer = [0u8; 6];
    assert_eq!(library::recv(ends.server, &mut buffer[..2], libc::MSG_WAITALL), Ok(2));
    let fd = ends.server;
    let reader = std::thread::spawn(move || {
        let mut buffer = [0u8; 6];
        (library::recv(fd, &mut buffer, libc::MSG_WAITALL), buffer)
    });
    // Four bytes were read ahead, two are yet to come.
    kernel::send(ends.client, &[1, 2], 0).unwrap();
    let (result, got) = reader.join().unwrap();
    assert_eq!((result, got[4], got[5]), (Ok(6), 1, 2));
    close(ends);
}

#[test]
fn modes_change_what_a_running_connection_does() {
    let _alone = alone();
    let ends = engaged(Family::Tcp, WAIT);
    assert!(is_blocking(ends.server));
    let made = |mode: Mode| {
        control::set_mode(mode);
        for _ in 0..3 {
            statement(ends, STATEMENT, WAIT);
        }
        let before = control::total(Counter::SystemCalls);
        for _ in 0..100 {
            statement(ends, STATEMENT, WAIT);
        }
        control::total(Counter::SystemCalls) - before
    };
    // Beside the answer: EAGAIN, wait, header, rest.
    assert_eq!(made(Mode::Off), 400);
    assert!(!is_blocking(ends.server));
    assert_eq!(made(Mode::ReadAhead), 200);
    assert!(!is_blocking(ends.server));
    assert_eq!(made(Mode::On), 100);
    assert!(is_blocking(ends.server));
    assert_eq!(made(Mode::Auto), 100);
    control::set_mode(Mode::On);
    close(ends);
}

/// A statement of a server that waits with a signal mask, as MySQL does.
fn statement_with_mask(ends: Ends) {
    let mut header = [0u8; 5];
    assert_eq!(library::recv(ends.server, &mut header[..4], libc::MSG_DONTWAIT), Err(libc::EAGAIN));
    request(ends, STATEMENT);
    let mut list = [entry(ends.server, libc::POLLIN | libc::POLLPRI)];
    let timeout = libc::timespec { tv_sec: 28_800, tv_nsec: 0 };
    // SAFETY: one entry; a mask that is made empty first.
    let ready = unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut mask);
        libc::ppoll(list.as_mut_ptr(), 1, &raw const timeout, &raw const mask)
    };
    assert_eq!((ready, list[0].revents), (1, libc::POLLIN));
    assert_eq!(library::recv(ends.server, &mut header[..4], libc::MSG_DONTWAIT), Ok(4));
    assert_eq!(library::recv(ends.server, &mut header[4..], libc::MSG_DONTWAIT), Ok(1));
    assert_eq!(header, STATEMENT);
    assert_eq!(library::send(ends.server, &[1], 0), Ok(1));
    assert_eq!(kernel::recv(ends.client, &mut [0u8; 1], 0), Ok(1));
}

#[test]
fn a_wait_with_a_mask_is_the_kernels() {
    let _alone = alone();
    let ends = support::connect(Family::Tcp, true);
    library::fcntl(ends.server, libc::F_SETFL, libc::O_NONBLOCK).unwrap();
    for (mode, expected) in [(Mode::Off, 40), (Mode::On, 20), (Mode::Auto, 40)] {
        control::set_mode(mode);
        (0..12).for_each(|_| statement_with_mask(ends));
        let before = control::total(Counter::SystemCalls);
        (0..10).for_each(|_| statement_with_mask(ends));
        // Some calls are counted with the next statement.
        let made = control::total(Counter::SystemCalls) - before;
        assert_eq!(made, expected, "{mode:?}");
        assert!(!is_blocking(ends.server));
    }
    control::set_mode(Mode::On);
    close(ends);
}

#[test]
fn two_readers_lose_nothing() {
    let _alone = alone();
    let ends = engaged(Family::Unix, WAIT);
    let total: usize = 200_000;
    let fd = ends.server;
    let readers: Vec<_> = (0..3)
        .map(|reader: usize| {
            std::thread::spawn(move || {
                let (mut sum, mut count, mut buffer) = (0u64, 0usize, [0u8; 300]);
                let size = [4, 300, 16][reader];
                loop {
                    match library::recv(fd, &mut buffer[..size], libc::MSG_DONTWAIT) {
                        Ok(0) => return (sum, count),
                        Ok(len) => {
                            sum += buffer[..len].iter().map(|byte| u64::from(*byte)).sum::<u64>();
                            count += len;
                        }
                        Err(libc::EAGAIN) => {
                            library::poll(&mut [entry(fd, libc::POLLIN | libc::POLLPRI)], WAIT).unwrap();
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        })
        .collect();
    let bytes: Vec<u8> = (0..total).map(|at| (at % 251) as u8).collect();
    for piece in bytes.chunks(777) {
        assert_eq!(kernel::send(ends.client, piece, 0), Ok(piece.len()));
    }
    close_client(ends.client);
    let all = readers.into_iter().map(|reader| reader.join().unwrap());
    let (sum, count) = all.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    assert_eq!((sum, count), (bytes.iter().map(|byte| u64::from(*byte)).sum(), total));
    close_server(fd);
}

#[test]
fn a_statement_larger_than_what_is_read_ahead_arrives() {
    let _alone = alone();
    for family in [Family::Tcp, Family::Unix] {
        let ends = engaged(family, WAIT);
        for len in [4095, 4096, 4097, 8192, 60_000] {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 253) as u8).collect();
            let mut header = [0u8; 4];
            assert_eq!(library::recv(ends.server, &mut header, libc::MSG_DONTWAIT), Err(libc::EAGAIN));
            kernel::send(ends.client, &bytes, 0).unwrap();
            redoubt_test_support::wait::until("the whole statement at the server", || {
                kernel::unread(ends.server) as usize >= len
            });
            finish_statement(ends, &bytes, WAIT);
        }
        close(ends);
    }
}
