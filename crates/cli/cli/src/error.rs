//! Errors of the command: each is one line for a person.

use redoubt_client::{ClientError, advice};
use redoubt_doctor::DoctorError;
use redoubt_node::NodeError;
use redoubt_readers::fuse::MountError;
use std::path::PathBuf;

/// An error of the command.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// An operation on a node, a volume or a file failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The node itself failed.
    #[error("{source}{}", node_advice(source))]
    Failed {
        /// Why.
        #[from]
        source: NodeError,
    },
    /// There can be no status page.
    #[error(transparent)]
    StatusPage(#[from] redoubt_statuspage::StatusPageError),
    /// NFS cannot be served.
    #[error(transparent)]
    Nfs(#[from] redoubt_readers::nfs::NfsError),
    /// Something the user has to change.
    #[error("{0}")]
    Usage(String),
}

impl CliError {
    /// An I/O error with what was attempted.
    pub fn io(action: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Client(ClientError::io(action, path, source))
    }

    /// Exit status of a command that ends with it. systemd units distinguish them.
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Client(ClientError::TakenOver(_)) => 3,
            // The unit of a node does not start it again after this status.
            Self::Client(ClientError::Experimental(_)) => 2,
            Self::Client(ClientError::OlderCopy(_)) => 4,
            _ => 1,
        }
    }
}

impl From<DoctorError> for CliError {
    fn from(error: DoctorError) -> Self {
        let DoctorError::NotBuiltIn(error) = error;
        Self::Client(error)
    }
}

impl From<MountError> for CliError {
    fn from(error: MountError) -> Self {
        match error {
            MountError::Refused { directory, source } => Self::io("mount a view on", directory, source),
            other => Self::Usage(other.to_string()),
        }
    }
}

fn node_advice(error: &NodeError) -> &'static str {
    match error {
        NodeError::Io { source, .. } => advice(source),
        _ => "",
    }
}

/// Result of a sub-command.
pub type Result<T> = std::result::Result<T, CliError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_status_tells_refusals_apart() {
        let status = |error: ClientError| CliError::from(error).exit_status();
        assert_eq!(status(ClientError::Usage(String::new())), 1);
        let refused = || redoubt_client::experimental::refused("--local-log");
        assert_eq!(status(refused()), 2);
        assert_eq!(CliError::from(DoctorError::NotBuiltIn(refused())).exit_status(), 2);
        assert_eq!(status(ClientError::TakenOver(String::new())), 3);
        assert_eq!(status(ClientError::OlderCopy(String::new())), 4);
    }
}
