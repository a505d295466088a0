//! A stack: one queue of a network card, the TCP over it, its connections, and the thread that looks after them.
//!
//! One lock guards it all. The server's threads read and write under it, and send their frames themselves: an answer
//! needs no other thread. What comes is taken by the stack's thread, which wakes whoever waits for it. Rings between
//! the threads would save the lock, and cost a second copy of all bytes and another thread's wake-up for each answer.
//!
//! The thread sleeps in poll for frames and for its doorbell. It is rung when a thread of the server has brought about
//! something that is due before it would wake up by itself, which is never later than [`DOZE`] after the last work, so
//! that the usual timers of answers do not need the bell.
//!
//! Lock order: a stack, then the queue of a listener; never two stacks. Threads that wait in user space are woken after
//! the lock is given back. Under it are: the call that has the link send, one for all frames that are ready, and the
//! signal of a connection on which a thread waits in the kernel.

use super::doorbell::Doorbell;
use super::interface::Interface;
use super::link::{ETHERNET_LEN_BYTES, Link, Mode, Steering};
use super::neighbours::Neighbours;
use super::options::KeepaliveSetting;
use super::packet::{self, Header};
use super::shadow::{Accepted, Shadow};
use super::socket::{self, Socket};
use super::{report, status};
use crate::next;
use libc::c_int;
use redoubt_tcp::{Config, ConnectionError, ConnectionId, Engine, ListenerId, Micros};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Frames that are taken before others get the lock.
const BATCH: usize = 64;
/// For how long the thread sleeps at most when there was work a moment ago.
const DOZE: Duration = Duration::from_millis(50);
/// How often it looks at the interface's addresses and at what is wanted.
const LOOK: Duration = Duration::from_secs(1);
/// For how long there must have been no work for a longer sleep.
const REST: Duration = Duration::from_secs(1);

