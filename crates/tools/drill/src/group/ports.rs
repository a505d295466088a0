//! Ports of the members of a group.
//!
//! Invariant: while a [`Port`] lives, the kernel does not assign its number to a process that asks for any free port,
//! neither to listen nor to connect. A server that names the port can listen on it with `SO_REUSEADDR`, which servers
//! set. For that reason, the socket that holds the number is bound with the same option and never listens.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

use redoubt_workload::error::{Error, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};

/// A free local port, chosen by the kernel and reserved; displayed as its number.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _held: OwnedFd,
}

impl Port {
    /// Reserves a port.
    ///
    /// # Errors
    /// [`Error::Io`] from the operating system.
    pub fn reserve() -> Result<Self> {
        let take = || -> rustix::io::Result<Self> {
            let held = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            sockopt::set_socket_reuseaddr(&held, true)?;
            bind(&held, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
            let number = SocketAddr::try_from(getsockname(&held)?)?.port();
            Ok(Self { number, _held: held })
        };
        take().map_err(|error| Error::io("take a free port")(error.into()))
    }

    /// The port number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_is_for_whoever_names_it() {
        let port = Port::reserve().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).unwrap();
        drop(listener);
        drop(TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).unwrap());
        assert_ne!(Port::reserve().unwrap().number(), port.number());
    }
}
