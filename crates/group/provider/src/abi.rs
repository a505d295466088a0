//! What the server and a provider agree on in memory: version 26 of the wsrep interface, as MariaDB 10.11 uses it.
//!
//! Declarations alone; they follow the layout that the server was compiled with. Numbers of the lists (status codes,
//! flags, kinds) are part of it. Whoever reads or writes through these pointers is [`crate::entry`], which is called, and
//! [`crate::server`], which calls.

use std::ffi::{c_char, c_int, c_void};

/// Version of the interface, as the server compares it.
pub const INTERFACE_VERSION: &[u8] = b"26\0";

/// What a call of the server ends with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Status {
    /// It is done.
    Ok = 0,
    /// It was ordered, and conflicts with what was ordered before it.
    TransactionFail = 3,
    /// It was ordered before it was made to give way: roll back and replay.
    BruteForceAbort = 4,
    /// It is larger than what is allowed.
    SizeExceeded = 5,
    /// It was not ordered.
    ConnectionFail = 6,
    /// This member can do nothing more.
    NodeFail = 7,
    /// The server has to end.
    Fatal = 8,
    /// There is no such thing here.
    NotImplemented = 9,
    /// The other one comes first.
    NotAllowed = 10,
}

/// Writes of several masters.
pub const CAP_MULTI_MASTER: u32 = 1 << 0;
/// Conflicts are found.
pub const CAP_CERTIFICATION: u32 = 1 << 1;
/// Several appliers.
pub const CAP_PARALLEL_APPLYING: u32 = 1 << 2;
/// Victims are replayed.
pub const CAP_REPLAY: u32 = 1 << 3;
/// DDL in isolation.
pub const CAP_ISOLATION: u32 = 1 << 4;
/// Pause and resume.
pub const CAP_PAUSE: u32 = 1 << 5;
/// Reads that see all that was acknowledged.
pub const CAP_CAUSAL_READS: u32 = 1 << 6;
/// Write sets come in parts.
pub const CAP_INCREMENTAL: u32 = 1 << 8;
/// Large transactions come in parts, each with its own place in the order.
pub const CAP_STREAMING: u32 = 1 << 15;

/// Severity of a line of the log: the server must end.
pub const LOG_ERROR: c_int = 1;
/// Something unexpected.
pub const LOG_WARNING: c_int = 2;
/// For the record.
pub const LOG_INFO: c_int = 3;

/// 16 bytes that name a group or a member, aligned as the server has them.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Uuid(pub [u8; 16]);

/// A position in the history of a group.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gtid {
    /// The group.
    pub uuid: Uuid,
    /// The position, -1: none.
    pub seqno: i64,
}

/// Where a transaction comes from.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceId {
    /// The member.
    pub node: Uuid,
    /// The transaction there.
    pub transaction_id: u64,
    /// The connection there.
    pub connection_id: u64,
}

/// What is known of an ordered transaction.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransactionMeta {
    /// Its position.
    pub gtid: Gtid,
    /// Its origin.
    pub source: SourceId,
    /// What must be finished before it is applied.
    pub depends_on: i64,
}

/// Bytes of somebody else.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Buffer {
    /// The first.
    pub pointer: *const c_void,
    /// How many.
    pub len_bytes: usize,
}

/// The server's handle of a transaction, with a place for what the provider knows of it.
#[repr(C)]
pub struct WriteSetHandle {
    /// The transaction.
    pub transaction_id: u64,
    /// The provider's own.
    pub opaque: *mut c_void,
}

/// A key in parts.
#[repr(C)]
pub struct Key {
    /// The parts.
    pub parts: *const Buffer,
    /// How many.
    pub count: usize,
}

/// A member as a view shows it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemberInfo {
    /// Its id.
    pub id: Uuid,
    /// Its name, ended by 0.
    pub name: [u8; 32],
    /// Where clients reach it, ended by 0.
    pub incoming: [u8; 256],
}

