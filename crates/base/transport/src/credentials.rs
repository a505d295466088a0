//! Certificates and keys in files.
//!
//! A *bundle* is a directory with `authority.pem` (the trusted authorities), `certificate.pem` and `key.pem` (the own
//! identity). On a node it may have `removed`: serial numbers of certificates that are no longer accepted, one per
//! line.
//!
//! Invariant: the process never uses a key that others can read, or a file that others can change. The check applies
//! to the opened file, so the file cannot be exchanged in between.

use crate::certificate::{CertificateFacts, now, time_text};
use crate::error::TransportError;
use crate::identity::Identity;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum length of a credential file.
const FILE_LIMIT_BYTES: u64 = 1 << 20;

/// Device, inode, length and time of change of each file that exists.
pub(crate) type Stamp = Vec<Option<(u64, u64, u64, i64, i64)>>;

/// Paths of the credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialFiles {
    /// Certificates of the trusted authorities.
    pub authority: PathBuf,
    /// The own certificate, and intermediate certificates if any.
    pub certificate: PathBuf,
    /// The key of the own certificate.
    pub key: PathBuf,
    /// Serial numbers of certificates that are no longer accepted; the file may be missing.
    pub removed: Option<PathBuf>,
}

impl CredentialFiles {
    /// Paths of the files of a bundle.
    pub fn in_directory(directory: &Path) -> Self {
        Self {
            authority: directory.join("authority.pem"),
            certificate: directory.join("certificate.pem"),
            key: directory.join("key.pem"),
            removed: Some(directory.join("removed")),
        }
    }

    /// Metadata that changes when a file is replaced.
    pub(crate) fn stamp(&self) -> Stamp {
        let paths = [Some(&self.authority), Some(&self.certificate), Some(&self.key), self.removed.as_ref()];
        let stamp = |path: &PathBuf| {
            let data = std::fs::metadata(path).ok()?;
            Some((data.dev(), data.ino(), data.len(), data.mtime(), data.mtime_nsec()))
        };
        paths.into_iter().map(|path| path.and_then(stamp)).collect()
    }
}

/// Loaded and checked credentials.
pub struct Credentials {
    pub(crate) authorities: Vec<CertificateDer<'static>>,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    /// Serial numbers that are rejected.
    pub(crate) removed: BTreeSet<String>,
    /// Contents of the own certificate.
    pub facts: CertificateFacts,
    /// Time from which they are unusable, in seconds since 1970: the first expiry of all certificates, including an
    /// authority's.
    pub expires_s: i64,
    /// Identity of the owner.
    pub identity: Identity,
}

impl Credentials {
    /// Loads and checks the files. A key that does not belong to the certificate is detected at the first use.
    ///
    /// # Errors
    /// [`TransportError::Credentials`] with the file, its defect, and the fix.
    pub fn load(files: &CredentialFiles) -> Result<Self, TransportError> {
        let authorities = certificates(&files.authority)?;
        let chain = certificates(&files.certificate)?;
        let text = read_file(&files.key, Secrecy::Secret)?;
        let key = PrivateKeyDer::from_pem_slice(&text)
            .map_err(|_| refuse(&files.key, "has no private key in PEM form; is it the right file?"))?;
        let facts = chain.first().and_then(|first| CertificateFacts::read(first)).ok_or_else(|| {
            refuse(&files.certificate, "has a certificate that cannot be read; is it the right file?")
        })?;
        check_time(&facts, &files.certificate)?;
        let mut expires_s = facts.not_after;
        for authority in &authorities {
            if let Some(facts) = CertificateFacts::read(authority) {
                check_time(&facts, &files.authority)?;
                expires_s = expires_s.min(facts.not_after);
            }
        }
        let identity = facts.identity().ok_or_else(|| {
            let what = "does not say for whom it is; use one made by `redoubt certificates`, or one with exactly one \
                        URI of redoubt:node, redoubt:administrator, redoubt:volume/NAME, redoubt:member/GROUP/NAME";
            refuse(&files.certificate, what)
        })?;
        let removed = files.removed.as_deref().map(removed).transpose()?.unwrap_or_default();
        Ok(Self { authorities, chain, key, removed, facts, expires_s, identity })
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "credentials of {} (the key is not shown)", self.identity)
    }
}

