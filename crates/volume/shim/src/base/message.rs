//! Messages for people, on descriptor 2, which is the server's error log.
//!
//! Invariant: nothing here blocks on a lock of this crate or allocates a file; a repeated message is written
//! at most ten times per second, so that a failing disk or node cannot fill the error log.

use crate::base::real;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

const PER_SECOND_LIMIT: u64 = 10;

/// Severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Information.
    Note,
    /// Something does not work for now.
    Warning,
    /// Something failed.
    Error,
}

/// Writes without time stamp or limit.
pub fn raw(text: &str) {
    let line = format!("[redoubt] {text}\n");
    let _ = real::write_bytes(2, line.as_bytes());
}

/// Writes one line in the format of the server's error log.
pub fn write(level: Level, text: &str) {
    if !allowed() {
        return;
    }
    let [year, month, day, hour, minute, second] = real::local_time();
    let level = match level {
        Level::Note => "Note",
        Level::Warning => "Warning",
        Level::Error => "ERROR",
    };
    let line =
        format!("{year}-{month:02}-{day:02} {hour:2}:{minute:02}:{second:02} 0 [{level}] [redoubt] {text}\n");
    let _ = real::write_bytes(2, line.as_bytes());
}

/// Information.
pub fn note(text: &str) {
    write(Level::Note, text);
}

/// A warning.
pub fn warning(text: &str) {
    write(Level::Warning, text);
}

/// An error.
pub fn error(text: &str) {
    write(Level::Error, text);
}

/// Counts messages of the current second: seconds in the upper, count in the lower half.
fn allowed() -> bool {
    static WINDOW: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs()) & 0xffff_ffff;
    let mut seen = WINDOW.load(Ordering::Relaxed);
    loop {
        let next = if seen >> 32 == now { seen + 1 } else { now << 32 | 1 };
        match WINDOW.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return next & 0xffff_ffff <= PER_SECOND_LIMIT,
            Err(current) => seen = current,
        }
    }
}

/// A path for a message.
pub fn show(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
