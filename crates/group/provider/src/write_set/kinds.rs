//! The kinds of ordered actions, and the feature that all members need before one may be ordered.
//!
//! A member cannot skip an action that it does not know: it leaves the group. The negotiation of a connection
//! ([`crate::frame`]) does not prevent that, because an ordered action reaches all members.
//!
//! Invariant: a kind that builds before negotiation do not know has a feature here. Today none has one, and the
//! compiler checks that. The first one needs a check before it is proposed: `Order::propose` must refuse it, naming the
//! members, until every member of the group has announced its feature in [`crate::frame::ANNOUNCED`].

use super::{
    ALONE_TAG, ARRIVED_TAG, DEPARTED_TAG, PART_VERSION, REMOVED_TAG, VERSION, VOTE_TAG, WRITE_SET_TAG,
};
use redoubt_negotiation::Features;

/// A kind of action.
pub(super) struct Kind {
    /// The first byte of the action.
    pub version: u8,
    /// The second byte.
    pub tag: u8,
    /// The feature that all members need.
    pub feature: Features,
}

const fn of_legacy_builds(version: u8, tag: u8) -> Kind {
    Kind { version, tag, feature: Features::NONE }
}

/// All kinds. A line is never removed or changed: logs of groups contain them.
pub(super) const KINDS: [Kind; 7] = [
    of_legacy_builds(VERSION, WRITE_SET_TAG),
    of_legacy_builds(PART_VERSION, WRITE_SET_TAG),
    of_legacy_builds(VERSION, ARRIVED_TAG),
    of_legacy_builds(VERSION, DEPARTED_TAG),
    of_legacy_builds(VERSION, VOTE_TAG),
    of_legacy_builds(VERSION, REMOVED_TAG),
    of_legacy_builds(VERSION, ALONE_TAG),
];

const _: () = {
    let mut at = 0;
    while at < KINDS.len() {
        assert!(KINDS[at].feature.is_empty(), "Order::propose must check the features of all members first");
        let mut other = 0;
        while other < at {
            let is_same = KINDS[at].version == KINDS[other].version && KINDS[at].tag == KINDS[other].tag;
            assert!(!is_same, "a kind is listed twice");
            other += 1;
        }
        at += 1;
    }
};

/// Whether an action of this version and tag is known.
#[cfg(test)]
pub(super) fn is_known(version: u8, tag: u8) -> bool {
    KINDS.iter().any(|kind| (kind.version, kind.tag) == (version, tag))
}