/// One connection, for the server or for its listener's queue.
pub struct Slot {
    /// As the server's threads see it.
    pub socket: &'static Socket,
    /// `None`: free.
    pub id: Option<ConnectionId>,
    /// Its ends.
    pub local: SocketAddr,
    /// See there.
    pub peer: SocketAddr,
    /// Taken from the engine, and not read by the server.
    pub stash: Vec<u8>,
    /// The server has ended reading, writing.
    pub is_shut: [bool; 2],
    /// An error that the server has not heard of.
    pub error: c_int,
    /// The server has heard of the error with which the connection ended.
    pub is_told: bool,
    /// TCP_NODELAY.
    pub is_nodelay: bool,
    /// SO_KEEPALIVE and what belongs to it.
    pub keepalive: KeepaliveSetting,
    /// The server is told its addresses as those of IPv6.
    pub is_ipv6: bool,
    /// The kernel was asked about the placeholder: it is kept readable when the connection is.
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

/// What the lock guards.
pub struct Inner {
    /// TCP.
    pub engine: Engine,
    link: Box<dyn Link>,
    neighbours: Neighbours,
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_id: HashMap<ConnectionId, u32>,
    listening: Vec<Listening>,
    addresses: BTreeSet<IpAddr>,
    /// New connections are taken.
    pub is_on: bool,
    wake: Vec<&'static Socket>,
    knock: Vec<&'static Shadow>,
    is_unsent: bool,
    opened: u64,
}

/// See the module.
pub struct Stack {
    inner: Mutex<Inner>,
    doorbell: Doorbell,
    interface: Interface,
    number: usize,
    begin: Instant,
    /// When the thread wakes up by itself; 0: it is awake, or will look again before it sleeps.
    wakes_at: AtomicU64,
}

fn errno_of(error: ConnectionError) -> c_int {
    match error {
        ConnectionError::Reset => libc::ECONNRESET,
        ConnectionError::TimedOut => libc::ETIMEDOUT,
    }
}

impl Stack {
    /// Makes a stack over a link, for good, and starts its thread.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start(number: usize, interface: Interface, link: Box<dyn Link>) -> std::io::Result<&'static Self> {
        let mut config = Config::new(super::secret()?);
        config.mtu_len_bytes = u16::try_from(link.mtu_bytes()).unwrap_or(u16::MAX);
        config.max_connections = super::MOST_CONNECTIONS;
        config.max_half_open = super::MOST_HALF_OPEN;
        let engine = Engine::new(config).map_err(std::io::Error::other)?;
        let addresses = interface.addresses()?;
        let inner = Inner {
            engine,
            link,
            neighbours: Neighbours::default(),
            slots: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::new(),
            listening: Vec::new(),
            addresses,
            is_on: true,
            wake: Vec::new(),
            knock: Vec::new(),
            is_unsent: false,
            opened: 0,
        };
        let stack: &'static Self = Box::leak(Box::new(Self {
            inner: Mutex::new(inner),
            doorbell: Doorbell::new()?,
            interface,
            number,
            begin: Instant::now(),
            wakes_at: AtomicU64::new(0),
        }));
        super::without_signals(|| {
            std::thread::Builder::new().name(format!("redoubt-tcp-{number}")).spawn(move || stack.run())
        })?;
        Ok(stack)
    }

    /// In words.
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
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the stack, and what follows from it.
    pub fn with<Done>(&'static self, call: impl FnOnce(&mut Inner, Micros) -> Done) -> Done {
        let mut inner = self.lock();
        let now = self.now();
        let done = call(&mut inner, now);
        inner.settle(now);
        let (wake, knock) = inner.take_wakes();
        let due = inner.due();
        let wakes_at = self.wakes_at.load(Ordering::Relaxed);
        let is_early = wakes_at != 0 && due.is_some_and(|due| due.0 < wakes_at);
        if is_early {
            self.wakes_at.store(0, Ordering::Relaxed);
        }
        drop(inner);
        wake_all(wake, knock);
        if is_early {
            self.doorbell.ring();
        }
        done
    }

    fn run(&'static self) {
        let mut looked = Instant::now();
        let mut worked = looked;
        loop {
            let mut inner = self.lock();
            let now = self.now();
            self.wakes_at.store(0, Ordering::Relaxed);
            let count = inner.receive(now);
            inner.engine.advance(now);
            inner.accept(self);
            inner.settle(now);
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                inner.look(now, &self.interface);
                status::publish(self.number, &self.interface.name, &mut inner);
            }
            let (wake, knock) = inner.take_wakes();
            if count > 0 {
                worked = Instant::now();
                drop(inner);
                wake_all(wake, knock);
                continue;
            }
            let longest = if inner.is_unsent {
                Duration::from_millis(1)
            } else if worked.elapsed() < REST {
                DOZE
            } else {
                LOOK
            };
            let until = inner.due().map_or(u64::MAX, |due| due.0);
            let until = until.min(now.0.saturating_add(longest.as_micros() as u64)).max(1);
            self.wakes_at.store(until, Ordering::Relaxed);
            let link = inner.link.descriptor().as_raw_fd();
            drop(inner);
            wake_all(wake, knock);
            self.sleep(link, Duration::from_micros(until.saturating_sub(now.0)));
        }
    }

    fn sleep(&self, link: c_int, longest: Duration) {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut list = [entry(link), entry(self.doorbell.as_raw_fd())];
        let timeout = libc::timespec {
            tv_sec: longest.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(longest.subsec_nanos() as i32),
        };
        let none = std::ptr::null();
        // SAFETY: a list of this length, and a time that lives long enough.
        unsafe { next::ppoll(list.as_mut_ptr(), list.len() as libc::nfds_t, &raw const timeout, none) };
        let [_, bell] = list;
        if bell.revents != 0 {
            self.doorbell.clear();
        }
    }
}

