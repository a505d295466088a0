//! A link that takes longer: a forwarder in the compute namespace that holds everything back for a time, each way.
//!
//! For kernels without netem. It adds no limit: any number of bytes are on their way at once. One thread reads and
//! stamps, another waits for the stamp and writes, in each direction of each connection. Their CPU time counts
//! as the clients', not as a backend's.

use redoubt_locks::IgnorePoison;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use redoubt_workload::error::{Error, Result};

use super::Side;

/// Bytes on their way in one direction after which no more are read.
const MAX_DELAYED_BYTES: usize = 64 << 20;

/// A forwarder; dropping stops it from taking connections, those it has end with their ends.
#[derive(Debug)]
pub struct Delay {
    address: SocketAddr,
    side: Side,
    stopped: Arc<AtomicBool>,
}

impl Delay {
    /// Listens on a free port of the loopback interface of `side` and forwards to `target`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn start(side: &Side, target: SocketAddr, delay: Duration) -> Result<Self> {
        let listener = side.enter(|| TcpListener::bind("127.0.0.1:0").map_err(Error::io("listen")))?;
        let address = listener.local_addr().map_err(Error::io("ask for an address"))?;
        let stopped = Arc::new(AtomicBool::new(false));
        let (flag, inside) = (Arc::clone(&stopped), side.clone());
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if flag.load(Ordering::Relaxed) {
                    return;
                }
                let server = inside.enter(|| TcpStream::connect(target).map_err(Error::io("connect")));
                // A failure closes the client's connection, as the target itself would.
                if let Ok(server) = server {
                    let _ = join(client, server, delay);
                }
            }
        });
        Ok(Self { address, side: side.clone(), stopped })
    }

    /// Where to connect instead of the target.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts; if that fails it is gone.
        let _ = self.side.enter(|| TcpStream::connect(self.address).map_err(Error::io("connect")));
    }
}

fn join(client: TcpStream, server: TcpStream, delay: Duration) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    forward(client.try_clone()?, server.try_clone()?, delay);
    forward(server, client, delay);
    Ok(())
}

#[derive(Default)]
struct Delayed {
    chunks: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    ended: bool,
}

type Shared = Arc<(Mutex<Delayed>, Condvar)>;

fn forward(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let shared: Shared = Arc::default();
    let other = Arc::clone(&shared);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 256 << 10];
        loop {
            let read = from.read(&mut buffer).unwrap_or(0);
            let (lock, changed) = &*shared;
            let mut delayed = lock.lock().ignore_poison();
            delayed.ended |= read == 0;
            delayed.bytes += read;
            delayed
                .chunks
                .push_back((Instant::now() + delay, buffer.get(..read).unwrap_or_default().to_vec()));
            changed.notify_all();
            while delayed.bytes > MAX_DELAYED_BYTES && !delayed.ended {
                delayed = changed.wait(delayed).ignore_poison();
            }
            if delayed.ended {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        while let Some((due, bytes)) = next(&other) {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let (lock, changed) = &*other;
        lock.lock().ignore_poison().ended = true;
        changed.notify_all();
        let _ = to.shutdown(Shutdown::Write);
    });
}

/// The oldest chunk; `None` after the last.
fn next(shared: &Shared) -> Option<(Instant, Vec<u8>)> {
    let (lock, changed) = &**shared;
    let mut delayed = lock.lock().ignore_poison();
    loop {
        if let Some(chunk) = delayed.chunks.pop_front() {
            delayed.bytes -= chunk.1.len();
            changed.notify_all();
            return Some(chunk);
        }
        if delayed.ended {
            return None;
        }
        delayed = changed.wait(delayed).ignore_poison();
    }
}

#[cfg(test)]
#[path = "delay_tests.rs"]
mod tests;
