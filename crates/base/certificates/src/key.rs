//! Keys: ECDSA on the curve P-256, in PKCS#8 and PEM.

use crate::{CertificatesError, Result};
use graviola::hashing::Sha256;
use graviola::signing::ecdsa::{P256, SigningKey};
use rcgen::{PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm};

/// Maximum length of an encoded key or signature, with a margin.
const ENCODING_LIMIT_BYTES: usize = 512;
/// Length of an uncompressed point of the curve: a tag and two coordinates.
const PUBLIC_KEY_LEN_BYTES: usize = 65;
const LABEL: &str = "PRIVATE KEY";

/// A key and its public half.
pub struct Key {
    key: SigningKey<P256>,
    public: Vec<u8>,
}

fn failed(what: &str) -> CertificatesError {
    CertificatesError::Refused(what.to_owned())
}

impl Key {
    /// Generates a new key.
    ///
    /// # Errors
    /// [`CertificatesError::Refused`] if there is no randomness, or the processor lacks required instructions.
    pub fn generate() -> Result<Self> {
        redoubt_transport::tls::check_processor().map_err(CertificatesError::Refused)?;
        Self::new(SigningKey::generate().map_err(|_| failed("the system gives no random numbers"))?)
    }

    /// Reads an existing key.
    ///
    /// # Errors
    /// [`CertificatesError::Refused`] if the text is not such a key.
    pub fn from_pem(text: &[u8]) -> Result<Self> {
        redoubt_transport::tls::check_processor().map_err(CertificatesError::Refused)?;
        let unusable = || failed("the authority's key.pem has no ECDSA P-256 key in PKCS#8 form");
        let parsed = pem::parse(text).ok().filter(|parsed| parsed.tag() == LABEL).ok_or_else(unusable)?;
        Self::new(SigningKey::from_pkcs8_der(parsed.contents()).map_err(|_| unusable())?)
    }

    fn new(key: SigningKey<P256>) -> Result<Self> {
        let mut buffer = [0; ENCODING_LIMIT_BYTES];
        let info = key.to_spki_der(&mut buffer).map_err(|_| failed("a public key cannot be encoded"))?;
        let public =
            info.last_chunk::<PUBLIC_KEY_LEN_BYTES>().ok_or_else(|| failed("a public key is too short"))?;
        let public = public.to_vec();
        Ok(Self { key, public })
    }

    /// Encodes the key for a file.
    ///
    /// # Errors
    /// [`CertificatesError::Refused`].
    pub fn to_pem(&self) -> Result<String> {
        let mut buffer = [0; ENCODING_LIMIT_BYTES];
        let encoded = self.key.to_pkcs8_der(&mut buffer).map_err(|_| failed("a key cannot be encoded"))?;
        Ok(pem::encode(&pem::Pem::new(LABEL, encoded)))
    }

    /// Identifier of the key in certificates.
    pub fn identifier(&self) -> Vec<u8> {
        use graviola::hashing::{Hash, HashContext};
        let mut hash = Sha256::new();
        hash.update(&self.public);
        hash.finish().as_ref().iter().copied().take(20).collect()
    }
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl rcgen::SigningKey for Key {
    fn sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, rcgen::Error> {
        let mut buffer = [0; ENCODING_LIMIT_BYTES];
        let signature = self.key.sign_asn1::<Sha256>(&[message], &mut buffer);
        signature.map(<[u8]>::to_vec).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}
