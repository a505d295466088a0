//! Socket addresses as the kernel and C programs exchange them.

use libc::{c_int, sockaddr, socklen_t};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An address as the kernel writes it.
#[derive(Clone, Copy)]
pub struct Address {
    bytes: [u8; size_of::<libc::sockaddr_in6>()],
    len: usize,
}

type NameOf = unsafe fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;

impl Address {
    /// The address of one end of a socket, by getsockname or getpeername.
    pub fn ask(fd: c_int, call: NameOf) -> Option<Self> {
        let mut bytes = [0u8; size_of::<libc::sockaddr_in6>()];
        let mut len = bytes.len() as socklen_t;
        // SAFETY: a buffer of this length, to which the kernel writes no more.
        let result = unsafe { call(fd, bytes.as_mut_ptr().cast(), &raw mut len) };
        (result == 0).then_some(Self { bytes, len: (len as usize).min(bytes.len()) })
    }

    /// A TCP address as the kernel writes it.
    pub fn of(address: SocketAddr) -> Self {
        let mut bytes = [0u8; size_of::<libc::sockaddr_in6>()];
        let (family, len) = match address {
            SocketAddr::V4(_) => (libc::AF_INET, size_of::<libc::sockaddr_in>()),
            SocketAddr::V6(_) => (libc::AF_INET6, size_of::<libc::sockaddr_in6>()),
        };
        let head = (family as u16).to_ne_bytes().into_iter().chain(address.port().to_be_bytes());
        bytes.iter_mut().zip(head).for_each(|(to, from)| *to = from);
        match address.ip() {
            IpAddr::V4(ip) => bytes.iter_mut().skip(4).zip(ip.octets()).for_each(|(to, from)| *to = from),
            IpAddr::V6(ip) => bytes.iter_mut().skip(8).zip(ip.octets()).for_each(|(to, from)| *to = from),
        }
        Self { bytes, len }
    }

    /// The address in a program's buffer for the kernel.
    ///
    /// # Safety
    /// As for the C function: the buffer has that many bytes.
    pub unsafe fn read(address: *const sockaddr, len: socklen_t) -> Option<Self> {
        let mut bytes = [0u8; size_of::<libc::sockaddr_in6>()];
        let len = len as usize;
        if address.is_null() || len > bytes.len() {
            return None;
        }
        // SAFETY: the caller's bytes, no more than there is room for.
        unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), bytes.as_mut_ptr(), len) };
        Some(Self { bytes, len })
    }

    /// Writes it as getpeername does: as much as fits, and its full length.
    ///
    /// # Safety
    /// As for the C function.
    pub unsafe fn write(&self, address: *mut sockaddr, len: *mut socklen_t) {
        // SAFETY: the caller's.
        if let Some(len) = unsafe { len.as_mut() }.filter(|_| !address.is_null()) {
            let fits = self.len.min(*len as usize);
            // SAFETY: the caller guarantees room for `len` bytes.
            unsafe { std::ptr::copy_nonoverlapping(self.bytes.as_ptr(), address.cast::<u8>(), fits) };
            *len = self.len as socklen_t;
        }
    }

    fn family(&self) -> c_int {
        c_int::from(u16::from_ne_bytes([self.bytes[0], self.bytes[1]]))
    }

    /// The TCP address; an IPv4-mapped IPv6 address is returned as IPv4.
    pub fn tcp(&self) -> Option<SocketAddr> {
        let port = u16::from_be_bytes([self.bytes[2], self.bytes[3]]);
        let ip = match self.family() {
            libc::AF_INET => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(self.bytes.get(4..8)?).ok()?)),
            libc::AF_INET6 => {
                IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(self.bytes.get(8..24)?).ok()?))
            }
            _ => return None,
        };
        Some(SocketAddr::new(ip.to_canonical(), port))
    }
}
