//! `redoubt completions` and `redoubt manual`: what a package ships beside the command, made from the command line's
//! own definition.
//!
//! One page in section 1 for the command and one for each sub-command, named as `man redoubt-volume-create` looks for
//! them. Hidden commands have none.

use crate::args::{Arguments, CompletionsArguments, ManualArguments};
use crate::error::{CliError, Result};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::path::Path;

const NAME: &str = "redoubt";
const MANUAL: &str = "Redoubt";

/// What every sub-command does; also in `docs/reference/exit-codes.md`.
const EXIT_STATUS: [(&str, &str); 4] = [
    ("0", "Done."),
    ("1", "Failed. One line on standard error says what, where, and what to do."),
    ("2", "The options are not understood."),
    ("3", "`redoubt run --no-takeover`: another server has the volume."),
];
/// Variables that more than one sub-command reads.
const ENVIRONMENT: [(&str, &str); 5] = [
    ("REDOUBT_NODE", "Address of the storage node, as --node."),
    ("REDOUBT_TLS", "Directory with the certificates for TLS, as --tls."),
    (
        "REDOUBT_TLS_AUTHORITY, REDOUBT_TLS_CERTIFICATE, REDOUBT_TLS_KEY",
        "Its single files, as --tls-authority, --tls-certificate and --tls-key.",
    ),
    ("REDOUBT_LIBRARY", "The preloaded library, as --library of `redoubt run` and `redoubt doctor`."),
    (
        "REDOUBT_LOG",
        "Level of the node's log on standard error: error, warn, info (the default), debug or trace.",
    ),
];

/// Prints what a shell needs to complete the command's words.
pub fn completions(arguments: &CompletionsArguments) {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), NAME, &mut script);
    crate::output::show(format_args!("{}", String::from_utf8_lossy(&script)));
}

/// Writes the manual's pages.
///
/// # Errors
/// [`CliError::Io`].
pub fn run(arguments: &ManualArguments) -> Result<()> {
    crate::show::make_directory(&arguments.directory)?;
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, None, &arguments.directory)
}

fn write_pages(command: &Command, above: Option<&Command>, directory: &Path) -> Result<()> {
    let path = directory.join(format!("{}.1", page_name(command)));
    let text = page(command, above).map_err(|error| CliError::io("make", &path, error))?;
    std::fs::write(&path, text).map_err(|error| CliError::io("write", &path, error))?;
    shown(command).try_for_each(|below| write_pages(below, Some(command), directory))
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set())
}

fn page_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &Command, above: Option<&Command>) -> std::io::Result<Vec<u8>> {
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
    definitions(&mut rest, "EXIT STATUS", &EXIT_STATUS);
    definitions(&mut rest, "ENVIRONMENT", &ENVIRONMENT);
    let related: Vec<_> = above.into_iter().chain(shown(command)).map(page_name).collect();
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

/// As the help has it: required options, `--` before a command.
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

#[cfg(test)]
mod tests;
