//! Connections of TCP in user space in epoll sets. The library's sets must report what the kernel's report for the
//! kernel's connections, and unsupported uses are left to the kernel. In two network namespaces, which needs root.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod support;

use libc::{c_int, epoll_event};
use redoubt_shm_control::net::Setting;
use redoubt_test_support::wait::{GUARD, until, until_in_call};
use redoubt_test_support::{NetworkPair, Side, skip};
use redoubt_user_tcp as user_tcp;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::time::{Duration, Instant};
use support::{entry, kernel, library};

const ADDRESS: &str = "10.79.0.1";
const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const ENDED: u32 = libc::EPOLLRDHUP as u32;
const HANG_UP: u32 = libc::EPOLLHUP as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
const ON_CHANGE: u32 = libc::EPOLLET as u32;
const PATIENCE_MS: c_int = 20_000;
/// Timeout of a wait that must not get events, in milliseconds.
const SHORT_MS: c_int = 50;

/// Maker of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Library,
    Kernel,
}

fn new_set() -> RawFd {
    // SAFETY: no pointers.
    let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    assert!(set >= 0);
    set
}

fn control(who: Who, set: RawFd, operation: c_int, fd: RawFd, events: u32, data: u64) -> Result<(), c_int> {
    let mut event = epoll_event { events, u64: data };
    // SAFETY: an event that lives long enough.
    let result = unsafe {
        match who {
            Who::Library => libc::epoll_ctl(set, operation, fd, &raw mut event) as isize,
            Who::Kernel => libc::syscall(libc::SYS_epoll_ctl, set, operation, fd, &raw mut event) as isize,
        }
    };
    support::checked(result).map(drop)
}

fn add(set: RawFd, fd: RawFd, events: u32, data: u64) {
    control(Who::Library, set, libc::EPOLL_CTL_ADD, fd, events, data).unwrap();
}

fn modify(set: RawFd, fd: RawFd, events: u32, data: u64) {
    control(Who::Library, set, libc::EPOLL_CTL_MOD, fd, events, data).unwrap();
}

/// A wait for a set: the data and events.
fn wait_by(who: Who, set: RawFd, most: usize, timeout_ms: c_int) -> Vec<(u64, u32)> {
    let mut events = vec![epoll_event { events: 0, u64: 0 }; most];
    // SAFETY: room for so many.
    let result = unsafe {
        match who {
            Who::Library => libc::epoll_wait(set, events.as_mut_ptr(), most as c_int, timeout_ms) as isize,
            Who::Kernel => libc::syscall(
                libc::SYS_epoll_pwait,
                set,
                events.as_mut_ptr(),
                most as c_int,
                timeout_ms,
                std::ptr::null::<libc::sigset_t>(),
                8,
            ) as isize,
        }
    };
    let count = support::checked(result).unwrap();
    events.into_iter().take(count).map(|event| (event.u64, event.events)).collect()
}

fn wait(set: RawFd, timeout_ms: c_int) -> Vec<(u64, u32)> {
    wait_by(Who::Library, set, 64, timeout_ms)
}

/// A listener of the library's and one of the kernel's.
struct Lab<'pair> {
    pair: &'pair NetworkPair,
    listener: TcpListener,
    kernels: TcpListener,
}

/// A connection: the server's end, and the client's.
struct Ends {
    server: RawFd,
    client: TcpStream,
}

impl Lab<'_> {
    fn connect_to(&self, listener: &TcpListener, who: Who) -> Ends {
        let to = listener.local_addr().unwrap();
        let client = self.pair.within(Side::Client, || TcpStream::connect(to).unwrap());
        client.set_nodelay(true).unwrap();
        let server = match who {
            // SAFETY: no address is asked for.
            Who::Library => unsafe {
                libc::accept4(
                    listener.as_raw_fd(),
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    libc::SOCK_CLOEXEC,
                )
            },
            Who::Kernel => kernel::accept(listener.as_raw_fd()),
        };
        assert_eq!(user_tcp::get(server).is_some(), who == Who::Library);
        Ends { server, client }
    }

    fn connect(&self) -> Ends {
        self.connect_to(&self.listener, Who::Library)
    }

    /// A connection that is in a set.
    fn member(&self, set: RawFd, events: u32, data: u64) -> Ends {
        let ends = self.connect();
        add(set, ends.server, events, data);
        assert!(ends.is_followed());
        ends
    }
}

