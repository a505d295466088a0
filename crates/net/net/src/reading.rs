//! Reads of a connection.
//!
//! A server reads a statement in two pieces, a header of a few bytes and then the rest. Before that it reads once
//! without success, in case the header has arrived already. The following applies to a non-blocking descriptor of a
//! server that has shown this habit ([`ENGAGE_CYCLES`] times in a row, including statements that were available at
//! once):
//!
//! * A read of a header (at most [`HEADER_LEN_BYTES`]) takes all available bytes from the kernel, and the following
//!   reads are answered from them.
//! * The first read of a header after the server has sent something returns EAGAIN without asking the kernel. If a
//!   statement has arrived already, it is as if it arrived a little later: the server waits next, and that wait ends at
//!   once. This answer is given once; a server that reads again instead of waiting gets the kernel's.
//!
//! Everything else is the kernel's, after the bytes that were read ahead.

use crate::admission;
use crate::connection::{
    ANSWERED, BLOCKING, BUFFER_LEN_BYTES, CLOSE_ON_EXEC, Connection, Locked, NONBLOCK, PLAIN, Reader, Step,
};
use crate::{control, next, process};
use libc::{c_int, c_void};
use redoubt_shm_control::net::{Counter, Mode};

/// Consecutive waits after which the server has the habit. More than a login has.
pub const ENGAGE_CYCLES: u8 = 8;
/// Real waits required among these.
const PROVEN_CYCLES: u8 = 2;
/// Longest read that counts as that of a header: TLS has 5 bytes, the protocol 4, compressed 7.
pub const HEADER_LEN_BYTES: usize = 16;

/// A caller's buffer.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its start.
    pub address: *mut u8,
    /// Its length, in bytes.
    pub len_bytes: usize,
}

impl Target {
    fn is_header(self) -> bool {
        (1..=HEADER_LEN_BYTES).contains(&self.len_bytes)
    }

    /// The rest after this many bytes.
    fn after(self, done_bytes: usize) -> Self {
        let done_bytes = done_bytes.min(self.len_bytes);
        // SAFETY: at most the end of the caller's buffer.
        Self { address: unsafe { self.address.add(done_bytes) }, len_bytes: self.len_bytes - done_bytes }
    }

    /// The bytes.
    ///
    /// # Safety
    /// Null, or valid for writing this many bytes, and the caller's until the slice is gone.
    pub unsafe fn bytes<'call>(self) -> &'call mut [u8] {
        if self.address.is_null() || self.len_bytes == 0 {
            return &mut [];
        }
        // SAFETY: by the caller's contract.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.len_bytes) }
    }

    /// # Safety
    /// The address is valid for writing this many bytes.
    unsafe fn fill(self, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.len_bytes);
        // SAFETY: valid by the caller's contract, and the buffer of a connection is never the caller's.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.address, len) };
        len
    }
}

/// Reads from the kernel.
///
/// # Safety
/// The target is valid for writing, as the C function requires.
unsafe fn ask(fd: c_int, target: Target, flags: c_int) -> Result<usize, c_int> {
    // SAFETY: by the caller's contract.
    let result = unsafe { next::recv(fd, target.address.cast::<c_void>(), target.len_bytes, flags) };
    usize::try_from(result).map_err(|_| next::errno())
}

/// Adds the flag with which the kernel behaves as the server's O_NONBLOCK requires.
pub fn honest(connection: &Connection, flags: c_int) -> c_int {
    if connection.has(BLOCKING) { flags | libc::MSG_DONTWAIT } else { flags }
}

/// The mode that applies to a connection at present.
pub fn mode(connection: &Connection, reader: &Reader) -> Mode {
    let may_collapse =
        reader.cycles >= ENGAGE_CYCLES && !connection.has(PLAIN) && !connection.is_waited_for();
    if may_collapse { control::mode(can_wait_in_read(connection, reader)) } else { Mode::Off }
}

/// Reads can replace the server's waits.
pub fn can_wait_in_read(connection: &Connection, reader: &Reader) -> bool {
    // Another program would get a blocking descriptor.
    reader.waits_simply && connection.has(CLOSE_ON_EXEC)
}

