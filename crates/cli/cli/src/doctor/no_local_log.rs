//! In place of `local_log.rs` in a build without the feature `experimental-devices`.

use super::args::DoctorArguments;
use super::report::Check;
use crate::error::Result;
use crate::experimental::refused;

/// Refuses to check.
///
/// # Errors
/// [`CliError::Experimental`](crate::error::CliError::Experimental), always.
pub fn checks(_: &DoctorArguments) -> Result<Vec<Check>> {
    Err(refused("--local-log"))
}
