//! The reference page of the command line, `docs/reference/cli.md`, generated from the definition of the command
//! line.
//!
//! Only tests use this: they compare the page with the expected text.

use crate::args::Arguments;
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write;

const HEAD: &str = "# Command line\n\nAll commands and options of `redoubt`, generated from the definition of its command \
    line. A test compares them.\nThe effects of the important options are in \
    [options.md](../volume/reference/options.md), exit codes in\n[exit-codes.md](exit-codes.md). Options of all commands: \
    `--help`; of `redoubt` also `--version`.\n";

/// The page.
fn page() -> String {
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    let mut page = HEAD.to_owned();
    section(&command, &mut page);
    page
}

fn section(command: &Command, page: &mut String) {
    let shown: Vec<_> = command.get_subcommands().filter(|below| !below.is_hide_set()).collect();
    if shown.is_empty() {
        let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
        let _ = write!(page, "\n## {name}\n\n{}\n\n", about(command));
        let usage = command.clone().render_usage().to_string();
        for line in usage.trim_start_matches("Usage:").lines().filter(|line| !line.trim().is_empty()) {
            let _ = writeln!(page, "    {}", line.trim());
        }
        let all: Vec<_> = command.get_arguments().filter(|argument| is_listed(argument)).collect();
        if !all.is_empty() {
            page.push_str("\n| option | meaning |\n|---|---|\n");
        }
        for argument in all {
            let (name, meaning) = (name_of(argument), meaning(argument));
            let _ = writeln!(page, "| {} | {} |", name.replace('|', "\\|"), meaning.replace('|', "\\|"));
        }
    }
    shown.into_iter().for_each(|below| section(below, page));
}

fn is_listed(argument: &Arg) -> bool {
    !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str())
}

fn about(command: &Command) -> String {
    let text = command.get_long_about().or_else(|| command.get_about());
    text.map(|text| text.to_string().trim().to_owned()).unwrap_or_default()
}

/// `--name VALUE`, or the place of a positional argument.
fn name_of(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default();
    let values = values.join(" ");
    let takes_value = argument.get_action().takes_values();
    match argument.get_long() {
        Some(long) if takes_value => format!("`--{long} {values}`"),
        Some(long) => format!("`--{long}`"),
        None => format!("`{values}`"),
    }
}

fn meaning(argument: &Arg) -> String {
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let mut text = help.map(ToString::to_string).unwrap_or_default().replace('\n', " ");
    if !text.is_empty() && !text.ends_with('.') {
        text.push('.');
    }
    let defaults: Vec<_> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && argument.get_action().takes_values() {
        let _ = write!(text, " Default: `{}`.", defaults.join(" "));
    }
    if let Some(variable) = argument.get_env() {
        let _ = write!(text, " Environment: `{}`.", variable.to_string_lossy());
    }
    text.trim().to_owned()
}

#[test]
fn cli_page_is_generated_from_the_command_line() {
    let wanted = page();
    let found = include_str!("../../../../docs/reference/cli.md");
    assert!(found == wanted, "docs/reference/cli.md is to be:\n{wanted}");
}
