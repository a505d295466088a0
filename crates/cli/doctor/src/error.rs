//! Errors of the checks. A problem of the host is none: it is a [`Check`](crate::Check) of the report.

use redoubt_client::ClientError;

/// The checks cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// They need experimental device code, which this build lacks.
    #[error(transparent)]
    NotBuiltIn(ClientError),
}
