//! TCP in user space for remote clients: traffic to the server's ports on the configured network interfaces bypasses
//! the kernel's TCP. `docs/net/user-tcp.md` describes its use. Part of `libredoubt_net.so`.
//!
//! Interface, for the hooks of that library:
//!
//! * [`start`] with the configured interfaces and the memory that `redoubt net` reads ([`Control`]), [`in_child`];
//! * [`listening`], [`accept`], [`duplicated`], [`closed`]: descriptors begin and end; [`get`]: the connection behind one;
//! * [`calls`], [`options`], [`waits`], [`sets`]: the server's calls, with the kernel's results.
//!
//! The other modules:
//!
//! * [`link`], [`xdp`]: frames from and to a queue of a NIC. [`interface`], [`neighbours`], [`packet`]: the network
//!   around it.
//! * [`stack`]: TCP over one link (by `redoubt-tcp`), and the thread that serves it.
//! * [`lane`]: frames of one connection, for the thread that waits for it. [`few`]: short lists.
//! * [`socket`], [`ahead`]: one connection as the server sees it. [`shadow`]: one of the server's listeners.
//! * [`status`]: the statistics that `redoubt net status` shows. [`next`]: the functions behind the hooks.
//!
//! It begins when the server listens, because only traffic to listening addresses is steered to it. It fails open:
//! without capabilities, or when another program uses the interface, the kernel's TCP continues, and the reason is in
//! the server's log. In a forked child it is inactive: the descriptors exist, but calls on them do nothing.

mod ahead;
pub mod calls;
mod doorbell;
mod few;
mod interface;
mod lane;
mod link;
mod neighbours;
mod next;
pub mod options;
mod packet;
pub mod sets;
mod shadow;
pub mod socket;
mod stack;
mod status;
pub mod waits;
mod xdp;

use interface::Interface;
use libc::{c_int, c_void, sockaddr, socklen_t};
use redoubt_interpose::{Address, Descriptors};
use redoubt_locks::IgnorePoison;
use redoubt_shm_control::net::{USER_TCP_LINK_WORDS, UserTcp};
use shadow::Shadow;
use socket::Socket;
use stack::Stack;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use xdp::Xdp;

/// Maximum number of connections of one stack.
const MOST_CONNECTIONS: u32 = 1 << 16;
/// Maximum number of handshakes of one stack; beyond that there are cookies.
const MOST_HALF_OPEN: u32 = 4096;

/// Connections of stacks are accepted.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// This is a forked child of a server.
static CHILD: AtomicBool = AtomicBool::new(false);
static WANTED: OnceLock<Wanted> = OnceLock::new();
static TABLE: Descriptors<Socket> = Descriptors::new();
static STACKS: OnceLock<Vec<&'static Stack>> = OnceLock::new();
/// Taken by a thread that calls listen: one after the other.
static LISTEN: Mutex<()> = Mutex::new(());

/// The memory that `redoubt net` reads.
#[derive(Clone, Copy)]
pub struct Control {
    /// New connections bypass the kernel's TCP.
    pub is_on: fn() -> bool,
    /// Publishes the statistics of the interface with this number.
    pub publish: fn(usize, [u64; USER_TCP_LINK_WORDS]),
}

struct Wanted {
    interfaces: Vec<UserTcp>,
    control: Control,
}

/// Sets the configured interfaces. The first call counts.
pub fn start(interfaces: Vec<UserTcp>, control: Control) {
    let _ = WANTED.set(Wanted { interfaces, control });
}

/// This process is a forked child of a server from now on.
pub fn in_child() {
    CHILD.store(true, Ordering::Release);
}

#[inline]
fn is_child() -> bool {
    CHILD.load(Ordering::Relaxed)
}

/// An interface is configured.
#[inline]
fn is_wanted() -> bool {
    WANTED.get().is_some_and(|wanted| !wanted.interfaces.is_empty())
}

/// New connections bypass the kernel's TCP.
fn is_on() -> bool {
    WANTED.get().is_some_and(|wanted| (wanted.control.is_on)())
}

/// Publishes the statistics of the interface with this number.
fn publish(number: usize, words: [u64; USER_TCP_LINK_WORDS]) {
    if let Some(wanted) = WANTED.get() {
        (wanted.control.publish)(number, words);
    }
}

/// A line for the server's log.
fn report(text: &str) {
    let line = format!("[redoubt] TCP in user space: {text}\n");
    // SAFETY: a buffer of this length.
    unsafe { libc::syscall(libc::SYS_write, 2, line.as_ptr(), line.len()) };
}

/// Random bytes.
///
/// # Errors
/// Those of the kernel.
fn secret() -> io::Result<[u8; 16]> {
    let mut bytes = [0u8; 16];
    // SAFETY: a buffer of this length.
    let len = unsafe { libc::getrandom(bytes.as_mut_ptr().cast::<c_void>(), bytes.len(), 0) };
    if len == bytes.len() as isize { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

/// Starts threads that get none of the server's signals.
fn without_signals<Done>(call: impl FnOnce() -> Done) -> Done {
    // SAFETY: signal sets that are written before they are read; the thread's own mask, restored at the end.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let done = call();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        done
    }
}

/// Connections of stacks may be accepted, or were.
#[inline]
fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// The connection behind a descriptor.
#[inline]
pub fn get(fd: c_int) -> Option<&'static Socket> {
    if !ACTIVE.load(Ordering::Relaxed) || is_child() {
        return None;
    }
    TABLE.get(fd)
}

/// The descriptors of a range that are connections of stacks, epoll sets with such connections, or listeners for which
/// stacks accept connections.
pub fn in_range(range: RangeInclusive<usize>) -> impl Iterator<Item = c_int> {
    TABLE.in_range(range.clone()).chain(shadow::in_range(range.clone())).chain(sets::in_range(range))
}

