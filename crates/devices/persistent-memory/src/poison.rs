//! Memory errors in mappings: a SIGBUS becomes a flag.
//!
//! Owns the table of the process's mappings and the SIGBUS handler. When an access to a registered mapping faults,
//! the handler sets the mapping's flag and puts an anonymous page of zeros in place of the faulting one, so that
//! the interrupted copy continues and its caller finds the flag. Every other SIGBUS goes to the handler that was there
//! before, or ends the process as it would have.
//!
//! Invariants:
//! * The handler calls nothing but `mmap` and `sigaction`, takes no lock and allocates nothing.
//! * A table entry is one atomic number, so the handler never sees half of a change.
//! * The flag is set before the page is replaced: no thread can store into the replacement and miss the flag.
//! * An entry is removed before its range is unmapped.

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use redoubt_sync::Mutex;

use super::{PmemError, io_error};

/// Mappings that one process may have at most.
const MAX_MAPPINGS: usize = 4096;
/// Entries count in units of this many bytes; the system's pages are this or a multiple.
const UNIT_LEN_BYTES: usize = 4096;
const LEN_BITS: u32 = 28;
/// The longest mapping, in bytes.
pub(super) const MAX_LEN_BYTES: u64 = ((1 << LEN_BITS) - 1) * UNIT_LEN_BYTES as u64;

/// One entry: the first unit of the range above [`LEN_BITS`], its length in units below. 0 is free.
struct MappedRange {
    range: AtomicU64,
    is_poisoned: AtomicBool,
}

static TABLE: [MappedRange; MAX_MAPPINGS] =
    [const { MappedRange { range: AtomicU64::new(0), is_poisoned: AtomicBool::new(false) } }; MAX_MAPPINGS];

/// Held while an entry is taken. Never taken by the handler.
static TAKING: Mutex<()> = Mutex::new(());

/// State of the handler, written once, before the handler is installed.
struct Installed {
    previous: MaybeUninit<libc::sigaction>,
}
static mut INSTALLED: Installed = Installed { previous: MaybeUninit::uninit() };
static IS_INSTALLED: Mutex<bool> = Mutex::new(false);
static PAGE_LEN: AtomicUsize = AtomicUsize::new(UNIT_LEN_BYTES);

/// A mapping's place in the table.
pub(super) struct Registration {
    mapped: &'static MappedRange,
}

impl Registration {
    /// Enters a mapped range, whose start is at a page.
    pub fn new(start: usize, len: usize) -> Result<Self, PmemError> {
        let too_far = || io_error("register the mapping", io::Error::other("its address is out of range"));
        let first_unit = (start / UNIT_LEN_BYTES) as u64;
        if first_unit >> (u64::BITS - LEN_BITS) != 0 {
            return Err(too_far());
        }
        let entry = first_unit << LEN_BITS | len.div_ceil(UNIT_LEN_BYTES) as u64;
        let _taking = TAKING.lock();
        let mapped = TABLE.iter().find(|mapped| mapped.range.load(Ordering::Relaxed) == 0);
        let mapped = mapped.ok_or(PmemError::TooManyMappings { limit: MAX_MAPPINGS })?;
        mapped.is_poisoned.store(false, Ordering::Relaxed);
        mapped.range.store(entry, Ordering::Release);
        Ok(Self { mapped })
    }

    /// True once an access to the mapping met poison.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.mapped.is_poisoned.load(Ordering::Acquire)
    }

    /// Takes the entry out. The range may be unmapped afterwards, and not before.
    pub fn release(&mut self) {
        self.mapped.range.store(0, Ordering::Release);
    }
}

/// Installs the handler if it is not there yet.
pub(super) fn install() -> Result<(), PmemError> {
    let mut is_installed = IS_INSTALLED.lock();
    if *is_installed {
        return Ok(());
    }
    // SAFETY: a question without arguments in memory.
    let page_len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    PAGE_LEN.store(usize::try_from(page_len).unwrap_or(UNIT_LEN_BYTES), Ordering::Relaxed);
    let failed = |_| io_error("install the handler of SIGBUS", io::Error::last_os_error());
    // SAFETY: the handler is not installed, so no thread reads `INSTALLED`; the lock keeps other writers out. The
    // previous action is stored before the handler that needs it is put in place.
    unsafe {
        let previous = (&raw mut INSTALLED.previous).cast::<libc::sigaction>();
        check(libc::sigaction(libc::SIGBUS, std::ptr::null(), previous)).map_err(failed)?;
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_mask = (*previous).sa_mask;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        check(libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut())).map_err(failed)?;
    }
    *is_installed = true;
    Ok(())
}

fn check(result: i32) -> Result<(), ()> {
    if result == 0 { Ok(()) } else { Err(()) }
}

/// The handler. Runs in the thread that touched the memory.
extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: every thread has an `errno`; the interrupted code must find its own.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes a valid `info`, and a SIGBUS that it sent itself carries an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // A code of 0 or less means that a process sent the signal.
    let is_ours = code > 0 && poison(address);
    if !is_ours {
        pass_on(signal, code, info, context);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Marks the mapping that holds `address` and replaces the page. False if there is no such mapping.
fn poison(address: usize) -> bool {
    let unit = (address / UNIT_LEN_BYTES) as u64;
    let mapped = TABLE.iter().find(|mapped| {
        let entry = mapped.range.load(Ordering::Acquire);
        let (first, len) = (entry >> LEN_BITS, entry & ((1 << LEN_BITS) - 1));
        (first..first + len).contains(&unit)
    });
    let Some(mapped) = mapped else { return false };
    mapped.is_poisoned.store(true, Ordering::Release);
    let page_len = PAGE_LEN.load(Ordering::Relaxed);
    let page = address & !(page_len - 1);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page belongs to a mapping of this crate, whose bytes have no references, and which is not
    // unmapped while the access that faulted borrows it.
    let replaced = unsafe { libc::mmap(page as *mut libc::c_void, page_len, protection, flags, -1, 0) };
    replaced != libc::MAP_FAILED
}

/// Does with the signal what would have been done without this handler.
fn pass_on(signal: i32, code: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: written before this handler was installed, and never again.
    let previous = unsafe { &*(&raw const INSTALLED.previous).cast::<libc::sigaction>() };
    match previous.sa_sigaction {
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // A fault happens again when this handler returns, and then ends the process; a signal that was sent
            // has to be sent again. The kernel does not let a process ignore its own faults.
            // SAFETY: restoring the default action is always allowed; `raise` delivers when the handler returns.
            unsafe {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const default, std::ptr::null_mut());
                if code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            type WithInfo = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: with SA_SIGINFO the value is a function of this type.
            let handler = unsafe { std::mem::transmute::<usize, WithInfo>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without SA_SIGINFO, and not one of the constants, the value is a function of this type.
            let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(i32)>(handler) };
            handler(signal);
        }
    }
}
