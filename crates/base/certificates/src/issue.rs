//! The authority's key, and the certificates that it signs.

use crate::files::{make_directory, write_file};
use crate::key::Key;
use crate::{CertificatesError, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyIdMethod, KeyUsagePurpose, SanType, SerialNumber,
};
use redoubt_transport::Identity;
use redoubt_transport::certificate::{CertificateFacts, now, time_text};
use redoubt_transport::credentials::{certificates, read_key};
use std::path::Path;
use time::OffsetDateTime;

/// Time by which the validity of certificates precedes their creation, for hosts with a slow clock.
const BACKDATED_S: i64 = 3600;
const DAY_S: i64 = 86_400;

/// An authority that can sign.
pub struct Issuer {
    issuer: rcgen::Issuer<'static, Key>,
    certificate_pem: String,
    not_after: i64,
}

/// A new certificate and its key.
pub struct Issued {
    /// The certificate.
    pub certificate_pem: String,
    /// The key.
    pub key_pem: String,
}

impl Issuer {
    /// Creates an authority in `directory`.
    ///
    /// # Errors
    /// [`CertificatesError`].
    pub fn create(directory: &Path, days: u32) -> Result<()> {
        let key = Key::generate()?;
        let name = format!("Redoubt authority {:016x}", fastrand::u64(..));
        let mut params = params(&name, &key, days, None)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?;
        make_directory(directory)?;
        write_file(&directory.join("key.pem"), &key.to_pem()?, 0o600)?;
        write_file(&directory.join("certificate.pem"), &certificate.pem(), 0o644)
    }

    /// Opens the authority in `directory`.
    ///
    /// # Errors
    /// [`CertificatesError`] if the authority is missing, unusable or expired.
    pub fn open(directory: &Path) -> Result<Self> {
        let (certificate_path, key_path) = (directory.join("certificate.pem"), directory.join("key.pem"));
        if !key_path.exists() {
            return Err(CertificatesError::Refused(format!(
                "there is no authority in {}; make one with `redoubt certificates create`, or use the directory where \
                 its key is kept",
                directory.display()
            )));
        }
        let unusable =
            |why: &str| CertificatesError::Refused(format!("{} {why}", certificate_path.display()));
        let facts = certificates(&certificate_path)?.first().and_then(|first| CertificateFacts::read(first));
        let facts = facts.ok_or_else(|| unusable("has a certificate that cannot be read"))?;
        if facts.not_after <= now() {
            return Err(unusable(&format!(
                "expired at {}; make a new authority in another directory and copy its bundles to all hosts",
                time_text(facts.not_after)
            )));
        }
        let key = Key::from_pem(&read_key(&key_path)?)?;
        let certificate_pem = std::fs::read_to_string(&certificate_path)
            .map_err(|source| CertificatesError::Io { action: "read", path: certificate_path, source })?;
        let params = params(&facts.subject, &key, 1, None)?;
        Ok(Self { issuer: rcgen::Issuer::new(params, key), certificate_pem, not_after: facts.not_after })
    }

    /// The authority's own certificate.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Creates a key, and a certificate with its identity.
    ///
    /// # Errors
    /// [`CertificatesError::Issue`].
    pub fn issue(&self, identity: &Identity, hosts: &[String], days: u32) -> Result<Issued> {
        let key = Key::generate()?;
        let mut params = params(&identity.to_string(), &key, days, Some(self.not_after))?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match identity {
            Identity::Node => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Identity::Member { .. } => {
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]
            }
            _ => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        for host in hosts {
            params.subject_alt_names.push(match host.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(host.as_str().try_into()?),
            });
        }
        if let Some(uri) = identity.uri() {
            params.subject_alt_names.push(SanType::URI(uri.as_str().try_into()?));
        }
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Issued { certificate_pem: certificate.pem(), key_pem: key.to_pem()? })
    }
}

/// Parameters with a name and a validity, which ends no later than the authority's.
fn params(name: &str, key: &Key, days: u32, at_most: Option<i64>) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    let mut serial = [0; 16];
    graviola::random::fill(&mut serial)
        .map_err(|_| CertificatesError::Refused("the system gives no random numbers".to_owned()))?;
    // A positive number of full length.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.key_identifier_method = KeyIdMethod::PreSpecified(key.identifier());
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let date = |seconds| {
        OffsetDateTime::from_unix_timestamp(seconds)
            .map_err(|_| CertificatesError::Refused(format!("{days} days are too many")))
    };
    let end = now() + i64::from(days) * DAY_S;
    params.not_before = date(now() - BACKDATED_S)?;
    params.not_after = date(at_most.map_or(end, |limit| end.min(limit)))?;
    Ok(params)
}
