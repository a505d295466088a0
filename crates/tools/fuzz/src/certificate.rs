//! Any bytes as a certificate: read or refused, never a panic, and whom it speaks for is one that a name can be.
//!
//! Input: the certificate (DER).

use redoubt_transport::certificate::{CertificateFacts, time_text};
use redoubt_transport::identity::Identity;

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let Some(facts) = CertificateFacts::read(data) else { return };
    let _ = (time_text(facts.not_before), time_text(facts.not_after));
    assert!(!facts.serial_text().starts_with('0'));
    if let Some(Identity::Volume(name)) = facts.identity() {
        assert!(!name.is_empty() && !name.contains(['/', '\0']), "{name:?}");
    }
}
