//! `bpf(2)`: maps, programs, and the link that ties a program to an interface while a process has it open, so that a
//! killed server leaves nothing behind.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;

/// A hash map.
pub const MAP_HASH: u32 = 1;
/// A map of AF_XDP sockets, by queue.
pub const MAP_SOCKETS: u32 = 17;

/// The kernel's `union bpf_attr`, whose rest is zero.
type Attributes = [u32; 32];

fn address(pointer: *const c_void) -> [u32; 2] {
    let whole = pointer.addr() as u64;
    [whole as u32, (whole >> 32) as u32]
}

/// # Safety
/// The attributes point to valid memory of the length that the command requires.
unsafe fn bpf(command: libc::c_int, attributes: &Attributes) -> io::Result<libc::c_int> {
    let len = size_of::<Attributes>();
    // SAFETY: attributes of this length; their pointers are valid by the caller's contract.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

fn descriptor(fd: libc::c_int) -> OwnedFd {
    // SAFETY: the kernel has just made it, closed at exec, and no other owner exists.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn attributes(first: &[u32]) -> Attributes {
    let mut all = [0; 32];
    all.iter_mut().zip(first).for_each(|(to, from)| *to = *from);
    all
}

/// Memory for entries is allocated on insertion.
pub const ON_DEMAND: u32 = 1;

/// Makes a map.
///
/// # Errors
/// Those of the kernel.
pub fn create_map(
    kind: u32,
    key_len_bytes: usize,
    value_len_bytes: usize,
    entries: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let attributes = attributes(&[kind, key_len_bytes as u32, value_len_bytes as u32, entries, flags]);
    // SAFETY: there are no pointers.
    unsafe { bpf(MAP_CREATE, &attributes) }.map(descriptor)
}

fn entry(map: BorrowedFd<'_>, key: *const c_void, value: *const c_void) -> Attributes {
    let ([key_low, key_high], [value_low, value_high]) = (address(key), address(value));
    attributes(&[map.as_raw_fd() as u32, 0, key_low, key_high, value_low, value_high])
}

/// Adds an entry to a map; key and value have the lengths with which it was made.
///
/// # Errors
/// Those of the kernel.
pub fn update<const KEY: usize>(map: BorrowedFd<'_>, key: &[u8; KEY], value: u32) -> io::Result<()> {
    let attributes = entry(map, key.as_ptr().cast(), (&raw const value).cast());
    // SAFETY: all values of this module's maps have four bytes; the key is as long as the caller made the map's.
    unsafe { bpf(MAP_UPDATE, &attributes) }.map(drop)
}

/// Removes an entry from a map.
///
/// # Errors
/// Those of the kernel.
pub fn delete<const KEY: usize>(map: BorrowedFd<'_>, key: &[u8; KEY]) -> io::Result<()> {
    let attributes = entry(map, key.as_ptr().cast(), std::ptr::null());
    // SAFETY: as above.
    unsafe { bpf(MAP_DELETE, &attributes) }.map(drop)
}

/// Has the kernel verify and load a program.
///
/// # Errors
/// Those of the kernel; for a program that it rejects, with the verifier's log.
pub fn load_program(code: &[u64]) -> io::Result<OwnedFd> {
    match load(code, &mut []) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EINVAL)) => {
            let mut log = vec![0u8; 1 << 16];
            let error = match load(code, &mut log) {
                Ok(program) => return Ok(program),
                Err(error) => error,
            };
            let len = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
            let text = String::from_utf8_lossy(log.get(..len).unwrap_or_default());
            let last: Vec<&str> = text.lines().rev().take(3).collect();
            Err(io::Error::new(error.kind(), format!("{error}: {}", last.join(" / "))))
        }
        other => other,
    }
}

fn load(code: &[u64], log: &mut [u8]) -> io::Result<OwnedFd> {
    let licence = c"GPL";
    let [code_low, code_high] = address(code.as_ptr().cast());
    let [licence_low, licence_high] = address(licence.as_ptr().cast());
    let [log_low, log_high] = if log.is_empty() { [0, 0] } else { address(log.as_ptr().cast()) };
    let attributes = attributes(&[
        PROGRAM_XDP,
        code.len() as u32,
        code_low,
        code_high,
        licence_low,
        licence_high,
        u32::from(!log.is_empty()),
        log.len() as u32,
        log_low,
        log_high,
    ]);
    // SAFETY: the code, the licence and the log have the lengths given, and outlive the call.
    unsafe { bpf(PROGRAM_LOAD, &attributes) }.map(descriptor)
}

/// Attaches a program to an interface, with XDP flags.
///
/// # Errors
/// Those of the kernel.
pub fn attach(program: BorrowedFd<'_>, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    let attributes = attributes(&[program.as_raw_fd() as u32, interface, ATTACH_XDP, flags]);
    // SAFETY: there are no pointers.
    unsafe { bpf(LINK_CREATE, &attributes) }.map(descriptor)
}
