//! The minimum that redirects the messages of one TCP socket to another: a map of two sockets and a program of nine
//! instructions, made with bpf(2) alone.
//!
//! The map and its program end with the last of: their descriptors, the sockets in the map.

use libc::{c_int, c_long};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const BPF_MAP_CREATE: c_long = 0;
const BPF_MAP_UPDATE_ELEM: c_long = 2;
const BPF_MAP_DELETE_ELEM: c_long = 3;
const BPF_PROG_LOAD: c_long = 5;
const BPF_PROG_ATTACH: c_long = 8;
const BPF_MAP_TYPE_SOCKMAP: u32 = 15;
const BPF_PROG_TYPE_SK_MSG: u32 = 16;
const BPF_SK_MSG_VERDICT: u32 = 7;
/// Helper of the kernel: the message goes to the socket at an index of a map.
const MSG_REDIRECT_MAP: i32 = 60;
/// Of `struct sk_msg_md`.
const LOCAL_PORT_AT: i16 = 64;

/// The attributes of any command, as large as any of those used here.
#[repr(C, align(8))]
struct Attributes([u32; 32]);

fn call(command: c_long, attributes: &[u32]) -> std::io::Result<c_int> {
    let mut all = Attributes([0; 32]);
    all.0[..attributes.len()].copy_from_slice(attributes);
    // SAFETY: the attributes are larger than any command reads, and the addresses in them are of live memory.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut all, size_of::<Attributes>()) };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result as c_int) }
}

fn halves<T>(pointer: *const T) -> [u32; 2] {
    let address = pointer as u64;
    [address as u32, (address >> 32) as u32]
}

/// A new descriptor of a command that makes one.
fn made(command: c_long, attributes: &[u32]) -> std::io::Result<OwnedFd> {
    // SAFETY: the command has returned a new descriptor.
    call(command, attributes).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    u64::from(code)
        | u64::from(from << 4 | to) << 8
        | u64::from(offset as u16) << 16
        | u64::from(value as u32) << 32
}

/// Messages of the socket with this local port go to index 1, those of other sockets to index 0.
fn program(map: RawFd, server_port: u16) -> [u64; 9] {
    [
        instruction(0x61, 2, 1, LOCAL_PORT_AT, 0), // r2 = message->local_port
        instruction(0xb7, 3, 0, 0, 1),             // r3 = 1
        instruction(0x15, 2, 0, 1, i32::from(server_port)), // if r2 == server_port skip one
        instruction(0xb7, 3, 0, 0, 0),             // r3 = 0
        instruction(0x18, 2, 1, 0, map),           // r2 = map, in two words
        0,
        instruction(0xb7, 4, 0, 0, 1),                // r4 = BPF_F_INGRESS
        instruction(0x85, 0, 0, 0, MSG_REDIRECT_MAP), // r0 = SK_PASS, or SK_DROP for want of a socket
        instruction(0x95, 0, 0, 0, 0),                // return r0
    ]
}

/// Two ends of a connection that is redirected.
pub struct Bypass {
    map: OwnedFd,
    _program: OwnedFd,
}

impl Bypass {
    /// Puts both ends into a map. Nothing may be under way between them.
    pub fn start(server: &impl AsRawFd, client: &impl AsRawFd, server_port: u16) -> std::io::Result<Self> {
        let map = made(BPF_MAP_CREATE, &[BPF_MAP_TYPE_SOCKMAP, 4, 4, 2])?;
        let code = program(map.as_raw_fd(), server_port);
        let license = c"GPL";
        let [code_low, code_high] = halves(code.as_ptr());
        let [license_low, license_high] = halves(license.as_ptr());
        let load = [BPF_PROG_TYPE_SK_MSG, code.len() as u32, code_low, code_high, license_low, license_high];
        let program = made(BPF_PROG_LOAD, &load)?;
        let [map_fd, program_fd] = [map.as_raw_fd() as u32, program.as_raw_fd() as u32];
        call(BPF_PROG_ATTACH, &[map_fd, program_fd, BPF_SK_MSG_VERDICT])?;
        let bypass = Self { map, _program: program };
        bypass.put(0, server.as_raw_fd())?;
        bypass.put(1, client.as_raw_fd())?;
        Ok(bypass)
    }

    fn put(&self, index: u32, socket: RawFd) -> std::io::Result<()> {
        let value = socket as u32;
        let ([key_low, key_high], [low, high]) = (halves(&raw const index), halves(&raw const value));
        call(BPF_MAP_UPDATE_ELEM, &[self.map.as_raw_fd() as u32, 0, key_low, key_high, low, high]).map(drop)
    }

    /// Takes an end out of the map.
    pub fn remove(&self, index: u32) -> std::io::Result<()> {
        let [key_low, key_high] = halves(&raw const index);
        call(BPF_MAP_DELETE_ELEM, &[self.map.as_raw_fd() as u32, 0, key_low, key_high]).map(drop)
    }
}
