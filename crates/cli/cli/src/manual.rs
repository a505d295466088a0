//! `redoubt completions` and `redoubt manual`: files that a package ships beside the command, made from the command
//! line's own definition.

pub mod args;

use crate::args::Arguments;
use crate::error::{CliError, Result};
use args::{CompletionsArguments, ManualArguments};
use clap::CommandFactory;
use redoubt_console::manual::Manual;

const NAME: &str = "redoubt";

/// Exit codes of every sub-command; also in `docs/reference/exit-codes.md`.
const EXIT_STATUS: [(&str, &str); 6] = [
    ("0", "Done."),
    ("1", "Failed. One line on standard error says what, where, and what to do."),
    (
        "2",
        "The options are not understood, or this build lacks what they need: the package `redoubt-experimental`. \
         `redoubt volume export`: written, but without the files that it lists, because they are damaged, or without the \
         last commits, because the volume is frozen.",
    ),
    ("3", "`redoubt run --no-takeover`: another server has the volume."),
    (
        "4",
        "`redoubt run`: the node has an older copy of the volume than this data directory knows; see `--accept-older`.",
    ),
    (
        "5",
        "`redoubt volume check`: the volume has damage that is not repaired, or places that were not checked; they are \
         listed.",
    ),
];
/// Variables that more than one sub-command reads.
const ENVIRONMENT: [(&str, &str); 6] = [
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
    ("REDOUBT_LOG_FORMAT", "Form of the node's log: text (the default) or json, as --log-format."),
];

/// Prints what a shell needs to complete the command's words.
///
/// # Errors
/// None.
pub fn completions(arguments: &CompletionsArguments) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), NAME, &mut script);
    crate::output::show(format_args!("{}", String::from_utf8_lossy(&script)));
    Ok(())
}

/// Writes the manual's pages.
///
/// # Errors
/// Errors of the system.
pub fn run(arguments: &ManualArguments) -> Result<()> {
    crate::show::make_directory(&arguments.directory)?;
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    let manual = Manual { exit_status: &EXIT_STATUS, environment: &ENVIRONMENT };
    manual
        .write(&command, None, &arguments.directory)
        .map_err(|error| CliError::io(error.action, error.path, error.source))
}

#[cfg(test)]
mod tests;
