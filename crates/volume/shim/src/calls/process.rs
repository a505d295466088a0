//! The only process-wide state: the active library of this process, if there is one.
//!
//! Active means: the process is `mariadbd` or `mysqld`, `REDOUBT_NODE` is set, and this is not a forked child. With
//! `REDOUBT_LOCAL_LOG` set instead, only [`local_log`] is active. Otherwise every hook passes straight through.

use super::library::Library;
use super::target::OpenFile;
use crate::base::config::{Config, LOCAL_LOG_VARIABLE, NODE_VARIABLE};
use crate::base::{classify, message, real};
use crate::kinds::local_log;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

static LIBRARY: OnceLock<Library> = OnceLock::new();
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// The active library, if this process has one.
pub fn active() -> Option<&'static Library> {
    if ACTIVE.load(Ordering::Acquire) { LIBRARY.get() } else { None }
}

/// The tracked file behind a descriptor.
pub fn tracked(fd: RawFd) -> Option<(&'static Library, Arc<OpenFile>)> {
    let library = active()?;
    Some((library, library.fds.get(fd)?))
}

/// Switches the library off in this process; for a forked child.
pub fn deactivate() {
    ACTIVE.store(false, Ordering::Release);
}

/// Reads the environment. Called once, before `main`.
pub fn activate() {
    if !is_server() {
        return;
    }
    let lookup = |name: &str| std::env::var_os(name).map(OsStringExt::into_vec);
    let is_local = lookup(LOCAL_LOG_VARIABLE).is_some();
    if lookup(NODE_VARIABLE).is_none() && !is_local {
        return;
    }
    std::panic::set_hook(Box::new(|info| {
        message::raw(&format!("internal error, the server is stopped: {info}"));
        real::abort();
    }));
    let result = if is_local {
        local_log::activate(&lookup).map_err(|error| error.to_string())
    } else {
        let config = Config::from_variables(&lookup).map_err(|error| error.to_string());
        config.and_then(Library::new).map(|library| {
            let _ = LIBRARY.set(library);
            ACTIVE.store(true, Ordering::Release);
        })
    };
    if let Err(error) = result {
        message::raw(&error);
        real::exit_now(1);
    }
}

/// This process runs a server program, be it started by the dynamic loader as its first argument.
fn is_server() -> bool {
    let is_server_name = |path: &[u8]| matches!(classify::file_name(path), b"mariadbd" | b"mysqld");
    let Ok(executable) = real::link_target(c"/proc/self/exe") else { return false };
    if is_server_name(&executable) {
        return true;
    }
    // The loader takes itself and its options out of the arguments before the program or this library sees them.
    classify::file_name(&executable).starts_with(b"ld-")
        && std::env::args_os().next().is_some_and(|program| is_server_name(program.as_encoded_bytes()))
}
