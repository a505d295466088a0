//! A simulated network: connections that are slow, deliver in pieces, and break at any byte.

use redoubt_sync::{Condvar, Mutex, simulation, time};
use redoubt_transport::{Connection, Identity, Written};
use std::collections::VecDeque;
use std::io::{ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How the network is at the moment.
#[derive(Debug, Default)]
pub struct Weather {
    /// Longest delay of a piece, in microseconds.
    pub delay_micros: AtomicU64,
}

/// One direction.
#[derive(Debug)]
struct Pipe {
    state: Mutex<State>,
    changed: Condvar,
    capacity_bytes: usize,
}

#[derive(Debug)]
struct State {
    bytes: VecDeque<u8>,
    /// Pieces under way or arrived: when they arrive, and how long they are.
    pieces: VecDeque<(Instant, usize)>,
    /// Bytes that will still pass; then the connection breaks.
    left: Option<usize>,
    /// Nothing more is written; the reader gets the remaining bytes.
    is_ended: bool,
    /// Nothing more is read or written.
    is_broken: bool,
    rng: fastrand::Rng,
}

impl Pipe {
    fn new() -> Arc<Self> {
        let mut rng = simulation::random();
        Arc::new(Self {
            capacity_bytes: 1 << rng.u32(10..18),
            state: Mutex::new(State {
                bytes: VecDeque::new(),
                pieces: VecDeque::new(),
                left: None,
                is_ended: false,
                is_broken: false,
                rng,
            }),
            changed: Condvar::new(),
        })
    }

    fn read(&self, out: &mut [u8], timeout: Option<Duration>) -> Result<usize> {
        let deadline = timeout.map(|timeout| time::now() + timeout);
        let mut state = self.state.lock();
        loop {
            if state.is_broken {
                return Err(ErrorKind::ConnectionReset.into());
            }
            let now = time::now();
            let here: usize =
                state.pieces.iter().take_while(|(arrives, _)| *arrives <= now).map(|(_, len)| len).sum();
            if here > 0 {
                let most = here.min(out.len());
                let len = if state.rng.bool() { most } else { state.rng.usize(1..=most) };
                state.take(&mut out[..len]);
                self.changed.notify_all();
                return Ok(len);
            }
            let next = state.pieces.front().map(|(arrives, _)| *arrives);
            if next.is_none() && state.is_ended {
                return Ok(0);
            }
            match [next, deadline].into_iter().flatten().min() {
                Some(until) => {
                    self.changed.wait_until(&mut state, until);
                }
                None => self.changed.wait(&mut state),
            }
            if deadline.is_some_and(|deadline| time::now() >= deadline) {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }

    fn write(&self, bytes: &[u8], delay_micros: u64, timeout: Option<Duration>) -> Result<()> {
        let mut rest = bytes;
        let deadline = timeout.map(|timeout| time::now() + timeout);
        let mut state = self.state.lock();
        while !rest.is_empty() {
            if state.is_broken || state.is_ended {
                return Err(ErrorKind::BrokenPipe.into());
            }
            let room = self.capacity_bytes.saturating_sub(state.bytes.len());
            if room == 0 {
                match deadline {
                    None => self.changed.wait(&mut state),
                    Some(deadline) => {
                        if self.changed.wait_until(&mut state, deadline).timed_out() {
                            return Err(ErrorKind::TimedOut.into());
                        }
                    }
                }
                continue;
            }
            let len = rest.len().min(room);
            let passes = state.left.map_or(len, |left| left.min(len));
            let delay = Duration::from_micros(state.rng.u64(..=delay_micros));
            let arrives =
                state.pieces.back().map_or_else(time::now, |(last, _)| *last).max(time::now() + delay);
            if passes > 0 {
                state.bytes.extend(&rest[..passes]);
                state.pieces.push_back((arrives, passes));
            }
            if let Some(left) = &mut state.left {
                *left -= passes;
                if *left == 0 {
                    // Bytes that have passed may still arrive; this side learns of the end now.
                    state.is_ended = true;
                }
            }
            rest = &rest[len..];
            self.changed.notify_all();
        }
        Ok(())
    }

    fn end(&self, is_broken: bool) {
        let mut state = self.state.lock();
        state.is_ended = true;
        state.is_broken |= is_broken;
        drop(state);
        self.changed.notify_all();
    }
}

impl State {
    fn take(&mut self, out: &mut [u8]) {
        for byte in out.iter_mut() {
            *byte = self.bytes.pop_front().unwrap_or_default();
        }
        let mut taken = out.len();
        while taken > 0 {
            let Some((_, len)) = self.pieces.front_mut() else { return };
            let from_this = taken.min(*len);
            *len -= from_this;
            taken -= from_this;
            if *len == 0 {
                self.pieces.pop_front();
            }
        }
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct End {
    from: Arc<Pipe>,
    to: Arc<Pipe>,
    weather: Arc<Weather>,
    timeouts: Mutex<(Option<Duration>, Option<Duration>)>,
    identity: Identity,
}

/// Both ends.
pub fn connect(weather: &Arc<Weather>) -> (Arc<End>, Arc<End>) {
    let (there, back) = (Pipe::new(), Pipe::new());
    let end = |from: &Arc<Pipe>, to: &Arc<Pipe>| {
        Arc::new(End {
            from: Arc::clone(from),
            to: Arc::clone(to),
            weather: Arc::clone(weather),
            timeouts: Mutex::default(),
            identity: Identity::Unproven,
        })
    };
    (end(&back, &there), end(&there, &back))
}

/// Closes its end when it goes, as the kernel does for a process. A kill may come in the middle of that: a thread that
/// is killed leaves at the next point, destructor or not. Then the inner one closes it, because a thread is killed
/// once.
pub struct Closing {
    end: Arc<End>,
    _again: ClosingAgain,
}

struct ClosingAgain(Arc<End>);

impl Closing {
    pub fn new(end: Arc<End>) -> Self {
        Self { _again: ClosingAgain(Arc::clone(&end)), end }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        Connection::shutdown(&*self.end);
    }
}

impl Drop for ClosingAgain {
    fn drop(&mut self) {
        if std::thread::panicking() {
            Connection::shutdown(&*self.0);
        }
    }
}

impl End {
    /// The connection breaks after at most `bytes` more from this end.
    pub fn break_after(&self, bytes: usize) {
        self.to.state.lock().left = Some(bytes);
    }

    /// It breaks now: bytes under way are lost.
    pub fn reset(&self) {
        self.to.end(true);
        self.from.end(true);
    }
}

impl Connection for End {
    fn read(&self, out: &mut [u8]) -> Result<usize> {
        let timeout = self.timeouts.lock().0;
        self.from.read(out, timeout)
    }

    fn write_all(&self, bytes: &[u8]) -> Result<()> {
        let timeout = self.timeouts.lock().1;
        self.to.write(bytes, self.weather.delay_micros.load(Ordering::Relaxed), timeout)
    }

    /// A simulated write is under way at once, and the writer does not wait.
    fn write_now(&self, bytes: &[u8]) -> Result<Written> {
        self.write_all(bytes).map(|()| Written::All)
    }

    fn shutdown(&self) {
        // The peer still gets the written bytes; here nothing more is read.
        self.to.end(false);
        self.from.end(true);
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.timeouts.lock().0 = timeout;
        Ok(())
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.timeouts.lock().1 = timeout;
        Ok(())
    }

    fn set_deadline(&self, _: Option<Duration>) -> Result<()> {
        Ok(())
    }

    fn peer(&self) -> &str {
        "simulated"
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }
}
