//! A stack: one queue of a NIC, the TCP over it, its connections, and the thread that serves them.
//!
//! One lock guards everything. The server's threads read and write under it, and send their frames themselves: an
//! answer needs no other thread. Frames of a lane (see [`crate::lane`]) are received by the thread that waits for its
//! connection, or for its epoll set (see [`crate::sets`]). Frames of the link itself are received by the stack's
//! thread, which wakes the waiting thread. These are handshakes, the first statements, and connections that are waited
//! for with others. Rings between the threads would save the lock, and cost a second copy of all bytes and another
//! thread's wake-up for each answer.
//!
//! The thread sleeps in poll for frames and for its doorbell. A thread of the server rings the doorbell for a timer
//! that is due before the stack's thread would wake up by itself. That is never later than [`DOZE`] after the last
//! work, so that the usual timers of answers do not need the bell. While awake, the thread also receives the frames of
//! unattended lanes, whose threads are at work: every [`CARE`] if such a connection has unsent bytes.
//!
//! Lock order: a stack, then the queue of a listener or the members of a set; never two stacks. The lock is released
//! before threads are woken and before the kernel is called to send. Under it are only calls that do not wait: the
//! signal of a connection on which a thread waits in the kernel, and changes of the maps of the program in the driver.

mod frames;
mod lanes;
mod listening;
mod sets;

use crate::doorbell::Doorbell;
use crate::few::Few;
use crate::interface::Interface;
use crate::lane::{self, Lane};
use crate::link::{Kick, Link, Mac, Mode, Steering};
use crate::neighbours::Neighbours;
use crate::next;
use crate::options::KeepaliveSetting;
use crate::shadow::{Accepted, Shadow};
use crate::socket::{self, Socket};
use crate::status;
use crate::xdp::Sent;
use libc::c_int;
use redoubt_locks::{IgnorePoison, IgnorePoisonIfFree};
use redoubt_tcp::{Config, ConnectionError, ConnectionId, Engine, ListenerId, Micros};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Frames received before other threads get the lock.
const BATCH: usize = 64;
/// Maximum sleep of the thread shortly after work, and so the maximum delay of a timer.
const DOZE: Duration = Duration::from_millis(10);
/// Maximum sleep when something could not be sent, or an unattended lane has a connection with unsent bytes.
const CARE: Duration = Duration::from_millis(1);
/// Attempts to take the lock before the thread blocks on it, and the pause between them.
const YIELDS: usize = 8;
const SPINS: usize = 64;
/// Sends per call of `finish`, before the rest is left to the stack's thread.
const ROUNDS: usize = 64;
/// Limit of pending connections whose source address is remembered.
const MOST_OPENING: usize = 4096;
/// Interval between checks of the interface's addresses and of the configuration.
const LOOK: Duration = Duration::from_secs(1);
/// Idle time before the thread sleeps longer.
const REST: Duration = Duration::from_secs(1);

/// One connection, for the server or for its listener's queue.
pub struct Slot {
    /// The connection as the server's threads see it.
    pub socket: &'static Socket,
    /// `None`: free.
    pub id: Option<ConnectionId>,
    /// Local address.
    pub local: SocketAddr,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// The server has ended reading, writing.
    pub is_shut: [bool; 2],
    /// An error that the server has not received yet.
    pub error: c_int,
    /// The server has received the error with which the connection ended.
    pub is_told: bool,
    /// TCP_NODELAY.
    pub is_nodelay: bool,
    /// SO_KEEPALIVE and its parameters.
    pub keepalive: KeepaliveSetting,
    /// The server gets its addresses as IPv6 addresses.
    pub is_ipv6: bool,
    /// Source address of its last frame.
    card: Mac,
    /// The lane for its frames; `None`: the link itself.
    lane: Option<&'static Lane>,
    /// Threads that wait for this connection alone although it is in a set.
    apart: u32,
    /// Readable bytes at the last check.
    unread_bytes: u32,
    /// The kernel polls the placeholder: it is kept readable while the connection is.
    is_armed: bool,
    /// Threads that wait in the kernel for room: it is readable when there is room, too.
    waits_for_room: u32,
    is_signalled: bool,
}

