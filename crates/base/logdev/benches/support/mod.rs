//! What the throughput benches share: arguments, samples, context switches, tables.

#![allow(dead_code, reason = "each bench uses a part of it")]

use std::path::PathBuf;
use std::time::Duration;

/// What the command line says. Unknown words, such as cargo's `--bench`, are left alone.
pub struct Arguments {
    words: Vec<String>,
}

impl Arguments {
    pub fn read() -> Self {
        Self { words: std::env::args().skip(1).collect() }
    }

    fn value(&self, name: &str) -> Option<&str> {
        let at = self.words.iter().position(|word| word == name)?;
        self.words.get(at + 1).map(String::as_str)
    }

    /// `--seconds S` per cell. Without `--bench` (that is how `cargo test --benches` runs it) a moment must do.
    pub fn cell(&self, default: f64) -> Duration {
        let is_bench = self.words.iter().any(|word| word == "--bench");
        let default = if is_bench { default } else { 0.02 };
        let seconds =
            self.value("--seconds").map_or(default, |text| text.parse().expect("--seconds: a number"));
        Duration::from_secs_f64(seconds)
    }

    /// `--rounds N`.
    pub fn rounds(&self, default: usize) -> usize {
        self.value("--rounds").map_or(default, |text| text.parse().expect("--rounds: a number"))
    }

    /// `--dir DIR` on the disk to measure, else the temporary directory.
    pub fn dir(&self) -> PathBuf {
        self.value("--dir").map_or_else(std::env::temp_dir, PathBuf::from)
    }

    /// `--shm DIR`, a directory on tmpfs.
    pub fn shm(&self) -> PathBuf {
        self.value("--shm").map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from)
    }
}

/// Latencies in nanoseconds.
#[derive(Default)]
pub struct Samples(Vec<u64>);

impl Samples {
    pub fn push(&mut self, sample: Duration) {
        self.0.push(sample.as_nanos() as u64);
    }

    pub fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// In microseconds; 0 without samples.
    pub fn percentile_us(&mut self, percent: f64) -> f64 {
        if self.0.is_empty() {
            return 0.0;
        }
        let at = ((self.0.len() - 1) as f64 * percent / 100.0).round() as usize;
        *self.0.select_nth_unstable(at).1 as f64 / 1000.0
    }
}

/// Times the calling thread has gone to sleep.
pub fn voluntary_switches() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/status").expect("/proc/thread-self/status");
    text.lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
        .and_then(|value| value.trim().parse().ok())
        .expect("voluntary_ctxt_switches")
}

/// Bytes this process has caused to be written to storage, pages of the page cache when they become dirty.
pub fn storage_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").expect("/proc/self/io");
    let value = text.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    value.and_then(|value| value.trim().parse().ok()).expect("write_bytes")
}

/// The middle one; 0 without any.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// A figure with about three significant digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        x if x >= 100.0 || x == 0.0 => format!("{value:.0}"),
        x if x >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Prints a table in Markdown on standard error.
pub fn print_table(head: &[impl AsRef<str>], rows: &[Vec<String>]) {
    let names: Vec<_> = head.iter().map(AsRef::as_ref).collect();
    eprintln!("| {} |", names.join(" | "));
    eprintln!("|{}", "---|".repeat(head.len()));
    for row in rows {
        eprintln!("| {} |", row.join(" | "));
    }
    eprintln!();
}
