//! Sockets for tests: a connection that the library intercepts, and the kernel's own calls beside the library's.
//!
//! The library is linked into the test, so the C functions that the test calls are its hooks; [`kernel`] has system
//! calls that nothing comes between.

#![allow(dead_code, reason = "not every test uses all of it")]

use libc::{c_int, c_void, pollfd};
use redoubt_net::reading::ENGAGE_CYCLES;
use redoubt_shm_control::net::Mode;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::Once;

/// A result with its error number.
pub fn checked(result: isize) -> Result<usize, c_int> {
    usize::try_from(result).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap())
}

/// Has the library intercept the connections that this process accepts.
pub fn start() {
    static START: Once = Once::new();
    START.call_once(|| redoubt_net::process::start(Mode::On));
}

/// System calls past the library.
pub mod kernel {
    use super::{c_int, c_void, checked, pollfd};

    pub fn accept(fd: c_int) -> c_int {
        let flags = libc::SOCK_CLOEXEC;
        // SAFETY: no address is asked for.
        let fd = unsafe { libc::syscall(libc::SYS_accept4, fd, 0, 0, flags) };
        checked(fd as isize).unwrap() as c_int
    }

    pub fn recv(fd: c_int, buffer: &mut [u8], flags: c_int) -> Result<usize, c_int> {
        // SAFETY: a buffer of this length.
        checked(unsafe {
            libc::syscall(libc::SYS_recvfrom, fd, buffer.as_mut_ptr(), buffer.len(), flags, 0, 0) as isize
        })
    }

    pub fn send(fd: c_int, bytes: &[u8], flags: c_int) -> Result<usize, c_int> {
        // SAFETY: a buffer of this length.
        checked(unsafe {
            libc::syscall(libc::SYS_sendto, fd, bytes.as_ptr(), bytes.len(), flags, 0, 0) as isize
        })
    }

    pub fn poll(list: &mut [pollfd], timeout: c_int) -> Result<usize, c_int> {
        // SAFETY: a list of this length.
        checked(unsafe { libc::syscall(libc::SYS_poll, list.as_mut_ptr(), list.len(), timeout) as isize })
    }

    pub fn fcntl(fd: c_int, command: c_int, argument: c_int) -> Result<usize, c_int> {
        // SAFETY: no pointers.
        checked(unsafe { libc::syscall(libc::SYS_fcntl, fd, command, argument) as isize })
    }

    pub fn unread(fd: c_int) -> c_int {
        let mut len: c_int = 0;
        // SAFETY: an int.
        let result =
            unsafe { libc::syscall(libc::SYS_ioctl, fd, libc::FIONREAD, (&raw mut len).cast::<c_void>()) };
        assert_eq!(result, 0);
        len
    }
}

/// The library's calls.
pub mod library {
    use super::{c_int, checked, pollfd};

    pub fn recv(fd: c_int, buffer: &mut [u8], flags: c_int) -> Result<usize, c_int> {
        // SAFETY: a buffer of this length.
        checked(unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), flags) })
    }

    pub fn read(fd: c_int, buffer: &mut [u8]) -> Result<usize, c_int> {
        // SAFETY: a buffer of this length.
        checked(unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) })
    }

    pub fn send(fd: c_int, bytes: &[u8], flags: c_int) -> Result<usize, c_int> {
        // SAFETY: a buffer of this length.
        checked(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) })
    }

    pub fn poll(list: &mut [pollfd], timeout: c_int) -> Result<usize, c_int> {
        // SAFETY: a list of this length.
        checked(unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, timeout) as isize })
    }

    pub fn fcntl(fd: c_int, command: c_int, argument: c_int) -> Result<usize, c_int> {
        // SAFETY: no pointers.
        checked(unsafe { libc::fcntl(fd, command, argument) as isize })
    }

    pub fn unread(fd: c_int) -> c_int {
        let mut len: c_int = 0;
        // SAFETY: an int.
        assert_eq!(unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut len) }, 0);
        len
    }
}

/// Which sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// TCP on the loopback interface.
    Tcp,
    /// Unix.
    Unix,
}

/// Both ends of a connection, as descriptors that the test closes.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub server: RawFd,
    pub client: RawFd,
}

