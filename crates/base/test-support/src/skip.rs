//! Report of a test that cannot run on this machine. For tests only.
//!
//! A test that returns early passes, and its output is not shown. So a test that leaves out a check calls [`skip`]. It
//! writes past the capture of the output, and to a list. `./test` shows the list at its end, and compares it, in CI,
//! with the allowed skips.

use std::fmt::Display;
use std::fs::File;
use std::io::{Result, Write};
use std::path::Path;

/// Environment variable with the name of the list's file, which has a line per skip. Without it there is no list.
pub const LIST_VARIABLE: &str = "REDOUBT_SKIPPED";

/// Reports that `what` is left out, and the reason. `what` is the same on every machine and has no colon.
///
/// # Panics
/// If the list cannot be written: no skip may stay unnoticed.
#[expect(clippy::expect_used, reason = "it is called by tests")]
pub fn skip(what: &str, reason: impl Display) {
    let line = line(what, &reason.to_string());
    // Not by a macro: in a passing test, the output of macros is captured.
    std::io::stderr().write_all(format!("\n{line}").as_bytes()).expect("standard error can be written");
    if let Some(list) = std::env::var_os(LIST_VARIABLE) {
        append(Path::new(&list), &line).expect("the list of what is left out can be written");
    }
}

/// Formats the skip with its reason in one line.
fn line(what: &str, reason: &str) -> String {
    format!("SKIP {what}: {}\n", reason.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Appends in one write, so that lines of several processes do not mix.
fn append(list: &Path, line: &str) -> Result<()> {
    File::options().append(true).create(true).open(list)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_one_line_of_the_list() {
        let list = std::env::temp_dir().join(format!("redoubt-skip-{}", std::process::id()));
        append(&list, &line("a loop device", "losetup:\n  failed to set up\n")).unwrap();
        append(&list, &line("a browser", "there is none")).unwrap();
        let text = std::fs::read_to_string(&list).unwrap();
        std::fs::remove_file(&list).unwrap();
        assert_eq!(text, "SKIP a loop device: losetup: failed to set up\nSKIP a browser: there is none\n");
    }
}