fn wake_all(wake: Vec<&'static Socket>, knock: Vec<&'static Shadow>) {
    wake.into_iter().for_each(Socket::wake);
    knock.into_iter().for_each(Shadow::knock);
}

impl Inner {
    fn take_wakes(&mut self) -> (Vec<&'static Socket>, Vec<&'static Shadow>) {
        (std::mem::take(&mut self.wake), std::mem::take(&mut self.knock))
    }

    fn due(&self) -> Option<Micros> {
        self.engine.next_timer()
    }

    /// Takes frames that have come.
    fn receive(&mut self, now: Micros) -> usize {
        let Self { link, engine, neighbours, .. } = self;
        let partial = link.has_partial_checksums();
        let mut is_due = false;
        let count = link.receive(BATCH, &mut |frame| {
            if let Some(Header { source, from, packet }) = packet::split(frame) {
                is_due |= neighbours.learn(from, source);
                engine.receive(now, packet, packet::checksum(packet, partial));
            }
        });
        if is_due {
            let peers = self.slots.iter().filter(|slot| slot.id.is_some()).map(|slot| slot.peer.ip());
            self.neighbours.forget(peers);
        }
        count
    }

    /// What follows from anything that was done: threads to wake, frames to send.
    fn settle(&mut self, now: Micros) {
        while let Some(id) = self.engine.changed() {
            if let Some(slot) = self.by_id.get(&id).copied() {
                self.refresh(slot);
            }
        }
        self.transmit(now);
    }

    fn transmit(&mut self, now: Micros) {
        let Self { link, engine, neighbours, .. } = self;
        let mac = link.mac();
        let mut is_any = self.is_unsent;
        loop {
            let is_sent = link.transmit(&mut |frame| {
                let (header, space) = frame.split_at_mut_checked(ETHERNET_LEN_BYTES)?;
                loop {
                    let sent = engine.transmit(now, space)?;
                    if let Some(to) = neighbours.get(sent.destination) {
                        packet::write_header(header, to, mac, sent.destination.is_ipv6());
                        return Some(ETHERNET_LEN_BYTES + sent.len_bytes);
                    }
                }
            });
            if !is_sent {
                break;
            }
            is_any = true;
        }
        self.is_unsent = is_any && !link.flush() || !link.has_room();
    }

    /// Takes what the engine has ready for listeners.
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
        let fresh = |socket| Slot {
            socket,
            id: Some(id),
            local,
            peer,
            stash: Vec::new(),
            is_shut: [false; 2],
            error: 0,
            is_told: false,
            is_nodelay: false,
            keepalive: KeepaliveSetting::default(),
            is_ipv6,
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
        self.by_id.insert(id, number);
        self.refresh(number);
        socket
    }

    /// The slot of a socket, if it still is the connection of this generation.
    pub fn slot(&mut self, socket: &Socket, generation: u32) -> Option<(ConnectionId, &mut Slot)> {
        let slot = self.slots.get_mut(socket.slot as usize)?;
        let id = slot.id.filter(|_| socket.generation() == generation)?;
        Some((id, slot))
    }

