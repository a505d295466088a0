//! A TCP proxy between a server and its node that treats bytes as a bad network does, by seed.
//!
//! It handles bytes only, so it works with any protocol, encrypted or not. Each direction of each connection has its
//! own random numbers, from the seed and the number of the connection. From these it draws after how many bytes the
//! next event comes, and which. The same bytes meet the same events, however the reads fall. The two directions and all
//! connections are delayed independently of each other, which reorders their bytes.
//!
//! | event | effect |
//! |---|---|
//! | delay | the bytes come later, by up to [`Weather::delay_ms`] |
//! | stall | nothing moves for up to [`Weather::stall_ms`] |
//! | cut | both sockets are closed, wherever the stream is |
//! | half close | this direction ends, the other continues |
//! | corrupt | one bit of the next byte is turned |
//! | duplicate | up to 64 bytes are sent twice |
//! | omit | up to 64 bytes are left out |
//!
//! A network of TCP does the last three only when a checksum fails to notice; a middle box does them at will.
//!
//! Invariants: with no weather bytes pass unchanged and in order; [`Proxy::calm`] ends stalls at once; dropping closes
//! everything and ends all threads. Lock: the weather's mutex, never held while a socket is used.

use redoubt_locks::IgnorePoison;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use redoubt_workload::error::{Error, Result};

use crate::faults::Counts;

const CHUNK_BYTES: usize = 16 << 10;
const RANGE_BYTES: usize = 64;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// An event in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "see the table of the module")]
pub enum Event {
    Delay,
    Stall,
    Cut,
    HalfClose,
    Corrupt,
    Duplicate,
    Omit,
}

const EVENTS: [(Event, &str); 7] = [
    (Event::Delay, "delay"),
    (Event::Stall, "stall"),
    (Event::Cut, "cut"),
    (Event::HalfClose, "half close"),
    (Event::Corrupt, "corrupt"),
    (Event::Duplicate, "duplicate"),
    (Event::Omit, "omit"),
];

/// How bad the network is.
#[derive(Debug, Clone)]
pub struct Weather {
    /// Events, each as often as it is named here.
    pub events: Vec<Event>,
    /// Bytes between two events of one direction, in the mean.
    pub mean_bytes: u64,
    /// So many bytes of each direction of a connection see nothing worse than a delay.
    pub spared_bytes: u64,
    /// Longest delay.
    pub delay_ms: u64,
    /// Longest stall.
    pub stall_ms: u64,
}

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    seed: u64,
    stop: AtomicBool,
    state: Mutex<ProxyState>,
    changed: Condvar,
    connections: AtomicU64,
    bytes: AtomicU64,
    counts: [AtomicU64; EVENTS.len()],
}

#[derive(Debug, Default)]
struct ProxyState {
    weather: Option<Arc<Weather>>,
    open: Vec<(u64, TcpStream)>,
    pumps: Vec<JoinHandle<()>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().ignore_poison()
    }

    fn weather(&self) -> Option<Arc<Weather>> {
        self.state().weather.clone()
    }

    fn count(&self, event: Event) {
        let index = EVENTS.iter().position(|(known, _)| *known == event);
        if let Some(count) = index.and_then(|index| self.counts.get(index)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits, or returns earlier when the weather changes or the proxy ends.
    fn wait(&self, duration: Duration, weather: &Arc<Weather>) {
        let deadline = Instant::now() + duration;
        let mut state = self.state();
        while !self.stop.load(Ordering::Relaxed)
            && state.weather.as_ref().is_some_and(|now| Arc::ptr_eq(now, weather))
        {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).ignore_poison().0;
        }
    }
}

