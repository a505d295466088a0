//! Start of a server: in a child process, or where the kernel refuses the system calls that it needs.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod support;

use std::os::unix::process::CommandExt;
use std::process::Stdio;
use support::{Family, another, close_client, close_server, engaged, is_blocking, start};

const WAIT: libc::c_int = 28_800_000;

redoubt_test_support::children!(daemon, refused);

/// Serves, and prints whether connections are intercepted.
fn serve() {
    let ends = engaged(Family::Tcp, WAIT);
    println!("\n{}", if is_blocking(ends.server) { "looked after" } else { "served" });
    close_server(ends.server);
    close_client(ends.client);
}

/// A child process of [`a_child_that_listens_is_the_server`]: a server that continues in a forked child.
fn daemon() {
    start();
    for is_last in [false, true] {
        // SAFETY: the child uses what this thread has, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            serve();
            std::process::exit(0);
        }
        let mut state = 0;
        // SAFETY: a place for its state.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut state, 0) }, child);
        assert!(libc::WIFEXITED(state) && libc::WEXITSTATUS(state) == 0);
        if !is_last {
            serve();
        }
    }
}

#[test]
fn a_child_that_listens_is_the_server() {
    let output = another("daemon").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found: Vec<&str> = text.lines().filter(|line| ["looked after", "served"].contains(line)).collect();
    // A child of a server that listens is none.
    assert_eq!(found, ["looked after", "looked after", "served"], "{text}");
}

/// A child process of [`what_is_refused_is_said`]: a server without the memory for `redoubt net status`.
fn refused() {
    serve();
}

/// The kernel refuses memfd_create from now on.
fn refuse_memory() -> std::io::Result<()> {
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let compare = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    let line = |code: u32, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut lines = [
        line(load, 0, 0),
        line(compare, 1, libc::SYS_memfd_create as u32),
        line(answer, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        line(answer, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: lines.len() as u16, filter: lines.as_mut_ptr() };
    let (none, one): (libc::c_ulong, libc::c_ulong) = (0, 1);
    // SAFETY: a program of this length.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, one, none, none, none) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn what_is_refused_is_said() {
    let mut command = another("refused");
    // SAFETY: system calls only.
    let output = unsafe { command.pre_exec(refuse_memory) }.stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("memfd_create: Operation not permitted") && said.contains("collapser stays on"),
        "{said}"
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.lines().any(|line| line == "looked after"), "{text}");
}