impl Ends {
    /// The library handles it in its set.
    fn is_followed(&self) -> bool {
        user_tcp::get(self.server).unwrap().set().is_some()
    }

    fn send(&self, bytes: &[u8]) {
        (&self.client).write_all(bytes).unwrap();
    }

    /// Reads all available bytes.
    fn read(&self) -> Result<usize, c_int> {
        library::recv(self.server, &mut [0; 4096], libc::MSG_DONTWAIT)
    }

    fn close(self) {
        support::close_server(self.server);
    }
}

fn close_set(set: RawFd) {
    support::close_server(set);
}

/// A pair of connections with the same calls, one by the library and one by the kernel.
struct Twins {
    of_library: Ends,
    of_kernel: Ends,
    sent: c_int,
    has_ended: bool,
}

type Scenario = fn(&Lab);

/// The same requests, calls and clients for the library's sets and the kernel's: the reports must be the same.
fn the_same_is_told(lab: &Lab, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (set, kernels_set) = (new_set(), new_set());
    let mut all: Vec<Twins> = Vec::new();
    for _ in 0..4 {
        let of_library = lab.connect();
        let of_kernel = lab.connect_to(&lab.kernels, Who::Kernel);
        all.push(Twins { of_library, of_kernel, sent: 0, has_ended: false });
    }
    let mut told = 0;
    for step in 0..400u64 {
        let at = rng.usize(..all.len());
        let twins = &mut all[at];
        let more =
            [0, OUT, ENDED, ON_CHANGE, ONCE, ON_CHANGE | ONCE | ENDED, ON_CHANGE | OUT][rng.usize(..7)];
        match rng.u32(..12) {
            0..3 => {
                let operation =
                    [libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_MOD, libc::EPOLL_CTL_DEL][rng.usize(..3)];
                let [result, kernels] = [
                    (Who::Library, set, twins.of_library.server),
                    (Who::Kernel, kernels_set, twins.of_kernel.server),
                ]
                .map(|(who, set, fd)| control(who, set, operation, fd, IN | more, step));
                assert_eq!(result, kernels, "seed {seed}, step {step}");
            }
            3..6 if !twins.has_ended => {
                let bytes = vec![1; rng.usize(1..200)];
                twins.sent += bytes.len() as c_int;
                twins.of_library.send(&bytes);
                twins.of_kernel.send(&bytes);
                wait_until_there(twins);
            }
            6..8 => {
                let mut buffer = vec![0; rng.usize(1..300)];
                let result = library::recv(twins.of_library.server, &mut buffer, libc::MSG_DONTWAIT);
                let kernels = kernel::recv(twins.of_kernel.server, &mut buffer, libc::MSG_DONTWAIT);
                assert_eq!(result, kernels, "seed {seed}, step {step}");
                twins.sent -= result.unwrap_or(0) as c_int;
            }
            8 if !twins.has_ended && rng.u32(..10) == 0 => end_client(twins),
            8 => {
                library::send(twins.of_library.server, &[2; 100], 0).unwrap();
                kernel::send(twins.of_kernel.server, &[2; 100], 0).unwrap();
            }
            _ => {
                let events = |who, set| wait_by(who, set, 64, 0).into_iter().collect::<BTreeMap<_, _>>();
                let result = events(Who::Library, set);
                assert_eq!(result, events(Who::Kernel, kernels_set), "seed {seed}, step {step}");
                told += result.len();
            }
        }
    }
    assert!(told > 20, "seed {seed}: {told}");
    for twins in all {
        assert!(user_tcp::get(twins.of_library.server).is_some());
        twins.of_library.close();
        twins.of_kernel.close();
    }
    assert_eq!(wait(set, 0), []);
    close_set(set);
    close_set(kernels_set);
}

/// Both clients send no more, and both servers have received the end.
fn end_client(twins: &mut Twins) {
    twins.has_ended = true;
    for ends in [&twins.of_library, &twins.of_kernel] {
        ends.client.shutdown(Shutdown::Write).unwrap();
    }
    let entries = [twins.of_library.server, twins.of_kernel.server].map(|fd| [entry(fd, libc::POLLRDHUP)]);
    let [mut of_library, mut of_kernel] = entries;
    assert_eq!(library::poll(&mut of_library, PATIENCE_MS), Ok(1));
    assert_eq!(kernel::poll(&mut of_kernel, PATIENCE_MS), Ok(1));
}

