//! Frames in and frames out: the interface between a stack and a NIC. Another access to the NIC (DPDK) is another
//! implementation of [`Link`] and nothing else.

use crate::few::Few;
use crate::lane::Lane;
use crate::xdp::LaneRings;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};

/// Bytes of a frame before the IP packet.
pub const ETHERNET_LEN_BYTES: usize = 14;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Steering of the TCP traffic to one address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// New connections come to the stack.
    pub new: bool,
    /// The kernel may have connections there, too: their packets go to the kernel.
    pub shared: bool,
}

/// Path of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Mode {
    /// By an XDP program in the driver, without a copy.
    ZeroCopy = 1,
    /// By an XDP program in the driver, copied once.
    Native = 2,
    /// By an XDP program behind the driver.
    Generic = 3,
}

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Frames that were passed to the stack.
    pub received: u64,
    /// Frames that the stack has sent.
    pub sent: u64,
    /// Frames that were lost before the stack received them.
    pub dropped: u64,
}

/// Constructor of a lane, to be called without the link: the kernel may block.
pub type MakeLane = Box<dyn FnOnce() -> io::Result<MadeLane> + Send>;

/// A lane that was not added to a link yet.
pub struct MadeLane {
    /// For the thread that waits for it.
    pub lane: Lane,
    /// For the link.
    pub rings: LaneRings,
}

/// A frame that was written.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Its length.
    pub len_bytes: usize,
    /// The lane that sends it; `None`: the link itself.
    pub lane: Option<u32>,
}

/// A kick: a system call on this descriptor has the kernel send the queued frames of a link or a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kick {
    /// The descriptor.
    pub fd: RawFd,
    /// The lane, if the descriptor is a lane's.
    pub lane: Option<u32>,
}

/// One queue of a NIC.
pub trait Link: Send {
    /// Largest IP packet that can be sent and received.
    fn mtu_bytes(&self) -> usize;

    /// The NIC's Ethernet address.
    fn mac(&self) -> Mac;

    /// Path of the frames.
    fn mode(&self) -> Mode;

    /// TCP checksums of received frames may be incomplete, because they are left to a NIC: a link between two
    /// interfaces of this host.
    fn has_partial_checksums(&self) -> bool;

    /// Passes at most `most` frames of a lane or of the link itself to `take`, and returns their number.
    fn receive(&mut self, lane: Option<u32>, most: usize, take: &mut dyn FnMut(&[u8])) -> usize;

    /// Received frames that were not passed on occupy half of the room for frames.
    fn is_pressed(&self) -> bool;

    /// Has one frame written and queues it; `write` returns `None` if there is none. `false`: nothing was queued.
    fn transmit(&mut self, write: &mut dyn FnMut(&mut [u8]) -> Option<Written>) -> bool;

    /// There is room for another frame by the link itself.
    fn has_room(&mut self) -> bool;

    /// The pending kicks for queued frames, to be made without the lock that guards the link.
    fn take_kicks(&mut self) -> Few<Kick>;

    /// A kick has not sent everything.
    fn put_back(&mut self, kick: Kick);

    /// Readable when the link itself has frames.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Constructor of one more lane, at most `most` in all. `None`: there are enough.
    fn make_lane(&self, most: u32) -> Option<MakeLane>;

    /// Adds a lane and assigns its number; it is never freed.
    ///
    /// # Errors
    /// Those of the system.
    fn add_lane(&mut self, made: MadeLane) -> io::Result<&'static Lane>;

    /// Sets the lane that receives a connection's frames. The ends are the local address and the peer's. `None`: the
    /// link itself.
    ///
    /// # Errors
    /// Those of the system.
    fn steer_connection(&mut self, ends: [SocketAddr; 2], lane: Option<u32>) -> io::Result<()>;

    /// Sets the steering of the TCP traffic to this address. `None`: nothing comes to the stack.
    ///
    /// # Errors
    /// Those of the system.
    fn steer(&mut self, to: SocketAddr, steering: Option<Steering>) -> io::Result<()>;

    /// Counters.
    fn counters(&mut self) -> LinkCounters;
}
