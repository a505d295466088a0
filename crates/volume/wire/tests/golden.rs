//! Frames as earlier protocol versions sent them, byte for byte, decoded by this one.
//!
//! `fixtures/protocol-1.tsv` was printed by the code of commit 70f4e04: what it is, the bytes in hex, and how that code
//! showed the value. The later files contain the changes of their version:
//!
//! | file | changes besides the version in the greetings |
//! |---|---|
//! | `fixtures/protocol-2.tsv` | the role of notices |
//! | `fixtures/protocol-3.tsv` | a shorter request to read, and log connections that are compressed as a whole |
//! | `fixtures/protocol-4.tsv` | requests for lists and for the end of a file |
//! | `fixtures/protocol-5.tsv` | pages that are scrubbed |
//!
//! Logged frames are stored in every volume, so they must be readable forever. The greeting must stay readable, so that
//! an older peer receives the reason for its rejection. A change that breaks a line needs a new protocol version and a
//! new file beside this one, never a change of the file.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_wire::compression::Decompressor;
use redoubt_wire::control::{Request, decode_data, decode_json, encode_data, encode_json};
use redoubt_wire::frame::{COMPRESSED, append_frame, decompress};
use redoubt_wire::hello::{Hello, Welcome, decode_len};
use redoubt_wire::negotiation::{Disagreement, Versions};
use redoubt_wire::notice::Notice;
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::stream::decode;
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES, WireError};

const VERSION_1: &str = include_str!("fixtures/protocol-1.tsv");
const VERSION_2: &str = include_str!("fixtures/protocol-2.tsv");
const VERSION_3: &str = include_str!("fixtures/protocol-3.tsv");
const VERSION_4: &str = include_str!("fixtures/protocol-4.tsv");
const VERSION_5: &str = include_str!("fixtures/protocol-5.tsv");

/// Fields that requests got later, as they show where they were not sent.
const LATER_FIELDS: [&str; 3] = [", encrypted: false", ", server: None", ", seen_generation: None"];

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Header and payload of a frame that is whole.
fn frame(wire: &[u8], position: u64) -> (FrameHeader, Vec<u8>) {
    let header = FrameHeader::decode(wire.first_chunk().unwrap());
    let payload = &wire[HEADER_LEN_BYTES..];
    header.check(position, payload).unwrap();
    (header, if header.compressed { decompress(payload).unwrap() } else { payload.to_vec() })
}

fn require_same_frame(wire: &[u8], header: FrameHeader, position: u64, payload: &[u8]) {
    if header.compressed {
        return; // Another compressor may pack otherwise.
    }
    let mut again = Vec::new();
    append_frame(&mut again, header.kind, position, payload).unwrap();
    assert_eq!(again, wire);
}

fn check(kind: &str, wire: &[u8], shown: &str) {
    match kind {
        "hello" | "welcome" => {
            let (len, rest) = wire.split_first_chunk().unwrap();
            assert_eq!(decode_len(*len).unwrap(), rest.len());
            if kind == "hello" {
                let hello = Hello::decode(rest).unwrap();
                assert_eq!((format!("{hello:?}").as_str(), &hello.encode()[..]), (shown, wire));
            } else {
                let welcome = Welcome::decode(rest).unwrap();
                assert_eq!((format!("{welcome:?}").as_str(), &welcome.encode()[..]), (shown, wire));
            }
        }
        "stream" => {
            let (header, payload) = frame(wire, 4711);
            let frame = decode(header.kind, &payload).unwrap();
            assert_eq!(format!("{frame:?}"), shown);
            let mut again = Vec::new();
            frame.encode_payload(&mut again);
            assert_eq!(frame.kind(), header.kind);
            require_same_frame(wire, header, 4711, &again);
        }
        "log connection" => {
            let mut raw = vec![0; 1 << 10];
            let step = Decompressor::new().unwrap().unpack(wire, &mut raw).unwrap();
            assert_eq!((step.taken_bytes, &raw[..step.given_bytes]), (wire.len(), &bytes(shown)[..]));
        }
        "request" | "reply" => {
            let (header, payload) = frame(wire, 0);
            let mut again = Vec::new();
            let (value, kind_again) = if kind == "request" {
                let request = PageRequest::decode(header.kind, &payload).unwrap();
                (format!("{request:?}"), request.encode(&mut again))
            } else {
                let reply = PageReply::decode(header.kind, &payload).unwrap();
                (format!("{reply:?}"), reply.encode(&mut again))
            };
            assert_eq!((value.as_str(), kind_again), (shown, header.kind));
            require_same_frame(wire, header, 0, &again);
        }
        "notice" => {
            let (header, payload) = frame(wire, 0);
            let notice = Notice::decode(header.kind, &payload).unwrap();
            assert_eq!((format!("{notice:?}").as_str(), notice.encode()), (shown, (header.kind, payload)));
        }
        "control" => {
            let (_, payload) = frame(wire, 0);
            let request = decode_json::<Request>(&payload).unwrap();
            let now = format!("{request:?}");
            assert_eq!(LATER_FIELDS.iter().fold(now, |now, field| now.replace(field, "")), shown);
            assert_eq!(encode_json(&request).unwrap(), payload);
        }
        "data" => {
            let (offset, content) = decode_data(wire).unwrap().unwrap();
            assert_eq!(encode_data(offset, content), wire);
        }
        other => panic!("{other}?"),
    }
}

