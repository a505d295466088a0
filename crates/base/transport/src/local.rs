//! The local socket of a node: a unix socket beside its TCP address, for servers on the same host.
//!
//! Its name is `redoubt-node/` and the TCP address, in the abstract namespace. That is a part of the network namespace,
//! as TCP's addresses are: who reaches the one reaches the other, whatever part of the file system he sees; no file
//! stays of a node that was killed, and no directory has to have the right mode.
//!
//! Trust: nobody gets more by it than over TCP, and less than there. The node says [`WORD`] to processes of its own
//! user, of root and of the users that the operator names, and ends the connection of all others. Anybody may take a
//! name before the node does; so a client goes on only with a process of root, of its own user, or of the user who
//! listens at the TCP address ([`redoubt_peer_credentials::may_stand_in`]). What follows the word is what goes over TCP: with TLS
//! where the node demands it, certificates and all.
//!
//! Whatever goes wrong, TCP is left, and its answer counts: a client never waits here for longer than [`PATIENCE`].

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

/// What the node says first to who may come in.
pub const WORD: u8 = b'R';
/// A node that runs says it at once.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Name of the local socket of a node that listens on this address.
pub fn name(address: SocketAddr) -> String {
    // Without the scope of an IPv6 address, which a client may write in another way.
    format!("redoubt-node/{}", SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Takes the name that belongs to this address. The socket does not block.
///
/// # Errors
/// The system's; `AddrInUse`: another process has it.
pub fn listen(address: SocketAddr) -> Result<UnixListener> {
    let listener = UnixListener::bind_addr(&UnixAddress::from_abstract_name(name(address))?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A connection over the local socket of who listens at this address, if there is one that can be trusted and that
/// lets this process in. Its deadline is [`PATIENCE`] from its beginning on.
///
/// # Errors
/// Why there is none; then there is TCP.
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

/// A socket that is connected to who has the name, and who that is. Does not wait.
fn knock(address: SocketAddr) -> Result<(OwnedFd, Process)> {
    for address in names_reached_by(address) {
        // Not to wait while the node's queue is full, because it was stopped or cannot keep up.
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

/// The addresses of listeners that TCP to this address may reach: itself, or all of the host.
fn names_reached_by(address: SocketAddr) -> impl Iterator<Item = SocketAddr> {
    let ip = address.ip().to_canonical();
    let any_v6 = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    let any = if ip.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { any_v6 };
    // The last of them once, or twice, which does no harm.
    [ip, any, any_v6].into_iter().map(move |ip| SocketAddr::new(ip, address.port()))
}

#[cfg(test)]
mod tests;
