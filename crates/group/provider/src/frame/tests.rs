//! Frames decode to their original; all other bytes are refused.

use super::*;
use crate::history::Alone;
use redoubt_consensus::Member;
use redoubt_consensus::types::{Membership, Slot};

fn history() -> History {
    let mut history = History::default();
    history.add(Alone { member: MemberId(1), round: 12 });
    history
}

fn hello(is_legacy: bool, history: History) -> Frame {
    Frame::Hello(Hello {
        announced: if is_legacy { Announcement::of_legacy_peer(LEGACY_VERSION) } else { ANNOUNCED },
        is_legacy,
        cluster_name: "g".into(),
        group: GroupId([7; 16]),
        member: MemberId(1),
        incarnation: Incarnation(2),
        listen_address: "127.0.0.1:4567".into(),
        history,
    })
}

fn welcome(announced: Option<Announcement>, history: History) -> Frame {
    Frame::Answer(Answer::Welcome {
        announced,
        member: MemberId(2),
        group: GroupId([7; 16]),
        addresses: vec!["10.0.0.1:1".into(), "10.0.0.2:2".into()],
        history,
    })
}

fn frames() -> Vec<Frame> {
    let members = Membership::new([MemberId(1), MemberId(2)]);
    vec![
        hello(true, History::default()),
        hello(true, history()),
        hello(false, History::default()),
        hello(false, history()),
        welcome(None, History::default()),
        welcome(None, history()),
        welcome(Some(ANNOUNCED), History::default()),
        welcome(Some(ANNOUNCED), history()),
        Frame::Answer(Answer::Refused { reason: "no".into() }),
        Frame::Message(Message::Fetch { from: Slot(3) }),
        Frame::Start { snapshot: Member::founding(members), replica: vec![1, 2, 3] },
        Frame::Applied { seqno: Seqno(8), is_in_step: true },
        Frame::Applied { seqno: Seqno(9), is_in_step: false },
        Frame::WhoHears(MemberId(3)),
        Frame::Hears(MemberId(4)),
        Frame::StateRequest { seqno: 5, request: b"rsync\0there".to_vec() },
        Frame::StateRefused(Refusal { reason: "busy".into(), has_failed: false }),
        Frame::StateRefused(Refusal { reason: "no disk".into(), has_failed: true }),
    ]
}

#[test]
fn frames_come_back_one_after_the_other() {
    let bytes: Vec<u8> = frames().iter().flat_map(Frame::encode).collect();
    let mut from = bytes.as_slice();
    for frame in frames() {
        assert_eq!(Frame::read(&mut from, MAX_FRAME_LEN_BYTES).unwrap(), Some(frame));
    }
    assert_eq!(Frame::read(&mut from, MAX_FRAME_LEN_BYTES).unwrap(), None);
}

#[test]
fn what_is_cut_or_goes_on_is_refused() {
    for frame in frames() {
        let bytes = frame.encode();
        for len in 0..bytes.len() - 4 {
            assert!(Frame::decode(&bytes[4..4 + len]).is_err(), "{len} bytes of {frame:?}");
        }
        assert!(Frame::decode(&[&bytes[4..], &[0]].concat()).is_err(), "{frame:?} and a byte");
        assert!(Frame::read(&mut &bytes[..bytes.len() - 1], MAX_FRAME_LEN_BYTES).is_err());
    }
}

/// The decoder ignores no bit: after a change it returns an error or another frame.
#[test]
fn bytes_that_are_changed_never_do_harm() {
    let (mut refused, mut others) = (0, 0);
    for frame in frames() {
        let bytes = frame.encode();
        for at in 4..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                match Frame::decode(&changed[4..]) {
                    Err(_) => refused += 1,
                    Ok(other) => {
                        assert_ne!(other, frame, "bit {bit} of byte {at} is ignored");
                        assert_eq!(other.encode(), changed, "bit {bit} of byte {at} of {frame:?}");
                        others += 1;
                    }
                }
            }
        }
    }
    assert!(refused > 0 && others > 0, "{refused} refused, {others} other frames");
}

