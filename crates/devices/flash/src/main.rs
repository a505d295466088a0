//! `redoubt-flash`: the flash model on the command line.
//!
//! Tables go to standard output, progress and remarks to standard error. Exit status: 0 all is well, 1 a failure or a
//! validation outside the tolerance, 2 wrong arguments.

mod arguments;
mod commands;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Validate(arguments) => commands::validate(&arguments),
        Command::Show { trace } => commands::show(&trace),
        Command::Run(arguments) => commands::run(&arguments),
        Command::Table(arguments) => commands::table(&arguments),
        Command::Synthetic(arguments) => commands::synthetic(&arguments),
    };
    match result {
        Ok(status) => status,
        Err(error) => {
            eprintln!("redoubt-flash: {error}");
            ExitCode::FAILURE
        }
    }
}
