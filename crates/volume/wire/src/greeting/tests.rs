//! Both sides of the greeting, each against itself, against 0.1.0, and against later versions.

use super::*;
use crate::Seq;
use crate::hello::{Compression, Role};
use redoubt_types::Lsn;

/// The Hello of a `redoubt` 0.1.0 on a control connection and the Welcome of a node 0.1.0, recorded from its programs,
/// without the length fields.
const HELLO_OF_0_1_0: &[u8] = include_bytes!("../../tests/fixtures/0.1.0/hello");
const WELCOME_OF_0_1_0: &[u8] = include_bytes!("../../tests/fixtures/0.1.0/welcome");

const LATER: Announcement = Announcement::new(
    Versions::new(PROTOCOL_VERSION, PROTOCOL_VERSION + 2),
    Features::NONE,
    Features(u64::MAX),
);

fn announced_for(server: &str) -> Announcement {
    ANNOUNCED.requiring(required_by(server.parse().unwrap()).unwrap())
}

fn hello() -> Hello {
    Hello {
        role: Role::Control,
        compression: Compression::Off,
        generation: 0,
        session: 0,
        resume: Seq(0),
        volume: String::new(),
    }
}

fn welcome(status: Status, message: &str) -> Welcome {
    Welcome {
        status,
        compression: Compression::Off,
        next_seq: Seq(3),
        next_lsn: Lsn(4),
        message: message.to_owned(),
    }
}

/// Lets a client and a node greet each other. Returns the outcome of the client, then that of the node.
fn greet(client: Announcement, node: Announcement) -> [Result<Agreement, String>; 2] {
    let (mut greeting, bytes) = ClientGreeting::begin(&hello(), client);
    let Opening::Negotiates(received) = receive_hello(&bytes[4..], node).unwrap() else { panic!() };
    assert_eq!(received, hello());
    let Step::Send(answer) = greeting.receive(&encode_announcement(node)[4..]).unwrap() else { panic!() };
    let on_node = receive_answer(&answer[4..], node);
    let last = match &on_node {
        Ok(_) => welcome(Status::Accepted, ""),
        Err(error) => welcome(Status::Refused, &error.to_string()),
    };
    let on_client = greeting.receive(&last.encode()[4..]).map(|step| match step {
        Step::Done(got, agreement) if got == last => agreement,
        other => panic!("{other:?}"),
    });
    [on_client.map_err(|error| error.to_string()), on_node.map_err(|error| error.to_string())]
}

#[test]
fn same_version_agrees_on_all_features() {
    let expected = Ok(Agreement { version: PROTOCOL_VERSION, features: ANNOUNCED.known() });
    assert_eq!(greet(ANNOUNCED, ANNOUNCED), [expected.clone(), expected]);
}

#[test]
fn later_peer_agrees_on_this_version_and_its_features() {
    let expected = Ok(Agreement { version: PROTOCOL_VERSION, features: ANNOUNCED.known() });
    assert_eq!(greet(ANNOUNCED, LATER), [expected.clone(), expected.clone()]);
    assert_eq!(greet(LATER, ANNOUNCED), [expected.clone(), expected]);
}

#[test]
fn ranges_without_overlap_are_refused_on_both_sides() {
    let far = Announcement::new(Versions::new(7, 9), Features::NONE, Features::NONE);
    for [client, node] in [[ANNOUNCED, far], [far, ANNOUNCED]] {
        for refused in greet(client, node) {
            let said = refused.unwrap_err();
            assert!(said.contains("versions 7 to 9") && said.contains("version 5"), "{said}");
            assert!(said.contains("install the same version on both, the node's first"), "{said}");
        }
    }
}

/// A node that sends these bytes, one message after the other, and closes the connection.
fn exchange_with(messages: &[Vec<u8>]) -> Result<(Welcome, Agreement), GreetingError> {
    let sent = messages.concat();
    let mut sent = sent.as_slice();
    exchange(&hello(), ANNOUNCED, |_| Ok(()), |out| io::Read::read_exact(&mut sent, out))
}

#[test]
fn node_that_closes_after_another_version_is_named_with_it() {
    let far = Announcement::new(Versions::new(7, 9), Features::NONE, Features::NONE);
    let Err(GreetingError::Wire(error)) = exchange_with(&[encode_announcement(far)]) else { panic!() };
    assert!(error.to_string().contains("versions 7 to 9"), "{error}");
}

