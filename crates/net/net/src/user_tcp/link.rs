//! Frames in and frames out: what a stack needs of a network card. Another way to the card (DPDK) is another
//! implementation of [`Link`] and nothing else.

use super::few::Few;
use super::lane::Lane;
use super::xdp::LaneRings;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};

/// Bytes of a frame before the packet of IP.
pub const ETHERNET_LEN_BYTES: usize = 14;

/// An address of Ethernet.
pub type Mac = [u8; 6];

/// What of the TCP to one address and port comes to the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// New connections do.
    pub new: bool,
    /// The kernel may have connections there, too: what belongs to one of them goes to the kernel.
    pub shared: bool,
}

/// How the frames come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Mode {
    /// By a program of XDP in the driver, without a copy.
    ZeroCopy = 1,
    /// By a program of XDP in the driver, copied once.
    Native = 2,
    /// By a program of XDP behind the driver.
    Generic = 3,
}

/// What a link has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Frames that were handed to the stack.
    pub received: u64,
    /// Frames that the stack has sent.
    pub sent: u64,
    /// Frames that came and were lost before the stack saw them.
    pub dropped: u64,
}

/// How a lane is made, without the link: the kernel may have to wait for it.
pub type MakeLane = Box<dyn FnOnce() -> io::Result<MadeLane> + Send>;

/// A lane that no link has yet.
pub struct MadeLane {
    /// For who waits for it.
    pub lane: Lane,
    /// For the link.
    pub rings: LaneRings,
}

/// A frame that was written.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Its length.
    pub len_bytes: usize,
    /// The lane by which it goes, if not by the link itself.
    pub lane: Option<u32>,
}

/// What a link sends by itself, or by a lane, is sent when the kernel is told so with this descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kick {
    /// The descriptor.
    pub fd: RawFd,
    /// The lane, if it is one's.
    pub lane: Option<u32>,
}

/// One queue of a network card.
pub trait Link: Send {
    /// Largest packet of IP that can be sent and received.
    fn mtu_bytes(&self) -> usize;

    /// The card's address.
    fn mac(&self) -> Mac;

    /// How the frames come.
    fn mode(&self) -> Mode;

    /// Checksums of TCP may be left for the card to fill in, and it has not: a link between two interfaces of this
    /// host.
    fn has_partial_checksums(&self) -> bool;

    /// Hands over frames that have come by a lane or by the link itself, at most this many; how many there were.
    fn receive(&mut self, lane: Option<u32>, most: usize, take: &mut dyn FnMut(&[u8])) -> usize;

    /// Frames that have come and were not handed over take half of the room that there is for frames.
    fn is_pressed(&self) -> bool;

    /// Has one frame written and puts it into the queue; `write` says that there is none by `None`. `false`: nothing was
    /// queued.
    fn transmit(&mut self, write: &mut dyn FnMut(&mut [u8]) -> Option<Written>) -> bool;

    /// There is room for another frame by the link itself.
    fn has_room(&mut self) -> bool;

    /// What has to be kicked, without the lock that guards the link, for what is queued to be sent.
    fn take_kicks(&mut self) -> Few<Kick>;

    /// A kick was in vain.
    fn put_back(&mut self, kick: Kick);

    /// Readable when frames have come by the link itself.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// How one more lane is made, of which there may be so many. `None`: there are enough.
    fn make_lane(&self, most: u32) -> Option<MakeLane>;

    /// Takes a lane that was made, and gives it its number; it is there for good.
    ///
    /// # Errors
    /// Those of the system.
    fn add_lane(&mut self, made: MadeLane) -> io::Result<&'static Lane>;

    /// Says by which lane a connection's frames come, of which the ends are given: ours, and the peer's. `None`: by the
    /// link itself.
    ///
    /// # Errors
    /// Those of the system.
    fn steer_connection(&mut self, ends: [SocketAddr; 2], lane: Option<u32>) -> io::Result<()>;

    /// Says what comes to the stack of the TCP to this address. `None`: nothing.
    ///
    /// # Errors
    /// Those of the system.
    fn steer(&mut self, to: SocketAddr, steering: Option<Steering>) -> io::Result<()>;

    /// Counters.
    fn counters(&mut self) -> LinkCounters;
}