/// `recv` and equivalent calls.
///
/// # Safety
/// The target is valid for writing.
pub unsafe fn receive(
    connection: &'static Connection,
    fd: c_int,
    target: Target,
    flags: c_int,
) -> Result<usize, c_int> {
    if process::is_child() || flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
        // SAFETY: the caller's target.
        return unsafe { ask(fd, target, honest(connection, flags)) };
    }
    loop {
        if let Some(mut locked) = connection.lock(fd) {
            locked.reader().calls += 1;
            if admission::is_on() {
                // SAFETY: the caller's target.
                return unsafe { receive_admitted(connection, &mut locked, fd, target, flags) };
            }
            // SAFETY: the caller's target.
            return unsafe { receive_locked(connection, &mut locked, fd, target, flags) };
        }
        if !crate::table::get(fd).is_some_and(|now| std::ptr::eq(now, connection)) {
            // SAFETY: the caller's target. The number is another's by now.
            return unsafe { ask(fd, target, flags) };
        }
        if !wait_for_lock(connection, fd, flags) {
            return Err(libc::EAGAIN);
        }
    }
}

/// As [`receive_locked`], unless it is a command that may have to wait: this one is not available yet.
///
/// # Safety
/// The target is valid for writing.
unsafe fn receive_admitted(
    connection: &'static Connection,
    locked: &mut Locked,
    fd: c_int,
    target: Target,
    flags: c_int,
) -> Result<usize, c_int> {
    let does_not_wait = flags & libc::MSG_DONTWAIT != 0 || connection.has(NONBLOCK);
    if does_not_wait && !admission::may_read_socket(connection, target.len_bytes) {
        locked.reader().step = Step::Presumed;
        return Err(libc::EAGAIN);
    }
    // SAFETY: the caller's target.
    let result = unsafe { receive_locked(connection, locked, fd, target, flags) };
    match result {
        Ok(1..) if flags & libc::MSG_TRUNC != 0 => admission::lose(connection),
        Ok(len @ 1..) if flags & libc::MSG_PEEK == 0 => {
            // SAFETY: as many bytes were just written there.
            let bytes = unsafe { std::slice::from_raw_parts(target.address, len) };
            admission::received(connection, bytes);
        }
        _ => {}
    }
    result
}

/// Another thread reads the same connection, which no known server does. `false`: the caller does not block.
fn wait_for_lock(connection: &Connection, fd: c_int, flags: c_int) -> bool {
    if connection.has_pending() {
        std::thread::yield_now();
        return true;
    }
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let does_not_wait = flags & libc::MSG_DONTWAIT != 0 || connection.has(NONBLOCK);
    // SAFETY: one entry.
    let ready = unsafe { next::poll(&raw mut entry, 1, if does_not_wait { 0 } else { 10 }) };
    if ready > 0 {
        std::thread::yield_now();
    }
    ready > 0 || !does_not_wait
}

