//! Open connections, and their limits.
//!
//! A connection is *greeting* until its Hello has been accepted, and *admitted* from then on. Invariants:
//! * At most [`ConnectionLimits::greeting`] connections are greeting. A further one ends the connection that has been
//!   greeting longest. A peer with a valid Hello needs some milliseconds and is admitted before a flood of others
//!   pushes it out. So a peer that only holds connections open locks no other peer out.
//! * At most [`ConnectionLimits::total`] are admitted, of which at most [`ConnectionLimits::per_volume`] name the same
//!   volume, so one volume's clients cannot use up what all share.

use redoubt_sync::Mutex;
use redoubt_transport::Connection;
use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// How many connections a node serves and how long it waits for them.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// Connections that have not sent a valid Hello. Default 256.
    pub greeting: usize,
    /// Time for TLS and Hello together. Default 10 s.
    pub greeting_timeout: Duration,
    /// Connections that have. Default 4096, or half of the descriptors the process may have open, if that is less.
    pub total: usize,
    /// Of these, the connections of one volume; a server has at most 66. Default 256.
    pub per_volume: usize,
    /// A control connection without a request for this time is closed, and its export is released. Default 10 min.
    pub idle_control: Duration,
    /// A peer that reads nothing for this time while bytes are written to it is gone. Default 30 s.
    pub write_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            greeting: 256,
            greeting_timeout: Duration::from_secs(10),
            total: (descriptor_limit() / 2).min(4096),
            per_volume: 256,
            idle_control: Duration::from_secs(600),
            write_timeout: Duration::from_secs(30),
        }
    }
}

/// How a connection is ended from another thread.
pub enum Ender {
    /// The bare socket of a new connection.
    Socket(TcpStream),
    /// Any other.
    Connection(Arc<dyn Connection>),
}

impl Ender {
    fn end(&self) {
        match self {
            Self::Socket(stream) => {
                let _ = stream.shutdown(Shutdown::Both);
            }
            Self::Connection(connection) => connection.shutdown(),
        }
    }
}

#[derive(Default)]
struct OpenConnections {
    next: u64,
    greeting: BTreeMap<u64, Ender>,
    admitted: BTreeMap<u64, (Arc<dyn Connection>, String)>,
    per_volume: BTreeMap<String, usize>,
    closed: bool,
}

/// The open connections of a node.
pub struct Admission {
    limits: ConnectionLimits,
    state: Mutex<OpenConnections>,
}

impl Admission {
    /// No server is connected.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    /// The limits.
    pub const fn limits(&self) -> &ConnectionLimits {
        &self.limits
    }

    /// A connection has arrived. To be called in the order of arrival, whichever of the connections' threads runs
    /// first.
    pub fn arrive(&self) -> Arrived {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        Arrived(number)
    }

    /// A connection begins. `None`: the node is stopping.
    pub fn enter(&self, arrived: Arrived, ender: Ender) -> Option<Present<'_>> {
        let mut state = self.state.lock();
        if state.closed {
            ender.end();
            return None;
        }
        let Arrived(number) = arrived;
        state.greeting.insert(number, ender);
        if state.greeting.len() > self.limits.greeting
            && let Some((_, oldest)) = state.greeting.pop_first()
        {
            oldest.end();
        }
        Some(Present { admission: self, number })
    }

    /// Ends all connections, and every later one.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.greeting.values().for_each(Ender::end);
        state.admitted.values().for_each(|(connection, _)| connection.shutdown());
    }

    /// Of each volume that has some: connections that are admitted, and how many of them are over the local socket.
    pub fn by_volume(&self) -> BTreeMap<String, (u64, u64)> {
        let mut found = BTreeMap::<_, (u64, u64)>::new();
        for (connection, volume) in
            self.state.lock().admitted.values().filter(|(_, volume)| !volume.is_empty())
        {
            let of_volume = found.entry(volume.clone()).or_default();
            of_volume.0 += 1;
            of_volume.1 += u64::from(connection.is_over_local_socket());
        }
        found
    }

    /// Connections that are greeting, and that are admitted.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.greeting.len(), state.admitted.len())
    }
}

/// Arrival of a connection, relative to the others.
#[derive(Debug)]
pub struct Arrived(u64);

/// A connection that is there until this is dropped.
pub struct Present<'a> {
    admission: &'a Admission,
    number: u64,
}

impl Present<'_> {
    /// Its Hello is good. `volume` is empty for control connections.
    ///
    /// # Errors
    /// Why it cannot be served now.
    pub fn admit(&self, connection: &Arc<dyn Connection>, volume: &str) -> Result<(), String> {
        let limits = &self.admission.limits;
        let mut state = self.admission.state.lock();
        // Pushed out, or the node is stopping.
        state.greeting.remove(&self.number).ok_or("the node has too many new connections; try again")?;
        if state.admitted.len() >= limits.total {
            return Err(format!("the node has its {} connections; try again later", limits.total));
        }
        let of_volume = state.per_volume.entry(volume.to_owned()).or_default();
        if !volume.is_empty() && *of_volume >= limits.per_volume {
            return Err(format!(
                "volume {volume} has its {} connections; try again later",
                limits.per_volume
            ));
        }
        *of_volume += 1;
        state.admitted.insert(self.number, (Arc::clone(connection), volume.to_owned()));
        Ok(())
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock();
        state.greeting.remove(&self.number);
        if let Some((_, volume)) = state.admitted.remove(&self.number)
            && let Some(count) = state.per_volume.get_mut(&volume)
        {
            *count -= 1;
            if *count == 0 {
                state.per_volume.remove(&volume);
            }
        }
    }
}

/// Descriptors this process may have open; raised as far as that is allowed.
fn descriptor_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live value of the right type for both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return 1024;
        }
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        if limit.rlim_cur < limit.rlim_max && libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) == 0 {
            limit = raised;
        }
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