/// Head of a view; `member_count` of [`MemberInfo`] follow it in memory.
#[repr(C)]
pub struct ViewHead {
    /// Position of the view.
    pub state_id: Gtid,
    /// Its number.
    pub view: i64,
    /// 0: there is a majority; 1: there is none; 2: no member any more.
    pub status: c_int,
    /// What the provider can do.
    pub capabilities: u32,
    /// Place of this member, -1: not in it.
    pub my_index: c_int,
    /// How many members.
    pub member_count: c_int,
    /// The server's own protocol.
    pub protocol_version: c_int,
}

/// What the server gives the provider at its start. Strings are the server's and live as long as the call.
#[repr(C)]
pub struct InitArgs {
    /// Comes back with callbacks.
    pub app_context: *mut c_void,
    /// Name of this member.
    pub node_name: *const c_char,
    /// Address of this member for others.
    pub node_address: *const c_char,
    /// Address of this member for clients.
    pub node_incoming: *const c_char,
    /// Where files go.
    pub data_dir: *const c_char,
    /// `wsrep_provider_options`.
    pub options: *const c_char,
    /// The newest protocol of the server.
    pub protocol_version: c_int,
    /// Position of the server's data, if it knows one.
    pub state_id: *const Gtid,
    /// Unused.
    pub state: *const Buffer,
    /// Takes a line for the error log.
    pub log: Option<unsafe extern "C" fn(c_int, *const c_char)>,
    /// The member is in the group.
    pub connected: Option<unsafe extern "C" fn(*mut c_void, *const ViewHead) -> c_int>,
    /// Other members than before.
    pub view: Option<
        unsafe extern "C" fn(*mut c_void, *mut c_void, *const ViewHead, *const c_char, usize) -> c_int,
    >,
    /// Asks for what a donor has to be told.
    pub state_request: Option<unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut usize) -> c_int>,
    /// Unused.
    pub encrypt: *const c_void,
    /// Applies a write set.
    pub apply: Option<
        unsafe extern "C" fn(
            *mut c_void,
            *const WriteSetHandle,
            u32,
            *const Buffer,
            *const TransactionMeta,
            *mut bool,
        ) -> c_int,
    >,
    /// Unused.
    pub unordered: *const c_void,
    /// Sends its state to another member.
    pub donate: Option<
        unsafe extern "C" fn(
            *mut c_void,
            *mut c_void,
            *const Buffer,
            *const Gtid,
            *const Buffer,
            bool,
        ) -> c_int,
    >,
    /// The member has everything that the others have.
    pub synced: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

/// A status variable: a text.
pub const VARIABLE_TEXT: c_int = 0;
/// A status variable: a number.
pub const VARIABLE_INTEGER: c_int = 1;

/// A status variable; the last of a list has no name.
#[repr(C)]
pub struct Variable {
    /// Its name without `wsrep_`.
    pub name: *const c_char,
    /// What `value` is.
    pub kind: c_int,
    /// A pointer or a number.
    pub value: i64,
}

/// A parameter that is not set while the server runs.
pub const PARAMETER_READ_ONLY: c_int = 1 << 1;
/// A parameter that is on or off. One without a kind is a text.
pub const PARAMETER_SWITCH: c_int = 1 << 2;
/// A parameter that is a number.
pub const PARAMETER_INTEGER: c_int = 1 << 3;

/// What a [`Parameter`] holds, by its flags.
#[repr(C)]
pub union ParameterValue {
    /// [`PARAMETER_SWITCH`].
    pub switch: bool,
    /// [`PARAMETER_INTEGER`].
    pub integer: i64,
    /// A string that ends with 0.
    pub text: *const c_char,
}

/// A provider option, of which a server can make a variable.
#[repr(C)]
pub struct Parameter {
    /// `PARAMETER_*`.
    pub flags: c_int,
    /// As in the list of options.
    pub name: *const c_char,
    /// What holds.
    pub value: ParameterValue,
}

/// The server's function that is given each [`Parameter`], with what it wants with it.
pub type ParameterTaker = unsafe extern "C" fn(*const Parameter, *mut c_void) -> c_int;

/// The library's function that goes through all parameters.
#[repr(C)]
pub struct ParameterService {
    /// Table, function and what that wants.
    pub get: Option<unsafe extern "C" fn(*mut c_void, Option<ParameterTaker>, *mut c_void) -> c_int>,
}
