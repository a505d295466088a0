//! dlopen: plugins that manage keys.
//!
//! A server with such a plugin makes encrypted tables, whose redo is in clear, and so the node holds their pages in
//! clear. Without consent (`redoubt run --clear-pages`) the server gets none, be it loaded at its start, by `INSTALL
//! SONAME`, or because `mysql.plugin` says so. What a plugin is does not depend on the name of its file: the server
//! itself goes by what a plugin declares.

use crate::base::{message, real};
use crate::calls::process::active;
use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering;

/// `MariaDB_ENCRYPTION_PLUGIN`.
const KEY_MANAGEMENT: c_int = 9;
/// What a plugin declares, and how long each declaration is.
const DECLARATIONS: [(&CStr, &CStr); 2] = [
    (c"_maria_plugin_declarations_", c"_maria_sizeof_struct_st_plugin_"),
    (c"_mysql_plugin_declarations_", c"_mysql_sizeof_struct_st_plugin_"),
];
/// No library has more plugins.
const PLUGINS_MAX: usize = 64;

/// The beginning of `st_maria_plugin` and `st_mysql_plugin`.
#[repr(C)]
struct Declaration {
    kind: c_int,
    info: *const c_void,
    name: *const c_char,
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: the caller's arguments, unchanged.
    let handle = unsafe { real::dlopen(path, flags) };
    let Some(library) = active().filter(|_| !handle.is_null() && !path.is_null()) else { return handle };
    // SAFETY: the handle was just made.
    let Some(name) = (unsafe { key_management(handle) }) else { return handle };
    if library.content.takes_clear_pages {
        library.content.has_key_plugin.store(true, Ordering::Release);
        return handle;
    }
    message::error(&format!(
        "the key management plugin {name} is refused: the node would hold the pages of encrypted tables in clear. Start with \
         `redoubt run --clear-pages` to allow that, or remove the plugin"
    ));
    // SAFETY: the handle was just made, and the caller does not get it.
    unsafe { libc::dlclose(handle) };
    // The C library says why a call failed only if the call was its own. The server shows it to whoever wants the
    // plugin.
    let refusal = CString::new(format!("/redoubt: {name} is refused without `redoubt run --clear-pages`"));
    if let Ok(refusal) = refusal {
        // SAFETY: a NUL-terminated path, at which there is nothing.
        unsafe { real::dlopen(refusal.as_ptr(), libc::RTLD_NOW) };
    }
    std::ptr::null_mut()
}

/// Name of a plugin in the library that manages keys.
///
/// # Safety
/// `handle` is a loaded library.
unsafe fn key_management(handle: *mut c_void) -> Option<String> {
    for (list, declaration_len) in DECLARATIONS {
        // SAFETY: a loaded library and NUL-terminated names.
        let (list, len) =
            unsafe { (libc::dlsym(handle, list.as_ptr()), libc::dlsym(handle, declaration_len.as_ptr())) };
        if list.is_null() || len.is_null() {
            continue;
        }
        // SAFETY: a symbol of this name is an int; the server reads it in the same way.
        let len = unsafe { *len.cast::<c_int>() };
        let Some(len) = usize::try_from(len).ok().filter(|len| *len >= size_of::<Declaration>()) else {
            continue;
        };
        for number in 0..PLUGINS_MAX {
            // SAFETY: the list has declarations of this length up to one without `info`, after which nothing is read.
            let declared = unsafe { &*list.byte_add(number * len).cast::<Declaration>() };
            if declared.info.is_null() {
                break;
            }
            if declared.kind == KEY_MANAGEMENT {
                // SAFETY: a plugin's name is null or NUL-terminated.
                return Some(String::from_utf8_lossy(unsafe { super::bytes(declared.name) }).into_owned());
            }
        }
    }
    None
}
