//! A mount namespace of the program's own: only the program and its child processes see the view.
//!
//! So the view can lie over the directory of a running server, which continues seeing its own files, and a tool that
//! asks the server for its directory finds the view there. When the last process in the namespace has ended the view
//! is gone, however it ended. The super-user may make one; other users make one in a user namespace, in which they
//! keep their ids. Where neither is allowed (some containers and distributions), the view is mounted for all of the
//! host.

use std::ffi::CStr;

/// Gives this process a namespace of its own. It must have one thread. False: that is not allowed here.
pub fn enter() -> bool {
    let (user, group) = super::mount::own_ids();
    let flags = if user == 0 { libc::CLONE_NEWNS } else { libc::CLONE_NEWNS | libc::CLONE_NEWUSER };
    // SAFETY: no pointers.
    if unsafe { libc::unshare(flags) } != 0 {
        return false;
    }
    if user != 0 && !map_self(user, group) {
        return false;
    }
    let root: &CStr = c"/";
    // Later mounts on the host are visible here; mounts made here are not visible there.
    // SAFETY: a string with a zero at its end; null where this kind of call takes nothing.
    let status = unsafe {
        libc::mount(
            std::ptr::null(),
            root.as_ptr(),
            std::ptr::null(),
            libc::MS_REC | libc::MS_SLAVE,
            std::ptr::null(),
        )
    };
    status == 0
}

/// The same user and group inside as outside.
fn map_self(user: u32, group: u32) -> bool {
    let write = |name: &str, text: String| std::fs::write(format!("/proc/self/{name}"), text).is_ok();
    write("uid_map", format!("{user} {user} 1"))
        && write("setgroups", "deny".to_owned())
        && write("gid_map", format!("{group} {group} 1"))
}
