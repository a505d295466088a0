//! Errors of the command: each is one line for a person.

use redoubt_client::{ClientError, advice};
use redoubt_node::NodeError;
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
    /// Something the user has to change.
    #[error("{0}")]
    Usage(String),
    /// An export was written, but damaged files or the last commits are missing.
    #[error("{0}")]
    LeftOut(String),
    /// A volume was checked, and has damage.
    #[error("{0}")]
    Damaged(String),
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
            Self::Client(ClientError::NotBuiltIn(_)) => 2,
            Self::Client(ClientError::OlderCopy(_)) => 4,
            Self::LeftOut(_) => 2,
            Self::Damaged(_) => 5,
            _ => 1,
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
        assert_eq!(status(redoubt_client::experimental::refused("--local-log")), 2);
        assert_eq!(status(ClientError::left_out("`redoubt group`", "group")), 2);
        assert_eq!(status(ClientError::TakenOver(String::new())), 3);
        assert_eq!(status(ClientError::OlderCopy(String::new())), 4);
        assert_eq!(CliError::Damaged(String::new()).exit_status(), 5);
    }
}
