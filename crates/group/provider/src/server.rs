//! The server's side of the interface: its callbacks, called from safe code.
//!
//! It owns the server's initialisation arguments. The callbacks may be called until the provider is freed. Callbacks
//! with a receiver's context must be called on that receiver's thread, the others on any thread.

use crate::abi::{
    Buffer, Gtid, InitArgs, LOG_ERROR, LOG_INFO, LOG_WARNING, MemberInfo, SourceId, TransactionMeta, Uuid,
    ViewHead, WriteSetHandle,
};
use crate::replica::{GroupId, Known, View, uuid_of};
use crate::transactions::Transaction;
use crate::write_set::Seqno;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;

const PRIMARY: c_int = 0;
const NON_PRIMARY: c_int = 1;
const DISCONNECTED: c_int = 2;

/// A callback of the server failed. The server has logged the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the server rejected {0}; see its error log")]
pub struct Refused(pub &'static str);

/// Metadata of an applied write set.
#[derive(Clone, Copy, Debug)]
pub struct Applied {
    /// The group.
    pub group: GroupId,
    /// Position of the write set.
    pub seqno: Seqno,
    /// Position that it depends on.
    pub depends_on: Seqno,
    /// Member of its origin.
    pub source: Uuid,
    /// Connection at its origin.
    pub connection_id: u64,
    /// Flags of the write set.
    pub flags: u32,
}

/// The opaque word in the handle of an applied write set: a number, never an address. The server keeps such a handle
/// for any time and passes it back, for example when a receiver ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppliedMark(Seqno);

impl AppliedMark {
    /// The mark in a word; `None` for null and for addresses, which are even.
    pub fn of(word: *mut c_void) -> Option<Self> {
        let word = word.addr();
        (word & 1 == 1).then_some(Self(Seqno((word >> 1) as i64)))
    }

    /// Position of the write set.
    pub const fn seqno(self) -> Seqno {
        self.0
    }

    fn word(self) -> *mut c_void {
        std::ptr::without_provenance_mut((self.0.0 as usize) << 1 | 1)
    }
}

/// A receiver's context, which is passed back to the server.
#[derive(Clone, Copy, Debug)]
pub struct Receiver(pub *mut c_void);

/// The server's side of the interface: its callbacks, called from safe code.
pub struct Server {
    args: InitArgs,
    /// `wsrep_node_name`.
    pub name: String,
    /// `wsrep_node_address`.
    pub address: String,
    /// Address for clients.
    pub incoming_address: String,
    /// Directory of the server's files.
    pub data_directory: PathBuf,
    /// `wsrep_provider_options`.
    pub options: String,
    /// Position that the server has reported.
    pub position: Option<(GroupId, Seqno)>,
}

// SAFETY: the pointers are the server's context and functions, which it calls and has called from any thread.
unsafe impl Send for Server {}
// SAFETY: as above; nothing here changes.
unsafe impl Sync for Server {}

/// # Safety
/// The pointer is null, or a zero-terminated string.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

impl Server {
    /// Copies the borrowed arguments.
    ///
    /// # Safety
    /// `args` is the argument of `init`.
    pub unsafe fn new(args: *const InitArgs) -> Self {
        // SAFETY: the caller's: all of it is valid during the call.
        let args = unsafe { std::ptr::read(args) };
        // SAFETY: as above.
        let [name, address, incoming_address, data_directory, options] =
            [args.node_name, args.node_address, args.node_incoming, args.data_dir, args.options]
                .map(|pointer| unsafe { text(pointer) });
        // SAFETY: as above; null if it has none.
        let position = unsafe { args.state_id.as_ref() }
            .filter(|gtid| gtid.seqno >= 0 && gtid.uuid != Uuid::default())
            .map(|gtid| (GroupId(gtid.uuid.0), Seqno(gtid.seqno)));
        Self {
            name,
            address,
            incoming_address,
            data_directory: data_directory.into(),
            options,
            position,
            args,
        }
    }

    fn log(&self, level: c_int, line: &str) {
        let line = CString::new(line.replace('\0', " ")).unwrap_or_default();
        if let Some(log) = self.args.log {
            // SAFETY: a zero-terminated string, as the server expects.
            unsafe { log(level, line.as_ptr()) };
        }
    }

    /// Logs a line.
    pub fn note(&self, line: &str) {
        self.log(LOG_INFO, line);
    }

    /// Logs a warning.
    pub fn warn(&self, line: &str) {
        self.log(LOG_WARNING, line);
    }

    /// Logs an error.
    pub fn error(&self, line: &str) {
        self.log(LOG_ERROR, line);
    }

    /// Ends the process when the server did not get its data, without which it does not start. A clean shutdown is not
    /// needed yet.
    pub fn end_process(&self, reason: &str) -> ! {
        self.error(&format!("{reason}. The server ends; started again, it tries again"));
        // SAFETY: nothing of the server runs after it, which would find a server that has not begun.
        unsafe { libc::_exit(1) }
    }

    /// Reports that this incarnation is in the group, with this view.
    ///
    /// # Errors
    /// The server's callback fails.
    pub fn connected(&self, group: GroupId, view: &View, me: Uuid) -> Result<(), Refused> {
        let memory = ViewMemory::new(group, view, me, PRIMARY, self.args.protocol_version);
        let call = self.args.connected.ok_or(Refused("to connect"))?;
        // SAFETY: the context is the server's, the view lives through the call.
        check(unsafe { call(self.args.app_context, memory.head()) }, "to connect")
    }

    /// Reports a change of the view.
    ///
    /// # Errors
    /// The server's callback fails.
    pub fn view(&self, receiver: Receiver, group: GroupId, view: &View, me: Uuid) -> Result<(), Refused> {
        let status = if view.members.is_empty() { DISCONNECTED } else { PRIMARY };
        self.view_of(receiver, group, view, me, status)
    }

    /// Reports a non-primary view of these members.
    ///
    /// # Errors
    /// The server's callback fails.
    pub fn alone(&self, receiver: Receiver, group: GroupId, view: &View, me: Uuid) -> Result<(), Refused> {
        self.view_of(receiver, group, view, me, NON_PRIMARY)
    }

    fn view_of(
        &self,
        receiver: Receiver,
        group: GroupId,
        view: &View,
        me: Uuid,
        status: c_int,
    ) -> Result<(), Refused> {
        let memory = ViewMemory::new(group, view, me, status, self.args.protocol_version);
        let call = self.args.view.ok_or(Refused("a view"))?;
        // SAFETY: as above; this is the receiver's thread.
        check(
            unsafe { call(self.args.app_context, receiver.0, memory.head(), std::ptr::null(), 0) },
            "a view",
        )
    }

    /// Reports that the server has caught up with the others.
    ///
    /// # Errors
    /// The server's callback fails.
    pub fn synced(&self) -> Result<(), Refused> {
        let call = self.args.synced.ok_or(Refused("to be synced"))?;
        // SAFETY: the context is the server's.
        check(unsafe { call(self.args.app_context) }, "to be synced")
    }

    /// The request that a donor needs.
    ///
    /// # Errors
    /// The server's callback fails.
    pub fn state_request(&self) -> Result<Vec<u8>, Refused> {
        let call = self.args.state_request.ok_or(Refused("to ask for its state"))?;
        let mut pointer: *mut c_void = std::ptr::null_mut();
        let mut len_bytes = 0;
        // SAFETY: both places are written by the call.
        let code = unsafe { call(self.args.app_context, &raw mut pointer, &raw mut len_bytes) };
        check(code, "to ask for its state")?;
        if pointer.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: the server has allocated so many bytes with malloc for us.
        let request = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), len_bytes) }.to_vec();
        // SAFETY: as above; this is the only reference.
        unsafe { libc::free(pointer) };
        Ok(request)
    }

    /// Begins to send the server's state to the member that made `request`.
    ///
    /// # Errors
    /// The server's callback fails.
    pub fn donate(
        &self,
        receiver: Receiver,
        request: &[u8],
        group: GroupId,
        seqno: Seqno,
    ) -> Result<(), Refused> {
        let call = self.args.donate.ok_or(Refused("to donate"))?;
        let request = Buffer { pointer: request.as_ptr().cast(), len_bytes: request.len() };
        let gtid = Gtid { uuid: Uuid(group.0), seqno: seqno.0 };
        let state = Buffer { pointer: std::ptr::null(), len_bytes: 0 };
        // SAFETY: everything lives through the call; this is the receiver's thread.
        let code = unsafe {
            call(
                self.args.app_context,
                receiver.0,
                &raw const request,
                &raw const gtid,
                &raw const state,
                false,
            )
        };
        check(code, "to donate")
    }

    /// Applies a write set. Returns whether the receiver has to end.
    ///
    /// # Errors
    /// Applying failed.
    pub fn apply(
        &self,
        receiver: Receiver,
        transaction: &Transaction,
        applied: &Applied,
        data: &[u8],
    ) -> Result<bool, Refused> {
        let call = self.args.apply.ok_or(Refused("a write set"))?;
        let handle =
            WriteSetHandle { transaction_id: transaction.id, opaque: AppliedMark(applied.seqno).word() };
        let buffer = Buffer { pointer: data.as_ptr().cast(), len_bytes: data.len() };
        let meta = meta(applied, transaction.id);
        let mut exits = false;
        // SAFETY: everything lives through the call; this is the receiver's thread.
        let code = unsafe {
            call(
                receiver.0,
                &raw const handle,
                applied.flags,
                &raw const buffer,
                &raw const meta,
                &raw mut exits,
            )
        };
        check(code, "a write set").map(|()| exits)
    }
}

