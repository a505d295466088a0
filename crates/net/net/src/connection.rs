//! One accepted connection: its lock, the state of its descriptor, and the bytes read ahead.
//!
//! Invariants:
//! * [`Reader`] is accessed only under the connection's lock, which is one bit of `state` and only ever tried. Its
//!   holder may be in a system call that blocks, so no thread waits for it.
//! * The last user recycles a connection: the close of its last descriptor, or the holder of the lock at that time.
//! * `BLOCKING` is set before the kernel's flag `O_NONBLOCK` is cleared, and cleared after the flag is set again. So
//!   while the flag is missing, `BLOCKING` shows that the server has set it.

use crate::admission::Seat;
use crate::{next, process, table};
use libc::{c_int, c_void, socklen_t, timeval};
use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Maximum number of bytes read ahead: a page of memory for each collapsed connection.
pub const BUFFER_LEN_BYTES: usize = 4096;

/// In `pending`, beside the count of unread bytes.
const ERROR: u32 = 1 << 31;
const BUSY: u32 = 1;
const CLOSED: u32 = 2;

/// The server has set O_NONBLOCK.
pub const NONBLOCK: u32 = 1;
/// The kernel's descriptor blocks although the server has set O_NONBLOCK.
pub const BLOCKING: u32 = 2;
/// Left to the kernel for good.
pub const PLAIN: u32 = 4;
/// The server has sent something since it last read.
pub const ANSWERED: u32 = 8;
/// The descriptor closes when the process executes another program.
pub const CLOSE_ON_EXEC: u32 = 16;

/// The server's last read, as far as it predicts the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Step {
    /// Anything else.
    #[default]
    Other,
    /// The kernel has returned EAGAIN.
    Empty,
    /// The library has returned EAGAIN without asking the kernel.
    Presumed,
}

/// Bytes read ahead, and the server's habit.
#[derive(Default)]
pub struct Reader {
    buffer: Option<Box<[u8; BUFFER_LEN_BYTES]>>,
    start: usize,
    end: usize,
    /// An error that the kernel reported, and which the server has not received yet; 0: none.
    pub error: c_int,
    /// Consecutive waits of the server after a read that returned EAGAIN.
    pub cycles: u8,
    /// The server's last read.
    pub step: Step,
    /// The server's waits can be replaced by reads.
    pub waits_simply: bool,
    /// Timeout of the server's last wait, in milliseconds.
    pub last_timeout_ms: c_int,
    /// Timeout of the wait for which SO_RCVTIMEO was set, in milliseconds; 0: none.
    pub kernel_timeout_ms: c_int,
    /// Calls not yet added to the counters.
    pub calls: u64,
    /// System calls not yet added to the counters.
    pub system_calls: u64,
    /// The habit has been noted.
    pub habit_is_noted: bool,
    /// Reading ahead has begun.
    pub collapsed: bool,
}

impl Reader {
    /// Bytes that the server has not read.
    pub fn unread(&self) -> &[u8] {
        self.buffer.as_deref().and_then(|buffer| buffer.get(self.start..self.end)).unwrap_or_default()
    }

    /// The whole buffer. Only if there are no unread bytes.
    pub fn space(&mut self) -> &mut [u8; BUFFER_LEN_BYTES] {
        self.buffer.get_or_insert_with(|| Box::new([0; BUFFER_LEN_BYTES]))
    }
}

/// One accepted connection: its lock, the state of its descriptor, and the bytes read ahead.
#[derive(Default)]
#[repr(align(128))]
pub struct Connection {
    state: AtomicU32,
    descriptors: AtomicU32,
    flags: AtomicU32,
    /// Threads in the kernel's poll or select for it, which does not include the buffer. Meanwhile no bytes are read
    /// ahead.
    waiting: AtomicU32,
    /// Number of unread bytes, and [`ERROR`] if there is an error that the server has not received yet.
    pending: AtomicU32,
    /// Created on the first use of admission; never freed.
    seat: OnceLock<Box<Seat>>,
    reader: UnsafeCell<Reader>,
}

