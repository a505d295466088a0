//! Connections to a node.

use crate::connection::Connection;
use crate::error::TransportError;
use crate::local;
use crate::socket::SocketConnection;
use crate::tls::ClientTls;
use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// Connection settings for a node, with TLS or in plain text.
#[derive(Clone)]
pub struct Connector {
    /// Address of the node, `host:port`.
    pub address: String,
    /// TLS settings; `None` for plain text.
    pub tls: Option<Arc<ClientTls>>,
    /// Time without an acknowledgement after which the peer counts as gone, even while no data is transferred. `None`:
    /// the kernel's own timeout applies.
    pub silence_limit: Option<Duration>,
    /// Whether to try the node's local socket ([`crate::local`]) before TCP, if the node is on this host.
    pub local_socket: bool,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.address, if self.tls.is_some() { "with TLS" } else { "in plain text" })
    }
}

impl Connector {
    /// Connects, and tries all addresses of the name, each for at most `connect_timeout`. The connection has the
    /// deadline `greeting_timeout`, which begins before TLS. The caller removes it after the node's greeting.
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn connect(
        &self,
        connect_timeout: Duration,
        greeting_timeout: Duration,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        let mut last = no_address();
        for candidate in self.address.to_socket_addrs()? {
            if let Some(connection) = self.connect_locally(candidate, greeting_timeout) {
                return Ok(connection);
            }
            match TcpStream::connect_timeout(&candidate, connect_timeout) {
                Ok(stream) => {
                    let socket = SocketConnection::new(stream);
                    socket.set_deadline(Some(greeting_timeout))?;
                    return self.secure(socket);
                }
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    /// Returns a connection over the local socket, if that is wanted and available. Errors are not reported, because
    /// the same node is then tried over TCP.
    fn connect_locally(&self, node: SocketAddr, greeting_timeout: Duration) -> Option<Arc<dyn Connection>> {
        if !self.local_socket {
            return None;
        }
        let connection = self.secure(local::reach(node).ok()?).ok()?;
        connection.set_deadline(Some(greeting_timeout)).ok()?;
        Some(connection)
    }

    fn secure(&self, socket: SocketConnection) -> Result<Arc<dyn Connection>, TransportError> {
        if let Some(limit) = self.silence_limit {
            socket.set_silence_limit(limit);
        }
        match &self.tls {
            None => Ok(Arc::new(socket)),
            Some(tls) => Ok(Arc::new(tls.connect(socket, host(&self.address))?)),
        }
    }
}

fn no_address() -> Error {
    Error::new(ErrorKind::NotFound, "the name has no address")
}

/// Connects by TCP in plain text, like [`Connector::connect`].
///
/// # Errors
/// [`TransportError::Io`].
pub fn connect_tcp(
    address: &str,
    connect_timeout: Duration,
    greeting_timeout: Duration,
) -> Result<SocketConnection, TransportError> {
    let mut last = no_address();
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, connect_timeout) {
            Ok(stream) => {
                let socket = SocketConnection::new(stream);
                socket.set_deadline(Some(greeting_timeout))?;
                return Ok(socket);
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
