//! Connecting to a node.

use crate::connection::Connection;
use crate::error::TransportError;
use crate::tcp::TcpConnection;
use crate::tls::ClientTls;
use std::io::{Error, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// How a node is reached: with TLS, or in plain text.
#[derive(Clone)]
pub struct Connector {
    /// Address of the node, `host:port`.
    pub address: String,
    /// With TLS, so.
    pub tls: Option<Arc<ClientTls>>,
    /// A peer that acknowledges nothing for so long is gone, also while nothing is read or written; else the kernel's
    /// own patience counts.
    pub silence_limit: Option<Duration>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.address, if self.tls.is_some() { "with TLS" } else { "in plain text" })
    }
}

impl Connector {
    /// Connects, trying all addresses of the name, each for at most `connect_timeout`. The connection has the deadline
    /// `greeting_timeout`, which began before TLS; the caller takes it away when the node has greeted.
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn connect(
        &self,
        connect_timeout: Duration,
        greeting_timeout: Duration,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        let tcp = connect_tcp(&self.address, connect_timeout, greeting_timeout)?;
        if let Some(limit) = self.silence_limit {
            tcp.set_silence_limit(limit);
        }
        match &self.tls {
            None => Ok(Arc::new(tcp)),
            Some(tls) => Ok(Arc::new(tls.connect(tcp, host(&self.address))?)),
        }
    }
}

/// As [`Connector::connect`], in plain text.
///
/// # Errors
/// [`TransportError::Io`].
pub fn connect_tcp(
    address: &str,
    connect_timeout: Duration,
    greeting_timeout: Duration,
) -> Result<TcpConnection, TransportError> {
    let mut last = Error::new(ErrorKind::NotFound, "the name has no address");
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, connect_timeout) {
            Ok(stream) => {
                let tcp = TcpConnection::new(stream);
                tcp.set_deadline(Some(greeting_timeout))?;
                return Ok(tcp);
            }
            Err(error) => last = error,
        }
    }
    Err(last.into())
}

/// The host of `host:port`, without the brackets of an IPv6 address.
pub fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}