fn accept(listener: &impl AsRawFd, looked_after: bool) -> RawFd {
    if !looked_after {
        return kernel::accept(listener.as_raw_fd());
    }
    // SAFETY: no address is asked for.
    let fd = unsafe {
        libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC)
    };
    checked(fd as isize).unwrap() as RawFd
}

/// A connection whose server end the library intercepts, or not.
pub fn connect(family: Family, looked_after: bool) -> Ends {
    start();
    match family {
        Family::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.set_nodelay(true).unwrap();
            Ends { server: accept(&listener, looked_after), client: client.into_raw_fd() }
        }
        Family::Unix => {
            let name = format!("redoubt-net-{}-{:x}", std::process::id(), fastrand::u64(..));
            let address = SocketAddr::from_abstract_name(name).unwrap();
            let listener = UnixListener::bind_addr(&address).unwrap();
            let client = UnixStream::connect_addr(&address).unwrap();
            Ends { server: accept(&listener, looked_after), client: client.into_raw_fd() }
        }
    }
}

/// One entry for poll.
pub fn entry(fd: RawFd, events: libc::c_short) -> pollfd {
    pollfd { fd, events, revents: 0 }
}

/// Closes with the kernel's call alone, for clients.
pub fn close_client(fd: RawFd) {
    // SAFETY: the test's own descriptor.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// Closes with the library's call.
pub fn close_server(fd: RawFd) {
    // SAFETY: the test's own descriptor.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

/// Sends from the client and waits until the server's kernel has it.
pub fn request(ends: Ends, bytes: &[u8]) {
    kernel::send(ends.client, bytes, 0).unwrap();
    let mut list = [entry(ends.server, libc::POLLIN)];
    assert_eq!(kernel::poll(&mut list, 5000), Ok(1));
}

/// One statement as a server reads it: EAGAIN, wait, header, rest; then the answer.
pub fn statement(ends: Ends, bytes: &[u8], timeout: c_int) {
    let mut header = [0u8; 4];
    assert_eq!(library::recv(ends.server, &mut header, libc::MSG_DONTWAIT), Err(libc::EAGAIN));
    request(ends, bytes);
    finish_statement(ends, bytes, timeout);
}

/// The rest of it, from the wait on.
pub fn finish_statement(ends: Ends, bytes: &[u8], timeout: c_int) {
    let mut header = [0u8; 4];
    let mut list = [entry(ends.server, libc::POLLIN | libc::POLLPRI)];
    assert_eq!(library::poll(&mut list, timeout), Ok(1));
    assert_eq!(list[0].revents, libc::POLLIN);
    assert_eq!(library::recv(ends.server, &mut header, libc::MSG_DONTWAIT), Ok(4));
    let mut rest = vec![0u8; bytes.len() - 4];
    let mut done = 0;
    while done < rest.len() {
        done += library::recv(ends.server, &mut rest[done..], libc::MSG_DONTWAIT).unwrap();
    }
    assert!(header == bytes[..4] && rest == bytes[4..]);
    let answer = [7u8; 11];
    assert_eq!(library::send(ends.server, &answer, libc::MSG_DONTWAIT), Ok(answer.len()));
    let mut got = [0u8; 11];
    assert_eq!(kernel::recv(ends.client, &mut got, libc::MSG_WAITALL), Ok(answer.len()));
}

/// A connection whose server has shown its habit.
pub fn engaged(family: Family, timeout: c_int) -> Ends {
    let ends = connect(family, true);
    library::fcntl(ends.server, libc::F_SETFL, libc::O_NONBLOCK).unwrap();
    for _ in 0..ENGAGE_CYCLES + 3 {
        statement(ends, b"\x01\x00\x00\x00\x0e", timeout);
    }
    ends
}

/// Gives a signal a handler that does nothing. With `restart` calls that can are restarted.
pub fn handle(signal: c_int, restart: bool) {
    extern "C" fn nothing(_: c_int) {}
    // SAFETY: such a handler.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        action.sa_flags = if restart { libc::SA_RESTART } else { 0 };
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// A child process of this test program, with pipes.
pub fn another(name: &str) -> Command {
    let mut command = redoubt_test_support::child::command(name);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// The kernel's descriptor of the server is blocking, although the server has set O_NONBLOCK.
pub fn is_blocking(fd: RawFd) -> bool {
    kernel::fcntl(fd, libc::F_GETFL, 0).unwrap() as c_int & libc::O_NONBLOCK == 0
}
