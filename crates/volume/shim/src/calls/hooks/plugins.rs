//! dlopen: plugins that manage keys, and MySQL's clone plugin.
//!
//! A server with such a plugin makes encrypted tables. Their redo is in clear, and so the node holds their pages in
//! clear. Without consent (`redoubt run --clear-pages`) no such plugin is loaded: neither at the server's start, nor
//! by `INSTALL SONAME`, nor from `mysql.plugin`. The file name does not matter: like the server, this module reads
//! the plugin's declarations.
//!
//! MySQL gets no keyring at all, be it a plugin or a component. With one, `ALTER TABLESPACE ... ENCRYPTION='Y'` notes
//! the encryption in the dictionary before any page shows it, and the server continues with it at every start.
//!
//! The clone plugin makes the server read its latest writes to its redo log, to copy them to the clone.

use crate::base::{message, real};
use crate::calls::process::active;
use libc::{c_char, c_int, c_void};
use redoubt_redo::Family;
use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering;

/// `MariaDB_ENCRYPTION_PLUGIN`.
const KEY_MANAGEMENT: c_int = 9;
/// `MYSQL_KEYRING_PLUGIN`.
const KEYRING: c_int = 10;
/// `MYSQL_CLONE_PLUGIN`.
const CLONE: c_int = 11;
/// Start of the name under which a component gives InnoDB its keys: service and component, joined by a point.
const KEYRING_SERVICE: &[u8] = b"keyring_reader_with_status.";
/// Symbols of a plugin's declarations and of the length of each declaration.
const DECLARATIONS: [(&CStr, &CStr); 2] = [
    (c"_maria_plugin_declarations_", c"_maria_sizeof_struct_st_plugin_"),
    (c"_mysql_plugin_declarations_", c"_mysql_sizeof_struct_st_plugin_"),
];
/// No library has more plugins.
const PLUGINS_MAX: usize = 64;
/// No component has more services.
const SERVICES_MAX: usize = 256;

/// The beginning of `st_maria_plugin` and `st_mysql_plugin`.
#[repr(C)]
struct Declaration {
    kind: c_int,
    info: *const c_void,
    name: *const c_char,
}

/// The beginning of `mysql_component_t` (`include/mysql/components/component_implementation.h`).
#[repr(C)]
struct Component {
    name: *const c_char,
    provides: *const ServiceRef,
}

/// `mysql_service_ref_t`; the last one of a list has no name.
#[repr(C)]
struct ServiceRef {
    name: *const c_char,
    implementation: *const c_void,
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: the caller's arguments, unchanged.
    let handle = unsafe { real::dlopen(path, flags) };
    let Some(library) = active().filter(|_| !handle.is_null() && !path.is_null()) else { return handle };
    let family = library.content.family;
    // SAFETY: the handle was just made.
    if family == Family::MySql && unsafe { plugin_of_kind(handle, CLONE) }.is_some() {
        library.redo_files.keep(&library.content);
    }
    // SAFETY: the handle was just made.
    let Some(name) = (unsafe { manager_of_keys(handle, family) }) else { return handle };
    if library.content.takes_clear_pages && family == Family::MariaDb {
        library.content.has_key_plugin.store(true, Ordering::Release);
        return handle;
    }
    let (what, way_out) = match family {
        Family::MariaDb => (
            format!(
                "the key management plugin {name} is refused: the node would hold the pages of encrypted tables in clear"
            ),
            "Start with `redoubt run --clear-pages` to allow that, or remove the plugin",
        ),
        Family::MySql => (
            format!(
                "the keyring {name} is refused: a volume has no encrypted tablespaces and no encrypted redo log"
            ),
            "Take it out of mysqld.my (the manifest beside mysqld, or that in the data directory), or leave out what \
             loads it",
        ),
    };
    message::error(&format!("{what}. {way_out}"));
    // SAFETY: the handle was just made, and the caller does not get it.
    unsafe { libc::dlclose(handle) };
    // The C library reports errors of its own calls only, so a failing call of it carries the refusal. The server
    // shows it to the client that loads the plugin.
    let refusal = CString::new(match family {
        Family::MariaDb => format!("/redoubt: {name} is refused without `redoubt run --clear-pages`"),
        Family::MySql => format!("/redoubt: {name} is refused, a volume has nothing encrypted"),
    });
    if let Ok(refusal) = refusal {
        // SAFETY: a NUL-terminated path, at which there is nothing.
        unsafe { real::dlopen(refusal.as_ptr(), libc::RTLD_NOW) };
    }
    std::ptr::null_mut()
}

/// Name of what manages keys in the library.
///
/// # Safety
/// `handle` is a loaded library.
unsafe fn manager_of_keys(handle: *mut c_void, family: Family) -> Option<String> {
    match family {
        // SAFETY: the caller's promise.
        Family::MariaDb => unsafe { plugin_of_kind(handle, KEY_MANAGEMENT) },
        // SAFETY: the caller's promise.
        Family::MySql => unsafe { plugin_of_kind(handle, KEYRING).or_else(|| keyring_component(handle)) },
    }
}

/// Name of a component of MySQL in the library that InnoDB would have its keys from.
///
/// # Safety
/// `handle` is a loaded library.
unsafe fn keyring_component(handle: *mut c_void) -> Option<String> {
    // SAFETY: a loaded library and a NUL-terminated name.
    let list = unsafe { libc::dlsym(handle, c"list_components".as_ptr()) };
    if list.is_null() {
        return None;
    }
    // SAFETY: a symbol of this name is this function, which the server calls in the same way; it has no effect.
    let component =
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> *const Component>(list)() };
    // SAFETY: null, or the library's own component.
    let component = unsafe { component.as_ref() }?;
    if component.provides.is_null() {
        return None;
    }
    for number in 0..SERVICES_MAX {
        // SAFETY: the list ends with a service without a name, after which nothing is read.
        let service = unsafe { &*component.provides.add(number) };
        if service.name.is_null() {
            return None;
        }
        // SAFETY: names are NUL-terminated.
        if unsafe { super::bytes(service.name) }.starts_with(KEYRING_SERVICE) {
            // SAFETY: a component's name is null or NUL-terminated.
            return Some(String::from_utf8_lossy(unsafe { super::bytes(component.name) }).into_owned());
        }
    }
    None
}

/// Name of a plugin of this kind in the library.
///
/// # Safety
/// `handle` is a loaded library.
unsafe fn plugin_of_kind(handle: *mut c_void, kind: c_int) -> Option<String> {
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
            if declared.kind == kind {
                // SAFETY: a plugin's name is null or NUL-terminated.
                return Some(String::from_utf8_lossy(unsafe { super::bytes(declared.name) }).into_owned());
            }
        }
    }
    None
}
