//! The server's side: a rendezvous socket for offers beside each TCP listener, whose offers are checked after each
//! accept.
//!
//! While the bypass is switched off there are no rendezvous sockets. The first accept after that closes them, so that
//! no client waits there, and the first accept after it is switched on opens the one of its port.

use super::locks::lock;
use super::messages::{Received, receive};
use super::{Address, Place, WORD, door, exchange};
use crate::{control, next, process};
use libc::c_int;
use redoubt_shm_control::net::Counter;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of pending offers at a rendezvous socket. A further offer replaces the oldest, so that no client can
/// block others.
const WAITING: usize = 256;

struct Offer {
    unix: OwnedFd,
    /// The client's TCP socket and the token, once they have arrived.
    sent: Option<[OwnedFd; 2]>,
}

/// Rendezvous socket for offers of connections to a place.
pub struct Door {
    place: Place,
    listener: OwnedFd,
    waiting: Vec<Offer>,
}

pub(super) static DOORS: Mutex<Vec<Door>> = Mutex::new(Vec::new());
static HAS_DOORS: AtomicBool = AtomicBool::new(false);

/// A listener of the server was created.
pub fn listening(fd: c_int) {
    // A server that never accepts offers would keep clients waiting there.
    if !process::is_active() || !control::is_bypass_wanted() {
        return;
    }
    let Some(own) = Address::ask(fd, next::getsockname).and_then(|own| own.tcp()) else { return };
    if let Some(mut doors) = lock(&DOORS).filter(|_| own.port() != 0) {
        door_of(&mut doors, Place::of(own));
    }
}

/// The rendezvous socket of this place, which is opened if there is none. It stays open for later listeners there.
fn door_of(doors: &mut Vec<Door>, place: Place) -> Option<&mut Door> {
    let at = match doors.iter().position(|door| door.place == place) {
        Some(at) => at,
        None => {
            doors.push(Door { place, listener: open(place)?, waiting: Vec::new() });
            doors.len() - 1
        }
    };
    doors.get_mut(at)
}

/// Closes all rendezvous sockets. Waiting clients receive the end of their connection.
fn close_all() {
    if HAS_DOORS.swap(false, Ordering::AcqRel)
        && let Some(mut doors) = lock(&DOORS)
    {
        doors.clear();
    }
}

fn open(place: Place) -> Option<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers; a new descriptor is ours.
    let listener = unsafe {
        let fd = libc::socket(libc::AF_UNIX, kind, 0);
        if fd < 0 {
            return None;
        }
        OwnedFd::from_raw_fd(fd)
    };
    let (address, len) = door(place);
    HAS_DOORS.store(true, Ordering::Release);
    // SAFETY: an address of this length.
    let done = unsafe {
        libc::bind(listener.as_raw_fd(), (&raw const address).cast(), len) == 0
            && next::listen(listener.as_raw_fd(), WAITING as c_int) == 0
    };
    done.then_some(listener)
}

/// Releases descriptors, since none are left for connections. Each pending offer has three; its client receives the end
/// of its connection, and continues with TCP. `true`: there were pending offers.
pub fn give_way() -> bool {
    let mut gave = false;
    if HAS_DOORS.load(Ordering::Acquire)
        && let Some(mut doors) = lock(&DOORS)
    {
        for door in doors.iter_mut() {
            gave |= !door.waiting.is_empty();
            door.waiting.clear();
        }
    }
    gave
}

impl Door {
    fn let_in(&mut self) {
        loop {
            let flags = libc::SOCK_CLOEXEC;
            let none = std::ptr::null_mut();
            // SAFETY: no address is asked for; a new descriptor is ours.
            let unix = unsafe {
                let fd = next::accept4(self.listener.as_raw_fd(), none, std::ptr::null_mut(), flags);
                if fd < 0 {
                    return;
                }
                OwnedFd::from_raw_fd(fd)
            };
            if self.waiting.len() >= WAITING {
                self.waiting.remove(0);
            }
            self.waiting.push(Offer { unix, sent: None });
        }
    }

    /// Takes the offer for the TCP connection between these addresses.
    fn find(&mut self, client: SocketAddr, own: SocketAddr) -> Option<Offer> {
        self.let_in();
        self.waiting.retain_mut(Offer::is_good);
        let at = self.waiting.iter().position(|offer| offer.is_for(client, own))?;
        Some(self.waiting.remove(at))
    }
}

impl Offer {
    /// Receives the offer's message, if any. `false`: the client has withdrawn the offer.
    fn is_good(&mut self) -> bool {
        match (receive(&self.unix), &self.sent) {
            (Received::Nothing, _) => true,
            (Received::Message(WORD, sent), None) => {
                self.sent = Some(sent);
                true
            }
            _ => false,
        }
    }

    fn is_for(&self, client: SocketAddr, own: SocketAddr) -> bool {
        let Some([tcp, _]) = &self.sent else { return false };
        let ask = |call| Address::ask(tcp.as_raw_fd(), call).and_then(|address| address.tcp());
        ask(next::getsockname) == Some(client) && ask(next::getpeername) == Some(own)
    }

    /// Takes the token and confirms it. `false`: the client has continued without the bypass.
    fn take(&self) -> bool {
        let Some([_, token]) = &self.sent else { return false };
        take_token(token) && {
            let word = [WORD];
            let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
            // SAFETY: one byte.
            unsafe { next::send(self.unix.as_raw_fd(), word.as_ptr().cast(), 1, flags) == 1 }
        }
    }
}

/// Takes a token. `false`: the other side has taken it.
pub fn take_token(token: &OwnedFd) -> bool {
    let mut value = [0u8; 8];
    // SAFETY: a buffer of this length.
    unsafe { next::read(token.as_raw_fd(), value.as_mut_ptr().cast(), value.len()) == 8 }
}

/// A connection was accepted from a listener: exchanges it, if there is an offer. `flags` are those of accept4.
pub fn accepted(listener: c_int, fd: c_int, flags: c_int) {
    if !control::is_bypass_wanted() {
        return close_all();
    }
    let (Some(peer), Some(own)) = (Address::ask(fd, next::getpeername), Address::ask(fd, next::getsockname))
    else {
        return;
    };
    let (Some(client), Some(server)) = (peer.tcp(), own.tcp()) else { return };
    // A connection to another address of this host has that address at both ends.
    if !client.ip().is_loopback() && client.ip() != server.ip() {
        return;
    }
    let errno = next::errno();
    let bound = Address::ask(listener, next::getsockname).and_then(|bound| bound.tcp());
    let offer = bound.and_then(|bound| {
        let mut doors = lock(&DOORS)?;
        door_of(&mut doors, Place::of(bound))?.find(client, server)
    });
    if let Some(offer) = offer.filter(Offer::take) {
        if flags & libc::SOCK_NONBLOCK != 0 {
            // SAFETY: no pointers.
            unsafe { next::fcntl(offer.unix.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK as usize) };
        }
        if exchange(fd, offer.unix.as_raw_fd(), peer, own, flags & libc::SOCK_CLOEXEC != 0) {
            control::count(fd.unsigned_abs() as usize, Counter::Bypassed, 1);
        } else {
            // The client receives the end of its unix connection.
            drop(offer);
        }
    }
    next::set_errno(errno);
}
