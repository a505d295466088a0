//! `redoubt run --local-log`: a server without a storage node, its redo log in persistent memory.
//!
//! Nothing is prepared and nothing is changed: the log directory is found ([`ServerCommand`]) and tested
//! ([`directory`]), then this process becomes the server with the library preloaded. Every obstacle to mapping the redo
//! files is an error here, with a clear message; the library checks it again.

pub mod status;

use crate::error::{CliError, Result};
use crate::run::args::RunArguments;
use redoubt_client::local_log::VARIABLE;
use redoubt_client::local_log::command::ServerCommand;
use redoubt_client::local_log::directory::{self, Durability};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Starts the server; returns only on failure.
///
/// # Errors
/// Anything that keeps the server from starting, above all a log directory that is not persistent memory.
pub fn run(arguments: &RunArguments) -> Result<()> {
    let library = super::preload::find_library(arguments.library.as_deref())?;
    let server = ServerCommand::examine(&arguments.command, arguments.datadir.as_deref())?;
    for path in server.log_directories() {
        if directory::check(&path, arguments.pretend_pmem)? == Durability::Pretended {
            complain!(
                "redoubt: warning: --pretend-pmem: the redo log in {} is in ordinary memory; a power cut or a \
                 restart of this machine loses commits, and the whole log",
                path.display()
            );
        }
    }
    let mut command = Command::new(&server.program);
    command
        .args(&server.arguments)
        .env("LD_PRELOAD", redoubt_client::preload::value(&library))
        .env(VARIABLE, if arguments.pretend_pmem { "pretend" } else { "map-sync" })
        .env("REDOUBT_DATADIR", &server.datadir)
        .env_remove("REDOUBT_NODE");
    let error = command.exec();
    Err(CliError::io("start", &server.program, error))
}
