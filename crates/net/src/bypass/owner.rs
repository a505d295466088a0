//! Whose a listening TCP socket is, as the kernel says (sock_diag).

use libc::{c_int, c_void};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const LISTEN_STATE: u8 = 10;
/// A header of netlink and a request of inet_diag.
const REQUEST_BYTES: usize = 16 + 56;
/// Of the state and of the user in an answer.
const STATE_AT: usize = 16 + 1;
const UID_AT: usize = 16 + 4 + 48 + 12;

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

/// The user who listens at this address, or at all of this host's, with this port.
pub fn of_listener(address: IpAddr, port: u16) -> Option<u32> {
    const NETLINK_SOCK_DIAG: c_int = 4;
    let request = request(address, port);
    let mut answer = [0u8; 512];
    // SAFETY: buffers of these lengths; a new descriptor is ours.
    let len = unsafe {
        let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
        if fd < 0 {
            return None;
        }
        let socket = OwnedFd::from_raw_fd(fd);
        let fd = socket.as_raw_fd();
        if crate::next::send(fd, request.as_ptr().cast::<c_void>(), request.len(), 0)
            != REQUEST_BYTES as isize
        {
            return None;
        }
        crate::next::recv(fd, answer.as_mut_ptr().cast::<c_void>(), answer.len(), 0)
    };
    let answer = answer.get(..usize::try_from(len).ok()?)?;
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != SOCK_DIAG_BY_FAMILY || *answer.get(STATE_AT)? != LISTEN_STATE {
        return None;
    }
    Some(u32::from_ne_bytes(answer.get(UID_AT..UID_AT + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_listener_has_an_owner_and_nothing_else_has() {
        // SAFETY: no requirement.
        let own = unsafe { libc::geteuid() };
        for (any, address) in [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("::", "127.0.0.1"), ("::1", "::1")] {
            let listener = TcpListener::bind((any, 0)).unwrap();
            let (port, ip) = (listener.local_addr().unwrap().port(), address.parse().unwrap());
            assert_eq!(of_listener(ip, port), Some(own), "{any} {address}");
            let client = TcpStream::connect((address, port)).unwrap();
            assert_eq!(of_listener(ip, client.local_addr().unwrap().port()), None);
            drop(listener);
            assert_eq!(of_listener(ip, port), None);
        }
    }
}