#[test]
fn node_of_this_version_that_closes_is_a_failed_connection() {
    for messages in [vec![], vec![encode_announcement(ANNOUNCED)]] {
        let failed = exchange_with(&messages);
        let Err(GreetingError::Io(error)) = failed else { panic!("{failed:?}") };
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
    let whole = [encode_announcement(ANNOUNCED), welcome(Status::Accepted, "").encode()];
    assert_eq!(exchange_with(&whole).unwrap().0, welcome(Status::Accepted, ""));
}

#[test]
fn unknown_required_feature_is_refused_on_both_sides() {
    let demanding = LATER.requiring(Features(1 << 40));
    for [client, node] in [[ANNOUNCED, demanding], [demanding, ANNOUNCED]] {
        for refused in greet(client, node) {
            let said = refused.unwrap_err();
            assert!(said.contains("feature 40") && said.contains("versions 5 to 7"), "{said}");
        }
    }
}

#[test]
fn node_0_1_0_agrees_without_features() {
    let (mut greeting, _) = ClientGreeting::begin(&hello(), ANNOUNCED);
    let Step::Done(welcome, agreement) = greeting.receive(WELCOME_OF_0_1_0).unwrap() else { panic!() };
    assert_eq!((welcome.status, agreement), (Status::Accepted, LEGACY_AGREEMENT));
}

#[test]
fn client_0_1_0_agrees_without_features() {
    let opening = receive_hello(HELLO_OF_0_1_0, ANNOUNCED).unwrap();
    assert_eq!(opening, Opening::Legacy(hello(), LEGACY_AGREEMENT));
}

/// All that 0.1.0 checks is the version; it ignores flags that it does not know.
#[test]
fn hello_differs_from_that_of_0_1_0_by_one_flag() {
    let (_, mut bytes) = ClientGreeting::begin(&hello(), ANNOUNCED);
    assert_eq!(bytes[4 + 7], 4);
    bytes[4 + 7] = 0;
    assert_eq!(&bytes[4..], HELLO_OF_0_1_0);
    let accepted = Welcome { next_seq: Seq(0), next_lsn: Lsn(0), ..welcome(Status::Accepted, "") };
    assert_eq!(&accepted.encode()[4..], WELCOME_OF_0_1_0);
}

#[test]
fn mysql_server_refuses_a_node_0_1_0() {
    let (mut greeting, _) = ClientGreeting::begin(&hello(), announced_for("MySQL 9.7.4"));
    let said = greeting.receive(WELCOME_OF_0_1_0).unwrap_err().to_string();
    assert!(said.contains("requires feature 0, 1") && said.contains("version 5"), "{said}");
}

#[test]
fn only_mariadb_10_11_accepts_a_node_0_1_0() {
    for (family, (major, minor), features) in SERIES {
        let server = format!("{family} {major}.{minor}.1");
        let (mut greeting, _) = ClientGreeting::begin(&hello(), announced_for(&server));
        let outcome = greeting.receive(WELCOME_OF_0_1_0);
        assert_eq!(outcome.is_ok(), server == "MariaDB 10.11.1", "{server}: {outcome:?}");
        assert_eq!(features.is_empty(), outcome.is_ok(), "{server}");
    }
}

#[test]
fn unknown_series_has_no_features_and_requires_all() {
    for unknown in ["MariaDB 10.6.20", "MariaDB 12.3.1", "MySQL 8.4.1"] {
        let unknown = unknown.parse().unwrap();
        assert_eq!(required_by(unknown), None);
        assert_eq!(required_by_all([unknown]), ANNOUNCED.known());
    }
    let both = ["MariaDB 10.11.19", "MariaDB 11.8.9"].map(|text| text.parse().unwrap());
    assert_eq!(required_by_all(both), SERVER_VERSION);
    assert_eq!(required_by_all([]), Features::NONE);
}

#[test]
fn refusal_of_a_legacy_node_is_passed_on() {
    let (mut greeting, _) = ClientGreeting::begin(&hello(), announced_for("MySQL 9.7.4"));
    let refused = welcome(Status::Refused, "no volume");
    let Step::Done(got, _) = greeting.receive(&refused.encode()[4..]).unwrap() else { panic!() };
    assert_eq!(got, refused);
}

#[test]
fn legacy_peers_outside_the_range_are_refused_by_their_version() {
    for version in [1u16, 4, 6, 99] {
        let mut hello = HELLO_OF_0_1_0.to_vec();
        hello[4..6].copy_from_slice(&version.to_le_bytes());
        let mut welcome = WELCOME_OF_0_1_0.to_vec();
        welcome[4..6].copy_from_slice(&version.to_le_bytes());
        let (mut greeting, _) = ClientGreeting::begin(&self::hello(), ANNOUNCED);
        for refused in [receive_hello(&hello, ANNOUNCED).err(), greeting.receive(&welcome).err()] {
            let said = refused.unwrap().to_string();
            let versions = format!("the peer has protocol version {version}, this side version 5; ");
            assert!(said.starts_with(&versions), "{said}");
        }
    }
}

#[test]
fn second_announcement_and_damaged_ones_are_refused() {
    let (mut greeting, _) = ClientGreeting::begin(&hello(), ANNOUNCED);
    let announcement = encode_announcement(ANNOUNCED).split_off(4);
    for len in 4..announcement.len() {
        assert!(greeting.receive(&announcement[..len]).is_err(), "{len}");
        assert!(receive_answer(&announcement[..len], ANNOUNCED).is_err(), "{len}");
    }
    assert!(matches!(greeting.receive(&announcement), Ok(Step::Send(_))));
    assert!(greeting.receive(&announcement).is_err());
    assert!(receive_answer(HELLO_OF_0_1_0, ANNOUNCED).is_err());
}
