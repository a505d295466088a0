//! Listeners of the server for which a stack accepts connections, and their addresses.

use super::{Inner, Listening};
use crate::interface::Interface;
use crate::link::Steering;
use crate::shadow::{self, Shadow};
use crate::{packet, report};
use redoubt_tcp::Micros;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// A packet comes from such an address or goes there.
pub(super) fn is_absent(absent: &BTreeSet<SocketAddr>, packet: &[u8]) -> bool {
    if absent.is_empty() {
        return false;
    }
    let hosts = packet::hosts(packet).into_iter().flatten();
    hosts.into_iter().any(|host| absent.iter().any(|place| place.ip() == host))
}

impl Inner {
    /// Begins to accept connections of a listener of the server, at the interface's addresses.
    pub fn listen(&mut self, now: Micros, shadow: &'static Shadow, may_have_connections: bool) {
        let steering = Steering { new: self.is_on, shared: may_have_connections || !self.is_on };
        for address in self.addresses.clone() {
            let place = SocketAddr::new(address, shadow.port());
            if shadow.covers(address) && self.listening.iter().all(|listening| listening.place != place) {
                self.listen_at(now, place, shadow, steering);
            }
        }
    }

    fn listen_at(&mut self, now: Micros, place: SocketAddr, shadow: &'static Shadow, steering: Steering) {
        let Ok(id) = self.engine.listen(place, shadow.backlog() as u32) else { return };
        if let Err(error) = self.link.steer(place, Some(steering)) {
            report(&format!("{place} stays with the kernel: {error}"));
            self.engine.unlisten(now, id);
            return;
        }
        self.listening.push(Listening { place, id, shadow, steering });
    }

    fn take_listening(&mut self, now: Micros, is_meant: impl Fn(&Listening) -> bool) -> Vec<SocketAddr> {
        let all = std::mem::take(&mut self.listening);
        let (gone, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(is_meant);
        self.listening = kept;
        gone.iter().for_each(|listening| self.engine.unlisten(now, listening.id));
        gone.into_iter().map(|listening| listening.place).collect()
    }

    /// Accepts no more connections for a listener: the kernel takes it over.
    pub fn unlisten(&mut self, now: Micros, shadow: &'static Shadow) {
        for place in self.take_listening(now, |listening| std::ptr::eq(listening.shadow, shadow)) {
            self.leave_connections(place);
        }
    }

    /// From now on only packets of existing connections come from there. `false`: there are none.
    fn leave_connections(&mut self, place: SocketAddr) -> bool {
        let is_used = self.slots.iter().any(|slot| slot.id.is_some() && slot.local == place);
        let left = is_used.then_some(Steering { new: false, shared: true });
        let _ = self.link.steer(place, left);
        is_used
    }

    /// Checks for changes: the interface's addresses, and whether connections are wanted.
    pub(super) fn look(&mut self, now: Micros, interface: &Interface) {
        self.is_on = crate::is_on();
        if !interface.is_there() && !std::mem::replace(&mut self.is_gone, true) {
            report(&format!(
                "{} is gone, and its connections with it; one of its name is left to the kernel until the server is \
                 started again",
                interface.name
            ));
        }
        if let Ok(addresses) = interface.addresses()
            && addresses != self.addresses
        {
            for place in self.take_listening(now, |listening| !addresses.contains(&listening.place.ip())) {
                // As with the kernel, a connection outlives an address that comes back. The kernel, which does not have
                // the connection, would reset it.
                if self.leave_connections(place) {
                    self.absent.insert(place);
                }
            }
            self.absent.retain(|place| !addresses.contains(&place.ip()));
            self.addresses = addresses;
            shadow::all().into_iter().for_each(|shadow| self.listen(now, shadow, true));
        }
        for place in self.absent.clone() {
            if !self.leave_connections(place) {
                self.absent.remove(&place);
            }
        }
        for listening in &mut self.listening {
            let shared = listening.steering.shared || !self.is_on;
            let steering = Steering { new: self.is_on, shared };
            if steering != listening.steering && self.link.steer(listening.place, Some(steering)).is_ok() {
                listening.steering = steering;
            }
        }
    }
}
