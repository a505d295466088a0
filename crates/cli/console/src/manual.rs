//! Manual pages in section 1, made from the definition of a command line.
//!
//! One page for the command and one for each sub-command, named as `man redoubt-volume-create` looks for them. Hidden
//! commands have none.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::path::{Path, PathBuf};

const NAME: &str = "redoubt";
const MANUAL: &str = "Redoubt";

/// A page could not be made or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct ManualError {
    /// The attempted step.
    pub action: &'static str,
    /// Path of the page.
    pub path: PathBuf,
    /// The system's error.
    pub source: std::io::Error,
}

/// Terms and their meanings, the same on all pages of a command line.
pub struct Manual<'a> {
    /// Exit statuses.
    pub exit_status: &'a [(&'a str, &'a str)],
    /// Variables of the environment.
    pub environment: &'a [(&'a str, &'a str)],
}

impl Manual<'_> {
    /// Writes the pages of `command` and of what is below it into a directory. `above` is the page of the command that it
    /// belongs to.
    ///
    /// # Errors
    /// [`ManualError`].
    pub fn write(&self, command: &Command, above: Option<&str>, directory: &Path) -> Result<(), ManualError> {
        let name = page_name(command);
        let path = directory.join(format!("{name}.1"));
        let failed = |action| {
            let path = path.clone();
            move |source| ManualError { action, path, source }
        };
        let text = self.page(command, above).map_err(failed("make"))?;
        std::fs::write(&path, text).map_err(failed("write"))?;
        shown(command).try_for_each(|below| self.write(below, Some(name), directory))
    }

    fn page(&self, command: &Command, above: Option<&str>) -> std::io::Result<Vec<u8>> {
        let name = page_name(command);
        let man = Man::new(command.clone());
        // Not `Man::render_title`, which leaves the date out altogether, so that what follows is taken for it.
        let title = name.to_uppercase().replace('-', "\\-");
        let version = env!("CARGO_PKG_VERSION");
        let mut text = format!(".TH {title} 1 \"\" \"{NAME} {version}\" \"{MANUAL}\"\n").into_bytes();
        man.render_name_section(&mut text)?;
        synopsis(command).to_writer(&mut text)?;
        man.render_description_section(&mut text)?;
        if command.get_arguments().any(|argument| !argument.is_hide_set()) {
            man.render_options_section(&mut text)?;
        }
        if shown(command).next().is_some() {
            man.render_subcommands_section(&mut text)?;
        }
        let mut rest = Roff::new();
        if let Some(notes) = command.get_after_long_help().or_else(|| command.get_after_help()) {
            add_notes(&mut rest, &notes.to_string());
        }
        definitions(&mut rest, "EXIT STATUS", self.exit_status);
        definitions(&mut rest, "ENVIRONMENT", self.environment);
        let related: Vec<_> = above.into_iter().chain(shown(command).map(page_name)).collect();
        if !related.is_empty() {
            rest.control("SH", ["SEE ALSO"]).control("nh", []);
            let names = related.iter().enumerate().flat_map(|(at, name)| {
                let comma = if at == 0 { "" } else { ", " };
                [roman(comma), bold(*name), roman("(1)")]
            });
            rest.text(names.collect::<Vec<_>>());
        }
        rest.to_writer(&mut text)?;
        Ok(text)
    }
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set())
}

fn page_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Synopsis as in the help: required options, `--` before a command.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    let mut section = Roff::new();
    section.control("SH", ["SYNOPSIS"]);
    for line in usage.lines() {
        let line = line.trim();
        let name = command.get_bin_name().unwrap_or(NAME);
        let rest = line.strip_prefix(name).unwrap_or(line);
        section.text([bold(name), roman(rest)]);
    }
    section
}

/// Indented lines are commands to type and stay as they are; the others are paragraphs.
fn add_notes(page: &mut Roff, notes: &str) {
    page.control("SH", ["NOTES"]);
    let mut typed = false;
    for line in notes.lines() {
        if line.starts_with(' ') != typed {
            typed = !typed;
            page.control(if typed { "nf" } else { "fi" }, []);
        }
        if !typed {
            page.control("PP", []);
        }
        page.text([roman(line)]);
    }
    if typed {
        page.control("fi", []);
    }
}

fn definitions(page: &mut Roff, title: &str, entries: &[(&str, &str)]) {
    page.control("SH", [title]);
    for (term, meaning) in entries {
        page.control("TP", []);
        page.text([bold(*term)]);
        page.text([roman(*meaning)]);
    }
}