// SAFETY: the reader is touched only by the holder of the lock.
unsafe impl Sync for Connection {}

impl Connection {
    /// Starts a connection for a descriptor that was just accepted.
    pub fn open(&self) {
        // Not `waiting`: a thread that waits for the predecessor decrements it when it wakes up.
        self.flags.store(0, Ordering::Relaxed);
        self.pending.store(0, Ordering::Relaxed);
        self.descriptors.store(1, Ordering::Relaxed);
        self.state.store(0, Ordering::Release);
    }

    /// Adds a descriptor of the same connection. `false`: it is closed.
    pub fn add_descriptor(&self) -> bool {
        let more = |count: u32| (count > 0).then(|| count + 1);
        self.descriptors.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Removes a descriptor. `true`: it was the last.
    pub fn remove_descriptor(&'static self) -> bool {
        if self.descriptors.fetch_sub(1, Ordering::AcqRel) != 1 {
            return false;
        }
        // Takes the lock for good: no other thread gets it from here on, and its present holder recycles the
        // connection.
        if self.state.fetch_or(BUSY | CLOSED, Ordering::AcqRel) & BUSY == 0 {
            // SAFETY: the lock was free and is ours now.
            unsafe { self.retire() };
        }
        true
    }

    /// # Safety
    /// The caller has the lock, and the connection is closed.
    unsafe fn retire(&'static self) {
        // SAFETY: the lock is ours by the caller's contract.
        let reader = unsafe { &mut *self.reader.get() };
        crate::control::flush(self.shard(), reader);
        *reader = Reader::default();
        table::recycle(self);
    }

    /// Tries to take the lock. `None`: it is taken, or the descriptor has another connection by now.
    pub fn lock(&'static self, fd: c_int) -> Option<Locked> {
        self.state.compare_exchange(0, BUSY, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let locked = Locked { connection: self };
        table::get(fd).is_some_and(|now| std::ptr::eq(now, self)).then_some(locked)
    }

    /// Whether all of these flags are set.
    pub fn has(&self, flags: u32) -> bool {
        self.flags.load(Ordering::Acquire) & flags == flags
    }

    /// Sets flags, and returns the previous ones.
    pub fn set(&self, flags: u32) -> u32 {
        self.flags.fetch_or(flags, Ordering::AcqRel)
    }

    /// Clears flags.
    pub fn clear(&self, flags: u32) {
        if self.flags.load(Ordering::Acquire) & flags != 0 {
            self.flags.fetch_and(!flags, Ordering::AcqRel);
        }
    }

    /// Records that the server has sent something.
    pub fn answered(&self) {
        if !self.has(ANSWERED) {
            self.set(ANSWERED);
        }
    }

    /// There are bytes or an error for the server that the kernel does not have. Without the lock the result may be
    /// outdated.
    pub fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire) != 0
    }

    /// As [`Connection::has_pending`], but only for an error.
    pub fn has_pending_error(&self) -> bool {
        self.pending.load(Ordering::Acquire) & ERROR != 0
    }

    /// A thread begins or ends a wait in the kernel.
    pub fn wait_in_kernel(&self, begins: bool) {
        if begins {
            self.waiting.fetch_add(1, Ordering::AcqRel);
        } else {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// A thread is reading, and may have begun to wait for bytes before other threads did.
    pub fn is_busy(&self) -> bool {
        self.state.load(Ordering::Acquire) & BUSY != 0
    }

    /// Whether threads wait in the kernel.
    pub fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Acquire) != 0
    }

    /// Its seat in admission.
    pub fn seat(&self) -> &Seat {
        self.seat.get_or_init(Box::default)
    }

    /// As [`Connection::seat`], if it was created already.
    pub fn seat_if_any(&self) -> Option<&Seat> {
        self.seat.get().map(Box::as_ref)
    }

    /// Index of this connection's group of counters.
    pub fn shard(&self) -> usize {
        std::ptr::from_ref(self).addr() / size_of::<Self>()
    }

