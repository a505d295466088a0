//! Output for the person who looks on.
//!
//! Invariant: no error here ends the run. A terminal may be closed, and the reader of a pipe may have ended. Jobs must be
//! ended and directories removed even then, and `all.log` has the output. For the same reason the rest of this
//! program has no `println!`, which panics.

use std::io::Write;

/// Prints text on standard output.
pub fn text(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints a line on standard output.
pub fn line(line: &str) {
    text(&format!("{line}\n"));
}

/// Prints a line about something that does not end the run.
pub fn note(line: &str) {
    text(&format!("note: {line}\n"));
}

/// Prints a line on standard error.
pub fn error(line: &str) {
    let _ = std::io::stderr().lock().write_all(format!("error: {line}\n").as_bytes());
}
