//! Frames of an interface as they are: AF_PACKET. Needs root.
//!
//! Invariant: a socket receives all frames that arrive at its interface, and none that this host sends there.

use libc::{c_int, c_void, socklen_t};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Frames that may wait, in bytes.
const BUFFER_LEN_BYTES: c_int = 16 << 20;
const IGNORE_OUTGOING: c_int = 23;

/// An address of Ethernet.
pub type Mac = [u8; 6];

/// Frames of an interface as they are: AF_PACKET.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    mac: Mac,
}

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn set(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    let len = size_of::<c_int>() as socklen_t;
    // SAFETY: an int and its length.
    checked(unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast::<c_void>(), len)
    })
    .map(drop)
}

/// A request about an interface, empty but for its name.
fn request(interface: &str) -> io::Result<libc::ifreq> {
    if interface.len() >= libc::IFNAMSIZ {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: plain numbers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name.iter_mut().zip(interface.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
    Ok(request)
}

fn ask(socket: BorrowedFd<'_>, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: a request with the name of an interface; any memory that it points to is the caller's.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut *request) }).map(drop)
}

impl PacketSocket {
    /// Opens one on an interface of this thread's network namespace. It does not block.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn open(interface: &str) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let all = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: no pointers; a new descriptor is ours. With protocol 0 it receives nothing before it is bound.
        let socket = unsafe { OwnedFd::from_raw_fd(checked(libc::socket(libc::AF_PACKET, kind, 0))?) };
        let mut asked = request(interface)?;
        ask(socket.as_fd(), libc::SIOCGIFHWADDR, &mut asked)?;
        // SAFETY: the kernel has filled this part of the union.
        let address = unsafe { asked.ifr_ifru.ifru_hwaddr };
        let mut mac = Mac::default();
        mac.iter_mut().zip(address.sa_data).for_each(|(to, from)| *to = from as u8);
        set(socket.as_fd(), libc::SOL_PACKET, IGNORE_OUTGOING, 1)?;
        set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_LEN_BYTES)?;
        set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER_LEN_BYTES)?;
        let name = CString::new(interface)?;
        // SAFETY: a NUL-terminated name.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        // SAFETY: plain numbers, for which zero is a value.
        let mut place: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        place.sll_family = libc::AF_PACKET as u16;
        place.sll_protocol = all;
        place.sll_ifindex = index as c_int;
        let len = size_of::<libc::sockaddr_ll>() as socklen_t;
        // SAFETY: an address and its length.
        checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const place).cast(), len) })?;
        Ok(Self { socket, mac })
    }

    /// The interface's address.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// The next frame that has come; its length.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn receive(&self, frame: &mut [u8]) -> io::Result<Option<usize>> {
        let pointer = frame.as_mut_ptr().cast::<c_void>();
        // SAFETY: a buffer of this length.
        let len = unsafe { libc::recv(self.socket.as_raw_fd(), pointer, frame.len(), 0) };
        match usize::try_from(len) {
            Ok(len) => Ok(Some(len)),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Sends a frame. `false`: there is no room for it, it is lost.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn send(&self, frame: &[u8]) -> io::Result<bool> {
        let pointer = frame.as_ptr().cast::<c_void>();
        // SAFETY: a buffer of this length.
        let len = unsafe { libc::send(self.socket.as_raw_fd(), pointer, frame.len(), 0) };
        if len >= 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(false),
            error => Err(error),
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Has the kernel itself finish what it sends by an interface of this thread's namespace: frames no larger than the
/// interface's, each with its checksum. Otherwise it leaves that to the card, of which a virtual interface has none.
///
/// # Errors
/// Those of the kernel.
pub fn finish_frames(interface: &str) -> io::Result<()> {
    const SET_SEND_CHECKSUM: u32 = 0x17;
    const SET_SEND_SEGMENTS: u32 = 0x1f;
    const SET_SEGMENTS: u32 = 0x24;
    // SAFETY: no pointers; a new descriptor is ours.
    let socket = unsafe {
        OwnedFd::from_raw_fd(checked(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))?)
    };
    for what in [SET_SEND_SEGMENTS, SET_SEGMENTS, SET_SEND_CHECKSUM] {
        // The kernel's `ethtool_value`: what, and how it is to be.
        let mut value = [what, 0u32];
        let mut request = request(interface)?;
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        ask(socket.as_fd(), libc::SIOCETHTOOL as libc::c_ulong, &mut request)?;
    }
    Ok(())
}
