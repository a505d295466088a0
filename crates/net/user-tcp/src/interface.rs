//! Properties of a network interface.

use crate::link::Mac;
use crate::next;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number in this network namespace.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Largest IP packet.
    pub mtu_bytes: usize,
    /// One end of a pair within this host.
    pub is_virtual_pair: bool,
}

/// The argument of `ETHTOOL_GDRVINFO`.
#[repr(C)]
struct DriverInformation {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

const ETHTOOL_GDRVINFO: u32 = 3;

impl Interface {
    /// Finds the interface of this name.
    ///
    /// # Errors
    /// Those of the kernel, and for an interface that is not Ethernet.
    pub fn find(name: &str) -> io::Result<Self> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "there is no such interface");
        let c_name = CString::new(name).map_err(|_| missing())?;
        // SAFETY: a NUL-terminated name.
        let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        if index == 0 || name.len() >= libc::IFNAMSIZ {
            return Err(missing());
        }
        // SAFETY: no pointers; a new descriptor is ours.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: plain numbers, for which zero is a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let ask = |request: &mut libc::ifreq, what| {
            // SAFETY: a request with the name of an interface, which the kernel fills.
            let result = unsafe { next::ioctl(socket.as_raw_fd(), what, (&raw mut *request).addr()) };
            if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        };
        ask(&mut request, libc::SIOCGIFHWADDR)?;
        // SAFETY: the kernel has filled this part of the union.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        if address.sa_family != libc::ARPHRD_ETHER {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it is not an interface of Ethernet"));
        }
        let mut mac = Mac::default();
        mac.iter_mut().zip(address.sa_data).for_each(|(to, from)| *to = from as u8);
        ask(&mut request, libc::SIOCGIFMTU)?;
        // SAFETY: as above.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        let mut driver = DriverInformation { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
        request.ifr_ifru.ifru_data = (&raw mut driver).cast();
        let is_virtual_pair = ask(&mut request, libc::SIOCETHTOOL as libc::c_ulong).is_ok()
            && driver.rest.len() == 160
            && driver.driver.starts_with(b"veth\0");
        let mtu_bytes = usize::try_from(mtu).unwrap_or(0);
        Ok(Self { name: name.to_owned(), index, mac, mtu_bytes, is_virtual_pair })
    }

    /// It has not been deleted, nor moved to another network namespace.
    pub fn is_there(&self) -> bool {
        let mut name = [0; libc::IFNAMSIZ];
        // SAFETY: room for a name.
        !unsafe { libc::if_indextoname(self.index, name.as_mut_ptr()) }.is_null()
    }

    /// Its current addresses.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn addresses(&self) -> io::Result<BTreeSet<IpAddr>> {
        let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
        // SAFETY: room for the list's address.
        if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut found = BTreeSet::new();
        let mut next = first;
        // SAFETY: null, or an entry of the list, which is there until it is freed below.
        while let Some(entry) = unsafe { next.as_ref() } {
            // SAFETY: every entry has a name.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            if name.to_bytes() == self.name.as_bytes() {
                // SAFETY: null, or an address of the entry.
                found.extend(unsafe { address(entry.ifa_addr) });
            }
            next = entry.ifa_next;
        }
        // SAFETY: the list, once, and nothing refers to it any more.
        unsafe { libc::freeifaddrs(first) };
        Ok(found)
    }
}

/// # Safety
/// Null, or an address as long as its family requires.
unsafe fn address(pointer: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: by the caller's contract.
    let family = unsafe { pointer.as_ref() }?.sa_family;
    match libc::c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: by the caller's contract.
            let address = unsafe { pointer.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: by the caller's contract.
            let address = unsafe { pointer.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}
