//! The functions that the server calls: pointers come in, safe code continues.
//!
//! It owns the table of functions and the provider behind it, which the server keeps in the table's last word. No panic
//! leaves this module: a panic is logged and ends the server, which would otherwise continue with half a state.

mod calls;
mod parameters;
mod statistics;

use crate::abi::{
    CAP_CAUSAL_READS, CAP_CERTIFICATION, CAP_INCREMENTAL, CAP_ISOLATION, CAP_MULTI_MASTER,
    CAP_PARALLEL_APPLYING, CAP_PAUSE, CAP_REPLAY, CAP_STREAMING, INTERFACE_VERSION, InitArgs, Status,
};
use crate::options::{Options, REMOVE};
use crate::position::RECOVERING;
use crate::server::Server;
use crate::session::{New, Session, Wanted};
use redoubt_locks::IgnorePoison;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};

/// Capabilities of the provider.
pub const CAPABILITIES: u32 = CAP_MULTI_MASTER
    | CAP_CERTIFICATION
    | CAP_PARALLEL_APPLYING
    | CAP_REPLAY
    | CAP_ISOLATION
    | CAP_PAUSE
    | CAP_CAUSAL_READS
    | CAP_INCREMENTAL
    | CAP_STREAMING;

/// Number of words that the library fills. The following word is the server's own.
const WORDS: usize = 43;
const CONTEXT: usize = 44;
const NAME: &[u8] = b"Redoubt Group\0";
const VERSION: &[u8] = concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes();
const VENDOR: &[u8] = b"Redoubt\0";

/// The table through which the server calls.
pub type Table = *mut c_void;

/// The provider, from `init` to `free`.
pub struct Provider {
    server: Arc<Server>,
    options: Mutex<Options>,
    session: Mutex<Option<Arc<Session>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

impl Provider {
    fn session(&self) -> Option<Arc<Session>> {
        lock(&self.session).clone()
    }

    fn remove(&self, name: &str) -> Result<(), String> {
        let session = self.session().ok_or("this server is in no group")?;
        session.remove(name)
    }

    fn set(&self, text: &str) -> Result<(), String> {
        let mut options = lock(&self.options);
        options.set(text).map_err(|error| error.to_string())?;
        if let Some(session) = self.session() {
            session.set_options(&options);
        }
        Ok(())
    }
}

/// Runs the body of a function; a panic ends the server.
fn guarded<T>(what: &str, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        eprintln!("[ERROR] [redoubt] internal error in {what}: {text}; the server ends");
        std::process::abort();
    })
}

/// # Safety
/// A table that [`wsrep_loader`] has filled.
unsafe fn provider<'a>(table: Table) -> Option<&'a Provider> {
    // SAFETY: the caller's; the word is null or what `init` has put there, which stays until `free`.
    unsafe { (*table.cast::<*const Provider>().add(CONTEXT)).as_ref() }
}

/// # Safety
/// As [`provider`].
unsafe fn session(table: Table) -> Option<Arc<Session>> {
    // SAFETY: the caller's.
    unsafe { provider(table) }.and_then(Provider::session)
}

/// # Safety
/// The pointer is null, or a zero-terminated string.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

unsafe extern "C" fn init(table: Table, args: *const InitArgs) -> c_int {
    guarded("init", || {
        // SAFETY: the server gives its arguments, as the interface has it.
        let server = Arc::new(unsafe { Server::new(args) });
        if std::env::var_os(RECOVERING).is_some() {
            server.error("a server that is run for its position loads no provider");
            return Status::NodeFail as c_int;
        }
        let mut options = Options::default();
        if let Err(error) = options.set(&server.options) {
            server.error(&format!("wsrep_provider_options: {error}"));
            return Status::NodeFail as c_int;
        }
        let provider = Box::new(Provider { server, options: Mutex::new(options), session: Mutex::new(None) });
        // SAFETY: the last word of the table is the provider's.
        unsafe { *table.cast::<*mut Provider>().add(CONTEXT) = Box::into_raw(provider) };
        Status::Ok as c_int
    })
}

unsafe extern "C" fn free(table: Table) {
    guarded("free", || {
        // SAFETY: the table is the server's; the word is null when this is called again.
        let word = unsafe { &mut *table.cast::<*mut Provider>().add(CONTEXT) };
        let pointer = std::mem::replace(word, std::ptr::null_mut());
        if !pointer.is_null() {
            // SAFETY: it came from `Box::into_raw`, once; the server calls nothing else any more.
            let provider = unsafe { Box::from_raw(pointer) };
            if let Some(session) = provider.session() {
                session.disconnect();
            }
        }
    });
}

unsafe extern "C" fn capabilities(_: Table) -> u32 {
    CAPABILITIES
}

unsafe extern "C" fn options_set(table: Table, options: *const c_char) -> c_int {
    guarded("options_set", || {
        // SAFETY: the server's table and string.
        let (provider, options) = unsafe { (provider(table), text(options)) };
        let Some(provider) = provider else { return Status::NodeFail as c_int };
        // The server sends an option of a variable of its own with a semicolon.
        let only = options.trim_end_matches([';', ' ']);
        let done = match only.split_once('=').map(|(name, value)| (name.trim(), value.trim())) {
            Some((name, member)) if name.as_bytes() == REMOVE.to_bytes() => provider.remove(member),
            _ => provider.set(&options),
        };
        match done {
            Ok(()) => Status::Ok as c_int,
            Err(reason) => {
                provider.server.warn(&reason);
                // The same status as Galera's.
                Status::NodeFail as c_int
            }
        }
    })
}

