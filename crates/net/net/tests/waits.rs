//! Waits: their duration, and the events that end them.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod support;

use libc::c_int;
use redoubt_test_support::wait::{GUARD, system_call, until_asleep};
use std::io::{BufRead, BufReader, Write};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::{
    Ends, Family, another, close_client, close_server, connect, engaged, entry, handle, is_blocking, kernel,
    library, request,
};

redoubt_test_support::children!(who_is_stopped);

const FAMILIES: [Family; 2] = [Family::Tcp, Family::Unix];
const WAIT: c_int = 28_800_000;

/// A wait's result, its events, how long it took.
type Waited = (Result<usize, c_int>, i16, Duration);

/// A thread that tries to read, gets EAGAIN, and then waits.
struct Waiting {
    thread: libc::pid_t,
    receiver: mpsc::Receiver<Waited>,
}

fn waiting(fd: c_int, timeout: c_int) -> Waiting {
    let (sender, receiver) = mpsc::channel();
    let (begun, begins) = mpsc::channel();
    std::thread::spawn(move || {
        let mut header = [0u8; 4];
        assert_eq!(library::recv(fd, &mut header, libc::MSG_DONTWAIT), Err(libc::EAGAIN));
        // SAFETY: no arguments.
        begun.send(unsafe { libc::gettid() }).unwrap();
        let start = Instant::now();
        let mut list = [entry(fd, libc::POLLIN | libc::POLLPRI)];
        let result = library::poll(&mut list, timeout);
        sender.send((result, list[0].revents, start.elapsed())).unwrap();
    });
    let thread = begins.recv().unwrap();
    until_asleep(thread);
    Waiting { thread, receiver }
}

fn result(waiting: &Waiting) -> Waited {
    waiting.receiver.recv_timeout(GUARD).expect("the wait has ended")
}

fn is_there(thread: libc::pid_t) -> bool {
    std::path::Path::new(&format!("/proc/self/task/{thread}")).exists()
}

/// The time after which the kernel ends a read of this socket.
fn receive_timeout(fd: c_int) -> Duration {
    let (mut value, mut len) = (libc::timeval { tv_sec: 0, tv_usec: 0 }, size_of::<libc::timeval>() as u32);
    let pointer = (&raw mut value).cast::<libc::c_void>();
    // SAFETY: a timeval of this length.
    let result = unsafe {
        let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
        libc::syscall(libc::SYS_getsockopt, fd, level, name, pointer, &raw mut len)
    };
    assert_eq!(result, 0);
    Duration::new(value.tv_sec as u64, value.tv_usec as u32 * 1000)
}

fn read_all(fd: c_int) -> Result<usize, c_int> {
    let mut buffer = [0u8; 64];
    library::recv(fd, &mut buffer, libc::MSG_DONTWAIT)
}

fn close(ends: Ends) {
    close_server(ends.server);
    close_client(ends.client);
}

#[test]
fn a_wait_becomes_a_read_of_a_descriptor_that_waits() {
    for family in FAMILIES {
        let ends = engaged(family, WAIT);
        assert!(is_blocking(ends.server));
        // The server gets its own flags.
        let flags = library::fcntl(ends.server, libc::F_GETFL, 0).unwrap() as c_int;
        assert_ne!(flags & libc::O_NONBLOCK, 0);
        let mut large = [0u8; 100];
        for flags in [0, libc::MSG_DONTWAIT] {
            assert_eq!(library::recv(ends.server, &mut large, flags), Err(libc::EAGAIN));
        }
        assert_eq!(library::read(ends.server, &mut large), Err(libc::EAGAIN));
        // A write of more than fits does not block either.
        let block = vec![0u8; 1 << 20];
        let mut last = Ok(0);
        while last.is_ok() {
            last = library::send(ends.server, &block, 0);
        }
        assert_eq!(last, Err(libc::EAGAIN));
        // SAFETY: a buffer of this length.
        let written = unsafe { libc::write(ends.server, block.as_ptr().cast(), block.len()) };
        assert_eq!(support::checked(written), Err(libc::EAGAIN));
        close(ends);
    }
}

#[test]
fn bytes_end_a_wait() {
    for family in FAMILIES {
        let ends = engaged(family, WAIT);
        let wait = waiting(ends.server, WAIT);
        kernel::send(ends.client, b"\x01\x00\x00\x00\x0e", 0).unwrap();
        let (ready, events, _) = result(&wait);
        assert_eq!((ready, events), (Ok(1), libc::POLLIN));
        assert_eq!(library::unread(ends.server), 5);
        assert_eq!(kernel::unread(ends.server), 0);
        assert_eq!(read_all(ends.server), Ok(5));
        close(ends);
    }
}