fn wait_until_there(twins: &Twins) {
    until("all that was sent", || {
        library::unread(twins.of_library.server) == twins.sent
            && kernel::unread(twins.of_kernel.server) == twins.sent
    });
}

/// Returns when a thread waits in the kernel for a set.
fn wait_for_waiter(set: RawFd) {
    until("a thread that waits", || user_tcp::sets::get(set).unwrap().has_waiters());
}

/// Runs a function while a thread waits for a set, and returns the events of that thread.
fn while_waiting(set: RawFd, does: impl FnOnce()) -> Vec<(u64, u32)> {
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| wait(set, PATIENCE_MS));
        wait_for_waiter(set);
        does();
        waiter.join().unwrap()
    })
}

fn whoever_waits_is_woken(lab: &Lab) {
    let set = new_set();
    let ends = lab.member(set, IN | ON_CHANGE | ONCE | ENDED, 1);
    assert_eq!(while_waiting(set, || ends.send(b"abc")), [(1, IN)]);
    // Bytes that arrive before the events are requested again are not reported before that.
    ends.send(b"abc");
    assert_eq!(wait(set, SHORT_MS), []);
    assert_eq!(while_waiting(set, || modify(set, ends.server, IN | ON_CHANGE | ONCE, 2)), [(2, IN)]);
    // Another thread of the server shuts the connection down, as KILL does.
    assert_eq!(ends.read(), Ok(6));
    modify(set, ends.server, IN | ON_CHANGE | ONCE | ENDED, 3);
    let shut = || {
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::shutdown(ends.server, libc::SHUT_RDWR) }, 0);
    };
    assert_eq!(while_waiting(set, shut), [(3, IN | ENDED | HANG_UP)]);
    assert_eq!(ends.read(), Ok(0));
    ends.close();
    // Bytes that arrive while no thread waits, and the client's end.
    let ends = lab.member(set, IN | ENDED, 4);
    ends.send(b"abc");
    until("the bytes of the client", || library::unread(ends.server) >= 3);
    assert_eq!((wait(set, 0), wait(set, 0)), (vec![(4, IN)], vec![(4, IN)]));
    assert_eq!((ends.read(), wait(set, SHORT_MS)), (Ok(3), vec![]));
    assert_eq!(while_waiting(set, || ends.client.shutdown(Shutdown::Both).unwrap()), [(4, IN | ENDED)]);
    ends.close();
    // A member that comes with bytes.
    let ends = lab.connect();
    ends.send(b"abc");
    until("the bytes of the client", || library::unread(ends.server) >= 3);
    assert_eq!(while_waiting(set, || add(set, ends.server, IN, 5)), [(5, IN)]);
    // A removed member is not reported, and is reported after it is added again.
    control(Who::Library, set, libc::EPOLL_CTL_DEL, ends.server, 0, 0).unwrap();
    assert!(!ends.is_followed());
    assert_eq!(wait(set, SHORT_MS), []);
    add(set, ends.server, IN, 6);
    assert_eq!(wait(set, 0), [(6, IN)]);
    ends.close();
    close_set(set);
}

/// The kernel's waits for a set.
const WAITS: [i64; 2] = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait];

/// Runs a function while a thread waits that began when the set had no member, and returns the events of that thread.
fn while_a_stranger_waits(set: RawFd, timeout_ms: c_int, does: impl FnOnce(libc::pid_t)) -> Vec<(u64, u32)> {
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let waiter = scope.spawn(move || {
            // SAFETY: no pointers.
            tell.send(unsafe { libc::gettid() }).unwrap();
            wait(set, timeout_ms)
        });
        let thread = told.recv().unwrap();
        until_in_call(thread, &WAITS);
        does(thread);
        waiter.join().unwrap()
    })
}

fn who_waits_before_there_is_a_member_is_told(lab: &Lab) {
    let set = new_set();
    let ends = lab.connect();
    let told = while_a_stranger_waits(set, PATIENCE_MS, |_| {
        add(set, ends.server, IN | ONCE, 1);
        // Frames without an event to report.
        library::send(ends.server, &[3; 100], 0).unwrap();
        (&ends.client).read_exact(&mut [0; 100]).unwrap();
        ends.send(b"abc");
    });
    assert_eq!(told, [(1, IN)]);
    ends.close();
    close_set(set);
    // A member that comes with bytes: nothing else will come.
    let set = new_set();
    let ends = lab.connect();
    ends.send(b"abc");
    until("the bytes of the client", || library::unread(ends.server) >= 3);
    assert_eq!(while_a_stranger_waits(set, PATIENCE_MS, |_| add(set, ends.server, IN | ONCE, 2)), [(2, IN)]);
    ends.close();
    close_set(set);
}

