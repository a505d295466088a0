//! The memory that `redoubt net` reads: the configured mode, and counters. Its layout is in
//! [`redoubt_shm_control::net`].
//!
//! Without it (the memory could not be created) the mode stays as at the start, there is no limit of admission, and
//! nothing is counted.

use crate::connection::Reader;
use redoubt_shm_control::net::{
    BYPASS_WORD, COLLAPSER_WORD, COUNTERS_WORD, Counter, HABIT_WORD, Habit, INSIDE_WORD, LEASE_WORD,
    LEN_BYTES, LIMIT_WORD, LONGEST_WAIT_WORD, LOOK_WORD, Limit, MAGIC, Mode, NAME, PATIENCE_WORD,
    PROCESS_WORD, SHARD_WORDS, SHARDS, START_WORD, Setting, USER_TCP_LINK_WORDS, USER_TCP_LINKS,
    USER_TCP_LINKS_WORD, USER_TCP_WORD, WAITER_WORDS, WAITERS_WORD, WAITING_WORD, Waiter,
};
use std::ffi::CString;
use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

type Words = [AtomicU64; LEN_BYTES / 8];

static MEMORY: AtomicPtr<Words> = AtomicPtr::new(std::ptr::null_mut());
/// The mode of a process without the memory.
static MODE: AtomicU64 = AtomicU64::new(Mode::Off as u64);
/// The bypass setting of a process without the memory, and until it is there.
static BYPASS: AtomicU64 = AtomicU64::new(0);

fn words() -> Option<&'static Words> {
    // SAFETY: null, or a mapping that is never unmapped and used by atomic operations only.
    unsafe { MEMORY.load(Ordering::Acquire).as_ref() }
}

/// Creates the memory, and stores the configuration.
pub fn start(setting: &Setting) {
    MODE.store(setting.collapser as u64, Ordering::Release);
    let words = match map() {
        Ok(words) => words,
        Err(error) => return report_missing(&error, setting.collapser),
    };
    let start_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    for (at, value) in [
        (PROCESS_WORD, u64::from(std::process::id())),
        (START_WORD, start_s),
        (COLLAPSER_WORD, setting.collapser as u64),
        (BYPASS_WORD, BYPASS.load(Ordering::Acquire)),
        (LIMIT_WORD, Limit::default().replaced_by(setting.admission.limit).to_word()),
        (LEASE_WORD, setting.admission.lease_ms),
        (PATIENCE_WORD, setting.admission.longest_wait_ms),
        (USER_TCP_WORD, u64::from(!setting.user_tcp.is_empty())),
        (0, MAGIC),
    ] {
        if let Some(word) = words.get(at) {
            word.store(value, Ordering::Release);
        }
    }
    MEMORY.store(std::ptr::from_ref(words).cast_mut(), Ordering::Release);
}

/// Logs why `redoubt net status` does not show this server.
fn report_missing(error: &io::Error, collapser: Mode) {
    let line = format!(
        "[redoubt] there is no memory for `redoubt net status` and `redoubt net set` (memfd_create: {error}): the \
         collapser stays {}, and there is no limit of admission\n",
        collapser.name()
    );
    // SAFETY: a buffer of this length.
    unsafe { libc::syscall(libc::SYS_write, 2, line.as_ptr(), line.len()) };
}

fn map() -> io::Result<&'static Words> {
    let name = CString::new(NAME)?;
    // SAFETY: a NUL-terminated name; then a descriptor that is ours, and a new mapping at an address of the kernel's
    // choice. The descriptor stays open: the command finds the memory by it. The kernel does not shrink the memory
    // under the mapping by itself; a process that may write to it may harm the server in simpler ways.
    let address = unsafe {
        let fd = libc::syscall(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) as libc::c_int;
        if fd < 0 || libc::ftruncate(fd, LEN_BYTES as libc::off_t) != 0 {
            return Err(io::Error::last_os_error());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), LEN_BYTES, protection, libc::MAP_SHARED, fd, 0)
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping has this length and a page's alignment, and is never unmapped.
    Ok(unsafe { &*address.cast::<Words>() })
}

/// Mode of the collapser on a connection whose waits can be replaced by reads, or not.
///
/// [`Mode::Auto`] does nothing for the latter: reading ahead alone had no measurable effect.
pub fn mode(can_wait_in_read: bool) -> Mode {
    wanted().resolved(if can_wait_in_read { Habit::Simple } else { Habit::Complex })
}

