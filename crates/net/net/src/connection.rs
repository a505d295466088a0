//! One accepted connection: who may touch it, what is known of its descriptor, and what was read ahead.
//!
//! Invariants:
//! * [`Reader`] is touched only under the connection's lock, which is one bit of `state`, only ever tried for. Its
//!   holder may be in a system call that waits, so nobody waits for it.
//! * A connection is recycled by whoever comes last: the close of its last descriptor, or the holder of the lock at
//!   that time.
//! * `BLOCKING` is set before the kernel's flag `O_NONBLOCK` is taken away and cleared after it is back, so whoever
//!   sees a descriptor without it knows that the server believes it to be there.

use crate::admission::Seat;
use crate::{next, process, table};
use libc::{c_int, c_void, socklen_t, timeval};
use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// What is read ahead at most, in bytes: a page of memory for each connection that is collapsed.
pub const BUFFER_LEN_BYTES: usize = 4096;

/// Beside the count of unread bytes.
const ERROR: u32 = 1 << 31;
const BUSY: u32 = 1;
const CLOSED: u32 = 2;

/// The server has set O_NONBLOCK.
pub const NONBLOCK: u32 = 1;
/// The kernel's descriptor waits although the server has set O_NONBLOCK.
pub const BLOCKING: u32 = 2;
/// Left to the kernel for good.
pub const PLAIN: u32 = 4;
/// The server has sent something since it last read.
pub const ANSWERED: u32 = 8;
/// It closes when the process executes another program.
pub const CLOSE_ON_EXEC: u32 = 16;

/// What the server did last, as far as that tells what it does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Step {
    /// Anything else.
    #[default]
    Other,
    /// It was told by the kernel that there is nothing to read.
    Empty,
    /// It was told so without asking the kernel.
    Presumed,
}

/// What was read ahead, and what the server's habit is.
#[derive(Default)]
pub struct Reader {
    buffer: Option<Box<[u8; BUFFER_LEN_BYTES]>>,
    start: usize,
    end: usize,
    /// An error that the kernel reported, and which the server has not heard of; 0: none.
    pub error: c_int,
    /// How often in turn the server waited after it was told that there is nothing.
    pub cycles: u8,
    /// See [`Step`].
    pub step: Step,
    /// The server's waits are such that a read could take their place.
    pub waits_simply: bool,
    /// Time-out of the server's last wait, in milliseconds.
    pub last_timeout_ms: c_int,
    /// The time-out that the kernel was told of (SO_RCVTIMEO), as the wait's in milliseconds; 0: none.
    pub kernel_timeout_ms: c_int,
    /// Not yet counted.
    pub calls: u64,
    /// Not yet counted.
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

    /// The whole buffer. Only when there is nothing unread.
    pub fn space(&mut self) -> &mut [u8; BUFFER_LEN_BYTES] {
        self.buffer.get_or_insert_with(|| Box::new([0; BUFFER_LEN_BYTES]))
    }
}

/// One accepted connection: its owner, the state of its descriptor, and bytes read ahead.
#[derive(Default)]
#[repr(align(128))]
pub struct Connection {
    state: AtomicU32,
    descriptors: AtomicU32,
    flags: AtomicU32,
    /// Threads in the kernel's poll or select for it, which do not see the buffer. No bytes are read ahead meanwhile.
    waiting: AtomicU32,
    /// Unread bytes, and [`ERROR`] if there is an error that the server has not heard of.
    pending: AtomicU32,
    /// Made when there is a limit of admission, then there for good.
    seat: OnceLock<Box<Seat>>,
    reader: UnsafeCell<Reader>,
}

// SAFETY: the reader is touched only by the holder of the lock.
unsafe impl Sync for Connection {}

impl Connection {
    /// For a descriptor that was just accepted.
    pub fn open(&self) {
        // Not `waiting`: who waits for the predecessor takes himself off when he wakes up.
        self.flags.store(0, Ordering::Relaxed);
        self.pending.store(0, Ordering::Relaxed);
        self.descriptors.store(1, Ordering::Relaxed);
        self.state.store(0, Ordering::Release);
    }

    /// One more descriptor of the same. `false`: it is closed.
    pub fn add_descriptor(&self) -> bool {
        let more = |count: u32| (count > 0).then(|| count + 1);
        self.descriptors.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// One less. `true`: it was the last.
    pub fn remove_descriptor(&'static self) -> bool {
        if self.descriptors.fetch_sub(1, Ordering::AcqRel) != 1 {
            return false;
        }
        // With the lock taken: nobody else gets it from here on, and whoever has it recycles.
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

    /// Tries for the lock, and whether the connection is still the descriptor's.
    pub fn lock(&'static self, fd: c_int) -> Option<Locked> {
        self.state.compare_exchange(0, BUSY, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let locked = Locked { connection: self };
        table::get(fd).is_some_and(|now| std::ptr::eq(now, self)).then_some(locked)
    }

    /// Whether all of these flags are set.
    pub fn has(&self, flags: u32) -> bool {
        self.flags.load(Ordering::Acquire) & flags == flags
    }

    /// Sets flags; what was set before.
    pub fn set(&self, flags: u32) -> u32 {
        self.flags.fetch_or(flags, Ordering::AcqRel)
    }

    /// Clears flags.
    pub fn clear(&self, flags: u32) {
        if self.flags.load(Ordering::Acquire) & flags != 0 {
            self.flags.fetch_and(!flags, Ordering::AcqRel);
        }
    }

    /// Notes that the server has sent something.
    pub fn answered(&self) {
        if !self.has(ANSWERED) {
            self.set(ANSWERED);
        }
    }

    /// There is something for the server that the kernel does not know of. Without the lock: as of a moment ago.
    pub fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire) != 0
    }

    /// As [`Connection::has_pending`], and it is an error.
    pub fn has_pending_error(&self) -> bool {
        self.pending.load(Ordering::Acquire) & ERROR != 0
    }

    /// A thread waits in the kernel, or does not any more.
    pub fn wait_in_kernel(&self, begins: bool) {
        if begins {
            self.waiting.fetch_add(1, Ordering::AcqRel);
        } else {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// A thread is reading, and may have begun to wait for bytes before others did.
    pub fn is_busy(&self) -> bool {
        self.state.load(Ordering::Acquire) & BUSY != 0
    }

    /// Whether threads wait in the kernel.
    pub fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Acquire) != 0
    }

    /// Its part in admission.
    pub fn seat(&self) -> &Seat {
        self.seat.get_or_init(Box::default)
    }

    /// As [`Connection::seat`], if it was ever asked for.
    pub fn seat_if_any(&self) -> Option<&Seat> {
        self.seat.get().map(Box::as_ref)
    }

    /// Which group of counters is this connection's.
    pub fn shard(&self) -> usize {
        std::ptr::from_ref(self).addr() / size_of::<Self>()
    }

    /// Lets the kernel's descriptor wait. `false`: it does not, as before.
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

    /// Gives the kernel's descriptor the state that the server believes it to have.
    pub fn make_honest(&self, fd: c_int) {
        // The child of a fork shares the kernel's state with its parent, which counts on it.
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

    /// Leaves the connection to the kernel for good; what was read ahead is still the server's.
    pub fn give_up(&self, fd: c_int) {
        if self.set(PLAIN) & PLAIN == 0 {
            crate::control::count(self.shard(), redoubt_shm_control::net::Counter::LeftAlone, 1);
        }
        self.make_honest(fd);
    }
}

/// How long a read waits in the kernel at most, in milliseconds; 0: for ever. `false`: it could not be set.
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
    /// What it guards.
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

    /// The kept error, which is thereby reported.
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
