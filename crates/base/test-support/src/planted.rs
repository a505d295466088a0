//! Whether a program contains planted bugs: mistakes that the cargo feature `planted-bugs` compiles in.
//!
//! Each crate with planted bugs puts a marker into every program that has them. This module holds the text to search
//! for in two parts, so that a program that only links this module does not contain it.

use std::path::Path;

/// Whether the file contains the marker of a build with planted bugs.
///
/// # Errors
/// The file cannot be read.
pub fn is_compiled_into(program: &Path) -> std::io::Result<bool> {
    let parts = [" planted bugs ", "are compiled in"].map(std::hint::black_box);
    let marker = parts.concat();
    let bytes = std::fs::read(program)?;
    Ok(bytes.windows(marker.len()).any(|window| window == marker.as_bytes()))
}

/// Fails the test unless its own program has the marker. So the search in other files is meaningful.
///
/// # Panics
/// The marker is missing, or the program cannot be read.
pub fn require_compiled_in() {
    let program = std::env::current_exe().expect("path of the test program");
    assert!(
        is_compiled_into(&program).expect("bytes of the test program"),
        "no marker in {}",
        program.display()
    );
}
