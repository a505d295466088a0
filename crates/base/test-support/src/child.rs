//! Processes that a test starts and that run code of the same test program: a server that is killed, a caller with a
//! library preloaded, a process that a signal ends.
//!
//! Such a process is not a test. [`children!`](crate::children) registers its function, and [`command`] starts the test
//! program again with the arguments `--child NAME`. A constructor finds these arguments, runs the function and ends the
//! process, all before `main`. The test harness never sees the function, so `cargo test -- --ignored` does not run it.
//!
//! Invariant: without `--child` as its first argument a test program does nothing here.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::panic::{UnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

/// The first argument of a child process. The second is its name, and the others are its own.
pub const MARK: &str = "--child";

/// This test program again, as the child process `name`. Arguments that the caller adds are the child's [`arguments`].
///
/// # Panics
/// If the path of this program is not known.
#[expect(clippy::expect_used, reason = "it is called by tests")]
pub fn command(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args([MARK, name]);
    command
}

/// A copy of this test program, for children under another name or of another user. Started with [`MARK`] and a name.
///
/// Another process writes it: a descriptor of this one could be in a child that another test is starting at this
/// moment, and a file that is open for writing cannot be executed.
///
/// # Panics
/// If it cannot be copied.
#[expect(clippy::expect_used, reason = "it is called by tests")]
pub fn copy_program(to: &Path) {
    let program = std::env::current_exe().expect("this program has a path");
    let status = Command::new("cp").args([program.as_path(), to]).status().expect("cp can be started");
    assert!(status.success(), "cp to {}: {status}", to.display());
    // `cp` obeys the umask.
    let everybody = Permissions::from_mode(0o755);
    std::fs::set_permissions(to, everybody).expect("the mode of the copy can be changed");
}

/// In a child process: the arguments that the caller of [`command`] added.
pub fn arguments() -> Vec<String> {
    std::env::args().skip(3).collect()
}

/// In a child process: argument number `index`, parsed.
///
/// # Panics
/// If it is missing or cannot be parsed.
pub fn argument<T: std::str::FromStr>(index: usize) -> T {
    let all = arguments();
    let Some(text) = all.get(index) else { panic!("argument {index} is missing: {all:?}") };
    text.parse().unwrap_or_else(|_| panic!("argument {index} is {text:?}"))
}

/// Called by the constructor that [`children!`](crate::children) makes: if this process is one of these children, runs
/// it and ends the process with status 0, or 101 after a panic.
#[doc(hidden)]
pub fn run_and_exit(children: &[(&str, fn())]) {
    let mut arguments = std::env::args();
    if arguments.nth(1).as_deref() != Some(MARK) {
        return;
    }
    let name = arguments.next().unwrap_or_default();
    if let Some((_, child)) = children.iter().find(|(known, _)| *known == name) {
        // Rust's own start has not run yet; it ignores SIGPIPE.
        // SAFETY: a constant is set; no other thread runs.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        std::process::exit(status(child));
    }
    // Another list of the same program may have it. Otherwise, the harness rejects the argument.
}

fn status(child: impl FnOnce() + UnwindSafe) -> i32 {
    if catch_unwind(child).is_ok() { 0 } else { 101 }
}

/// Registers functions of a test program as child processes; at the top level of a module, once per module. Their names
/// are unique in the program.
///
/// ```ignore
/// redoubt_test_support::children!(victim);
///
/// fn victim() { /* ... */ }
///
/// #[test]
/// fn victim_is_killed() {
///     let mut child = redoubt_test_support::child::command("victim").spawn().unwrap();
/// ```
#[macro_export]
macro_rules! children {
    ($($name:ident),+ $(,)?) => {
        const _: () = {
            extern "C" fn begin() {
                $crate::child::run_and_exit(&[$((stringify!($name), $name as fn())),+]);
            }
            // SAFETY: the C library calls each entry of this section once, with the arguments of `main`, which this
            // function does not need; no panic leaves it.
            #[used]
            #[unsafe(link_section = ".init_array")]
            static BEGIN: extern "C" fn() = begin;
        };
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::children!(child_that_adds, child_that_panics);

    fn child_that_adds() {
        println!("{}", argument::<u32>(0) + argument::<u32>(1));
    }

    fn child_that_panics() {
        panic!("on purpose");
    }

    #[test]
    fn child_runs_its_function_and_reports_its_end() {
        let output = command("child_that_adds").args(["40", "2"]).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"42\n"[..]));
        let output = command("child_that_panics").output().unwrap();
        assert_eq!(output.status.code(), Some(101));
        assert!(String::from_utf8_lossy(&output.stderr).contains("on purpose"));
    }

    #[test]
    fn child_with_unknown_name_is_an_error() {
        let output = command("child_of_nobody").output().unwrap();
        assert!(!output.status.success());
    }
}
