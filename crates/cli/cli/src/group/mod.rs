//! `redoubt group`: groups of whole servers.

pub mod args;
mod chart;
mod create;
mod drill;
mod look;
mod page;
pub mod plan;
mod rescue;
mod status;

use crate::error::Result;
use args::GroupCommand;

/// Does what was asked for.
///
/// # Errors
/// Those of the command.
pub fn run(command: &GroupCommand) -> Result<()> {
    match command {
        GroupCommand::Create(create) => create::create(create),
        GroupCommand::Join(join) => create::join(join),
        GroupCommand::Drill(drill) => drill::run(drill),
        GroupCommand::Status(status) => status::run(status),
        GroupCommand::Rescue(rescue) => rescue::run(rescue),
    }
}