fn each_of_several_threads_is_told_something(lab: &Lab) {
    let set = new_set();
    let all: Vec<Ends> = (0..4).map(|data| lab.member(set, IN | ONCE, data)).collect();
    for _ in 0..50 {
        let mut told: Vec<u64> = std::thread::scope(|scope| {
            let waiters: Vec<_> =
                (0..4).map(|_| scope.spawn(|| wait_by(Who::Library, set, 1, PATIENCE_MS))).collect();
            all.iter().for_each(|ends| ends.send(b"a"));
            waiters.into_iter().map(|waiter| waiter.join().unwrap()[0].0).collect()
        });
        told.sort_unstable();
        assert_eq!(told, [0, 1, 2, 3]);
        for (data, ends) in (0..).zip(&all) {
            assert_eq!(ends.read(), Ok(1));
            modify(set, ends.server, IN | ONCE, data);
        }
    }
    all.into_iter().for_each(Ends::close);
    close_set(set);
}

fn times_are_kept(lab: &Lab) {
    let set = new_set();
    let ends = lab.member(set, IN, 1);
    // Acknowledgements wake the thread, but are not events to report. They go on until it ends: if each of them restarted
    // its timeout, it would never end.
    let start = Instant::now();
    std::thread::scope(|scope| {
        // On a busy machine its time may be over before this thread runs again.
        let waiter = scope.spawn(|| (wait(set, 300), start.elapsed()));
        let mut bytes = [0; 100];
        while !waiter.is_finished() {
            assert!(start.elapsed() < GUARD, "acknowledgements extend the wait");
            library::send(ends.server, &[3; 100], 0).unwrap();
            (&ends.client).read_exact(&mut bytes).unwrap();
        }
        let (told, took) = waiter.join().unwrap();
        assert_eq!(told, []);
        assert!(took >= Duration::from_millis(300), "{took:?}");
    });
    assert_eq!(wait(set, 0), []);
    ends.close();
    close_set(set);
    // A thread that began to wait before the first member waits for the rest of the time only: after the member has
    // woken it, its next wait in the kernel has a shorter timeout.
    let set = new_set();
    let ends = lab.connect();
    // Longer than the guard: a lost wake-up is a failure of the test.
    const ASKED_MS: c_int = 240_000;
    let (began, asked) = (Instant::now(), Duration::from_millis(ASKED_MS as u64));
    let told = while_a_stranger_waits(set, ASKED_MS, |thread| {
        let timeout = |arguments: [u64; 6]| Duration::from_millis(arguments[3]);
        assert_eq!(timeout(until_in_call(thread, &WAITS)), asked);
        // So much of its time passes at least.
        let (since, passes) = (Instant::now(), Duration::from_millis(500));
        until("a part of the time", || since.elapsed() >= passes);
        add(set, ends.server, IN, 1);
        // Any acknowledgement may wake the thread, or be taken by the interface's thread.
        until("a wait of the thread for the rest", || {
            library::send(ends.server, &[3; 100], 0).unwrap();
            (&ends.client).read_exact(&mut [0; 100]).unwrap();
            timeout(until_in_call(thread, &WAITS)) != asked
        });
        let rest = timeout(until_in_call(thread, &WAITS));
        assert!(rest <= asked - passes && rest >= asked.saturating_sub(began.elapsed()), "{rest:?}");
        ends.send(b"abc");
    });
    assert_eq!(told, [(1, IN)]);
    ends.close();
    close_set(set);
    // Without events in the rest of the time the call returns none, and not earlier.
    let set = new_set();
    let ends = lab.connect();
    let start = Instant::now();
    let told = while_a_stranger_waits(set, 3000, |_| {
        add(set, ends.server, IN, 1);
        library::send(ends.server, &[3; 100], 0).unwrap();
    });
    assert_eq!(told, []);
    assert!(start.elapsed() >= Duration::from_secs(3), "{:?}", start.elapsed());
    ends.close();
    close_set(set);
}