    /// Writes down what can be done with a connection now.
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
        let mut ready = 0;
        let mut set = |bit, is_so: bool| ready |= if is_so { bit } else { 0 };
        set(socket::READABLE, state.readable_bytes > 0 || !slot.stash.is_empty() || ends || is_error);
        set(socket::WRITABLE, state.writable_bytes >= super::LOW_WATER_BYTES || is_write_shut || is_error);
        set(socket::PEER_CLOSED, ends || is_error);
        set(socket::HANG_UP, ends && is_write_shut || is_error);
        set(socket::ERROR, slot.error != 0);
        if slot.socket.set_ready(ready) {
            self.wake.push(slot.socket);
        }
        let room = if slot.waits_for_room > 0 { socket::WRITABLE } else { 0 };
        slot.signal(ready & (socket::READABLE | socket::HANG_UP | socket::ERROR | room) != 0);
    }

    /// From now on the placeholder is readable when the connection is.
    pub fn arm(&mut self, number: u32) {
        if let Some(slot) = self.slots.get_mut(number as usize) {
            slot.is_armed = true;
        }
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

    /// The server has closed the connection, or it never got it.
    pub fn remove(&mut self, socket: &'static Socket, now: Micros) {
        let Some(slot) = self.slots.get_mut(socket.slot as usize) else { return };
        let Some(id) = slot.id.take() else { return };
        slot.stash = Vec::new();
        self.by_id.remove(&id);
        // It is ours, so there is nothing that could fail.
        let _ = self.engine.close(now, id);
        socket.end();
        self.wake.push(socket);
        self.free.push(socket.slot);
    }

    /// Connections of the server and in its queue.
    pub fn connections(&self) -> usize {
        self.by_id.len()
    }

    /// Connections since the start.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// The link, to be asked for its counters.
    pub fn link(&mut self) -> &mut dyn Link {
        self.link.as_mut()
    }

    /// Begins to take what comes to a listener of the server, at the interface's addresses.
    pub fn listen(&mut self, now: Micros, shadow: &'static Shadow, may_have_connections: bool) {
        let steering = Steering { new: self.is_on, shared: may_have_connections || !self.is_on };
        for address in self.addresses.clone() {
            let place = SocketAddr::new(address, shadow.port());
            if shadow.covers(address) && self.listening.iter().all(|listening| listening.place != place) {
                self.listen_at(now, place, shadow, steering);
            }
        }
    }

    fn listen_at(&mut self, now: Micros, place: SocketAddr, shadow: &'static Shadow, steering: Steering) {
        let Ok(id) = self.engine.listen(place, shadow.backlog() as u32) else { return };
        if let Err(error) = self.link.steer(place, Some(steering)) {
            report(&format!("{place} stays with the kernel: {error}"));
            self.engine.unlisten(now, id);
            return;
        }
        self.listening.push(Listening { place, id, shadow, steering });
    }

    fn take_listening(&mut self, now: Micros, is_meant: impl Fn(&Listening) -> bool) -> Vec<SocketAddr> {
        let all = std::mem::take(&mut self.listening);
        let (gone, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(is_meant);
        self.listening = kept;
        gone.iter().for_each(|listening| self.engine.unlisten(now, listening.id));
        gone.into_iter().map(|listening| listening.place).collect()
    }

    /// Takes nothing more for a listener: the kernel has it alone.
    pub fn unlisten(&mut self, now: Micros, shadow: &'static Shadow) {
        for place in self.take_listening(now, |listening| std::ptr::eq(listening.shadow, shadow)) {
            let is_used = self.slots.iter().any(|slot| slot.id.is_some() && slot.local == place);
            let left = is_used.then_some(Steering { new: false, shared: true });
            let _ = self.link.steer(place, left);
        }
    }

    /// Looks at what has changed around: the interface's addresses, and whether connections are wanted.
    fn look(&mut self, now: Micros, interface: &Interface) {
        self.is_on = crate::control::is_user_tcp_wanted();
        if let Ok(addresses) = interface.addresses()
            && addresses != self.addresses
        {
            for place in self.take_listening(now, |listening| !addresses.contains(&listening.place.ip())) {
                // As the kernel: what comes to an address that is not there is nobody's.
                let _ = self.link.steer(place, None);
            }
            self.addresses = addresses;
            super::shadow::all().into_iter().for_each(|shadow| self.listen(now, shadow, true));
        }
        for listening in &mut self.listening {
            let shared = listening.steering.shared || !self.is_on;
            let steering = Steering { new: self.is_on, shared };
            if steering != listening.steering && self.link.steer(listening.place, Some(steering)).is_ok() {
                listening.steering = steering;
            }
        }
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
        if wanted { super::doorbell::ring(fd) } else { super::doorbell::clear(fd) }
    }
}
