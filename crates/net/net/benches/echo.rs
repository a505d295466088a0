//! A server that waits for its connections with epoll, in one thread: 100 bytes come, 1 KiB goes. The kinds are:
//!
//! * the kernel's TCP with nothing on the interface;
//! * the kernel's TCP with the XDP program on the interface;
//! * TCP in user space;
//! * TCP in user space with an unsupported epoll set, whose connections the interface's thread serves.
//!
//! Clients are in another network namespace, with a veth pair between, and use the kernel's TCP. Needs root.
//!
//! Slices of all kinds take turns, so that other work on the machine affects all kinds. For each kind the output has
//! the slice that is quicker than nine tenths of the kind, which excludes disturbed slices, and its ratio to that of
//! the first kind. It also has the median of the ratios within one round, with the quartiles. The client has processor
//! 0, the server 1.
//!
//!     cargo bench -p redoubt-net --bench echo [-- CONNECTIONS...]

#![allow(clippy::unwrap_used, reason = "a failed call ends the bench")]

use redoubt_shm_control::net::Setting;
use redoubt_test_support::{NetworkPair, Side};
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const REQUEST: usize = 100;
const ANSWER: usize = 1024;
const SLICE: Duration = Duration::from_millis(20);
const ROUNDS: usize = 250;
const CONNECTIONS: [usize; 3] = [1, 8, 64];
/// Says which part a process of the bench has.
const ROLE: &str = "REDOUBT_ECHO_ROLE";
const ADDRESS: &str = "10.79.0.1";

fn pin(processors: &[usize]) {
    // SAFETY: a set that is made empty first.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        processors.iter().for_each(|processor| libc::CPU_SET(*processor, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

fn new_set() -> RawFd {
    // SAFETY: no pointers.
    unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }
}

fn add(set: RawFd, fd: RawFd) {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: fd as u64 };
    // SAFETY: an event that lives long enough.
    assert_eq!(unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &raw mut event) }, 0);
}

/// The descriptors that are ready.
fn wait(set: RawFd, events: &mut [libc::epoll_event; 64]) -> impl Iterator<Item = RawFd> + use<'_> {
    // SAFETY: room for this many events.
    let count = unsafe { libc::epoll_wait(set, events.as_mut_ptr(), events.len() as i32, 10_000) };
    events.iter().take(usize::try_from(count).unwrap_or(0)).map(|event| event.u64 as RawFd)
}

fn receive(fd: RawFd, buffer: &mut [u8]) -> isize {
    // SAFETY: a buffer of this length.
    unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) }
}

fn send(fd: RawFd, bytes: &[u8]) {
    // SAFETY: a buffer of this length.
    let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    assert_eq!(sent, bytes.len() as isize);
}

/// The server, until its input ends.
fn serve(role: &str) {
    let (kind, port) = role.split_once(' ').unwrap();
    // The threads of the library go where there is room.
    pin(&[0, 1]);
    if kind != "kernel" {
        redoubt_net::process::start(Setting::parse("collapser=off,user-tcp=v0").unwrap());
    }
    let listener = TcpListener::bind((ADDRESS, port.parse().unwrap())).unwrap();
    println!("listening");
    std::thread::spawn(|| {
        let mut input = std::io::stdin();
        while input.read(&mut [0; 64]).is_ok_and(|len| len > 0) {}
        std::process::exit(0);
    });
    let set = new_set();
    if kind == "thread" {
        // A copy, which the library does not follow.
        // SAFETY: the server's own descriptor.
        unsafe { libc::dup(set) };
    }
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_nonblocking(true).unwrap();
            add(set, stream.into_raw_fd());
        }
    });
    pin(&[1]);
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
    let mut buffer = [0; 4096];
    let answer = [0xa5; ANSWER];
    loop {
        for fd in wait(set, &mut events) {
            match receive(fd, &mut buffer) {
                // SAFETY: the connection's descriptor, which is closed here alone.
                0 => drop(unsafe { TcpStream::from_raw_fd(fd) }),
                len if len > 0 => {
                    assert_eq!(len as usize, REQUEST);
                    send(fd, &answer);
                }
                _ => {}
            }
        }
    }
}

struct Server {
    child: Child,
    pid: u32,
    set: RawFd,
    connections: Vec<TcpStream>,
}

