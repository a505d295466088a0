//! Open connections, and their limits.
//!
//! A connection is *greeting* until its Hello has been accepted, and *admitted* from then on. Invariants:
//! * At most [`ConnectionLimits::greeting`] connections are greeting. A further one ends the connection that has been
//!   greeting longest. A peer with a valid Hello needs some milliseconds and is admitted before a flood of others
//!   pushes it out. So a peer that only holds connections open locks no other peer out.
//! * At most [`ConnectionLimits::total`] are admitted, of which at most [`ConnectionLimits::per_volume`] name the same
//!   volume, so one volume's clients cannot use up what all share.
//! * Control connections name no volume. A quarter of all places is for them, so that neither they nor the servers use up
//!   the places of the others. Of these, the clients with the certificate of one volume have at most
//!   [`CONTROL_PER_VOLUME`], and those with any volume's certificate at most three quarters, so the administrator always
//!   has room.

use crate::descriptors;
use redoubt_sync::Mutex;
use redoubt_transport::{Connection, Identity};
use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Control connections of clients with the certificate of one volume.
const CONTROL_PER_VOLUME: usize = 32;
/// One of so many places is for control connections.
const CONTROL_SHARE: usize = 4;
/// One of so many control connections is kept for the administrator.
const ADMINISTRATOR_SHARE: usize = 4;
const _: () = assert!(CONTROL_SHARE > 1 && ADMINISTRATOR_SHARE > 1, "both sides have places");

/// How many connections a node serves and how long it waits for them.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// Connections that have not sent a valid Hello. Default 256, or a share of the descriptors that the process may have
    /// open ([`descriptors`]), if that is less.
    pub greeting: usize,
    /// Time for TLS and Hello together. Default 10 s.
    pub greeting_timeout: Duration,
    /// Connections that have. Default 4096, or half of the descriptors the process may have open, if that is less.
    /// A quarter of them is for control connections.
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
            greeting: descriptors::greeting(),
            greeting_timeout: Duration::from_secs(10),
            total: descriptors::connections(),
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

/// Purpose of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// The volume of this name: log, notices or pages.
    Volume(String),
    /// Requests, from a client with the certificate of the volume of this name.
    ControlOfVolume(String),
    /// Requests of an administrator, or of anybody on a node without TLS.
    ControlOfAdministrator,
}

impl Purpose {
    /// Requests from a client with this identity.
    pub fn control(identity: &Identity) -> Self {
        match identity {
            Identity::Volume(name) => Self::ControlOfVolume(name.clone()),
            Identity::Unproven | Identity::Administrator | Identity::Node | Identity::Member { .. } => {
                Self::ControlOfAdministrator
            }
        }
    }

    fn is_control(&self) -> bool {
        !matches!(self, Self::Volume(_))
    }
}

#[derive(Default)]
struct OpenConnections {
    next: u64,
    greeting: BTreeMap<u64, Ender>,
    admitted: BTreeMap<u64, (Arc<dyn Connection>, Purpose)>,
    count: BTreeMap<Purpose, usize>,
    closed: bool,
}

impl OpenConnections {
    fn check_room(&self, purpose: &Purpose, limits: &ConnectionLimits) -> Result<(), String> {
        let own = self.count.get(purpose).copied().unwrap_or_default();
        let of = |is_part: &dyn Fn(&Purpose) -> bool| -> usize {
            self.count.iter().filter(|(purpose, _)| is_part(purpose)).map(|(_, count)| count).sum()
        };
        let control = (limits.total / CONTROL_SHARE).max(1).min(limits.total);
        let refused =
            |what: &str, most: usize| Err(format!("{what} its {most} connections; try again later"));
        match purpose {
            Purpose::Volume(_) if of(&|purpose| !purpose.is_control()) >= limits.total - control => {
                return refused("the node has", limits.total - control);
            }
            Purpose::Volume(name) if own >= limits.per_volume => {
                return refused(&format!("volume {name} has"), limits.per_volume);
            }
            Purpose::ControlOfVolume(name) if own >= CONTROL_PER_VOLUME => {
                return refused(
                    &format!("the command with the certificate of volume {name} has"),
                    CONTROL_PER_VOLUME,
                );
            }
            _ => {}
        }
        if !purpose.is_control() {
            return Ok(());
        }
        if of(&Purpose::is_control) >= control {
            return refused("the command has", control);
        }
        let of_volumes = control - (control / ADMINISTRATOR_SHARE).min(control - 1);
        if matches!(purpose, Purpose::ControlOfVolume(_))
            && of(&|purpose| matches!(purpose, Purpose::ControlOfVolume(_))) >= of_volumes
        {
            return refused("the command with certificates of volumes has", of_volumes);
        }
        Ok(())
    }
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

    /// Ends the connections of servers to this volume.
    pub fn end_connections_of(&self, volume: &str) {
        let state = self.state.lock();
        let is_of_volume = |purpose: &Purpose| matches!(purpose, Purpose::Volume(name) if name == volume);
        let of_volume = state.admitted.values().filter(|(_, purpose)| is_of_volume(purpose));
        of_volume.for_each(|(connection, _)| connection.shutdown());
    }

    /// Of each volume that has some: connections that are admitted, and how many of them are over the local socket.
    pub fn by_volume(&self) -> BTreeMap<String, (u64, u64)> {
        let mut found = BTreeMap::<_, (u64, u64)>::new();
        for (connection, purpose) in self.state.lock().admitted.values() {
            let Purpose::Volume(volume) = purpose else { continue };
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
    /// Its Hello is good.
    ///
    /// # Errors
    /// Why it cannot be served now.
    pub fn admit(&self, connection: &Arc<dyn Connection>, purpose: Purpose) -> Result<(), String> {
        let limits = &self.admission.limits;
        let mut state = self.admission.state.lock();
        // Pushed out, or the node is stopping.
        state.greeting.remove(&self.number).ok_or("the node has too many new connections; try again")?;
        state.check_room(&purpose, limits)?;
        *state.count.entry(purpose.clone()).or_default() += 1;
        state.admitted.insert(self.number, (Arc::clone(connection), purpose));
        Ok(())
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock();
        state.greeting.remove(&self.number);
        if let Some((_, purpose)) = state.admitted.remove(&self.number)
            && let Some(count) = state.count.get_mut(&purpose)
        {
            *count -= 1;
            if *count == 0 {
                state.count.remove(&purpose);
            }
        }
    }
}

#[cfg(test)]
mod tests;
