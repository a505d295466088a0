//! Calls of the server's threads: transactions, DDL, positions and state transfers.

use super::{Table, guarded, session};
use crate::abi::{Buffer, Gtid, Key, Status, TransactionMeta, Uuid, WriteSetHandle};
use crate::replica::GroupId;
use crate::server::{Applied, AppliedMark, Receiver, meta};
use crate::session::{Certified, Released, Session};
use crate::transactions::Transaction;
use crate::write_set::{KeyKind, Keys, Seqno};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

const UNDEFINED: i64 = -1;

pub(super) unsafe extern "C" fn not_implemented() -> c_int {
    Status::NotImplemented as c_int
}

pub(super) unsafe extern "C" fn is_locked() -> bool {
    false
}

pub(super) unsafe extern "C" fn assign_read_view(_: Table, _: *mut WriteSetHandle, _: *const Gtid) -> c_int {
    Status::Ok as c_int
}

pub(super) unsafe extern "C" fn free_connection(_: Table, _: u64) -> c_int {
    Status::Ok as c_int
}

/// Runs the body of a function with its session; fails without one.
///
/// # Safety
/// `table` is the server's table.
unsafe fn in_session(table: Table, what: &str, body: impl FnOnce(&Arc<Session>) -> Status) -> c_int {
    guarded(what, || {
        // SAFETY: the caller's.
        unsafe { session(table) }.map_or(Status::ConnectionFail, |session| body(&session)) as c_int
    })
}

/// # Safety
/// The pointer is null, or to `count` buffers, each with its bytes.
unsafe fn buffers<'a>(pointer: *const Buffer, count: usize) -> impl Iterator<Item = &'a [u8]> {
    let buffers = match pointer.is_null() {
        true => &[],
        // SAFETY: the caller's.
        false => unsafe { std::slice::from_raw_parts(pointer, count) },
    };
    buffers.iter().map(|buffer| match buffer.pointer.is_null() || buffer.len_bytes == 0 {
        true => &[][..],
        // SAFETY: the caller's.
        false => unsafe { std::slice::from_raw_parts(buffer.pointer.cast(), buffer.len_bytes) },
    })
}

/// # Safety
/// The pointer is null, or to `count` keys, each with its parts.
unsafe fn add_keys(keys: &mut Keys, pointer: *const Key, count: usize, kind: KeyKind) {
    if pointer.is_null() {
        return;
    }
    // SAFETY: the caller's.
    for key in unsafe { std::slice::from_raw_parts(pointer, count) } {
        // SAFETY: the caller's.
        let parts: Vec<&[u8]> = unsafe { buffers(key.parts, key.count) }.collect();
        keys.add(&parts, kind);
    }
}

/// The transaction of a handle: a local one that the server has registered before, or an applied one. The server also
/// passes handles of applied transactions when these are finished.
///
/// # Safety
/// Null, or a handle of the server; its opaque word is null, a mark, or came from this library and was not released.
unsafe fn known(session: &Session, handle: *const WriteSetHandle) -> Option<Arc<Transaction>> {
    // SAFETY: the caller's.
    let opaque = unsafe { handle.as_ref() }?.opaque;
    match AppliedMark::of(opaque) {
        Some(mark) => session.applying(mark.seqno()),
        None if opaque.is_null() => None,
        // SAFETY: the caller's.
        None => Some(unsafe { another(opaque) }),
    }
}

/// Another reference to a local transaction.
///
/// # Safety
/// The opaque word of a handle: neither null nor a mark, and not released.
unsafe fn another(opaque: *mut c_void) -> Arc<Transaction> {
    let pointer = opaque.cast_const().cast::<Transaction>();
    // SAFETY: it came from `Arc::into_raw`, and the handle's own count keeps it.
    unsafe {
        Arc::increment_strong_count(pointer);
        Arc::from_raw(pointer)
    }
}