fn others_in_the_set_have_their_turn(lab: &Lab) {
    let set = new_set();
    // SAFETY: no pointers; a descriptor of the test.
    let other = unsafe { TcpStream::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
    control(Who::Library, set, libc::EPOLL_CTL_ADD, other.as_raw_fd(), IN, 9).unwrap();
    let ends = lab.member(set, IN, 1);
    ends.send(b"abc");
    assert_eq!(wait(set, PATIENCE_MS), [(1, IN)]);
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight bytes.
    assert_eq!(unsafe { libc::write(other.as_raw_fd(), one.as_ptr().cast(), 8) }, 8);
    // The connection is ready all the time.
    let told: Vec<_> = (0..40).flat_map(|_| wait(set, 0)).collect();
    assert!(told.contains(&(9, IN)) && told.iter().filter(|(data, _)| *data == 1).count() == 40);
    ends.close();
    assert_eq!(wait(set, 0), [(9, IN)]);
    close_set(set);
}

/// More than any buffer in both directions, by threads that wait for the connection alone, while others wait for its
/// set.
fn who_waits_for_a_member_alone_is_served(lab: &Lab) {
    const LEN: usize = 8 << 20;
    let set = new_set();
    let ends = lab.member(set, IN | ONCE, 1);
    let other = lab.member(set, IN, 2);
    for _ in 0..2 {
        ends.send(b"a");
        assert_eq!(wait(set, PATIENCE_MS), [(1, IN)]);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| wait(set, PATIENCE_MS));
            scope.spawn(|| {
                let mut client = &ends.client;
                let mut bytes = vec![0; LEN];
                client.read_exact(&mut bytes).unwrap();
                assert!(bytes.iter().all(|byte| *byte == 5));
                client.write_all(&bytes).unwrap();
            });
            assert_eq!(library::send(ends.server, &vec![5; LEN], 0), Ok(LEN));
            let mut bytes = vec![0; LEN + 1];
            assert_eq!(library::recv(ends.server, &mut bytes, libc::MSG_WAITALL), Ok(LEN + 1));
            assert!(bytes[1..].iter().all(|byte| *byte == 5));
            other.send(b"b");
            assert_eq!(waiter.join().unwrap(), [(2, IN)]);
        });
        assert_eq!(other.read(), Ok(1));
        modify(set, ends.server, IN | ONCE, 1);
        assert!(ends.is_followed() && other.is_followed());
    }
    ends.close();
    other.close();
    close_set(set);
}

/// Description of a use, and its function, which returns descriptors to close.
type Way = (&'static str, Box<dyn Fn() -> Vec<RawFd>>);

/// Unsupported uses of a set, or of a connection in it.
fn ways_to_leave(set: RawFd, server: RawFd) -> Vec<Way> {
    // SAFETY: a descriptor of the test.
    let dup = |fd| unsafe { libc::dup(fd) };
    // SAFETY: no pointers.
    let dup_above = |fd| unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 50) };
    vec![
        ("copy of the set", Box::new(move || vec![dup(set)])),
        ("copy of the set by fcntl", Box::new(move || vec![dup_above(set)])),
        (
            "wait for the set itself",
            Box::new(move || {
                library::poll(&mut [entry(set, libc::POLLIN)], 0).unwrap();
                vec![]
            }),
        ),
        (
            "wait for the set itself by select",
            Box::new(move || {
                let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
                let null = std::ptr::null_mut();
                // SAFETY: zeros are an empty set, which has room for the descriptor, and all live long enough.
                unsafe {
                    let mut sets: libc::fd_set = std::mem::zeroed();
                    libc::FD_SET(set, &raw mut sets);
                    libc::select(set + 1, &raw mut sets, null, null, &raw mut time);
                }
                vec![]
            }),
        ),
        (
            "set in a set",
            Box::new(move || {
                let outer = new_set();
                add(outer, set, IN, 3);
                vec![outer]
            }),
        ),
        (
            "second set",
            Box::new(move || {
                let second = new_set();
                add(second, server, IN, 3);
                vec![second]
            }),
        ),
        ("copy of the connection", Box::new(move || vec![dup(server)])),
        (
            "wait for the connection and others",
            Box::new(move || {
                library::poll(&mut [entry(server, libc::POLLIN), entry(0, 0)], 0).unwrap();
                vec![]
            }),
        ),
    ]
}

