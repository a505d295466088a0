//! The engine against the kernel's TCP, over a network device of the test's own: in the kernel's words, every peer there
//! is. Needs root.
//!
//! A thread runs the engine with the programs of `support::server`; clients are ordinary sockets. Both directions may
//! lose, double and delay packets, by a seed.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

mod support;
#[path = "support/tun.rs"]
mod tun;

use redoubt_tcp::{Checksum, Config, Counters, Engine, Memory, Micros};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use support::server::{self, ECHO, FAREWELL, RESET, SINK, SOURCE, Server};

/// Packet faults, in thousandths.
#[derive(Clone, Copy, Default)]
struct Trouble {
    lost: u32,
    doubled: u32,
    /// Delayed by up to 5 ms.
    late: u32,
}

struct Driver {
    engine: Engine,
    server: Server,
    device: File,
    trouble: Trouble,
    rng: fastrand::Rng,
    begin: Instant,
    /// Held back: until when, whether for the engine.
    held: VecDeque<(Micros, bool, Vec<u8>)>,
}

impl Driver {
    fn now(&self) -> Micros {
        Micros(1_000_000 + self.begin.elapsed().as_micros() as u64)
    }

    /// Hands a packet on, as the link does.
    fn pass(&mut self, now: Micros, to_engine: bool, packet: &[u8]) {
        let thousandth = self.rng.u32(..1000);
        let Trouble { lost, doubled, late } = self.trouble;
        if thousandth < lost {
            return;
        }
        if thousandth < lost + late {
            let until = now.after(self.rng.u64(..5000));
            return self.held.push_back((until, to_engine, packet.to_vec()));
        }
        for _ in 0..1 + u32::from(thousandth >= 1000 - doubled) {
            self.deliver(now, to_engine, packet);
        }
    }

    fn deliver(&mut self, now: Micros, to_engine: bool, packet: &[u8]) {
        if to_engine {
            self.engine.receive(now, packet, Checksum::Verify);
        } else {
            // A full queue of the device is a loss.
            let _ = self.device.write(packet);
        }
    }

    fn turn(&mut self) {
        let mut packet = [0; 2048];
        for _ in 0..64 {
            match self.device.read(&mut packet) {
                Ok(len) => self.pass(self.now(), true, &packet[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let now = self.now();
        for _ in 0..self.held.len() {
            let (until, to_engine, packet) = self.held.pop_front().unwrap();
            if until <= now {
                self.deliver(now, to_engine, &packet);
            } else {
                self.held.push_back((until, to_engine, packet));
            }
        }
        self.engine.advance(now);
        self.server.step(&mut self.engine, now);
        for _ in 0..64 {
            let Some(transmit) = self.engine.transmit(now, &mut packet) else {
                let timer = self.engine.next_timer().map_or(5000, |at| at.since(self.now()));
                let millis = if self.held.is_empty() { 5000 } else { 500 };
                return tun::wait(&self.device, Duration::from_micros(timer.min(millis)));
            };
            self.pass(now, false, &packet[..transmit.len_bytes]);
        }
    }
}

/// A running engine. Stopping it returns its counters and memory.
struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Counters, Memory, Counters)>,
}

impl Running {
    fn start(device: File, config: Config, trouble: Trouble, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let mut engine = Engine::new(config).unwrap();
            let server = Server::new(&mut engine, tun::SERVER.parse().unwrap(), 1024);
            let rng = fastrand::Rng::with_seed(seed);
            let held = VecDeque::new();
            let mut driver = Driver { engine, server, device, trouble, rng, begin: Instant::now(), held };
            while !stopped.load(Ordering::Relaxed) || driver.server.len() > 0 {
                driver.turn();
            }
            driver.engine.require_sound();
            let counters = driver.engine.counters();
            // Closed connections end in their own time.
            let end = Instant::now() + Duration::from_secs(20);
            while driver.engine.memory().connections > 0 && Instant::now() < end {
                driver.turn();
            }
            (counters, driver.engine.memory(), driver.engine.counters())
        });
        Self { stop, thread }
    }

    fn stop(self) -> (Counters, Memory) {
        self.stop.store(true, Ordering::Relaxed);
        let (counters, memory, _) = self.thread.join().unwrap();
        println!("{counters:?}\n{memory:?}");
        (counters, memory)
    }
}

