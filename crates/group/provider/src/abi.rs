//! The memory layout of the interface between server and provider: version 26 of wsrep, as MariaDB 10.11 uses it.
//!
//! Declarations only. They follow the layout that the server was compiled with. Numbers of the lists (status codes,
//! flags, kinds) are part of it. Only [`crate::entry`], which the server calls, and [`crate::server`], which calls the
//! server, use these pointers.

use std::ffi::{c_char, c_int, c_void};

/// Version of the interface, as the server compares it.
pub const INTERFACE_VERSION: &[u8] = b"26\0";

/// Result of a call by the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// It was ordered, and conflicts with an earlier write set.
    TransactionFail = 3,
    /// It was ordered before it became a victim: roll back and replay.
    BruteForceAbort = 4,
    /// It exceeds the size limit.
    SizeExceeded = 5,
    /// It was not ordered.
    ConnectionFail = 6,
    /// This member is unusable.
    NodeFail = 7,
    /// The server has to terminate.
    Fatal = 8,
    /// The function is not supported.
    NotImplemented = 9,
    /// The other transaction wins.
    NotAllowed = 10,
}

/// Several masters may write.
pub const CAP_MULTI_MASTER: u32 = 1 << 0;
/// Conflicts are detected.
pub const CAP_CERTIFICATION: u32 = 1 << 1;
/// Write sets may be applied in parallel.
pub const CAP_PARALLEL_APPLYING: u32 = 1 << 2;
/// Victims are replayed.
pub const CAP_REPLAY: u32 = 1 << 3;
/// DDL runs in isolation.
pub const CAP_ISOLATION: u32 = 1 << 4;
/// The provider can be paused and resumed.
pub const CAP_PAUSE: u32 = 1 << 5;
/// Reads can wait for everything that was acknowledged.
pub const CAP_CAUSAL_READS: u32 = 1 << 6;
/// Write sets are passed in parts.
pub const CAP_INCREMENTAL: u32 = 1 << 8;
/// Large transactions are replicated in parts, each with its own position in the order.
pub const CAP_STREAMING: u32 = 1 << 15;

/// Severity of a log line: the server must terminate.
pub const LOG_ERROR: c_int = 1;
/// Severity of a log line: something unexpected.
pub const LOG_WARNING: c_int = 2;
/// Severity of a log line: for information.
pub const LOG_INFO: c_int = 3;

/// UUID of a group or a member, with the server's alignment.
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

/// Source of a transaction.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceId {
    /// The member.
    pub node: Uuid,
    /// Id of the transaction there.
    pub transaction_id: u64,
    /// Id of the connection there.
    pub connection_id: u64,
}

/// Position and origin of an ordered transaction.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransactionMeta {
    /// Its position.
    pub gtid: Gtid,
    /// Its origin.
    pub source: SourceId,
    /// Position up to which everything must be finished before it is applied.
    pub depends_on: i64,
}

/// A borrowed byte slice.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Buffer {
    /// Address of the first byte.
    pub pointer: *const c_void,
    /// Length in bytes.
    pub len_bytes: usize,
}

/// The server's handle of a transaction, with a word for the provider.
#[repr(C)]
pub struct WriteSetHandle {
    /// The transaction.
    pub transaction_id: u64,
    /// Word of the provider.
    pub opaque: *mut c_void,
}

/// A key in parts.
#[repr(C)]
pub struct Key {
    /// Array of the parts.
    pub parts: *const Buffer,
    /// Number of parts.
    pub count: usize,
}

/// A member in a view.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemberInfo {
    /// Its id.
    pub id: Uuid,
    /// Its name, zero-terminated.
    pub name: [u8; 32],
    /// Its address for clients, zero-terminated.
    pub incoming: [u8; 256],
}

/// Header of a view. `member_count` times [`MemberInfo`] follow it in memory.
#[repr(C)]
pub struct ViewHead {
    /// Position of the view.
    pub state_id: Gtid,
    /// Its number.
    pub view: i64,
    /// 0: primary; 1: non-primary; 2: without members.
    pub status: c_int,
    /// Capabilities of the provider.
    pub capabilities: u32,
    /// Index of this member, -1: not in the view.
    pub my_index: c_int,
    /// Number of members.
    pub member_count: c_int,
    /// Version of the server's own protocol.
    pub protocol_version: c_int,
}

/// Arguments of the provider's initialisation. Strings belong to the server and live as long as the call.
#[repr(C)]
pub struct InitArgs {
    /// Context that is passed back to callbacks.
    pub app_context: *mut c_void,
    /// Name of this member.
    pub node_name: *const c_char,
    /// Address of this member for other members.
    pub node_address: *const c_char,
    /// Address of this member for clients.
    pub node_incoming: *const c_char,
    /// Directory of the server's files.
    pub data_dir: *const c_char,
    /// `wsrep_provider_options`.
    pub options: *const c_char,
    /// Newest supported protocol of the server.
    pub protocol_version: c_int,
    /// Position of the server's data, if known.
    pub state_id: *const Gtid,
    /// Unused.
    pub state: *const Buffer,
    /// Writes a line to the error log.
    pub log: Option<unsafe extern "C" fn(c_int, *const c_char)>,
    /// Reports that the member is in the group.
    pub connected: Option<unsafe extern "C" fn(*mut c_void, *const ViewHead) -> c_int>,
    /// Reports a change of the view.
    pub view: Option<
        unsafe extern "C" fn(*mut c_void, *mut c_void, *const ViewHead, *const c_char, usize) -> c_int,
    >,
    /// Returns the request that a donor needs.
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
    /// Sends the server's state to another member.
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
    /// Reports that the member has caught up with the others.
    pub synced: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

/// Kind of a status variable: text.
pub const VARIABLE_TEXT: c_int = 0;
/// Kind of a status variable: number.
pub const VARIABLE_INTEGER: c_int = 1;

/// A status variable. The last one of a list has no name.
#[repr(C)]
pub struct Variable {
    /// Its name without `wsrep_`.
    pub name: *const c_char,
    /// Kind of `value`.
    pub kind: c_int,
    /// A pointer or a number.
    pub value: i64,
}

/// Flag of a parameter: it can only be set at the start.
pub const PARAMETER_READ_ONLY: c_int = 1 << 1;
/// Flag of a parameter: boolean. Without a kind it is a text.
pub const PARAMETER_SWITCH: c_int = 1 << 2;
/// Flag of a parameter: number.
pub const PARAMETER_INTEGER: c_int = 1 << 3;

/// Value of a [`Parameter`], selected by its flags.
#[repr(C)]
pub union ParameterValue {
    /// [`PARAMETER_SWITCH`].
    pub switch: bool,
    /// [`PARAMETER_INTEGER`].
    pub integer: i64,
    /// Zero-terminated string.
    pub text: *const c_char,
}

/// A provider option, which the server may expose as a variable.
#[repr(C)]
pub struct Parameter {
    /// `PARAMETER_*`.
    pub flags: c_int,
    /// Name of the option.
    pub name: *const c_char,
    /// Current value.
    pub value: ParameterValue,
}

/// The server's function that receives each [`Parameter`] and its own context.
pub type ParameterTaker = unsafe extern "C" fn(*const Parameter, *mut c_void) -> c_int;

/// The library's function that iterates over all parameters.
#[repr(C)]
pub struct ParameterService {
    /// Arguments: table, function of the server, context of that function.
    pub get: Option<unsafe extern "C" fn(*mut c_void, Option<ParameterTaker>, *mut c_void) -> c_int>,
}