/// Records the waits of a connection.
pub fn note_habit(can_wait_in_read: bool) {
    store(HABIT_WORD, if can_wait_in_read { Habit::Simple } else { Habit::Complex } as u64);
}

fn bypass() -> &'static AtomicU64 {
    words().and_then(|words| words.get(BYPASS_WORD)).unwrap_or(&BYPASS)
}

/// New connections of clients on this host bypass TCP.
#[inline]
pub fn is_bypass_wanted() -> bool {
    bypass().load(Ordering::Relaxed) != 0
}

/// Sets whether they do.
pub fn set_bypass(wanted: bool) {
    bypass().store(u64::from(wanted), Ordering::Relaxed);
}

fn wanted() -> Mode {
    let word = words().and_then(|words| words.get(COLLAPSER_WORD)).unwrap_or(&MODE).load(Ordering::Relaxed);
    Mode::from_word(word).unwrap_or(Mode::Off)
}

/// Sets the mode of the collapser.
pub fn set_mode(mode: Mode) {
    words()
        .and_then(|words| words.get(COLLAPSER_WORD))
        .unwrap_or(&MODE)
        .store(mode as u64, Ordering::Relaxed);
}

fn load(at: usize) -> Option<u64> {
    words().and_then(|words| words.get(at)).map(|word| word.load(Ordering::Relaxed))
}

fn store(at: usize, value: u64) {
    if let Some(word) = words().and_then(|words| words.get(at)) {
        word.store(value, Ordering::Relaxed);
    }
}

/// Limit of connections inside a transaction.
#[inline]
pub fn limit() -> Limit {
    Limit::from_word(load(LIMIT_WORD).unwrap_or(0))
}

/// Sets the limit.
pub fn set_limit(limit: Limit) {
    store(LIMIT_WORD, self::limit().replaced_by(limit).to_word());
}

/// How long a client may leave a transaction idle, in milliseconds.
pub fn lease_ms() -> u64 {
    load(LEASE_WORD).unwrap_or(u64::MAX)
}

/// Timeout of a wait for admission, in milliseconds.
pub fn longest_wait_ms() -> u64 {
    load(PATIENCE_WORD).unwrap_or(0)
}

/// New connections bypass the kernel's TCP.
pub fn is_user_tcp_wanted() -> bool {
    load(USER_TCP_WORD).is_none_or(|word| word != 0)
}

/// Publishes the statistics of TCP in user space on one interface.
pub fn publish_user_tcp(number: usize, words: [u64; USER_TCP_LINK_WORDS]) {
    if number < USER_TCP_LINKS {
        let first = USER_TCP_LINKS_WORD + number * USER_TCP_LINK_WORDS;
        words.into_iter().enumerate().for_each(|(at, word)| store(first + at, word));
    }
}

/// Publishes the statistics of admission; surplus waiters of the previous call are cleared.
pub fn publish_admission(
    inside: usize,
    waiting: usize,
    longest_ms: u64,
    waiters: &[Waiter],
    written_before: usize,
) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let nobody = [[0; WAITER_WORDS]];
    let gone = written_before.saturating_sub(waiters.len());
    let all =
        waiters.iter().map(|waiter| waiter.to_words(now_ms)).chain(nobody.into_iter().cycle().take(gone));
    for (at, value) in all.flatten().enumerate() {
        store(WAITERS_WORD + at, value);
    }
    let words = [
        (INSIDE_WORD, inside as u64),
        (WAITING_WORD, waiting as u64),
        (LONGEST_WAIT_WORD, longest_ms),
        (LOOK_WORD, now_ms),
    ];
    words.into_iter().for_each(|(at, value)| store(at, value));
}

/// Adds to a counter.
pub fn count(shard: usize, counter: Counter, amount: u64) {
    let at = COUNTERS_WORD + shard % SHARDS * SHARD_WORDS + counter as usize;
    if let Some(word) = words().and_then(|words| words.get(at)) {
        word.fetch_add(amount, Ordering::Relaxed);
    }
}

/// The sum of a counter.
pub fn total(counter: Counter) -> u64 {
    let words = words();
    let value = |shard: usize| {
        words.and_then(|words| words.get(COUNTERS_WORD + shard * SHARD_WORDS + counter as usize))
    };
    (0..SHARDS).filter_map(value).map(|word| word.load(Ordering::Relaxed)).sum()
}

/// Adds the counts of a connection.
pub fn flush(shard: usize, reader: &mut Reader) {
    count(shard, Counter::Calls, std::mem::take(&mut reader.calls));
    count(shard, Counter::SystemCalls, std::mem::take(&mut reader.system_calls));
}
