//! The rule, for ranges below, above and overlapping, and for bits that one side does not know.

use super::*;

const KNOWN: Features = Features(0b11);
const OURS: Announcement = Announcement::new(Versions::new(5, 7), Features::NONE, KNOWN);

fn peer(oldest: u16, newest: u16, required: u64, optional: u64) -> Announcement {
    Announcement::new(Versions::new(oldest, newest), Features(required), Features(optional))
}

#[test]
fn overlapping_ranges_agree_on_the_newest_common_version() {
    for (oldest, newest, expected) in [(5, 7, 7), (1, 5, 5), (6, 6, 6), (7, 9, 7), (1, 9, 7)] {
        let theirs = peer(oldest, newest, 0, 0);
        assert_eq!(OURS.agree(theirs).map(|agreed| agreed.version), Ok(expected), "{theirs:?}");
        assert_eq!(theirs.agree(OURS).map(|agreed| agreed.version), Ok(expected), "{theirs:?}");
    }
}

#[test]
fn ranges_below_and_above_are_refused_with_both_versions() {
    for (oldest, newest, shown) in [(1, 4, "versions 1 to 4"), (8, 8, "version 8"), (8, 9, "versions 8 to 9")]
    {
        let theirs = peer(oldest, newest, 0, 0);
        let here = OURS.agree(theirs).unwrap_err().to_string();
        assert_eq!(here, format!("the peer has protocol {shown}, this side versions 5 to 7"));
        let there = theirs.agree(OURS).unwrap_err().to_string();
        assert_eq!(there, format!("the peer has protocol versions 5 to 7, this side {shown}"));
    }
}

#[test]
fn unknown_optional_bits_are_ignored() {
    let agreed = OURS.agree(peer(5, 5, 0, 0b110)).unwrap();
    assert_eq!(agreed, Agreement { version: 5, features: Features(0b10) });
    assert!(agreed.has(Features(0b10)) && !agreed.has(Features(0b1)) && !agreed.has(Features(0b100)));
}

#[test]
fn unknown_required_bits_are_refused_on_both_sides() {
    let theirs = peer(5, 6, 1 << 40, 0);
    let here = OURS.agree(theirs).unwrap_err();
    assert_eq!(
        here.to_string(),
        "the peer (protocol versions 5 to 6) requires feature 40, which this side (protocol versions 5 to 7) does not know"
    );
    let there = theirs.agree(OURS).unwrap_err();
    assert_eq!(
        there.to_string(),
        "this side (protocol versions 5 to 6) requires feature 40, which the peer (protocol versions 5 to 7) does not know"
    );
    assert!(OURS.agree(peer(5, 6, 0b1, 0)).is_ok());
}

#[test]
fn legacy_peers_agree_unless_a_feature_is_required() {
    let legacy = Announcement::of_legacy_peer(5);
    assert_eq!(OURS.agree(legacy), Ok(Agreement { version: 5, features: Features::NONE }));
    assert!(OURS.requiring(Features(1)).agree(legacy).is_err());
}

#[test]
fn announcements_are_decoded_as_encoded() {
    for announced in [OURS, OURS.requiring(Features(2)), peer(0, u16::MAX, u64::MAX, 0)] {
        let bytes = announced.encode();
        assert_eq!(Announcement::decode(&bytes), Ok(announced));
        assert_eq!(Announcement::decode(&[&bytes[..], &[9; 7]].concat()), Ok(announced));
        for len_bytes in 0..LEN_BYTES {
            let error = BadAnnouncement::Truncated { len_bytes };
            assert_eq!(Announcement::decode(&bytes[..len_bytes]), Err(error));
        }
    }
}

#[test]
fn empty_ranges_are_refused() {
    let mut bytes = OURS.encode();
    bytes[0] = 9;
    assert_eq!(Announcement::decode(&bytes), Err(BadAnnouncement::EmptyRange { oldest: 9, newest: 7 }));
}

#[test]
fn bit_that_is_required_and_optional_is_refused() {
    let mut bytes = peer(5, 6, 1, 2).encode();
    bytes[12] = 3;
    assert_eq!(Announcement::decode(&bytes), Err(BadAnnouncement::RequiredAndOptional { bits: 1 }));
}

#[test]
fn announcements_have_the_documented_bytes() {
    let bytes = peer(5, 6, 1, 0x1_00).encode();
    assert_eq!(bytes, [5, 0, 6, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
}
