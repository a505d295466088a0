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
use crate::tool::Tool;
use args::{GroupArguments, GroupCommand};

const DRILL: Tool = Tool { program: "redoubt-drill", words: 2 };

/// Does what was asked for.
///
/// # Errors
/// Errors of the sub-command.
pub fn run(arguments: &GroupArguments) -> Result<()> {
    match &arguments.command {
        GroupCommand::Create(create) => create::create(create),
        GroupCommand::Join(join) => create::join(join),
        GroupCommand::Drill(_) => DRILL.start(),
        GroupCommand::Status(status) => status::run(status),
        GroupCommand::Rescue(rescue) => rescue::run(rescue),
    }
}