    /// Makes the kernel's descriptor block. `false`: it does not, as before.
    pub fn make_blocking(&self, fd: c_int) -> bool {
        if self.has(BLOCKING) {
            return true;
        }
        self.set(BLOCKING);
        // SAFETY: no pointers.
        let done = unsafe {
            let flags = next::fcntl(fd, libc::F_GETFL, 0);
            flags >= 0 && next::fcntl(fd, libc::F_SETFL, (flags & !libc::O_NONBLOCK) as usize) == 0
        };
        if !done {
            self.clear(BLOCKING);
        }
        done
    }

    /// Gives the kernel's descriptor the flags that the server has set.
    pub fn make_honest(&self, fd: c_int) {
        // The child of a fork shares the kernel's state with its parent, which relies on it.
        if !self.has(BLOCKING) || process::is_child() {
            return;
        }
        let errno = next::errno();
        // SAFETY: no pointers.
        unsafe {
            let flags = next::fcntl(fd, libc::F_GETFL, 0);
            if flags >= 0 {
                next::fcntl(fd, libc::F_SETFL, (flags | libc::O_NONBLOCK) as usize);
            }
        }
        set_receive_timeout(fd, 0);
        self.clear(BLOCKING);
        next::set_errno(errno);
    }

    /// Leaves the connection to the kernel for good; the server still gets the bytes read ahead.
    pub fn give_up(&self, fd: c_int) {
        if self.set(PLAIN) & PLAIN == 0 {
            crate::control::count(self.shard(), redoubt_shm_control::net::Counter::LeftAlone, 1);
        }
        self.make_honest(fd);
    }
}

/// Sets the timeout of a read in the kernel, in milliseconds; 0: none. `false`: it could not be set.
pub fn set_receive_timeout(fd: c_int, timeout_ms: i64) -> bool {
    let value = timeval { tv_sec: timeout_ms / 1000, tv_usec: timeout_ms % 1000 * 1000 };
    let len = size_of::<timeval>() as socklen_t;
    let pointer = (&raw const value).cast::<c_void>();
    // SAFETY: a timeval of this length.
    unsafe { next::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, pointer, len) == 0 }
}

/// The lock of a connection.
pub struct Locked {
    connection: &'static Connection,
}

impl Locked {
    /// The reader, which the lock guards.
    pub fn reader(&mut self) -> &mut Reader {
        // SAFETY: the lock is held as long as this value lives, and this is its only way to the reader.
        unsafe { &mut *self.connection.reader.get() }
    }

    fn publish(&mut self) {
        let reader = self.reader();
        let pending = (reader.end - reader.start) as u32 | if reader.error == 0 { 0 } else { ERROR };
        self.connection.pending.store(pending, Ordering::Release);
    }

    /// The server has read this many bytes.
    pub fn consume(&mut self, len_bytes: usize) {
        let reader = self.reader();
        reader.start += len_bytes;
        if reader.start >= reader.end {
            (reader.start, reader.end) = (0, 0);
        }
        self.publish();
    }

    /// The buffer was filled with this many bytes.
    pub fn filled(&mut self, len_bytes: usize) {
        let reader = self.reader();
        (reader.start, reader.end) = (0, len_bytes.min(BUFFER_LEN_BYTES));
        self.publish();
    }

    /// Keeps an error for the server's next read.
    pub fn keep_error(&mut self, error: c_int) {
        self.reader().error = error;
        self.publish();
    }

    /// Takes the kept error, which counts as reported from now on.
    pub fn take_error(&mut self) -> Option<c_int> {
        let error = std::mem::take(&mut self.reader().error);
        if error == 0 {
            return None;
        }
        self.publish();
        Some(error)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let state = &self.connection.state;
        if state.compare_exchange(BUSY, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            // Closed meanwhile; the lock stays taken until the connection is opened again.
            // SAFETY: the lock is ours.
            unsafe { self.connection.retire() };
        }
    }
}