fn connect(port: u16) -> TcpStream {
    let address = SocketAddr::new(tun::SERVER.parse().unwrap(), port);
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(20)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Runs a test in a thread of its own, which is in a namespace of its own.
fn in_namespace(body: impl FnOnce(File) + Send + 'static) {
    let thread = thread::spawn(|| match tun::enter() {
        Ok(device) => body(device),
        Err(error) => redoubt_test_support::skip("TCP with the kernel as the peer", error),
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn download(len: u64) -> f64 {
    let mut stream = connect(SOURCE);
    let begin = Instant::now();
    stream.write_all(&len.to_be_bytes()).unwrap();
    let (mut buffer, mut expected, mut at) = (vec![0; 65_536], vec![0; 65_536], 0);
    loop {
        let count = stream.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        server::fill(at, &mut expected[..count]);
        assert!(buffer[..count] == expected[..count], "wrong bytes after {at}");
        at += count as u64;
    }
    assert_eq!(at, len);
    len as f64 / 1e6 / begin.elapsed().as_secs_f64()
}

fn upload(len: u64) -> f64 {
    let mut stream = connect(SINK);
    let begin = Instant::now();
    let mut part = vec![0; 65_536];
    let mut at = 0;
    while at < len {
        let count = (len - at).min(part.len() as u64) as usize;
        server::fill(at, &mut part[..count]);
        stream.write_all(&part[..count]).unwrap();
        at += count as u64;
    }
    // Half of it is closed; the answer still comes.
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [&len.to_be_bytes()[..], &[1]].concat());
    len as f64 / 1e6 / begin.elapsed().as_secs_f64()
}

fn echo(stream: &mut TcpStream, content: &[u8]) {
    stream.write_all(content).unwrap();
    let mut answer = vec![0; content.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, content);
}

fn transfer(trouble: Trouble, len: u64, change: fn(&mut Config)) -> (f64, f64, Counters) {
    let (tell, told) = std::sync::mpsc::channel();
    in_namespace(move |device| {
        let mut config = Config::new([3; 16]);
        change(&mut config);
        let running = Running::start(device, config, trouble, 1);
        let rates = (upload(len), download(len));
        let (counters, memory) = running.stop();
        assert_eq!((memory.connections, memory.data_len_bytes), (0, 0));
        tell.send((rates.0, rates.1, counters)).unwrap();
    });
    // Nothing where the test was left out.
    let (up, down, counters) = told.recv().unwrap_or_default();
    println!("{len} bytes: {up:.1} MB/s in, {down:.1} MB/s out");
    (up, down, counters)
}

const TROUBLE: Trouble = Trouble { lost: 10, doubled: 10, late: 20 };

#[test]
fn fifty_megabytes_arrive_unchanged_each_way() {
    transfer(Trouble::default(), 50 << 20, |_| {});
}

#[test]
fn a_bad_link_changes_nothing() {
    let (up, _, counters) = transfer(TROUBLE, 5 << 20, |_| {});
    assert!(up == 0.0 || counters.retransmitted > 0 && counters.fast_recoveries > 0);
}

#[test]
fn bad_link_without_options_changes_nothing() {
    transfer(TROUBLE, 1 << 20, |config| {
        (config.has_sack, config.has_timestamps, config.has_window_scaling) = (false, false, false);
    });
}

#[test]
fn handshakes_by_cookies_alone() {
    let (up, _, counters) = transfer(TROUBLE, 1 << 20, |config| config.max_half_open = 0);
    assert!(up == 0.0 || counters.cookies_accepted == counters.opened && counters.opened == 2);
}

#[test]
fn small_statements_go_back_and_forth() {
    in_namespace(|device| {
        let running = Running::start(device, Config::new([3; 16]), Trouble::default(), 1);
        let mut stream = connect(ECHO);
        let begin = Instant::now();
        for round in 0..2000u32 {
            echo(&mut stream, &round.to_be_bytes().repeat(1 + round as usize % 500));
        }
        println!("{:?} a round", begin.elapsed() / 2000);
        drop(stream);
        let (counters, _) = running.stop();
        // Answers carry the acknowledgements: hardly more segments than data.
        assert!(counters.segments_out < 2000 * 3, "{}", counters.segments_out);
        assert_eq!(counters.retransmission_timeouts, 0);
    });
}

#[test]
fn a_reset_is_one_in_both_directions() {
    in_namespace(|device| {
        let running = Running::start(device, Config::new([3; 16]), Trouble::default(), 1);
        let mut stream = connect(RESET);
        stream.write_all(b"x").unwrap();
        let error = stream.read(&mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);

        // A close with unread data resets the other side.
        let mut stream = connect(ECHO);
        echo(&mut stream, b"first");
        stream.write_all(&[7; 1000]).unwrap();
        let mut one = [0];
        stream.read_exact(&mut one).unwrap();
        drop(stream);
        let (counters, memory) = running.stop();
        assert_eq!((counters.reset_by_peer, memory.connections), (1, 0));
    });
}

#[test]
fn the_server_may_end_first() {
    in_namespace(|device| {
        let running = Running::start(device, Config::new([3; 16]), Trouble::default(), 1);
        let mut stream = connect(FAREWELL);
        assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
        stream.write_all(&[1; 100_000]).unwrap();
        drop(stream);
        let (_, memory) = running.stop();
        assert_eq!((memory.connections, memory.time_wait), (0, 1));
    });
}

#[test]
fn many_connections_at_once() {
    in_namespace(|device| {
        let running = Running::start(device, Config::new([3; 16]), Trouble::default(), 1);
        let mut streams: Vec<_> = (0..400).map(|_| connect(ECHO)).collect();
        for round in 0..5u8 {
            for (index, stream) in streams.iter_mut().enumerate() {
                echo(stream, &[round; 300][..1 + index % 300]);
            }
        }
        drop(streams);
        let (counters, memory) = running.stop();
        assert_eq!((counters.opened, memory.connections), (400, 0));
    });
}
