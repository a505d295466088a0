//! Positions in the servers' format.

use super::*;

#[test]
fn the_last_position_counts() {
    let text = "2026-01-01 0:00:00 0 [Note] WSREP: Recovered position: \
                00112233-4455-6677-8899-aabbccddeeff:41,0-1-2\n\
                2026-01-01 0:00:01 0 [Note] WSREP: Recovered position: \
                00112233-4455-6677-8899-aabbccddeeff:42\nWarning: ...\n";
    let (group, seqno) = parse(text).unwrap().unwrap();
    assert_eq!(seqno, Seqno(42));
    assert_eq!(group.0[..3], [0x00, 0x11, 0x22]);
}

#[test]
fn data_that_was_never_in_a_group_has_none() {
    let text = "[Note] WSREP: Recovered position: 00000000-0000-0000-0000-000000000000:-1\n";
    assert_eq!(parse(text), Some(None));
}

#[test]
fn what_is_no_position_is_not_guessed() {
    for text in ["", "Recovered position: ", "Recovered position: 0011:5\n", "Recovered position: x\n"] {
        assert_eq!(parse(text), None, "{text:?}");
    }
}

#[test]
fn what_is_written_is_read_again() {
    let of_group = (GroupId([0xfe; 16]), Seqno(i64::MAX));
    for position in [None, Some(of_group), Some((of_group.0, Seqno(0)))] {
        assert_eq!(gtid(&text_of(position)), Some(position));
    }
}
