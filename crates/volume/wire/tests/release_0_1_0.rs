//! Requests and replies as the programs of 0.1.0 sent them, one JSON text in a line: recorded between its command and
//! its node while a volume was made, attached, shown, exported, imported and deleted. `fixtures/0.1.0/hello` and
//! `welcome` (see `src/greeting/tests.rs`) are of the same recording.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_wire::control::{Reply, Request, decode_json, encode_json};
use std::collections::BTreeSet;

const REQUESTS: &str = include_str!("fixtures/0.1.0/requests.jsonl");
const REPLIES: &str = include_str!("fixtures/0.1.0/replies.jsonl");
const SHAPES: &str = include_str!("fixtures/shapes.tsv");

/// The fields of a request are named by those of [`Request`], in its order, and no other is added: 0.1.0 refuses that.
#[test]
fn requests_of_0_1_0_are_understood_and_sent_as_then() {
    let mut kinds = BTreeSet::new();
    for line in REQUESTS.lines() {
        let request: Request = decode_json(line.as_bytes()).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(String::from_utf8(encode_json(&request).unwrap()).unwrap(), line);
        kinds.insert(format!("{request:?}").split([' ', '{']).next().unwrap().to_owned());
    }
    assert_eq!(kinds.len(), REQUESTS.lines().count());
    assert!(kinds.contains("Attach") && kinds.contains("ExportBegin") && kinds.contains("ImportBegin"));
}

#[test]
fn replies_of_0_1_0_are_understood() {
    let mut kinds = BTreeSet::new();
    for line in REPLIES.lines() {
        let reply: Reply = decode_json(line.as_bytes()).unwrap_or_else(|error| panic!("{line}: {error}"));
        if let Reply::Status(status) = &reply {
            assert_eq!((status.version.as_str(), status.volumes.len()), ("0.1.0", 1));
            assert!(status.local_socket.is_none() && status.volumes[0].newest_server.is_none());
        }
        let json = serde_json::to_value(&reply).unwrap();
        kinds.insert(json["reply"].as_str().unwrap().to_owned());
    }
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}

/// So that `0.1.0` in the list of shapes is right: the recording has no field that is listed as a later one.
#[test]
fn recorded_status_has_only_fields_listed_as_0_1_0() {
    let line = REPLIES.lines().find(|line| line.contains(r#""reply":"status""#)).unwrap();
    let status: serde_json::Value = serde_json::from_str(line).unwrap();
    let listed = |name: String| SHAPES.lines().any(|line| line == format!("{name}\t0.1.0"));
    let mut fields = 0;
    for (at, object) in [("", &status), ("volumes/", &status["volumes"][0])] {
        for name in object.as_object().unwrap().keys() {
            assert!(listed(format!("reply status/{at}{name}")), "{at}{name}");
            fields += 1;
        }
    }
    assert!(fields > 30, "{fields}");
}
