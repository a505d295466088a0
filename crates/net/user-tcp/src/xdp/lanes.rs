//! AF_XDP sockets for single connections: they share the frames, the fill ring and the completion ring with the link's
//! own socket. Each has its own receive ring and transmit ring.

use super::rings::Ring;
use super::{XdpError, bind, get, set};
use crate::lane::Lane;
use crate::link::{Kick, MadeLane};
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};

/// Entries of a lane's receive ring: more than a connection's window has.
const RECEIVED: u32 = 1024;
/// Entries of a lane's transmit ring; a frame that does not fit goes by the link's own.
const TO_SEND: u32 = 256;
/// Share the frames of another socket.
const SHARED: u16 = libc::XDP_SHARED_UMEM;

/// The rings of a lane, and whether it has frames to send.
pub struct LaneRings {
    pub(super) received: Ring<libc::xdp_desc>,
    pub(super) to_send: Ring<libc::xdp_desc>,
    pub(super) is_unsent: bool,
}

impl LaneRings {
    pub(super) fn kick(&mut self, lane: &Lane) -> Option<Kick> {
        let is_unsent = std::mem::replace(&mut self.is_unsent, false);
        let kick = Kick { fd: lane.descriptor(), lane: Some(lane.number) };
        (is_unsent && self.to_send.needs_wakeup()).then_some(kick)
    }
}

/// A new AF_XDP socket.
pub fn socket() -> Result<OwnedFd, XdpError> {
    // SAFETY: no pointers; a new descriptor is ours.
    unsafe {
        let fd = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(XdpError::new("socket of AF_XDP")(io::Error::last_os_error()));
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Makes a lane that shares the frames of that socket.
pub fn make((index, queue): (u32, u32), with: RawFd) -> io::Result<MadeLane> {
    let socket = socket().map_err(io::Error::other)?;
    let fd = socket.as_fd();
    set(fd, libc::XDP_RX_RING, &RECEIVED)?;
    set(fd, libc::XDP_TX_RING, &TO_SEND)?;
    let offsets: libc::xdp_mmap_offsets = get(fd, libc::XDP_MMAP_OFFSETS)?;
    let received = Ring::new(fd, &offsets.rx, RECEIVED, libc::XDP_PGOFF_RX_RING as u64)?;
    let to_send = Ring::new(fd, &offsets.tx, TO_SEND, libc::XDP_PGOFF_TX_RING as u64)?;
    bind(fd, index, queue, SHARED, with as u32)?;
    let watch = received.watch();
    let lane = Lane::new(socket, watch)?;
    let rings = LaneRings { received, to_send, is_unsent: false };
    Ok(MadeLane { lane, rings })
}
