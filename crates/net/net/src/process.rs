//! Process-wide state besides the table: whether this process is a server in which the library is active.
//!
//! The library is inactive (no connection is ever put into the table, so every hook passes straight through) in every
//! process except `mariadbd` and `mysqld`. In a forked child nothing is read ahead, and bytes that its parent had read
//! ahead stay the parent's. But a child of a server that does not listen yet is the server from then on (`mysqld
//! --daemonize`).

use crate::{admission, control};
use redoubt_shm_control::net::{Setting, VARIABLE};
use redoubt_user_tcp as user_tcp;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

static ACTIVE: AtomicBool = AtomicBool::new(false);
static CHILD: AtomicBool = AtomicBool::new(false);
/// This process listens, or did.
static LISTENED: AtomicBool = AtomicBool::new(false);

/// Accepted connections are intercepted.
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Acquire)
}

/// This is a forked child of a process that was active.
pub fn is_child() -> bool {
    CHILD.load(Ordering::Relaxed)
}

/// This process is about to listen: its children are not servers from now on.
pub fn listening() {
    LISTENED.store(true, Ordering::Relaxed);
}

/// Activates the library in this process, whatever its program.
pub fn start(setting: impl Into<Setting>) {
    let setting = setting.into();
    control::start(&setting);
    admission::set_administrators(setting.admission.administrators);
    let user_tcp_control =
        user_tcp::Control { is_on: control::is_user_tcp_wanted, publish: control::publish_user_tcp };
    user_tcp::start(setting.user_tcp, user_tcp_control);
    // SAFETY: the handler only stores to atomics; it is never unloaded (preloaded libraries stay).
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    ACTIVE.store(true, Ordering::Release);
}

extern "C" fn in_child() {
    if !LISTENED.load(Ordering::Relaxed) {
        // The process has no connections yet that the child could share.
        return;
    }
    ACTIVE.store(false, Ordering::Release);
    CHILD.store(true, Ordering::Release);
    user_tcp::in_child();
}

/// Reads the environment. Called once, before `main`.
pub fn activate() {
    let is_server = is_server();
    crate::bypass::activate(is_server);
    if !is_server {
        return;
    }
    remove_from_preload();
    crate::tls::activate();
    let setting = std::env::var(VARIABLE).unwrap_or_default();
    match Setting::parse(&setting) {
        Ok(setting) => start(setting),
        Err(error) => {
            let line = format!("[redoubt] {VARIABLE}: {error}; the network library does nothing\n");
            // SAFETY: a buffer of this length.
            unsafe { libc::syscall(libc::SYS_write, 2, line.as_ptr(), line.len()) };
        }
    }
}

/// Children of the server are not servers.
fn remove_from_preload() {
    let Some(list) = std::env::var_os("LD_PRELOAD").and_then(|list| list.into_string().ok()) else { return };
    let words = list.split([':', ' ']).filter(|path| !path.is_empty());
    let others: Vec<&str> = words.filter(|path| !path.contains("libredoubt_net")).collect();
    // SAFETY: called from a constructor, before main and before any thread of the server.
    unsafe {
        if others.is_empty() {
            std::env::remove_var("LD_PRELOAD");
        } else {
            std::env::set_var("LD_PRELOAD", others.join(":"));
        }
    }
}

/// This process runs a server program, possibly as the argument of the dynamic loader.
fn is_server() -> bool {
    let is_server_name =
        |path: &Path| path.file_name().is_some_and(|name| name == "mariadbd" || name == "mysqld");
    let Some(executable) = executable() else { return false };
    let is_loader = executable.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"ld-"));
    is_server_name(&executable)
        || is_loader && std::env::args_os().next().is_some_and(|program| is_server_name(Path::new(&program)))
}

/// The program's file; where /proc cannot be read, by the name with which it was executed.
fn executable() -> Option<PathBuf> {
    std::fs::read_link("/proc/self/exe").ok().or_else(|| {
        // SAFETY: null, or a string of the kernel's that stays.
        let name = unsafe {
            let name = libc::getauxval(libc::AT_EXECFN) as *const libc::c_char;
            (!name.is_null()).then(|| CStr::from_ptr(name))
        };
        name.map(|name| PathBuf::from(OsStr::from_bytes(name.to_bytes())))
    })
}
