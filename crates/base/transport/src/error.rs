//! Why a connection could not be made or trusted. Each message is for the person who has to change something.

use std::io;

/// Why a connection could not be made or trusted.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The network failed; another attempt may succeed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A credential file of this side cannot be used.
    #[error("{0}")]
    Credentials(String),
    /// One side does not accept what the other one shows, or does not speak TLS.
    #[error("{0}")]
    Trust(String),
}

impl TransportError {
    /// As an I/O error, for calls that can only return one.
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Io(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidData, other),
        }
    }

    /// Takes an error of this kind out of an I/O error that carries it.
    pub fn from_io(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(inner) => inner,
            Err(error) => Self::Io(error),
        }
    }
}