struct Listening {
    place: SocketAddr,
    id: ListenerId,
    shadow: &'static Shadow,
    steering: Steering,
}

/// Stack state under the lock.
pub struct Inner {
    /// TCP.
    pub engine: Engine,
    link: Box<dyn Link>,
    neighbours: Neighbours,
    /// Source addresses of pending connections, by their peers.
    opening: HashMap<SocketAddr, Mac>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots by engine index; an entry is valid only if the slot has the same connection.
    by_place: Vec<u32>,
    connections: usize,
    lanes: lanes::Lanes,
    listening: Vec<Listening>,
    addresses: BTreeSet<IpAddr>,
    /// Local addresses of connections that the interface has lost: they are silent until it has the address again.
    absent: BTreeSet<SocketAddr>,
    /// New connections are accepted.
    pub is_on: bool,
    /// Its interface was deleted.
    pub is_gone: bool,
    wake: Few<&'static Socket>,
    knock: Few<&'static Shadow>,
    /// The kernel has not sent everything at once.
    is_unsent: bool,
    opened: u64,
    /// Number of received frames.
    frames: u64,
}

/// Work to be done without the lock.
struct Todo {
    wake: Few<&'static Socket>,
    knock: Few<&'static Shadow>,
    kicks: Few<Kick>,
    /// The link had no room for all pending frames.
    is_blocked: bool,
}

/// One queue of a NIC with TCP, its connections and their thread.
pub struct Stack {
    inner: Mutex<Inner>,
    doorbell: Doorbell,
    interface: Interface,
    number: usize,
    begin: Instant,
    /// Time at which the thread wakes up by itself, in microseconds; 0: it is awake, or checks again before it sleeps.
    wakes_at: AtomicU64,
}

/// The slot of a connection, if it has one.
fn slot_of(slots: &[Slot], by_place: &[u32], id: ConnectionId) -> Option<u32> {
    let number = by_place.get(id.index() as usize).copied()?;
    slots.get(number as usize).filter(|slot| slot.id == Some(id)).map(|_| number)
}

fn errno_of(error: ConnectionError) -> c_int {
    match error {
        ConnectionError::Reset => libc::ECONNRESET,
        ConnectionError::TimedOut => libc::ETIMEDOUT,
    }
}

