use super::*;
use rcgen::{CertificateParams, DnType, SanType, date_time_ymd};
use redoubt_certificates::key::Key;

fn certificate(names: &[&str], uris: &[&str]) -> Vec<u8> {
    let mut params =
        CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "somebody");
    params.not_before = date_time_ymd(2024, 2, 29);
    params.not_after = date_time_ymd(2051, 3, 1);
    for uri in uris {
        params.subject_alt_names.push(SanType::URI((*uri).try_into().unwrap()));
    }
    params.serial_number = Some(vec![0, 0x12, 0xab].into());
    params.self_signed(&Key::generate().unwrap()).unwrap().der().to_vec()
}

#[test]
fn a_certificate_is_read() {
    let der = certificate(&["node.example", "10.1.2.3", "fe80::1"], &["redoubt:volume/shop"]);
    let facts = CertificateFacts::read(&der).unwrap();
    assert_eq!(facts.hosts, ["node.example", "10.1.2.3", "fe80::1"]);
    assert_eq!(facts.identity(), Some(Identity::Volume("shop".to_owned())));
    assert_eq!(facts.serial_text(), "12ab");
    assert_eq!(time_text(facts.not_before), "2024-02-29 00:00:00 UTC");
    assert_eq!(time_text(facts.not_after), "2051-03-01 00:00:00 UTC");
    assert!(facts.subject.contains("somebody"), "{}", facts.subject);
}

#[test]
fn more_than_one_identity_or_none_or_an_unknown_one_is_none() {
    for uris in [
        &[][..],
        &["redoubt:administrator", "redoubt:volume/a"],
        &["redoubt:administrator", "https://example"],
        &["redoubt:root"],
        &["redoubt:volume/"],
        &["redoubt:volume/a/../b"],
        &["REDOUBT:administrator"],
        &["redoubt:administrator/"],
    ] {
        let facts = CertificateFacts::read(&certificate(&["x"], uris)).unwrap();
        assert_eq!(facts.identity(), None, "{uris:?}");
    }
}

#[test]
fn damaged_certificates_are_refused_or_read_but_never_more() {
    let der = certificate(&["node.example"], &["redoubt:volume/shop"]);
    for len in 0..der.len() {
        assert_eq!(CertificateFacts::read(&der[..len]), None, "cut at {len}");
    }
    let mut random = 1u32;
    for _ in 0..20_000 {
        let mut damaged = der.clone();
        for _ in 0..2 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = (random >> 8) as usize % damaged.len();
            damaged[at] = (random >> 24) as u8;
        }
        // No panic, and no allocation by a length field: the result is made of parts of the input.
        if let Some(facts) = CertificateFacts::read(&damaged) {
            let len: usize = facts.hosts.iter().chain(&facts.uris).map(String::len).sum();
            assert!(len <= damaged.len());
        }
    }
}

#[test]
fn times_are_written_for_people() {
    assert_eq!(time_text(0), "1970-01-01 00:00:00 UTC");
    assert_eq!(time_text(951_782_400), "2000-02-29 00:00:00 UTC");
    assert_eq!(time_text(i64::MAX), "9223372036854775807 s after 1970");
}
