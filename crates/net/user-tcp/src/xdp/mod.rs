//! A queue of a NIC through AF_XDP: the kernel keeps the NIC, its addresses and everything that is not TCP to the
//! destinations that [`Link::steer`] adds.
//!
//! The program in the driver exists while this process has its link open: when the process ends in any way, all frames
//! go to the kernel again.
//!
//! [`rings`] and [`bpf`] have the memory and the system calls; [`program`] is the program that the driver runs.

mod bpf;
mod lanes;
mod program;
mod rings;

pub use lanes::LaneRings;
pub use rings::Watch;

use crate::MOST_CONNECTIONS;
use crate::few::Few;
use crate::interface::Interface;
use crate::lane::Lane;
use crate::link::{
    ETHERNET_LEN_BYTES, Kick, Link, LinkCounters, Mac, MadeLane, MakeLane, Mode, Steering, Written,
};
use crate::next;
use program::{Key, NEW, SHARED, Tuple, assemble};
use rings::{Frames, Ring};
use std::ffi::c_void;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Entries of each ring, and frames on each side.
const COUNT: u32 = 4096;
/// Maximum number of frames in the fill ring: a part of all, so that recently used frames are used again while they are
/// in the processor's caches.
const TO_FILL: u32 = 1024;
/// Maximum number of lanes.
const LANES: u32 = 4096;
/// Calls that send all frames that may be queued: the kernel sends a limited number per call.
pub const KICKS: u32 = COUNT / 32;
/// Maximum number of steered addresses and ports.
const PLACES: u32 = 1024;
/// Headroom that the kernel keeps before a frame.
const HEADROOM_BYTES: usize = 256;
/// Timeout of the retries at a start while the kernel still cleans up after a killed predecessor.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

const FLAG_GENERIC: u32 = 2;
const FLAG_DRIVER: u32 = 4;

