//! A cable between two hosts that loses, doubles, holds back and damages what it carries, by seed, each direction by
//! itself. One thread passes frames on between the two ends in the middle of a [`NetworkPair`].
//!
//! Faults affect TCP frames only: others have no checksum that covers all of their bytes. The Ethernet header stays
//! intact, because a NIC would detect a change there by a checksum that is absent here. Both hosts finish their frames
//! themselves ([`finish_frames`]), so that the checksum of a damaged frame is wrong.

use crate::packet_socket::{PacketSocket, finish_frames};
use redoubt_locks::IgnorePoison;
use redoubt_test_support::{NetworkPair, Side};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ETHERNET_LEN_BYTES: usize = 14;
const TCP: u8 = 6;
const TCP_LEN_BYTES: usize = 20;
/// Frames that are taken from one end before the other has its turn.
const BATCH: usize = 64;
/// How soon the end is seen.
const LOOK: Duration = Duration::from_millis(20);

/// Faults for the frames of one direction, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Do not arrive.
    pub lost: u32,
    /// Arrive twice, the second time a little later.
    pub doubled: u32,
    /// Arrive up to `late` later than those after them.
    pub held_back: u32,
    /// See `held_back`.
    pub late: Duration,
    /// One bit is another one, or the end is cut off.
    pub damaged: u32,
}

impl Faults {
    /// So many of a thousand of each.
    #[must_use]
    pub const fn of_each(thousandths: u32) -> Self {
        let late = Duration::from_millis(5);
        Self { lost: thousandths, doubled: thousandths, held_back: thousandths, late, damaged: thousandths }
    }
}

/// Counts of the faults in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// All that came.
    pub frames: u64,
    /// See [`Faults`].
    pub lost: u64,
    /// See [`Faults`].
    pub doubled: u64,
    /// See [`Faults`].
    pub held_back: u64,
    /// See [`Faults`].
    pub damaged: u64,
    /// There was no room for them.
    pub dropped: u64,
}

/// See the module. Ends when it is dropped.
#[derive(Debug)]
pub struct BadCable {
    has_ended: Arc<AtomicBool>,
    /// To the server, and to the client.
    faults: Arc<Mutex<[Faults; 2]>>,
    happened: Arc<Mutex<[Happened; 2]>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl BadCable {
    /// Joins the two ends of a pair with a middle. At first nothing bad happens.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn join(pair: &NetworkPair, seed: u64) -> io::Result<Self> {
        for side in [Side::Server, Side::Client] {
            pair.within(side, || finish_frames(NetworkPair::INTERFACE))?;
        }
        let [server, client] = NetworkPair::ENDS;
        let open = || Ok::<_, io::Error>([PacketSocket::open(server)?, PacketSocket::open(client)?]);
        let ends = pair.within(Side::Middle, open)?;
        let has_ended = Arc::new(AtomicBool::new(false));
        let (faults, happened) = (Arc::default(), Arc::default());
        let mut carrier = Carrier {
            ends,
            directions: [0, 1].map(|direction| Direction::new(seed ^ (direction << 32))),
            faults: Arc::clone(&faults),
            happened: Arc::clone(&happened),
        };
        let ends_when = Arc::clone(&has_ended);
        let thread = std::thread::Builder::new().name("bad-cable".to_owned()).spawn(move || {
            while !ends_when.load(Ordering::Acquire) {
                carrier.step()?;
            }
            Ok(())
        })?;
        Ok(Self { has_ended, faults, happened, thread: Some(thread) })
    }

    /// Sets the faults for frames to the server, and to the client.
    pub fn set(&self, faults: [Faults; 2]) {
        *self.faults.lock().ignore_poison() = faults;
    }

    /// Counts of the faults for frames to the server, and to the client.
    pub fn happened(&self) -> [Happened; 2] {
        *self.happened.lock().ignore_poison()
    }

    /// The frames that are held back are lost.
    ///
    /// # Errors
    /// With which it has ended before.
    pub fn end(mut self) -> io::Result<[Happened; 2]> {
        self.has_ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the cable's thread has panicked")))?;
        }
        Ok(self.happened())
    }
}

impl Drop for BadCable {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A caller that needs the result has called `end`.
            let _ = thread.join();
        }
    }
}

/// A frame that arrives later, in the order of its time.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    at: Instant,
    number: u64,
    frame: Vec<u8>,
}

/// Frames to one end.
struct Direction {
    rng: fastrand::Rng,
    held: BinaryHeap<Reverse<Held>>,
    numbers: u64,
}

struct Carrier {
    ends: [PacketSocket; 2],
    directions: [Direction; 2],
    faults: Arc<Mutex<[Faults; 2]>>,
    happened: Arc<Mutex<[Happened; 2]>>,
}

impl Carrier {
    fn step(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let faults = *self.faults.lock().ignore_poison();
        let mut happened = *self.happened.lock().ignore_poison();
        let before = happened;
        let [server, client] = &self.ends;
        let ways = [(client, server), (server, client)];
        let mut frame = vec![0; 1 << 16];
        for (((from, to), direction), (faults, happened)) in
            ways.into_iter().zip(&mut self.directions).zip(faults.into_iter().zip(&mut happened))
        {
            direction.deliver(to, now, happened)?;
            for _ in 0..BATCH {
                let Some(len) = from.receive(&mut frame)? else { break };
                direction.pass(to, &frame[..len], faults, now, happened)?;
            }
        }
        let is_idle = before.iter().zip(&happened).all(|(before, now)| before.frames == now.frames);
        *self.happened.lock().ignore_poison() = happened;
        if is_idle {
            self.sleep();
        }
        Ok(())
    }

