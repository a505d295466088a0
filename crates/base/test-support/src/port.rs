//! TCP ports of tests.
//!
//! A port that is bound, released and bound again may belong to another program by then. Therefore:
//!
//! * A server that accepts port 0 gets port 0 and reports its real port.
//! * Any other server starts through [`with_port`], which tries another port if the first was taken meanwhile.
//! * An address that has to refuse connections is a [`ClosedPort`].

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

/// A port of 127.0.0.1 that refuses connections as long as this value lives: it is bound and has no listener.
#[derive(Debug)]
pub struct ClosedPort {
    _socket: OwnedFd,
    address: SocketAddr,
}

impl ClosedPort {
    /// Takes one.
    ///
    /// # Panics
    /// If the kernel has no port left.
    #[expect(clippy::expect_used, reason = "it is called by tests")]
    pub fn take() -> Self {
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let kind = rustix::net::SocketType::STREAM;
        let socket = rustix::net::socket_with(rustix::net::AddressFamily::INET, kind, flags, None)
            .expect("a socket can be made");
        rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = rustix::net::getsockname(&socket).expect("a bound socket has a name");
        let address = SocketAddr::try_from(address).expect("an address of IPv4");
        Self { _socket: socket, address }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Ports that [`with_port`] tries.
const PORTS: usize = 20;

/// Calls `start` with a port of 127.0.0.1 that was free just now, and with another one each time that `start` returns
/// `None`: it found that the port was taken meanwhile.
///
/// # Panics
/// If twenty ports were taken one after the other.
pub fn with_port<T>(mut start: impl FnMut(u16) -> Option<T>) -> T {
    for _ in 0..PORTS {
        let port = ClosedPort::take().address().port();
        if let Some(started) = start(port) {
            return started;
        }
    }
    panic!("{PORTS} ports were taken by others before they could be bound");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn closed_port_refuses_connections_and_listeners() {
        let closed = ClosedPort::take();
        assert_eq!(TcpStream::connect(closed.address()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(TcpListener::bind(closed.address()).unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn port_taken_meanwhile_is_followed_by_another() {
        let mut tries = 0;
        let listener = with_port(|port| {
            tries += 1;
            let _thief = (tries == 1).then(|| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap());
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
        });
        assert_eq!(tries, 2);
        drop(listener);
    }
}
