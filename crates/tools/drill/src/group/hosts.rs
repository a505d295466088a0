//! A separate network for each member, so that one can be cut off as if its cable were pulled.
//!
//! ```text
//!   namespace 0          switch              namespace 1
//!     veth0 10.78.0.1 ── p0 ┐        ┌ p1 ── veth0 10.78.0.2
//!                           bridge br0
//! ```
//!
//! A member that is cut off keeps its interface and its addresses. The network drops all packets in both directions:
//! connections do not break, they are silent. File systems are shared, so clients reach all servers through their
//! sockets.
//!
//! Invariant: the names contain this program's process id and a number, so no other program uses them. The drop
//! removes the namespaces with their interfaces.

use redoubt_workload::error::{Error, Result};
use redoubt_workload::process::{find_program, run_to_end};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A separate network for each member, so that one can be cut off as if its cable were pulled.
#[derive(Debug)]
pub struct Hosts {
    base: String,
    count: usize,
}

fn ip(arguments: &[&str]) -> Result<()> {
    run_to_end(Command::new(find_program("ip", "iproute2")?).args(arguments)).map(drop)
}

impl Hosts {
    /// Creates `count` networks.
    ///
    /// # Errors
    /// [`Error::State`] without root; [`Error::ProgramMissing`], [`Error::Command`] of `ip`.
    pub fn create(count: usize) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            return Err(Error::State("network namespaces need root".to_owned()));
        }
        let base = format!("rdg-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        // From here on, a drop removes the existing namespaces.
        let hosts = Self { base, count };
        let switch = hosts.switch();
        ip(&["netns", "add", &switch])?;
        ip(&["-n", &switch, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "br0", "up"])?;
        for index in 0..count {
            let (name, port) = (hosts.name(index), port(index));
            ip(&["netns", "add", &name])?;
            ip(&[
                "link", "add", "veth0", "netns", &name, "type", "veth", "peer", "name", &port, "netns",
                &switch,
            ])?;
            ip(&["-n", &name, "address", "add", &format!("{}/24", hosts.address(index)), "dev", "veth0"])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
            ip(&["-n", &name, "link", "set", "veth0", "up"])?;
            ip(&["-n", &switch, "link", "set", &port, "up"])?;
            hosts.join(index)?;
        }
        Ok(hosts)
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.base)
    }

    /// Name of a member's namespace.
    pub fn name(&self, index: usize) -> String {
        format!("{}-{index}", self.base)
    }

    /// Address of a member for the others.
    pub fn address(&self, index: usize) -> String {
        format!("10.78.0.{}", index + 1)
    }

    /// Cuts a member off.
    ///
    /// # Errors
    /// [`Error::Command`] of `ip`.
    pub fn cut(&self, index: usize) -> Result<()> {
        ip(&["-n", &self.switch(), "link", "set", &port(index), "nomaster"])
    }

    /// Blocks or unblocks the link between two members, which both still reach all others. For one pair at a time.
    ///
    /// # Errors
    /// [`Error::Command`] of `ip`.
    pub fn part(&self, pair: [usize; 2], is_parted: bool) -> Result<()> {
        let isolated = if is_parted { "on" } else { "off" };
        pair.into_iter().try_for_each(|index| {
            let arguments = ["link", "set", &port(index), "type", "bridge_slave", "isolated", isolated];
            ip(&[&["-n", &self.switch()], &arguments[..]].concat())
        })
    }

    /// Removes a member's address, or restores it.
    ///
    /// # Errors
    /// [`Error::Command`] of `ip`.
    pub fn set_addressed(&self, index: usize, has_address: bool) -> Result<()> {
        let what = if has_address { "add" } else { "del" };
        let address = format!("{}/24", self.address(index));
        ip(&["-n", &self.name(index), "address", what, &address, "dev", "veth0"])
    }

    /// Reconnects a member with the others.
    ///
    /// # Errors
    /// [`Error::Command`] of `ip`.
    pub fn join(&self, index: usize) -> Result<()> {
        ip(&["-n", &self.switch(), "link", "set", &port(index), "master", "br0"])
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in (0..self.count).map(|index| self.name(index)).chain([self.switch()]) {
            // The namespace may not exist, if its creation failed.
            let _ = ip(&["netns", "del", &name]);
        }
    }
}

fn port(index: usize) -> String {
    format!("p{index}")
}
