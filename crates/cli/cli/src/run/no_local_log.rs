//! In place of `local_log.rs` in a build without the feature `experimental-devices`: `--local-log` is refused.

use super::args::RunArguments;
use crate::error::Result;
use redoubt_client::experimental::refused;

/// Refuses to start the server.
///
/// # Errors
/// [`ClientError::NotBuiltIn`](redoubt_client::ClientError::NotBuiltIn), always.
pub fn run(_: &RunArguments) -> Result<()> {
    Err(refused("--local-log").into())
}

/// `redoubt status --local-log`.
pub mod status {
    use crate::error::Result;
    use redoubt_client::experimental::refused;
    use std::path::Path;

    /// Refuses to read the counters of such a server.
    ///
    /// # Errors
    /// [`ClientError::NotBuiltIn`](redoubt_client::ClientError::NotBuiltIn), always.
    pub fn run(_: &Path, _: bool) -> Result<()> {
        Err(refused("--local-log").into())
    }
}
