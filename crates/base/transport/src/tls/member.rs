//! TLS between members of a group of servers: each connects to the others, and accepts their connections, with one
//! certificate.
//!
//! A member accepts a peer with a certificate of the same authority for a member of the same group, unless the list of
//! removed certificates contains it. This applies to both directions.

use super::TlsConnection;
use super::settings::{Rejected, Reloading, client_config, reach, server_config, take};
use crate::certificate::CertificateFacts;
use crate::connection::Connection;
use crate::credentials::{CredentialFiles, Credentials};
use crate::error::TransportError;
use crate::identity::Identity;
use crate::socket::SocketConnection;
use rustls::{ClientConfig, ServerConfig};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A member's side of a connection, in either direction.
pub struct MemberTls(Reloading<Parts>);

struct Parts {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    removed: BTreeSet<String>,
    group: String,
    name: String,
}

fn parts(credentials: Credentials, files: &CredentialFiles) -> Result<Parts, TransportError> {
    let Identity::Member { group, name } = credentials.identity.clone() else {
        return Err(TransportError::Credentials(format!(
            "{} is the certificate of {}, not of a member of a group; make one with `redoubt certificates add DIRECTORY \
             --member GROUP/NAME=HOST`",
            files.certificate.display(),
            credentials.identity
        )));
    };
    let (server, client) = (server_config(&credentials, files)?, client_config(&credentials, files)?);
    Ok(Parts { server, client, removed: credentials.removed, group, name })
}

impl MemberTls {
    /// Loads the files and checks that they belong to a member.
    ///
    /// # Errors
    /// [`TransportError::Credentials`].
    pub fn load(files: CredentialFiles) -> Result<Self, TransportError> {
        Reloading::load(files, parts).map(Self)
    }

    /// Names of the group and of the member in the certificate.
    pub fn names(&self) -> (String, String) {
        let parts = self.0.current().0;
        (parts.group.clone(), parts.name.clone())
    }

    /// Performs the handshake with a member that has connected. The caller has set a deadline. The second value is the
    /// reason why changed files are not used.
    ///
    /// # Errors
    /// The rejected connection.
    pub fn accept(
        &self,
        socket: SocketConnection,
    ) -> (Result<TlsConnection, Box<Rejected>>, Option<TransportError>) {
        let (parts, not_loaded) = self.0.current();
        let accepted = take(&parts.server, socket).and_then(|connection| match parts.known(connection) {
            Ok(connection) => Ok(connection),
            Err(denied) => Err(Box::new(Rejected::Denied(denied.0, denied.1))),
        });
        (accepted, not_loaded)
    }

    /// Performs the handshake with the member that was reached as `host`. The caller has set a deadline.
    ///
    /// # Errors
    /// [`TransportError::Trust`] if the peer is not a member; [`TransportError::Io`]; [`TransportError::Credentials`].
    pub fn connect(&self, socket: SocketConnection, host: &str) -> Result<TlsConnection, TransportError> {
        let (parts, not_loaded) = self.0.current();
        if let Some(error) = not_loaded {
            return Err(error);
        }
        parts.known(reach(&parts.client, socket, host)?).map_err(|denied| {
            denied.0.shutdown();
            TransportError::Trust(denied.1)
        })
    }
}

impl Parts {
    /// Returns the connection with its authenticated peer, or the reason why the peer is rejected.
    fn known(&self, mut connection: TlsConnection) -> Result<TlsConnection, (Box<TlsConnection>, String)> {
        let facts = connection.peer_certificate().and_then(|der| CertificateFacts::read(&der));
        let Some(facts) = facts else {
            return Err((Box::new(connection), "its certificate cannot be read".to_owned()));
        };
        let why = match facts.identity() {
            _ if self.removed.contains(&facts.serial_text()) => {
                format!("its certificate ({}) was removed from those that are accepted", facts.serial_text())
            }
            Some(identity @ Identity::Member { .. }) if identity.is_in_group(&self.group) => {
                connection.identity = identity;
                connection.peer_certificate_expires_s = Some(facts.not_after);
                return Ok(connection);
            }
            Some(identity) => {
                format!("its certificate is that of {identity}, not of a member of {}", self.group)
            }
            None => "its certificate is of no member of a group".to_owned(),
        };
        Err((Box::new(connection), why))
    }
}

impl std::fmt::Debug for MemberTls {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (group, name) = self.names();
        write!(out, "TLS of member {name} of group {group}")
    }
}