/// The local transaction of a handle, which keeps one reference until it is released.
///
/// # Safety
/// As [`known`].
unsafe fn local(session: &Session, handle: *mut WriteSetHandle) -> Option<Arc<Transaction>> {
    // SAFETY: the caller's.
    let handle = unsafe { handle.as_mut() }?;
    if handle.opaque.is_null() {
        let transaction = session.begin_transaction(handle.transaction_id);
        handle.opaque = Arc::into_raw(transaction).cast_mut().cast();
    }
    if AppliedMark::of(handle.opaque).is_some() {
        return None;
    }
    // SAFETY: it came from `Arc::into_raw`, and the handle's own count keeps it.
    Some(unsafe { another(handle.opaque) })
}

/// # Safety
/// The pointer is null, or writable.
unsafe fn put_meta(place: *mut TransactionMeta, applied: Option<Applied>, transaction_id: u64) {
    // SAFETY: the caller's.
    if let (Some(place), Some(applied)) = (unsafe { place.as_mut() }, applied) {
        *place = meta(&applied, transaction_id);
    }
}

pub(super) unsafe extern "C" fn receive(table: Table, context: *mut c_void) -> c_int {
    // SAFETY: the server's table.
    unsafe { in_session(table, "recv", |session| session.receive(Receiver(context))) }
}

pub(super) unsafe extern "C" fn append_key(
    table: Table,
    handle: *mut WriteSetHandle,
    keys: *const Key,
    count: usize,
    kind: c_int,
    _copy: bool,
) -> c_int {
    let append = |session: &Arc<Session>| {
        // An unknown kind counts as the strongest, which conflicts with everything.
        let kind = u8::try_from(kind).ok().and_then(KeyKind::from_number).unwrap_or(KeyKind::Exclusive);
        // SAFETY: the server's handle and keys.
        let Some(transaction) = (unsafe { local(session, handle) }) else { return Status::Fatal };
        // SAFETY: as above.
        unsafe { add_keys(&mut transaction.state().keys, keys, count, kind) };
        Status::Ok
    };
    // SAFETY: the server's table.
    unsafe { in_session(table, "append_key", append) }
}

pub(super) unsafe extern "C" fn append_data(
    table: Table,
    handle: *mut WriteSetHandle,
    data: *const Buffer,
    count: usize,
    kind: c_int,
    _copy: bool,
) -> c_int {
    let append = |session: &Arc<Session>| {
        if kind != 0 {
            // Annotations and unordered data: nothing depends on them.
            return Status::Ok;
        }
        // SAFETY: the server's handle.
        let Some(transaction) = (unsafe { local(session, handle) }) else { return Status::Fatal };
        let mut state = transaction.state();
        // SAFETY: the server's buffers.
        unsafe { buffers(data, count) }.for_each(|bytes| state.data.extend_from_slice(bytes));
        Status::Ok
    };
    // SAFETY: the server's table.
    unsafe { in_session(table, "append_data", append) }
}

pub(super) unsafe extern "C" fn certify(
    table: Table,
    connection_id: u64,
    handle: *mut WriteSetHandle,
    flags: u32,
    place: *mut TransactionMeta,
) -> c_int {
    let certify = |session: &Arc<Session>| {
        // SAFETY: the server's handle.
        let Some(transaction) = (unsafe { local(session, handle) }) else { return Status::Fatal };
        let Certified { status, applied } = session.certify(&transaction, connection_id, flags);
        // SAFETY: the server's place.
        unsafe { put_meta(place, applied, transaction.id) };
        status
    };
    // SAFETY: the server's table.
    unsafe { in_session(table, "certify", certify) }
}

pub(super) unsafe extern "C" fn commit_order_enter(
    table: Table,
    handle: *const WriteSetHandle,
    place: *const TransactionMeta,
) -> c_int {
    let enter = |session: &Arc<Session>| {
        // SAFETY: the server's handle and place.
        let (transaction, place) = unsafe { (known(session, handle), place.as_ref()) };
        let Some(place) = place else { return Status::Fatal };
        match session.enter(Seqno(place.gtid.seqno), transaction.as_deref()) {
            true => Status::Ok,
            false => Status::BruteForceAbort,
        }
    };
    // SAFETY: the server's table.
    unsafe { in_session(table, "commit_order_enter", enter) }
}

