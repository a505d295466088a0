//! Same-host bypass: a TCP connection over the loopback interface, both ends of which have this library, is exchanged
//! for a unix socket before the first byte. The same applies to other addresses of this host. Off unless
//! [`BYPASS_VARIABLE`] is `on`; in a server it can be switched ([`control::is_bypass_wanted`]).
//!
//! * [`server`]: takes offers when it accepts. * [`client`]: makes them when it connects.
//! * [`messages`]: messages with descriptors. * `redoubt_peer_credentials`: the owner of a listening TCP socket.
//! * This module: the TCP addresses of exchanged descriptors, which both ends continue to report.
//!
//! An offer is a connection to a listener of the server's library, in the abstract namespace, which is that of the
//! network namespace as TCP's is. The offer contains the client's TCP socket, not yet connected, and a *token*, an
//! eventfd that holds one. The server's accept finds the offer by that TCP socket's address, and takes the token; the
//! client takes it after its timeout. Only one side can read the token, and that side decides, so both sides always
//! agree.
//!
//! Trust: only the owner of the client's TCP socket can offer in its name. A client sends it only to a listener of
//! root, of its own user, or of the user whose TCP socket listens at that port. So no process gains access.
//!
//! Invariants: the descriptor's number stays. It refers to a kernel socket at any time, so that the kernel alone
//! decides about readiness, order, memory limits, and the end of processes. Nothing is exchanged after a byte was sent.
//! Without the other end's library, or if anything fails, the connection remains a TCP connection.
//!
//! * [`locks`]: waits for the locks, and their state after a fork.
//!
//! Lock order: [`server`]'s rendezvous sockets, then the records here.

pub mod client;
mod locks;
mod messages;
pub mod server;

use crate::{control, next};
use libc::{c_int, c_void, sockaddr, sockaddr_un, socklen_t};
use locks::lock;
use redoubt_interpose::Address;
use redoubt_shm_control::net::BYPASS_VARIABLE;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The byte with which the server confirms that it has taken an offer, and with which the client sends its offer.
const WORD: u8 = b'B';

/// Descriptors have been exchanged.
static EXCHANGED: AtomicBool = AtomicBool::new(false);
static CLIENT: AtomicBool = AtomicBool::new(false);
static RECORDS: Mutex<BTreeMap<c_int, Record>> = Mutex::new(BTreeMap::new());

/// This process takes offers, as a server, or makes them.
pub fn start(as_server: bool) {
    locks::start();
    if as_server {
        control::set_bypass(true);
    } else {
        CLIENT.store(true, Ordering::Release);
    }
}

/// Whether this process makes offers.
pub fn is_client() -> bool {
    CLIENT.load(Ordering::Acquire)
}

/// Reads [`BYPASS_VARIABLE`].
pub fn activate(as_server: bool) {
    if std::env::var_os(BYPASS_VARIABLE).is_some_and(|value| value == "on") {
        start(as_server);
    }
}

/// For tests: blocks every exchange until the returned value is dropped.
#[doc(hidden)]
pub fn hold() -> Option<impl Drop> {
    lock(&RECORDS)
}

/// The TCP connection before an exchange.
#[derive(Clone, Copy)]
struct Record {
    /// The kernel's number of the unix socket: a descriptor's number may be reused for something else.
    cookie: u64,
    peer: Address,
    own: Address,
}

/// End of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The other end.
    Peer,
    /// This end.
    Own,
}

fn option<T: Copy>(fd: c_int, name: c_int, mut value: T) -> Option<T> {
    let mut len = size_of::<T>() as socklen_t;
    let pointer = (&raw mut value).cast::<c_void>();
    // SAFETY: a value of this length, of integers in all uses.
    let result = unsafe { next::getsockopt(fd, libc::SOL_SOCKET, name, pointer, &raw mut len) };
    (result == 0).then_some(value)
}

/// The TCP address of an exchanged connection.
fn recorded(fd: c_int, end: End) -> Option<Address> {
    if !EXCHANGED.load(Ordering::Acquire) || option(fd, libc::SO_DOMAIN, 0 as c_int) != Some(libc::AF_UNIX) {
        return None;
    }
    let cookie = option(fd, libc::SO_COOKIE, 0u64)?;
    let records = lock(&RECORDS)?;
    let record = records.get(&fd).filter(|record| record.cookie == cookie)?;
    Some(if end == End::Peer { record.peer } else { record.own })
}

/// A copy of a descriptor was made: it is the same connection.
pub fn duplicated(from: c_int, copy: c_int) {
    if copy < 0 || copy == from || !EXCHANGED.load(Ordering::Acquire) {
        return;
    }
    if let Some(cookie) = option(copy, libc::SO_COOKIE, 0u64)
        && let Some(mut records) = lock(&RECORDS)
        && let Some(record) = records.get(&from).copied().filter(|record| record.cookie == cookie)
    {
        records.insert(copy, record);
    }
}

/// This descriptor was a TCP connection.
pub fn is_exchanged(fd: c_int) -> bool {
    recorded(fd, End::Own).is_some()
}

/// getpeername or getsockname. `None`: the descriptor was not exchanged.
///
/// # Safety
/// As the C functions.
pub unsafe fn name_of(fd: c_int, end: End, address: *mut sockaddr, len: *mut socklen_t) -> Option<c_int> {
    let recorded = recorded(fd, end)?;
    // SAFETY: the caller's arguments.
    unsafe { recorded.write(address, len) };
    Some(0)
}

/// Replaces a TCP connection by a unix socket. `false`: nothing was changed.
fn exchange(fd: c_int, unix: c_int, peer: Address, own: Address, close_on_exec: bool) -> bool {
    let Some(cookie) = option(unix, libc::SO_COOKIE, 0u64) else { return false };
    let Some(mut records) = lock(&RECORDS) else { return false };
    // SAFETY: no pointers; both are open.
    if unsafe { next::dup3(unix, fd, if close_on_exec { libc::O_CLOEXEC } else { 0 }) } != fd {
        return false;
    }
    EXCHANGED.store(true, Ordering::Release);
    records.insert(fd, Record { cookie, peer, own });
    true
}

/// Address of a server's listener: a port of one address, or of all of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place {
    ip: Option<IpAddr>,
    port: u16,
}

impl Place {
    /// The place of a listener with this bound address.
    fn of(bound: SocketAddr) -> Self {
        Self { ip: (!bound.ip().is_unspecified()).then_some(bound.ip()), port: bound.port() }
    }
}

/// Address of the rendezvous socket for connections to this place. Several places may have the same port.
fn door(place: Place) -> (sockaddr_un, socklen_t) {
    // SAFETY: zeros are a valid address.
    let mut address: sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let name = match place.ip {
        Some(ip) => format!("redoubt-net-bypass-{}-{ip}", place.port),
        None => format!("redoubt-net-bypass-{}", place.port),
    };
    // The first byte stays zero: no name in the file system.
    for (place, byte) in address.sun_path.iter_mut().skip(1).zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    (address, (std::mem::offset_of!(sockaddr_un, sun_path) + 1 + name.len()) as socklen_t)
}