/// Reason why a link could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// Capabilities are missing.
    #[error(
        "{call}: {error}; the server needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF (or to be started by root)"
    )]
    Privileges {
        /// The attempted action.
        call: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
    /// Another program uses the interface.
    #[error("{call}: {error}; another XDP program, or another server, uses the interface or its queue")]
    Busy {
        /// The attempted action.
        call: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
    /// Anything else.
    #[error("{call}: {error}")]
    Call {
        /// The attempted action.
        call: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
}

impl XdpError {
    fn new(call: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Privileges { call, error },
            Some(libc::EBUSY) => Self::Busy { call, error },
            _ => Self::Call { call, error },
        }
    }
}

/// A queue of a NIC through AF_XDP.
pub struct Xdp {
    socket: OwnedFd,
    frames: Frames,
    received: Ring<libc::xdp_desc>,
    to_send: Ring<libc::xdp_desc>,
    to_fill: Ring<u64>,
    done: Ring<u64>,
    /// Frames owned by this process, for sending.
    free: Vec<u64>,
    /// Frames owned by this process, for receiving.
    spare: Vec<u64>,
    is_unsent: bool,
    lanes: Vec<(&'static Lane, LaneRings)>,
    /// Lanes with something to send.
    unsent_lanes: Vec<u32>,
    maps: Maps,
    queue: u32,
    interface: Interface,
    mode: Mode,
    mtu_bytes: usize,
    counters: LinkCounters,
    /// Kept open: closing it detaches the program.
    _program: OwnedFd,
}

/// Maps of the program in the driver.
struct Maps {
    places: OwnedFd,
    lanes: OwnedFd,
    sockets: OwnedFd,
}

/// Retries while the system is busy.
fn patiently<Done>(mut call: impl FnMut() -> io::Result<Done>) -> io::Result<Done> {
    let start = Instant::now();
    loop {
        match call() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < PATIENCE => {
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn set<Value>(socket: BorrowedFd<'_>, name: libc::c_int, value: &Value) -> io::Result<()> {
    let pointer = std::ptr::from_ref(value).cast::<c_void>();
    let len = size_of::<Value>() as libc::socklen_t;
    // SAFETY: a value of this length.
    checked(unsafe { next::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, name, pointer, len) }).map(drop)
}

fn get<Value>(socket: BorrowedFd<'_>, name: libc::c_int) -> io::Result<Value> {
    // SAFETY: used for the kernel's structures of numbers only, for which zero is a value.
    let mut value: Value = unsafe { std::mem::zeroed() };
    let pointer = (&raw mut value).cast::<c_void>();
    let mut len = size_of::<Value>() as libc::socklen_t;
    // SAFETY: a value of this length.
    checked(unsafe { next::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, name, pointer, &raw mut len) })?;
    Ok(value)
}

fn bind(socket: BorrowedFd<'_>, index: u32, queue: u32, flags: u16, with: u32) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: with,
    };
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: an address of this length.
    checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}

impl Xdp {
    /// Opens a queue of an interface; nothing is steered to it yet. Zero copy is tried if `zero_copy` is set.
    ///
    /// # Errors
    /// See [`XdpError`].
    pub fn open(interface: &Interface, queue: u32, zero_copy: bool) -> Result<Self, XdpError> {
        let socket = lanes::socket()?;
        // A frame with its headroom.
        let frame_len_bytes =
            if interface.mtu_bytes + ETHERNET_LEN_BYTES + HEADROOM_BYTES <= 2048 { 2048 } else { 4096 };
        let mtu_bytes = interface.mtu_bytes.min(frame_len_bytes - HEADROOM_BYTES - ETHERNET_LEN_BYTES);
        let call = XdpError::new("memory for frames");
        let frames = Frames::new(2 * COUNT as usize, frame_len_bytes).map_err(&call)?;
        set(socket.as_fd(), libc::XDP_UMEM_REG, &frames.registration()).map_err(&call)?;
        let call = XdpError::new("rings of AF_XDP");
        let rings =
            [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING];
        for ring in rings {
            set(socket.as_fd(), ring, &COUNT).map_err(&call)?;
        }
        let offsets: libc::xdp_mmap_offsets = get(socket.as_fd(), libc::XDP_MMAP_OFFSETS).map_err(&call)?;
        let fd = socket.as_fd();
        let received = Ring::new(fd, &offsets.rx, COUNT, libc::XDP_PGOFF_RX_RING as u64).map_err(&call)?;
        let to_send = Ring::new(fd, &offsets.tx, COUNT, libc::XDP_PGOFF_TX_RING as u64).map_err(&call)?;
        let mut to_fill = Ring::new(fd, &offsets.fr, COUNT, libc::XDP_UMEM_PGOFF_FILL_RING).map_err(&call)?;
        let done = Ring::new(fd, &offsets.cr, COUNT, libc::XDP_UMEM_PGOFF_COMPLETION_RING).map_err(&call)?;
        let place = |number: u32| u64::from(number) * frame_len_bytes as u64;
        for number in 0..TO_FILL {
            to_fill.push(place(number));
        }
        let (maps, program, mode) = start(socket.as_fd(), interface, queue, zero_copy)?;
        Ok(Self {
            socket,
            frames,
            received,
            to_send,
            to_fill,
            done,
            free: (COUNT..2 * COUNT).map(place).collect(),
            spare: (TO_FILL..COUNT).map(place).collect(),
            is_unsent: false,
            lanes: Vec::new(),
            unsent_lanes: Vec::new(),
            maps,
            queue,
            interface: interface.clone(),
            mode,
            mtu_bytes,
            counters: LinkCounters::default(),
            _program: program,
        })
    }

    fn collect(&mut self) {
        while let Some(place) = self.done.pop() {
            self.free.push(self.frames.start_of(place));
        }
    }
}

/// Attaches the program in the driver, or behind it, and binds the socket to its queue.
fn start(
    socket: BorrowedFd<'_>,
    interface: &Interface,
    queue: u32,
    zero_copy: bool,
) -> Result<(Maps, OwnedFd, Mode), XdpError> {
    let call = XdpError::new("maps of BPF");
    let sockets = bpf::create_map(bpf::MAP_SOCKETS, 4, 4, LANES + 1, 0).map_err(&call)?;
    let lanes = bpf::create_map(bpf::MAP_HASH, size_of::<Tuple>(), 4, MOST_CONNECTIONS, bpf::ON_DEMAND)
        .map_err(&call)?;
    let places = bpf::create_map(bpf::MAP_HASH, size_of::<Key>(), 4, PLACES, 0).map_err(&call)?;
    let code = assemble(places.as_fd(), lanes.as_fd(), sockets.as_fd(), queue);
    let program = bpf::load_program(&code).map_err(XdpError::new("program of BPF"))?;
    let attach = |flags| patiently(|| bpf::attach(program.as_fd(), interface.index, flags));
    let (link, mut mode) = match attach(FLAG_DRIVER) {
        Ok(link) => (link, Mode::Native),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            return Err(XdpError::new("XDP program in the driver")(error));
        }
        Err(_) => (attach(FLAG_GENERIC).map_err(XdpError::new("XDP program"))?, Mode::Generic),
    };
    let tie = |flags| bind(socket, interface.index, queue, flags | libc::XDP_USE_NEED_WAKEUP, 0);
    if zero_copy && mode == Mode::Native && patiently(|| tie(libc::XDP_ZEROCOPY)).is_ok() {
        mode = Mode::ZeroCopy;
    } else {
        patiently(|| tie(libc::XDP_COPY)).map_err(XdpError::new("binding AF_XDP to the queue"))?;
    }
    bpf::update(sockets.as_fd(), &place_of(None).to_ne_bytes(), socket.as_raw_fd() as u32)
        .map_err(XdpError::new("map of sockets"))?;
    Ok((Maps { places, lanes, sockets }, link, mode))
}

/// Index of the socket of a lane, or of the link, in the socket map.
fn place_of(lane: Option<u32>) -> u32 {
    lane.map_or(0, |lane| lane + 1)
}

/// Result of a kick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All frames are sent, or lost as on a wire.
    All,
    /// Some frames are still queued.
    Part,
    /// All frames are still queued: the interface is down.
    Down,
}