pub(super) unsafe extern "C" fn commit_order_leave(
    table: Table,
    handle: *const WriteSetHandle,
    place: *const TransactionMeta,
    error: *const Buffer,
) -> c_int {
    let leave = |session: &Arc<Session>| {
        // SAFETY: the server's handle, place and buffer.
        let (transaction, place) = unsafe { (known(session, handle), place.as_ref()) };
        let Some(place) = place else { return Status::Fatal };
        // SAFETY: as above.
        let said: Vec<u8> =
            unsafe { buffers(error, usize::from(!error.is_null())) }.flatten().copied().collect();
        let seqno = Seqno(place.gtid.seqno);
        match transaction {
            Some(applied) if !applied.is_local => match session.leave_applied(seqno, &applied, &said) {
                true => Status::Ok,
                false => Status::NodeFail,
            },
            other => {
                session.leave(seqno, other.as_deref());
                Status::Ok
            }
        }
    };
    // SAFETY: the server's table.
    unsafe { in_session(table, "commit_order_leave", leave) }
}

pub(super) unsafe extern "C" fn release(table: Table, handle: *mut WriteSetHandle) -> c_int {
    guarded("release", || {
        // SAFETY: the server's handle.
        let Some(handle) = (unsafe { handle.as_mut() }) else { return Status::Ok as c_int };
        let pointer = std::mem::replace(&mut handle.opaque, std::ptr::null_mut());
        if pointer.is_null() || AppliedMark::of(pointer).is_some() {
            return Status::Ok as c_int;
        }
        // SAFETY: it came from `Arc::into_raw` in `local`; the handle has it no longer.
        let transaction = unsafe { Arc::from_raw(pointer.cast_const().cast::<Transaction>()) };
        // SAFETY: the server's table.
        let session = unsafe { session(table) };
        let released = session.map_or(Released::Whole, |session| session.release(&transaction));
        if released != Released::Whole {
            handle.opaque = Arc::into_raw(transaction).cast_mut().cast();
        }
        (if released == Released::GivesWay { Status::BruteForceAbort } else { Status::Ok }) as c_int
    })
}

/// Rolls back a transaction with ordered parts.
pub(super) unsafe extern "C" fn rollback(table: Table, transaction_id: u64, _: *const Buffer) -> c_int {
    // SAFETY: the server's table.
    unsafe { in_session(table, "rollback", |session| session.give_up(transaction_id)) }
}

pub(super) unsafe extern "C" fn replay(
    table: Table,
    handle: *const WriteSetHandle,
    context: *mut c_void,
) -> c_int {
    let replay = |session: &Arc<Session>| {
        // SAFETY: the server's handle.
        match unsafe { known(session, handle) } {
            Some(transaction) => session.replay(&transaction, Receiver(context)),
            None => Status::Fatal,
        }
    };
    // SAFETY: the server's table.
    unsafe { in_session(table, "replay_trx", replay) }
}

pub(super) unsafe extern "C" fn abort_certification(
    table: Table,
    before: i64,
    victim: u64,
    place: *mut i64,
) -> c_int {
    let abort = |session: &Arc<Session>| {
        let (status, seqno) = session.give_way(Seqno(before), victim);
        // SAFETY: the server's place.
        if let Some(place) = unsafe { place.as_mut() } {
            *place = seqno.map_or(UNDEFINED, |seqno| seqno.0);
        }
        status
    };
    // SAFETY: the server's table.
    unsafe { in_session(table, "abort_certification", abort) }
}

pub(super) unsafe extern "C" fn sync_wait(
    table: Table,
    to: *mut Gtid,
    timeout_s: c_int,
    place: *mut Gtid,
) -> c_int {
    let wait = |session: &Arc<Session>| {
        // SAFETY: the server's positions.
        let (to, place) = unsafe { (to.as_ref(), place.as_mut()) };
        let timeout = u64::try_from(timeout_s).ok().map(Duration::from_secs);
        match session.sync_wait(to.map(|gtid| Seqno(gtid.seqno)), timeout) {
            Ok(seqno) => {
                if let Some(place) = place {
                    *place = Gtid { uuid: Uuid(session.group().0), seqno: seqno.0 };
                }
                Status::Ok
            }
            Err(status) => status,
        }
    };
    // SAFETY: the server's table.
    unsafe { in_session(table, "sync_wait", wait) }
}

