//! `redoubt group`: groups of whole servers.

pub mod args;
mod create;
mod dial;
mod look;
mod metrics;
mod page;
pub mod plan;
mod rescue;
mod sql;
mod status;

use crate::error::Result;
use crate::tool;
use args::GroupCommand;

/// Does what was asked for.
///
/// # Errors
/// Errors of the sub-command.
pub fn run(command: &GroupCommand) -> Result<()> {
    match command {
        GroupCommand::Create(create) => create::create(create),
        GroupCommand::Join(join) => create::join(join),
        GroupCommand::Drill(_) => tool::DRILL.start(),
        GroupCommand::Status(status) => status::run(status),
        GroupCommand::Rescue(rescue) => rescue::run(rescue),
    }
}
