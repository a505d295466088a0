//! Frames in and frames out: what a stack needs of a network card. Another way to the card (DPDK) is another
//! implementation of [`Link`] and nothing else.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

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

    /// Hands over frames that have come, at most this many; how many there were.
    fn receive(&mut self, most: usize, take: &mut dyn FnMut(&[u8])) -> usize;

    /// Has one frame written and puts it into the queue; `write` says how long it is, or that there is none. `false`:
    /// nothing was queued.
    fn transmit(&mut self, write: &mut dyn FnMut(&mut [u8]) -> Option<usize>) -> bool;

    /// There is room for another frame.
    fn has_room(&mut self) -> bool;

    /// Sends what is in the queue. `false`: some of it has to wait for a later call.
    fn flush(&mut self) -> bool;

    /// Readable when frames have come.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Says what comes to the stack of the TCP to this address. `None`: nothing.
    ///
    /// # Errors
    /// Those of the system.
    fn steer(&mut self, to: SocketAddr, steering: Option<Steering>) -> io::Result<()>;

    /// What was counted.
    fn counters(&mut self) -> LinkCounters;
}