/// Has the kernel send the queued frames.
pub fn send(fd: RawFd) -> Sent {
    // SAFETY: no buffers.
    let result = unsafe { next::sendto(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    match next::errno() {
        _ if result >= 0 => Sent::All,
        libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR => Sent::Part,
        libc::ENETDOWN => Sent::Down,
        _ => Sent::All,
    }
}

fn key(to: SocketAddr) -> Key {
    let mut key = Key::default();
    let family = match to.ip() {
        IpAddr::V4(address) => {
            key.iter_mut().zip(address.octets()).for_each(|(to, from)| *to = from);
            4
        }
        IpAddr::V6(address) => {
            key.iter_mut().zip(address.octets()).for_each(|(to, from)| *to = from);
            6
        }
    };
    let [high, low] = to.port().to_be_bytes();
    let [.., port_high, port_low, tag, _] = &mut key;
    (*port_high, *port_low, *tag) = (high, low, family);
    key
}

/// Key of a connection in the program's map: the local end, and the peer's.
fn tuple([own, peer]: [SocketAddr; 2]) -> Tuple {
    let mut tuple: Tuple = [0; 36];
    let parts = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let ports = [peer.port().to_be_bytes(), own.port().to_be_bytes()].concat();
    let bytes = [parts(peer.ip()), parts(own.ip()), ports].concat();
    tuple.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    tuple
}

impl Link for Xdp {
    fn mtu_bytes(&self) -> usize {
        self.mtu_bytes
    }

    fn mac(&self) -> Mac {
        self.interface.mac
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn has_partial_checksums(&self) -> bool {
        self.interface.is_virtual_pair
    }

    fn receive(&mut self, lane: Option<u32>, most: usize, take: &mut dyn FnMut(&[u8])) -> usize {
        let received = match lane {
            None => &mut self.received,
            Some(lane) => match self.lanes.get_mut(lane as usize) {
                Some((_, rings)) => &mut rings.received,
                None => return 0,
            },
        };
        let mut count = 0;
        while count < most
            && let Some(frame) = received.pop()
        {
            count += 1;
            if let Some(bytes) = self.frames.get(frame.addr, frame.len as usize) {
                take(bytes);
                self.counters.received += 1;
            }
            self.spare.push(self.frames.start_of(frame.addr));
        }
        for _ in self.to_fill.len()..TO_FILL {
            let Some(place) = self.spare.pop() else { break };
            // The ring has room for all frames.
            self.to_fill.push(place);
        }
        count
    }

    fn is_pressed(&self) -> bool {
        self.spare.is_empty() && self.to_fill.len() < TO_FILL / 2
    }

    fn has_room(&mut self) -> bool {
        if self.free.len() < COUNT as usize / 2 {
            self.collect();
        }
        !self.free.is_empty() && self.to_send.len() < COUNT
    }

    fn transmit(&mut self, write: &mut dyn FnMut(&mut [u8]) -> Option<Written>) -> bool {
        if !self.has_room() {
            return false;
        }
        let Some(place) = self.free.pop() else { return false };
        let most = self.mtu_bytes + ETHERNET_LEN_BYTES;
        let space = self.frames.get_mut(place).and_then(|frame| frame.get_mut(..most));
        let Some(written) = space.and_then(write).filter(|written| written.len_bytes <= most) else {
            self.free.push(place);
            return false;
        };
        let entry = libc::xdp_desc { addr: place, len: written.len_bytes as u32, options: 0 };
        self.counters.sent += 1;
        if let Some(lane) = written.lane
            && let Some((_, rings)) = self.lanes.get_mut(lane as usize)
            && rings.to_send.push(entry)
        {
            if !std::mem::replace(&mut rings.is_unsent, true) {
                self.unsent_lanes.push(lane);
            }
        } else {
            // The check above has found room.
            self.to_send.push(entry);
            self.is_unsent = true;
        }
        true
    }

    fn take_kicks(&mut self) -> Few<Kick> {
        let mut kicks = Few::default();
        if std::mem::replace(&mut self.is_unsent, false) && self.to_send.needs_wakeup() {
            kicks.push(Kick { fd: self.socket.as_raw_fd(), lane: None });
        }
        for lane in self.unsent_lanes.drain(..) {
            let kick = self.lanes.get_mut(lane as usize).and_then(|(lane, rings)| rings.kick(lane));
            kick.into_iter().for_each(|kick| kicks.push(kick));
        }
        kicks
    }

    fn put_back(&mut self, kick: Kick) {
        let Some(lane) = kick.lane else {
            self.is_unsent = true;
            return;
        };
        if let Some((_, rings)) = self.lanes.get_mut(lane as usize)
            && !std::mem::replace(&mut rings.is_unsent, true)
        {
            self.unsent_lanes.push(lane);
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn steer(&mut self, to: SocketAddr, steering: Option<Steering>) -> io::Result<()> {
        let key = key(to);
        let Some(Steering { new, shared }) = steering else {
            return match bpf::delete(self.maps.places.as_fd(), &key) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        };
        let value = (u32::from(new) * NEW) | (u32::from(shared) * SHARED);
        bpf::update(self.maps.places.as_fd(), &key, value)
    }

    fn make_lane(&self, most: u32) -> Option<MakeLane> {
        let (place, with) = ((self.interface.index, self.queue), self.socket.as_raw_fd());
        let is_room = self.lanes.len() < most.min(LANES) as usize;
        is_room.then(|| Box::new(move || lanes::make(place, with)) as MakeLane)
    }

    fn add_lane(&mut self, made: MadeLane) -> io::Result<&'static Lane> {
        let MadeLane { mut lane, rings } = made;
        lane.number = self.lanes.len() as u32;
        let place = place_of(Some(lane.number));
        bpf::update(self.maps.sockets.as_fd(), &place.to_ne_bytes(), lane.descriptor() as u32)?;
        let lane: &'static Lane = Box::leak(Box::new(lane));
        self.lanes.push((lane, rings));
        Ok(lane)
    }

    fn steer_connection(&mut self, ends: [SocketAddr; 2], lane: Option<u32>) -> io::Result<()> {
        let (map, tuple) = (self.maps.lanes.as_fd(), tuple(ends));
        match lane {
            Some(lane) => bpf::update(map, &tuple, place_of(Some(lane))),
            None => bpf::delete(map, &tuple),
        }
    }

    fn counters(&mut self) -> LinkCounters {
        let ask = |fd| get::<libc::xdp_statistics>(fd, libc::XDP_STATISTICS).ok();
        let of_lanes = self.lanes.iter().filter_map(|(lane, _)| ask(lane.as_fd()));
        let of_lanes: u64 = of_lanes.map(|all| all.rx_dropped + all.rx_ring_full).sum();
        if let Some(all) = ask(self.socket.as_fd()) {
            // The last counter is the same for all sockets that share frames.
            self.counters.dropped =
                of_lanes + all.rx_dropped + all.rx_ring_full + all.rx_fill_ring_empty_descs;
        }
        self.counters
    }
}

#[cfg(test)]
mod tests;
