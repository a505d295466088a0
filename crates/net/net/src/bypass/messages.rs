//! Messages of one byte on a unix socket, with descriptors.

use libc::{c_int, c_uint, c_void, cmsghdr, iovec, msghdr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Number of descriptors in a message.
pub const COUNT: usize = 2;
const PAYLOAD_BYTES: c_uint = (COUNT * size_of::<c_int>()) as c_uint;

/// Room for the control message, aligned as one.
#[repr(C, align(8))]
struct Room([u8; 64]);

fn message(byte: &mut [u8; 1], part: &mut iovec, room: &mut Room) -> msghdr {
    *part = iovec { iov_base: byte.as_mut_ptr().cast::<c_void>(), iov_len: 1 };
    // SAFETY: zeros are a valid header.
    let mut header: msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    header.msg_control = room.0.as_mut_ptr().cast();
    // SAFETY: a function of a length.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(PAYLOAD_BYTES) } as usize;
    header
}

fn empty() -> (iovec, Room) {
    (iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }, Room([0; 64]))
}

/// Sends a byte and the descriptors.
pub fn send(socket: &impl AsRawFd, byte: u8, descriptors: [c_int; COUNT]) -> bool {
    let (mut part, mut room) = empty();
    let mut byte = [byte];
    let header = message(&mut byte, &mut part, &mut room);
    // SAFETY: the room is large enough for one control message with these descriptors, aligned, and lives on.
    unsafe {
        let control: *mut cmsghdr = libc::CMSG_FIRSTHDR(&raw const header);
        (*control).cmsg_level = libc::SOL_SOCKET;
        (*control).cmsg_type = libc::SCM_RIGHTS;
        (*control).cmsg_len = libc::CMSG_LEN(PAYLOAD_BYTES) as usize;
        libc::CMSG_DATA(control).cast::<[c_int; COUNT]>().write_unaligned(descriptors);
        crate::next::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
            == 1
    }
}

/// Result of a receive.
pub enum Received {
    /// No message yet.
    Nothing,
    /// The byte and the expected descriptors.
    Message(u8, [OwnedFd; COUNT]),
    /// The end, or something else.
    End,
}

/// Receives what [`send`] sends, without waiting.
pub fn receive(socket: &impl AsRawFd) -> Received {
    let (mut part, mut room) = empty();
    let mut byte = [0u8];
    let mut header = message(&mut byte, &mut part, &mut room);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: a byte and room of these lengths.
    let len = unsafe { crate::next::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    if len < 0 && matches!(crate::next::errno(), libc::EAGAIN | libc::EINTR) {
        return Received::Nothing;
    }
    let mut descriptors = received(&header);
    match (len, descriptors.pop(), descriptors.pop(), descriptors.pop()) {
        (1, Some(second), Some(first), None) => Received::Message(byte[0], [first, second]),
        _ => Received::End,
    }
}

/// Takes ownership of all received descriptors, so that they are closed whatever they are.
fn received(header: &msghdr) -> Vec<OwnedFd> {
    let mut all = Vec::new();
    // SAFETY: the kernel has written control messages of these lengths; the descriptors in them are this process's.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while !control.is_null() {
            if (*control).cmsg_level == libc::SOL_SOCKET && (*control).cmsg_type == libc::SCM_RIGHTS {
                let len_bytes = ((*control).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(control).cast::<c_int>();
                all.extend(
                    (0..len_bytes / size_of::<c_int>())
                        .map(|at| OwnedFd::from_raw_fd(data.add(at).read_unaligned())),
                );
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    all
}
