//! In place of `group.rs` in a build without the feature `group`.

use crate::error::{ClientError, Result};
use crate::server::Server;
use std::path::Path;
use std::process::Command;

/// Refuses a server that is a member of a group: it needs the position of its data.
///
/// # Errors
/// [`ClientError::NotBuiltIn`].
pub fn check(server: &Server) -> Result<()> {
    if server.is_in_group() {
        return Err(ClientError::left_out("members of a group (wsrep_on=ON) on a volume", "group"));
    }
    Ok(())
}

/// [`check`] has refused every server with a position.
///
/// # Errors
/// None.
pub fn pass_position(_: &mut Command, _: &Server, _: &Path) -> Result<()> {
    Ok(())
}
