//! How things are shown: tables, byte counts, JSON, progress.

use crate::error::{CliError, Result};
use indicatif::{ProgressBar, ProgressStyle};
use redoubt_client::events::Events;
pub use redoubt_client::events::bytes;
pub use redoubt_client::files::make_directory;
use serde::Serialize;
use std::io::{BufRead, IsTerminal};
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

/// Asks a person to type `expected`; `doing` is what needs the answer.
///
/// # Errors
/// [`CliError::Usage`] without a terminal; errors of the system.
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
/// Errors of the system.
pub fn print_json<T: Serialize>(value: &T) -> Result<()> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| CliError::io("write", "JSON", error.into()))?;
    say!("{text}");
    Ok(())
}

/// Shows what is reported on standard error.
pub struct Terminal;

impl Events for Terminal {
    fn note(&self, text: &str) {
        complain!("redoubt: {text}");
    }

    fn begin(&self, what: &'static str, total_bytes: u64) -> Box<dyn redoubt_client::events::Progress> {
        Box::new(Progress::new(what, total_bytes))
    }
}

/// Progress of long work: a bar on a terminal, a line every few seconds elsewhere.
struct Progress {
    bar: Option<ProgressBar>,
    what: &'static str,
    total_bytes: u64,
    done_bytes: u64,
    said: Instant,
}

impl Progress {
    /// Starts at 0 of `total_bytes`.
    fn new(what: &'static str, total_bytes: u64) -> Self {
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
}

impl redoubt_client::events::Progress for Progress {
    fn add(&mut self, count: u64) {
        self.done_bytes += count;
        if let Some(bar) = &self.bar {
            bar.set_position(self.done_bytes);
        } else if self.said.elapsed() > Duration::from_secs(5) {
            self.said = Instant::now();
            complain!("{}: {} of {}", self.what, bytes(self.done_bytes), bytes(self.total_bytes));
        }
    }

    fn finish(self: Box<Self>) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