#[test]
fn every_frame_is_understood_and_encoded_as_it_was() {
    let former = [VERSION_1, VERSION_2, VERSION_3, VERSION_4].map(|file| (file, false));
    for (file, is_newest) in former.into_iter().chain([(VERSION_5, true)]) {
        let mut lines = 0;
        for line in file.lines() {
            let [kind, hex, shown] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
            // Greetings and requests are not stored, and a peer of another version sends none.
            if is_newest || !["hello", "welcome", "request"].contains(&kind) {
                check(kind, &bytes(hex), shown);
                lines += 1;
            }
        }
        assert!(lines > 30);
    }
}

/// They come from a later version, which sends a field that matters only to a node that has announced its feature.
#[test]
fn request_with_unknown_field_is_understood() {
    let asked = br#"{"request":"volume_create","volume":"v","encrypted":true}"#;
    let known = decode_json::<Request>(asked).unwrap();
    assert!(matches!(known, Request::VolumeCreate { encrypted: true, .. }));
    assert_eq!(encode_json(&known).unwrap(), asked);
    let later = br#"{"request":"attach","volume":"v","who":"w","from-a-later-version":{"deep":[1]}}"#;
    let Request::Attach { volume, who, server: None, seen_generation: None } =
        decode_json::<Request>(later).unwrap()
    else {
        panic!()
    };
    assert_eq!((volume.as_str(), who.as_str()), ("v", "w"));
    let later =
        br#"{"request":"view","volume":"v","about":{"ask":"names","view":3,"from-a-later-version":1}}"#;
    assert!(decode_json::<Request>(later).is_ok());
    let misspelled = br#"{"request":"volume_create","volumes":"v"}"#;
    assert!(decode_json::<Request>(misspelled).is_err());
}

#[test]
fn greetings_of_earlier_versions_are_refused_by_their_version() {
    for (version, file) in [(1, VERSION_1), (2, VERSION_2), (3, VERSION_3), (4, VERSION_4)] {
        for line in file.lines().filter_map(|line| line.strip_prefix("hello\t")) {
            let hello = bytes(line.split('\t').next().unwrap()).split_off(4);
            let refused = Hello::decode(&hello).unwrap_err();
            let (ours, theirs) = (Versions::only(5), Versions::only(version));
            assert_eq!(refused, WireError::Disagreement(Disagreement::Versions { ours, theirs }));
        }
    }
}

#[test]
fn every_logged_kind_of_the_first_version_is_there() {
    let streams = VERSION_1.lines().filter_map(|line| line.strip_prefix("stream\t"));
    let mut kinds: Vec<_> = streams.map(|rest| bytes(&rest[..2])[0] & !COMPRESSED).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, (1..=13).chain([0x40, 0x41]).collect::<Vec<_>>());
}

#[test]
fn a_peer_of_another_version_is_refused_with_both_versions_and_the_way_out() {
    for line in VERSION_1.lines() {
        let mut parts = line.split('\t');
        let (Some(kind @ ("hello" | "welcome")), Some(hex)) = (parts.next(), parts.next()) else { continue };
        let mut newer = bytes(hex).split_off(4);
        newer[4..6].copy_from_slice(&9u16.to_le_bytes());
        // A later version may continue in any way after its version.
        newer.truncate(9);
        let error = if kind == "hello" { Hello::decode(&newer).err() } else { Welcome::decode(&newer).err() };
        let said = error.unwrap().to_string();
        assert!(said.contains("version 9") && said.contains("this side version 5"), "{said}");
        assert!(said.contains("install the same version"), "{said}");
    }
}

#[test]
fn a_frame_of_an_unknown_kind_says_where_it_may_come_from() {
    let said = decode(63, b"").unwrap_err().to_string();
    assert!(
        said.contains("63") && said.contains("newer Redoubt") && said.contains("use the version"),
        "{said}"
    );
}
