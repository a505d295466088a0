//! Frames go there and come back; anything else is refused.

use super::*;
use crate::history::Alone;
use redoubt_consensus::Member;
use redoubt_consensus::types::{Membership, Slot};

fn history() -> History {
    let mut history = History::default();
    history.add(Alone { member: MemberId(1), round: 12 });
    history
}

fn frames() -> Vec<Frame> {
    let members = Membership::new([MemberId(1), MemberId(2)]);
    vec![
        Frame::Hello(Hello {
            version: VERSION,
            cluster_name: "g".into(),
            group: GroupId([7; 16]),
            member: MemberId(1),
            incarnation: Incarnation(2),
            listen_address: "127.0.0.1:4567".into(),
            history: History::default(),
        }),
        Frame::Hello(Hello {
            version: VERSION,
            cluster_name: "g".into(),
            group: GroupId([7; 16]),
            member: MemberId(2),
            incarnation: Incarnation(9),
            listen_address: "127.0.0.1:4568".into(),
            history: history(),
        }),
        Frame::Answer(Answer::Welcome {
            member: MemberId(2),
            group: GroupId([7; 16]),
            addresses: vec!["10.0.0.1:1".into(), "10.0.0.2:2".into()],
            history: History::default(),
        }),
        Frame::Answer(Answer::Welcome {
            member: MemberId(2),
            group: GroupId([7; 16]),
            addresses: Vec::new(),
            history: history(),
        }),
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

#[test]
fn bytes_that_are_changed_never_do_harm() {
    for frame in frames() {
        let bytes = frame.encode();
        for at in 4..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let _ = Frame::decode(&changed[4..]);
            }
        }
    }
}

#[test]
fn a_length_alone_takes_no_memory() {
    let head = (MAX_FRAME_LEN_BYTES as u32).to_le_bytes();
    assert!(Frame::read(&mut head.as_slice(), MAX_FRAME_LEN_BYTES).is_err());
    let error = Frame::read(&mut head.as_slice(), MAX_HELLO_LEN_BYTES).unwrap_err();
    assert!(matches!(error, FrameError::TooLong(_)), "{error}");
}