impl Stack {
    /// Makes a stack over a link and starts its thread; the stack is never freed.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start(number: usize, interface: Interface, link: Box<dyn Link>) -> std::io::Result<&'static Self> {
        let mut config = Config::new(crate::secret()?);
        config.mtu_len_bytes = u16::try_from(link.mtu_bytes()).unwrap_or(u16::MAX);
        config.max_connections = crate::MOST_CONNECTIONS;
        config.max_half_open = crate::MOST_HALF_OPEN;
        let engine = Engine::new(config).map_err(std::io::Error::other)?;
        let addresses = interface.addresses()?;
        let inner = Inner {
            engine,
            link,
            neighbours: Neighbours::default(),
            opening: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            by_place: Vec::new(),
            connections: 0,
            lanes: lanes::Lanes::default(),
            listening: Vec::new(),
            addresses,
            absent: BTreeSet::new(),
            is_on: true,
            is_gone: false,
            wake: Few::default(),
            knock: Few::default(),
            is_unsent: false,
            opened: 0,
            frames: 0,
        };
        let stack: &'static Self = Box::leak(Box::new(Self {
            inner: Mutex::new(inner),
            doorbell: Doorbell::new()?,
            interface,
            number,
            begin: Instant::now(),
            wakes_at: AtomicU64::new(0),
        }));
        crate::without_signals(|| {
            std::thread::Builder::new().name(format!("redoubt-tcp-{number}")).spawn(move || stack.run())
        })?;
        Ok(stack)
    }

    /// Number of the stack.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Description for the log.
    pub fn description(&self) -> String {
        let inner = self.lock();
        let mode = match inner.link.mode() {
            Mode::ZeroCopy => "in the driver, without copies",
            Mode::Native => "in the driver",
            Mode::Generic => "behind the driver",
        };
        format!("{mode}, packets of {} bytes", inner.link.mtu_bytes())
    }

    fn now(&self) -> Micros {
        Micros(u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The lock is held for a short time. A thread that holds it for longer was preempted, and yielding lets it run
        // again. Sleeping on the lock would cost each of the two threads a system call more.
        for _ in 0..YIELDS {
            if let Some(guard) = self.inner.try_lock().ignore_poison_if_free() {
                return guard;
            }
            for _ in 0..SPINS {
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
        self.inner.lock().ignore_poison()
    }

    /// Calls a function with the stack, and then does the resulting work.
    pub fn with<Done>(&'static self, call: impl FnOnce(&mut Inner, Micros) -> Done) -> Done {
        let mut inner = self.lock();
        let now = self.now();
        let done = call(&mut inner, now);
        self.finish(inner, now);
        done
    }

    /// Does the work that results from a change, and releases the lock.
    fn finish<'lock>(&'lock self, mut inner: MutexGuard<'lock, Inner>, now: Micros) {
        for _ in 0..ROUNDS {
            inner.settle(now);
            let todo = inner.take_todo();
            let wakes_at = self.wakes_at.load(Ordering::Relaxed);
            let is_early = wakes_at > now.0 + DOZE.as_micros() as u64 && inner.is_due_before(wakes_at);
            if is_early {
                self.wakes_at.store(0, Ordering::Relaxed);
            }
            drop(inner);
            todo.wake();
            if is_early {
                self.doorbell.ring();
            }
            let (in_vain, is_down) = todo.kick();
            if in_vain.is_empty() && !todo.is_blocked {
                return;
            }
            inner = self.lock();
            in_vain.iter().for_each(|kick| inner.link.put_back(kick));
            if is_down {
                // The next thread that sends tries again, or the stack's thread when it wakes up.
                return;
            }
            if !in_vain.is_empty() {
                break;
            }
        }
        inner.is_unsent = true;
        let is_asleep = self.wakes_at.swap(0, Ordering::Relaxed) != 0;
        drop(inner);
        if is_asleep {
            self.doorbell.ring();
        }
    }

    fn run(&'static self) {
        let mut looked = Instant::now();
        let (mut worked, mut frames) = (looked, 0);
        loop {
            let mut inner = self.lock();
            let now = self.now();
            self.wakes_at.store(0, Ordering::Relaxed);
            let count = inner.receive(None, now) + inner.receive_unattended(now);
            inner.engine.advance(now);
            inner.accept(self);
            inner.is_unsent = false;
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                inner.look(now, &self.interface);
                status::publish(self.number, &self.interface.name, &mut inner);
            }
            if std::mem::replace(&mut frames, inner.frames) != inner.frames {
                worked = Instant::now();
            }
            self.finish(inner, now);
            if count == 0 {
                self.rest(worked);
            }
        }
    }

    /// Sleeps until there is something to do.
    fn rest(&self, worked: Instant) {
        let inner = self.lock();
        let now = self.now();
        let longest = match worked.elapsed() < REST {
            _ if inner.is_unsent || inner.has_unattended_work() => CARE,
            true => DOZE,
            false => LOOK,
        };
        let until = inner.engine.next_timer().map_or(u64::MAX, |due| due.0);
        let until = until.min(now.0.saturating_add(longest.as_micros() as u64)).max(1);
        self.wakes_at.store(until, Ordering::Relaxed);
        let link = inner.link.descriptor().as_raw_fd();
        drop(inner);
        self.sleep(link, Duration::from_micros(until.saturating_sub(now.0)));
    }

    fn sleep(&self, link: c_int, longest: Duration) {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut list = [entry(link), entry(self.doorbell.as_raw_fd())];
        let timeout = socket::timespec(longest);
        let none = std::ptr::null();
        // SAFETY: a list of this length, and a time that lives long enough.
        unsafe { next::ppoll(list.as_mut_ptr(), list.len() as libc::nfds_t, &raw const timeout, none) };
        let [_, bell] = list;
        if bell.revents != 0 {
            self.doorbell.clear();
        }
    }
}

