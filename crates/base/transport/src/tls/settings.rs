//! TLS settings of each side, and the handshakes.
//!
//! Before each new connection, the files are checked for changes and read again after a change. So a renewal of
//! certificates needs no restart. If the new files are unusable, the old ones stay in use, and the caller gets the reason.
//! They are then tried again every [`RETRY_INTERVAL`], also without a change: the reason may have been this process, as
//! for want of descriptors, or the clock.

use super::{FIRST_BYTE, TlsConnection, lock};
use crate::certificate::CertificateFacts;
use crate::connection::Connection;
use crate::credentials::{CredentialFiles, Credentials, Stamp};
use crate::error::TransportError;
use crate::identity::Identity;
use crate::socket::SocketConnection;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use rustls_graviola::suites::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Interval between two attempts to load files that could not be used.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Settings from files.
pub(super) struct Reloading<T> {
    files: CredentialFiles,
    current: Mutex<Loaded<T>>,
    make: fn(Credentials, &CredentialFiles) -> Result<T, TransportError>,
}

struct Loaded<T> {
    /// Of the files that were looked at last.
    stamp: Stamp,
    /// When these could not be used.
    failed_at: Option<Instant>,
    parts: Arc<T>,
}

impl<T> Reloading<T> {
    pub(super) fn load(
        files: CredentialFiles,
        make: fn(Credentials, &CredentialFiles) -> Result<T, TransportError>,
    ) -> Result<Self, TransportError> {
        check_processor().map_err(TransportError::Credentials)?;
        // The stamp comes first: so a change in between is detected later.
        let stamp = files.stamp();
        let made = make(Credentials::load(&files)?, &files)?;
        let loaded = Loaded { stamp, failed_at: None, parts: Arc::new(made) };
        Ok(Self { files, current: Mutex::new(loaded), make })
    }

    /// The current settings, and the reason why changed files are not used, if so.
    pub(super) fn current(&self) -> (Arc<T>, Option<TransportError>) {
        let mut current = lock(&self.current);
        let stamp = self.files.stamp();
        let is_due = current.failed_at.is_some_and(|failed_at| failed_at.elapsed() >= RETRY_INTERVAL);
        if stamp == current.stamp && !is_due {
            return (Arc::clone(&current.parts), None);
        }
        let made =
            Credentials::load(&self.files).and_then(|credentials| (self.make)(credentials, &self.files));
        current.stamp = stamp;
        match made {
            Ok(made) => {
                current.failed_at = None;
                current.parts = Arc::new(made);
                (Arc::clone(&current.parts), None)
            }
            Err(error) => {
                current.failed_at = Some(Instant::now());
                (Arc::clone(&current.parts), Some(error))
            }
        }
    }
}

/// A node's side.
pub struct ServerTls(Reloading<ServerParts>);

struct ServerParts {
    config: Arc<ServerConfig>,
    removed: BTreeSet<String>,
    expires_s: i64,
}

/// A client's side.
pub struct ClientTls(Reloading<ClientParts>);

struct ClientParts {
    config: Arc<ClientConfig>,
    identity: Identity,
}

/// A rejected connection, which the caller has to close.
pub enum Rejected {
    /// The peer does not speak TLS; an answer in plain text may reach it.
    PlainText(SocketConnection),
    /// The handshake failed; the peer received an alert as far as possible.
    Handshake(SocketConnection, TransportError),
    /// The certificate is valid, but its owner is not admitted, for this reason.
    Denied(Box<TlsConnection>, String),
}

impl ServerTls {
    /// Loads the files and checks that they belong to a node.
    ///
    /// # Errors
    /// [`TransportError::Credentials`].
    pub fn load(files: CredentialFiles) -> Result<Self, TransportError> {
        Reloading::load(files, server_parts).map(Self)
    }

    /// Performs the handshake with a client. The caller has set a deadline. The second value is the reason why changed
    /// files are not used.
    ///
    /// # Errors
    /// The rejected connection.
    pub fn accept(
        &self,
        socket: SocketConnection,
    ) -> (Result<TlsConnection, Box<Rejected>>, Option<TransportError>) {
        let (parts, not_loaded) = self.0.current();
        (parts.accept(socket), not_loaded)
    }

    /// Time up to which the current certificates are valid, the node's own and the authority's, in seconds since 1970.
    /// Replaced files count from the next connection on.
    pub fn expires_s(&self) -> i64 {
        lock(&self.0.current).parts.expires_s
    }
}