impl Server {
    fn start(pair: &NetworkPair, kind: &str, port: u16, count: usize) -> Self {
        let mut command: Command = pair.command(Side::Server, std::env::current_exe().unwrap());
        command.env(ROLE, format!("{kind} {port}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "listening\n");
        let connect = || (0..count).map(|_| TcpStream::connect((ADDRESS, port)).unwrap()).collect();
        let connections: Vec<TcpStream> = pair.within(Side::Client, connect);
        let set = new_set();
        for connection in &connections {
            connection.set_nodelay(true).unwrap();
            add(set, connection.as_raw_fd());
        }
        // `ip netns exec` becomes the program.
        Self { pid: child.id(), child, set, connections }
    }

    /// Ticks of the processors that it has had.
    fn processor_ns(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid)).unwrap();
        let of_task = |task: std::fs::DirEntry| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        tasks.filter_map(|task| of_task(task.ok()?)).sum()
    }

    /// Requests of a slice: their number per second, and the server's time for each in nanoseconds.
    fn slice(&self) -> [f64; 2] {
        let request = [0x5a; REQUEST];
        let mut buffer = [0; ANSWER];
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let mut missing = vec![0usize; 1 << 12];
        for connection in &self.connections {
            missing[connection.as_raw_fd() as usize] = ANSWER;
            send(connection.as_raw_fd(), &request);
        }
        let (mut under_way, mut count) = (self.connections.len(), 0u64);
        let (start, before) = (Instant::now(), self.processor_ns());
        while under_way > 0 {
            let is_over = start.elapsed() >= SLICE;
            for fd in wait(self.set, &mut events) {
                let len = receive(fd, &mut buffer);
                assert!(len > 0, "{:?}", std::io::Error::last_os_error());
                let missing = &mut missing[fd as usize];
                *missing -= len as usize;
                if *missing == 0 {
                    count += 1;
                    *missing = ANSWER;
                    if is_over {
                        under_way -= 1;
                    } else {
                        send(fd, &request);
                    }
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        [count as f64 / seconds, (self.processor_ns() - before) as f64 / count as f64]
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
        // SAFETY: the bench's own descriptor.
        unsafe { libc::close(self.set) };
    }
}

/// Lower quartile, median, upper quartile.
fn quartiles(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| all.get(all.len() * quarter / 4).copied().unwrap_or(f64::NAN))
}

fn measure(count: usize, rounds: usize, pairs: &[NetworkPair; 3]) {
    let [plain, with_program, other] = pairs;
    let names = [
        "kernel's TCP, nothing on the interface",
        "kernel's TCP, program of XDP",
        "TCP in user space",
        "TCP in user space by the interface's thread",
    ];
    let servers = [
        Server::start(plain, "kernel", 7001, count),
        Server::start(with_program, "kernel", 7002, count),
        Server::start(with_program, "user", 7003, count),
        Server::start(other, "thread", 7004, count),
    ];
    for server in &servers {
        server.slice();
    }
    let mut results = [const { Vec::new() }; 4];
    for round in 0..rounds {
        for at in 0..servers.len() {
            let at = (at + round) % servers.len();
            results[at].push(servers[at].slice());
        }
    }
    let best = |kind: &[[f64; 2]]| {
        let mut all = kind.to_vec();
        all.sort_by(|one, other| one[0].total_cmp(&other[0]));
        all.get(all.len() * 9 / 10).copied().unwrap_or([f64::NAN; 2])
    };
    let base = best(&results[0]);
    for (name, of_kind) in names.iter().zip(&results) {
        let ratio = |(mine, base): (&[f64; 2], &[f64; 2])| mine[0] / base[0];
        let [low, middle, high] = quartiles(of_kind.iter().zip(&results[0]).map(ratio).collect());
        let [rate, time] = best(of_kind);
        println!(
            "{count} connections, {name}: {rate:.0} a second, {:.2}; server {time:.0} ns each; in a round {middle:.2} \
             ({low:.2} to {high:.2})",
            rate / base[0]
        );
    }
}

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        return serve(&role);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` only checks that it runs.
    let rounds = if arguments.iter().any(|argument| argument == "--bench") { ROUNDS } else { 2 };
    let given: Vec<usize> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let counts = if given.is_empty() { CONNECTIONS.to_vec() } else { given };
    let pairs: Vec<NetworkPair> = (0..3).map_while(|_| NetworkPair::create()).collect();
    let Ok(pairs) = <[NetworkPair; 3]>::try_from(pairs) else {
        return redoubt_test_support::skip("echo", "network namespaces need root");
    };
    pin(&[0]);
    for count in counts {
        measure(count, rounds, &pairs);
    }
}
