//! Members of a group of servers: each connects to the others, and takes their connections, with one certificate.
//!
//! A member lets in, and stays with, who shows a certificate of the same authority for a member of the same group, as
//! long as that is not in the list of removed ones.

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

/// A member's side of a connection, whichever side opened it.
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
    /// Reads the files and checks that they are a member's.
    ///
    /// # Errors
    /// [`TransportError::Credentials`].
    pub fn load(files: CredentialFiles) -> Result<Self, TransportError> {
        Reloading::load(files, parts).map(Self)
    }

    /// Names of the group and of the member, as the certificate has them.
    pub fn names(&self) -> (String, String) {
        let parts = self.0.current().0;
        (parts.group.clone(), parts.name.clone())
    }

    /// Greets a member that has connected. The caller has set a deadline. The second value says why changed files are
    /// not used.
    ///
    /// # Errors
    /// The connection that is not let in.
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

    /// Greets the member that was reached as `host`. The caller has set a deadline.
    ///
    /// # Errors
    /// [`TransportError::Trust`] if it is none; [`TransportError::Io`]; [`TransportError::Credentials`].
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
    /// The connection, with whom it leads to. Else why that is nobody to have one with.
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
