//! The server's side: a door for offers beside each TCP listener, and a look at what waits there after each accept.
//!
//! While it is switched off there are no doors: the first accept then closes them, so that no client waits at one, and the
//! first after it is switched on opens that of its port.

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

/// Offers that wait at a door at most. Whoever comes then takes the place of the first: nobody can fill the door for
/// others.
const WAITING: usize = 256;

struct Offer {
    unix: OwnedFd,
    /// The client's TCP socket, and the token, once they have come.
    sent: Option<[OwnedFd; 2]>,
}

/// Where offers of connections to a place come in.
pub struct Door {
    place: Place,
    listener: OwnedFd,
    waiting: Vec<Offer>,
}

pub(super) static DOORS: Mutex<Vec<Door>> = Mutex::new(Vec::new());
static HAS_DOORS: AtomicBool = AtomicBool::new(false);

/// A socket of the server listens.
pub fn listening(fd: c_int) {
    // Whoever never looks at a door would keep clients waiting there.
    if !process::is_active() || !control::is_bypass_wanted() {
        return;
    }
    let Some(own) = Address::ask(fd, next::getsockname).and_then(|own| own.tcp()) else { return };
    if let Some(mut doors) = lock(&DOORS).filter(|_| own.port() != 0) {
        door_of(&mut doors, Place::of(own));
    }
}

/// The door of this place, which is opened if there is none. It stays: who listens there again finds it.
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

/// Nobody is to come any more. Who waits at a door is told by its end.
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

/// There are no descriptors left for connections. Whoever waits at a door has three; he is told by its end, and continues
/// with TCP. `true`: somebody did.
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

    /// The offer for the TCP connection between these addresses.
    fn find(&mut self, client: SocketAddr, own: SocketAddr) -> Option<Offer> {
        self.let_in();
        self.waiting.retain_mut(Offer::is_good);
        let at = self.waiting.iter().position(|offer| offer.is_for(client, own))?;
        Some(self.waiting.remove(at))
    }
}

impl Offer {
    /// Looks whether something has come. `false`: the client does not offer it any more.
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

    /// Takes the token and says so. `false`: the client has continued without it.
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

/// Whether it was there.
pub fn take_token(token: &OwnedFd) -> bool {
    let mut value = [0u8; 8];
    // SAFETY: a buffer of this length.
    unsafe { next::read(token.as_raw_fd(), value.as_mut_ptr().cast(), value.len()) == 8 }
}

/// A connection was accepted from a listener: exchanges it, if that is offered. `flags` are those of accept4.
pub fn accepted(listener: c_int, fd: c_int, flags: c_int) {
    if !control::is_bypass_wanted() {
        return close_all();
    }
    let (Some(peer), Some(own)) = (Address::ask(fd, next::getpeername), Address::ask(fd, next::getsockname))
    else {
        return;
    };
    let (Some(client), Some(server)) = (peer.tcp(), own.tcp()) else { return };
    // Who connects to another address of this host has that one himself.
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
            // The client is told by the end of what it has.
            drop(offer);
        }
    }
    next::set_errno(errno);
}