/// # Safety
/// The target is valid for writing.
unsafe fn receive_locked(
    connection: &Connection,
    locked: &mut Locked,
    fd: c_int,
    target: Target,
    flags: c_int,
) -> Result<usize, c_int> {
    if !locked.reader().unread().is_empty() {
        // SAFETY: the caller's target.
        return Ok(unsafe { serve(connection, locked, fd, target, flags) });
    }
    if let Some(error) = locked.take_error() {
        return Err(error);
    }
    let reader = locked.reader();
    let does_not_wait = flags & libc::MSG_DONTWAIT != 0 || connection.has(NONBLOCK);
    let is_usual = flags & !(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) == 0 && does_not_wait;
    if !is_usual || !target.is_header() {
        reader.step = Step::Other;
        reader.system_calls += 1;
        // SAFETY: the caller's target.
        let result = unsafe { ask(fd, target, honest(connection, flags)) };
        if result.is_ok() {
            connection.clear(ANSWERED);
        }
        return result;
    }
    if reader.step != Step::Other {
        // The server reads again instead of waiting.
        reader.cycles = 0;
    }
    let may_collapse = mode(connection, reader) != Mode::Off;
    if may_collapse && reader.step == Step::Other && connection.has(ANSWERED) {
        connection.clear(ANSWERED);
        reader.step = Step::Presumed;
        return Err(libc::EAGAIN);
    }
    reader.step = Step::Other;
    reader.system_calls += 1;
    let result = if may_collapse {
        let len = fill(locked, fd, libc::MSG_DONTWAIT);
        // SAFETY: the caller's target.
        len.map(|_| unsafe { take(locked, target) })
    } else {
        connection.make_honest(fd);
        // SAFETY: the caller's target.
        unsafe { ask(fd, target, flags) }
    };
    match result {
        Ok(_) => {
            let reader = locked.reader();
            if reader.cycles >= PROVEN_CYCLES && connection.has(ANSWERED) {
                // A statement that was available at once counts as a wait.
                reader.cycles = reader.cycles.saturating_add(1);
            }
            connection.clear(ANSWERED);
        }
        Err(libc::EAGAIN) => locked.reader().step = Step::Empty,
        Err(_) => {}
    }
    result
}

/// Reads ahead. Only if nothing is unread.
pub fn fill(locked: &mut Locked, fd: c_int, flags: c_int) -> Result<usize, c_int> {
    let space = locked.reader().space();
    let target = Target { address: space.as_mut_ptr(), len_bytes: BUFFER_LEN_BYTES };
    // SAFETY: a buffer of this length, which no other thread accesses while the lock is held.
    let len = unsafe { ask(fd, target, flags) }?;
    locked.filled(len);
    Ok(len)
}

/// # Safety
/// The target is valid for writing.
unsafe fn take(locked: &mut Locked, target: Target) -> usize {
    // SAFETY: by the caller's contract.
    let len = unsafe { target.fill(locked.reader().unread()) };
    locked.consume(len);
    len
}

/// Answers from the bytes read ahead, and reads the rest from the kernel.
///
/// # Safety
/// The target is valid for writing.
unsafe fn serve(
    connection: &Connection,
    locked: &mut Locked,
    fd: c_int,
    target: Target,
    flags: c_int,
) -> usize {
    locked.reader().step = Step::Other;
    connection.clear(ANSWERED);
    let peeks = flags & libc::MSG_PEEK != 0;
    let done = if flags & libc::MSG_TRUNC != 0 {
        // On TCP the bytes are discarded. The kernel's bytes are discarded by the next call.
        let len = locked.reader().unread().len().min(target.len_bytes);
        if !peeks {
            locked.consume(len);
        }
        return len;
    } else if peeks {
        // SAFETY: the caller's target.
        unsafe { target.fill(locked.reader().unread()) }
    } else {
        // SAFETY: the caller's target.
        unsafe { take(locked, target) }
    };
    let rest = target.after(done);
    if rest.len_bytes == 0 {
        return done;
    }
    let waits =
        flags & libc::MSG_WAITALL != 0 && flags & libc::MSG_DONTWAIT == 0 && !connection.has(NONBLOCK);
    let flags = if waits { flags } else { flags & !libc::MSG_WAITALL | libc::MSG_DONTWAIT };
    locked.reader().system_calls += 1;
    // SAFETY: the rest of the caller's target.
    match unsafe { ask(fd, rest, flags) } {
        Ok(more) => done + more,
        Err(libc::EAGAIN | libc::EINTR) => done,
        Err(error) => {
            locked.keep_error(error);
            done
        }
    }
}

/// Counts a wait that ended with bytes.
pub fn count_request(connection: &Connection, locked: &mut Locked) {
    let reader = locked.reader();
    if !reader.collapsed && mode(connection, reader) != Mode::Off {
        reader.collapsed = true;
        control::count(connection.shard(), Counter::Collapsed, 1);
    }
    control::count(connection.shard(), Counter::Requests, 1);
    control::flush(connection.shard(), reader);
}
