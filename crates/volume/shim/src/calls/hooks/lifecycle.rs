//! Load, fork, exit.

use crate::calls::process;
use crate::kinds::local_log;

extern "C" fn load() {
    process::activate();
    if process::active().is_none() && local_log::active().is_none() {
        return;
    }
    remove_from_preload();
    // SAFETY: the handler only stores to an atomic; it is never unloaded (preloaded libraries stay).
    unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    }
}

/// Children of the server are not servers.
fn remove_from_preload() {
    let Some(list) = std::env::var_os("LD_PRELOAD").and_then(|list| list.into_string().ok()) else { return };
    let others: Vec<&str> =
        list.split([':', ' ']).filter(|path| !path.is_empty() && !path.contains("libredoubt")).collect();
    // SAFETY: called from a constructor, before main and before any thread of the server.
    unsafe {
        if others.is_empty() {
            std::env::remove_var("LD_PRELOAD");
        } else {
            std::env::set_var("LD_PRELOAD", others.join(":"));
        }
    }
}

extern "C" fn in_child() {
    process::deactivate();
    local_log::forked();
}

extern "C" fn unload() {
    if let Some(library) = process::active() {
        library.finish();
    }
}

// SAFETY: a list of function pointers is what these sections hold; the functions take no arguments they use.
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

// SAFETY: as above.
#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;