/// Performs the handshake with a peer that has connected. The caller has to check the peer's identity.
pub(super) fn take(
    config: &Arc<ServerConfig>,
    socket: SocketConnection,
) -> Result<TlsConnection, Box<Rejected>> {
    let broken = |socket, error| Box::new(Rejected::Handshake(socket, error));
    match socket.peek() {
        Ok(Some(FIRST_BYTE)) => {}
        Ok(Some(_)) => return Err(Box::new(Rejected::PlainText(socket))),
        // A port probe: no bytes arrived.
        Ok(None) => {
            return Err(broken(socket, std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()));
        }
        Err(error) => return Err(broken(socket, error.into())),
    }
    let session = match ServerConnection::new(Arc::clone(config)) {
        Ok(session) => session,
        Err(error) => return Err(broken(socket, TransportError::Trust(error.to_string()))),
    };
    TlsConnection::handshake(socket, session.into()).map_err(|failed| {
        let (socket, error) = *failed;
        broken(socket, error)
    })
}

/// Performs the handshake with the peer that was reached as `host`. The caller has to check the peer's identity.
pub(super) fn reach(
    config: &Arc<ClientConfig>,
    socket: SocketConnection,
    host: &str,
) -> Result<TlsConnection, TransportError> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| TransportError::Trust(format!("{host:?} is no host name or address")))?;
    let session = ClientConnection::new(Arc::clone(config), name)
        .map_err(|error| TransportError::Trust(error.to_string()))?;
    TlsConnection::handshake(socket, session.into()).map_err(|failed| failed.1)
}

impl ServerParts {
    fn accept(&self, socket: SocketConnection) -> Result<TlsConnection, Box<Rejected>> {
        let mut connection = take(&self.config, socket)?;
        match self.admit(&connection) {
            Ok((identity, expires_s)) => {
                connection.identity = identity;
                connection.peer_certificate_expires_s = Some(expires_s);
                Ok(connection)
            }
            Err(why) => Err(Box::new(Rejected::Denied(Box::new(connection), why))),
        }
    }

    /// Identity of the peer, and the time up to which its certificate is valid.
    fn admit(&self, connection: &TlsConnection) -> Result<(Identity, i64), String> {
        let facts = connection.peer_certificate().and_then(|der| CertificateFacts::read(&der));
        let facts = facts.ok_or("this certificate cannot be read")?;
        if self.removed.contains(&facts.serial_text()) {
            return Err(format!(
                "this certificate ({}) was removed from those that the node accepts; ask its administrator for a new one",
                facts.serial_text()
            ));
        }
        match facts.identity() {
            Some(identity @ (Identity::Administrator | Identity::Volume(_))) => {
                Ok((identity, facts.not_after))
            }
            _ => Err("this certificate is for no volume and not the administrator's".to_owned()),
        }
    }
}

impl ClientTls {
    /// Loads the files and checks that they belong to a client.
    ///
    /// # Errors
    /// [`TransportError::Credentials`].
    pub fn load(files: CredentialFiles) -> Result<Self, TransportError> {
        Reloading::load(files, client_parts).map(Self)
    }

    /// Paths of the files.
    pub fn files(&self) -> &CredentialFiles {
        &self.0.files
    }

    /// Identity of the certificate's owner.
    pub fn identity(&self) -> Identity {
        self.0.current().0.identity.clone()
    }

    /// Performs the handshake with the node that was reached as `host`. The caller has set a deadline.
    ///
    /// # Errors
    /// [`TransportError::Trust`] if the peer is not that node; [`TransportError::Io`];
    /// [`TransportError::Credentials`].
    pub fn connect(&self, socket: SocketConnection, host: &str) -> Result<TlsConnection, TransportError> {
        let (parts, not_loaded) = self.0.current();
        if let Some(error) = not_loaded {
            return Err(error);
        }
        let mut connection = reach(&parts.config, socket, host)?;
        let facts = connection.peer_certificate().and_then(|der| CertificateFacts::read(&der));
        let expires_s = facts.as_ref().map(|facts| facts.not_after);
        if facts.and_then(|facts| facts.identity()) != Some(Identity::Node) {
            connection.shutdown();
            return Err(TransportError::Trust(format!(
                "the certificate that {host} shows is not a storage node's"
            )));
        }
        connection.identity = Identity::Node;
        connection.peer_certificate_expires_s = expires_s;
        Ok(connection)
    }
}

