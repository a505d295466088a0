//! What a certificate says: serial number, names, validity.
//!
//! Reads only the fields that are needed, and only decides with them about certificates whose signature rustls has
//! checked before. Anything that does not have the expected shape is `None`, never a guess.

use crate::identity::Identity;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;
const IP_ADDRESS: u8 = 0x87;
/// 2.5.4.3
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
/// 2.5.29.17
const SUBJECT_ALTERNATIVE_NAME: [u8; 3] = [0x55, 0x1d, 0x11];

/// See the module.
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
    /// Host names and addresses it is for.
    pub hosts: Vec<String>,
    /// Its URIs, which say who its owner is.
    pub uris: Vec<String>,
}

impl CertificateFacts {
    /// Reads a certificate. `None`: it does not have the shape of one.
    pub fn read(der: &[u8]) -> Option<Self> {
        let mut outer = Der(der);
        let mut certificate = Der(outer.take(SEQUENCE)?);
        let mut body = Der(certificate.take(SEQUENCE)?);
        let _ = body.take(VERSION);
        let serial = body.take(INTEGER)?;
        let zeros = serial.iter().take_while(|byte| **byte == 0).count();
        body.take(SEQUENCE)?;
        let issuer = common_name(body.take(SEQUENCE)?);
        let mut validity = Der(body.take(SEQUENCE)?);
        let (not_before, not_after) = (validity.time()?, validity.time()?);
        let subject = common_name(body.take(SEQUENCE)?);
        let mut facts = Self {
            serial: serial.get(zeros..)?.to_vec(),
            issuer,
            subject,
            not_before,
            not_after,
            hosts: Vec::new(),
            uris: Vec::new(),
        };
        body.take(SEQUENCE)?;
        while let Some((tag, content)) = body.any() {
            if tag == EXTENSIONS {
                facts.read_extensions(Der(content).take(SEQUENCE)?)?;
            }
        }
        Some(facts)
    }

    fn read_extensions(&mut self, extensions: &[u8]) -> Option<()> {
        let mut extensions = Der(extensions);
        while let Some((tag, content)) = extensions.any() {
            let mut extension = Der(content);
            if tag != SEQUENCE || extension.take(OBJECT_ID)? != SUBJECT_ALTERNATIVE_NAME {
                continue;
            }
            let mut value = extension.any()?;
            if value.0 != OCTET_STRING {
                // The flag that makes it critical.
                value = extension.any()?;
            }
            let mut names = Der(Der(value.1).take(SEQUENCE)?);
            while let Some((tag, name)) = names.any() {
                match tag {
                    DNS_NAME => self.hosts.push(String::from_utf8(name.to_vec()).ok()?),
                    URI => self.uris.push(String::from_utf8(name.to_vec()).ok()?),
                    IP_ADDRESS => self.hosts.push(address(name)?.to_string()),
                    _ => {}
                }
            }
        }
        Some(())
    }

    /// Whom it speaks for. `None` unless it says exactly one that is known.
    pub fn identity(&self) -> Option<Identity> {
        match self.uris.as_slice() {
            [uri] => Identity::from_uri(uri),
            _ => None,
        }
    }

    /// The serial number in hexadecimal digits, without leading zeros, as lists of removed certificates have it.
    pub fn serial_text(&self) -> String {
        let digits: String = self.serial.iter().map(|byte| format!("{byte:02x}")).collect();
        digits.trim_start_matches('0').to_owned()
    }
}

/// A time for people, in UTC.
pub fn time_text(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Seconds since 1970.
pub fn now() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|sixteen| Ipv6Addr::from(sixteen).into())
}

fn common_name(name: &[u8]) -> String {
    let mut name = Der(name);
    while let Some((SET, set)) = name.any() {
        let Some(part) = Der(set).take(SEQUENCE) else { continue };
        let mut part = Der(part);
        if part.take(OBJECT_ID) == Some(&COMMON_NAME)
            && let Some((_, text)) = part.any()
        {
            return String::from_utf8_lossy(text).into_owned();
        }
    }
    String::new()
}

/// A reader of tag-length-value elements.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next element with its tag. `None`: there is none, or it is cut.
    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], mut rest) = self.0.split_first_chunk()?;
        let mut len = usize::from(first);
        if first >= 0x80 {
            // Longer than 3 bytes of length is no certificate of ours; 0x80 alone is not allowed in DER.
            let (digits, behind) = rest.split_at_checked(usize::from(first & 0x7f))?;
            if digits.is_empty() || digits.len() > 3 {
                return None;
            }
            len = digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit));
            rest = behind;
        }
        let (content, behind) = rest.split_at_checked(len)?;
        self.0 = behind;
        Some((tag, content))
    }

    /// The next element if it has this tag; else nothing is taken.
    fn take(&mut self, wanted: u8) -> Option<&'a [u8]> {
        if *self.0.first()? != wanted {
            return None;
        }
        self.any().map(|(_, content)| content)
    }

    fn time(&mut self) -> Option<i64> {
        let (tag, text) = self.any()?;
        let (year, rest) = match tag {
            UTC_TIME => {
                let (year, rest) = text.split_at_checked(2)?;
                let year = number(year)?;
                (if year < 50 { year + 2000 } else { year + 1900 }, rest)
            }
            GENERALIZED_TIME => {
                let (year, rest) = text.split_at_checked(4)?;
                (number(year)?, rest)
            }
            _ => return None,
        };
        let [month, day, hour, minute, second] = {
            let digits = rest.strip_suffix(b"Z")?;
            let mut parts = digits.chunks_exact(2).map(number);
            let parts = [parts.next()??, parts.next()??, parts.next()??, parts.next()??, parts.next()??];
            if digits.len() != 10 { None } else { Some(parts) }
        }?;
        let valid = (1..=12).contains(&month) && (1..=31).contains(&day);
        let valid = valid && hour < 24 && minute < 60 && second <= 60;
        valid.then(|| days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    digits
        .iter()
        .try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + i64::from(digit - b'0')))
}

/// Days since 1970 of a date of the Gregorian calendar; years begin in March, so that the leap day is the last one.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests;