    /// Until a frame comes or is due.
    fn sleep(&self) {
        let due = self.directions.iter().filter_map(|direction| direction.held.peek());
        let due = due.map(|Reverse(held)| held.at).min();
        let longest = due.map_or(LOOK, |due| due.saturating_duration_since(Instant::now()).min(LOOK));
        let entry = |end: &PacketSocket| libc::pollfd {
            fd: end.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let [first, second] = &self.ends;
        let mut list = [entry(first), entry(second)];
        let timeout = libc::timespec { tv_sec: 0, tv_nsec: i64::from(longest.subsec_nanos()) };
        // SAFETY: a list of this length, and a time that lives long enough.
        unsafe { libc::ppoll(list.as_mut_ptr(), 2, &raw const timeout, std::ptr::null()) };
    }
}

impl Direction {
    fn new(seed: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), held: BinaryHeap::new(), numbers: 0 }
    }

    fn happens(&mut self, thousandths: u32) -> bool {
        self.rng.u32(..1000) < thousandths
    }

    /// Sends the held frames that are due by now.
    fn deliver(&mut self, to: &PacketSocket, now: Instant, happened: &mut Happened) -> io::Result<()> {
        while self.held.peek().is_some_and(|Reverse(held)| held.at <= now) {
            let Some(Reverse(held)) = self.held.pop() else { break };
            happened.dropped += u64::from(!to.send(&held.frame)?);
        }
        Ok(())
    }

    fn hold(&mut self, frame: &[u8], at: Instant) {
        self.numbers += 1;
        self.held.push(Reverse(Held { at, number: self.numbers, frame: frame.to_vec() }));
    }

    fn pass(
        &mut self,
        to: &PacketSocket,
        frame: &[u8],
        faults: Faults,
        now: Instant,
        happened: &mut Happened,
    ) -> io::Result<()> {
        happened.frames += 1;
        let Some(tcp) = tcp_of(frame) else {
            happened.dropped += u64::from(!to.send(frame)?);
            return Ok(());
        };
        if self.happens(faults.lost) {
            happened.lost += 1;
            return Ok(());
        }
        let mut frame = std::borrow::Cow::Borrowed(frame);
        if self.happens(faults.damaged) && !is_left_to_a_card(&frame, tcp) {
            happened.damaged += 1;
            self.damage(frame.to_mut(), tcp);
        }
        let late = faults.late.as_micros() as u64 + 1;
        if self.happens(faults.doubled) {
            happened.doubled += 1;
            let after = Duration::from_micros(self.rng.u64(..late));
            self.hold(&frame, now + after);
        }
        if self.happens(faults.held_back) {
            happened.held_back += 1;
            let after = Duration::from_micros(self.rng.u64(..late));
            self.hold(&frame, now + after);
        } else {
            happened.dropped += u64::from(!to.send(&frame)?);
        }
        Ok(())
    }

    /// One bit of the IP header, of the TCP header, or of the data, or less of it. A single bit changes every checksum.
    fn damage(&mut self, frame: &mut Vec<u8>, tcp: usize) {
        let data = (tcp + TCP_LEN_BYTES).min(frame.len() - 1);
        let place = match self.rng.u32(..4) {
            0 => self.rng.usize(ETHERNET_LEN_BYTES..tcp),
            1 => self.rng.usize(tcp..=data),
            2 => self.rng.usize(data..frame.len()),
            _ => {
                let len = self.rng.usize(ETHERNET_LEN_BYTES + 1..frame.len());
                return frame.truncate(len);
            }
        };
        if let Some(byte) = frame.get_mut(place) {
            *byte ^= 1 << self.rng.u32(..8);
        }
    }
}

/// Where the TCP header begins, if it is TCP.
fn tcp_of(frame: &[u8]) -> Option<usize> {
    let packet = frame.get(ETHERNET_LEN_BYTES..)?;
    let place = match (frame.get(12..14)?, packet.first()? >> 4) {
        ([0x08, 0x00], 4) if packet.get(9) == Some(&TCP) => usize::from(packet.first()? & 15) * 4,
        ([0x86, 0xdd], 6) if packet.get(6) == Some(&TCP) => 40,
        _ => return None,
    };
    let place = ETHERNET_LEN_BYTES + place;
    (frame.len() >= place + TCP_LEN_BYTES).then_some(place)
}

/// One frame in 65,536 has a checksum that equals the sum of its addresses and length alone. On a link within a host
/// such a checksum means that a NIC is to complete it, so the receiver does not verify it.
fn is_left_to_a_card(frame: &[u8], tcp: usize) -> bool {
    let half =
        |at: usize| frame.get(at..at + 2).map_or(0, |pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let is_ipv6 = tcp == ETHERNET_LEN_BYTES + 40;
    let addresses = if is_ipv6 { 22..54 } else { 26..34 };
    let sum: u32 = addresses.step_by(2).map(half).sum();
    let end = if is_ipv6 { frame.len() } else { ETHERNET_LEN_BYTES + half(16) as usize };
    let sum = sum + end.saturating_sub(tcp) as u32 + u32::from(TCP);
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    half(tcp + 16) == folded
}
