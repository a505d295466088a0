//! Any bytes as the traffic between a client and its server. There is no panic, and the result does not depend on how
//! the bytes are cut. A lost stream stays lost and never waits.
//!
//! Input: pieces, each a byte with its direction in the highest bit and its length in the others, then its content; or,
//! of length 0, the server asks for a header, with the highest bit for one of compressed frames.

#[path = "../../../net/net/src/admission"]
#[allow(dead_code, missing_docs, reason = "modules of a library that is not linked; its tests use the rest")]
mod admission {
    pub mod compression;
    pub mod packets;
    pub mod protocol;
    pub mod stream;
    pub mod text;
}

use admission::protocol::Boundary;
use admission::stream::Stream;

const FROM_SERVER: u8 = 0x80;

fn feed(stream: &mut Stream, from_server: bool, bytes: &[u8]) {
    if from_server {
        stream.sent(bytes);
    } else {
        stream.received(bytes);
    }
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    for begin in [Stream::accepted, Stream::joining] {
        let (mut whole, mut pieces, mut rest) = (begin(), begin(), data);
        let mut was_lost = false;
        while let Some((first, after)) = rest.split_first() {
            let len = usize::from(first & !FROM_SERVER).min(after.len());
            let (content, after) = after.split_at(len);
            rest = after;
            if content.is_empty() {
                let header_len_bytes = if first & FROM_SERVER == 0 { 4 } else { 7 };
                let boundary = whole.asks(header_len_bytes);
                assert_eq!(boundary, pieces.asks(header_len_bytes));
                let may_wait = matches!(boundary, Boundary::Command { may_wait: true, .. });
                assert!(!may_wait || !whole.tracker().lost() && whole.tracker().holds() == 0);
            } else {
                let _ = whole.is_free(content);
                feed(&mut whole, first & FROM_SERVER != 0, content);
                for byte in content.chunks(1) {
                    feed(&mut pieces, first & FROM_SERVER != 0, byte);
                }
            }
            let (tracker, other) = (whole.tracker(), pieces.tracker());
            // The locks of a lost stream do not count.
            let is_same = tracker.lost() || tracker.holds() == other.holds();
            assert!(tracker.lost() == other.lost() && is_same);
            assert!(tracker.lost() || !was_lost);
            was_lost = tracker.lost();
        }
    }
}
