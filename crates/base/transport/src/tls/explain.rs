//! Explanations of TLS errors that include the fix.

use super::AlertDescription;
use crate::certificate::{now, time_text};
use rustls::pki_types::UnixTime;
use rustls::{CertificateError, Error, InvalidMessage, PeerIncompatible};

/// Explains the error from the view of this side.
pub fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => explain_certificate(error),
        Error::NoCertificatesPresented => {
            "the other side shows no certificate; give it one with --tls DIR".to_owned()
        }
        Error::AlertReceived(alert) => explain_alert(*alert),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the other side does not speak TLS; a storage node speaks it when it is started with --tls DIR"
                .to_owned()
        }
        Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::SupportedVersionsExtensionRequired,
        ) => "the other side does not speak TLS 1.3".to_owned(),
        other => format!("TLS: {other}"),
    }
}

fn explain_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the other side's certificate is of another authority than this side's authority.pem; both need \
             certificates of the same one"
                .to_owned()
        }
        CertificateError::ExpiredContext { time, not_after } => format!(
            "the other side's certificate expired at {}; here it is {}. Renew it with `redoubt certificates add`, or \
             correct the clock",
            text(*not_after),
            text(*time)
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "the other side's certificate is not valid before {}; here it is {}. Correct the clock",
            text(*not_before),
            text(*time)
        ),
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "the node's certificate is not for {}, but for {}. Use one of these as the address, or make a certificate \
             for it with `redoubt certificates add --node`",
            expected.to_str(),
            hosts(presented)
        ),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the other side's certificate is not for this use: a node needs the one made for the node, a client one \
             made for a volume or the administrator"
                .to_owned()
        }
        other => format!("the other side's certificate is refused: {other}"),
    }
}

/// Formats host names. The library shows them as `DnsName("a")`; names that are no hosts are left out.
fn hosts(presented: &[String]) -> String {
    let name = |shown: &String| {
        let name = shown.split('"').nth(1).or_else(|| shown.split(['(', ')']).nth(1));
        name.unwrap_or(shown).to_owned()
    };
    let names: Vec<_> = presented.iter().map(name).filter(|name| !name.starts_with("redoubt:")).collect();
    if names.is_empty() { "no host".to_owned() } else { names.join(", ") }
}

fn explain_alert(alert: AlertDescription) -> String {
    let time = time_text(now());
    match alert {
        AlertDescription::CertificateRequired => {
            "the node requires a client certificate; give one with --tls DIR".to_owned()
        }
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "the other side does not know the authority of this side's certificate; both need certificates of the \
             same one"
                .to_owned()
        }
        AlertDescription::CertificateExpired => format!(
            "the other side says that this side's certificate has expired or is not valid yet; here it is {time}. \
             Compare the clocks, and look at the certificate with `redoubt certificates show`"
        ),
        AlertDescription::ProtocolVersion => "the other side does not speak TLS 1.3".to_owned(),
        AlertDescription::UnsupportedCertificate | AlertDescription::BadCertificate => {
            "the other side does not accept this side's certificate: it is not for this use, or not for the name by which \
             the node was reached. A node needs the one made for the node with all its names, a client one made for a \
             volume or the administrator"
                .to_owned()
        }
        AlertDescription::HandshakeFailure => {
            "the other side broke off the TLS handshake; see its log for why".to_owned()
        }
        other => format!("the other side ended TLS with the alert {other:?}; see its log for why"),
    }
}

fn text(time: UnixTime) -> String {
    time_text(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}
