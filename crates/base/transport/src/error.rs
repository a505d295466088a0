//! Errors of connections and of their authentication. Each message is for the person who can fix the cause.

use std::io;

/// Reason why a connection failed or was not trusted.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The network failed; a retry may succeed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A credential file of this side is unusable.
    #[error("{0}")]
    Credentials(String),
    /// One side rejects the other's certificate, or does not use TLS.
    #[error("{0}")]
    Trust(String),
}

impl TransportError {
    /// Converts the error to an I/O error, for calls that can only return that.
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Io(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidData, other),
        }
    }

    /// Extracts an error of this kind from an I/O error that carries it.
    pub fn from_io(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(inner) => inner,
            Err(error) => Self::Io(error),
        }
    }
}
