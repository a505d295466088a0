//! In place of `local_log.rs` in a build without the feature `experimental-devices`.

use super::args::DoctorArguments;
use super::report::Check;
use crate::error::Result;
use redoubt_client::experimental::refused;

/// Refuses to check.
///
/// # Errors
/// [`ClientError::Experimental`](redoubt_client::ClientError::Experimental), always.
pub fn checks(_: &DoctorArguments) -> Result<Vec<Check>> {
    Err(refused("--local-log").into())
}
