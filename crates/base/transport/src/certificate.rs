//! Contents of a certificate: serial number, names, validity.
//!
//! Reads only the required fields, and only to decide about certificates whose signature rustls has checked before. A
//! field with another shape than expected results in `None`, never in a guess.

use crate::identity::Identity;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate, X509Name};

/// Contents of a certificate: serial number, names, validity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Serial number, big-endian, without leading zeros.
    pub serial: Vec<u8>,
    /// Common name of the issuer.
    pub issuer: String,
    /// Common name of the subject.
    pub subject: String,
    /// Valid from this time on, in seconds since 1970.
    pub not_before: i64,
    /// Valid up to this time, in seconds since 1970.
    pub not_after: i64,
    /// Host names and addresses that it is valid for.
    pub hosts: Vec<String>,
    /// URIs, which identify its owner.
    pub uris: Vec<String>,
}

impl CertificateFacts {
    /// Reads a certificate. Returns `None` if the bytes do not have its shape.
    pub fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let serial = certificate.raw_serial();
        let zeros = serial.iter().take_while(|byte| **byte == 0).count();
        let mut facts = Self {
            serial: serial.get(zeros..)?.to_vec(),
            issuer: common_name(certificate.issuer()),
            subject: common_name(certificate.subject()),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            hosts: Vec::new(),
            uris: Vec::new(),
        };
        let names = certificate.subject_alternative_name().ok()?;
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::DNSName(host) => facts.hosts.push((*host).to_owned()),
                GeneralName::URI(uri) => facts.uris.push((*uri).to_owned()),
                GeneralName::IPAddress(bytes) => facts.hosts.push(address(bytes)?.to_string()),
                // An unreadable name could be the relevant one.
                GeneralName::Invalid(..) => return None,
                _ => {}
            }
        }
        Some(facts)
    }

    /// Identity of the owner. `None` unless the certificate contains exactly one known identity.
    pub fn identity(&self) -> Option<Identity> {
        match self.uris.as_slice() {
            [uri] => Identity::from_uri(uri),
            _ => None,
        }
    }

    /// Serial number in hexadecimal digits, without leading zeros, as in lists of removed certificates.
    pub fn serial_text(&self) -> String {
        let digits: String = self.serial.iter().map(|byte| format!("{byte:02x}")).collect();
        digits.trim_start_matches('0').to_owned()
    }
}

/// Formats a time for people, in UTC.
pub fn time_text(seconds: i64) -> String {
    let Ok(time) = OffsetDateTime::from_unix_timestamp(seconds) else {
        return format!("{seconds} s after 1970");
    };
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second) = time.to_hms();
    format!("{year:04}-{:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC", u8::from(month))
}

/// Current time in seconds since 1970.
pub fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|sixteen| Ipv6Addr::from(sixteen).into())
}

fn common_name(name: &X509Name<'_>) -> String {
    let first = name.iter_common_name().next();
    first.map_or_else(String::new, |part| String::from_utf8_lossy(part.as_slice()).into_owned())
}

#[cfg(test)]
mod tests;