/// Reads the certificates of a file.
///
/// # Errors
/// [`TransportError::Credentials`].
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TransportError> {
    let text = read_file(path, Secrecy::Public)?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|_| refuse(path, "is not in PEM form; is it the right file?"))?;
    if certificates.is_empty() {
        return Err(refuse(path, "has no certificate in PEM form; is it the right file?"));
    }
    Ok(certificates)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Secrecy {
    Secret,
    Public,
}

/// Reads a key for another purpose than a connection, with the same checks.
///
/// # Errors
/// [`TransportError::Credentials`].
pub fn read_key(path: &Path) -> Result<Vec<u8>, TransportError> {
    read_file(path, Secrecy::Secret)
}

fn read_file(path: &Path, secrecy: Secrecy) -> Result<Vec<u8>, TransportError> {
    let cannot = |error: std::io::Error| {
        let advice = match error.kind() {
            std::io::ErrorKind::NotFound => {
                "; `redoubt certificates create` makes bundles with authority.pem, certificate.pem and key.pem"
            }
            std::io::ErrorKind::PermissionDenied => "; check the owner and the permissions",
            _ => "",
        };
        TransportError::Credentials(format!("cannot open {}: {error}{advice}", path.display()))
    };
    let file = File::open(path).map_err(cannot)?;
    let data = file.metadata().map_err(cannot)?;
    if !data.is_file() {
        return Err(refuse(path, "is not a regular file"));
    }
    // SAFETY: geteuid takes nothing, touches no memory of ours and cannot fail.
    let user = unsafe { libc::geteuid() };
    if data.uid() != user && data.uid() != 0 {
        let (owner, shown) = (data.uid(), path.display());
        return Err(refuse(
            path,
            &format!("belongs to user {owner}, not to this one ({user}); run `chown {user} {shown}`"),
        ));
    }
    let mode = data.mode() & 0o777;
    if secrecy == Secrecy::Secret && mode & 0o077 != 0 {
        let why = format!("is open to other users (mode {mode:04o}); run `chmod 600 {}`", path.display());
        return Err(refuse(path, &why));
    }
    if mode & 0o022 != 0 {
        let why =
            format!("can be changed by other users (mode {mode:04o}); run `chmod go-w {}`", path.display());
        return Err(refuse(path, &why));
    }
    let mut bytes = Vec::new();
    let len = file.take(FILE_LIMIT_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if len as u64 > FILE_LIMIT_BYTES {
        return Err(refuse(path, "is longer than 1 MiB; is it the right file?"));
    }
    Ok(bytes)
}

fn check_time(facts: &CertificateFacts, path: &Path) -> Result<(), TransportError> {
    let now = now();
    if now > facts.not_after {
        let why = format!(
            "expired at {}; it is now {}. Renew it with `redoubt certificates add`, or correct the clock",
            time_text(facts.not_after),
            time_text(now)
        );
        return Err(refuse(path, &why));
    }
    if now < facts.not_before {
        let why = format!(
            "is not valid before {}; it is now {}. Correct the clock of this host, or make a new certificate",
            time_text(facts.not_before),
            time_text(now)
        );
        return Err(refuse(path, &why));
    }
    Ok(())
}

fn removed(path: &Path) -> Result<BTreeSet<String>, TransportError> {
    // A link that leads nowhere is no missing list.
    if path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(BTreeSet::new());
    }
    let text = read_file(path, Secrecy::Public)?;
    let text = String::from_utf8_lossy(&text);
    let mut serials = BTreeSet::new();
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        let digits = line.trim_start_matches('0').to_ascii_lowercase();
        if digits.bytes().any(|digit| !digit.is_ascii_hexdigit()) {
            // An invalid list must not admit any peer.
            return Err(refuse(
                path,
                &format!("has the line {line:?}; expected a serial number in hexadecimal"),
            ));
        }
        if !digits.is_empty() {
            serials.insert(digits);
        }
    }
    Ok(serials)
}

fn refuse(path: &Path, why: &str) -> TransportError {
    TransportError::Credentials(format!("{} {why}", path.display()))
}
