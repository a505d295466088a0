//! The program that the NIC's driver runs for each frame. TCP to an address and port in the map `places` goes to the
//! socket of its queue, or to the one that the map `lanes` has for the connection. Everything else is left to the
//! kernel. It is assembled here, so that no compiler is needed where the server runs.
//!
//! Also left to the kernel: later fragments, and IPv6 packets with headers before that of TCP. A first fragment to such
//! a destination is dropped: the kernel does not have the connection and would reset it.

use std::os::fd::{AsRawFd, BorrowedFd};

/// A key of the map: an address (IPv4 in the first four bytes), the port in network byte order, and 4 or 6.
pub type Key = [u8; 20];

/// A key of the map of lanes, as in the kernel's tuple: the peer's address and ours, the peer's port and ours, in
/// network byte order. Bytes that IPv4 does not need are zero.
pub type Tuple = [u8; 36];

/// New connections come to the stack.
pub const NEW: u32 = 1;
/// The kernel's connections stay with the kernel.
pub const SHARED: u32 = 2;

const PASS: i32 = 2;
const DROP: i32 = 1;
const STATE_LISTEN: i32 = 10;
const MAP_LOOKUP: i32 = 1;
const REDIRECT_MAP: i32 = 51;
const SOCKET_RELEASE: i32 = 86;
const SOCKET_LOOKUP: i32 = 99;

/// Offsets of the key and the socket's tuple from the end of the stack.
const KEY: i16 = -24;
const TUPLE: i16 = -72;

// Operations: 0x07 and its like have a number as second operand, 0x0f and its like a register.
const ADD: u8 = 0x07;
const ADD_REGISTER: u8 = 0x0f;
const AND: u8 = 0x57;
const SHIFT_LEFT: u8 = 0x67;
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const LOAD_8: u8 = 0x71;
const LOAD_16: u8 = 0x69;
const LOAD_32: u8 = 0x61;
const STORE_16: u8 = 0x6b;
const STORE_32: u8 = 0x63;
const STORE_NUMBER_64: u8 = 0x7a;
const STORE_NUMBER_16: u8 = 0x6a;
const IF_EQUAL: u8 = 0x15;
const IF_NOT_EQUAL: u8 = 0x55;
const IF_GREATER_REGISTER: u8 = 0x2d;
const IF_LESS: u8 = 0xa5;
const JUMP: u8 = 0x05;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Ipv4,
    Ipv6,
    Tcp,
    Ports6,
    Find,
    Place,
    Decide,
    Redirect,
    Send,
    Drop,
    Pass,
}

#[derive(Default)]
struct Assembler {
    code: Vec<u64>,
    places: Vec<(Label, usize)>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn put(&mut self, operation: u8, target: u8, source: u8, offset: i16, number: i32) {
        self.code.push(
            u64::from(operation)
                | u64::from(source << 4 | target) << 8
                | u64::from(offset as u16) << 16
                | u64::from(number as u32) << 32,
        );
    }

    fn number(&mut self, operation: u8, target: u8, number: i32) {
        self.put(operation, target, 0, 0, number);
    }

    fn register(&mut self, operation: u8, target: u8, source: u8) {
        self.put(operation, target, source, 0, 0);
    }

    fn load(&mut self, operation: u8, target: u8, source: u8, offset: i16) {
        self.put(operation, target, source, offset, 0);
    }

    fn store(&mut self, operation: u8, offset: i16, source: u8) {
        self.put(operation, 10, source, offset, 0);
    }

    fn jump(&mut self, operation: u8, target: u8, number: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.put(operation, target, 0, 0, number);
    }

    fn jump_if_greater(&mut self, target: u8, source: u8, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.put(IF_GREATER_REGISTER, target, source, 0, 0);
    }

    fn load_map(&mut self, target: u8, map: BorrowedFd<'_>) {
        self.put(0x18, target, 1, 0, map.as_raw_fd());
        self.code.push(0);
    }

    fn call(&mut self, function: i32) {
        self.number(CALL, 0, function);
    }

    fn place(&mut self, label: Label) {
        self.places.push((label, self.code.len()));
    }