impl Proxy {
    /// A proxy to `target` on a free local port, in calm weather.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn start(target: SocketAddr, seed: u64) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(Error::io("listen for the proxy"))?;
        let address = listener.local_addr().map_err(Error::io("ask for the proxy's address"))?;
        let shared = Arc::new(Shared {
            target,
            seed,
            stop: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
            connections: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            counts: Default::default(),
        });
        let of_thread = Arc::clone(&shared);
        let accepting = std::thread::spawn(move || accept(&of_thread, &listener));
        Ok(Self { shared, address, accepting: Some(accepting) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, on open connections too.
    pub fn set(&self, weather: Weather) {
        self.shared.state().weather = Some(Arc::new(weather));
        self.shared.changed.notify_all();
    }

    /// From now on nothing happens to the bytes.
    pub fn calm(&self) {
        self.shared.state().weather = None;
        self.shared.changed.notify_all();
    }

    /// Cuts all connections there are.
    pub fn cut_all(&self) {
        let open = std::mem::take(&mut self.shared.state().open);
        for (_, socket) in open {
            self.shared.count(Event::Cut);
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Events by name.
    pub fn counts(&self) -> Counts {
        let counts = EVENTS.iter().zip(&self.shared.counts);
        counts
            .map(|((_, name), count)| ((*name).to_owned(), count.load(Ordering::Relaxed)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// Connections taken, and bytes passed on.
    pub fn traffic(&self) -> (u64, u64) {
        (self.shared.connections.load(Ordering::Relaxed), self.shared.bytes.load(Ordering::Relaxed))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.changed.notify_all();
        // Wakes the thread that accepts; it fails only when that thread is gone.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        let state = std::mem::take(&mut *self.shared.state());
        for (_, socket) in state.open {
            let _ = socket.shutdown(Shutdown::Both);
        }
        for pump in state.pumps {
            let _ = pump.join();
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    for client in listener.incoming() {
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        // Without its node the proxy closes the connection, as a host without a listener would refuse it.
        let Ok(client) = client else { continue };
        let Ok(node) = TcpStream::connect_timeout(&shared.target, CONNECT_TIMEOUT) else { continue };
        let number = shared.connections.fetch_add(1, Ordering::Relaxed);
        if join(shared, number, client, node).is_err() {
            continue;
        }
    }
}

fn join(shared: &Arc<Shared>, number: u64, client: TcpStream, node: TcpStream) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    node.set_nodelay(true)?;
    let there = (client.try_clone()?, node.try_clone()?);
    let kept = [(number, client.try_clone()?), (number, node.try_clone()?)];
    let mut state = shared.state();
    state.open.extend(kept);
    state.pumps.retain(|pump| !pump.is_finished());
    for (direction, (from, to)) in (0u64..).zip([there, (node, client)]) {
        let seed = shared.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (direction << 63);
        let of_thread = Arc::clone(shared);
        state.pumps.push(std::thread::spawn(move || {
            let pump = Pump::new(&of_thread, from, to, seed);
            pump.run();
            of_thread.state().open.retain(|(other, _)| *other != number);
        }));
    }
    Ok(())
}

/// One direction of one connection.
struct Pump<'a> {
    shared: &'a Shared,
    from: TcpStream,
    to: TcpStream,
    random: fastrand::Rng,
    passed_bytes: u64,
    /// Where the next event is, and the weather it was drawn in.
    next: Option<(u64, Arc<Weather>)>,
    /// The last bytes sent, to send again.
    recent: Vec<u8>,
    omit_bytes: usize,
}

/// State of a direction.
#[derive(PartialEq, Eq)]
enum Flow {
    GoesOn,
    Ends,
}

impl<'a> Pump<'a> {
    fn new(shared: &'a Shared, from: TcpStream, to: TcpStream, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { shared, from, to, random, passed_bytes: 0, next: None, recent: Vec::new(), omit_bytes: 0 }
    }

    fn run(mut self) {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let len = match self.from.read(&mut buffer) {
                Ok(0) => {
                    let _ = self.to.shutdown(Shutdown::Write);
                    return;
                }
                Ok(len) => len,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => return self.cut(),
            };
            let mut rest = buffer.get_mut(..len).unwrap_or_default();
            while !rest.is_empty() {
                let until = self.bytes_to_event(rest.len());
                let (now, later) = rest.split_at_mut(until);
                if self.pass(now).is_err() {
                    return self.cut();
                }
                rest = later;
                if !rest.is_empty() && self.event(rest) == Flow::Ends {
                    return;
                }
            }
        }
    }

    /// How many of `len` bytes pass before something happens; draws the next event when the weather is new.
    fn bytes_to_event(&mut self, len: usize) -> usize {
        let Some(weather) = self.shared.weather() else {
            self.next = None;
            return len;
        };
        let at = match &self.next {
            Some((at, drawn_in)) if Arc::ptr_eq(drawn_in, &weather) => *at,
            _ => {
                let at = self.passed_bytes + self.gap_bytes(weather.mean_bytes);
                self.next = Some((at, weather));
                at
            }
        };
        usize::try_from(at.saturating_sub(self.passed_bytes)).map_or(len, |left| left.min(len))
    }

    /// Exponentially distributed: however long a frame is, sooner or later one gets through.
    fn gap_bytes(&mut self, mean_bytes: u64) -> u64 {
        let gap = -(1.0 - self.random.f64()).ln() * mean_bytes as f64;
        // In range: the logarithm of the smallest positive f64 is above -750.
        1 + gap as u64
    }

    fn pass(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.passed_bytes += bytes.len() as u64;
        let omitted = self.omit_bytes.min(bytes.len());
        self.omit_bytes -= omitted;
        let bytes = bytes.get(omitted..).unwrap_or_default();
        self.to.write_all(bytes)?;
        self.shared.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.recent
            .extend_from_slice(bytes.get(bytes.len().saturating_sub(RANGE_BYTES)..).unwrap_or_default());
        let surplus = self.recent.len().saturating_sub(RANGE_BYTES);
        self.recent.drain(..surplus);
        Ok(())
    }

    /// The event that is due in front of `rest`.
    fn event(&mut self, rest: &mut [u8]) -> Flow {
        let Some((at, weather)) = self.next.take() else { return Flow::GoesOn };
        if self.passed_bytes < at {
            self.next = Some((at, weather));
            return Flow::GoesOn;
        }
        let index = self.random.usize(..weather.events.len().max(1));
        let Some(event) = weather.events.get(index).copied() else { return Flow::GoesOn };
        let is_spared = self.passed_bytes < weather.spared_bytes && event != Event::Delay;
        if is_spared {
            return Flow::GoesOn;
        }
        self.shared.count(event);
        match event {
            Event::Delay => self.pause(weather.delay_ms, &weather),
            Event::Stall => self.pause(weather.stall_ms, &weather),
            Event::Cut => {
                self.cut();
                return Flow::Ends;
            }
            Event::HalfClose => {
                let _ = self.to.shutdown(Shutdown::Write);
                self.discard_input();
                return Flow::Ends;
            }
            Event::Corrupt => {
                let bit = self.random.u32(..8);
                if let Some(byte) = rest.first_mut() {
                    *byte ^= 1 << bit;
                }
            }
            Event::Duplicate => {
                let len = self.random.usize(..self.recent.len().max(1)) + 1;
                let again = self.recent.get(self.recent.len().saturating_sub(len)..).unwrap_or_default();
                if self.to.write_all(again).is_err() {
                    self.cut();
                    return Flow::Ends;
                }
            }
            Event::Omit => self.omit_bytes = self.random.usize(1..=RANGE_BYTES),
        }
        Flow::GoesOn
    }

    fn pause(&mut self, longest_ms: u64, weather: &Arc<Weather>) {
        let duration = Duration::from_millis(self.random.u64(..=longest_ms));
        self.shared.wait(duration, weather);
    }

    fn cut(&self) {
        let _ = self.from.shutdown(Shutdown::Both);
        let _ = self.to.shutdown(Shutdown::Both);
    }

    /// Reads and drops all input: the sender does not learn yet that the other side is gone.
    fn discard_input(&mut self) {
        let mut buffer = [0; 4096];
        while self.from.read(&mut buffer).is_ok_and(|len| len > 0) {}
    }
}

#[cfg(test)]
mod tests;