#[test]
fn shutdown_by_another_thread_ends_a_wait() {
    for family in FAMILIES {
        let ends = engaged(family, WAIT);
        let wait = waiting(ends.server, WAIT);
        // SAFETY: the test's own descriptor.
        assert_eq!(unsafe { libc::shutdown(ends.server, libc::SHUT_RDWR) }, 0);
        let (ready, events, _) = result(&wait);
        let mut list = [entry(ends.server, libc::POLLIN | libc::POLLPRI)];
        assert_eq!(kernel::poll(&mut list, 0), Ok(1));
        assert_eq!((ready, events), (Ok(1), list[0].revents));
        assert_eq!(read_all(ends.server), Ok(0));
        close(ends);
    }
}

#[test]
fn the_end_of_the_other_side_ends_a_wait() {
    for family in FAMILIES {
        let ends = engaged(family, WAIT);
        let wait = waiting(ends.server, WAIT);
        close_client(ends.client);
        let (ready, events, _) = result(&wait);
        assert_eq!(ready, Ok(1));
        assert_ne!(events & libc::POLLIN, 0);
        assert_eq!(read_all(ends.server), Ok(0));
        assert_eq!(read_all(ends.server), Ok(0));
        close_server(ends.server);
    }
}

fn reset(client: c_int) {
    let value = libc::linger { l_onoff: 1, l_linger: 0 };
    let pointer = (&raw const value).cast();
    // SAFETY: a linger of this length.
    let result = unsafe {
        libc::setsockopt(client, libc::SOL_SOCKET, libc::SO_LINGER, pointer, size_of::<libc::linger>() as u32)
    };
    assert_eq!(result, 0);
    close_client(client);
}

#[test]
fn a_reset_ends_a_wait_and_is_reported_once() {
    let ends = engaged(Family::Tcp, WAIT);
    let wait = waiting(ends.server, WAIT);
    reset(ends.client);
    let (ready, events, _) = result(&wait);
    assert_eq!(ready, Ok(1));
    let expected = libc::POLLIN | libc::POLLERR | libc::POLLHUP;
    assert_eq!(events & expected, expected);
    // Every poll reports it again.
    let mut list = [entry(ends.server, libc::POLLIN)];
    assert_eq!(library::poll(&mut list, 1000), Ok(1));
    assert_eq!(list[0].revents & expected, expected);
    assert_eq!(read_all(ends.server), Err(libc::ECONNRESET));
    assert_eq!(read_all(ends.server), Ok(0));
    close_server(ends.server);
}

#[test]
fn a_reset_that_was_read_ahead_is_the_error_of_the_socket() {
    let ends = engaged(Family::Tcp, WAIT);
    let wait = waiting(ends.server, WAIT);
    reset(ends.client);
    assert_eq!(result(&wait).0, Ok(1));
    let error = || {
        let (mut value, mut len): (c_int, libc::socklen_t) = (-1, 4);
        let pointer = (&raw mut value).cast();
        // SAFETY: an int of this length.
        let result =
            unsafe { libc::getsockopt(ends.server, libc::SOL_SOCKET, libc::SO_ERROR, pointer, &raw mut len) };
        assert_eq!(result, 0);
        value
    };
    assert_eq!(error(), libc::ECONNRESET);
    assert_eq!(error(), 0);
    assert_eq!(read_all(ends.server), Ok(0));
    close_server(ends.server);
}

#[test]
fn bytes_before_a_reset_are_read_first() {
    let ends = engaged(Family::Tcp, WAIT);
    let wait = waiting(ends.server, WAIT);
    kernel::send(ends.client, b"\x01\x00\x00\x00\x0e", 0).unwrap();
    assert_eq!(result(&wait).0, Ok(1));
    reset(ends.client);
    let mut list = [entry(ends.server, libc::POLLRDHUP)];
    assert_eq!(kernel::poll(&mut list, 5000), Ok(1));
    let mut header = [0u8; 4];
    assert_eq!(library::recv(ends.server, &mut header, libc::MSG_DONTWAIT), Ok(4));
    let mut rest = [0u8; 100];
    assert_eq!(library::recv(ends.server, &mut rest, libc::MSG_DONTWAIT), Ok(1));
    assert_eq!(library::recv(ends.server, &mut rest, libc::MSG_DONTWAIT), Err(libc::ECONNRESET));
    assert_eq!(library::recv(ends.server, &mut rest, libc::MSG_DONTWAIT), Ok(0));
    close_server(ends.server);
}

