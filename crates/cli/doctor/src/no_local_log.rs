//! In place of `local_log.rs` in a build without the feature `experimental-devices`.

use super::report::Check;
use super::{DoctorError, ServerSide};
use redoubt_client::experimental::refused;

/// Refuses to check.
///
/// # Errors
/// [`DoctorError::NotBuiltIn`], always.
pub fn checks(_: &ServerSide<'_>, _: bool) -> Result<Vec<Check>, DoctorError> {
    Err(DoctorError::NotBuiltIn(refused("--local-log")))
}
