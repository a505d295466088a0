//! `redoubt group`: groups of whole servers.

pub mod args;
mod chart;
mod drill;

use crate::error::Result;
use args::GroupCommand;

/// Does what was asked for.
///
/// # Errors
/// Those of the command.
pub fn run(command: &GroupCommand) -> Result<()> {
    match command {
        GroupCommand::Drill(drill) => drill::run(drill),
    }
}