/// The kernel is asked to wait for seven eighths of the time in a read and for the rest in poll: together that is the
/// timeout of the server, whenever the kernel then runs the thread.
#[test]
fn a_wait_lasts_as_long_as_it_was_told_to() {
    for family in FAMILIES {
        // Long enough to become a read; not a round number.
        let timeout = 1337;
        let expected = Duration::from_millis(1337);
        let ends = engaged(family, timeout);
        assert!(is_blocking(ends.server));
        // The kernel counts in its own ticks, at most 10 ms each, and rounds up.
        let (in_read, told) = (receive_timeout(ends.server), Duration::from_millis(1337 * 7 / 8));
        let tick = Duration::from_millis(10);
        assert!(in_read >= told && in_read < told + tick, "{in_read:?}");
        let mut seen_in_poll = None;
        // A busy machine may show the thread too late.
        for _ in 0..20 {
            let wait = waiting(ends.server, timeout);
            seen_in_poll = loop {
                match system_call(wait.thread) {
                    Some((libc::SYS_poll, arguments)) => break Some(arguments[2]),
                    _ if !is_there(wait.thread) => break None,
                    _ => std::thread::yield_now(),
                }
            };
            let (ready, events, took) = result(&wait);
            assert_eq!((ready, events), (Ok(0), 0));
            assert!(took >= expected, "{took:?}");
            if seen_in_poll.is_some() {
                break;
            }
        }
        let in_poll = Duration::from_millis(seen_in_poll.expect("the rest is waited for with poll"));
        // The read has taken its time, which may begin in the middle of a tick.
        assert!(in_poll <= expected - told + tick, "{in_poll:?}");
        // And the connection continues.
        support::request(ends, b"\x01\x00\x00\x00\x0e");
        let mut buffer = [0u8; 64];
        assert_eq!(library::recv(ends.server, &mut buffer, libc::MSG_DONTWAIT), Ok(5));
        close(ends);
    }
}

/// The other timeout is eight hours: a wait with it would not end before the guard.
#[test]
fn another_timeout_is_the_one_that_counts() {
    let ends = engaged(Family::Tcp, WAIT);
    for _ in 0..3 {
        let wait = waiting(ends.server, 1100);
        let (ready, _, took) = result(&wait);
        assert_eq!(ready, Ok(0));
        assert!(took >= Duration::from_millis(1100), "{took:?}");
    }
    let in_read = receive_timeout(ends.server);
    assert!(in_read <= Duration::from_millis(1100), "{in_read:?}");
    let wait = waiting(ends.server, 50);
    assert_eq!(result(&wait).0, Ok(0));
    close(ends);
}

/// The first signal turns the read into a poll, which continues if the process was only stopped.
#[test]
fn signals_end_a_wait() {
    handle(libc::SIGUSR2, true);
    for timeout in [WAIT, -1] {
        let ends = engaged(Family::Tcp, timeout);
        assert!(is_blocking(ends.server));
        let (sender, receiver) = mpsc::channel();
        let fd = ends.server;
        let thread = std::thread::spawn(move || {
            let mut header = [0u8; 4];
            assert_eq!(library::recv(fd, &mut header, libc::MSG_DONTWAIT), Err(libc::EAGAIN));
            // SAFETY: no arguments.
            sender.send(unsafe { (libc::gettid(), libc::pthread_self()) }).unwrap();
            library::poll(&mut [entry(fd, libc::POLLIN | libc::POLLPRI)], timeout)
        });
        let (id, handle) = receiver.recv().unwrap();
        until_asleep(id);
        while !thread.is_finished() {
            // SAFETY: the thread has not been joined.
            assert_eq!(unsafe { libc::pthread_kill(handle, libc::SIGUSR2) }, 0);
            std::thread::yield_now();
        }
        assert_eq!(thread.join().unwrap(), Err(libc::EINTR));
        close(ends);
    }
}

/// A child process of [`a_stop_does_not_end_a_wait`]: it is stopped while it waits, and continued.
fn who_is_stopped() {
    for timeout in [WAIT, -1] {
        let ends = engaged(Family::Tcp, timeout);
        let wait = waiting(ends.server, timeout);
        println!("\nwaits");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        request(ends, b"\x01\x00\x00\x00\x0e");
        println!("\n{:?}", result(&wait).0);
        close(ends);
    }
}