impl Todo {
    fn wake(&self) {
        self.wake.iter().for_each(Socket::wake);
        self.knock.iter().for_each(Shadow::knock);
    }

    /// The kicks that did not send everything, and whether the interface is down.
    fn kick(&self) -> (Few<Kick>, bool) {
        let (mut in_vain, mut is_down) = (Few::default(), false);
        for kick in self.kicks.iter() {
            match lane::kick(kick.fd) {
                Sent::All => continue,
                Sent::Part => {}
                Sent::Down => is_down = true,
            }
            in_vain.push(kick);
        }
        (in_vain, is_down)
    }
}

impl Inner {
    fn take_todo(&mut self) -> Todo {
        Todo {
            wake: std::mem::take(&mut self.wake),
            knock: std::mem::take(&mut self.knock),
            kicks: self.link.take_kicks(),
            is_blocked: !self.link.has_room(),
        }
    }

    /// The stack's thread has to be awake before that time.
    fn is_due_before(&self, time: u64) -> bool {
        // Lanes in use have to be served while their threads are at work.
        self.lanes.is_any_used() || self.engine.next_timer().is_some_and(|due| due.0 < time)
    }

    /// Does the work that results from a change: threads to wake, frames to send.
    fn settle(&mut self, now: Micros) {
        self.refresh_changed();
        self.transmit(now);
    }

    fn refresh_changed(&mut self) {
        while let Some(id) = self.engine.changed() {
            if let Some(slot) = slot_of(&self.slots, &self.by_place, id) {
                self.refresh(slot);
            }
        }
    }

    /// Takes the connections that the engine has ready for listeners.
    pub fn accept(&mut self, stack: &'static Stack) {
        for at in 0..self.listening.len() {
            while let Some(listening) = self.listening.get(at).filter(|listening| listening.shadow.has_room())
            {
                let (local, shadow) = (listening.place, listening.shadow);
                let Some((connection, peer)) = self.engine.accept(listening.id) else { break };
                let socket = self.insert(stack, connection, [local, peer], shadow.is_ipv6());
                self.opened += 1;
                shadow.push(Accepted { socket, local, peer });
                self.knock.push(shadow);
            }
        }
    }

