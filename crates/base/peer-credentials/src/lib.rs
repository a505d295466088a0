//! Who is at the other end of a connection on one host, as the kernel says: whose a listening TCP socket is
//! ([`of_listener`]), whose the process is that a unix socket leads to ([`peer_of`]), whether an address is one of this
//! host ([`is_of_this_host`]), and what follows from that ([`may_stand_in`]).
//!
//! Owns nothing. Makes system calls of its own, past the C library, whose calls the preloaded libraries hook; the one
//! exception asks for an option of a socket.

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, getsockname, netlink, recv, send,
    socket_with,
};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const LISTEN_STATE: u8 = 10;
/// A header of netlink and a request of inet_diag.
const REQUEST_BYTES: usize = 16 + 56;
/// Of the state and of the user in an answer.
const STATE_AT: usize = 16 + 1;
const UID_AT: usize = 16 + 4 + 48 + 12;

/// Who stands for all users that this user namespace does not know: not one user.
const OVERFLOW_UID: u32 = 65_534;

/// A process at the other end of a unix socket, as it was when it connected or began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number; 0 if it is not visible from here.
    pub id: i32,
    /// Its user.
    pub uid: u32,
}

impl Process {
    /// Its user is one that the user namespace of the caller knows.
    pub const fn is_user_known(&self) -> bool {
        self.uid != OVERFLOW_UID
    }
}

/// Whom a connected unix socket leads to.
pub fn peer_of(socket: impl AsFd) -> Option<Process> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel writes at most `len` bytes to `peer`, which is that long.
    let got = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    (got == 0 && len as usize == size_of::<libc::ucred>()).then_some(Process { id: peer.pid, uid: peer.uid })
}

/// Whether this user, listening elsewhere, may be taken for who listens at this address: it is root, the caller's own
/// user, or the user whose TCP socket listens there. Nobody gets more by that than he has.
pub fn may_stand_in(uid: u32, address: SocketAddr) -> bool {
    uid == 0
        || uid == rustix::process::geteuid().as_raw()
        || (uid != OVERFLOW_UID && of_listener(address.ip(), address.port()) == Some(uid))
}

/// Whether what is sent to this address stays on this host. Nothing is sent.
pub fn is_of_this_host(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    if ip.is_loopback() {
        return true;
    }
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    // The kernel sends from the same address exactly then. The port does not matter.
    let own = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).and_then(|socket| {
        connect(&socket, &SocketAddr::new(ip, 9))?;
        getsockname(&socket)
    });
    own.ok().and_then(|own| SocketAddr::try_from(own).ok()).is_some_and(|own| own.ip() == ip)
}

/// The user who listens at this address, or at all of this host's, with this port.
pub fn of_listener(address: IpAddr, port: u16) -> Option<u32> {
    let request = request(address, port);
    let mut answer = [0u8; 512];
    let kernel =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))
            .ok()?;
    if send(&kernel, &request, SendFlags::empty()).ok()? != REQUEST_BYTES {
        return None;
    }
    let (len, _) = recv(&kernel, &mut answer, RecvFlags::empty()).ok()?;
    let answer = answer.get(..len)?;
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != SOCK_DIAG_BY_FAMILY || *answer.get(STATE_AT)? != LISTEN_STATE {
        return None;
    }
    Some(u32::from_ne_bytes(answer.get(UID_AT..UID_AT + 4)?.try_into().ok()?))
}

fn request(address: IpAddr, port: u16) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0u8; REQUEST_BYTES];
    let mut put = |at: usize, value: &[u8]| {
        if let Some(place) = bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    };
    put(0, &(REQUEST_BYTES as u32).to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    put(16, &[family as u8, libc::IPPROTO_TCP as u8]);
    // Any state.
    put(20, &u32::MAX.to_ne_bytes());
    // The socket: its port, none of a peer, its address, that of a peer, any interface, no cookie.
    put(24, &port.to_be_bytes());
    for at in [28, 44] {
        match address {
            IpAddr::V4(address) => put(at, &address.octets()),
            IpAddr::V6(address) => put(at, &address.octets()),
        }
    }
    put(64, &[0xff; 8]);
    bytes
}

#[cfg(test)]
mod tests;