#[test]
fn a_stop_does_not_end_a_wait() {
    let mut child = another("who_is_stopped").spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let id = child.id().cast_signed();
    for _ in 0..2 {
        assert!(lines.any(|line| line == "waits"));
        // SAFETY: the child has not been waited for; a place for its state.
        unsafe {
            assert_eq!(libc::kill(id, libc::SIGSTOP), 0);
            let mut state = 0;
            assert_eq!(libc::waitpid(id, &raw mut state, libc::WUNTRACED), id);
            assert!(libc::WIFSTOPPED(state));
            assert_eq!(libc::kill(id, libc::SIGCONT), 0);
        }
        child.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
        assert_eq!(lines.find(|line| line.starts_with(['O', 'E'])).unwrap(), "Ok(1)");
    }
    assert!(child.wait().unwrap().success());
}

#[test]
fn closing_under_a_wait_leaves_the_number_to_its_successor() {
    let ends = engaged(Family::Unix, WAIT);
    let wait = waiting(ends.server, WAIT);
    close_server(ends.server);
    // The kernel continues to wait on the closed connection; the number is free.
    let next = connect(Family::Unix, true);
    kernel::send(ends.client, b"\x05\x00\x00\x00hello", 0).unwrap();
    assert_eq!(result(&wait).0, Ok(1));
    library::fcntl(next.server, libc::F_SETFL, libc::O_NONBLOCK).unwrap();
    assert_eq!(read_all(next.server), Err(libc::EAGAIN));
    support::request(next, b"new");
    assert_eq!(read_all(next.server), Ok(3));
    close(next);
    close_client(ends.client);
}

#[test]
fn several_are_waited_for_while_nothing_is_read_ahead() {
    let (one, other) = (engaged(Family::Tcp, WAIT), engaged(Family::Tcp, WAIT));
    // Of five bytes the server takes four: only the library has the rest.
    support::request(one, b"\x01\x00\x00\x00\x0e");
    let mut list = [entry(one.server, libc::POLLIN | libc::POLLPRI)];
    let mut header = [0u8; 4];
    assert_eq!(library::recv(one.server, &mut header, libc::MSG_DONTWAIT), Err(libc::EAGAIN));
    assert_eq!(library::poll(&mut list, WAIT), Ok(1));
    assert_eq!(library::recv(one.server, &mut header, libc::MSG_DONTWAIT), Ok(4));
    assert_eq!(kernel::unread(one.server), 0);
    let mut list = [entry(other.server, libc::POLLIN), entry(one.server, libc::POLLIN)];
    assert_eq!(library::poll(&mut list, 10_000), Ok(1));
    assert_eq!((list[0].revents, list[1].revents), (0, libc::POLLIN));
    let mut list = [entry(one.server, libc::POLLIN | libc::POLLOUT)];
    assert_eq!(library::poll(&mut list, 10_000), Ok(1));
    assert_eq!(list[0].revents, libc::POLLIN | libc::POLLOUT);
    let mut list = [entry(one.server, libc::POLLOUT)];
    assert_eq!(library::poll(&mut list, 10_000), Ok(1));
    assert_eq!(list[0].revents, libc::POLLOUT);
    assert_eq!(read_all(one.server), Ok(1));
    close(one);
    close(other);
}

#[test]
fn select_knows_what_was_read_ahead() {
    let ends = engaged(Family::Tcp, WAIT);
    request(ends, b"\x01\x00\x00\x00\x0e");
    let mut header = [0u8; 4];
    assert_eq!(library::recv(ends.server, &mut header, libc::MSG_DONTWAIT), Err(libc::EAGAIN));
    assert_eq!(library::poll(&mut [entry(ends.server, libc::POLLIN)], WAIT), Ok(1));
    assert_eq!(kernel::unread(ends.server), 0);
    let mut timeout = libc::timeval { tv_sec: 10, tv_usec: 0 };
    // SAFETY: a set that is made empty first, and the descriptor is below its size.
    unsafe {
        let mut set: libc::fd_set = std::mem::zeroed();
        libc::FD_SET(ends.server, &raw mut set);
        let null = std::ptr::null_mut();
        assert_eq!(libc::select(ends.server + 1, &raw mut set, null, null, &raw mut timeout), 1);
        assert!(libc::FD_ISSET(ends.server, &raw const set));
    }
    assert_eq!(read_all(ends.server), Ok(5));
    close(ends);
}
