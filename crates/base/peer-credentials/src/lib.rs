//! Identity of the process at the other end of a connection on one host, as reported by the kernel:
//!
//! * the user of a listening TCP socket ([`of_listener`]);
//! * the process behind a unix socket ([`peer_of`]);
//! * whether an address belongs to this host ([`is_of_this_host`]);
//! * whether a user may stand in for a listener ([`may_stand_in`]).
//!
//! The crate has no state. It makes system calls directly, because the preloaded libraries hook the calls of the C
//! library. The only exception reads a socket option.

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, getsockname, netlink, recv, send,
    socket_with,
};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const LISTEN_STATE: u8 = 10;
/// Length of a netlink header and an inet_diag request.
const REQUEST_BYTES: usize = 16 + 56;
/// Offsets of the state and the user in an answer.
const STATE_AT: usize = 16 + 1;
const UID_AT: usize = 16 + 4 + 48 + 12;

/// Overflow user id: stands for all users that this user namespace does not map, and not for one user.
const OVERFLOW_UID: u32 = 65_534;

/// A process at the other end of a unix socket, as it was when it connected or began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id; 0 if the process is not visible here.
    pub id: i32,
    /// User id.
    pub uid: u32,
}

impl Process {
    /// Whether the caller's user namespace maps the process's user.
    pub const fn is_user_known(&self) -> bool {
        self.uid != OVERFLOW_UID
    }
}

/// The process at the other end of a connected unix socket.
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

/// Whether this user, with a listener elsewhere, may stand in for the listener at this address. It has to be root, the
/// caller's own user, or the user of the TCP socket that listens there. So the rule grants no user additional rights.
pub fn may_stand_in(uid: u32, address: SocketAddr) -> bool {
    uid == 0
        || uid == rustix::process::geteuid().as_raw()
        || (uid != OVERFLOW_UID && of_listener(address.ip(), address.port()) == Some(uid))
}

/// Whether packets to this address stay on this host. Sends no packet.
pub fn is_of_this_host(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    if ip.is_loopback() {
        return true;
    }
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    // In exactly that case, the kernel sends from the same address. The port does not matter.
    let own = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).and_then(|socket| {
        connect(&socket, &SocketAddr::new(ip, 9))?;
        getsockname(&socket)
    });
    own.ok().and_then(|own| SocketAddr::try_from(own).ok()).is_some_and(|own| own.ip() == ip)
}

/// User of the listener on this port, at this address or at all addresses of the host.
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