/// Metadata in the server's layout.
pub fn meta(applied: &Applied, transaction_id: u64) -> TransactionMeta {
    TransactionMeta {
        gtid: Gtid { uuid: Uuid(applied.group.0), seqno: applied.seqno.0 },
        source: SourceId { node: applied.source, transaction_id, connection_id: applied.connection_id },
        depends_on: applied.depends_on.0,
    }
}

const fn check(code: c_int, what: &'static str) -> Result<(), Refused> {
    if code == 0 { Ok(()) } else { Err(Refused(what)) }
}

/// A view in the memory layout of the interface: its head and the members after it.
struct ViewMemory(Vec<u64>);

const HEAD_WORDS: usize = size_of::<ViewHead>() / 8;
const MEMBER_WORDS: usize = size_of::<MemberInfo>() / 8;
const _: () = assert!(size_of::<ViewHead>() == 56 && size_of::<MemberInfo>() == 304);

impl ViewMemory {
    fn new(group: GroupId, view: &View, me: Uuid, status: c_int, protocol_version: c_int) -> Self {
        let uuid = |present: &Known| uuid_of(present.member, present.incarnation);
        let my_index = view.members.iter().position(|present| uuid(present) == me);
        let head = ViewHead {
            state_id: Gtid { uuid: Uuid(group.0), seqno: view.seqno.0 },
            view: view.number,
            status,
            capabilities: crate::entry::CAPABILITIES,
            my_index: my_index.map_or(-1, |index| index as c_int),
            member_count: view.members.len() as c_int,
            protocol_version,
        };
        let mut memory = vec![0_u64; HEAD_WORDS + MEMBER_WORDS * view.members.len()];
        // SAFETY: there is room for it, aligned for 8 bytes.
        unsafe { memory.as_mut_ptr().cast::<ViewHead>().write(head) };
        for (index, present) in view.members.iter().enumerate() {
            let mut info = MemberInfo { id: uuid(present), name: [0; 32], incoming: [0; 256] };
            put(&mut info.name, &present.name);
            put(&mut info.incoming, &present.incoming_address);
            let at = HEAD_WORDS + MEMBER_WORDS * index;
            // SAFETY: as above.
            unsafe { memory.as_mut_ptr().add(at).cast::<MemberInfo>().write(info) };
        }
        Self(memory)
    }

    const fn head(&self) -> *const ViewHead {
        self.0.as_ptr().cast()
    }
}

/// Copies the longest prefix of a text that fits, with a 0 after it.
fn put(place: &mut [u8], text: &str) {
    let mut len = text.len().min(place.len() - 1);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    place[..len].copy_from_slice(&text.as_bytes()[..len]);
}
