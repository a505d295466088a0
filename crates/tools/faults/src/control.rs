//! The control file: rules in, counts out. Both sides map or read it; it outlives the processes.
//!
//! Layout, numbers little-endian, [`LEN_BYTES`] bytes:
//!
//! | offset | what |
//! |---|---|
//! | 0 | magic `RDTFLT01` |
//! | 8 | u64 generation of the rules; 0: no faults |
//! | 16 | u64 seed |
//! | 24 | u64 generation that a process last refused: its rules cannot be read |
//! | 4096 | rules as text (see [`crate::plan`]), padded with zeros |
//! | 8192 | u64 counts of injected faults, by call and then by fault, in the order of [`CALLS`] and [`FAULTS`] |
//! | 12288 | u64 counts of calls, in the order of [`CALLS`], while rules were in force |
//!
//! To change the rules, a writer sets the generation to 0, writes seed and rules, and then a new generation. A process
//! that reads a new generation reads the rules, and then checks that the generation is still the same.
//!
//! Lock: the plan in force, only ever tried for: a call that does not get it at once is left alone, so that nothing
//! can wait for itself, not even in the child of a fork.

use crate::next;
use crate::plan::{CALLS, Call, FAULTS, Fault, Plan};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

const MAGIC: [u8; 8] = *b"RDTFLT01";
/// Length of the file.
pub const LEN_BYTES: usize = 16384;
const GENERATION: usize = 1;
const SEED: usize = 2;
const REFUSED: usize = 3;
const TEXT: std::ops::Range<usize> = 4096 / 8..8192 / 8;
const COUNTS: usize = 8192 / 8;
const SEEN: usize = 12288 / 8;

type Words = [AtomicU64; LEN_BYTES / 8];

static MAP: AtomicPtr<Words> = AtomicPtr::new(std::ptr::null_mut());
static PLAN: OnceLock<RwLock<(u64, Option<Arc<Plan>>)>> = OnceLock::new();
static LOG: OnceLock<i32> = OnceLock::new();

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Maps the control file, if this is the program that is meant.
pub fn activate() {
    let Some(path) = variable("REDOUBT_FAULTS").and_then(|path| CString::new(path.into_vec()).ok()) else {
        return;
    };
    if variable("REDOUBT_FAULTS_PROGRAM").is_some_and(|program| program.into_vec() != program_name()) {
        return;
    }
    let Some(words) = next::open_raw(&path, libc::O_RDWR | libc::O_CLOEXEC).and_then(map) else {
        next::write_raw(2, b"[redoubt-faults] the file in REDOUBT_FAULTS is not a control file\n");
        // SAFETY: _exit has no requirement. A test without its faults would prove nothing.
        unsafe { libc::_exit(99) }
    };
    let log = variable("REDOUBT_FAULTS_LOG").and_then(|path| CString::new(path.into_vec()).ok());
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    if let Some(fd) = log.and_then(|path| next::open_raw(&path, flags)) {
        LOG.get_or_init(|| fd);
    }
    PLAN.get_or_init(RwLock::default);
    MAP.store(std::ptr::from_ref(words).cast_mut(), Ordering::Release);
}

fn program_name() -> Vec<u8> {
    let mut name = [0u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes, with a NUL.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name.into_iter().take_while(|byte| *byte != 0).collect()
}

fn map(fd: i32) -> Option<&'static Words> {
    // SAFETY: a new shared mapping at an address of the kernel's choice; the descriptor is ours and closed after it.
    let address = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let address =
            libc::syscall(libc::SYS_mmap, 0usize, LEN_BYTES, protection, libc::MAP_SHARED, fd, 0usize);
        libc::syscall(libc::SYS_close, fd);
        address
    };
    if address < 0 {
        return None;
    }
    // SAFETY: the mapping has this length and a page's alignment, is never unmapped, and all access is atomic. A file
    // that is too short faults at once, in the comparison below, before the program under test has begun.
    let words: &'static Words = unsafe { &*(address as *const Words) };
    let magic = words.first()?.load(Ordering::Relaxed).to_le_bytes();
    (magic == MAGIC).then_some(words)
}

fn words() -> Option<&'static Words> {
    // SAFETY: null, or a mapping that is there for good.
    unsafe { MAP.load(Ordering::Acquire).as_ref() }
}

fn word(words: &Words, index: usize) -> u64 {
    words.get(index).map_or(0, |word| word.load(Ordering::Acquire))
}

/// The rules in force. With none this costs two loads.
pub fn plan() -> Option<Arc<Plan>> {
    let words = words()?;
    let generation = word(words, GENERATION);
    if generation == 0 {
        return None;
    }
    let plan = PLAN.get()?;
    {
        let known = plan.try_read().ok()?;
        if known.0 == generation {
            return known.1.clone();
        }
    }
    let text: Vec<u8> =
        TEXT.flat_map(|index| word(words, index).to_le_bytes()).take_while(|byte| *byte != 0).collect();
    let parsed = std::str::from_utf8(&text)
        .map_err(|error| error.to_string())
        .and_then(|text| Plan::parse(word(words, SEED), text));
    if word(words, GENERATION) != generation {
        return None;
    }
    let mut known = plan.try_write().ok()?;
    if known.0 != generation {
        if let Err(error) = &parsed {
            next::write_raw(2, format!("[redoubt-faults] {error}\n").as_bytes());
            if let Some(refused) = words.get(REFUSED) {
                refused.store(generation, Ordering::Release);
            }
        }
        *known = (generation, parsed.ok().map(Arc::new));
    }
    known.1.clone()
}

fn add(index: usize) {
    if let Some(word) = words().and_then(|words| words.get(index)) {
        word.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a call that rules were asked about.
pub fn seen(call: Call) {
    add(SEEN + call as usize);
}

/// Counts a fault, and writes it down where that is wanted.
pub fn count(call: Call, fault: Fault, path: &[u8]) {
    add(COUNTS + call as usize * FAULTS.len() + fault as usize);
    if let Some(log) = LOG.get() {
        let (call, fault) = (CALLS.get(call as usize), FAULTS.get(fault as usize));
        let (call, fault) = (call.copied().unwrap_or_default(), fault.copied().unwrap_or_default());
        let path = String::from_utf8_lossy(path);
        let line = format!("{} {call} {fault} {path}\n", std::process::id());
        next::write_raw(*log, line.as_bytes());
    }
}
