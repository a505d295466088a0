//! Which member ids a peer may claim.

use super::*;
use redoubt_certificates::{Wanted, WantedMember, create};
use redoubt_transport::CredentialFiles;

const OWN: MemberId = MemberId(1);
const STRANGER: MemberId = MemberId(2);

/// Member 1 is db1.
struct OneKnown;

impl Members for OneKnown {
    fn name_of(&self, member: MemberId) -> Option<String> {
        (member == OWN).then(|| "db1".to_owned())
    }

    fn is_member(&self, member: MemberId) -> bool {
        member == OWN
    }
}

fn identity(name: &str) -> Identity {
    Identity::Member { group: "shop".to_owned(), name: name.to_owned() }
}

fn with_certificates(members: &[&str]) -> Trust {
    let directory = tempfile::tempdir().unwrap();
    let authority = directory.path().join("ca");
    let own = WantedMember {
        group: "shop".to_owned(),
        name: "db1".to_owned(),
        hosts: vec!["127.0.0.1".to_owned()],
    };
    create(&authority, &Wanted { members: vec![own], ..Wanted::default() }, 1, 1).unwrap();
    let files = CredentialFiles::in_directory(&authority.join("member-shop-db1"));
    let members = members.iter().map(|name| (*name).to_owned()).collect();
    Trust::new(Some(MemberTls::load(files).unwrap()), members, Box::new(OneKnown))
}

#[test]
fn a_member_speaks_for_itself_and_for_nobody_that_has_another_name() {
    let trust = with_certificates(&[]);
    assert_eq!(trust.check(&identity("db1"), OWN), Ok(()));
    assert_eq!(trust.check(&identity("db2"), STRANGER), Ok(()));
    let why = trust.check(&identity("db2"), OWN).unwrap_err();
    assert!(why.contains("which is db1") && why.contains("that of db2"), "{why}");
    assert!(trust.check(&Identity::Administrator, STRANGER).is_err());
    assert!(trust.check(&Identity::Unproven, STRANGER).is_err());
}

#[test]
fn who_is_not_named_is_no_member() {
    let trust = with_certificates(&["db1", "db2"]);
    assert_eq!(trust.check(&identity("db2"), STRANGER), Ok(()));
    let why = trust.check(&identity("db3"), STRANGER).unwrap_err();
    assert!(why.contains("redoubt.members"), "{why}");
}

#[test]
fn without_certificates_everybody_is_believed() {
    let trust = Trust::new(None, BTreeSet::new(), Box::new(OneKnown));
    assert_eq!(trust.check(&Identity::Unproven, OWN), Ok(()));
}