    fn finish(mut self) -> Vec<u64> {
        for (at, label) in std::mem::take(&mut self.jumps) {
            let target = self.places.iter().find(|(name, _)| *name == label).map_or(0, |(_, place)| *place);
            let offset = (target as i64 - at as i64 - 1) as i16;
            if let Some(instruction) = self.code.get_mut(at) {
                *instruction |= u64::from(offset as u16) << 16;
            }
        }
        self.code
    }
}

/// The program. Registers: 2 and 3 the frame and its end, 6 the context, 7 the TCP header and then its flags, 8 the
/// length of the tuple, 9 whether it is a fragment and then the value from the map.
pub fn assemble(
    places: BorrowedFd<'_>,
    lanes: BorrowedFd<'_>,
    sockets: BorrowedFd<'_>,
    queue: u32,
) -> Vec<u64> {
    let mut code = Assembler::default();
    code.register(MOVE_REGISTER, 6, 1);
    code.load(LOAD_32, 2, 6, 0);
    code.load(LOAD_32, 3, 6, 4);
    for offset in [0, 8, 16] {
        code.put(STORE_NUMBER_64, 10, 0, KEY + offset, 0);
    }
    for offset in [0, 8, 16, 24, 32] {
        code.put(STORE_NUMBER_64, 10, 0, TUPLE + offset, 0);
    }
    code.register(MOVE_REGISTER, 4, 2);
    code.number(ADD, 4, 54);
    code.jump_if_greater(4, 3, Label::Pass);
    code.load(LOAD_16, 5, 2, 12);
    code.jump(IF_EQUAL, 5, i32::from(0x0800_u16.to_be()), Label::Ipv4);
    code.jump(IF_EQUAL, 5, i32::from(0x86dd_u16.to_be()), Label::Ipv6);
    code.place(Label::Pass);
    code.number(MOVE, 0, PASS);
    code.number(EXIT, 0, 0);
    ipv4(&mut code);
    ipv6(&mut code);
    tcp(&mut code, places, lanes);
    code.place(Label::Redirect);
    code.number(MOVE, 2, 0);
    code.place(Label::Send);
    // Frames of other queues go to the kernel.
    code.load(LOAD_32, 5, 6, 16);
    code.jump(IF_NOT_EQUAL, 5, queue as i32, Label::Pass);
    code.load_map(1, sockets);
    // Fallback if there is no socket.
    code.number(MOVE, 3, PASS);
    code.call(REDIRECT_MAP);
    code.number(EXIT, 0, 0);
    code.place(Label::Drop);
    code.number(MOVE, 0, DROP);
    code.number(EXIT, 0, 0);
    code.finish()
}

fn ipv4(code: &mut Assembler) {
    code.place(Label::Ipv4);
    code.load(LOAD_8, 5, 2, 23);
    code.jump(IF_NOT_EQUAL, 5, libc::IPPROTO_TCP, Label::Pass);
    code.load(LOAD_16, 9, 2, 20);
    code.register(MOVE_REGISTER, 5, 9);
    code.number(AND, 5, i32::from(0x1fff_u16.to_be()));
    code.jump(IF_NOT_EQUAL, 5, 0, Label::Pass);
    code.number(AND, 9, i32::from(0x2000_u16.to_be()));
    code.load(LOAD_32, 4, 2, 26);
    code.store(STORE_32, TUPLE, 4);
    code.load(LOAD_32, 4, 2, 30);
    code.store(STORE_32, TUPLE + 4, 4);
    code.store(STORE_32, KEY, 4);
    code.put(STORE_NUMBER_16, 10, 0, KEY + 18, 4);
    code.load(LOAD_8, 5, 2, 14);
    code.number(AND, 5, 0x0f);
    code.number(SHIFT_LEFT, 5, 2);
    code.jump(IF_LESS, 5, 20, Label::Pass);
    code.register(MOVE_REGISTER, 7, 2);
    code.register(ADD_REGISTER, 7, 5);
    code.number(ADD, 7, 14);
    code.number(MOVE, 8, 12);
    code.jump(JUMP, 0, 0, Label::Tcp);
}

