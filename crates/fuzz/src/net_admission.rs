//! Any bytes as what a client and its server say to each other: no panic, the same however they are cut, and what is lost
//! stays lost and never waits.
//!
//! Input: pieces, each a byte with its direction in the highest bit and its length in the others, then its content; or,
//! of length 0, the server asks for a header.

#[path = "../../net/src/admission"]
#[allow(dead_code, missing_docs, reason = "modules of a library that is not linked; its tests use the rest")]
mod admission {
    pub mod packets;
    pub mod protocol;
    pub mod text;
}

use admission::protocol::{Boundary, Tracker};

const FROM_SERVER: u8 = 0x80;

fn feed(tracker: &mut Tracker, from_server: bool, bytes: &[u8]) {
    if from_server {
        tracker.sent(bytes);
    } else {
        tracker.received(bytes);
    }
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    for begin in [Tracker::accepted, Tracker::joining] {
        let (mut whole, mut pieces, mut rest) = (begin(), begin(), data);
        let mut was_lost = false;
        while let Some((first, after)) = rest.split_first() {
            let len = usize::from(first & !FROM_SERVER).min(after.len());
            let (content, after) = after.split_at(len);
            rest = after;
            if content.is_empty() {
                let boundary = whole.asks(4);
                assert_eq!(boundary, pieces.asks(4));
                let may_wait = matches!(boundary, Boundary::Command { may_wait: true, .. });
                assert!(!may_wait || !whole.lost() && whole.holds() == 0);
            } else {
                let _ = whole.is_free(content);
                feed(&mut whole, first & FROM_SERVER != 0, content);
                for byte in content.chunks(1) {
                    feed(&mut pieces, first & FROM_SERVER != 0, byte);
                }
            }
            assert_eq!((whole.lost(), whole.holds()), (pieces.lost(), pieces.holds()));
            assert!(whole.lost() || !was_lost);
            was_lost = whole.lost();
        }
    }
}
