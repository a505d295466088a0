//! The local socket of a node: a unix socket beside its TCP address, for servers on the same host.
//!
//! Its name is `redoubt-node/` and the TCP address, in the abstract namespace. Like TCP addresses, that namespace
//! belongs to the network namespace. So a process that reaches one reaches the other, in any mount namespace. A killed
//! node leaves no file, and no directory needs a certain mode.
//!
//! Trust: the local socket grants no more rights than TCP. The node sends [`WORD`] to processes of its own user, of
//! root and of the users that the operator names. It closes the connections of all others. Any process may take the
//! name before the node. So a client continues only with a process of root, of its own user, or of the user with the
//! TCP listener at that address ([`redoubt_peer_credentials::may_stand_in`]). After the word, the protocol is that of
//! TCP, with TLS and certificates where the node requires them.
//!
//! After any error the client uses TCP, and that result counts. A client never waits here for longer than
//! [`PATIENCE`].

use crate::connection::Connection;
use crate::socket::SocketConnection;
use redoubt_peer_credentials::{Process, is_of_this_host, may_stand_in, peer_of};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io::{Error, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::time::Duration;

/// First byte that the node sends to an admitted client.
pub const WORD: u8 = b'R';
/// Timeout of that byte, which a running node sends at once.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Name of the local socket of a node with this listening address.
pub fn name(address: SocketAddr) -> String {
    // Without the scope of an IPv6 address, which may be written differently at the client.
    format!("redoubt-node/{}", SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Takes the name for this address. The socket does not block.
///
/// # Errors
/// Error of the system; `AddrInUse` if another process has the name.
pub fn listen(address: SocketAddr) -> Result<UnixListener> {
    let listener = UnixListener::bind_addr(&UnixAddress::from_abstract_name(name(address))?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects to the local socket of the listener at this address, if the listener is trusted and admits this process.
/// The connection's deadline is [`PATIENCE`] from its beginning on.
///
/// # Errors
/// Reason why there is no such connection; the caller then uses TCP.
pub fn reach(address: SocketAddr) -> Result<SocketConnection> {
    if !is_of_this_host(address.ip()) {
        return Err(Error::other("the address is of another host"));
    }
    let (socket, node) = knock(address)?;
    if !may_stand_in(node.uid, address) {
        return Err(Error::other(format!(
            "{} belongs to user {}, and the TCP address does not",
            name(address),
            node.uid
        )));
    }
    let connection = SocketConnection::local(UnixStream::from(socket), node);
    connection.set_deadline(Some(PATIENCE))?;
    let mut word = [0];
    match connection.read(&mut word)? {
        1 if word == [WORD] => Ok(connection),
        0 => Err(Error::other("the node does not let this user in")),
        _ => Err(Error::other("it is no node")),
    }
}

/// A socket that is connected to the process with the name, and that process. Does not wait.
fn knock(address: SocketAddr) -> Result<(OwnedFd, Process)> {
    for address in names_reached_by(address) {
        // No wait while the node's queue is full, because the node is stopped or overloaded.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match connect(&socket, &SocketAddrUnix::new_abstract_name(name(address).as_bytes())?) {
            Ok(()) => {
                rustix::fs::fcntl_setfl(&socket, rustix::fs::fcntl_getfl(&socket)? - OFlags::NONBLOCK)?;
                let peer = peer_of(&socket).ok_or_else(|| {
                    Error::other(
                        "the user of the listening process is \
                                                                        unknown",
                    )
                })?;
                return Ok((socket, peer));
            }
            // No process has the name.
            Err(Errno::CONNREFUSED) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::CONNREFUSED.into())
}

/// Addresses of listeners that TCP to this address may reach: itself, or all addresses of the host.
fn names_reached_by(address: SocketAddr) -> impl Iterator<Item = SocketAddr> {
    let ip = address.ip().to_canonical();
    let any_v6 = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    let any = if ip.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { any_v6 };
    // The last address may occur twice, which is harmless.
    [ip, any, any_v6].into_iter().map(move |ip| SocketAddr::new(ip, address.port()))
}

#[cfg(test)]
mod tests;