fn what_is_not_followed_is_left_to_the_kernel(lab: &Lab) {
    for asked in [IN, IN | ONCE, IN | ON_CHANGE | ONCE] {
        for way in 0..8 {
            for is_ready in [false, true] {
                let set = new_set();
                let ends = lab.member(set, asked, 1);
                if is_ready {
                    ends.send(b"abc");
                    until("three bytes at the server", || library::unread(ends.server) >= 3);
                }
                let (name, leave) = ways_to_leave(set, ends.server).swap_remove(way);
                let to_close = leave();
                assert!(!ends.is_followed(), "{name}");
                for _ in 0..3 {
                    if !is_ready {
                        assert_eq!(wait(set, 0), [], "{name}");
                        ends.send(b"abc");
                    }
                    assert_eq!(wait(set, PATIENCE_MS), [(1, IN)], "{name}, {asked:#x}");
                    assert_eq!(wait(set, 0).len(), usize::from(asked & ONCE == 0), "{name}, {asked:#x}");
                    assert_eq!(ends.read(), Ok(3));
                    modify(set, ends.server, asked, 1);
                    if is_ready {
                        break;
                    }
                }
                to_close.into_iter().for_each(close_set);
                ends.close();
                close_set(set);
            }
        }
    }
}

fn a_child_is_told_what_the_kernel_knows(lab: &Lab) {
    let set = new_set();
    let ends = lab.member(set, IN, 1);
    ends.send(b"abc");
    // SAFETY: the child makes system calls only, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut event = epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event; the child ends.
        unsafe {
            let result = libc::epoll_wait(set, &raw mut event, 1, SHORT_MS);
            libc::_exit(result);
        }
    }
    let mut status = -1;
    // SAFETY: a place for the status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child is told nothing");
    assert_eq!(wait(set, PATIENCE_MS), [(1, IN)]);
    ends.close();
    close_set(set);
}

fn a_set_may_be_closed(lab: &Lab) {
    for _ in 0..20 {
        let set = new_set();
        let all: Vec<Ends> = (0..3).map(|data| lab.member(set, IN, data)).collect();
        all[0].send(b"a");
        assert_eq!(wait(set, PATIENCE_MS), [(0, IN)]);
        close_set(set);
        assert!(all.iter().all(|ends| !ends.is_followed()));
        // The connections can join another set.
        let set = new_set();
        add(set, all[0].server, IN, 7);
        assert_eq!(wait(set, 0), [(7, IN)]);
        all.into_iter().for_each(Ends::close);
        assert_eq!(wait(set, 0), []);
        close_set(set);
    }
}

#[test]
fn sets_of_epoll_do_what_the_kernels_do() {
    let Some(pair) = NetworkPair::create() else {
        return skip("sets_of_epoll_do_what_the_kernels_do", "network namespaces need root");
    };
    pair.within(Side::Server, || {
        redoubt_net::process::start(Setting::parse("collapser=off,user-tcp=v0").unwrap());
        let listener = TcpListener::bind((ADDRESS, 7001)).unwrap();
        let kernels = kernels_listener(7002);
        let lab = Lab { pair: &pair, listener, kernels };
        let scenarios: [(&str, Scenario); 9] = [
            ("before", who_waits_before_there_is_a_member_is_told),
            ("woken", whoever_waits_is_woken),
            ("several threads", each_of_several_threads_is_told_something),
            ("times", times_are_kept),
            ("others", others_in_the_set_have_their_turn),
            ("alone", who_waits_for_a_member_alone_is_served),
            ("left", what_is_not_followed_is_left_to_the_kernel),
            ("child", a_child_is_told_what_the_kernel_knows),
            ("closed", a_set_may_be_closed),
        ];
        for (name, scenario) in scenarios {
            println!("{name}");
            scenario(&lab);
        }
        let seed = redoubt_test_support::setting("REDOUBT_SEED", 1);
        (seed..seed + 40).for_each(|seed| the_same_is_told(&lab, seed));
    });
}

/// A listener without the library's knowledge.
fn kernels_listener(port: u16) -> TcpListener {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([10, 79, 0, 1]) },
        sin_zero: [0; 8],
    };
    // SAFETY: an address of this length; a descriptor of the test.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        let len = size_of::<libc::sockaddr_in>() as u32;
        assert_eq!(libc::bind(fd, (&raw const address).cast(), len), 0);
        assert_eq!(libc::syscall(libc::SYS_listen, fd, 100), 0);
        TcpListener::from_raw_fd(fd)
    }
}
