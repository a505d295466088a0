//! Errors of a client: each is one line for a person.

use redoubt_wire::WireError;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

/// An error of a client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A file operation failed.
    #[error("cannot {action} {}: {source}{}", path.display(), advice(source))]
    Io {
        /// The attempted action.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The node cannot be reached.
    #[error(
        "cannot reach the storage node at {address}: {source}; check the address, and that `redoubt node` runs there"
    )]
    Connect {
        /// Address of the node.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// One side rejects the certificate of the other.
    #[error("TLS authentication with the storage node at {address} failed: {why}")]
    Trust {
        /// Address of the node.
        address: String,
        /// Why, and what to do.
        why: String,
    },
    /// The connection broke.
    #[error(
        "connection to the storage node at {address} broke: {source}; see the node's log, then try again"
    )]
    Connection {
        /// Address of the node.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// The peer accepted the connection but does not answer.
    #[error(
        "{address} accepted the connection but sent nothing for {} s; check that a storage node listens there",
        after.as_secs()
    )]
    Silent {
        /// Address of the peer.
        address: String,
        /// Duration of the wait.
        after: Duration,
    },
    /// The node greeted, but does not tell its state.
    #[error(
        "the node at {address} did not tell its state for {} s; its disk or its log may hang: see its log and its processes",
        after.as_secs()
    )]
    NoStatus {
        /// Address of the peer.
        address: String,
        /// Duration of the wait.
        after: Duration,
    },
    /// The peer is not a node.
    #[error("{address} did not send a Redoubt handshake: {source}; check the address")]
    NotANode {
        /// Address of the peer.
        address: String,
        /// The protocol error.
        source: WireError,
    },
    /// The node sent something that is not understood.
    #[error("storage node at {address}: {source}")]
    Wire {
        /// Address of the node.
        address: String,
        /// The protocol error.
        source: WireError,
    },
    /// The node is of an earlier version, without something that is needed.
    #[error(
        "{what} needs a newer storage node: the one at {address} has protocol version {version} without the feature {name:?}; upgrade the node, then try again"
    )]
    NodeLacks {
        /// The server or the operation that needs it.
        what: String,
        /// Address of the node.
        address: String,
        /// The agreed version.
        version: u16,
        /// The feature.
        name: &'static str,
    },
    /// The node refused.
    #[error("{0}")]
    Node(String),
    /// Something the user has to change.
    #[error("{0}")]
    Usage(String),
    /// This build lacks the code that is needed.
    #[error("{0}")]
    NotBuiltIn(String),
    /// The volume is another server's, and was not to be taken from it.
    #[error("{0}")]
    TakenOver(String),
    /// The node lacks what it has acknowledged before.
    #[error("{0}")]
    OlderCopy(String),
}

impl ClientError {
    /// An I/O error with what was attempted.
    pub fn io(action: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { action, path: path.into(), source }
    }

    /// A command or an option of a cargo feature of the `redoubt` command that is off in this build.
    pub fn left_out(what: &str, feature: &str) -> Self {
        Self::NotBuiltIn(format!("this build has no {what}; build with --features {feature}"))
    }
}

/// Advice about a file error whose text has none.
pub fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => "; check the owner and the permissions",
        ErrorKind::ReadOnlyFilesystem => {
            "; the file system is mounted read-only: use another place, or remount it"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; free some space, or use another place",
        ErrorKind::NotADirectory => "; a directory is needed there",
        _ => "",
    }
}

/// Result of the calls of this crate.
pub type Result<T> = std::result::Result<T, ClientError>;