pub(super) unsafe extern "C" fn last_committed_id(table: Table, place: *mut Gtid) -> c_int {
    guarded("last_committed_id", || {
        // SAFETY: the server's table and place.
        let (session, place) = unsafe { (session(table), place.as_mut()) };
        if let Some(place) = place {
            let nowhere = Gtid { uuid: Uuid::default(), seqno: UNDEFINED };
            *place = session.map_or(nowhere, |session| Gtid {
                uuid: Uuid(session.group().0),
                seqno: session.finished().0,
            });
        }
        Status::Ok as c_int
    })
}

pub(super) unsafe extern "C" fn to_execute_start(
    table: Table,
    connection_id: u64,
    keys: *const Key,
    key_count: usize,
    action: *const Buffer,
    count: usize,
    flags: u32,
    place: *mut TransactionMeta,
) -> c_int {
    let start = |session: &Arc<Session>| {
        let mut all = Keys::default();
        // SAFETY: the server's keys and buffers.
        let action = unsafe {
            add_keys(&mut all, keys, key_count, KeyKind::Exclusive);
            buffers(action, count).flatten().copied().collect()
        };
        let Certified { status, applied } = session.begin_isolation(connection_id, all, action, flags);
        // SAFETY: the server's place.
        unsafe { put_meta(place, applied, u64::MAX) };
        status
    };
    // SAFETY: the server's table.
    unsafe { in_session(table, "to_execute_start", start) }
}

pub(super) unsafe extern "C" fn to_execute_end(
    table: Table,
    connection_id: u64,
    error: *const Buffer,
) -> c_int {
    let end = |session: &Arc<Session>| {
        // SAFETY: the server's buffer.
        let said: Vec<u8> =
            unsafe { buffers(error, usize::from(!error.is_null())) }.flatten().copied().collect();
        // If the outcome differs from the majority's, this server has left and logged it. Its statement has ended
        // anyway.
        let _ = session.end_isolation(connection_id, &said);
        Status::Ok
    };
    // SAFETY: the server's table.
    unsafe { in_session(table, "to_execute_end", end) }
}

pub(super) unsafe extern "C" fn sst_sent(table: Table, _: *const Gtid, code: c_int) -> c_int {
    let sent = |session: &Arc<Session>| {
        let failed = || format!("its server's script ended with {code}; the messages there say why");
        session.donated(if code == 0 { Ok(()) } else { Err(failed()) });
        Status::Ok
    };
    // SAFETY: the server's table.
    unsafe { in_session(table, "sst_sent", sent) }
}

pub(super) unsafe extern "C" fn sst_received(
    table: Table,
    position: *const Gtid,
    _state: *const Buffer,
    code: c_int,
) -> c_int {
    let received = |session: &Arc<Session>| {
        // SAFETY: the server's position.
        let position = unsafe { position.as_ref() }.filter(|gtid| code == 0 && gtid.seqno >= 0);
        session.state_received(match position {
            Some(gtid) => Ok((GroupId(gtid.uuid.0), Seqno(gtid.seqno))),
            None => Err(format!(
                "the state transfer (SST) failed: the server's script ended with {code}; see its error log"
            )),
        });
        Status::Ok
    };
    // SAFETY: the server's table.
    unsafe { in_session(table, "sst_received", received) }
}

pub(super) unsafe extern "C" fn pause(table: Table) -> i64 {
    guarded("pause", || {
        // SAFETY: the server's table.
        unsafe { session(table) }.map_or(UNDEFINED, |session| session.pause().0)
    })
}

pub(super) unsafe extern "C" fn resume(table: Table) -> c_int {
    let resume = |session: &Arc<Session>| {
        session.resume();
        Status::Ok
    };
    // SAFETY: the server's table.
    unsafe { in_session(table, "resume", resume) }
}

pub(super) unsafe extern "C" fn desync(table: Table) -> c_int {
    // SAFETY: the server's table.
    unsafe {
        in_session(table, "desync", |session| {
            session.desync();
            Status::Ok
        })
    }
}

pub(super) unsafe extern "C" fn resync(table: Table) -> c_int {
    // SAFETY: the server's table.
    unsafe {
        in_session(table, "resync", |session| {
            session.resync();
            Status::Ok
        })
    }
}