fn ipv6(code: &mut Assembler) {
    code.place(Label::Ipv6);
    code.register(MOVE_REGISTER, 4, 2);
    code.number(ADD, 4, 74);
    code.jump_if_greater(4, 3, Label::Pass);
    code.load(LOAD_8, 5, 2, 20);
    code.jump(IF_NOT_EQUAL, 5, libc::IPPROTO_TCP, Label::Pass);
    for part in [0, 4, 8, 12] {
        code.load(LOAD_32, 4, 2, 22 + part);
        code.store(STORE_32, TUPLE + part, 4);
        code.load(LOAD_32, 4, 2, 38 + part);
        code.store(STORE_32, TUPLE + 16 + part, 4);
        code.store(STORE_32, KEY + part, 4);
    }
    code.put(STORE_NUMBER_16, 10, 0, KEY + 18, 6);
    code.register(MOVE_REGISTER, 7, 2);
    code.number(ADD, 7, 54);
    code.number(MOVE, 8, 36);
    code.number(MOVE, 9, 0);
}

fn tcp(code: &mut Assembler, places: BorrowedFd<'_>, lanes: BorrowedFd<'_>) {
    code.place(Label::Tcp);
    code.register(MOVE_REGISTER, 4, 7);
    code.number(ADD, 4, 20);
    code.jump_if_greater(4, 3, Label::Pass);
    code.load(LOAD_16, 4, 7, 0);
    code.load(LOAD_16, 5, 7, 2);
    code.store(STORE_16, KEY + 16, 5);
    code.jump(IF_EQUAL, 8, 36, Label::Ports6);
    code.store(STORE_16, TUPLE + 8, 4);
    code.store(STORE_16, TUPLE + 10, 5);
    code.jump(JUMP, 0, 0, Label::Find);
    code.place(Label::Ports6);
    code.store(STORE_16, TUPLE + 32, 4);
    code.store(STORE_16, TUPLE + 34, 5);
    code.place(Label::Find);
    code.load(LOAD_8, 7, 7, 13);
    code.jump(IF_NOT_EQUAL, 9, 0, Label::Place);
    code.load_map(1, lanes);
    code.register(MOVE_REGISTER, 2, 10);
    code.number(ADD, 2, i32::from(TUPLE));
    code.call(MAP_LOOKUP);
    code.jump(IF_EQUAL, 0, 0, Label::Place);
    code.load(LOAD_32, 2, 0, 0);
    code.jump(JUMP, 0, 0, Label::Send);
    code.place(Label::Place);
    code.load_map(1, places);
    code.register(MOVE_REGISTER, 2, 10);
    code.number(ADD, 2, i32::from(KEY));
    code.call(MAP_LOOKUP);
    code.jump(IF_EQUAL, 0, 0, Label::Pass);
    code.jump(IF_NOT_EQUAL, 9, 0, Label::Drop);
    code.load(LOAD_32, 9, 0, 0);
    code.register(MOVE_REGISTER, 4, 9);
    code.number(AND, 4, SHARED as i32);
    code.jump(IF_EQUAL, 4, 0, Label::Decide);
    code.register(MOVE_REGISTER, 1, 6);
    code.register(MOVE_REGISTER, 2, 10);
    code.number(ADD, 2, i32::from(TUPLE));
    code.register(MOVE_REGISTER, 3, 8);
    // In the network namespace of the NIC.
    code.number(MOVE, 4, -1);
    code.number(MOVE, 5, 0);
    code.call(SOCKET_LOOKUP);
    code.jump(IF_EQUAL, 0, 0, Label::Decide);
    code.load(LOAD_32, 8, 0, 72);
    code.register(MOVE_REGISTER, 1, 0);
    code.call(SOCKET_RELEASE);
    // The socket of a connection, possibly of a closed one whose addresses are used again.
    code.jump(IF_NOT_EQUAL, 8, STATE_LISTEN, Label::Pass);
    code.place(Label::Decide);
    // SYN without ACK.
    code.number(AND, 7, 0x12);
    code.jump(IF_NOT_EQUAL, 7, 0x02, Label::Redirect);
    code.number(AND, 9, NEW as i32);
    code.jump(IF_EQUAL, 9, 0, Label::Pass);
}
