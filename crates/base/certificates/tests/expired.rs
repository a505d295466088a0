//! An expired authority signs nothing, and reports its expiry.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyIdMethod};
use redoubt_certificates::key::Key;
use redoubt_certificates::{Wanted, add, create};
use redoubt_transport::{ClientTls, CredentialFiles};

#[test]
fn an_expired_authority_signs_nothing_and_is_trusted_by_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca");
    let shop = Wanted { volumes: vec!["shop".to_owned()], ..Wanted::default() };
    create(&path, &shop, 10, 20).unwrap();

    let key = Key::from_pem(&std::fs::read(path.join("authority/key.pem")).unwrap()).unwrap();
    let mut params = CertificateParams::default();
    params.serial_number = Some(vec![7].into());
    params.key_identifier_method = KeyIdMethod::PreSpecified(key.identifier());
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    (params.not_before, params.not_after) =
        (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2024, 2, 29));
    let expired = params.self_signed(&key).unwrap().pem();

    std::fs::write(path.join("authority/certificate.pem"), &expired).unwrap();
    let more = Wanted { volumes: vec!["more".to_owned()], ..Wanted::default() };
    let refused = add(&path, &more, 10, false).unwrap_err().to_string();
    assert!(refused.contains("authority/certificate.pem expired at 2024-02-29 00:00:00 UTC"), "{refused}");
    assert!(refused.contains("make a new authority"), "{refused}");
    assert!(!path.join("volume-more").exists());

    std::fs::write(path.join("volume-shop/authority.pem"), &expired).unwrap();
    let bundle = CredentialFiles::in_directory(&path.join("volume-shop"));
    let refused = ClientTls::load(bundle).unwrap_err().to_string();
    assert!(refused.contains("authority.pem expired at 2024-02-29 00:00:00 UTC"), "{refused}");
}