/// Checks that this processor supports the cryptography. Without the required instructions, the library would end the
/// process.
///
/// # Errors
/// The missing part.
pub fn check_processor() -> Result<(), String> {
    #[cfg(target_arch = "x86_64")]
    let features = [
        ("aes", std::is_x86_feature_detected!("aes")),
        ("pclmulqdq", std::is_x86_feature_detected!("pclmulqdq")),
        ("ssse3", std::is_x86_feature_detected!("ssse3")),
        ("avx", std::is_x86_feature_detected!("avx")),
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("bmi1", std::is_x86_feature_detected!("bmi1")),
        ("bmi2", std::is_x86_feature_detected!("bmi2")),
        ("adx", std::is_x86_feature_detected!("adx")),
    ];
    #[cfg(target_arch = "aarch64")]
    let features = [
        ("neon", std::arch::is_aarch64_feature_detected!("neon")),
        ("aes", std::arch::is_aarch64_feature_detected!("aes")),
        ("pmull", std::arch::is_aarch64_feature_detected!("pmull")),
        ("sha2", std::arch::is_aarch64_feature_detected!("sha2")),
    ];
    let missing: Vec<_> = features.iter().filter(|(_, there)| !there).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "TLS needs a processor with {}, which this one lacks (a virtual machine may hide it); use another host, or \
         plain text in a network of which you trust everybody",
        missing.join(", ")
    ))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            TLS13_AES_128_GCM_SHA256,
            TLS13_AES_256_GCM_SHA384,
            TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..rustls_graviola::default_provider()
    })
}

fn roots(credentials: &Credentials, files: &CredentialFiles) -> Result<Arc<RootCertStore>, TransportError> {
    let mut roots = RootCertStore::empty();
    for authority in &credentials.authorities {
        roots.add(authority.clone()).map_err(|error| {
            TransportError::Credentials(format!(
                "{}: not a usable authority: {error}",
                files.authority.display()
            ))
        })?;
    }
    Ok(Arc::new(roots))
}

fn cannot_use(files: &CredentialFiles, error: &rustls::Error) -> TransportError {
    let (certificate, key) = (files.certificate.display(), files.key.display());
    TransportError::Credentials(match error {
        rustls::Error::InconsistentKeys(_) => format!(
            "the key in {key} is not the one of the certificate in {certificate}; copy both from the same bundle"
        ),
        other => format!("{certificate} with {key} cannot be used: {other}"),
    })
}

fn server_parts(credentials: Credentials, files: &CredentialFiles) -> Result<ServerParts, TransportError> {
    if credentials.identity != Identity::Node {
        return Err(TransportError::Credentials(format!(
            "{} is the certificate of {}, not of a storage node; give the node its own bundle (node-HOST)",
            files.certificate.display(),
            credentials.identity
        )));
    }
    Ok(ServerParts {
        config: server_config(&credentials, files)?,
        removed: credentials.removed,
        expires_s: credentials.expires_s,
    })
}

pub(super) fn server_config(
    credentials: &Credentials,
    files: &CredentialFiles,
) -> Result<Arc<ServerConfig>, TransportError> {
    let roots = roots(credentials, files)?;
    let trust = |error: &dyn std::fmt::Display| {
        TransportError::Credentials(format!("{} cannot be used: {error}", files.authority.display()))
    };
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
        .build()
        .map_err(|error| trust(&error))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| trust(&error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(credentials.chain.clone(), credentials.key.clone_key())
        .map_err(|error| cannot_use(files, &error))?;
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Ok(Arc::new(config))
}

fn client_parts(credentials: Credentials, files: &CredentialFiles) -> Result<ClientParts, TransportError> {
    if !matches!(credentials.identity, Identity::Administrator | Identity::Volume(_)) {
        return Err(TransportError::Credentials(format!(
            "{} is the certificate of {}; a client needs the bundle of a volume (volume-NAME) or of the administrator",
            files.certificate.display(),
            credentials.identity
        )));
    }
    Ok(ClientParts { config: client_config(&credentials, files)?, identity: credentials.identity })
}

pub(super) fn client_config(
    credentials: &Credentials,
    files: &CredentialFiles,
) -> Result<Arc<ClientConfig>, TransportError> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| cannot_use(files, &error))?
        .with_root_certificates(roots(credentials, files)?)
        .with_client_auth_cert(credentials.chain.clone(), credentials.key.clone_key())
        .map_err(|error| cannot_use(files, &error))?;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "TLS with {}", self.0.files.certificate.display())
    }
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "TLS with {}", self.0.files.certificate.display())
    }
}
