//! Errors of the command: each is one line for a person.

use redoubt_wire::WireError;
use std::path::PathBuf;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A file operation failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The node cannot be reached.
    #[error(
        "cannot reach the storage node at {address}: {source}; check the address, and that `redoubt node` runs there"
    )]
    Connect {
        /// Its address.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("connection to the storage node at {address} broke: {source}")]
    Connection {
        /// Its address.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// The node sent something that is not understood.
    #[error("storage node at {address}: {source}")]
    Wire {
        /// Its address.
        address: String,
        /// What is wrong.
        source: WireError,
    },
    /// The node refused.
    #[error("{0}")]
    Node(String),
    /// The node itself failed.
    #[error("{0}")]
    Failed(#[from] redoubt_node::NodeError),
    /// Something the user has to change.
    #[error("{0}")]
    Usage(String),
}

impl CliError {
    /// An I/O error with what was attempted.
    pub fn io(action: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { action, path: path.into(), source }
    }
}

/// Result of a sub-command.
pub type Result<T> = std::result::Result<T, CliError>;
