//! Ethernet addresses of hosts: a packet goes to the source of the last frame from its destination. A server only
//! answers, so it needs no ARP of its own; and after a failover of a router, its first frame updates the address.
//!
//! This is only for hosts without an open connection, because any host can send a frame with a foreign address. For an
//! open connection the slot in [`crate::stack`] has the address, from frames that fitted the connection.
//!
//! Invariant: the addresses of at most twice [`MANY`] hosts are kept. The least recently received ones are forgotten
//! first, except for hosts with a connection.

use crate::link::Mac;
use std::collections::HashMap;
use std::net::IpAddr;

/// Hosts per generation.
const MANY: usize = 1 << 15;

/// Ethernet addresses of hosts, in two generations.
#[derive(Default)]
pub struct Neighbours {
    young: HashMap<IpAddr, Mac>,
    old: HashMap<IpAddr, Mac>,
}

impl Neighbours {
    /// Stores the address of a host's frame. `true`: there are too many, and [`Neighbours::forget`] is due.
    pub fn learn(&mut self, host: IpAddr, mac: Mac) -> bool {
        if self.young.get(&host) != Some(&mac) {
            self.young.insert(host, mac);
        }
        self.young.len() > MANY
    }

    /// Address of the host's last frame.
    pub fn get(&self, host: IpAddr) -> Option<Mac> {
        self.young.get(&host).or_else(|| self.old.get(&host)).copied()
    }

    /// Forgets the older generation, except for these hosts.
    pub fn forget(&mut self, not_these: impl Iterator<Item = IpAddr>) {
        let kept: HashMap<_, _> = not_these.filter_map(|host| Some((host, self.get(host)?))).collect();
        self.old = std::mem::replace(&mut self.young, kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: usize) -> IpAddr {
        IpAddr::from((number as u32).to_be_bytes())
    }

    #[test]
    fn the_last_address_counts() {
        let mut all = Neighbours::default();
        assert_eq!(all.get(host(1)), None);
        all.learn(host(1), [1; 6]);
        all.learn(host(1), [2; 6]);
        assert_eq!(all.get(host(1)), Some([2; 6]));
    }

    #[test]
    fn those_with_a_connection_are_kept() {
        let mut all = Neighbours::default();
        let mut due = 0;
        for number in 0..5 * MANY {
            if all.learn(host(number), [number as u8; 6]) {
                due += 1;
                all.forget([host(7), host(MANY * 9)].into_iter());
            }
        }
        assert!(due >= 3 && all.young.len() + all.old.len() <= 2 * MANY + 4);
        assert_eq!(all.get(host(7)), Some([7; 6]));
        assert_eq!(all.get(host(8)), None);
        assert!(all.get(host(5 * MANY - 1)).is_some());
    }
}
