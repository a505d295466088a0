//! Output for people: `say!` on standard output, `complain!` on standard error.
//!
//! The standard library's macros panic when the reader has ended (`| head`, a log) or the disk with the log is full.
//! A node, or a reader that answers the kernel, must not end by that, and a command that only shows something need
//! not report it. So text that cannot be written is dropped. The command fails only if standard output is full or
//! broken, because then its result is lost; a pipe that its reader has closed is no failure.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// Exit status when standard output cannot be written.
const FAILED: i32 = 1;

/// A line on standard output, of a command that is there to show it: ends the process if it cannot be written.
#[macro_export]
macro_rules! say {
    () => { $crate::output::show(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::show(format_args!("{}\n", format_args!($($text)*))) };
}

/// A line on standard error, if anybody reads it.
#[macro_export]
macro_rules! complain {
    ($($text:tt)*) => { $crate::output::complain(format_args!($($text)*)) };
}

/// Text on standard output, as it is; see `say!`.
pub fn show(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => {
            complain(format_args!("redoubt: cannot write to standard output: {error}"));
            std::process::exit(FAILED);
        }
    }
}

/// A line on standard output, if anybody reads it: of a process that has more to do.
pub fn announce(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// See `complain!`.
pub fn complain(text: Arguments<'_>) {
    // In one write, so that lines of several threads and processes stay apart.
    let _ = std::io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}
