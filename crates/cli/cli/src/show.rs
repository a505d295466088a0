//! How things are shown: tables, byte counts, JSON, progress.

use crate::error::{CliError, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::{BufRead, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

/// Rows under a heading, columns aligned.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column names.
    pub fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|&name| name.to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.to_vec());
    }

    /// Prints it.
    pub fn print(&self) {
        crate::output::show(format_args!("{}", self.text()));
    }

    /// It, as lines.
    pub fn text(&self) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let widths: Vec<_> = (0..columns)
            .map(|at| self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max())
            .map(|width| width.unwrap_or(0))
            .collect();
        let line = |row: &Vec<String>| {
            let cells: Vec<_> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            format!("{}\n", cells.join("  ").trim_end())
        };
        self.rows.iter().map(line).collect()
    }
}

/// `1.5 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Makes a directory that a person named, with its parents, unless it is there.
///
/// # Errors
/// [`CliError::Usage`] if something else is there; [`CliError::Io`].
pub fn make_directory(path: &Path) -> Result<()> {
    if path.exists() && !path.is_dir() {
        return Err(CliError::Usage(format!("{} is not a directory; name another place", path.display())));
    }
    std::fs::create_dir_all(path).map_err(|error| CliError::io("create", path, error))
}

/// Asks a person to type `expected`; `doing` is what needs the answer.
///
/// # Errors
/// [`CliError::Usage`] without a terminal; [`CliError::Io`].
pub fn confirm(doing: &str, question: &str, expected: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(CliError::Usage(format!("{doing} needs --yes without a terminal")));
    }
    crate::output::show(format_args!("{question}"));
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| CliError::io("read", "terminal", error))?;
    Ok(answer.trim() == expected)
}

/// Prints a value as indented JSON.
///
/// # Errors
/// [`CliError::Io`].
pub fn print_json<T: Serialize>(value: &T) -> Result<()> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| CliError::io("write", "JSON", error.into()))?;
    say!("{text}");
    Ok(())
}

/// Progress of long work: a bar on a terminal, a line every few seconds elsewhere.
pub struct Progress {
    bar: Option<ProgressBar>,
    what: &'static str,
    total_bytes: u64,
    done_bytes: u64,
    said: Instant,
}

impl Progress {
    /// Starts at 0 of `total_bytes`.
    pub fn new(what: &'static str, total_bytes: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(
                "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}",
            );
            let bar = ProgressBar::new(total_bytes).with_message(what);
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, what, total_bytes, done_bytes: 0, said: Instant::now() }
    }

    /// Adds to the completed bytes.
    pub fn add(&mut self, count: u64) {
        self.done_bytes += count;
        if let Some(bar) = &self.bar {
            bar.set_position(self.done_bytes);
        } else if self.said.elapsed() > Duration::from_secs(5) {
            self.said = Instant::now();
            complain!("{}: {} of {}", self.what, bytes(self.done_bytes), bytes(self.total_bytes));
        }
    }

    /// All is done.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn byte_counts_are_readable() {
        assert_eq!(bytes(17), "17 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
    }
}