fn stacks() -> &'static [&'static Stack] {
    let wanted = || WANTED.get().into_iter().flat_map(|wanted| &wanted.interfaces).enumerate();
    STACKS.get_or_init(|| wanted().filter_map(|(number, wanted)| start_stack(number, wanted)).collect())
}

fn start_stack(number: usize, wanted: &UserTcp) -> Option<&'static Stack> {
    let name = &wanted.interface;
    let open = || -> Result<&'static Stack, String> {
        let interface = Interface::find(name).map_err(|error| error.to_string())?;
        let link = Xdp::open(&interface, 0, wanted.zero_copy).map_err(|error| error.to_string())?;
        Stack::start(number, interface, Box::new(link)).map_err(|error| error.to_string())
    };
    match open() {
        Ok(stack) => {
            report(&format!("{name} is used, {}", stack.description()));
            Some(stack)
        }
        Err(error) => {
            report(&format!("{name} is left to the kernel: {error}"));
            status::publish_failure(number, name);
            None
        }
    }
}

/// The server is about to listen with this descriptor, which is bound. Not to be called in a child.
pub fn listening(fd: c_int, backlog: c_int) {
    if !is_wanted() || shadow::get(fd).is_some() {
        return;
    }
    let Some(bound) = Address::ask(fd, next::getsockname).and_then(|own| own.tcp()) else { return };
    if bound.port() == 0 || bound.ip().is_loopback() {
        return;
    }
    let _one = LISTEN.lock().ignore_poison();
    let stacks = stacks();
    if stacks.is_empty() {
        return;
    }
    let Ok(shadow) = Shadow::new(fd, bound, is_only_ipv6(fd), backlog) else { return };
    let shadow: &'static Shadow = Box::leak(Box::new(shadow));
    ACTIVE.store(true, Ordering::Release);
    if !shadow::add(shadow) {
        return;
    }
    for stack in stacks {
        stack.with(|inner, now| inner.listen(now, shadow, false));
    }
}

fn is_only_ipv6(fd: c_int) -> bool {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    let pointer = (&raw mut value).cast::<c_void>();
    // SAFETY: an int and its length.
    let result =
        unsafe { next::getsockopt(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, pointer, &raw mut len) };
    result == 0 && value != 0
}

/// A listener is closed, or is used in an unsupported way: the kernel takes it over.
fn withdraw(fd: c_int) {
    let Some(shadow) = shadow::remove(fd) else { return };
    for stack in stacks() {
        stack.with(|inner, now| inner.unlisten(now, shadow));
    }
    while let Some(accepted) = shadow.pop() {
        calls::close(accepted.socket);
    }
}

/// accept, if a connection of a stack waits there: its descriptor, or an error number.
///
/// # Safety
/// As accept.
pub unsafe fn accept(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Option<Result<c_int, c_int>> {
    let shadow = shadow::get(fd)?;
    let accepted = calls::accept(shadow)?;
    let table = [(libc::SOCK_NONBLOCK, libc::EFD_NONBLOCK), (libc::SOCK_CLOEXEC, libc::EFD_CLOEXEC)];
    let wanted = table.into_iter().filter(|(flag, _)| flags & flag != 0).fold(0, |all, (_, flag)| all | flag);
    let placeholder = match doorbell::create(wanted) {
        Ok(placeholder) => placeholder.into_raw_fd(),
        Err(error) => {
            shadow.push_back(accepted);
            return Some(Err(error.raw_os_error().unwrap_or(libc::EMFILE)));
        }
    };
    let socket = accepted.socket;
    socket.set_nonblocking(flags & libc::SOCK_NONBLOCK != 0);
    socket.placeholder.store(placeholder, Ordering::Release);
    if !TABLE.put(placeholder, socket) {
        calls::close(socket);
        // SAFETY: a new descriptor that was not published yet.
        unsafe { next::close(placeholder) };
        return Some(Err(libc::EMFILE));
    }
    let peer = if shadow.is_ipv6() { calls::mapped(accepted.peer) } else { accepted.peer };
    // SAFETY: the caller's pointers.
    unsafe { write_address(peer, address, len) };
    Some(Ok(placeholder))
}

/// Writes an address to a call's buffer.
///
/// # Safety
/// As getpeername, or null.
pub unsafe fn write_address(from: std::net::SocketAddr, address: *mut sockaddr, len: *mut socklen_t) {
    // SAFETY: null or the caller's.
    if let Some(len) = unsafe { len.as_mut() } {
        // SAFETY: the caller guarantees this much room.
        unsafe { Address::of(from).write(address, len) };
    }
}

/// A copy of a descriptor was made.
pub fn duplicated(socket: &'static Socket, copy: c_int) {
    // Without room in the table the copy is not a descriptor of the connection and does not keep it open.
    if copy >= 0 && TABLE.make_room(copy) && socket.add_descriptor() {
        TABLE.put(copy, socket);
        // An epoll set keeps a copy when the descriptor that was added is closed.
        if socket.set().is_some() {
            socket.stack.with(|inner, now| inner.arm(socket.slot, now));
        }
    }
}

/// A descriptor is about to be closed. `true`: it was one of a stack's connections.
pub fn closed(fd: c_int) -> bool {
    if !ACTIVE.load(Ordering::Relaxed) || is_child() {
        return false;
    }
    withdraw(fd);
    sets::closed(fd);
    let Some(socket) = TABLE.take(fd) else { return false };
    if socket.remove_descriptor() {
        calls::close(socket);
    }
    true
}