#[test]
fn a_length_alone_takes_no_memory() {
    let head = (MAX_FRAME_LEN_BYTES as u32).to_le_bytes();
    assert!(Frame::read(&mut head.as_slice(), MAX_FRAME_LEN_BYTES).is_err());
    let error = Frame::read(&mut head.as_slice(), MAX_HELLO_LEN_BYTES).unwrap_err();
    assert!(matches!(error, FrameError::TooLong(_)), "{error}");
}

/// Kinds of frames, and the feature to which each belongs. A new kind needs a line here: a feature, or a later version.
#[test]
fn every_kind_of_frame_belongs_to_a_feature() {
    let of_version_5 = Features::NONE;
    let expected = [
        (HELLO, of_version_5),
        (WELCOME, of_version_5),
        (REFUSED, of_version_5),
        (MESSAGE, of_version_5),
        (START, of_version_5),
        (STATE_REQUEST, of_version_5),
        (STATE_REFUSED, of_version_5),
        (APPLIED, of_version_5),
        // Only sent when a group has such a history. Then all its members need these kinds.
        (HELLO_OF_HISTORY, of_version_5),
        (WELCOME_OF_HISTORY, of_version_5),
        (WHO_HEARS, INDIRECT_HEARING),
        (HEARS, INDIRECT_HEARING),
        (APPLIED_OUT_OF_STEP, OUT_OF_STEP),
        // Only sent to members that negotiate.
        (HELLO_WITH_ANNOUNCEMENT, of_version_5),
        (WELCOME_WITH_ANNOUNCEMENT, of_version_5),
    ];
    let is_known = |kind: u8| {
        let unknown = BytesError::Unknown { at: 0 }.to_string();
        !Frame::decode(&[kind]).is_err_and(|error| error.to_string().ends_with(&unknown))
    };
    let known: Vec<u8> = (0..=u8::MAX).filter(|kind| is_known(*kind)).collect();
    assert_eq!(known, expected.map(|(kind, _)| kind));
    let all = expected.iter().fold(Features::NONE, |all, (_, feature)| all.with(*feature));
    assert_eq!(all, ANNOUNCED.known());
    for frame in frames() {
        let kind = frame.encode()[4];
        let (_, feature) = expected.into_iter().find(|(known, _)| *known == kind).unwrap();
        assert_eq!(frame.for_peer(feature).as_deref(), Some(&frame));
        let without = frame.for_peer(ANNOUNCED.known().without(feature)).map(|sent| sent.encode()[4]);
        let instead = if kind == APPLIED_OUT_OF_STEP { Some(APPLIED) } else { None };
        assert_eq!(without, if feature.is_empty() { Some(kind) } else { instead });
    }
}

/// The format that libraries without announcements send and expect, byte for byte.
#[test]
fn legacy_greetings_are_sent_as_they_were() {
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    };
    for (frame, hex) in [
        (hello(true, History::default()), HELLO_OF_LEGACY),
        (hello(true, history()), HELLO_OF_LEGACY_WITH_HISTORY),
        (welcome(None, History::default()), WELCOME_OF_LEGACY),
        (welcome(None, history()), WELCOME_OF_LEGACY_WITH_HISTORY),
    ] {
        assert_eq!(frame.encode(), bytes(hex), "{frame:?}");
        assert_eq!(Frame::decode(&bytes(hex)[4..]).unwrap(), frame);
    }
}

// In the layout of commit 57d19713, the last one without announcements.
const HELLO_OF_LEGACY: &str = "440000000152445447524f55500500000001000000670707070707070707070707070707070701000000000000000200\
    0000000000000e0000003132372e302e302e313a34353637";
const HELLO_OF_LEGACY_WITH_HISTORY: &str = "600000000901000000000000000100000001000000000000000c0000000000000052445447524f555005000000010000\
    006707070707070707070707070707070707010000000000000002000000000000000e0000003132372e302e302e313a\
    34353637";
const WELCOME_OF_LEGACY: &str = "3900000002020000000000000007070707070707070707070707070707020000000a00000031302e302e302e313a310a\
    00000031302e302e302e323a32";
const WELCOME_OF_LEGACY_WITH_HISTORY: &str = "550000000a01000000000000000100000001000000000000000c00000000000000020000000000000007070707070707\
    070707070707070707020000000a00000031302e302e302e313a310a00000031302e302e302e323a32";