unsafe extern "C" fn options_get(table: Table) -> *mut c_char {
    guarded("options_get", || {
        // SAFETY: the server's table.
        let text =
            unsafe { provider(table) }.map(|provider| lock(&provider.options).text()).unwrap_or_default();
        let bytes = std::ffi::CString::new(text).unwrap_or_default();
        // SAFETY: a string that ends with 0; the server frees the copy with `free`.
        unsafe { libc::strdup(bytes.as_ptr()) }
    })
}

unsafe extern "C" fn connect(
    table: Table,
    cluster_name: *const c_char,
    address: *const c_char,
    _donor: *const c_char,
    is_new: bool,
) -> c_int {
    guarded("connect", || {
        // SAFETY: the server's table and strings.
        let (provider, cluster_name, address) =
            unsafe { (provider(table), text(cluster_name), text(address)) };
        let Some(provider) = provider else { return Status::NodeFail as c_int };
        let options = lock(&provider.options).clone();
        // A server that connects again has its data open, so only the previous session has the position.
        let before = provider.session();
        before.iter().for_each(|before| before.close());
        let position = before.and_then(|before| before.position());
        let new = New::of(is_new, &address, &std::fs::read("/proc/self/cmdline").unwrap_or_default());
        let wanted = Wanted { cluster_name, address, new, position };
        match Session::connect(Arc::clone(&provider.server), &options, &wanted) {
            Ok(session) => {
                *lock(&provider.session) = Some(session);
                Status::Ok as c_int
            }
            Err(error) => {
                provider.server.error(&error.to_string());
                Status::NodeFail as c_int
            }
        }
    })
}

unsafe extern "C" fn disconnect(table: Table) -> c_int {
    guarded("disconnect", || {
        // SAFETY: the server's table.
        if let Some(session) = unsafe { session(table) } {
            session.disconnect();
        }
        Status::Ok as c_int
    })
}

/// A table that is read from any thread and never written.
#[repr(transparent)]
pub struct Text(*const c_char);

// SAFETY: a pointer to bytes that never change.
unsafe impl Sync for Text {}

/// The version of the interface that this library supports. The server looks it up by this name.
#[allow(non_upper_case_globals, reason = "the name is the interface's")]
#[unsafe(no_mangle)]
pub static wsrep_interface_version: Text = Text(INTERFACE_VERSION.as_ptr().cast());

/// The server offers a service for permitted addresses. It is not used, but has to be accepted.
#[unsafe(no_mangle)]
pub extern "C" fn wsrep_init_allowlist_service_v1(_service: *mut c_void) -> c_int {
    0
}

/// Counterpart of [`wsrep_init_allowlist_service_v1`].
#[unsafe(no_mangle)]
pub extern "C" fn wsrep_deinit_allowlist_service_v1() {}

/// Fills the server's table. Order and number of the words are the interface's.
///
/// # Safety
/// `table` has 45 words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wsrep_loader(table: *mut *const c_void) -> c_int {
    let words: [*const c_void; WORDS] = [
        INTERFACE_VERSION.as_ptr().cast(),
        init as *const c_void,
        capabilities as *const c_void,
        options_set as *const c_void,
        options_get as *const c_void,
        calls::not_implemented as *const c_void,
        connect as *const c_void,
        disconnect as *const c_void,
        calls::receive as *const c_void,
        calls::assign_read_view as *const c_void,
        calls::certify as *const c_void,
        calls::commit_order_enter as *const c_void,
        calls::commit_order_leave as *const c_void,
        calls::release as *const c_void,
        calls::replay as *const c_void,
        calls::abort_certification as *const c_void,
        calls::rollback as *const c_void,
        calls::append_key as *const c_void,
        calls::append_data as *const c_void,
        calls::sync_wait as *const c_void,
        calls::last_committed_id as *const c_void,
        calls::free_connection as *const c_void,
        calls::to_execute_start as *const c_void,
        calls::to_execute_end as *const c_void,
        calls::not_implemented as *const c_void,
        calls::not_implemented as *const c_void,
        calls::sst_sent as *const c_void,
        calls::sst_received as *const c_void,
        calls::not_implemented as *const c_void,
        statistics::get as *const c_void,
        statistics::free as *const c_void,
        statistics::reset as *const c_void,
        calls::pause as *const c_void,
        calls::resume as *const c_void,
        calls::desync as *const c_void,
        calls::resync as *const c_void,
        calls::not_implemented as *const c_void,
        calls::not_implemented as *const c_void,
        calls::is_locked as *const c_void,
        NAME.as_ptr().cast(),
        VERSION.as_ptr().cast(),
        VENDOR.as_ptr().cast(),
        free as *const c_void,
    ];
    for (index, word) in words.into_iter().enumerate() {
        // SAFETY: the caller's: there are so many.
        unsafe { *table.add(index) = word };
    }
    // SAFETY: as above.
    unsafe { *table.add(CONTEXT) = std::ptr::null() };
    0
}
