//! In place of `reader` in a build without the feature `readers`.

use crate::error::Result;
use crate::run::args::RunArguments;
use redoubt_client::ClientError;

/// Refuses to show a volume.
///
/// # Errors
/// [`ClientError::NotBuiltIn`], always.
pub fn run(_: &RunArguments) -> Result<()> {
    Err(ClientError::left_out("views of volumes for programs (`redoubt run --reader`)", "readers").into())
}
