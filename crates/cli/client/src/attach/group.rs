//! Position of a group member's data, for the group library.
//!
//! That library learns it from a second server (`--wsrep-recover`), which has no volume when the server itself runs
//! it: only the server has the library of the volume. So it is run here, on the volume that is attached already and
//! before the server, which gets the outcome.

use crate::error::{ClientError, Result};
use crate::server::Server;
use redoubt_group::position::{self, KNOWN};
use redoubt_group::store::Store;
use std::path::Path;
use std::process::Command;

/// Before the volume is attached: this build has what a member of a group needs.
///
/// # Errors
/// None.
pub fn check(_: &Server) -> Result<()> {
    Ok(())
}

/// Tells `command` what the data of its server is at, if that is a member of a group. `command` has all that the server
/// needs on the volume.
///
/// # Errors
/// An error if the server does not report it.
pub fn pass_position(command: &mut Command, server: &Server, datadir: &Path) -> Result<()> {
    command.env_remove(KNOWN);
    if !server.is_in_group() || !Store::is_in(datadir) {
        return Ok(());
    }
    let mut asked = Command::new(&server.program);
    asked.args(command.get_args().filter(|argument| !position::begins_group(argument)));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => asked.env(name, value),
            None => asked.env_remove(name),
        };
    }
    // It is not the server, and must not notify a service manager.
    asked.env_remove("NOTIFY_SOCKET");
    let found = position::ask(asked, datadir).map_err(|error| ClientError::Usage(error.to_string()))?;
    let text = position::text_of(found);
    if found.is_some() {
        command.arg(format!("--wsrep-start-position={text}"));
    }
    command.env(KNOWN, text);
    Ok(())
}