    fn insert(
        &mut self,
        stack: &'static Stack,
        id: ConnectionId,
        [local, peer]: [SocketAddr; 2],
        is_ipv6: bool,
    ) -> &'static Socket {
        let card = self.opening.remove(&peer).or_else(|| self.neighbours.get(peer.ip())).unwrap_or_default();
        let fresh = |socket| Slot {
            socket,
            id: Some(id),
            local,
            peer,
            is_shut: [false; 2],
            error: 0,
            is_told: false,
            is_nodelay: false,
            keepalive: KeepaliveSetting::default(),
            is_ipv6,
            card,
            lane: None,
            apart: 0,
            unread_bytes: 0,
            is_armed: false,
            waits_for_room: 0,
            is_signalled: false,
        };
        let number = self.free.pop().unwrap_or(self.slots.len() as u32);
        let socket = match self.slots.get_mut(number as usize) {
            Some(slot) => {
                *slot = fresh(slot.socket);
                slot.socket
            }
            None => {
                let socket: &'static Socket = Box::leak(Box::new(Socket::new(stack, number)));
                self.slots.push(fresh(socket));
                socket
            }
        };
        socket.open();
        let place = id.index() as usize;
        if self.by_place.len() <= place {
            self.by_place.resize(place + 1, u32::MAX);
        }
        self.by_place[place] = number;
        self.connections += 1;
        self.refresh(number);
        socket
    }

    /// The slot of a socket, if it still is the connection of this generation.
    pub fn slot(&mut self, socket: &Socket, generation: u32) -> Option<(ConnectionId, &mut Slot)> {
        let slot = self.slots.get_mut(socket.slot as usize)?;
        let id = slot.id.filter(|_| socket.generation() == generation)?;
        Some((id, slot))
    }

    /// Updates the readiness of a connection.
    pub fn refresh(&mut self, number: u32) {
        let Some(slot) = self.slots.get_mut(number as usize) else { return };
        let Some(id) = slot.id else { return };
        let Ok(state) = self.engine.state(id) else { return };
        if let Some(error) = state.error.filter(|_| slot.error == 0 && !slot.is_told) {
            slot.error = errno_of(error);
        }
        let [is_read_shut, is_write_shut] = slot.is_shut;
        let ends = state.peer_closed || is_read_shut;
        let is_error = state.error.is_some();
        let is_ahead = !slot.socket.ahead().is_empty();
        let mut ready = 0;
        let mut set = |bit, is_so: bool| ready |= if is_so { bit } else { 0 };
        set(socket::READABLE, state.readable_bytes > 0 || is_ahead || ends || is_error);
        set(
            socket::WRITABLE,
            state.writable_bytes >= redoubt_tcp::LOW_WATER_LEN_BYTES || is_write_shut || is_error,
        );
        set(socket::PEER_CLOSED, ends || is_error);
        set(socket::HANG_UP, ends && is_write_shut || is_error);
        set(socket::ERROR, slot.error != 0);
        let before = slot.socket.set_ready(ready);
        let has_more = state.readable_bytes > std::mem::replace(&mut slot.unread_bytes, state.readable_bytes);
        let news = socket::news(before, ready, has_more);
        let set = slot.socket.set().filter(|_| news != 0);
        if let Some(set) = set {
            set.note(slot.socket, news);
        }
        if set.is_some() || ready != before && slot.socket.is_waited_for() {
            self.wake.push(slot.socket);
        }
        let room = if slot.waits_for_room > 0 { socket::WRITABLE } else { 0 };
        slot.signal(ready & (socket::READABLE | socket::HANG_UP | socket::ERROR | room) != 0);
    }

    /// Makes the placeholder readable while the connection is, from now on.
    pub fn arm(&mut self, number: u32, now: Micros) {
        if let Some(slot) = self.slots.get_mut(number as usize) {
            slot.is_armed = true;
        }
        // No thread would receive the frames of a lane.
        self.take_lane_away(number, now);
        self.expel(number);
        self.refresh(number);
    }

    /// A thread begins or ends a wait in the kernel for room.
    pub fn wait_for_room(&mut self, number: u32, begins: bool) {
        if let Some(slot) = self.slots.get_mut(number as usize) {
            let count = slot.waits_for_room;
            slot.waits_for_room = if begins { count + 1 } else { count.saturating_sub(1) };
        }
        self.refresh(number);
    }

    /// The server has closed the connection, or never got it.
    pub fn remove(&mut self, socket: &'static Socket, now: Micros) {
        self.take_lane_away(socket.slot, now);
        let Some(slot) = self.slots.get_mut(socket.slot as usize) else { return };
        let Some(id) = slot.id.take() else { return };
        if let Some(set) = socket.set() {
            set.quit(socket, false);
        }
        // Frames still to be sent go to the same address.
        self.neighbours.learn(slot.peer.ip(), slot.card);
        self.connections -= 1;
        // The connection is ours, so this cannot fail.
        let _ = self.engine.close(now, id);
        socket.end();
        self.wake.push(socket);
        self.free.push(socket.slot);
    }

    /// Connections of the server and in its queue.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// Connections since the start.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// The link, for its counters.
    pub fn link(&mut self) -> &mut dyn Link {
        self.link.as_mut()
    }
}

impl Slot {
    fn signal(&mut self, wanted: bool) {
        if !self.is_armed || self.is_signalled == wanted {
            return;
        }
        let fd = self.socket.placeholder.load(Ordering::Relaxed);
        if fd < 0 {
            return;
        }
        self.is_signalled = wanted;
        if wanted { crate::doorbell::ring(fd) } else { crate::doorbell::clear(fd) }
    }
}
