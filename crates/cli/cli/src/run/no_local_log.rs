//! In place of `local_log.rs` in a build without the feature `experimental-devices`: `--local-log` is refused.

use super::args::RunArguments;
use crate::error::Result;
use crate::experimental::refused;

/// Switches the library on in this mode, or makes it refuse.
pub const VARIABLE: &str = "REDOUBT_LOCAL_LOG";

/// Refuses to start the server.
///
/// # Errors
/// [`CliError::Experimental`](crate::error::CliError::Experimental), always.
pub fn run(_: &RunArguments) -> Result<()> {
    Err(refused("--local-log"))
}

/// `redoubt status --local-log`.
pub mod status {
    use crate::error::Result;
    use crate::experimental::refused;
    use std::path::Path;

    /// Refuses to read the counters of such a server.
    ///
    /// # Errors
    /// [`CliError::Experimental`](crate::error::CliError::Experimental), always.
    pub fn run(_: &Path, _: bool) -> Result<()> {
        Err(refused("--local-log"))
    }
}
